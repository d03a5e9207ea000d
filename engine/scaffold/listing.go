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
	minRows     = 5    // fewer siblings are no listing
	minRowText  = 15   // bytes of text that a row has more than a menu's entry
	maxRowText  = 300  // bytes that count of one row: a listing has many rows, not long ones
	listedShare = 0.25 // of the page's text that its rows must have, or the page is about something else
	filledShare = 0.5  // of the rows that must have a field's value
	maxPageText = 1 << 20
)

// listing proposes the fields of a page that is many records. It is false where
// the page has no rows, or none that could be told apart.
func (p *page) listing() (proposed, bool) {
	if p.root == nil {
		return p.listed()
	}
	for _, g := range p.groups() {
		for _, css := range g.selectors(p.root) {
			if out, ok := p.rows(parser.Rule{CSS: css}, g.candidates()); ok {
				return out, true
			}
		}
	}
	return proposed{}, false
}

// rows proposes the fields of rows. The key is the first of the fields that
// tells them apart.
func (p *page) rows(rule parser.Rule, list []candidate) (proposed, bool) {
	for i, c := range list {
		spec := parser.Spec{Version: 1, Rows: &rule, Key: "{" + probeName(i) + "}"}
		texts, ok := p.texts(list, spec)
		if !ok {
			continue
		}
		spec.Fields = p.choose(list, texts)
		spec.Key = "{" + c.name + "}"
		if out, ok := p.complete(spec, filledShare); ok && len(out.spec.Fields) > 1 {
			return out, true
		}
	}
	return proposed{}, false
}

// group is elements of one kind below one parent.
type group struct {
	tag     string
	members []*html.Node
	text    int // bytes, of each up to maxRowText
}

