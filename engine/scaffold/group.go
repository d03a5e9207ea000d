package scaffold

import (
	"slices"
	"strings"

	"golang.org/x/net/html"

	"semel/parser"
)

const (
	maxGroups   = 5   // that are tried, those with most text
	minRowText  = 10  // bytes of text that a row has, in the mean: more than a menu's entry
	maxRowText  = 400 // bytes that count of one row: a listing has many rows, not one that is all
	rowShare    = 0.8 // of the elements of one kind that must be rows: a heading or an advertisement may stand between them
	listedShare = 0.4 // of the page's text that its rows must have, or the page is about something else
	proseShare  = 0.5 // of the rows' text that paragraphs beside them may have, or the page is an article
)

// group is the elements of one kind below one parent.
type group struct {
	kind    string // as kindsOf says
	tag     string
	members []*html.Node // that may be rows
	others  int          // that may not
	text    int          // bytes, of each member up to maxRowText
	prose   int          // bytes
}

// elementRows proposes elements as rows: the members of each group, those of
// groups with most text first.
func (p *page) elementRows() []proposed {
	if p.root == nil {
		return nil
	}
	var list []proposed
	for _, g := range p.groups() {
		if found, ok := p.rowsOf(g); ok {
			list = append(list, found)
		}
	}
	return list
}

// rowsOf proposes a group's members as rows, by the first selector that gives
// some.
func (p *page) rowsOf(g group) (proposed, bool) {
	list := g.candidates()
	for _, css := range g.selectors(p.root) {
		if out, ok := p.rows(parser.Rule{CSS: css}, list, minRows); ok {
			return out, true
		}
	}
	return proposed{}, false
}

// groups are those that the page may list, those with most text first.
func (p *page) groups() []group {
	var list []group
	whole := contentOf(p.root)
	for n := range elements(p.root) {
		if inBoilerplate(n) {
			continue
		}
		for _, g := range groupsBelow(n) {
			if g.listed(whole) {
				list = append(list, g)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b group) int { return b.text - a.text })
	return list[:min(len(list), maxGroups)]
}

// groupsBelow are an element's children in groups, in page order. Paragraphs,
// and links in them, are prose.
func groupsBelow(n *html.Node) []group {
	var list []group
	for c := range n.ChildNodes() {
		if c.Type != html.ElementNode || notRead(c.Data) || c.Data == "p" || c.Data == "a" && n.Data == "p" {
			continue
		}
		for _, kind := range kindsOf(c) {
			i := slices.IndexFunc(list, func(g group) bool { return g.kind == kind })
			if i < 0 {
				i = len(list)
				list = append(list, group{kind: kind, tag: c.Data})
			}
			list[i].add(c)
		}
	}
	return list
}

// kindsOf are the kinds of group that an element is of: by its tag, and by that
// and its first class.
func kindsOf(n *html.Node) []string {
	kinds := []string{n.Data}
	if classes := strings.Fields(attr(n, "class")); len(classes) > 0 {
		kinds = append(kinds, n.Data+"."+classes[0])
	}
	return kinds
}

// add adds an element of the group's kind.
func (g *group) add(n *html.Node) {
	if !isRow(n) {
		g.others++
		return
	}
	own := contentOf(n)
	g.members = append(g.members, n)
	g.text += min(own.all, maxRowText)
	g.prose += own.prose
}

// isRow reports whether an element has what a row needs: some text, and a link
// or cells.
func isRow(n *html.Node) bool {
	part := "a"
	if n.Data == "tr" {
		part = "td"
	}
	return (n.Data == part || hasElement(n, part)) && !isBoilerplate(n) && contentOf(n).all > 0
}

// listed reports whether a group has so much of a page that it may be what the
// page lists.
func (g *group) listed(whole content) bool {
	rows, text := float64(len(g.members)), float64(g.text)
	return rows >= minRows && rows >= rowShare*(rows+float64(g.others)) &&
		(g.tag == "tr" || text >= minRowText*rows) &&
		text >= listedShare*float64(whole.all) && float64(whole.prose-g.prose) <= proseShare*text
}
