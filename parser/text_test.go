package parser

import (
	"strings"
	"testing"

	"golang.org/x/net/html"
)

func TestFold(t *testing.T) {
	for _, c := range []struct{ s, want string }{
		{"", ""},
		{" ", ""},
		{"a b", "a b"},
		{" a\n\t b ", "a b"},
		{"a  b", "a b"},
		{"a ", "a"},
		{"a\u00a0\u2009\u3000b\u0085", "a b"},
		{"e\u0301", "é"},
		{"a\xffb", "a\uFFFDb"},
	} {
		if got := fold(c.s); got != c.want {
			t.Errorf("%q folds to %q, want %q", c.s, got, c.want)
		}
	}
}

func FuzzFold(f *testing.F) {
	f.Add(" a\u00a0e\u0301 ")
	f.Fuzz(func(t *testing.T, s string) {
		once := fold(s)
		if twice := fold(once); twice != once {
			t.Fatalf("%q folds to %q and then to %q", s, once, twice)
		}
	})
}

// body parses a fragment and gives the element around it.
func body(t *testing.T, fragment string) *html.Node {
	t.Helper()
	p := &page{in: Input{Body: []byte("<body><div>" + fragment + "</div>")}}
	root, err := p.root()
	if err != nil {
		t.Fatal(err)
	}
	return root.LastChild.LastChild.FirstChild
}

func TestNodeText(t *testing.T) {
	for _, c := range []struct{ fragment, want string }{
		{"one", "one"},
		{"", ""},
		{"<span>19</span><sup>.90</sup>", "19.90"},
		{"one<br>two", "one two"},
		{"<p>one</p><p>two</p>", "one two"},
		{"<ul><li>one<li>two</ul>", "one two"},
		{"a<script>x()</script><style>b{}</style><noscript><i>n</i></noscript><template>t</template><!-- c -->b", "ab"},
		{"Tom &amp; <b>Jerry</b>", "Tom & Jerry"},
	} {
		if got := fold(nodeText(body(t, c.fragment))); got != c.want {
			t.Errorf("%s reads as %q, want %q", c.fragment, got, c.want)
		}
	}
}

func TestHiddenElementsHaveTheirOwnText(t *testing.T) {
	script := body(t, "<script>if (a < b) {}</script>").FirstChild
	if got := nodeText(script); got != "if (a < b) {}" {
		t.Errorf("the script's text is %q", got)
	}
	if got, err := innerHTML(script); got != "if (a < b) {}" || err != nil {
		t.Errorf("the script's HTML is %q, %v", got, err)
	}
	if got := nodeText(body(t, "<style>a</style>").FirstChild); got != "a" {
		t.Errorf("the style's text is %q", got)
	}
}

func TestInnerHTML(t *testing.T) {
	got, err := innerHTML(body(t, `<p class=a>one &lt; <br>two</p> tail`))
	if want := `<p class="a">one &lt; <br/>two</p> tail`; got != want || err != nil {
		t.Errorf("the inner HTML is %q, %v, want %q", got, err, want)
	}
}

func TestMendJSON(t *testing.T) {
	for _, s := range []string{
		"<!-- {\"a\":1} -->", "//<![CDATA[\n{\"a\":1}\n//]]>", "/*<![CDATA[*/{\"a\":1}/*]]>*/", "<![CDATA[{\"a\":1}]]>", "{\"a\":1};", "{\"a\"\n:\t1}",
	} {
		if v, err := decodeJSON([]byte(mendJSON(s))); err != nil || v.(map[string]any)["a"] == nil {
			t.Errorf("%q is read as %v, %v", s, v, err)
		}
	}
	if got := mendJSON(strings.Repeat(" ", 3)); got != "" {
		t.Errorf("white space becomes %q", got)
	}
}
