// Package scaffold writes a config for a page that nobody has described yet: it
// looks for what the page says of itself, and proposes the fields that say it
// again on the next page.
//
// A vocabulary of some twenty concepts, such as the price, has for each of them
// the places where pages have it: in JSON-LD, microdata and <meta>, in the page's
// own JSON, in elements. Each place is a candidate, which the parser reads as
// text; the first text of a concept that can be read as its kind makes the field.
// A page that is not about one thing may list many: what repeats in its JSON-LD,
// its own JSON or its elements is proposed as rows, whose fields are found alike.
// Of several such lists the one with most fields is taken.
//
// It answers for which fields there are, their selectors and types, and the
// text of the config. It leaves to others where the page comes from and where
// the config goes.
//
// Invariants:
//   - Pure: the same page gives the same text.
//   - The parser is the only reader of values. Each field has been compiled and
//     has read the very page before it is proposed, so that a run of the config
//     shows what its comments say; a field that gives no value is left out.
//   - Nothing is guessed: where neither the page's language nor a standard says how
//     numbers are written, and all of a field can be read in two ways, it is text.
//   - Whatever a page holds, the text is a config that loads.
package scaffold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"

	"semel/parser"
)

// maxFields is how many fields are proposed. More than a screen of them is no
// proposal, but a list to be cleared.
const maxFields = 12

// maxNodes is how many elements and texts a page may have to be looked at: each
// of some hundred rules that are tried reads it anew. Of 1,000 real pages the
// largest has 37,000.
const maxNodes = 100_000

// Page is a page as it was received.
type Page struct {
	Body        []byte // text in UTF-8
	ContentType string // media type of the response, may be ""
	URL         string // that was asked for; "": the page's canonical link says, or it is Placeholder
	FinalURL    string // that answered; "": URL
}

// Proposal is a config for one page.
type Proposal struct {
	Source string      // name of the source, of the page's host
	URL    string      // its only target
	Spec   parser.Spec // with one field at least
	Values []Value     // what each field of Spec gives, of the first row that has it
	Next   string      // CSS selector of the link to a list's next page; "": there is none
	Notes  []string    // for people: what is to be known of the page, a sentence part each

	doubts map[string]string // as in proposed
}

// Value is what a field gives.
type Value struct {
	JSON json.RawMessage // nil: the field is there for want of a better one
	Rows int             // that have it; 0 where there are no rows
}

// ErrNoText means that a page is nothing that rules read.
var ErrNoText = errors.New("the page is empty, or no text")

// Propose looks at a page. Of HTML and JSON it gives a config: where that has nothing
// to propose, Notes say so. Its errors are ErrNoText, and of JSON that is not valid one
// that says where.
func Propose(in Page) (*Proposal, error) {
	if !isText(in.Body) {
		return nil, ErrNoText
	}
	p := newPage(in)
	if p.root == nil && p.unreadable == nil {
		if err := checkJSON(in.Body); err != nil {
			return nil, err
		}
	}
	out := &Proposal{URL: p.in.Vars["url"], Source: sourceName(p.in.Vars["url"])}
	if in.FinalURL != "" && in.FinalURL != in.URL {
		out.note("the address redirects: the page is at " + in.FinalURL)
	}
	if in.URL == "" && out.URL == Placeholder {
		out.note("the page does not say its address: put it in the place of " + Placeholder)
	}
	if p.unreadable != nil {
		out.begin(p)
		return out, nil
	}
	out.take(out.find(p), p)
	return out, nil
}

// find looks for one thing that the page is about, else for many, else for what a script
// would show of them.
func (o *Proposal) find(p *page) proposed {
	seen := sight{shown: p.shownTitles()}
	found := p.single(seen)
	if !found.item {
		if rows, ok := p.listing(seen); ok && (rows.records >= minRows || len(found.spec.Fields) == 0) {
			found, o.Next = rows, p.next()
		}
	}
	if p.root != nil && len(found.spec.Fields) < 2 {
		if hidden, ok := p.hidden(); ok {
			found = hidden
			o.note("the page itself shows none of this, it is in its scripts: look whether a browser shows it as what the page is about")
		}
	}
	return found
}

// hidden proposes what a page has in its own JSON alone, for a script to show: one
// thing, or rows where these have more to say. It is false where there is no more than
// a title.
func (p *page) hidden() (proposed, bool) {
	in := sight{hidden: true}
	found := p.single(in)
	if rows, ok := p.richest(p.objectRows(in)); ok && len(rows.spec.Fields) > len(found.spec.Fields) {
		found = rows
	}
	return found, len(found.spec.Fields) > 1
}

