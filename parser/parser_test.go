package parser

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const shopPage = `<!doctype html><html><head><title>Shop</title><base href="/base/">
<meta name="Description" content="A shop"><meta property="og:title" content="Kettle &amp; co"><meta property="og:image" content="/1.jpg">
<meta property="og:image" content="/2.jpg"><meta itemprop="sku" content=""><meta http-equiv="Refresh" content="5"><meta name="bare">
<script type="application/ld+json">{"@type":"Broken",}</script>
<script type="Application/LD+JSON; charset=utf-8">[{"@type":"WebSite","name":"Shop"},{"@graph":[{"@type":"Product","offers":[
 {"price":19.90,"availability":"https://schema.org/InStock"},{"price":"21"}],"image":["a.jpg","b.jpg"],"brand":{"name":"Acme","id":null},"rating":4.0}]}]</script>
<script type="application/ld+json">{"name":"Second","late":"yes"}</script></head><body>
<h1> Blue
 kettle </h1><p class="empty"></p><p class="n">1,600</p><p class="html">a <b>b</b></p><p class="bool">Yes</p>
<a href="x?a=1&amp;b=2" data-id="7">link</a><a>no link</a><a href="">empty</a><a href="mailto:a@example.com">mail</a>
<time datetime="2026-04-23T15:04:05+02:00">Apr 23</time><i>3</i><i>5</i><i></i></body></html>`

var shopInput = Input{
	Body: []byte(shopPage), FinalURL: "https://user:secret@shop.example/p/1", Target: "t1",
	Vars: map[string]string{"sku": "K 1", "empty": "", "country": "", "url": "https://shop.example/"},
}

const shopJSON = `{"id":12345678901234567890,"price":19.90,"big":1e3,"whole":5.0,"name":"Kettle","none":null,"ok":true,
 "tags":["a","b",null],"dims":{"w":1.50,"h":"<2>"},"link":"/x","huge":1e999999999,"empty":""}`

// parseField parses in with f as the only field, and gives its JSON value, or
// an error's text with a "!" before it; a "?" stands behind missing values.
func parseField(t *testing.T, in Input, f Field) string {
	t.Helper()
	out, err := mustCompile(t, oneField(f)).Parse(in)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || e.Row != -1 || e.Field != "x" || len(out.Records) > 0 {
			t.Fatalf("%+v gives the error %+v beside %d records", f, err, len(out.Records))
		}
		return "!" + string(e.Kind) + ": " + e.Error()
	}
	got := strings.TrimSuffix(strings.TrimPrefix(string(out.Records[0].Data), `{"x":`), "}")
	if len(out.Records[0].Missing) > 0 {
		got += "?"
	}
	return got
}

