package parser

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/andybalholm/cascadia"
	"github.com/antchfx/htmlquery"
	"github.com/antchfx/xpath"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// selector finds values. A selector is immutable and safe for concurrent use.
type selector interface {
	// find calls yield for each match in order, until it says false.
	find(s *scope, yield func(match) bool) error
}

// findFirst gives the first match, if there is one.
func findFirst(sel selector, s *scope) (m match, found bool, err error) {
	defer recovered(&err)
	err = sel.find(s, func(first match) bool {
		m, found = first, true
		return false
	})
	return m, found, err
}

// findLast gives the last match, if there is one.
func findLast(sel selector, s *scope) (m match, found bool, err error) {
	defer recovered(&err)
	err = sel.find(s, func(next match) bool {
		m, found = next, true
		return true
	})
	return m, found, err
}

// findAll gives every match.
func findAll(sel selector, s *scope) (list []match, err error) {
	defer recovered(&err)
	err = sel.find(s, func(m match) bool {
		list = append(list, m)
		return len(list) <= maxMatches
	})
	if err == nil && len(list) > maxMatches {
		err = unreadable("there are more than %d matches", maxMatches)
	}
	return list, err
}

// cssSelector finds elements, or an attribute of theirs.
type cssSelector struct {
	sel      cascadia.Matcher // nil: the scope's own element
	attr     string
	siblings bool // see seesSiblings
}

func compileCSS(text, attr string) (selector, error) {
	if text == ":scope" {
		return &cssSelector{attr: attr}, nil
	}
	group, err := cascadia.ParseGroup(text)
	if err != nil {
		return nil, fmt.Errorf("not a CSS selector: %w", err)
	}
	if len(group) == 1 {
		return &cssSelector{group[0], attr, seesSiblings(text)}, nil
	}
	return &cssSelector{group, attr, seesSiblings(text)}, nil
}

func (c *cssSelector) find(s *scope, yield func(match) bool) error {
	top, err := s.element()
	if err != nil {
		return err
	}
	if c.sel == nil {
		c.yield(top, yield)
		return nil
	}
	return s.page.walk(top, c.siblings, func(n *html.Node) bool { return !c.sel.Match(n) || c.yield(n, yield) })
}

func (c *cssSelector) yield(n *html.Node, yield func(match) bool) bool {
	if c.attr == "" {
		return yield(match{node: n})
	}
	v, ok := attribute(n, c.attr)
	return !ok || yield(match{text: v})
}

// element is the row's element, or the document.
func (s *scope) element() (*html.Node, error) {
	if s.row == nil {
		return s.page.root()
	}
	return s.row.node, nil
}

// xpathSelector finds what an XPath expression gives. The library's compiled
// expressions hold the state of their evaluation: each page compiles its own,
// some microseconds, so that neither goroutines nor earlier pages meet in it.
type xpathSelector struct{ source, attr string }

func compileXPath(source, attr string) (selector, error) {
	if _, err := xpath.Compile(source); err != nil {
		return nil, fmt.Errorf("not an XPath expression: %w", err)
	}
	return &xpathSelector{source, attr}, nil
}

// xpath is the page's own compiled form of source, which Compile has tried.
func (p *page) xpath(source string) *xpath.Expr {
	expr := p.exprs[source]
	if expr == nil {
		expr = xpath.MustCompile(source)
		if p.exprs == nil {
			p.exprs = make(map[string]*xpath.Expr)
		}
		p.exprs[source] = expr
	}
	return expr
}

func (x *xpathSelector) find(s *scope, yield func(match) bool) error {
	top, err := s.element()
	if err != nil {
		return err
	}
	expr := s.page.xpath(x.source)
	switch v := expr.Evaluate(&navigator{htmlquery.CreateXPathNavigator(top), s.page}).(type) {
	case *xpath.NodeIterator:
		for v.MoveNext() && x.yield(v.Current().(*navigator), yield) {
		}
	case string:
		yield(match{text: v})
	case bool:
		yield(match{value: v, json: true})
	case float64:
		if !math.IsNaN(v) { // number() of something that is not there
			yield(match{value: v, json: true})
		}
	}
	return nil
}

