package parser

import (
	"bytes"
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