func TestFieldsOfHTML(t *testing.T) {
	for _, c := range []struct {
		field Field
		want  string
	}{
		// css and attr
		{Field{Rule: Rule{CSS: "h1"}}, `"Blue kettle"`},
		{Field{Rule: Rule{CSS: "h1, title"}}, `"Shop"`},
		{Field{Rule: Rule{CSS: ":scope"}, Attr: "lang"}, "null?"},
		{Field{Rule: Rule{CSS: "h2"}}, "null?"},
		{Field{Rule: Rule{CSS: ".empty"}}, `""`},
		{Field{Rule: Rule{CSS: "a"}, Attr: "data-id"}, `"7"`},
		{Field{Rule: Rule{CSS: "a"}, Attr: "href"}, `"x?a=1&b=2"`},
		{Field{Rule: Rule{CSS: "a"}, Attr: "href", Many: true}, `["x?a=1&b=2","","mailto:a@example.com"]`},
		{Field{Rule: Rule{CSS: "a"}, Attr: "title"}, "null?"},
		{Field{Rule: Rule{CSS: "i"}, Many: true}, `["3","5",""]`},
		{Field{Rule: Rule{CSS: "h2"}, Many: true}, "[]?"},
		{Field{Rule: Rule{CSS: ".html"}, Type: "html"}, `"a <b>b</b>"`},
		{Field{Rule: Rule{Const: "<b>  "}, Type: "html"}, `"<b>  "`},
		// xpath
		{Field{Rule: Rule{XPath: "//h1"}}, `"Blue kettle"`},
		{Field{Rule: Rule{XPath: "//a"}, Attr: "href"}, `"x?a=1&b=2"`},
		{Field{Rule: Rule{XPath: "//a/@data-id"}}, `"7"`},
		{Field{Rule: Rule{XPath: "//a/text()"}, Many: true}, `["link","no link","empty","mail"]`},
		{Field{Rule: Rule{XPath: "count(//a)"}, Type: "integer"}, "4"},
		{Field{Rule: Rule{XPath: "count(//a) > 9"}, Type: "boolean"}, "false"},
		{Field{Rule: Rule{XPath: "concat('<', //title, '>')"}}, `"<Shop>"`},
		{Field{Rule: Rule{XPath: "number(//h1)"}}, "null?"},
		{Field{Rule: Rule{XPath: "//h2"}}, "null?"},
		{Field{Rule: Rule{XPath: "string(//h2)"}}, `""`},
		// meta
		{Field{Rule: Rule{Meta: "description"}}, `"A shop"`},
		{Field{Rule: Rule{Meta: "og:title"}}, `"Kettle & co"`},
		{Field{Rule: Rule{Meta: "og:image"}, Many: true, Type: "url"}, `["https://shop.example/1.jpg","https://shop.example/2.jpg"]`},
		{Field{Rule: Rule{Meta: "sku"}}, `""`},
		{Field{Rule: Rule{Meta: "refresh"}, Type: "integer"}, "5"},
		{Field{Rule: Rule{Meta: "bare"}}, "null?"},
		// jsonld
		{Field{Rule: Rule{JSONLD: "name"}}, `"Shop"`},
		{Field{Rule: Rule{JSONLD: "late"}}, `"yes"`},
		{Field{Rule: Rule{JSONLD: "offers.price"}, Type: "money", Currency: "USD"}, `{"amount":"19.90","currency":"USD"}`},
		{Field{Rule: Rule{JSONLD: "offers.price"}, Type: "decimal", Many: true}, `["19.90","21"]`},
		{Field{Rule: Rule{JSONLD: "image"}}, `"a.jpg"`},
		{Field{Rule: Rule{JSONLD: "image"}, Many: true}, `["a.jpg","b.jpg"]`},
		{Field{Rule: Rule{JSONLD: "image"}, Type: "object"}, `["a.jpg","b.jpg"]`},
		{Field{Rule: Rule{JSONLD: "brand"}, Type: "object"}, `{"id":null,"name":"Acme"}`},
		{Field{Rule: Rule{JSONLD: "brand.id"}}, "null?"},
		{Field{Rule: Rule{JSONLD: "brand.name.first"}}, "null?"},
		{Field{Rule: Rule{JSONLD: "rating"}, Type: "integer"}, "4"},
		{
			Field{Rule: Rule{JSONLD: "offers.availability"}, Map: map[string]string{"https://schema.org/InStock": "in_stock"}, Enum: []string{"in_stock"}},
			`"in_stock"`,
		},
		// regex
		{Field{Rule: Rule{Regex: `og:title" content="([^"]*)`}}, `"Kettle &amp; co"`},
		{Field{Rule: Rule{Regex: `\.jpg`}, Many: true}, `[".jpg",".jpg",".jpg",".jpg"]`},
		{Field{Rule: Rule{Regex: `Shop|(A shop)`}, Many: true}, `["A shop"]`},
		{Field{Rule: Rule{Regex: `nowhere`}}, "null?"},
		// const and var
		{Field{Rule: Rule{Const: "<a>"}}, `"<a>"`},
		{Field{Rule: Rule{Const: int64(7)}, Type: "integer"}, "7"},
		{Field{Rule: Rule{Const: 1.5}, Type: "decimal"}, `"1.5"`},
		{Field{Rule: Rule{Const: false}, Type: "boolean"}, "false"},
		{Field{Rule: Rule{Const: ""}}, `""`},
		{Field{Rule: Rule{Var: "sku"}}, `"K 1"`},
		{Field{Rule: Rule{Var: "empty"}}, `""`},
		{Field{Rule: Rule{Var: "country"}}, "null?"},
		{Field{Rule: Rule{Var: "absent"}}, "null?"},
		{Field{Rule: Rule{Var: "url"}, Type: "url"}, `"https://shop.example/"`},
		{Field{Rule: Rule{Var: "final_url"}}, `"https://user:secret@shop.example/p/1"`},
		// types
		{Field{Rule: Rule{CSS: ".n"}, Type: "integer", Decimal: "."}, "1600"},
		{Field{Rule: Rule{CSS: ".n"}, Type: "decimal", Decimal: ","}, `"1.600"`},
		{Field{Rule: Rule{CSS: ".bool"}, Type: "boolean"}, "true"},
		{Field{Rule: Rule{CSS: "time"}, Attr: "datetime", Type: "timestamp"}, `"2026-04-23T13:04:05Z"`},
		{Field{Rule: Rule{CSS: "time"}, Attr: "datetime", Type: "date", Layout: "2006-01-02T15:04:05Z07:00"}, `"2026-04-23"`},
		{Field{Rule: Rule{CSS: "a"}, Attr: "href", Type: "url"}, `"https://shop.example/base/x?a=1&b=2"`},
		{Field{Rule: Rule{CSS: "a[href='']"}, Attr: "href", Type: "url"}, `""`},
		// default replaces what is missing and nothing else
		{Field{Rule: Rule{CSS: "h2"}, Default: "none"}, `"none"`},
		{Field{Rule: Rule{CSS: "h2"}, Default: int64(0), Type: "integer"}, "0"},
		{Field{Rule: Rule{CSS: "h2"}, Default: []any{}, Many: true}, "[]"},
		{Field{Rule: Rule{CSS: "h2"}, Default: []any{"1", int64(2)}, Many: true, Type: "decimal"}, `["1","2"]`},
		{Field{Rule: Rule{CSS: "h2"}, Default: "https://shop.example/none.png", Type: "url"}, `"https://shop.example/none.png"`},
		{Field{Rule: Rule{JSONLD: "nowhere"}, Default: map[string]any{"b": 1.5, "a": nil}, Type: "object"}, `{"a":null,"b":1.5}`},
		{Field{Rule: Rule{CSS: ".empty"}, Default: "none"}, `""`},
		{Field{Rule: Rule{CSS: ".n"}, Default: "x", Enum: []string{"1,600"}}, `"1,600"`},
		// checks that pass
		{Field{Rule: Rule{CSS: "h1"}, Pattern: "Blue|Blue kettle", Required: true}, `"Blue kettle"`},
		{Field{Rule: Rule{CSS: ".n"}, Type: "integer", Decimal: ".", Min: "1600", Max: "1600"}, "1600"},
		{Field{Rule: Rule{CSS: ".n"}, Type: "integer", Decimal: ".", Min: "200"}, "1600"},
		{Field{Rule: Rule{CSS: ".empty"}, Map: map[string]string{"": "0"}, Type: "integer"}, "0"},
		{Field{Rule: Rule{CSS: "i"}, Many: true, Required: true}, `["3","5",""]`},
	} {
		if got := parseField(t, shopInput, c.field); got != c.want {
			t.Errorf("%+v gives %s, want %s", c.field, got, c.want)
		}
	}
}