// groups are the page's candidates for rows, those with most text first.
func (p *page) groups() []group {
	body := 0
	var list []group
	for n := range elements(p.root) {
		if n.Data == "body" {
			body = len(textOf(n, maxPageText))
		}
		if inFrame(n) {
			continue
		}
		for _, g := range groupsBelow(n) {
			if len(g.members) >= minRows && float64(g.text) >= listedShare*float64(min(body, g.text+maxPageText)) {
				list = append(list, g)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b group) int { return b.text - a.text })
	return list[:min(len(list), 3)]
}

// inFrame reports whether an element is of what stands around the content.
func inFrame(n *html.Node) bool {
	for ; n != nil; n = n.Parent {
		switch n.Data {
		case "nav", "header", "footer", "aside", "form", "select", "head", "svg":
			return true
		}
	}
	return false
}

// groupsBelow are the children of an element that may be rows, by their tag in
// page order. Where a part of those with a tag has neither text nor link, none
// are.
func groupsBelow(n *html.Node) []group {
	var list []group
	all := map[string]int{}
	for c := range n.ChildNodes() {
		if c.Type != html.ElementNode || notRead(c.Data) || c.Data == "p" || c.Data == "a" && n.Data == "p" {
			continue
		}
		all[c.Data]++
		text := len(textOf(c, maxRowText))
		if !isRow(c, text) {
			continue
		}
		i := slices.IndexFunc(list, func(g group) bool { return g.tag == c.Data })
		if i < 0 {
			i = len(list)
			list = append(list, group{tag: c.Data})
		}
		list[i].members = append(list[i].members, c)
		list[i].text += min(text, maxRowText)
	}
	return slices.DeleteFunc(list, func(g group) bool { return 5*len(g.members) < 4*all[g.tag] })
}

// isRow reports whether an element has what a row needs: a link and some text,
// or cells.
func isRow(n *html.Node, text int) bool {
	if n.Data == "tr" {
		return hasElement(n, "td") && text > 0
	}
	return text >= minRowText && (n.Data == "a" || hasElement(n, "a"))
}

// rowPlaces are where most listings have the values of a row, by field.
var rowPlaces = []candidate{
	{name: titleField, rule: parser.Rule{CSS: "[itemprop=name]"}},
	{name: titleField, rule: parser.Rule{CSS: "h1, h2, h3, h4"}},
	{name: titleField, rule: parser.Rule{CSS: "a[title]"}, attr: "title"},
	{name: titleField, rule: parser.Rule{CSS: "a"}},
	{name: titleField, rule: parser.Rule{CSS: ":scope"}},
	{name: "published", kind: when, rule: parser.Rule{CSS: "time"}, attr: "datetime"},
	{name: "image", kind: link, rule: parser.Rule{CSS: "img[data-src]"}, attr: "data-src"},
	{name: "image", kind: link, rule: parser.Rule{CSS: "img"}, attr: "src"},
	{name: "description", rule: parser.Rule{CSS: "p"}, written: true},
	{name: "page_title", rule: parser.Rule{Meta: "og:title"}},
}

// candidates are the places to look at in a row: first those that tell rows
// apart.
func (g group) candidates() []candidate {
	var list []candidate
	for _, name := range g.ids() {
		list = append(list, candidate{name: "id", rule: parser.Rule{CSS: ":scope"}, attr: name})
	}
	for _, css := range []string{"[itemprop=url]", "h1 a, h2 a, h3 a, h4 a", "a"} {
		list = append(list, candidate{name: "url", kind: link, rule: parser.Rule{CSS: css}, attr: "href"})
	}
	if g.tag == "a" {
		list = append(list, candidate{name: "url", kind: link, rule: parser.Rule{CSS: ":scope"}, attr: "href"})
	}
	if g.tag == "tr" {
		return append(g.columns(), list...)
	}
	list = append(list, rowPlaces...)
	return sortByName(append(list, g.worded()...))
}

// worded are the elements of the first rows that have a word for a concept.
func (g group) worded() []candidate {
	var list []candidate
	for _, c := range vocabulary {
		var levels [3][]candidate
		for _, row := range g.members[:min(len(g.members), minRows)] {
			for n := range elements(row) {
				if len(c.words) > 0 && !notRead(n.Data) {
					c.addWorded(n, &levels)
				}
			}
		}
		list = append(list, slices.Concat(levels[1], levels[2])...) // an id is of one row alone
	}
	return list
}

// sortByName puts candidates of one field behind each other, in the order of
// the fields' first ones.
func sortByName(list []candidate) []candidate {
	first := map[string]int{}
	for i, c := range list {
		if _, ok := first[c.name]; !ok {
			first[c.name] = i
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return first[a.name] - first[b.name] })
	return list
}

// ids are the attributes of all rows in which each has another value: data
// attributes first.
func (g group) ids() []string {
	var names []string
	for _, a := range g.members[0].Attr {
		if a.Key != "id" && !(strings.HasPrefix(a.Key, "data-") && strings.HasSuffix(a.Key, "id")) || !identifier.MatchString(a.Key) {
			continue
		}
		seen := map[string]bool{"": true}
		for _, n := range g.members {
			seen[attr(n, a.Key)] = true
		}
		if len(seen) == len(g.members)+1 {
			names = append(names, a.Key)
		}
	}
	slices.Sort(names) // "data-…" before "id"
	return names
}

// columns are the cells of a table's row, by the headers that the table has.
func (g group) columns() []candidate {
	table := g.members[0]
	for table.Parent != nil && table.Data != "table" {
		table = table.Parent
	}
	var list []candidate
	names := map[string]bool{"": true, "url": true, "id": true}
	for n := range elements(table) {
		header := textOf(n, 2*maxHeader)
		if name := fieldName(header); n.Data == "th" && len(header) <= maxHeader && !names[name] {
			names[name] = true
			list = append(list, candidate{name: name, kind: unknown, rule: parser.Rule{Table: header}})
		}
	}
	return list
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
	for _, a := range g.members[0].Attr {
		if strings.HasPrefix(a.Key, "data-") && identifier.MatchString(a.Key) {
			list = append(list, g.tag+"["+a.Key+"]")
		}
	}
	above := names(parent)
	for _, name := range above {
		list = append(list, parent.Data+name+" "+own, parent.Data+name+" > "+own)
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
		if !members[n] && (!isRow(n, len(textOf(n, maxRowText))) || inFrame(n)) {
			return false
		}
	}
	return len(found) >= len(g.members) && !slices.ContainsFunc(g.members, func(n *html.Node) bool { return !sel.Match(n) })
}
