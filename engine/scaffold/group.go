package scaffold

import (
	"fmt"
	"slices"
	"strings"

	"github.com/andybalholm/cascadia"
	"golang.org/x/net/html"

	"semel/parser"
)

const (
	maxGroups   = 5    // that are tried, those with most text
	minRowText  = 10   // bytes of text that a row has, in the mean: more than a menu's entry
	maxRowText  = 300  // bytes that count of one row for evenShare, and for which group has most
	listedShare = 0.4  // of the page's text that its rows must have, or the page is about something else
	evenShare   = 0.25 // the same, of what counts: a listing has many rows, not one that is all
)

// group is elements of one kind below one parent.
type group struct {
	kind    string // as kindsOf says
	tag     string
	members []*html.Node
	text    int // bytes, of each up to maxRowText
}

// elementRows proposes elements as rows: those of the group whose rows have most
// fields and text.
func (p *page) elementRows() []proposed {
	if p.root == nil {
		return nil
	}
	var best []proposed
	most := 0
	for _, g := range p.groups() {
		found, ok := p.rowsOf(g)
		if weight := len(found.spec.Fields) * g.text; ok && weight > most {
			best, most = []proposed{found}, weight
		}
	}
	return best
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

// groups are the page's candidates for rows, those with most text first.
func (p *page) groups() []group {
	var list []group
	content := textBytes(p.root)
	for n := range elements(p.root) {
		if inFrame(n) {
			continue
		}
		for _, g := range groupsBelow(n) {
			if len(g.members) >= minRows && float64(g.text) >= evenShare*float64(content) && float64(g.textBytes()) >= listedShare*float64(content) {
				list = append(list, g)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b group) int { return b.text - a.text })
	return list[:min(len(list), maxGroups)]
}

// frameTags are of what stands around the content, frameWords are of its ids
// and classes.
var (
	frameTags  = strings.Fields("nav header footer aside select head svg")
	frameWords = strings.Fields("nav navbar navigation menu footer sidebar breadcrumb crumbs pagination pager related recommended recent similar social cookie consent comment comments")
)

// textBytes is how much text the group's rows have.
func (g group) textBytes() int {
	count := 0
	for _, n := range g.members {
		count += textBytes(n)
	}
	return count
}

// inFrame reports whether an element is of what stands around the content.
func inFrame(n *html.Node) bool {
	for ; n != nil; n = n.Parent {
		if isFrame(n) {
			return true
		}
	}
	return false
}

// textBytes is how much text there is below n, without what stands around the
// content.
func textBytes(n *html.Node) int {
	count := 0
	for c := range n.ChildNodes() {
		switch {
		case c.Type == html.TextNode:
			count += len(strings.TrimSpace(c.Data))
		case c.Type == html.ElementNode && !notRead(c.Data) && !isFrame(c):
			count += textBytes(c)
		}
	}
	return count
}

// isFrame reports whether an element has the tag or the name of what stands
// around content. One with the page's heading in it has its name by what else it
// holds.
func isFrame(n *html.Node) bool {
	if slices.Contains(frameTags, n.Data) {
		return true
	}
	words := wordsOf(attr(n, "id") + " " + attr(n, "class") + " " + attr(n, "role"))
	named := slices.ContainsFunc(words, func(word string) bool {
		return slices.ContainsFunc(frameWords, func(end string) bool { return strings.HasSuffix(word, end) }) // as mainnav
	})
	return named && n.Data != "body" && n.Data != "html" && !hasElement(n, "h1") && !hasElement(n, "main")
}

// groupsBelow are the children of an element that may be rows, in page order: by
// their tag, and by that and their first class. Where a part of those of a kind
// has neither text nor link, none are.
func groupsBelow(n *html.Node) []group {
	var list []group
	all := map[string]int{}
	for c := range n.ChildNodes() {
		if c.Type != html.ElementNode || notRead(c.Data) || c.Data == "p" || c.Data == "a" && n.Data == "p" {
			continue
		}
		text := len(textOf(c, maxRowText))
		for _, kind := range kindsOf(c) {
			all[kind]++
			if isRow(c, text) {
				list = addRow(list, kind, c, text)
			}
		}
	}
	return slices.DeleteFunc(list, func(g group) bool {
		return 5*len(g.members) < 4*all[g.kind] || g.tag != "tr" && g.text < minRowText*len(g.members)
	})
}

// kindsOf are the kinds of group that an element is of.
func kindsOf(n *html.Node) []string {
	for class := range strings.FieldsSeq(attr(n, "class")) {
		return []string{n.Data, n.Data + "." + class}
	}
	return []string{n.Data}
}

// addRow adds a row to the group of its kind.
func addRow(list []group, kind string, row *html.Node, text int) []group {
	i := slices.IndexFunc(list, func(g group) bool { return g.kind == kind })
	if i < 0 {
		i = len(list)
		list = append(list, group{kind: kind, tag: row.Data})
	}
	list[i].members = append(list[i].members, row)
	list[i].text += min(text, maxRowText)
	return list
}

// isRow reports whether an element has what a row needs: a link and some text,
// or cells.
func isRow(n *html.Node, text int) bool {
	if n.Data == "tr" {
		return hasElement(n, "td") && text > 0
	}
	return text > 0 && (n.Data == "a" || hasElement(n, "a"))
}

// selectors are CSS selectors that find the rows, those that will outlive a new
// design first.
func (g group) selectors(root *html.Node) []string {
	var list []string
	parent := g.members[0].Parent
	own := g.tag
	if g.tag == "tr" {
		own = "tr:has(td)"
		for parent.Data != "table" && parent.Parent != nil {
			parent = parent.Parent
		}
	}
	if schema := typeOf(attr(g.members[0], "itemtype")); identifier.MatchString(schema) {
		list = append(list, g.tag+`[itemtype$="/`+schema+`"]`)
	}
	for _, a := range g.members[0].Attr {
		if strings.HasPrefix(a.Key, "data-") && identifier.MatchString(a.Key) {
			list = append(list, g.tag+"["+a.Key+"]")
		}
	}
	above := names(parent)
	for _, name := range above {
		list = append(list, parent.Data+name+" > "+own, parent.Data+name+" "+own)
	}
	for class := range strings.FieldsSeq(attr(g.members[0], "class")) {
		if stable(class) {
			list = append(list, g.tag+"."+class)
		}
	}
	for n := parent.Parent; n != nil; n = n.Parent {
		for _, name := range names(n) {
			list = append(list, fmt.Sprintf("%s%s %s > %s", n.Data, name, parent.Data, own))
		}
	}
	list = append(list, parent.Data+" > "+own, parent.Data+" "+own)
	return slices.DeleteFunc(list, func(css string) bool { return !g.foundBy(css, root) })
}

// names are an element's id and classes as parts of selectors.
func names(n *html.Node) []string {
	var list []string
	if id := attr(n, "id"); stable(id) {
		list = append(list, "#"+id)
	}
	for class := range strings.FieldsSeq(attr(n, "class")) {
		if stable(class) {
			list = append(list, "."+class)
		}
	}
	return list
}

// foundBy reports whether a selector finds all rows, and nothing that is none.
func (g group) foundBy(css string, root *html.Node) bool {
	sel, err := cascadia.Parse(css)
	if err != nil {
		return false
	}
	members := make(map[*html.Node]bool, len(g.members))
	for _, n := range g.members {
		members[n] = true
	}
	found := cascadia.QueryAll(root, sel)
	for _, n := range found {
		if !members[n] && (n.Parent == g.members[0].Parent || !isRow(n, len(textOf(n, maxRowText))) || inFrame(n)) {
			return false
		}
	}
	return len(found) >= len(g.members) && !slices.ContainsFunc(g.members, func(n *html.Node) bool { return !sel.Match(n) })
}
