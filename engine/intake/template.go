package intake

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// Var is one named value of a target.
type Var struct{ Name, Value string }

// Vars are a target's variables in the order of their columns. Names are
// unique.
type Vars []Var

// Get finds a value by name.
func (v Vars) Get(name string) (string, bool) {
	for _, x := range v {
		if x.Name == name {
			return x.Value, true
		}
	}
	return "", false
}

// Map copies the variables for callers that want no order.
func (v Vars) Map() map[string]string {
	m := make(map[string]string, len(v))
	for _, x := range v {
		m[x.Name] = x.Value
	}
	return m
}

// Template is a text with variables: "{sku}"; "{{" and "}}" stand for braces.
// The zero Template is the empty text. Templates are immutable.
type Template struct {
	text  string
	parts []part
}

// part is a literal text, or a variable where name is set.
type part struct{ literal, name string }

// Mode says what a template's text is.
type Mode int

// Modes of Expand.
const (
	Plain Mode = iota // values stand as they are
	URL               // values are percent-encoded for their place in a URL
)

// ParseTemplate reads a template. A variable's name is a letter or underscore,
// then letters, digits and "_-.".
func ParseTemplate(text string) (Template, error) {
	t := Template{text: text}
	var literal strings.Builder
	for rest := text; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			literal.WriteString(rest)
			break
		}
		literal.WriteString(rest[:i])
		brace := rest[i : i+1]
		if strings.HasPrefix(rest[i+1:], brace) {
			literal.WriteString(brace)
			rest = rest[i+2:]
			continue
		}
		end := strings.IndexAny(rest[i+1:], "{}")
		if brace == "}" || end < 0 || rest[i+1+end] != '}' {
			return Template{}, fmt.Errorf("lone %q: a brace itself is written twice", brace)
		}
		name := rest[i+1 : i+1+end]
		if !ValidName(name) {
			return Template{}, fmt.Errorf("%q is not a variable's name", name)
		}
		t.parts = append(t.parts, part{literal: literal.String()}, part{name: name})
		literal.Reset()
		rest = rest[i+2+end:]
	}
	t.parts = append(t.parts, part{literal: literal.String()})
	return t, nil
}

// ValidName reports whether templates can name a variable so.
func ValidName(name string) bool {
	for i, r := range name {
		letter := r == '_' || unicode.IsLetter(r)
		if !letter && (i == 0 || !unicode.IsDigit(r) && r != '-' && r != '.') {
			return false
		}
	}
	return name != ""
}

// Vars are the names it uses, each once, in order.
func (t Template) Vars() []string {
	var names []string
	for _, p := range t.parts {
		if p.name != "" && !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}

// String is the text it was parsed from.
func (t Template) String() string { return t.text }

// IsZero reports whether the template is the empty text.
func (t Template) IsZero() bool { return t.text == "" }

// Expand fills in the variables. In mode URL a variable that the template
// starts with stands as it is, since it brings the scheme; later ones are
// encoded for where they stand. A missing variable is an error; an empty one is
// not.
func (t Template) Expand(vars Vars, mode Mode) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.name == "" {
			b.WriteString(p.literal)
			continue
		}
		value, ok := vars.Get(p.name)
		if !ok {
			return "", fmt.Errorf("variable %q is missing", p.name)
		}
		if mode == URL && b.Len() > 0 {
			var err error
			if value, err = encode(b.String(), value); err != nil {
				return "", fmt.Errorf("variable %q: %w", p.name, err)
			}
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// encode makes a value fit for the place after the URL text written so far.
func encode(before, value string) (string, error) {
	if strings.ContainsAny(before, "?#") {
		return strings.ReplaceAll(url.QueryEscape(value), "+", "%20"), nil
	}
	_, afterScheme, _ := strings.Cut(before, "://")
	if !strings.Contains(afterScheme, "/") {
		return value, checkHost(value)
	}
	if value == "." || value == ".." {
		return "", fmt.Errorf("%q would change the path", value)
	}
	return url.PathEscape(value), nil
}

// checkHost keeps a value in the host's place from bringing a path, a login or
// anything else of a URL.
func checkHost(value string) error {
	for _, r := range value {
		if r != '-' && r != '.' && r != ':' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return fmt.Errorf("%q cannot stand in a host name", value)
		}
	}
	return nil
}
