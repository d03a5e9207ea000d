package scaffold

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/andybalholm/cascadia"
	"golang.org/x/net/html"
)

// identifier is a name that stands in a CSS selector as it is.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// generated finds ids and classes that a program made up: the next page has
// others.
var generated = regexp.MustCompile(`[0-9]{3}|[a-z][0-9][a-z]|[0-9][a-z][0-9]`)

// stable reports whether an id or a class can stand in a selector, and will be
// there on the next page.
func stable(name string) bool { return identifier.MatchString(name) && !generated.MatchString(name) }

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

// selectors are CSS selectors that find the rows, those that will outlive a new
// design first.
func (g group) selectors(root *html.Node) []string {
	row, tag := g.members[0], g.tag
	parent := row.Parent
	if table := closest(row, "table"); tag == "tr" && table != nil {
		tag, parent = "tr:has(td)", table
	}
	var list []string
	if schema := typeOf(attr(row, "itemtype")); identifier.MatchString(schema) {
		list = append(list, fmt.Sprintf(`%s[itemtype$="/%s"]`, tag, schema))
	}
	for _, a := range row.Attr {
		if strings.HasPrefix(a.Key, "data-") && identifier.MatchString(a.Key) {
			list = append(list, fmt.Sprintf("%s[%s]", tag, a.Key))
		}
	}
	for _, name := range names(parent) {
		list = append(list, parent.Data+name+" > "+tag, parent.Data+name+" "+tag)
	}
	for _, name := range names(row) {
		list = append(list, tag+name)
	}
	for n := parent.Parent; n != nil; n = n.Parent {
		for _, name := range names(n) {
			list = append(list, fmt.Sprintf("%s%s %s > %s", n.Data, name, parent.Data, tag))
		}
	}
	list = append(list, parent.Data+" > "+tag, parent.Data+" "+tag)
	return slices.DeleteFunc(list, func(css string) bool { return !g.foundBy(css, root) })
}

// foundBy reports whether a selector finds all rows, and nothing that is none.
func (g group) foundBy(css string, root *html.Node) bool {
	sel, err := cascadia.Parse(css)
	if err != nil {
		return false
	}
	members := map[*html.Node]bool{}
	for _, n := range g.members {
		members[n] = true
	}
	rows := 0
	for _, n := range cascadia.QueryAll(root, sel) {
		switch {
		case members[n]:
			rows++
		case n.Parent == g.members[0].Parent, !isRow(n), inBoilerplate(n):
			return false
		}
	}
	return rows == len(g.members)
}