func TestFieldsOfJSON(t *testing.T) {
	in := Input{Body: []byte("\uFEFF" + shopJSON), FinalURL: "https://api.example/v1/p", Target: "1"}
	for _, c := range []struct {
		json  string
		field Field
		want  string
	}{
		{".id", Field{Type: "integer"}, "12345678901234567890"},
		{".price", Field{Type: "decimal"}, `"19.90"`},
		{".price", Field{}, `"19.90"`},
		{".price", Field{Type: "money", Currency: "EUR"}, `{"amount":"19.90","currency":"EUR"}`},
		{".big", Field{Type: "integer"}, "1000"},
		{".whole", Field{Type: "integer"}, "5"},
		{".whole", Field{Type: "integer", Map: map[string]string{"5.0": "1.600"}}, "!validation: field x: can be read as 1.600 and as 1600; set decimal"},
		{".price * 2", Field{Type: "decimal"}, `"39.8"`},
		{".ok", Field{Type: "boolean"}, "true"},
		{".ok", Field{}, `"true"`},
		{".none", Field{}, "null?"},
		{".nothing.at.all", Field{}, "null?"},
		{"empty", Field{}, "null?"},
		{".empty", Field{}, `""`},
		{".tags[]", Field{}, `"a"`},
		{".tags[]", Field{Many: true}, `["a","b"]`},
		{".tags", Field{Type: "object"}, `["a","b",null]`},
		{".dims", Field{Type: "object"}, `{"h":"<2>","w":1.50}`},
		{".dims, .tags", Field{Type: "object", Many: true}, `[{"h":"<2>","w":1.50},["a","b",null]]`},
		{".link", Field{Type: "url"}, `"https://api.example/x"`},
		{".huge", Field{Type: "object"}, "1e999999999"},
		{".huge", Field{Type: "integer"}, `!validation: field x: is not a number, or too long for one (got "1e999999999")`},
		{".dims", Field{}, "!validation: field x: is an object where one value was expected"},
		{".tags", Field{Many: true}, "!validation: field x: is an array where one value was expected"},
		{".name.first", Field{}, `!validation: field x: the jq expression failed: expected an object but got: string ("Kettle")`},
		{"nan", Field{}, `!validation: field x: is no number that JSON can hold (got "NaN")`},
		{".empty", Field{Type: "object", Required: true}, "!validation: field x: is required, and its text is empty"},
		{"def f: f; f", Field{}, "!parse_error: field x: the jq expression took more than 1000"},
		{"reduce range(20000) as $i (null; [.])", Field{Type: "object"}, "!validation: field x: is nested deeper than 10000"},
	} {
		c.field.JSON = c.json
		if got := parseField(t, in, c.field); got != c.want && (c.want[0] != '!' || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s, %+v gives %s, want %s", c.json, c.field, got, c.want)
		}
	}
}

