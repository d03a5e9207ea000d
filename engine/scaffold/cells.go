package scaffold

import (
	"fmt"
	"slices"
	"strings"

	"semel/parser"
)

// candidates are the places to look at in a row: first those that tell rows
// apart.
func (g group) candidates() []candidate {
	var list []candidate
	for _, name := range g.ids() {
		list = append(list, candidate{name: "id", rule: parser.Rule{CSS: ":scope"}, attr: name})
	}
	if g.tag == "tr" {
		return slices.Concat(list, g.links(), g.columns())
	}
	list = slices.Concat(list, g.microdata(), g.links(), g.titles())
	for _, c := range vocabulary {
		found := c.worded(g.members[:minRows]...)
		list = slices.Concat(list, found[byData], found[byClass]) // an id is of one row alone
	}
	return sortByName(append(list,
		candidate{name: titleField, rule: parser.Rule{CSS: "a[title]"}, attr: "title"},
		candidate{name: titleField, rule: parser.Rule{CSS: "a"}},
		candidate{name: titleField, rule: parser.Rule{CSS: ":scope"}},
		candidate{name: "published", kind: when, rule: parser.Rule{CSS: "time"}, attr: "datetime"},
		candidate{name: "image", kind: link, rule: parser.Rule{CSS: "img[data-src]"}, attr: "data-src"},
		candidate{name: "image", kind: link, rule: parser.Rule{CSS: "img"}, attr: "src"},
		candidate{name: "description", rule: parser.Rule{CSS: "p"}},
	))
}

// headings are the tags that name what stands below them.
var headings = strings.Fields("h1 h2 h3 h4 h5")

// titles are the headings of the first row.
func (g group) titles() []candidate {
	list := []candidate{{name: titleField, rule: parser.Rule{CSS: "[itemprop=name]"}}}
	for _, tag := range headings {
		if hasElement(g.members[0], tag) {
			list = append(list, candidate{name: titleField, rule: parser.Rule{CSS: tag + " a[title]"}, attr: "title"}) // whole where the text is cut
			list = append(list, candidate{name: titleField, rule: parser.Rule{CSS: tag}})
		}
	}
	return list
}

// links are the places of the address of what a row is about.
func (g group) links() []candidate {
	list := []string{"[itemprop=url]"}
	for _, tag := range headings {
		if hasElement(g.members[0], tag) {
			list = append(list, tag+" a")
		}
	}
	if g.tag == "a" {
		list = append(list, ":scope")
	}
	var links []candidate
	for _, css := range append(list, "a") {
		links = append(links, candidate{name: "url", kind: link, rule: parser.Rule{CSS: css}, attr: "href"})
	}
	return links
}

// microdata are the properties of rows that are items.
func (g group) microdata() []candidate {
	schema := typeOf(attr(g.members[0], "itemtype"))
	if schema == "" {
		return nil
	}
	list := []candidate{{name: "url", kind: link, rule: parser.Rule{Microdata: "url", Schema: schema}, written: true}}
	for _, c := range vocabulary {
		list = append(list, c.microdata(schema)...)
	}
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

// columns are the cells of a table's row: by the headers that the table has,
// else by where they stand.
func (g group) columns() []candidate {
	var list []candidate
	names := map[string]bool{"": true, "url": true, "id": true}
	for n := range elements(closest(g.members[0], "table")) {
		header := textOf(n, 2*maxHeader)
		if name := fieldName(header); n.Data == "th" && len(header) <= maxHeader && !names[name] {
			names[name] = true
			list = append(list, candidate{name: name, kind: unknown, rule: parser.Rule{Table: header}})
		}
	}
	for i := 1; len(names) == 3 && i <= maxFields; i++ {
		list = append(list, candidate{name: fmt.Sprintf("column_%d", i), kind: unknown, rule: parser.Rule{CSS: fmt.Sprintf("td:nth-child(%d)", i)}})
	}
	return list
}
