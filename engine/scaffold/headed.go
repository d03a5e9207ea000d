package scaffold

import (
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/text/unicode/norm"

	"semel/parser"
)

const (
	maxHeader = 40 // bytes of text of a header that names a value, not a sentence
	maxCell   = 200
)

// headed finds what stands in tables behind the header of a row, and in lists
// behind a term.
func (p *page) headed() []candidate {
	var list []candidate
	names := map[string]bool{}
	for n := range elements(p.root) {
		header := headerOf(n)
		name := fieldName(header)
		if name == "" || names[name] || isConcept(name) {
			continue
		}
		names[name] = true
		list = append(list, candidate{name: name, kind: unknown, rule: parser.Rule{Table: header}})
	}
	return list
}

// headerOf is the text of a header that has one short value behind it, "" where
// n is none.
func headerOf(n *html.Node) string {
	next := nextElement(n)
	if next == nil || !(n.Data == "th" && next.Data == "td" && nextElement(next) == nil || n.Data == "dt" && next.Data == "dd") {
		return ""
	}
	header := textOf(n, 2*maxHeader)
	value := textOf(next, 2*maxCell)
	if len(header) > maxHeader || value == "" || len(value) > maxCell {
		return ""
	}
	return strings.TrimSpace(strings.TrimSuffix(header, ":"))
}

func nextElement(n *html.Node) *html.Node {
	for next := n.NextSibling; next != nil; next = next.NextSibling {
		if next.Type == html.ElementNode {
			return next
		}
	}
	return nil
}

// isConcept reports whether a name is that of a field of the vocabulary.
func isConcept(name string) bool {
	for _, list := range [][]concept{vocabulary, framework} {
		for _, c := range list {
			if c.name == name {
				return true
			}
		}
	}
	return false
}

// fieldName makes a field's name of a header: letters in lower case without
// accents, and "_" for what is between them. It is "" where there is no letter
// to begin with.
func fieldName(text string) string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(text) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r) && b.Len() > 0:
			b.WriteRune(unicode.ToLower(r))
		case unicode.Is(unicode.Mn, r):
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	return strings.Trim(norm.NFC.String(b.String()), "_")
}