func TestFieldErrors(t *testing.T) {
	for _, c := range []struct {
		field Field
		want  string
	}{
		{Field{Rule: Rule{CSS: "h2"}, Required: true}, "!validation: field x: is required and missing"},
		{Field{Rule: Rule{CSS: "h2"}, Required: true, Many: true}, "!validation: field x: is required and missing"},
		{Field{Rule: Rule{CSS: ".empty"}, Required: true}, "!validation: field x: is required, and its text is empty"},
		{Field{Rule: Rule{CSS: ".empty"}, Required: true, Many: true}, "!validation: field x: is required, and its texts are all empty"},
		{Field{Rule: Rule{JSONLD: "gone"}, Required: true}, "!validation: field x: is required and missing (1 JSON-LD blocks of the page are broken)"},
		{Field{Rule: Rule{CSS: ".empty"}, Type: "integer"}, `!validation: field x: is "", expected an integer`},
		{Field{Rule: Rule{CSS: ".empty"}, Type: "decimal"}, `!validation: field x: is "", expected a number`},
		{Field{Rule: Rule{CSS: ".empty"}, Type: "money", Currency: "USD"}, `!validation: field x: is "", expected an amount`},
		{Field{Rule: Rule{CSS: ".empty"}, Type: "boolean"}, `!validation: field x: is "", expected true or false`},
		{Field{Rule: Rule{CSS: ".empty"}, Type: "date"}, `!validation: field x: is "", expected a date`},
		{Field{Rule: Rule{CSS: ".empty"}, Type: "timestamp"}, `!validation: field x: is "", expected a timestamp`},
		{Field{Rule: Rule{CSS: "i"}, Type: "integer", Many: true}, `!validation: field x: is "", expected an integer`},
		{Field{Rule: Rule{CSS: ".n"}, Type: "integer"}, `!validation: field x: can be read as 1600 and as 1.600; set decimal (got "1,600")`},
		{Field{Rule: Rule{CSS: ".n"}, Type: "integer", Decimal: ","}, `!validation: field x: is not an integer (got "1,600")`},
		{Field{Rule: Rule{Const: "1.0"}, Type: "integer"}, `!validation: field x: is not an integer (got "1.0")`},
		{Field{Rule: Rule{CSS: "h1"}, Type: "boolean"}, `!validation: field x: is not one of true, false, yes, no, 1, 0 (got "Blue kettle")`},
		{Field{Rule: Rule{CSS: "h1"}, Type: "date"}, `!validation: field x: is not a date like 2006-01-02; set layout (got "Blue kettle")`},
		{Field{Rule: Rule{CSS: "h1"}, Map: map[string]string{"a": "b"}}, `!validation: field x: is "Blue kettle", which is not in map (got "Blue kettle")`},
		{Field{Rule: Rule{CSS: "h1"}, Enum: []string{"Blue"}}, `!validation: field x: is "Blue kettle", which is not in enum (got "Blue kettle")`},
		{Field{Rule: Rule{CSS: "h1"}, Pattern: "Blue"}, `!validation: field x: is "Blue kettle", which pattern does not match (got "Blue kettle")`},
		{Field{Rule: Rule{CSS: ".n"}, Type: "integer", Decimal: ".", Min: "1601"}, `!validation: field x: is below min 1601 (got "1600")`},
		{Field{Rule: Rule{CSS: ".n"}, Type: "decimal", Decimal: ",", Max: "1.5999"}, `!validation: field x: is above max 1.5999 (got "1.600")`},
		{Field{Rule: Rule{CSS: "time"}, Attr: "datetime", Type: "timestamp", Min: "2026-04-23T15:00:00Z"}, `!validation: field x: is below min 2026-04-23T15:00:00Z (got "2026-04-23T13:04:05Z")`},
		{Field{Rule: Rule{Const: "2026-04-23"}, Type: "date", Max: "2026-04-22"}, `!validation: field x: is above max 2026-04-22 (got "2026-04-23")`},
		{Field{Rule: Rule{CSS: "a"}, Attr: "href", Type: "url", Many: true}, `!validation: field x: is not an http or https URL (got "mailto:a@example.com")`},
		{Field{Rule: Rule{JSON: "."}}, "!parse_error: field x: reading the page as JSON: invalid character '<' looking for beginning of value"},
		{Field{Rule: Rule{XPath: "substring(//h1, 'a')"}}, "!parse_error: field x: reading the page panicked: substring() function"},
	} {
		if got := parseField(t, shopInput, c.field); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v gives %s, want %s", c.field, got, c.want)
		}
	}
}

// TestSeveralMatches: which of them a field takes.
func TestSeveralMatches(t *testing.T) {
	const ld = `<script type="application/ld+json">{"a":["1","2"],"b":[]}</script>`
	in := Input{Body: []byte(ld + "<i>a</i><i> b c</i><i></i><b></b><b> </b>"), Target: "1"}
	css := Rule{CSS: "i"}
	for _, c := range []struct {
		field Field
		want  string
	}{
		{Field{Rule: css, First: true}, `"a"`},
		{Field{Rule: css, Last: true}, `""`},
		{Field{Rule: Rule{CSS: "i:not(:empty)"}, Last: true}, `"b c"`},
		{Field{Rule: Rule{CSS: "u"}, Last: true}, "null?"},
		{Field{Rule: Rule{CSS: "u"}, Last: true, Default: "none"}, `"none"`},
		{Field{Rule: css, Last: true, Required: true}, "!validation: field x: is required, and its text is empty"},
		{Field{Rule: css, Join: ", "}, `"a, b c, "`},
		{Field{Rule: css, Join: "|", Map: map[string]string{"a": "x", "b c": "y", "": "z"}}, `"x|y|z"`},
		{Field{Rule: css, Join: "|", Enum: []string{"a"}}, `!validation: field x: is "b c", which is not in enum (got "b c")`},
		{Field{Rule: Rule{CSS: "b"}, Join: "|"}, `""`},
		{Field{Rule: Rule{CSS: "b"}, Join: "|", Required: true}, "!validation: field x: is required, and its text is empty"},
		{Field{Rule: Rule{CSS: "u"}, Join: "|"}, "null?"},
		{Field{Rule: Rule{JSONLD: "a"}, Last: true}, `"2"`},
		{Field{Rule: Rule{JSONLD: "a"}, Join: "+"}, `"1+2"`},
		{Field{Rule: Rule{JSONLD: "b"}, Join: "+"}, "null?"},
	} {
		if got := parseField(t, in, c.field); got != c.want {
			t.Errorf("%+v gives %s, want %s", c.field, got, c.want)
		}
	}
}

