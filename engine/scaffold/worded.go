package scaffold

import (
	"fmt"
	"regexp"
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

// identifier is a name that stands in a CSS selector as it is.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// generated finds ids and classes that a program made up: the next page has
// others.
var generated = regexp.MustCompile(`[0-9]{3}|[a-z][0-9][a-z]|[0-9][a-z][0-9]`)

// others are words beside that of a concept which say that it is not the page's
// own: a former price, the date of a comment.
var others = strings.Fields("old was strike regular compare list filter range comment comments related update label currency range unit per")

// worded finds elements whose ids, data attributes and classes have a word for a
// concept: of its field, ids before data attributes before classes.
func (p *page) worded() map[string][]candidate {
	found := map[string]*[3][]candidate{}
	for n := range elements(p.root) {
		if notRead(n.Data) || n.Data == "html" || n.Data == "body" || n.Data == "head" {
			continue
		}
		for _, c := range vocabulary {
			if len(c.words) == 0 {
				continue
			}
			if found[c.name] == nil {
				found[c.name] = &[3][]candidate{}
			}
			c.addWorded(n, found[c.name])
		}
	}
	list := map[string][]candidate{}
	for name, levels := range found {
		list[name] = slices.Concat(levels[0], levels[1], levels[2])
	}
	return list
}

// addWorded adds an element where its attributes name the concept.
func (c concept) addWorded(n *html.Node, levels *[3][]candidate) {
	add := func(level int, selector, attribute string) {
		if len(levels[level]) < maxWorded {
			levels[level] = append(levels[level], candidate{name: c.name, kind: c.kind, rule: parser.Rule{CSS: selector}, attr: attribute})
		}
	}
	short := func() bool { text := textOf(n, 2*maxWordedText); return text != "" && len(text) <= maxWordedText }
	for _, a := range n.Attr {
		switch {
		case strings.HasPrefix(a.Key, "data-") && identifier.MatchString(a.Key) && c.named(a.Key) && a.Val != "" && len(a.Val) <= maxWordedText:
			add(1, "["+a.Key+"]", a.Key)
		case !c.named(a.Val):
		case a.Key == "id" && stable(a.Val) && short():
			add(0, "#"+a.Val, "")
		case strings.HasPrefix(a.Key, "data-") && identifier.MatchString(a.Key) && stable(a.Val) && short():
			add(1, fmt.Sprintf(`[%s="%s"]`, a.Key, a.Val), "")
		case a.Key == "class":
			for class := range strings.FieldsSeq(a.Val) {
				if c.named(class) && stable(class) && short() {
					add(2, n.Data+"."+class, "")
				}
			}
		}
	}
}

// stable reports whether a name in the page's code can stand in a selector, and
// will be there on the next page.
func stable(name string) bool { return identifier.MatchString(name) && !generated.MatchString(name) }

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
