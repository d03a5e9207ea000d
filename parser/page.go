package parser

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"

	"github.com/antchfx/xpath"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// page is one Input and what has been read from it so far. Only one goroutine
// uses a page.
type page struct {
	in     Input
	steps  map[string]*page // of a workflow, by the step's name
	tree   *html.Node
	doc    *document
	ld     *linkedData
	source *string
	base   *url.URL // of links on an HTML page
	exprs  map[string]*xpath.Expr

	embedded map[embeddedKey]embeddedJSON
	tables   map[headedKey]*headed // what has been found in tables

	spent int // steps, of the limit that spend holds
}

// addSteps makes a page of each of the steps that fields name.
func (p *page) addSteps(names []string) error {
	for _, name := range names {
		step, ok := p.in.Steps[name]
		if !ok {
			return unreadable("the page of step %s is not there", name)
		}
		in := p.in
		in.Body, in.ContentType, in.FinalURL = step.Body, step.ContentType, step.FinalURL
		if p.steps == nil {
			p.steps = make(map[string]*page, len(names))
		}
		p.steps[name] = &page{in: in}
	}
	return nil
}

// document is a body read as JSON, or why it cannot be.
type document struct {
	value any
	err   error
}

// scope is where a record's selectors look: the whole page, or one row.
type scope struct {
	page   *page
	row    *match  // nil: the page
	source *string // the row's own source text, once a regex asked for it
}

// of is where a field of a workflow's step looks: that step's whole page.
func (s *scope) of(step string) *scope {
	if step == "" {
		return s
	}
	return &scope{page: s.page.steps[step]}
}

// match is one thing that a selector found: an element, a text, or a JSON
// value.
type match struct {
	node   *html.Node // an element; nil for the others
	text   string     // as it stands on the page, not folded
	value  any        // where json is set: as decoded with json.Number, or as gojq gives it
	json   bool
	linked bool // the value is of the page's JSON-LD
}

// body is the page without a byte order mark, which no reader here expects.
func (p *page) body() []byte { return bytes.TrimPrefix(p.in.Body, []byte("\uFEFF")) }

// root is the HTML tree of the page. The library refuses elements nested
// deeper than 512, so recursion over the tree is bounded.
func (p *page) root() (*html.Node, error) {
	if p.tree == nil {
		tree, err := ParseHTML(p.body())
		if err != nil {
			return nil, unreadable("reading the page as HTML: %v", err)
		}
		p.tree = tree
	}
	return p.tree, nil
}

// jsonValue is the page as a JSON value.
func (p *page) jsonValue() (any, error) {
	if p.doc == nil {
		v, err := decodeJSON(p.body())
		if err != nil {
			err = unreadable("reading the page as JSON: %v", err)
		}
		p.doc = &document{v, err}
	}
	return p.doc.value, p.doc.err
}

// decodeJSON reads exactly one JSON value and keeps its numbers as written.
func decodeJSON(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	v, err := decodeValue(d, len(b))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more text after the value")
	}
	return v, nil
}

// decodeValue reads the JSON value that a text of some size begins with, within the
// limits on what it may cost. Numbers stay as written.
func decodeValue(d *json.Decoder, size int) (v any, err error) {
	if size > maxValues/objectValues { // less text cannot have too many
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		if err := checkValues(raw); err != nil {
			return nil, err
		}
		d = json.NewDecoder(bytes.NewReader(raw))
	}
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return v, checkDepth(v, maxDepth)
}

// text is the source text of the scope: the body, the row's HTML, or the row's
// JSON value.
func (s *scope) text() (string, error) {
	if s.row == nil {
		return s.page.text(), nil
	}
	if s.source == nil {
		text, err := s.row.source()
		if err != nil {
			return "", err
		}
		s.source = &text
	}
	return *s.source, nil
}

func (p *page) text() string {
	if p.source == nil {
		text := strings.ToValidUTF8(string(p.body()), "\uFFFD")
		p.source = &text
	}
	return *p.source
}

func (m match) source() (string, error) {
	if m.node == nil {
		return compactJSON(m.value)
	}
	var b strings.Builder
	if err := html.Render(&b, m.node); err != nil {
		return "", unreadable("writing a row's HTML: %v", err)
	}
	return b.String(), nil
}

// linkBase is what relative links of an HTML page resolve against.
func (p *page) linkBase() (*url.URL, error) {
	if p.base != nil {
		return p.base, nil
	}
	root, err := p.root()
	if err != nil {
		return nil, err
	}
	base, err := p.finalURL()
	if err != nil {
		return nil, err
	}
	err = p.walk(root, false, func(n *html.Node) bool {
		href, ok := attribute(n, "href")
		if n.DataAtom != atom.Base || !ok {
			return true
		}
		// As in a browser only the first <base> counts, and a broken one is as none.
		if u, err := resolve(base, href); err == nil {
			base = u
		}
		return false
	})
	if err != nil {
		return nil, err
	}
	p.base = base
	return base, nil
}

// finalURL is the page's own URL without a login, which no link inherits.
func (p *page) finalURL() (*url.URL, error) {
	u, err := url.Parse(p.in.FinalURL)
	if err != nil || u.Host == "" {
		return nil, invalid("", "has no base: the page's own URL is not absolute")
	}
	u.User = nil
	return u, nil
}

func attribute(n *html.Node, name string) (string, bool) {
	for i := range n.Attr {
		if n.Attr[i].Key == name {
			return n.Attr[i].Val, true
		}
	}
	return "", false
}
