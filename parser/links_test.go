package parser

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func linkRules(t testing.TB, css ...string) *Rules {
	t.Helper()
	rules, err := Compile(Spec{Links: css})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestLinks(t *testing.T) {
	for _, test := range []struct {
		name, page string
		want       []string
		bad        int
	}{
		{"relative to the page", `<a href="next">1</a> <a href="/top">2</a> <a href="?page=2">3</a> <a href="../up">4</a>`,
			[]string{"https://example.com/a/next", "https://example.com/top", "https://example.com/a/list?page=2", "https://example.com/up"}, 0},
		{"relative to base", `<base href="https://cdn.example.net/x/"><a href="y">1</a>`, []string{"https://cdn.example.net/x/y"}, 0},
		{"only the first base counts", `<base href="/x/"><base href="/z/"><a href="y">1</a>`, []string{"https://example.com/x/y"}, 0},
		{"a broken base is none", `<base href="data:x"><a href="y">1</a>`, []string{"https://example.com/a/y"}, 0},
		{"scheme of the page", `<a href="//other.test/p">1</a>`, []string{"https://other.test/p"}, 0},
		{"fragments are dropped", `<a href="/p#reviews">1</a> <a href="/p">2</a> <a href="/p#">3</a>`, []string{"https://example.com/p"}, 0},
		{"a place on the page itself", `<a href="#top">1</a> <a href="">2</a> <a href=" # ">3</a> <a>4</a>`, nil, 0},
		{"each once, in page order", `<a href="/b">1</a> <a href="/a">2</a> <a href="/b">3</a>`, []string{"https://example.com/b", "https://example.com/a"}, 0},
		{"no pages", `<a href="javascript:void(0)">1</a> <a href="JavaScript:next('http://x/')">2</a> <a href="mailto:a@b.test">3</a>
			<a href="tel:+49 30 1">4</a> <a href="data:text/html,x">5</a> <a href="java&#10;script:x">6</a> <a href="ftp://example.com/">7</a>`, nil, 0},
		{"a colon in a path", `<a href="/wiki/File:x">1</a> <a href="?at=1:2">2</a>`, []string{"https://example.com/wiki/File:x", "https://example.com/a/list?at=1:2"}, 0},
		{"an IDN host", `<a href="https://BÜCHER.example/ä">1</a>`, []string{"https://xn--bcher-kva.example/%C3%A4"}, 0},
		{"the usual port", `<a href="https://example.com:443/p">1</a> <a href="http://example.com:8080/p">2</a>`, []string{"https://example.com/p", "http://example.com:8080/p"}, 0},
		{"no URLs", `<a href="http://[::1">1</a> <a href="https://user:secret@example.com/">2</a> <a href="http:///">3</a> <a href="/ok">4</a>`, []string{"https://example.com/ok"}, 3},
		{"too long", `<a href="/` + strings.Repeat("x", longestLink) + `">1</a>`, nil, 1},
		{"spaces and line breaks", "<a href=\" /a b\n/c \">1</a>", []string{"https://example.com/a%20b/c"}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := linkRules(t, "a").Parse(Input{Body: []byte(test.page), FinalURL: "https://example.com/a/list", Target: "t"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]string{test.want}, out.Links); diff != "" || out.BadLinks != test.bad {
				t.Errorf("links (-want +got), %d bad, want %d:\n%s", out.BadLinks, test.bad, diff)
			}
		})
	}
}

func TestLinksBySelector(t *testing.T) {
	page := `<link rel="next" href="/2"><div class="p"><a href="/p/1">1</a></div><a href="/2">next</a>`
	out, err := linkRules(t, "[rel=next], a", ".p a", "nav a").Parse(Input{Body: []byte(page), FinalURL: "https://example.com/", Target: "t"})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"https://example.com/2", "https://example.com/p/1"}, {"https://example.com/p/1"}, nil}
	if diff := cmp.Diff(want, out.Links); diff != "" {
		t.Error(diff)
	}
	if len(out.Records) != 1 {
		t.Errorf("got %d records beside the links", len(out.Records))
	}
}

// A page with more links than may be followed fails whole: none is cut away.
func TestTooManyLinks(t *testing.T) {
	page := func(n int) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `<a href="/%d">x</a><a href="/%d">again</a>`, i, i)
		}
		return []byte(b.String())
	}
	in := Input{Body: page(MaxLinks), FinalURL: "https://example.com/", Target: "t"}
	out, err := linkRules(t, "a").Parse(in)
	if err != nil || len(out.Links[0]) != MaxLinks {
		t.Fatalf("%d links, %v", len(out.Links[0]), err)
	}
	for name, rules := range map[string]*Rules{"one list": linkRules(t, "a"), "two lists": linkRules(t, "a", "a[href='/7']")} {
		if name == "one list" {
			in.Body = page(MaxLinks + 1)
		} else {
			in.Body = page(MaxLinks)
		}
		_, err = rules.Parse(in)
		var bad *Error
		if !errors.As(err, &bad) || bad.Kind != KindValidation || bad.Reason != "the page has more than 10000 links to follow" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A URL that each link would be joined to must not cost its length for each.
func TestLinksOfALongBase(t *testing.T) {
	page := `<base href="/` + strings.Repeat("x", longestLink) + `/"><a href="y">1</a>`
	_, err := linkRules(t, "a").Parse(Input{Body: []byte(page), FinalURL: "https://example.com/", Target: "t"})
	var bad *Error
	if !errors.As(err, &bad) || bad.Kind != KindValidation {
		t.Errorf("%v", err)
	}
}

func TestLinksChangeNoFingerprint(t *testing.T) {
	if a, b := linkRules(t).Fingerprint(), linkRules(t, "a").Fingerprint(); a != b {
		t.Errorf("%s and %s", a, b)
	}
	_, err := Compile(Spec{Links: []string{"a", "a.."}})
	var bad *SpecError
	if !errors.As(err, &bad) || bad.Path != "links[1]" || bad.Value != "a.." {
		t.Errorf("a broken selector: %v", err)
	}
}