// isText reports whether a page is neither empty nor binary, whatever type it was
// served as.
func isText(body []byte) bool {
	if len(bytes.TrimSpace(body)) == 0 || bytes.IndexByte(body[:min(len(body), 1024)], 0) >= 0 {
		return false
	}
	kind := http.DetectContentType(body) // which tells control characters that no text has
	return kind != "application/octet-stream" && kind != "application/pdf"
}

// checkJSON refuses what is not valid JSON, and says where it breaks.
func checkJSON(body []byte) error {
	body = bytes.TrimRight(body, " \t\r\n") // else it would end on a line that is not there
	var value json.RawMessage
	err := json.Unmarshal(body, &value)
	bad, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err
	}
	before := body[:bad.Offset]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	return fmt.Errorf("the page is not valid JSON: line %d, column %d: %w", 1+bytes.Count(before, []byte("\n")), utf8.RuneCount(line), err)
}

// take makes the proposal's rules of what was found, which is settled.
func (o *Proposal) take(found proposed, p *page) {
	o.Spec, o.Values, o.doubts = found.spec, found.values, found.doubts
	switch len(o.Spec.Fields) {
	case 0:
		o.begin(p)
	case 1:
		o.note("the page says no more than its " + o.Spec.Fields[0].Name + ": look whether a browser shows another page")
	}
}

// begin makes the proposal one field, of a page that has nothing to propose.
func (o *Proposal) begin(p *page) {
	o.note(p.nothing())
	rule := parser.Rule{CSS: "title"}
	if p.root == nil && p.unreadable == nil {
		rule = parser.Rule{JSON: ".title?"}
	}
	o.Spec = parser.Spec{Version: 1, Fields: []parser.Field{{Name: titleField, Rule: rule}}}
	o.Values = make([]Value, 1)
}

func (o *Proposal) note(text string) { o.Notes = append(o.Notes, text) }

// proposed is a Spec that has read the page.
type proposed struct {
	spec    parser.Spec
	values  []Value           // as in Proposal
	records int               // that the page gives by it
	item    bool              // the page says that it is about one thing
	doubts  map[string]string // by field: why it is left as text, for people
}

// page is a page that rules are tried on.
type page struct {
	in   parser.Input
	root *html.Node // of an HTML page; nil: it is none, or cannot be read
	lang string     // such as "de" or "en-US", as the page says it; "": it does not

	unreadable error // why an HTML page has nothing to propose
}

func newPage(in Page) *page {
	p := &page{in: parser.Input{Body: in.Body, ContentType: in.ContentType}}
	if !p.isJSON() {
		p.root, p.unreadable = parseHTML(in.Body)
	}
	address := in.URL
	if address == "" {
		address = canonical(p.root)
	}
	final := in.FinalURL
	if final == "" {
		final = address
	}
	p.in.FinalURL, p.in.Target, p.in.Vars = final, "page", map[string]string{"url": address}
	p.lang = languageOf(p.root)
	return p
}

// parseHTML makes the tree of a page that is not too large.
func parseHTML(body []byte) (*html.Node, error) {
	root, err := parser.ParseHTML(body)
	if err != nil {
		return nil, err
	}
	nodes := 0
	for range root.Descendants() {
		if nodes++; nodes > maxNodes {
			return nil, fmt.Errorf("it has more than %d elements and texts", maxNodes)
		}
	}
	return root, nil
}

// isJSON reports whether the page is one JSON value, as its type says or, of a
// page of another type, its text.
func (p *page) isJSON() bool {
	return strings.HasSuffix(p.in.ContentType, "json") || json.Valid(p.in.Body)
}

// nothing says why a page has nothing to propose.
func (p *page) nothing() string {
	switch {
	case p.unreadable != nil:
		return "the page cannot be read as HTML: " + p.unreadable.Error() + "; the config has a field to begin with"
	case p.root == nil:
		return "the page is JSON without a list or an object of single values: the config has a field to begin with"
	case hasElement(p.root, "frameset"):
		return "the page is a frameset: the content is in the pages of its frames; the config has a field to begin with"
	}
	return "the page says nothing of itself that could be read, as pages do that a script fills: the config has a field to begin with"
}
