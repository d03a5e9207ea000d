package scaffold

import (
	"maps"
	"slices"

	"semel/parser"
)

// listed proposes the rows of a page that is JSON: the longest list of objects.
func (p *page) listed() (proposed, bool) {
	for _, doc := range p.documents() {
		path, first := longestList(doc.value, ".", 0)
		if first == nil {
			continue
		}
		doc.place.JSON = path
		return p.rows(doc.place, keyed(first))
	}
	return proposed{}, false
}

// longestList finds the longest list of objects and the first of these, at a jq
// path through objects. There is none that is shorter than minRows.
func longestList(v any, path string, depth int) (at string, first map[string]any) {
	longest := minRows - 1
	var look func(v any, path string, depth int)
	look = func(v any, path string, depth int) {
		switch v := v.(type) {
		case []any:
			if object, ok := v[:min(1, len(v))], len(v) > longest; ok {
				if o, ok := object[0].(map[string]any); ok {
					longest, at, first = len(v), path+"[]", o
				}
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if depth < maxStateDepth {
					look(v[key], join(path, key), depth+1)
				}
			}
		}
	}
	look(v, path, depth)
	return at, first
}

// keyed are the single values of an object, ids first.
func keyed(object map[string]any) []candidate {
	var ids, list []candidate
	names := map[string]bool{"": true}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		name := fieldName(key)
		if _, ok := object[key].(map[string]any); ok || names[name] {
			continue
		}
		names[name] = true
		c := candidate{name: name, kind: unknown, written: true, rule: parser.Rule{JSON: join(".", key)}}
		if slices.Contains([]string{"id", "sku", "key", "slug", "url"}, name) {
			ids = append(ids, c)
		} else {
			list = append(list, c)
		}
	}
	return append(ids, list...)
}
