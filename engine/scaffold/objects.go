package scaffold

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"semel/parser"
)

// objectRows proposes rows of lists of objects: of a page that is JSON any, else
// of the page's own JSON those whose objects are like things a page is about.
func (p *page) objectRows(in sight) []proposed {
	var list []proposed
	for _, doc := range p.documents() {
		at := objectList{sight: in, anything: p.root == nil}
		at.look(doc.value, ".", 0)
		if at.first == nil {
			continue
		}
		doc.place.JSON = at.path
		if found, ok := p.rows(doc.place, keyed(at.first), 1); ok {
			list = append(list, found)
		}
	}
	return list
}

// minHiddenRows are a list where the page shows nothing that they could stand beside.
const minHiddenRows = 2

// objectList is the longest list of objects so far.
type objectList struct {
	sight
	anything bool   // the list may be of anything, and of any length
	path     string // as a jq expression that gives each
	first    map[string]any
	n        int
}

// look goes through objects to lists.
func (l *objectList) look(v any, path string, depth int) {
	switch v := v.(type) {
	case []any:
		if len(v) <= l.n || !l.anything && len(v) < l.least() {
			return
		}
		if first, ok := v[0].(map[string]any); ok && (l.anything || l.isThing(conceptPaths(".", first, func(string) bool { return true }))) {
			l.path, l.first, l.n = path+"[]", first, len(v)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if depth < maxStateDepth && l.leads(key) {
				l.look(v[key], join(path, key), depth+1)
			}
		}
	}
}

// least is how many things are a list.
func (l *objectList) least() int {
	if l.hidden {
		return minHiddenRows
	}
	return minRows
}

// keyed are the single values of an object, by the names that the object has
// for them: first what tells objects apart, then what the vocabulary knows.
func keyed(object map[string]any) []candidate {
	var list []candidate
	names := map[string]bool{"": true}
	add := func(name, key string, kind kind) {
		if _, ok := scalar(object, key); ok && !names[name] {
			names[name] = true
			list = append(list, candidate{name: name, kind: kind, written: true, rule: parser.Rule{JSON: join(".", strings.Split(key, ".")...)}})
		}
	}
	for _, key := range []string{"id", "uuid", "sku", "key", "slug"} {
		add(key, key, unknown)
	}
	add("url", "url", link)
	for _, c := range vocabulary {
		for _, key := range c.keys {
			name := keyName(key)
			if c.name == currencyField || strings.Contains(key, ".") {
				name = c.name
			}
			add(name, key, c.kind)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !strings.Contains(key, ".") { // which scalar takes for a path
			add(keyName(key), key, unknown)
		}
	}
	return list
}

// camel finds where a word of a key such as "createdAt" begins.
var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// keyName makes a field's name of a key.
func keyName(key string) string { return fieldName(camel.ReplaceAllString(key, "${1}_$2")) }
