package parser

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// FuzzLexTag: a tag ends where the library's tokenizer says that it ends, with
// as many attributes, since what is counted must not be fewer.
func FuzzLexTag(f *testing.F) {
	for _, s := range []string{` a="b>" c='d' e=f/ g>x`, "/a/b/=c>", ` a = "b"c>`, ` =a==">`, " a=>", " a= b", ` a="`, "\x00 a", " a / = b>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, attributes string) {
		text := []byte("b " + attributes)
		end, count := lexTag(text)
		z := html.NewTokenizer(bytes.NewReader(append([]byte("<"), text...)))
		if z.Next() == html.ErrorToken {
			if end < len(text) {
				t.Fatalf("%q ends at %d, and is no tag", text, end)
			}
			return
		}
		raw := len(z.Raw()) - 1
		names := 0
		for _, more := z.TagName(); more; names++ {
			_, _, more = z.TagAttr()
		}
		if end != raw || count < names {
			t.Fatalf("%q ends at %d with %d attributes, want %d and %d", text, end, count, raw, names)
		}
	})
}

// treeParts are what pages are made of that cost more than they should.
var treeParts = strings.Fields(`x <p> </p> <div> </div> <table> <tr> <td> </table> <caption> <object> </object> <svg> <math> <mi> <desc> </svg>
	<select> <option> </select> <template> </template> <li> <h1> <form> <button> </button> <br> <img/a> <hr> <span> </span> </br>
	<a/a> <a/b/c> <a> </a> <b> </b> <b/a> <b/b> <b/a/b/c/d/e/f/g> <i> <i/a> </i> <nobr> <nobr/a/b> </nobr> <font> <font/a> <font/color="" > </font>
	<title> </title> <script> </script> <style> </style> <textarea> </textarea> <!-- --> <![CDATA[ ]]> <b/a="<i>"> <body/a/b> <html/a> <frameset> <col> <ruby> <rt>`)

// FuzzGrowth: a tree never has more than was counted before.
func FuzzGrowth(f *testing.F) {
	for _, parts := range []string{"", "<b/a/b/c/d/e/f/g> <div> <div> <div> </b> x", "<a/b/c> <div> <b/a/b/c/d/e/f/g> <a> x </a> </b>", "<svg> <b/a> <desc> <b/b> </svg> <p> x"} {
		var choice []byte
		for _, part := range strings.Fields(parts) {
			choice = append(choice, byte(slices.Index(treeParts, part)))
		}
		f.Add(choice)
	}
	f.Fuzz(func(t *testing.T, choice []byte) {
		var page strings.Builder
		for _, c := range choice {
			page.WriteString(treeParts[int(c)%len(treeParts)])
		}
		body := []byte(page.String())
		tree, err := html.Parse(strings.NewReader(page.String()))
		if err != nil {
			return
		}
		nodes, _ := measure(tree)
		g, most := growth{body: body}, 2*perTag // with <html>, <head> and <body>
		for i, c := range body {
			if c == '<' {
				added, _ := g.tag(body[i+1:])
				most += added
			}
		}
		if nodes > most {
			t.Fatalf("%s has %d elements, texts and attributes, at most %d were expected", body, nodes, most)
		}
	})
}
