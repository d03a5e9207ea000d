package proxy

import (
	"errors"
	"fmt"
	"strings"
)

// Variables of a template.
const (
	varUsername = "username"
	varPassword = "password"
	varCountry  = "country"
	varSession  = "session"
)

// values are what a template is filled with.
type values struct{ username, password, country, session string }

func (v values) get(name string) string {
	switch name {
	case varUsername:
		return v.username
	case varPassword:
		return v.password
	case varCountry:
		return v.country
	default:
		return v.session
	}
}

// part is either text or a variable.
type part struct{ text, variable string }

// segment is a run of parts; an optional one stood in brackets.
type segment struct {
	parts    []part
	optional bool
}

// template is a parsed template. Its text may be shown: secrets come in
// through variables.
type template []segment

func parseTemplate(text string) (template, error) {
	var t template
	for text != "" {
		optional := text[0] == '['
		var body string
		switch {
		case optional:
			inner, rest, closed := strings.Cut(text[1:], "]")
			if !closed {
				return nil, errors.New("a [ is not closed")
			}
			body, text = inner, rest
		default:
			end := strings.IndexByte(text, '[')
			if end < 0 {
				end = len(text)
			}
			body, text = text[:end], text[end:]
		}
		s, err := parseSegment(body)
		if err != nil {
			return nil, err
		}
		s.optional = optional
		if optional && !s.hasVariable() {
			return nil, fmt.Errorf("[%s] holds no variable", body)
		}
		t = append(t, s)
	}
	return t, nil
}

// parseSegment parses what stands between brackets.
func parseSegment(body string) (segment, error) {
	var s segment
	if strings.ContainsAny(body, "[]") {
		return s, errors.New("a ] without its [, or a [ within another")
	}
	for body != "" {
		text, rest, opened := strings.Cut(body, "{")
		if strings.Contains(text, "}") {
			return s, errors.New("a } without its {")
		}
		if text != "" {
			s.parts = append(s.parts, part{text: text})
		}
		if !opened {
			return s, nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return s, errors.New("a { is not closed")
		}
		switch name {
		case varUsername, varPassword, varCountry, varSession:
		default:
			return s, fmt.Errorf("unknown variable {%s}: there are {username}, {password}, {country} and {session}", name)
		}
		s.parts = append(s.parts, part{variable: name})
		body = after
	}
	return s, nil
}

func (s segment) hasVariable() bool {
	for _, p := range s.parts {
		if p.variable != "" {
			return true
		}
	}
	return false
}

// uses reports whether the variable stands in t, and whether it stands outside
// brackets, where it cannot be left out.
func (t template) uses(variable string) (anywhere, required bool) {
	for _, s := range t {
		for _, p := range s.parts {
			if p.variable == variable {
				anywhere = true
				required = required || !s.optional
			}
		}
	}
	return anywhere, required
}

// fill renders t. Callers have checked that required variables have values.
func (t template) fill(v values) string {
	var b strings.Builder
	for _, s := range t {
		if s.optional && s.lacksValue(v) {
			continue
		}
		for _, p := range s.parts {
			if p.variable == "" {
				b.WriteString(p.text)
			} else {
				b.WriteString(v.get(p.variable))
			}
		}
	}
	return b.String()
}

func (s segment) lacksValue(v values) bool {
	for _, p := range s.parts {
		if p.variable != "" && v.get(p.variable) == "" {
			return true
		}
	}
	return false
}
