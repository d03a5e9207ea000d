package parser

import (
	"bytes"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// What the tree of an HTML page may cost. By the rules of HTML a page can cost
// the square of its size: a formatting element without end tag is opened again
// in every block that follows, with all its attributes, and a tag may look at
// every element that it stands in. 20 KB took 3.7 s, 250 KB half a minute.
const (
	// maxNodes is how many elements, texts and attributes a tree may have: some
	// 120 bytes each. Of 1,000 real pages the largest has 37,000.
	maxNodes = 500_000

	// maxAttributes is how many one tag may have: a page is cut before a tag or
	// behind it, never within.
	maxAttributes = 100_000

	// maxLooks is how many elements the tags of a page may look at, each all that
	// it stands in: some 30 ns each. Of the same pages the largest comes to 350,000.
	maxLooks = 25_000_000

	// maxTries is how often a page is read that may cost too much. Real pages come
	// to two.
	maxTries = 10

	// deepest is how deep the library lets elements be nested.
	deepest = 512
)

// ParseHTML makes the tree of a page of UTF-8. Whatever the page holds, that is
// bounded in time and memory: beyond it, or where elements are nested deeper
// than 512, it gives an error.
//
// The library cannot be stopped within a page. So it is given the page up to
// where it cannot cost too much, however its tags come out, then what they came
// to is looked at, and then the page is read anew, further on. Nearly all pages
// are read once.
func ParseHTML(body []byte) (*html.Node, error) {
	g := growth{body: body}
	for range maxTries {
		part, err := g.next()
		if err != nil {
			return nil, err
		}
		tree, err := html.Parse(bytes.NewReader(part))
		if err == nil {
			err = checkTree(tree, part)
		}
		if err != nil {
			return nil, err
		}
		if len(part) == len(body) {
			return tree, nil
		}
	}
	return nil, unreadable("its tags are so many, or closed so badly, that it would be read more than %d times", maxTries)
}

// checkTree holds a tree to what it may cost.
func checkTree(tree *html.Node, body []byte) error {
	nodes, depth := measure(tree)
	if nodes > maxNodes {
		return unreadable("the first %d bytes have more than %d elements, texts and attributes", len(body), maxNodes)
	}
	if looks := depth * bytes.Count(body, []byte("<")); looks > maxLooks {
		return unreadable("its tags stand too deep: those of the first %d bytes look at more than %d elements", len(body), maxLooks)
	}
	return nil
}

// measure counts the elements, texts and attributes of a tree, and its levels.
func measure(n *html.Node) (nodes, depth int) {
	nodes = 1 + len(n.Attr)
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		more, deep := measure(c)
		nodes, depth = nodes+more, max(depth, 1+deep)
	}
	return nodes, depth
}

// growth tells how far a page can be read before its tree may cost more than
// one may. It counts too many rather than too few: a tag is taken for one
// wherever it stands, and for closed only where its end tag soon follows.
type growth struct {
	body []byte
	at   int // how much of body has been looked at

	// What may be open, elements and attributes.
	plain    int // formatting elements without attributes
	others   int // other formatting elements
	link     int // one <a>: there is never a second
	heaviest int // one of all those

	merged int // attributes of all <html> and <body>, which are one element each
	merges int // looks at those
	lexed  int // bytes of start tags
}

// maxPlain is how many equal formatting elements are opened again: three of each
// of thirteen names.
const maxPlain = 3 * 13

// next gives the page up to where as much may have been added as one may cost.
func (g *growth) next() ([]byte, error) {
	nodes, looks := maxNodes, maxLooks
	for nodes > 0 && looks > 0 {
		i := bytes.IndexByte(g.body[g.at:], '<')
		if i < 0 {
			return g.body, nil
		}
		g.at += i + 1
		added, err := g.tag(g.body[g.at:])
		if err != nil {
			return nil, err
		}
		nodes, looks = nodes-added, looks-deepest
	}
	return g.body[:g.at-1], nil
}

// perTag is how many nodes a tag adds that opens nothing again: itself, the text
// behind it, and elements that it implies, such as <tbody> and <tr>.
const perTag = 4

// tag takes in the tag that text, behind its "<", begins with, and gives how
// many nodes it may add.
func (g *growth) tag(text []byte) (added int, err error) {
	inner, ends := bytes.CutPrefix(text, []byte("/"))
	if len(inner) == 0 || !isLetter(inner[0]) {
		return perTag, nil // no tag
	}
	name, attributes := tagName(inner), 0
	if !ends {
		var end int
		end, attributes = lexTag(inner)
		g.lexed += end
		g.open(name, attributes, inner[end:])
	}
	switch {
	case attributes > maxAttributes:
		return 0, unreadable("a tag has more than %d attributes", maxAttributes)
	case g.lexed > maxLooks+4*len(g.body):
		return 0, unreadable("its tags stand within tags")
	case g.merges > maxLooks:
		return 0, unreadable("it has too many tags of <html> and <body>")
	}
	again := min(g.plain+g.others+g.link, deepest*g.heaviest)
	if isFormatting(name) { // the adoption agency of HTML: eight times up to four of those
		again += 8 * min(again, 4*g.heaviest)
	}
	return perTag + 2*attributes + again, nil // twice: where an <a> within it ends one around it, it is opened again
}

// open takes in what a start tag leaves open; rest is what follows it.
func (g *growth) open(name atom.Atom, attributes int, rest []byte) {
	if name == atom.Html || name == atom.Body {
		g.merged += attributes
		g.merges += g.merged
	}
	if !isFormatting(name) || closes(name, rest) {
		return
	}
	g.heaviest = max(g.heaviest, 1+attributes)
	switch {
	case name == atom.A:
		g.link = max(g.link, 1+attributes)
	case attributes == 0:
		g.plain = min(g.plain+1, maxPlain)
	default:
		g.others += 1 + attributes
	}
}

// isFormatting reports whether an element is opened again in the next block
// where it has no end tag.
func isFormatting(name atom.Atom) bool {
	switch name {
	case atom.A, atom.B, atom.Big, atom.Code, atom.Em, atom.Font, atom.I, atom.Nobr, atom.S, atom.Small, atom.Strike, atom.Strong, atom.Tt, atom.U:
		return true
	}
	return false
}

// closes reports whether a formatting element is closed at once: its end tag
// follows in rest, and before it only formatting elements and the like that are
// within each other.
func closes(name atom.Atom, rest []byte) bool {
	open := []atom.Atom{name}
	for range 16 {
		i := bytes.IndexByte(rest, '<')
		if i < 0 {
			return false
		}
		inner, ends := bytes.CutPrefix(rest[i+1:], []byte("/"))
		switch name := tagName(inner); {
		case ends && name == open[len(open)-1]:
			open = open[:len(open)-1]
		case ends || name == atom.Nobr: // which may end one around
			return false
		case isFormatting(name) || name == atom.Span:
			open = append(open, name)
		case name != atom.Br && name != atom.Img:
			return false
		}
		if len(open) == 0 {
			return true
		}
		end, _ := lexTag(inner)
		rest = inner[end:]
	}
	return false
}

// tagName is the name that text begins with; 0 where it is longer than any that
// is asked for, or no name.
func tagName(text []byte) atom.Atom {
	var lower [len("strong")]byte
	for i, c := range text[:min(len(text), len(lower)+1)] {
		switch {
		case endsName(c):
			return atom.Lookup(lower[:i])
		case i == len(lower) || !isLetter(c):
			return 0
		}
		lower[i] = c | 0x20
	}
	return 0
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

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r' }

func endsName(c byte) bool { return isSpace(c) || c == '/' || c == '>' }