// TestLinkedDataPaths: which element of which block a path means.
func TestLinkedDataPaths(t *testing.T) {
	const block = `<script type="application/ld+json">%</script>`
	for _, c := range []struct {
		blocks []string
		path   string
		many   bool
		want   string
	}{
		{[]string{`{"a":[{},{"b":1}]}`}, "a.b", false, "null?"},
		{[]string{`{"a":[{},{"b":1}]}`}, "a.b", true, `["1"]`},
		{[]string{`{"a":[{},{"b":1}]}`, `{"a":{"b":2}}`}, "a.b", false, `"2"`},
		{[]string{`{"a":null}`, `{"a":""}`, `{"a":"c"}`}, "a", false, `""`},
		{[]string{`{"a":[1,2]}`, `{"a":3}`}, "a", true, `["1","2"]`},
		{[]string{`[[{"a":1}]]`}, "a", false, `"1"`},
		{[]string{`{"@graph":{"a":1},"a":2}`}, "a", false, `"2"`},
		{[]string{`{"@graph":{"@graph":[{"a":1}]}}`}, "a", false, `"1"`},
		{[]string{"{\"a\":\"two\nlines\"};"}, "a", false, `"two lines"`},
		{[]string{`"text"`, `7`, `null`, ``}, "a", false, "null?"},
	} {
		var page strings.Builder
		for _, b := range c.blocks {
			page.WriteString(strings.Replace(block, "%", b, 1))
		}
		in := Input{Body: []byte(page.String()), Target: "1"}
		if got := parseField(t, in, Field{Rule: Rule{JSONLD: c.path}, Many: c.many}); got != c.want {
			t.Errorf("%s in %q gives %s, want %s", c.path, c.blocks, got, c.want)
		}
	}
}

func TestBrokenPages(t *testing.T) {
	deep := strings.Repeat("<div>", 600)
	for _, c := range []struct {
		body string
		rule Rule
		want string
	}{
		{"", Rule{JSON: "."}, "!parse_error: field x: reading the page as JSON: unexpected EOF"},
		{"{} {}", Rule{JSON: "."}, "!parse_error: field x: reading the page as JSON: more text after the value"},
		{`{"a":`, Rule{JSON: "."}, "!parse_error: field x: reading the page as JSON: unexpected EOF"},
		{strings.Repeat("[", 20000), Rule{JSON: "."}, "!parse_error: field x: reading the page as JSON: invalid character '[' exceeded max depth"},
		{deep, Rule{CSS: "p"}, "!parse_error: field x: reading the page as HTML: html: open stack of elements exceeds 512 nodes"},
		{deep, Rule{Meta: "a"}, "!parse_error: field x: reading the page as HTML"},
		{deep, Rule{XPath: "//p"}, "!parse_error: field x: reading the page as HTML"},
		{deep, Rule{JSONLD: "a"}, "!parse_error: field x: reading the page as HTML"},
		{"", Rule{CSS: "p"}, "null?"},
		{"\uFEFF<title>a</title>", Rule{CSS: "head > title"}, `"a"`},
		{"<p>a\xff</p>", Rule{CSS: "p"}, "\"a\uFFFD\""},
		{"a\xffb", Rule{Regex: "a.b"}, "\"a\uFFFDb\""},
	} {
		if got := parseField(t, Input{Body: []byte(c.body), Target: "1"}, Field{Rule: c.rule}); !strings.HasPrefix(got, c.want) {
			t.Errorf("%.40q with %+v gives %s, want %s", c.body, c.rule, got, c.want)
		}
	}
}

