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
		doc := s.page.jsonIn(t.s)
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
		doc := s.page.jsonIn(text)
		if doc.err != nil {
			return doc.err
		}
		if more, err := a.jq.run(s.page, doc.value, yield); !more || err != nil {
			return err
		}
		text = text[doc.end:]
	}
}

// embeddedJSON is a JSON value within a page, or why there is none.
type embeddedJSON struct {
	value any
	end   int // of the value in its text
	err   error
}

// jsonIn reads the JSON value that text begins with, once for all fields that
// ask for it.
func (p *page) jsonIn(text string) embeddedJSON {
	doc, ok := p.embedded[text]
	if !ok {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&doc.value); err != nil {
			doc.err = locateValue(unreadable("there is no JSON value: %v", err), text)
		}
		doc.end = int(d.InputOffset())
		if p.embedded == nil {
			p.embedded = make(map[string]embeddedJSON)
		}
		p.embedded[text] = doc
	}
	return doc
}
