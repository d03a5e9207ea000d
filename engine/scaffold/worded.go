package scaffold

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/html"

	"semel/parser"
)

const (
	maxWorded     = 2   // elements of one concept that are looked at, by each kind of attribute
	maxWordedText = 100 // bytes of text of an element that is one value
)

// others are words beside that of a concept which say that it is not the page's
// own: a former price, the date of a comment.
var others = strings.Fields("old was strike regular compare list filter range comment comments related update label currency range unit per")

// levels are candidates by the attribute that has the word, the stable ones
// first.
type levels [3][]candidate

const (
	byID = iota
	byData
	byClass
)

// worded are the elements below some whose ids, data attributes and classes
// have a word for a concept.
func (c concept) worded(roots ...*html.Node) levels {
	var found levels
	if len(c.words) == 0 {
		return found
	}
	for _, root := range roots {
		for n := range elements(root) {
			if !notRead(n.Data) && n.Data != "html" && n.Data != "body" && n.Data != "head" {
				c.addWorded(n, &found)
			}
		}
	}
	return found
}

// addWorded adds an element where its attributes name the concept.
func (c concept) addWorded(n *html.Node, found *levels) {
	add := func(level int, selector, attribute string) {
		if len(found[level]) < maxWorded {
			found[level] = append(found[level], candidate{name: c.name, kind: c.kind, rule: parser.Rule{CSS: selector}, attr: attribute})
		}
	}
	short := func() bool { text := textOf(n, 2*maxWordedText); return text != "" && len(text) <= maxWordedText }
	for _, a := range n.Attr {
		switch {
		case strings.HasPrefix(a.Key, "data-") && identifier.MatchString(a.Key) && c.named(a.Key) && a.Val != "" && len(a.Val) <= maxWordedText:
			add(byData, "["+a.Key+"]", a.Key)
		case !c.named(a.Val):
		case a.Key == "id" && stable(a.Val) && short():
			add(byID, "#"+a.Val, "")
		case strings.HasPrefix(a.Key, "data-") && identifier.MatchString(a.Key) && stable(a.Val) && short():
			add(byData, fmt.Sprintf(`[%s="%s"]`, a.Key, a.Val), "")
		case a.Key == "class":
			for class := range strings.FieldsSeq(a.Val) {
				if c.named(class) && stable(class) && short() {
					add(byClass, n.Data+"."+class, "")
				}
			}
		}
	}
}

// named reports whether a name such as "product-priceValue" is of the concept.
func (c concept) named(text string) bool {
	if len(text) > maxWordedText {
		return false
	}
	words := wordsOf(text)
	has := func(list []string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return slices.Contains(list, word) })
	}
	return has(c.words) && !has(others)
}

// wordsOf are the words of a name in lower case, cut where letters end and
// where a capital begins.
func wordsOf(text string) []string {
	var b strings.Builder
	before := ' '
	for _, r := range text {
		switch {
		case !unicode.IsLetter(r):
			b.WriteByte(' ')
		case unicode.IsUpper(r) && !unicode.IsUpper(before):
			b.WriteByte(' ')
			fallthrough
		default:
			b.WriteRune(unicode.ToLower(r))
		}
		before = r
	}
	return strings.Fields(b.String())
}