func TestLinksNeedABase(t *testing.T) {
	for _, rule := range []Rule{{CSS: "a"}, {Const: "/x"}} {
		got := parseField(t, Input{Body: []byte("<a>/x</a>"), FinalURL: "/relative", Target: "1"}, Field{Rule: rule, Type: "url"})
		if want := "!validation: field x: has no base: the page's own URL is not absolute"; got != want {
			t.Errorf("%+v gives %s, want %s", rule, got, want)
		}
	}
	body := []byte(`<base href="mailto:x"><base href="/second/"><a>y</a>`)
	got := parseField(t, Input{Body: body, FinalURL: "https://a.example/b", Target: "1"}, Field{Rule: Rule{CSS: "a"}, Type: "url"})
	if want := `"https://a.example/y"`; got != want {
		t.Errorf("below a broken <base> the link is %s, want %s", got, want)
	}
}

// TestJSONPagesHaveNoTree: a rule of JSON alone never pays for HTML.
func TestJSONPagesHaveNoTree(t *testing.T) {
	r := mustCompile(t, Spec{Rows: &Rule{JSON: ".[]"}, Key: "{u}", Fields: []Field{
		{Name: "u", Rule: Rule{JSON: "."}, Type: "url"}, {Name: "r", Rule: Rule{Regex: "x"}, Type: "url"},
	}})
	p := &page{in: Input{Body: []byte(`["/x"]`), FinalURL: "https://a.example/"}}
	out, err := r.parseRows(p)
	if err != nil || string(out.Records[0].Data) != `{"u":"https://a.example/x","r":"https://a.example/x"}` {
		t.Fatalf("%+v, %v", out.Records, err)
	}
	if p.tree != nil {
		t.Error("a JSON page was read as HTML")
	}
}

func TestPanicsAreErrors(t *testing.T) {
	r := mustCompile(t, oneField(Field{Rule: Rule{CSS: "p"}}))
	r.fields[0].sel = panicSelector{}
	_, err := r.Parse(Input{Target: "1"})
	var e *Error
	if !errors.As(err, &e) || e.Kind != KindSyntax || e.Field != "x" || !strings.HasPrefix(e.Reason, "reading the page panicked: broken library") {
		t.Errorf("the panic came out as %v", err)
	}
}

type panicSelector struct{}

func (panicSelector) find(*scope, func(match) bool) error { panic("broken library") }

func TestKeys(t *testing.T) {
	fields := []Field{
		{Name: "sku", Rule: Rule{Var: "sku"}},
		{Name: "n", Rule: Rule{CSS: ".n"}, Type: "integer", Decimal: "."},
		{Name: "gone", Rule: Rule{CSS: "h2"}},
		{Name: "def", Rule: Rule{CSS: "h2"}, Default: "d"},
	}
	in := shopInput
	in.Vars = map[string]string{"sku": "K 1", "nul": "\x00", "long": strings.Repeat("k", maxKeyBytes), "empty": "", "bad": "\xff", "n": "shadowed"}
	for _, c := range []struct{ key, want string }{
		{"", "t1"},
		{"{sku}", "K 1"},
		{"a:{sku}/{n}-{def}", "a:K 1/1600-d"},
		{"{long}", in.Vars["long"]},
		{"constant", "constant"},
		{"{final_url}", in.FinalURL},
		{"{empty}{sku}", "K 1"},
		{"{empty}", "!the record's key is empty"},
		{"{gone}", "!the record's key needs gone, which has no value"},
		{"{absent}", "!the record's key needs absent, which has no value"},
		{"{nul}", "!the record's key holds a NUL"},
		{"{bad}", "!the record's key is not UTF-8"},
		{"{long}x", "!the record's key has 8193 bytes, more than 8192"},
	} {
		out, err := mustCompile(t, Spec{Key: c.key, Fields: fields}).Parse(in)
		got := ""
		if err == nil {
			got = out.Records[0].Key
		}
		check(t, c.key, got, err, c.want)
	}
	_, err := mustCompile(t, Spec{}).Parse(Input{})
	check(t, "no target", "", err, "!the record's key is empty")
}

func TestZeroSpec(t *testing.T) {
	out, err := mustCompile(t, Spec{}).Parse(Input{Target: "t"})
	if err != nil || len(out.Records) != 1 || string(out.Records[0].Data) != "{}" || out.Records[0].Key != "t" {
		t.Errorf("the zero Spec gives %+v, %v", out, err)
	}
}

