package parser

import (
	"encoding/json"
	"strings"
)

// elementJSON finds what a jq expression gives over the JSON that is the whole
// text of an element or attribute, such as the state in a <script>.
type elementJSON struct {
	place selector
	jq    *jqSelector
}

func (e *elementJSON) find(s *scope, yield func(match) bool) error {
	var inner error
	err := e.place.find(s, func(m match) bool {
		t, err := readRaw(m)
		if err != nil {
			inner = err
			return false
		}
		doc := s.page.jsonIn(embeddedKey{text: t.s}, t.s)
		if doc.err == nil && strings.TrimSpace(t.s[doc.end:]) != "" {
			doc.err = locateValue(unreadable("there is more text after the JSON value; regex beside json reads up to its end"), t.s[doc.end:])
		}
		if inner = doc.err; inner != nil {
			return false
		}
		var more bool
		more, inner = e.jq.run(s.page, doc.value, yield)
		return more
	})
	if err == nil {
		err = inner
	}
	return err
}

// assignedJSON finds what a jq expression gives over the JSON values that begin
// behind the matches of a regular expression, such as window.state = {…}. The
// search goes on behind the value's own end.
type assignedJSON struct {
	re *regexSelector
	jq *jqSelector
}

func (a *assignedJSON) find(s *scope, yield func(match) bool) error {
	text, err := s.text()
	if err != nil {
		return err
	}
	for {
		at := a.re.re.FindStringIndex(text)
		if at == nil {
			return nil
		}
		text = text[at[1]:]
		doc := s.page.jsonIn(embeddedKey{row: s.row, rest: len(text)}, text)
		if doc.err != nil {
			return doc.err
		}
		if more, err := a.jq.run(s.page, doc.value, yield); !more || err != nil {
			return err
		}
		text = text[doc.end:]
		if _, err := s.page.spendSearch(a.re.re, text); err != nil {
			return err
		}
	}
}

// embeddedJSON is a JSON value within a page, or why there is none.
type embeddedJSON struct {
	value any
	end   int // of the value in its text
	err   error
}

// embeddedKey says where a value stands: the whole text of an element, or how
// much there is of the row's or page's text from the value on.
type embeddedKey struct {
	text string
	row  *match
	rest int
}

// jsonIn reads the JSON value that text begins with, once for all fields that
// ask for it.
func (p *page) jsonIn(key embeddedKey, text string) embeddedJSON {
	doc, ok := p.embedded[key]
	if !ok {
		d := json.NewDecoder(strings.NewReader(text))
		value, err := decodeValue(d, len(text))
		if err != nil {
			doc.err = locateValue(unreadable("there is no JSON value: %v", err), text)
		}
		doc.value, doc.end = value, int(d.InputOffset())
		if p.embedded == nil {
			p.embedded = make(map[embeddedKey]embeddedJSON)
		}
		p.embedded[key] = doc
	}
	return doc
}