func (x *xpathSelector) yield(n *navigator, yield func(match) bool) bool {
	if n.NodeType() != xpath.ElementNode && n.NodeType() != xpath.RootNode {
		return yield(match{text: n.Value()})
	}
	if x.attr == "" {
		return yield(match{node: n.Current()})
	}
	v, ok := attribute(n.Current(), x.attr)
	return !ok || yield(match{text: v})
}

// metaSelector finds the content of <meta> elements.
type metaSelector struct{ key string }

func (m *metaSelector) find(s *scope, yield func(match) bool) error {
	root, err := s.page.root()
	if err != nil {
		return err
	}
	return s.page.walk(root, false, func(n *html.Node) bool {
		if n.DataAtom != atom.Meta || !m.names(n) {
			return true
		}
		content, ok := attribute(n, "content")
		return !ok || yield(match{text: content})
	})
}

func (m *metaSelector) names(n *html.Node) bool {
	for _, a := range n.Attr {
		switch a.Key {
		case "name", "property", "itemprop", "http-equiv":
			if strings.EqualFold(strings.TrimSpace(a.Val), m.key) {
				return true
			}
		}
	}
	return false
}

// regexSelector finds text in the source of the page or row, character
// references and all. A match in which the first group took no part is none.
type regexSelector struct {
	re    *regexp.Regexp
	short bool // see looksFar
}

func compileRegex(text string) (*regexSelector, error) {
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("not a regular expression: %w", err)
	}
	return &regexSelector{re, !looksFar(text)}, nil
}

func (r *regexSelector) find(s *scope, yield func(match) bool) error {
	text, err := s.text()
	if err != nil {
		return err
	}
	group := 2 * min(1, r.re.NumSubexp())
	// FindAll with a growing limit would search again from the start; pages
	// that need only the first match stop at it.
	if at := r.re.FindStringSubmatchIndex(text); at == nil || at[group] >= 0 && !yield(match{text: text[at[group]:at[group+1]]}) {
		return nil
	}
	if err := s.page.spendSearches(r, text); err != nil {
		return err
	}
	for _, at := range r.re.FindAllStringSubmatchIndex(text, maxMatches+2)[1:] {
		if at[group] >= 0 && !yield(match{text: text[at[group]:at[group+1]]}) {
			return nil
		}
	}
	return nil
}

// constSelector finds the same value on every page.
type constSelector struct{ m match }

func (c *constSelector) find(_ *scope, yield func(match) bool) error {
	yield(c.m)
	return nil
}

// varSelector finds a variable of the target.
type varSelector struct{ name string }

func (v *varSelector) find(s *scope, yield func(match) bool) error {
	if text, ok := s.page.in.variable(v.name); ok {
		yield(match{text: text})
	}
	return nil
}

// variable gives a variable of the target. Those that Semel sets itself are
// never empty: a job without a country or window has none.
func (in *Input) variable(name string) (string, bool) {
	if name == "final_url" {
		return in.FinalURL, in.FinalURL != ""
	}
	text, ok := in.Vars[name]
	switch name {
	case "url", "country", "window":
		ok = ok && text != ""
	}
	return text, ok
}

// jsonText is a JSON scalar as text, and whether it is a number.
func jsonText(v any) (text string, number bool, err error) {
	switch v := v.(type) {
	case string:
		return v, false, nil
	case bool:
		return strconv.FormatBool(v), false, nil
	case []any:
		return "", false, invalid("", "is an array where one value was expected")
	case map[string]any:
		return "", false, invalid("", "is an object where one value was expected")
	}
	text, err = compactJSON(v)
	return text, true, err
}

// elementSelector refuses what cannot be a row.
type elementSelector struct{ *xpathSelector }

func (e *elementSelector) find(s *scope, yield func(match) bool) error {
	elements := true
	err := e.xpathSelector.find(s, func(m match) bool {
		elements = m.node != nil
		return elements && yield(m)
	})
	if err == nil && !elements {
		return invalid("", "rows must be elements, and the XPath expression gives something else")
	}
	return err
}