func TestRows(t *testing.T) {
	list := `<ul><li data-id=1><b>one</b><i>x</i></li><li data-id=2><b>two</b></li></ul><b>outside</b><p lang=en>`
	id := Field{Name: "id", Rule: Rule{CSS: ":scope"}, Attr: "data-id"}
	name := Field{Name: "name", Rule: Rule{CSS: "b"}}
	for _, c := range []struct {
		what, body string
		spec       Spec
		want       []string // key and data
		duplicates int
	}{
		{
			"css", list, Spec{Rows: &Rule{CSS: "li"}, Key: "{id}", Fields: []Field{
				id, name, {Name: "i", Rule: Rule{XPath: "i"}}, {Name: "r", Rule: Rule{Regex: `<b>(\w)`}}, {Name: "h", Rule: Rule{CSS: "html p"}},
			}},
			[]string{`1 {"id":"1","name":"one","i":"x","r":"o","h":null}`, `2 {"id":"2","name":"two","i":null,"r":"t","h":null}`}, 0,
		},
		{
			"xpath", list, Spec{Rows: &Rule{XPath: "//li"}, Key: "{id}", Fields: []Field{
				{Name: "id", Rule: Rule{XPath: "@data-id"}}, {Name: "b", Rule: Rule{XPath: "//b"}, Many: true}, {Name: "n", Rule: Rule{XPath: "count(b)"}, Type: "integer"},
			}},
			[]string{`1 {"id":"1","b":["one"],"n":1}`, `2 {"id":"2","b":["two"],"n":1}`}, 0,
		},
		{
			"json", `{"items":[{"id":1,"p":1.50},null,{"id":2}]}`, Spec{Rows: &Rule{JSON: ".items[]"}, Key: "{id}-{v}", Fields: []Field{
				{Name: "id", Rule: Rule{JSON: ".id"}, Type: "integer"}, {Name: "p", Rule: Rule{JSON: ".p"}, Type: "decimal"}, {Name: "r", Rule: Rule{Regex: `"id":(\d)`}},
			}},
			[]string{`1-x {"id":1,"p":"1.50","r":"1"}`, `2-x {"id":2,"p":null,"r":"2"}`}, 0,
		},
		{
			"jsonld", `<meta name=m content=c><script type="application/ld+json">{"@type":"ItemList","item":[{"sku":"a","x":[1,2]},{"sku":"b"}]}</script>`,
			Spec{Rows: &Rule{JSONLD: "item"}, Key: "{sku}", Fields: []Field{
				{Name: "sku", Rule: Rule{JSONLD: "sku"}}, {Name: "x", Rule: Rule{JSON: ".x[1]?"}, Type: "integer"}, {Name: "m", Rule: Rule{Meta: "m"}},
			}},
			[]string{`a {"sku":"a","x":2,"m":"c"}`, `b {"sku":"b","x":null,"m":"c"}`}, 0,
		},
		{
			"equal rows", `<li data-id=1><b>a</b></li><li data-id=2><b>b</b></li><li data-id=1><b> a </b></li><li data-id=1><b>a</b></li>`,
			Spec{Rows: &Rule{CSS: "li"}, Key: "{id}", Fields: []Field{id, name}},
			[]string{`1 {"id":"1","name":"a"}`, `2 {"id":"2","name":"b"}`}, 2,
		},
		{"no rows accepted", list, Spec{Rows: &Rule{CSS: "tr"}, Key: "{id}", Empty: "accept", Fields: []Field{id}}, nil, 0},
	} {
		out, err := mustCompile(t, c.spec).Parse(Input{Body: []byte(c.body), FinalURL: "https://a.example/", Target: "t", Vars: map[string]string{"v": "x"}})
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		var got []string
		for _, r := range out.Records {
			got = append(got, r.Key+" "+string(r.Data))
		}
		if !slices.Equal(got, c.want) || out.Duplicates != c.duplicates {
			t.Errorf("%s gives %q and %d duplicates, want %q and %d", c.what, got, out.Duplicates, c.want, c.duplicates)
		}
	}
}

func TestRowErrors(t *testing.T) {
	id := Field{Name: "id", Rule: Rule{CSS: ":scope"}, Attr: "data-id", Type: "integer"}
	name := Field{Name: "name", Rule: Rule{CSS: "b"}, Required: true}
	for _, c := range []struct {
		body string
		rows Rule
		want Error
	}{
		{"<p>", Rule{CSS: "li"}, Error{KindEmpty, "", -1, "", "rows matched nothing"}},
		{"<li data-id=1><b>a</b><li data-id=2>", Rule{CSS: "li"}, Error{KindValidation, "name", 1, "", "is required and missing"}},
		{"<li data-id=1><b>a</b><li data-id=x>", Rule{CSS: "li"}, Error{KindValidation, "id", 1, "x", "is not a number"}},
		{"<li data-id=1><b>a</b><li data-id=1><b>b</b>", Rule{CSS: "li"}, Error{KindDuplicateKey, "", 1, "1", "another row of this key holds other values"}},
		{"<li data-id=1><b>a</b><li><b>b</b>", Rule{CSS: "li"}, Error{KindValidation, "", 1, "", "the record's key needs id, which has no value"}},
		{"<li>", Rule{XPath: "count(//li)"}, Error{KindValidation, "", -1, "", "rows must be elements, and the XPath expression gives something else"}},
		{"<li a=b>", Rule{XPath: "//li/@a"}, Error{KindValidation, "", -1, "", "rows must be elements, and the XPath expression gives something else"}},
	} {
		_, err := mustCompile(t, Spec{Rows: &c.rows, Key: "{id}", Fields: []Field{id, name}}).Parse(Input{Body: []byte(c.body), Target: "t"})
		var e *Error
		if !errors.As(err, &e) || *e != c.want {
			t.Errorf("%s gives %+v, want %+v", c.body, err, c.want)
		}
	}
	text := (&Error{KindValidation, "name", 1, "v", "is bad"}).Error()
	if want := `row 1: field name: is bad (got "v")`; text != want {
		t.Errorf("the error's text is %s, want %s", text, want)
	}
}

