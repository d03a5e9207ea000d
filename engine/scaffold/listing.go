package scaffold

import (
	"slices"
	"strings"

	"github.com/andybalholm/cascadia"

	"semel/parser"
)

// minRows is how many of a kind are a listing. Fewer are what stands beside one
// thing.
const minRows = 5

// pageTitle is what a listing calls itself, beside the fields of its rows.
var pageTitle = candidate{name: "page_title", rule: parser.Rule{Meta: "og:title"}}

// listing proposes the fields of a page that is many records. It is false where the
// page has no rows, or none that could be told apart.
func (p *page) listing(in sight) (proposed, bool) {
	return p.richest(slices.Concat(p.jsonldRows(), p.objectRows(in), p.elementRows()))
}

// richest are the rows that have most fields; where two have as many, those that a new
// design leaves as they are. It is false where there are none.
func (p *page) richest(list []proposed) (proposed, bool) {
	var best proposed
	for _, found := range list {
		if len(found.spec.Fields) > len(best.spec.Fields) {
			best = found
		}
	}
	if best.spec.Rows == nil {
		return proposed{}, false
	}
	if p.root == nil {
		return best, true
	}
	best.spec.Fields = append(best.spec.Fields, pageTitle.field(parser.Field{}))
	return p.complete(best.spec, best.doubts)
}

// shared are fields that are alike for many things, or other ones tomorrow: not
// even where they tell rows apart are they a key.
var shared = strings.Fields("author availability brand company description ends image modified place price published rating ratings section starts")

// rows proposes the fields of rows, of which there must be some number. The key
// is the first of the fields that tells them apart.
func (p *page) rows(rule parser.Rule, list []candidate, least int) (proposed, bool) {
	if _, err := read(parser.Spec{Rows: &rule, Key: "{url}"}, p.in); err != nil {
		return proposed{}, false // there are none
	}
	for i, c := range list {
		if slices.Contains(shared, c.name) {
			continue
		}
		spec := parser.Spec{Version: 1, Rows: &rule, Key: "{" + probeName(i) + "}"}
		texts, ok := p.texts(list, spec)
		if !ok {
			continue
		}
		fields, doubts := p.choose(list, texts)
		spec.Fields, spec.Key = fields, "{"+c.name+"}"
		if out, ok := p.complete(spec, doubts); ok && len(out.spec.Fields) > 1 && out.records >= least {
			return out, true
		}
	}
	return proposed{}, false
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

// nexts are where most lists have the link to their next page.
var nexts = []string{"a[rel~=next]", "link[rel~=next]", "li.next a", ".next a", "a.next"}

// next is a selector of the link to the list's next page, "" where there is
// none.
func (p *page) next() string {
	if p.root == nil {
		return ""
	}
	for _, css := range nexts {
		if n := cascadia.Query(p.root, cascadia.MustCompile(css)); n != nil && attr(n, "href") != "" {
			return css
		}
	}
	return ""
}
