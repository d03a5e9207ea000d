package parser

import (
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// microdataSelector finds what a dotted path of itemprops leads to, in the
// first item where it leads anywhere. An item's properties are the elements in
// it that are in no item between; what itemref points at is not among them.
type microdataSelector struct {
	path   []string
	schema string // type of the item that the path starts from; "": of any that is not itself a property
}

func compileMicrodata(text, schema string) (selector, error) {
	path, err := splitPath(text)
	if err != nil {
		return nil, err
	}
	return &microdataSelector{path, schemaType(schema)}, nil
}

func (m *microdataSelector) find(s *scope, yield func(match) bool) error {
	top, err := s.element()
	if err != nil {
		return err
	}
	look := func(n *html.Node) bool {
		found := false
		if m.starts(n, n == top) {
			m.follow(n, m.path, func(v match) bool {
				found = true
				return yield(v)
			})
		}
		return !found
	}
	if !look(top) {
		return nil
	}
	return s.page.walk(top, false, look)
}

// starts reports whether a path starts from n, which may be the row's own
// element.
func (m *microdataSelector) starts(n *html.Node, row bool) bool {
	if m.schema != "" {
		types, _ := attribute(n, "itemtype")
		return isItem(n) && hasToken(types, m.schema)
	}
	_, property := attribute(n, "itemprop")
	return isItem(n) && (row || !property)
}

// follow calls yield for what path leads to from an item; it says false when
// yield does.
func (m *microdataSelector) follow(item *html.Node, path []string, yield func(match) bool) bool {
	return properties(item, func(n *html.Node, names string) bool {
		switch {
		case !hasToken(names, path[0]):
			return true
		case len(path) > 1:
			return !isItem(n) || m.follow(n, path[1:], yield)
		}
		return yield(propertyValue(n))
	})
}

// properties calls yield for the properties of an item below n, until it says
// false.
func properties(n *html.Node, yield func(n *html.Node, names string) bool) bool {
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if names, ok := attribute(c, "itemprop"); ok && !yield(c, names) {
			return false
		}
		if !isItem(c) && !properties(c, yield) {
			return false
		}
	}
	return true
}

// propertyValue is what HTML says that the value of an itemprop is; content is
// read on every element, as search engines do.
func propertyValue(n *html.Node) match {
	if isItem(n) {
		return match{value: map[string]any{}, json: true} // no single value
	}
	for _, name := range []string{"content", valueAttribute(n.DataAtom)} {
		if v, ok := attribute(n, name); ok {
			return match{text: v}
		}
	}
	return match{node: n}
}

// valueAttribute is the attribute that holds the value of elements which have
// another value than their text.
func valueAttribute(a atom.Atom) string {
	switch a {
	case atom.Audio, atom.Embed, atom.Iframe, atom.Img, atom.Source, atom.Track, atom.Video:
		return "src"
	case atom.A, atom.Area, atom.Link:
		return "href"
	case atom.Object:
		return "data"
	case atom.Data, atom.Meter:
		return "value"
	case atom.Time:
		return "datetime"
	}
	return ""
}

func isItem(n *html.Node) bool {
	_, ok := attribute(n, "itemscope")
	return ok
}

// hasToken reports whether a list of names or types has one in it.
func hasToken(list, want string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(token string) bool { return schemaType(token) == want })
}

// schemaType is a type or name as the pages that hold it mostly write it: of
// schema.org without the address, of others with it.
func schemaType(name string) string {
	name = strings.TrimSpace(name)
	for _, home := range []string{"https://schema.org/", "http://schema.org/", "https://www.schema.org/", "http://www.schema.org/", "schema:"} {
		if rest, ok := strings.CutPrefix(name, home); ok {
			return rest
		}
	}
	return name
}