// TestSpecIsNotKept: whoever made the Spec may use its maps and slices again.
func TestSpecIsNotKept(t *testing.T) {
	f := Field{Rule: Rule{CSS: "h1"}, Map: map[string]string{"Blue kettle": "k"}, Enum: []string{"k"}}
	r := mustCompile(t, oneField(f))
	f.Map["Blue kettle"], f.Enum[0] = "other", "other"
	out, err := r.Parse(shopInput)
	if err != nil || string(out.Records[0].Data) != `{"x":"k"}` {
		t.Errorf("after the Spec was changed: %+v, %v", out, err)
	}
}

// A field of a workflow's step reads that step's page, whole, and links of it
// resolve against that page; rows and all other fields are of the last step's.
func TestFieldsOfSteps(t *testing.T) {
	first := Page{Body: []byte(`<h1>Form</h1><a href="x">`), FinalURL: "https://a.example/form/"}
	second := Page{Body: []byte(`{"name":"Second"}`), ContentType: "application/json", FinalURL: "https://a.example/second"}
	title := Field{Name: "title", Rule: Rule{CSS: "h1"}}
	formTitle, name, link := title, Field{Name: "name", Rule: Rule{JSON: ".name"}, Step: "second"}, Field{Name: "link", Rule: Rule{CSS: "a"}, Attr: "href", Type: "url", Step: "form"}
	formTitle.Name, formTitle.Step = "form_title", "form"
	for _, c := range []struct {
		spec Spec
		body string
		want string
	}{
		{Spec{Fields: []Field{title, formTitle, name, link}}, "<h1>Result</h1>",
			`{"title":"Result","form_title":"Form","name":"Second","link":"https://a.example/form/x"}`},
		{Spec{Rows: &Rule{CSS: "li"}, Key: "{id}-{form_title}", Fields: []Field{{Name: "id", Rule: Rule{CSS: ":scope"}}, formTitle, name}}, "<li>1<li>2",
			`{"id":"1","form_title":"Form","name":"Second"}{"id":"2","form_title":"Form","name":"Second"}`},
		{Spec{Rows: &Rule{JSON: ".[]"}, Key: "{id}", Fields: []Field{{Name: "id", Rule: Rule{JSON: "."}}, formTitle, link}}, `["7"]`,
			`{"id":"7","form_title":"Form","link":"https://a.example/form/x"}`},
	} {
		rules := mustCompile(t, c.spec)
		if got := rules.Steps(); len(got) == 0 || !slices.Contains(got, "form") {
			t.Errorf("steps %v", got)
		}
		in := Input{Body: []byte(c.body), FinalURL: "https://a.example/result", Target: "t", Steps: map[string]Page{"form": first, "second": second}}
		out, err := rules.Parse(in)
		var got strings.Builder
		for _, r := range out.Records {
			got.Write(r.Data)
		}
		if err != nil || got.String() != c.want {
			t.Errorf("%s (%v), want %s", &got, err, c.want)
		}
		delete(in.Steps, "form")
		var e *Error
		if _, err := rules.Parse(in); !errors.As(err, &e) || e.Kind != KindSyntax || e.Error() != "the page of step form is not there" {
			t.Errorf("without the step's page: %v", err)
		}
	}
	other := formTitle
	other.Step = "second"
	if mustCompile(t, oneField(formTitle)).Fingerprint() == mustCompile(t, oneField(other)).Fingerprint() {
		t.Error("rules that read another step have the same fingerprint")
	}
}

// TestUnfilled: what a page does not fill is named, also where something else stands in
// its place.
func TestUnfilled(t *testing.T) {
	rules := mustCompile(t, Spec{Version: 1, Fields: []Field{
		{Name: "there", Rule: Rule{CSS: "h1"}, Required: true},
		{Name: "empty", Rule: Rule{CSS: ".empty"}},
		{Name: "none", Rule: Rule{CSS: "h2"}},
		{Name: "default", Rule: Rule{CSS: "h2"}, Default: "x"},
		{Name: "some", Rule: Rule{CSS: "i"}, Many: true},
		{Name: "all_empty", Rule: Rule{CSS: ".empty"}, Many: true},
		{Name: "joined", Rule: Rule{CSS: ".empty"}, Join: ","},
		{Name: "zero", Rule: Rule{Const: "0"}, Type: "integer"},
	}})
	out, err := rules.Parse(shopInput)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	names := rules.FieldNames()
	for _, place := range out.Records[0].Unfilled {
		got = append(got, names[place])
	}
	if want := []string{"empty", "none", "default", "all_empty", "joined"}; len(names) != 8 || !slices.Equal(got, want) {
		t.Errorf("of %q these are unfilled: %q, want %q", names, got, want)
	}
	if rules.Required(1) || !rules.Required(0) {
		t.Error("required is another field than the one that must have a value")
	}
}
