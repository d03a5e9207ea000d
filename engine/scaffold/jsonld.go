package scaffold

import (
	"fmt"
	"strings"

	"semel/parser"
)

// listPlaces are where JSON-LD has the entries of a list: things, or what says
// of each where it is.
var listPlaces = []parser.Rule{
	{JSONLD: "itemListElement.item", Schema: "ItemList"},
	{JSONLD: "itemListElement", Schema: "ItemList"},
	{JSONLD: "mainEntity.itemListElement.item"},
	{JSONLD: "mainEntity.itemListElement"},
}

// jsonldRows proposes rows of what JSON-LD lists, and of things of one type that
// stand in it side by side.
func (p *page) jsonldRows() []proposed {
	var list []proposed
	add := func(rule parser.Rule, places []candidate) {
		if found, ok := p.rows(rule, places, minRows); ok {
			list = append(list, found)
		}
	}
	counts := p.jsonldCounts()
	if len(counts) == 0 {
		return nil
	}
	for _, place := range listPlaces {
		add(place, jsonldCandidates(func(path string) []parser.Rule { return []parser.Rule{{JSONLD: path}} }))
	}
	for _, t := range itemTypes {
		if counts[t] >= minRows {
			add(parser.Rule{CSS: `script[type="application/ld+json"]`, JSON: fmt.Sprintf(`.. | objects | select([."@type"] | flatten | index(%q))`, t)}, jsonldCandidates(jqRules))
		}
	}
	return list
}

// jsonldCandidates are the properties of a thing, by the rules that read a path:
// first those that tell things apart.
func jsonldCandidates(rules func(path string) []parser.Rule) []candidate {
	var list []candidate
	add := func(name string, kind kind, path string) {
		for _, rule := range rules(path) {
			list = append(list, candidate{name: name, kind: kind, rule: rule, written: true})
		}
	}
	add("sku", plain, "sku")
	add("url", link, "url")
	add("url", link, "@id")
	for _, c := range vocabulary {
		for _, path := range c.schema {
			add(c.name, c.kind, path)
		}
	}
	return sortByName(list)
}

// jqRules read a path as jq expressions, of a value or of the first in a list.
func jqRules(path string) []parser.Rule {
	first, rest, deeper := strings.Cut(path, ".")
	of := func(place string) parser.Rule {
		if deeper {
			place = join(place, strings.Split(rest, ".")...)
		}
		return parser.Rule{JSON: place}
	}
	return []parser.Rule{of(join(".", first)), of(join(".", first) + "[0]")}
}

// jsonldCounts are how many things of each type stand in the page's JSON-LD,
// not within others.
func (p *page) jsonldCounts() map[string]int {
	counts := map[string]int{}
	for n := range elements(p.root) {
		if n.Data == "script" && n.FirstChild != nil && strings.Contains(strings.ToLower(attr(n, "type")), "ld+json") {
			if v, ok := decode(n.FirstChild.Data); ok {
				countTypes(v, counts)
			}
		}
	}
	return counts
}

func countTypes(v any, counts map[string]int) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			countTypes(e, counts)
		}
	case map[string]any:
		types, ok := v["@type"].([]any)
		if !ok {
			types = []any{v["@type"]}
		}
		for _, t := range types {
			name, _ := t.(string)
			counts[typeOf(name)]++
		}
		countTypes(v["@graph"], counts)
	}
}
