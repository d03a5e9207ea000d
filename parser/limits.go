package parser

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/antchfx/htmlquery"
	"github.com/antchfx/xpath"
	"golang.org/x/net/html"
)

// What one page may cost. All of it is counted and nothing timed, so that the
// same page always ends the same way. Beyond a limit it fails as KindSyntax,
// before it holds a worker for minutes or takes the memory of the others. One
// thing has no limit: the size of what a jq expression makes, such as . * 1000 of
// a text, since gojq counts steps only.
const (
	// maxMatches is how many rows there may be, or values of one field. Real
	// listings have some hundreds.
	maxMatches = 100_000

	// A page may cost pageSteps and stepsPerByte for each of its bytes. A step is
	// a look at an element, some 5 ns. A field that reads the whole page takes one
	// in twenty bytes; a hundred per byte are two thousand rows that each do.
	pageSteps    = 10_000_000
	stepsPerByte = 100

	// stepsPerJQ and stepsPerXPath are what a step of an expression counts as:
	// some 0.3 and 0.1 µs.
	stepsPerJQ    = 10
	stepsPerXPath = 4

	// maxRecordBytes bounds a page's records beside twice its own size: values
	// within each other, such as the texts of nested elements, can be its square.
	maxRecordBytes = 64 << 20

	// maxDepth is how deep the JSON of a page may be nested. A jq expression such
	// as [paths] costs the square of it: at the 10,000 that encoding/json reads,
	// 20 KB took 40 s and 3 GB.
	maxDepth = 1000

	// maxValues is how many values the JSON of a page may have, where an object is
	// objectValues: one with a member takes some 400 bytes. At the limit they
	// come to some 260 MB.
	maxValues    = 3_000_000
	objectValues = 4

	// maxDigits is how long a number of a page's JSON may be. A jq expression such
	// as . + 1 costs the square of it: at a million digits seconds.
	maxDigits = 10_000

	// maxColumns is how many columns a table may have: as many as HTML lets one
	// cell reach over.
	maxColumns = 1000
)

// spend counts n steps.
func (p *page) spend(n int) error {
	if p.spent += n; p.spent > pageSteps+stepsPerByte*len(p.in.Body) {
		return unreadable("the page takes more than %d steps to read", pageSteps+stepsPerByte*len(p.in.Body))
	}
	return nil
}

// checkRecords bounds the bytes of a page's records.
func (p *page) checkRecords(size int) error {
	if limit := maxRecordBytes + 2*len(p.in.Body); size > limit {
		return unreadable("the records of the page take more than %d bytes", limit)
	}
	return nil
}

// walk calls yield for the elements below n in the order of the page, until it
// says false. An element costs a step, and with siblings one for each of them.
func (p *page) walk(n *html.Node, siblings bool, yield func(*html.Node) bool) error {
	_, err := p.walkOn(n, siblings, yield)
	return err
}

func (p *page) walkOn(n *html.Node, siblings bool, yield func(*html.Node) bool) (more bool, err error) {
	cost := 1
	if siblings {
		for range n.ChildNodes() {
			cost++
		}
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if c.Type != html.ElementNode {
			continue
		}
		if err := p.spend(cost); err != nil || !yield(c) {
			return false, err
		}
		if more, err := p.walkOn(c, siblings, yield); !more || err != nil {
			return false, err
		}
	}
	return true, nil
}

// siblingSelector finds what makes cascadia look at all siblings of an element.
var siblingSelector = regexp.MustCompile(`~|:nth[a-z-]*\([^)]*n|-of-type`)

// seesSiblings reports whether matching a CSS selector costs the number of the
// siblings.
func seesSiblings(css string) bool {
	attributes := regexp.MustCompile(`\[[^\]]*\]`)
	return siblingSelector.MatchString(attributes.ReplaceAllString(css, ""))
}

// navigator counts the steps of an XPath expression, which it ends by a panic
// with the error: the library has no other way out.
type navigator struct {
	*htmlquery.NodeNavigator
	page *page
}

func (n *navigator) count() {
	if err := n.page.spend(stepsPerXPath); err != nil {
		panic(err)
	}
}

