package parser

import (
	"bytes"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// What the tree of an HTML page may cost. The rules of HTML let a page cost the
// square of its size: a formatting element without end tag is opened again in
// every block that follows, with all its attributes, and a tag may look at every
// element that it stands in. 20 KB took 3.7 s, 250 KB half a minute.
const (
	// A tree may have treeNodes and one for two bytes of the page: elements,
	// texts and attributes, some 100 bytes each. Of 1,000 real pages the densest
	// has one for ten bytes.
	treeNodes = 250_000

	// The tags of a page may look at treeLooks elements and looksPerByte for each
	// byte, some 50 ns each. Real pages are some dozen levels deep and have a tag
	// in twenty bytes.
	treeLooks    = 2_000_000
	looksPerByte = 25

	// deepest is how deep the library lets elements be nested.
	deepest = 512

	// maxParts is how often a page is read that may grow. Real pages come to two.
	maxParts = 100
)

// parseHTML makes the tree of a page. The library has no way to stop within a
// page, so a page is read in parts, each with all before it: only so far that
// it cannot cost too much, whatever its tags come to, and then what they came to
// is looked at. Nearly all pages are one part.
func parseHTML(body []byte) (*html.Node, error) {
	g := growth{body: body, open: plainFormatting}
	for range maxParts {
		part, err := g.next()
		if err != nil {
			return nil, err
		}
		tree, err := html.Parse(bytes.NewReader(part))
		if err == nil && (len(part) < len(body) || g.parts > 1) {
			err = checkTree(tree, part)
		}
		if err != nil || len(part) == len(body) {
			return tree, err
		}
	}
	return nil, unreadable("its tags are closed so badly that it would be read more than %d times", maxParts)
}

// checkTree holds a tree to what it may cost.
func checkTree(tree *html.Node, body []byte) error {
	nodes, depth := measure(tree)
	if limit := treeNodes + len(body)/2; nodes > limit {
		return unreadable("its tags that are not closed make more than %d elements, texts and attributes of the first %d bytes", limit, len(body))
	}
	if looks := depth * bytes.Count(body, []byte("<")); looks > treeLooks+looksPerByte*len(body) {
		return unreadable("its tags stand too deep: %d elements are looked at in the first %d bytes", looks, len(body))
	}
	return nil
}

// measure counts the elements, texts and attributes of a tree, and its levels.
func measure(n *html.Node) (nodes, depth int) {
	nodes = 1 + len(n.Attr)
	for c := range n.ChildNodes() {
		more, deep := measure(c)
		nodes, depth = nodes+more, max(depth, 1+deep)
	}
	return nodes, depth
}

// plainFormatting is how many formatting elements without attributes are opened
// again at most: three of each of twelve names, and one <a>.
const plainFormatting = 37

// growth tells how far a page can be read before its tree may cost more than
// one may. It counts too many rather than too few: a tag is taken for one
// wherever it stands, and for closed only if its end tag soon follows.
type growth struct {
	body  []byte
	at    int // how much of body is in the parts so far
	parts int

	open     int // elements and attributes that a tag may open again
	link     int // attributes of one <a>
	heaviest int // attributes of one other formatting element
	merged   int // attributes of all <html> and <body>, which are one element each
	merges   int // what those cost
	lexed    int // bytes of tags
}

// next gives the part up to where so much more may be opened or looked at as a
// whole page may have.
func (g *growth) next() ([]byte, error) {
	g.parts++
	nodes, looks := treeNodes+len(g.body)/2, treeLooks+looksPerByte*len(g.body)
	for nodes > 0 && looks > 0 {
		i := bytes.IndexByte(g.body[g.at:], '<')
		if i < 0 {
			return g.body, nil
		}
		g.at += i + 1
		nodes -= min(g.open, deepest*(1+max(g.heaviest, g.link)))
		looks -= deepest
		if err := g.tag(g.body[g.at:]); err != nil {
			return nil, err
		}
	}
	return g.body[:g.at-1], nil
}

// tag takes in what a tag may have opened again.
func (g *growth) tag(text []byte) error {
	name := nameWithAttributes(text)
	if name == 0 {
		return nil
	}
	end, attributes := lexTag(text)
	g.lexed += end
	switch name {
	case atom.Html, atom.Body:
		g.merged += attributes
		g.merges += g.merged
	case atom.A:
		g.open += max(0, attributes-g.link) // one is open at most
		g.link = max(g.link, attributes)
	default:
		g.heaviest = max(g.heaviest, attributes)
		if !closes(text[end:], name) {
			g.open += 1 + attributes
		}
	}
	switch {
	case g.lexed > treeNodes+4*len(g.body):
		return unreadable("its tags stand within tags")
	case g.merges > treeLooks+looksPerByte*len(g.body):
		return unreadable("it has too many tags of <html> and <body>")
	}
	return nil
}

// nameWithAttributes is the name of the start tag that text, behind its "<",
// begins with; 0 where it has no attributes, or where how many of its kind there
// are costs no more than any other tag.
func nameWithAttributes(text []byte) atom.Atom {
	name, end := tagName(text)
	if name == 0 || text[end] == '>' {
		return 0
	}
	if isFormatting(name) || name == atom.A || name == atom.Html || name == atom.Body {
		return name
	}
	return 0
}

func isFormatting(name atom.Atom) bool {
	switch name {
	case atom.B, atom.Big, atom.Code, atom.Em, atom.Font, atom.I, atom.Nobr, atom.S, atom.Small, atom.Strike, atom.Strong, atom.Tt, atom.U:
		return true
	}
	return false
}

// tagName is the name that text begins with, and where it ends; 0 where it is
// longer than any that is asked for, or no name.
func tagName(text []byte) (name atom.Atom, end int) {
	var lower [len("strong")]byte
	for i, c := range text[:min(len(text), len(lower)+1)] {
		switch {
		case endsName(c):
			return atom.Lookup(lower[:i]), i
		case i == len(lower) || c|0x20 < 'a' || c|0x20 > 'z':
			return 0, 0
		}
		lower[i] = c | 0x20
	}
	return 0, 0
}

// lexTag gives where the start tag that text begins with ends, and how many
// attributes it has, as HTML counts them.
func lexTag(text []byte) (end, attributes int) {
	i := 0
	skip := func(stop func(byte) bool) {
		for i < len(text) && !stop(text[i]) {
			i++
		}
	}
	skip(endsName)
	for {
		skip(func(c byte) bool { return !isSpace(c) && c != '/' })
		if i >= len(text) || text[i] == '>' {
			return min(i+1, len(text)), attributes
		}
		attributes++
		i++ // a "=" here is part of the name
		skip(func(c byte) bool { return endsName(c) || c == '=' })
		skip(func(c byte) bool { return !isSpace(c) })
		if i >= len(text) || text[i] != '=' {
			continue
		}
		i++
		skip(func(c byte) bool { return !isSpace(c) })
		if i < len(text) && (text[i] == '"' || text[i] == '\'') {
			quote := text[i]
			i++
			skip(func(c byte) bool { return c == quote })
			i++
		} else {
			skip(func(c byte) bool { return isSpace(c) || c == '>' })
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r' }

func endsName(c byte) bool { return isSpace(c) || c == '/' || c == '>' }

// closes reports whether a formatting element is closed at once: its end tag
// follows, and only tags before it that leave it one of what it closes.
func closes(text []byte, name atom.Atom) bool {
	open := 1
	for range 16 {
		i := bytes.IndexByte(text, '<')
		if i < 0 {
			return false
		}
		text = text[i+1:]
		inner, ends := bytes.CutPrefix(text, []byte("/"))
		other, _ := tagName(inner)
		switch {
		case other == name && ends:
			open--
		case other == name:
			open++
		case !isFormatting(other) && other != atom.A && other != atom.Span && other != atom.Br && other != atom.Img:
			return false
		}
		if open == 0 {
			return true
		}
		end, _ := lexTag(inner)
		text = inner[end:]
	}
	return false
}
