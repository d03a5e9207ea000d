package parser

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxKeyBytes bounds a record's key.
const maxKeyBytes = 8192

// keyTemplate makes a record's key of its fields and the target's variables.
type keyTemplate struct {
	parts      []keyPart // none: the target's key
	usesFields bool
}

// keyPart is literal text, then a name unless it is "".
type keyPart struct {
	literal string
	name    string
	field   int // index of the field of that name, -1 for a variable
}

// compileKey reads a template such as "{sku}-{size}". Braces stand for nothing
// else.
func compileKey(text string, fields []Field) (keyTemplate, error) {
	var t keyTemplate
	for rest := text; rest != ""; {
		literal, after, found := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return t, errors.New(`has a "}" without "{"`)
		}
		part := keyPart{literal: literal, field: -1}
		if found {
			name, tail, closed := strings.Cut(after, "}")
			if !closed || name == "" || strings.Contains(name, "{") {
				return t, errors.New(`has a "{" that no name and "}" follow`)
			}
			part.name, rest = name, tail
		} else {
			rest = ""
		}
		if err := part.bind(fields); err != nil {
			return t, err
		}
		t.usesFields = t.usesFields || part.field >= 0
		t.parts = append(t.parts, part)
	}
	return t, nil
}

// bind finds the field that the part names.
func (k *keyPart) bind(fields []Field) error {
	for i := range fields {
		f := &fields[i]
		if k.name == "" || f.Name != k.name {
			continue
		}
		if f.Many || f.Type == "html" || f.Type == "object" {
			return fmt.Errorf("cannot hold %s: only single values have a text form", f.Name)
		}
		k.field = i
		return nil
	}
	return nil
}

// expand makes the key; cells are the record's fields.
func (t keyTemplate) expand(in Input, cells []cell) (string, error) {
	key := in.Target
	if t.parts != nil {
		var b strings.Builder
		for _, part := range t.parts {
			text, ok := "", true
			switch {
			case part.field >= 0:
				text, ok = cells[part.field].text, !cells[part.field].missing
			case part.name != "":
				text, ok = in.variable(part.name)
			}
			if !ok {
				return "", invalid("", "the record's key needs %s, which has no value", part.name)
			}
			b.WriteString(part.literal)
			b.WriteString(text)
		}
		key = b.String()
	}
	return key, checkKey(key)
}

func checkKey(key string) error {
	switch {
	case key == "":
		return invalid("", "the record's key is empty")
	case len(key) > maxKeyBytes:
		return invalid(key, "the record's key has %d bytes, more than %d", len(key), maxKeyBytes)
	case strings.Contains(key, "\x00"):
		return invalid(key, "the record's key holds a NUL")
	case !utf8.ValidString(key):
		return invalid(key, "the record's key is not UTF-8")
	}
	return nil
}
