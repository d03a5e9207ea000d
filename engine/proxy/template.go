package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Variables of a template.
const (
	varUsername = "username"
	varPassword = "password"
	varCountry  = "country"
	varSession  = "session"
	varTTL      = "ttl"
)

var variables = []string{varUsername, varPassword, varCountry, varSession, varTTL}

// values are what a template is filled with.
type values struct{ username, password, country, session, ttl string }

func (v values) get(name string) string {
	switch name {
	case varUsername:
		return v.username
	case varPassword:
		return v.password
	case varCountry:
		return v.country
	case varSession:
		return v.session
	default:
		return v.ttl
	}
}

// part is either text or a variable.
type part struct{ text, variable string }

// alternative is a run of parts.
type alternative []part

// segment is what stands in brackets, or between them.
type segment struct {
	alternatives []alternative // of a bracket, in order of preference; else one
	optional     bool          // it stood in brackets
}

// template is a parsed template. Its text may be shown: secrets come in
// through variables.
type template []segment

func parseTemplate(text string) (template, error) {
	var t template
	for text != "" {
		var s segment
		var err error
		if text[0] == '[' {
			body, rest, closed := strings.Cut(text[1:], "]")
			if !closed {
				return nil, errors.New("a [ is not closed")
			}
			s, err = parseBracket(body)
			text = rest
		} else {
			end := strings.IndexByte(text, '[')
			if end < 0 {
				end = len(text)
			}
			var only alternative
			only, err = parseParts(text[:end])
			s.alternatives = []alternative{only}
			text = text[end:]
		}
		if err != nil {
			return nil, err
		}
		t = append(t, s)
	}
	return t, nil
}

// parseBracket parses the alternatives of a bracket.
func parseBracket(body string) (segment, error) {
	s := segment{optional: true}
	texts := strings.Split(body, "|")
	for i, text := range texts {
		a, err := parseParts(text)
		switch {
		case err != nil:
			return s, err
		case len(texts) == 1 && !a.hasVariable():
			return s, fmt.Errorf("[%s] holds no variable", body)
		case i < len(texts)-1 && !a.hasVariable():
			return s, fmt.Errorf("[%s]: what stands after %q is never taken, since that holds no variable", body, text)
		}
		s.alternatives = append(s.alternatives, a)
	}
	return s, nil
}

// parseParts parses text with variables.
func parseParts(text string) (alternative, error) {
	var a alternative
	if strings.ContainsAny(text, "[]") {
		return nil, errors.New("a ] without its [, or a [ within another")
	}
	for text != "" {
		before, rest, opened := strings.Cut(text, "{")
		if strings.Contains(before, "}") {
			return nil, errors.New("a } without its {")
		}
		if before != "" {
			a = append(a, part{text: before})
		}
		if !opened {
			return a, nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return nil, errors.New("a { is not closed")
		}
		if !slices.Contains(variables, name) {
			return nil, fmt.Errorf("unknown variable {%s}: there are {%s}", name, strings.Join(variables, "}, {"))
		}
		a = append(a, part{variable: name})
		text = after
	}
	return a, nil
}

func (a alternative) hasVariable() bool {
	return slices.ContainsFunc(a, func(p part) bool { return p.variable != "" })
}

func (a alternative) uses(variable string) bool { return slices.Contains(a, part{variable: variable}) }

func (a alternative) lacksValue(v values) bool {
	return slices.ContainsFunc(a, func(p part) bool { return p.variable != "" && v.get(p.variable) == "" })
}

// uses reports whether the variable stands in t, and whether it stands outside
// brackets, where it cannot be left out.
func (t template) uses(variable string) (anywhere, required bool) {
	for _, s := range t {
		for _, a := range s.alternatives {
			if a.uses(variable) {
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
		for _, p := range s.choose(v) {
			b.WriteString(p.text)
			if p.variable != "" {
				b.WriteString(v.get(p.variable))
			}
		}
	}
	return b.String()
}

// choose is the first alternative that lacks no value, nil if all do.
func (s segment) choose(v values) alternative {
	for _, a := range s.alternatives {
		if !s.optional || !a.lacksValue(v) {
			return a
		}
	}
	return nil
}