// Copy makes another navigator at the same place.
func (n *navigator) Copy() xpath.NodeNavigator {
	n.count()
	return &navigator{n.NodeNavigator.Copy().(*htmlquery.NodeNavigator), n.page}
}

// MoveTo goes where another navigator is.
func (n *navigator) MoveTo(other xpath.NodeNavigator) bool {
	return n.NodeNavigator.MoveTo(other.(*navigator).NodeNavigator)
}

// MoveToChild goes to the first child.
func (n *navigator) MoveToChild() bool {
	n.count()
	return n.NodeNavigator.MoveToChild()
}

// MoveToParent goes to the parent.
func (n *navigator) MoveToParent() bool {
	n.count()
	return n.NodeNavigator.MoveToParent()
}

// MoveToNext goes to the next sibling.
func (n *navigator) MoveToNext() bool {
	n.count()
	return n.NodeNavigator.MoveToNext()
}

// MoveToPrevious goes to the sibling before.
func (n *navigator) MoveToPrevious() bool {
	n.count()
	return n.NodeNavigator.MoveToPrevious()
}

// spendSearch counts what one search of text costs, and gives where it ends, -1
// without a match. A search is linear, but looks far behind its match for some
// expressions, such as a(.*b)?, and so many searches are not.
func (p *page) spendSearch(re *regexp.Regexp, text string) (end int, err error) {
	c := &runeCounter{Reader: strings.NewReader(text)}
	end = -1
	if at := re.FindReaderIndex(c); at != nil {
		end = at[1]
	}
	return end, p.spend(c.read)
}

// spendSearches counts what it costs to search text for every match, which
// takes as long as the searches themselves where an expression looks far.
func (p *page) spendSearches(r *regexSelector, text string) error {
	if r.short {
		return p.spend(len(text))
	}
	for text != "" {
		end, err := p.spendSearch(r.re, text)
		if end < 0 || err != nil {
			return err
		}
		text = text[max(end, 1):]
	}
	return nil
}

// looksFar reports whether a search for a regular expression may look further
// behind its match than some characters.
func looksFar(expr string) bool {
	parsed, err := syntax.Parse(expr, syntax.Perl)
	return err != nil || longestMatch(parsed) > 16
}

// longestMatch is how many characters an expression can match.
func longestMatch(re *syntax.Regexp) int {
	longest, sum := 0, 0
	for _, sub := range re.Sub {
		length := longestMatch(sub)
		longest, sum = max(longest, length), sum+length
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1
	case syntax.OpStar, syntax.OpPlus:
		return math.MaxInt32
	case syntax.OpRepeat:
		if re.Max < 0 {
			return math.MaxInt32
		}
		return re.Max * longest
	case syntax.OpAlternate:
		return longest
	}
	return sum
}

// runeCounter counts what is read of a text.
type runeCounter struct {
	*strings.Reader
	read int
}

// ReadRune reads the next rune.
func (c *runeCounter) ReadRune() (r rune, size int, err error) {
	c.read++
	return c.Reader.ReadRune()
}

// checkValues refuses JSON that may have too many values. Those that stand in
// texts are counted, too: real texts have few commas.
func checkValues(text []byte) error {
	n := bytes.Count(text, []byte(",")) + bytes.Count(text, []byte("[")) + objectValues*bytes.Count(text, []byte("{"))
	if n > maxValues {
		return unreadable("the JSON has more than %d values, each object counted as %d", maxValues, objectValues)
	}
	return nil
}

// checkDepth refuses a JSON value that is nested deeper than left, or has a
// number that is too long.
func checkDepth(v any, left int) error {
	if left < 0 {
		return unreadable("the JSON is nested deeper than %d", maxDepth)
	}
	switch v := v.(type) {
	case json.Number:
		if len(v) > maxDigits {
			return unreadable("the JSON has a number of more than %d digits", maxDigits)
		}
	case []any:
		for _, e := range v {
			if err := checkDepth(e, left-1); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, e := range v {
			if err := checkDepth(e, left-1); err != nil {
				return err
			}
		}
	}
	return nil
}
