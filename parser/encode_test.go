package parser

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAppendString(t *testing.T) {
	for _, c := range []struct{ s, want string }{
		{"", `""`},
		{"plain", `"plain"`},
		{`a"b\c`, `"a\"b\\c"`},
		{"a\nb\rc\td", `"a\nb\rc\td"`},
		{"\x00\x1f\x7f", "\"\\u0000\\u001f\x7f\""},
		{"<b>&amp;</b>", `"<b>&amp;</b>"`},
		{"a\u2028b\u2029", "\"a\u2028b\u2029\""},
		{"a\xffb\xc3", "\"a\uFFFDb\uFFFD\""},
		{"\uFFFD é 😀", "\"\uFFFD é 😀\""},
	} {
		if got := string(appendString(nil, c.s)); got != c.want {
			t.Errorf("%q is written %s, want %s", c.s, got, c.want)
		}
	}
}

func FuzzAppendString(f *testing.F) {
	f.Add("a\"\\\n\x00\u2028\xff😀")
	f.Fuzz(func(t *testing.T, s string) {
		b := appendString(nil, s)
		var back string
		if err := json.Unmarshal(b, &back); err != nil || !utf8.Valid(b) {
			t.Fatalf("%q is written %q: %v", s, b, err)
		}
		var want []byte // what encoding/json makes of it
		want, _ = json.Marshal(s)
		var wanted string
		if err := json.Unmarshal(want, &wanted); err != nil || back != wanted {
			t.Fatalf("%q comes back as %q, want %q", s, back, wanted)
		}
	})
}

func TestCompactJSON(t *testing.T) {
	deep := any(nil)
	for range maxJSONDepth + 2 {
		deep = []any{deep}
	}
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, "null"},
		{map[string]any{"b": json.Number("1.50"), "a": []any{true, "<", nil}}, `{"a":[true,"<",null],"b":1.50}`},
		{map[string]any{}, `{}`},
		{[]any{}, `[]`},
		{7, "7"},
		{0.1, "0.1"},
		{1e21, "1000000000000000000000"},
		{new(big.Int).Lsh(big.NewInt(1), 70), "1180591620717411303424"},
		{math.NaN(), "!is no number that JSON can hold (got \"NaN\")"},
		{math.Inf(1), "!is no number that JSON can hold"},
		{[]any{map[string]any{"a": math.NaN()}}, "!is no number that JSON can hold"},
		{deep, "!is nested deeper than 10000"},
		{struct{}{}, "!is no JSON value but a struct {}"},
	} {
		got, err := compactJSON(c.v)
		check(t, c.want, got, err, c.want)
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct{ s, want string }{
		{"short", "short"},
		{strings.Repeat("a", 300), strings.Repeat("a", 200)},
		{strings.Repeat("é", 150), strings.Repeat("é", 100)},
		{"a" + strings.Repeat("é", 150), "a" + strings.Repeat("é", 99)},
		{"a\xff", "a\uFFFD"},
	} {
		if got := shorten(c.s); got != c.want {
			t.Errorf("%q is shortened to %q", c.s, got)
		}
	}
}
