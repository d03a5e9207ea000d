package scaffold

import (
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// Boilerplate is what stands around the content: elements with these tags, and
// those whose id, class or role has a word that ends so.
var (
	boilerplateTags  = strings.Fields("nav header footer aside select head svg")
	boilerplateWords = strings.Fields("nav navbar navigation menu footer sidebar breadcrumb crumbs pagination pager related recommended recent similar social cookie consent comment comments")
)

// isBoilerplate reports whether an element begins boilerplate. One with the
// page's heading in it has its name by what else it holds.
func isBoilerplate(n *html.Node) bool {
	if slices.Contains(boilerplateTags, n.Data) {
		return true
	}
	words := wordsOf(attr(n, "id") + " " + attr(n, "class") + " " + attr(n, "role"))
	named := slices.ContainsFunc(words, func(word string) bool {
		return slices.ContainsFunc(boilerplateWords, func(end string) bool { return strings.HasSuffix(word, end) }) // as mainnav
	})
	return named && n.Data != "body" && n.Data != "html" && !hasElement(n, "h1") && !hasElement(n, "main")
}

// inBoilerplate reports whether an element is boilerplate or part of it.
func inBoilerplate(n *html.Node) bool {
	for ; n != nil; n = n.Parent {
		if isBoilerplate(n) {
			return true
		}
	}
	return false
}

// content is how much text there is, in bytes, without boilerplate.
type content struct {
	all   int
	prose int // in paragraphs
}

func contentOf(n *html.Node) content {
	var sum content
	for c := range n.ChildNodes() {
		switch {
		case c.Type == html.TextNode:
			sum.all += len(strings.TrimSpace(c.Data))
		case c.Type == html.ElementNode && !notRead(c.Data) && !isBoilerplate(c):
			part := contentOf(c)
			if c.Data == "p" {
				part.prose = part.all
			}
			sum.all += part.all
			sum.prose += part.prose
		}
	}
	return sum
}
