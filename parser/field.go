package parser

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/currency"
)

// field is a compiled Field.
type field struct {
	name     string
	label    []byte // the name as a JSON key, with its colon
	sel      selector
	typ      fieldType
	last     bool
	many     bool
	join     string // "": no join
	required bool
	step     string // workflow step whose page is read; "": the last one's
	ownURL   bool   // links resolve against the final URL alone: the value is of no HTML page

	mapped  map[string]string // nil: no map
	enum    []string
	pattern *regexp.Regexp // over the whole text
	// min and max are canonical texts, "" for no bound.
	min, max string

	decimal, pick, layout string
	zone                  *time.Location
	calendar              *calendar // of the layout's names, which names has in order; nil: English as Go reads it
	names                 []bool
	written               string // the layout as the rules have it, and its language

	money    bool
	currency string        // of money; "": the page says it
	region   currency.Unit // of money whose currency the page says: what a sign of several means

	fallback *fallback // of Default; nil: none
}

// fallback is a default, converted once.
type fallback struct {
	json []byte
	text string
}

// cell is what a field gave, for the record's key and its missing names.
type cell struct {
	text     string // canonical text of a single value
	missing  bool
	unfilled bool // the page has no value for it
}

// append reads the field in s and appends its JSON value.
func (f *field) append(dst []byte, s *scope) ([]byte, cell, error) {
	if f.many {
		return f.appendMany(dst, s)
	}
	text, found, err := f.single(s)
	if err != nil {
		return nil, cell{}, err
	}
	if !found {
		return f.appendMissing(dst, s, "null")
	}
	if f.required && f.isEmpty(text) {
		return nil, cell{}, invalid("", "is required, and its text is empty")
	}
	return f.typ.encode(dst, f, text), cell{text: text, unfilled: f.isEmpty(text)}, nil
}

// single makes the one canonical text of a field that is not many; false where
// nothing matches.
func (f *field) single(s *scope) (text string, found bool, err error) {
	if f.join != "" {
		return f.joined(s)
	}
	find := findFirst
	if f.last {
		find = findLast
	}
	m, found, err := find(f.sel, s)
	if err != nil || !found {
		return "", false, err
	}
	text, err = f.value(s, m)
	return text, true, err
}

// joined makes one text of all matches.
func (f *field) joined(s *scope) (string, bool, error) {
	matches, err := findAll(f.sel, s)
	texts := make([]string, len(matches))
	size, empty := 0, true
	for i := 0; i < len(matches) && err == nil; i++ {
		if texts[i], err = f.value(s, matches[i]); err == nil {
			size += len(texts[i])
			err = s.page.checkRecords(size)
		}
		empty = empty && f.isEmpty(texts[i])
	}
	if err != nil || empty {
		return "", len(matches) > 0, err
	}
	return strings.Join(texts, f.join), true, nil
}

// appendMany appends an array of all matches.
func (f *field) appendMany(dst []byte, s *scope) ([]byte, cell, error) {
	matches, err := findAll(f.sel, s)
	if err != nil {
		return nil, cell{}, err
	}
	if len(matches) == 0 {
		return f.appendMissing(dst, s, "[]")
	}
	allEmpty := true
	dst = append(dst, '[')
	for i, m := range matches {
		text, err := f.value(s, m)
		if err != nil {
			return nil, cell{}, err
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = f.typ.encode(dst, f, text)
		if err := s.page.checkRecords(len(dst)); err != nil {
			return nil, cell{}, err
		}
		allEmpty = allEmpty && f.isEmpty(text)
	}
	if f.required && allEmpty {
		return nil, cell{}, invalid("", "is required, and its texts are all empty")
	}
	return append(dst, ']'), cell{unfilled: allEmpty}, nil
}

// appendMissing appends what stands for no match.
func (f *field) appendMissing(dst []byte, s *scope, none string) ([]byte, cell, error) {
	switch {
	case f.required && s.page.ld != nil && s.page.ld.broken > 0:
		return nil, cell{}, invalid("", "is required and missing (%d JSON-LD blocks of the page are broken)", s.page.ld.broken)
	case f.required:
		return nil, cell{}, invalid("", "is required and missing")
	case f.fallback != nil:
		return append(dst, f.fallback.json...), cell{text: f.fallback.text, unfilled: true}, nil
	}
	return append(dst, none...), cell{missing: true, unfilled: true}, nil
}

// isEmpty is true for a value that a required field may not have.
func (f *field) isEmpty(text string) bool { return strings.TrimSpace(text) == f.typ.empty }

// value makes the canonical text of one match and checks it.
func (f *field) value(s *scope, m match) (_ string, err error) {
	defer recovered(&err)
	t, err := f.typ.read(m)
	if err != nil {
		return "", err
	}
	if f.mapped != nil {
		to, ok := f.mapped[t.s]
		if !ok {
			return "", invalid(t.s, "is %q, which is not in map", shorten(t.s))
		}
		t = text{s: to}
	}
	if err := f.checkText(t.s); err != nil {
		return "", err
	}
	if t.s == "" && f.typ.expected != "" {
		return "", invalid("", `is "", expected %s`, f.typ.expected)
	}
	canonical, err := f.typ.convert(f, s, t)
	if err != nil {
		return "", err
	}
	return canonical, f.checkBounds(canonical)
}

func (f *field) checkText(s string) error {
	switch {
	case f.pattern != nil && !f.pattern.MatchString(s):
		return invalid(s, "is %q, which pattern does not match", shorten(s))
	case f.enum != nil && !slices.Contains(f.enum, s):
		return invalid(s, "is %q, which is not in enum", shorten(s))
	}
	return nil
}

func (f *field) checkBounds(canonical string) error {
	switch {
	case f.min != "" && f.typ.compare(canonical, f.min) < 0:
		return invalid(canonical, "is below min %s", f.min)
	case f.max != "" && f.typ.compare(canonical, f.max) > 0:
		return invalid(canonical, "is above max %s", f.max)
	}
	return nil
}

// linkBase is what a link in this field resolves against.
func (f *field) linkBase(s *scope) (*url.URL, error) {
	if f.ownURL {
		return s.page.finalURL()
	}
	return s.page.linkBase()
}
