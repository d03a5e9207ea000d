package parser

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// linkedData is the JSON-LD of a page: its nodes in page order, with arrays
// and @graph opened, and how many blocks could not be read.
type linkedData struct {
	nodes  []any
	broken int
}

// jsonldSelector finds what a dotted path leads to, in the first node where it
// leads anywhere. Blocks that are not JSON are passed over, since pages carry
// broken ones beside good ones; a required field names them.
type jsonldSelector struct {
	path   []string
	schema string // type of the node that the path starts from; "": any
	all    bool   // every element of an array on the way, not only the first
	keep   bool   // an array at the end is the value itself
}

func compileJSONLD(text, schema string, o selectorOptions) (selector, error) {
	path, err := splitPath(text)
	if err != nil {
		return nil, err
	}
	return &jsonldSelector{path, schemaType(schema), o.all, o.keep}, nil
}

// splitPath gives the names of a path such as "offers.price".
func splitPath(text string) ([]string, error) {
	path := strings.Split(text, ".")
	for _, step := range path {
		if strings.TrimSpace(step) != step || step == "" {
			return nil, errors.New("not a path of names with single dots between them")
		}
	}
	return path, nil
}

func (j *jsonldSelector) find(s *scope, yield func(match) bool) error {
	nodes, err := s.linkedNodes()
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if err := s.page.spend(1); err != nil {
			return err
		}
		if !j.starts(node) {
			continue
		}
		found := false
		j.follow(node, j.path, func(v any) bool {
			found = true
			return yield(match{value: v, json: true, linked: true})
		})
		if found {
			return nil
		}
	}
	return nil
}

// starts reports whether the path starts from a node: its @type is a name or a
// list of names.
func (j *jsonldSelector) starts(node any) bool {
	if j.schema == "" {
		return true
	}
	object, _ := node.(map[string]any)
	types, ok := object["@type"].([]any)
	if !ok {
		types = []any{object["@type"]}
	}
	return slices.ContainsFunc(types, func(v any) bool {
		name, _ := v.(string)
		return schemaType(name) == j.schema
	})
}

// linkedNodes are the nodes that paths start from.
func (s *scope) linkedNodes() ([]any, error) {
	if s.row != nil && s.row.linked {
		return []any{s.row.value}, nil
	}
	ld, err := s.page.linkedData()
	if err != nil {
		return nil, err
	}
	return ld.nodes, nil
}

// follow calls yield for what path leads to from v; it says false when yield
// does.
func (j *jsonldSelector) follow(v any, path []string, yield func(any) bool) bool {
	if list, ok := v.([]any); ok && !(j.keep && len(path) == 0) {
		for _, e := range list {
			if !j.follow(e, path, yield) {
				return false
			}
			if !j.all {
				break
			}
		}
		return true
	}
	if len(path) == 0 {
		return v == nil || yield(v)
	}
	if object, ok := v.(map[string]any); ok {
		return j.follow(object[path[0]], path[1:], yield)
	}
	return true
}

func (p *page) linkedData() (*linkedData, error) {
	if p.ld != nil {
		return p.ld, nil
	}
	root, err := p.root()
	if err != nil {
		return nil, err
	}
	ld := &linkedData{}
	err = p.walk(root, false, func(n *html.Node) bool {
		if n.DataAtom == atom.Script && isLinkedData(n) {
			ld.add(rawText(n))
		}
		return true
	})
	if err == nil {
		p.ld = ld
	}
	return ld, err
}

func isLinkedData(n *html.Node) bool {
	typ, _ := attribute(n, "type")
	typ, _, _ = strings.Cut(typ, ";")
	return strings.EqualFold(strings.TrimSpace(typ), "application/ld+json")
}

func (l *linkedData) add(block string) {
	v, err := decodeJSON([]byte(block))
	if err != nil {
		v, err = decodeJSON([]byte(mendJSON(block)))
	}
	if err != nil {
		l.broken++
		return
	}
	l.open(v)
}

// open adds v's nodes: an object before those of its @graph.
func (l *linkedData) open(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			l.open(e)
		}
	case map[string]any:
		l.nodes = append(l.nodes, v)
		if graph, ok := v["@graph"]; ok {
			l.open(graph)
		}
	}
}

// mendJSON undoes what templates do to JSON-LD without changing a value:
// comment and CDATA marks around it, a semicolon after it, and line breaks and
// tabs that stand in strings unescaped.
func mendJSON(s string) string {
	s = strings.TrimSpace(s)
	for _, mark := range []string{"<!--", "//<![CDATA[", "/*<![CDATA[*/", "<![CDATA["} {
		s = strings.TrimSpace(strings.TrimPrefix(s, mark))
	}
	for _, mark := range []string{"-->", "//]]>", "/*]]>*/", "]]>", ";"} {
		s = strings.TrimSpace(strings.TrimSuffix(s, mark))
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}
