package parser

import (
	"strings"
	"testing"
)

const statePage = `<title>Shop</title><base href="/base/">
<script id="state" type="application/json"> {"props":{"title":"Kettle  17","price":19.90,"none":null,"tags":["a","b"],"link":"x"}} </script>
<div class="a" data-props="{&quot;id&quot;: 7}"></div><div class="a" data-props="{&quot;id&quot;: 8}"></div>
<script class="code">var a = 1; window.STATE = {"a":"};</x>","n":[1,2]}; window.STATE = {"a":"second"}</script>
<script class="trailing">{"a":1};</script><script class="cut">{"a":</script><script class="empty"></script>`

func TestEmbeddedJSON(t *testing.T) {
	in := Input{Body: []byte(statePage), FinalURL: "https://shop.example/p/1", Target: "1"}
	for _, c := range []struct {
		field Field
		want  string
	}{
		{Field{Rule: Rule{CSS: "#state", JSON: ".props.title"}}, `"Kettle 17"`},
		{Field{Rule: Rule{XPath: "//script[1]", JSON: ".props.price"}, Type: "decimal"}, `"19.90"`},
		{Field{Rule: Rule{CSS: "#state", JSON: ".props.tags[]"}, Many: true}, `["a","b"]`},
		{Field{Rule: Rule{CSS: "#state", JSON: ".props.tags"}, Type: "object"}, `["a","b"]`},
		{Field{Rule: Rule{CSS: "#state", JSON: ".props.none"}}, "null?"},
		{Field{Rule: Rule{CSS: "#state", JSON: ".props.link"}, Type: "url"}, `"https://shop.example/base/x"`},
		{Field{Rule: Rule{CSS: "#nothing", JSON: ".a"}}, "null?"},
		{Field{Rule: Rule{CSS: ".a", JSON: ".id"}, Attr: "data-props", Type: "integer", Many: true}, "[7,8]"},
		{Field{Rule: Rule{XPath: "//div/@data-props", JSON: ".id"}, Type: "integer"}, "7"},
		{Field{Rule: Rule{Regex: `window\.STATE = `, JSON: ".a"}}, `"};</x>"`},
		{Field{Rule: Rule{Regex: `window\.STATE =`, JSON: ".a"}, Many: true}, `["};</x>","second"]`},
		{Field{Rule: Rule{Regex: `window\.STATE =`, JSON: ".n[1]"}}, `"2"`},
		{Field{Rule: Rule{Regex: "</x>|STATE = ", JSON: ".a"}, Many: true}, `["};</x>","second"]`}, // nothing is found within a value
		{Field{Rule: Rule{Regex: "nothing", JSON: "."}}, "null?"},
		{Field{Rule: Rule{Regex: "a = ", JSON: "."}}, `"1"`},
		{Field{Rule: Rule{Regex: "window.", JSON: ".a"}}, `!parse_error: field x: there is no JSON value: invalid character 'S' looking for beginning of value (got "STATE = `},
		{Field{Rule: Rule{CSS: ".trailing", JSON: ".a"}}, `!parse_error: field x: there is more text after the JSON value; regex beside json reads up to its end (got ";")`},
		{Field{Rule: Rule{CSS: ".cut", JSON: ".a"}}, `!parse_error: field x: there is no JSON value: unexpected EOF (got "{\"a\":")`},
		{Field{Rule: Rule{CSS: ".empty", JSON: ".a"}}, `!parse_error: field x: there is no JSON value: EOF`},
		{Field{Rule: Rule{CSS: "#state", JSON: ".props.title.x"}}, "!validation: field x: the jq expression failed: expected an object but got: string (\"Kettle  17\")"},
		{Field{Rule: Rule{XPath: "count(//div) > 0", JSON: "."}}, `"true"`},
	} {
		if got := parseField(t, in, c.field); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v gives %s, want %s", c.field, got, c.want)
		}
	}
}

// TestEmbeddedRows: rows within a page's state have fields like those of a JSON
// page.
func TestEmbeddedRows(t *testing.T) {
	body := `<base href="/b/"><script>window.S = {"items":[{"id":1,"u":"x"},{"id":2}]};</script><p data-j='{"n":3}'></p>`
	in := Input{Body: []byte(body), FinalURL: "https://a.example/", Target: "1"}
	for _, rows := range []Rule{{Regex: `window\.S =`, JSON: ".items[]"}} {
		rules := mustCompile(t, Spec{Rows: &rows, Key: "{id}", Fields: []Field{
			{Name: "id", Rule: Rule{JSON: ".id"}}, {Name: "u", Rule: Rule{JSON: ".u"}, Type: "url"},
		}})
		out, err := rules.Parse(in)
		want := "1\tnull\n{\"id\":\"1\",\"u\":\"https://a.example/b/x\"}\n2\t[\"u\"]\n{\"id\":\"2\",\"u\":null}\n"
		if err != nil || out.text() != want {
			t.Errorf("%+v gives %v\n%swant\n%s", rows, err, out.text(), want)
		}
	}
	rules := mustCompile(t, Spec{Rows: &Rule{CSS: "p"}, Key: "{n}", Fields: []Field{{Name: "n", Rule: Rule{CSS: ":scope", JSON: ".n"}, Attr: "data-j"}}})
	if out, err := rules.Parse(in); err != nil || out.text() != "3\tnull\n{\"n\":\"3\"}\n" {
		t.Errorf("JSON within a row gives %v, %s", err, out.text())
	}
}
