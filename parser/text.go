package parser

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/text/unicode/norm"
)

// fold gives s in Unicode NFC with every run of white space, of whatever kind,
// as one space, and none at the ends.
func fold(s string) string {
	if isFolded(s) {
		return s
	}
	s = norm.NFC.String(strings.ToValidUTF8(s, "\uFFFD"))
	return strings.Join(strings.Fields(s), " ")
}

// isFolded is true for printable ASCII that fold would not change, which is
// most of what pages hold.
func isFolded(s string) bool {
	space := true // a space may not follow
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c < ' ' || c >= utf8.RuneSelf || c == ' ' && space:
			return false
		default:
			space = c == ' '
		}
	}
	return !space || s == ""
}

// nodeText is the text of an element as a reader sees it, not folded: without
// scripts and styles, and with a space where a line ends.
func nodeText(n *html.Node) string {
	if c := n.FirstChild; c != nil && c.NextSibling == nil && c.Type == html.TextNode {
		return c.Data
	}
	if hidden(n.DataAtom) {
		return rawText(n)
	}
	var b strings.Builder
	addText(&b, n)
	return b.String()
}

func addText(b *strings.Builder, n *html.Node) {
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		switch {
		case c.Type == html.TextNode:
			b.WriteString(c.Data)
		case c.Type != html.ElementNode || hidden(c.DataAtom):
		case breaksLine(c.DataAtom):
			b.WriteByte(' ')
			addText(b, c)
			b.WriteByte(' ')
		default:
			addText(b, c)
		}
	}
}

// rawText is the text directly below n.
func rawText(n *html.Node) string {
	var b strings.Builder
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}

// hidden elements have text that no reader sees. A rule that names one of them
// gets its text nevertheless.
func hidden(a atom.Atom) bool {
	switch a {
	case atom.Script, atom.Style, atom.Noscript, atom.Template:
		return true
	}
	return false
}

// breaksLine is true for the elements that stand on lines of their own.
func breaksLine(a atom.Atom) bool {
	switch a {
	case atom.Br, atom.P, atom.Div, atom.Li, atom.Ul, atom.Ol, atom.Dl, atom.Dt, atom.Dd,
		atom.Table, atom.Tr, atom.Td, atom.Th, atom.Thead, atom.Tbody, atom.Tfoot, atom.Caption,
		atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Hr, atom.Pre, atom.Blockquote,
		atom.Section, atom.Article, atom.Aside, atom.Header, atom.Footer, atom.Main, atom.Nav,
		atom.Figure, atom.Figcaption, atom.Address, atom.Form, atom.Fieldset, atom.Option,
		atom.Details, atom.Summary, atom.Title, atom.Body, atom.Head:
		return true
	}
	return false
}

// innerHTML is what stands inside an element, as HTML.
func innerHTML(n *html.Node) (string, error) {
	switch n.DataAtom {
	case atom.Script, atom.Style, atom.Noscript, atom.Iframe, atom.Noembed, atom.Noframes, atom.Xmp, atom.Plaintext:
		return rawText(n), nil // rendered alone their text would be escaped
	}
	var b strings.Builder
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if err := html.Render(&b, c); err != nil {
			return "", unreadable("writing an element's HTML: %v", err)
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD"), nil
}
