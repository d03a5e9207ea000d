package intake

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// Body is a request's body with variables in it. The zero Body is none. Bodies
// are built once and then not changed.
type Body struct {
	kind  BodyKind
	parts []bodyPart
}

// bodyPart is finished text, or a value that is filled in and then encoded.
type bodyPart struct {
	literal string
	value   *Template
	secret  func() string // printed as an address, whoever prints it
}

// BodyKind is how a body's values are encoded.
type BodyKind int

// Kinds of bodies.
const (
	FormBody BodyKind = iota + 1 // application/x-www-form-urlencoded
	JSONBody
)

// NewBody begins an empty body of a kind.
func NewBody(kind BodyKind) Body { return Body{kind: kind} }

// AddText appends text that is sent as it stands.
func (b *Body) AddText(text string) { b.parts = append(b.parts, bodyPart{literal: text}) }

// AddValue appends a text with variables, encoded: for a form as a name or a
// value, for JSON as a string.
func (b *Body) AddValue(t Template) { b.parts = append(b.parts, bodyPart{value: &t}) }

// AddSecret appends a text that is asked for when the body is sent, and encoded as
// by AddValue. Nothing in it is a variable.
func (b *Body) AddSecret(reveal func() string) {
	b.parts = append(b.parts, bodyPart{secret: reveal})
}

// IsZero reports whether there is no body.
func (b Body) IsZero() bool { return b.kind == 0 }

// ContentType is the media type that goes with the body, "" for none.
func (b Body) ContentType() string {
	switch b.kind {
	case FormBody:
		return "application/x-www-form-urlencoded"
	case JSONBody:
		return "application/json"
	}
	return ""
}

// Vars are the names of its variables, each once, in order.
func (b Body) Vars() []string {
	var names []string
	for _, p := range b.parts {
		if p.value == nil {
			continue
		}
		for _, name := range p.value.Vars() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Expand fills in the variables; nil for no body. A missing variable is an
// error; an empty one is not.
func (b Body) Expand(vars Vars) ([]byte, error) {
	if b.IsZero() {
		return nil, nil
	}
	var text strings.Builder
	for _, p := range b.parts {
		switch {
		case p.secret != nil:
			text.WriteString(b.encode(p.secret()))
		case p.value == nil:
			text.WriteString(p.literal)
		default:
			value, err := p.value.Expand(vars, Plain)
			if err != nil {
				return nil, err
			}
			text.WriteString(b.encode(value))
		}
	}
	return []byte(text.String()), nil
}

func (b Body) encode(value string) string {
	if b.kind == FormBody {
		return url.QueryEscape(value)
	}
	var quoted strings.Builder
	e := json.NewEncoder(&quoted)
	e.SetEscapeHTML(false)
	_ = e.Encode(value) // a string always has a form
	return strings.TrimSuffix(quoted.String(), "\n")
}
