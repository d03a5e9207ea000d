package scaffold

import (
	"iter"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// elements are the elements below n in page order; none below nil.
func elements(n *html.Node) iter.Seq[*html.Node] {
	return func(yield func(*html.Node) bool) {
		if n == nil {
			return
		}
		for d := range n.Descendants() {
			if d.Type == html.ElementNode && !yield(d) {
				return
			}
		}
	}
}

func hasElement(root *html.Node, tag string) bool {
	for n := range elements(root) {
		if n.Data == tag {
			return true
		}
	}
	return false
}

// closest is the innermost element with a tag around n, nil where there is none.
func closest(n *html.Node, tag string) *html.Node {
	for n = n.Parent; n != nil && n.Data != tag; n = n.Parent {
	}
	return n
}

// attr is an attribute's value, "" where there is none.
func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name && a.Namespace == "" {
			return a.Val
		}
	}
	return ""
}

func hasWord(list, want string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(word string) bool { return strings.EqualFold(word, want) })
}

// notRead are elements whose text no reader sees.
func notRead(tag string) bool {
	return tag == "script" || tag == "style" || tag == "noscript" || tag == "template"
}

// textOf is the text that a reader sees in n, folded, and cut behind limit bytes
// or some more. It is for guessing; values are the parser's to read.
func textOf(n *html.Node, limit int) string {
	var b strings.Builder
	addText(&b, n, limit)
	return strings.Join(strings.Fields(strings.ToValidUTF8(b.String(), "\uFFFD")), " ")
}

func addText(b *strings.Builder, n *html.Node, limit int) {
	for c := n.FirstChild; c != nil && b.Len() < limit; c = c.NextSibling {
		switch {
		case c.Type == html.TextNode:
			b.WriteString(c.Data)
			b.WriteByte(' ')
		case c.Type == html.ElementNode && !notRead(c.Data):
			addText(b, c, limit)
		}
	}
}
