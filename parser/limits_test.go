package parser

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// hostile are pages made to cost more than a page may, each with the rules that
// it hits, and how its failure begins.
var hostile = []struct {
	name string
	page func() string
	spec Spec
	want string
}{
	{
		"a million nested elements",
		func() string { return strings.Repeat("<div>", 1_000_000) },
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: html: open stack of elements exceeds 512 nodes",
	},
	{
		"formatting elements that each block opens again",
		func() string { return "<p>" + numbered("<b %d>", 400) + strings.Repeat("</p><p>x", 2300) },
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: the first 9217 bytes have more than 500000 elements, texts and attributes",
	},
	{
		"formatting elements that seem closed where their end tags are none",
		func() string {
			return "<p>" + numbered(`<i title="</i>" class=%d><!--</i>-->`, 400) + strings.Repeat("</p><p>x", 4000)
		},
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: the first ",
	},
	{
		"formatting elements without attributes that each block opens again",
		func() string {
			return "<p>" + strings.Repeat("<B><i><u><s><em><tt><big><code><font><small><strike><strong>", 3) + strings.Repeat("</p><p>x", 20_000)
		},
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: the first ",
	},
	{
		"attributes that each block opens again",
		func() string {
			return "<p><Font" + numbered(" a%d", 200) + ">" + strings.Repeat("</p><p>x", 20_000)
		},
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: the first ",
	},
	{
		"attributes of a tag that has no end for long",
		func() string {
			return "<p><b" + numbered(" a%d", 2000) + ">" + strings.Repeat("</p><p>x", 2000)
		},
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: the first ",
	},
	{
		"bodies that are merged into one",
		func() string { return numbered("<body a%d>", 8_000) },
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: it has too many tags of <html> and <body>",
	},
	{
		"tags within tags",
		func() string { return strings.Repeat("<b", 100_000) },
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: its tags stand within tags",
	},
	{
		"formatting elements that each block of the second half opens again",
		func() string {
			return strings.Repeat("text ", 100_000) + "<p>" + numbered("<b %d>", 400) + strings.Repeat("</p><p>x", 50_000)
		},
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: the first ",
	},
	{
		"formatting elements that nest so that it is never sure whether one is open",
		func() string { return strings.Repeat(numbered("<b %d><wbr></b>", 400), 20) },
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: its tags are so many, or closed so badly, that it would be read more than 10 times",
	},
	{
		"tags that each look at all levels above",
		func() string { return strings.Repeat("<div>", 500) + strings.Repeat("<hr>", 200_000) },
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: its tags stand too deep: those of the first 391128 bytes look at more than 25000000 elements",
	},
	{
		"paragraphs, 10 MB of them",
		func() string { return strings.Repeat("<p>x", 2_500_000) },
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: the first 1171892 bytes have more than 500000 elements, texts and attributes",
	},
	{
		"attributes, 10 MB of them",
		func() string { return strings.Repeat("<hr "+numbered(" a%d", 1000)+">", 1700) },
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: the first ",
	},
	{
		"attributes of one tag, 10 MB of them",
		func() string { return "<hr " + numbered(" a%d", 1_500_000) + ">" },
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: a tag has more than 100000 attributes",
	},
	{
		"an element that each end tag opens again in eight blocks",
		func() string {
			return "<b" + numbered(" a%d", 2000) + ">" + strings.Repeat("<div>", 400) + strings.Repeat("</b>", 100)
		},
		oneField(Field{Rule: Rule{CSS: "p"}}),
		"field x: reading the page as HTML: the first 13041 bytes have more than 500000 elements, texts and attributes",
	},
	{
		"100,001 matches",
		func() string { return strings.Repeat("<i>x</i>", 100_001) },
		oneField(Field{Rule: Rule{CSS: "i"}, Many: true}),
		"field x: there are more than 100000 matches",
	},
	{
		"100,001 matches in one text",
		func() string { return strings.Repeat("<i>x</i>", 100_001) },
		oneField(Field{Rule: Rule{Regex: "x"}, Join: ","}),
		"field x: there are more than 100000 matches",
	},
	{
		"100,001 rows",
		func() string { return "[" + strings.Repeat("1,", 100_000) + "1]" },
		Spec{Rows: &Rule{JSON: ".[]"}, Key: "{x}", Fields: []Field{{Name: "x", Rule: Rule{JSON: "."}}}},
		"there are more than 100000 matches",
	},
	{
		"rows that each read the page",
		func() string { return strings.Repeat("<i>x</i>", 20_000) },
		Spec{Rows: &Rule{CSS: "i"}, Key: "{x}", Fields: []Field{{Name: "m", Rule: Rule{Meta: "none"}}, {Name: "x", Rule: Rule{CSS: ":scope"}}}},
		"row 1298: field m: the page takes more than 26000000 steps to read",
	},
	{
		"siblings that each count all others",
		func() string { return strings.Repeat("<hr>", 20_000) },
		oneField(Field{Rule: Rule{CSS: "hr:nth-last-child(2n+100000)"}}),
		"field x: the page takes more than 18000000 steps to read",
	},
	{
		"siblings in an XPath expression",
		func() string { return strings.Repeat("<hr>", 5000) },
		oneField(Field{Rule: Rule{XPath: "count(//hr/following-sibling::hr[@id])"}}),
		"field x: the page takes more than 12000000 steps to read",
	},
	{
		"searches that each look at the rest of the page",
		func() string { return strings.Repeat("x", 30_000) },
		oneField(Field{Rule: Rule{Regex: "x(?:.*y)?"}, Many: true}),
		"field x: the page takes more than 13000000 steps to read",
	},
	{
		"assignments that each look at the rest of the page",
		func() string { return strings.Repeat("x1 ", 10_000) },
		oneField(Field{Rule: Rule{Regex: "x(?:.*y)?", JSON: "."}, Many: true}),
		"field x: the page takes more than 13000000 steps to read",
	},
	{
		"a jq expression without end",
		func() string { return "{}" },
		oneField(Field{Rule: Rule{JSON: "def f: f; f"}}),
		"field x: the jq expression took more than 1000008 steps",
	},
	{
		"a jq expression with results without end",
		func() string { return "{}" },
		oneField(Field{Rule: Rule{JSON: "repeat(1)"}, Last: true}),
		"field x: the jq expression took more than 1000008 steps",
	},
	{
		"a long jq expression for each row",
		func() string { return "[1,2,3]" },
		Spec{Rows: &Rule{JSON: ".[]"}, Key: "{x}", Fields: []Field{{Name: "x", Rule: Rule{JSON: "[range(. * 100000)] | length"}}}},
		"row 1: field x: the page takes more than 10000700 steps to read",
	},
	{
		"JSON of too many objects",
		func() string { return "[" + strings.Repeat("{},", 600_000) + "1]" },
		oneField(Field{Rule: Rule{JSON: "length"}}),
		"field x: reading the page as JSON: the JSON has more than 3000000 values, each object counted as 4",
	},
	{
		"JSON of too many objects within a page",
		func() string { return "<script>s = [" + strings.Repeat("{},", 600_000) + "1]</script>" },
		oneField(Field{Rule: Rule{Regex: "s =", JSON: "length"}}),
		"field x: there is no JSON value: the JSON has more than 3000000 values, each object counted as 4",
	},
	{
		"JSON nested 100,000 deep",
		func() string { return strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) },
		oneField(Field{Rule: Rule{JSON: "[paths]|length"}}),
		"field x: reading the page as JSON: invalid character '[' exceeded max depth",
	},
	{
		"JSON nested 2000 deep",
		func() string { return strings.Repeat(`{"a":[`, 1000) + strings.Repeat("]}", 1000) },
		oneField(Field{Rule: Rule{JSON: "[paths]|length"}}),
		"field x: reading the page as JSON: the JSON is nested deeper than 1000",
	},
	{
		"JSON nested 2000 deep within a page",
		func() string { return "s = " + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) },
		oneField(Field{Rule: Rule{Regex: "s =", JSON: "[paths]|length"}}),
		"field x: there is no JSON value: the JSON is nested deeper than 1000",
	},
	{
		"a table of a million columns",
		func() string { return "<table><tr>" + strings.Repeat("<td colspan=1000>", 1000) },
		oneField(Field{Rule: Rule{Table: "a"}}),
		"field x: a table has more than 1000 columns",
	},
	{
		"a table whose cells reach over all rows",
		func() string {
			return "<table><tr><th>a</th></tr>" + strings.Repeat("<tr><th rowspan=1000 scope=row>a<td rowspan=1000>", 3000)
		},
		oneField(Field{Rule: Rule{Table: "a"}, Many: true}),
		"field x: a table has more than 1000 columns",
	},
	{
		"texts within texts",
		func() string { return strings.Repeat("<div>", 500) + strings.Repeat("text ", 40_000) },
		oneField(Field{Rule: Rule{CSS: "div"}, Many: true}),
		"field x: the records of the page take more than 67513864 bytes",
	},
	{
		"texts within texts as one",
		func() string { return strings.Repeat("<div>", 500) + strings.Repeat("text ", 40_000) },
		oneField(Field{Rule: Rule{CSS: "div"}, Join: ","}),
		"field x: the records of the page take more than 67513864 bytes",
	},
	{
		"a long text in every row",
		func() string {
			return `<meta name="m" content="` + strings.Repeat("text ", 40_000) + `">` + strings.Repeat("<i>x</i>", 1000)
		},
		Spec{Rows: &Rule{CSS: "i"}, Key: "{x}", Fields: []Field{{Name: "m", Rule: Rule{Meta: "m"}}, {Name: "x", Rule: Rule{CSS: ":scope"}}}},
		"row ",
	},
}

// numbered is a text of many parts, each with its number.
func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestLimits: a page that costs too much fails with a kind, and each time the
// same way.
func TestLimits(t *testing.T) {
	withoutRaceDetector(t)
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			rules, in := mustCompile(t, h.spec), Input{Body: []byte(h.page()), Target: "1"}
			_, err := rules.Parse(in)
			var e *Error
			if !errors.As(err, &e) || e.Kind != KindSyntax || !strings.HasPrefix(err.Error(), h.want) {
				t.Fatalf("the error is %v, want %s", err, h.want)
			}
			if len(in.Body) > 50_000 {
				return // once is enough of seconds
			}
			if _, again := rules.Parse(in); fmt.Sprint(again) != fmt.Sprint(err) {
				t.Errorf("read again the error is %v, first it was %v", again, err)
			}
		})
	}
}

// TestWithinLimits: what is large, and no more, is read.
func TestWithinLimits(t *testing.T) {
	withoutRaceDetector(t)
	for name, c := range map[string]struct {
		page  string
		field Field
		want  string
	}{
		"an attribute of 5 MB": {`<a title="` + strings.Repeat("x", 5<<20) + `" id="7">`, Field{Rule: Rule{CSS: "a[title*=y], #none, [id]"}, Attr: "id"}, `"7"`},
		"50,000 attributes":    {"<a " + strings.Repeat("a b ", 25_000) + ">text", Field{Rule: Rule{CSS: "a"}}, `"text"`},
		"100,000 matches":      {strings.Repeat("<hr>", 100_000), Field{Rule: Rule{XPath: "count(//hr)"}, Type: "integer"}, "100000"},
		"20,000 icons and names in links": {
			strings.Repeat(`<li><a href="/x?a=1"><i class="icon"></i><strong title='a > b'><span>x</span><br><em id=y>z</em></strong></a>`, 20_000),
			Field{Rule: Rule{XPath: "count(//strong)"}, Type: "integer"}, "20000",
		},
		"200 fonts without end":    {numbered("<p><font size=%d>x</p>", 200), Field{Rule: Rule{XPath: "count(//font)"}, Type: "integer"}, "20100"},
		"JSON of 3,000,000 values": {"[" + strings.Repeat("1,", 2_999_998) + "1]", Field{Rule: Rule{JSON: "length"}, Type: "integer"}, "2999999"},
		"a large value in a page":  {"s = [" + strings.Repeat(`{"a":1},`, 100_000) + "1]; t = 2", Field{Rule: Rule{Regex: "[st] =", JSON: "numbers"}, Many: true}, `["2"]`},
		"JSON 1000 deep":           {strings.Repeat("[", 1000) + strings.Repeat("]", 1000), Field{Rule: Rule{JSON: "[paths]|length"}, Type: "integer"}, "999"},
		"the second of many":       {strings.Repeat("<li>a</li>", 50_000), Field{Rule: Rule{CSS: "li:nth-child(2)"}}, `"a"`},
	} {
		if got := parseField(t, Input{Body: []byte(c.page), Target: "1"}, c.field); got != c.want {
			t.Errorf("%s gives %.300s, want %s", name, got, c.want)
		}
	}
}

func TestLooksFar(t *testing.T) {
	for expr, want := range map[string]bool{
		`\b20[12]\d\b`: false, `(?i)sku: ?(\d{1,8})`: false, "a|bc|d?": false, "(?:ab){8}": false,
		"x(?:.*y)?": true, "a+": true, "a{2,}": true, "(?:ab){9}": true, "x.{16}": true, "x(?:[^y]{0,900}y)?": true,
	} {
		if got := looksFar(expr); got != want {
			t.Errorf("%s looks far: %t", expr, got)
		}
	}
}

// TestHostileValues: a value made to cost more than its text fails by its name,
// or costs what its text does.
func TestHostileValues(t *testing.T) {
	withoutRaceDetector(t)
	digits := strings.Repeat("9", 1_000_000)
	for name, c := range map[string]struct {
		page  string
		field Field
		want  string // the beginning
	}{
		"a number of a million digits":           {"<p>" + digits, Field{Rule: Rule{CSS: "p"}, Type: "decimal"}, "!validation: field x: is too long for a number"},
		"an amount of a million digits":          {"<p>" + digits + " €", Field{Rule: Rule{CSS: "p"}, Type: "money"}, "!validation: field x: is too long for a number"},
		"a date of a million digits":             {"<p>" + digits, Field{Rule: Rule{CSS: "p"}, Type: "date", Layout: "2.1.2006"}, "!validation: field x: is not a date like 2.1.2006"},
		"a year of 20 digits":                    {"<p>1.1.20250000000000000000", Field{Rule: Rule{CSS: "p"}, Type: "date", Layout: "2.1.2006"}, "!validation: field x: is not a date"},
		"a fraction of a second of many digits":  {"<p>2026-01-01T00:00:00." + digits + "Z", Field{Rule: Rule{CSS: "p"}, Type: "timestamp"}, `"2026-01-01T00:00:00.999999999Z"`},
		"a JSON number of a million digits":      {digits, Field{Rule: Rule{JSON: "."}, Type: "integer"}, "!parse_error: field x: reading the page as JSON: the JSON has a number of more than 10000 digits"},
		"a sum of JSON numbers of many digits":   {digits, Field{Rule: Rule{JSON: ". + 1"}, Type: "integer"}, "!parse_error: field x: reading the page as JSON: the JSON has a number of more than 10000 digits"},
		"an exponent of a billion":               {"1e999999999", Field{Rule: Rule{JSON: "."}, Type: "decimal"}, "!validation: field x: is not a number, or too long for one"},
		"an exponent of a billion that is added": {"1e999999999", Field{Rule: Rule{JSON: ". + 1"}, Type: "integer"}, "!validation: field x: is no number that JSON can hold"},
		"a negative exponent of a billion":       {"1e-999999999", Field{Rule: Rule{JSON: "."}, Type: "decimal", Min: "1"}, "!validation: field x: is not a number, or too long for one"},
		"an exponent of a million digits":        {"1e" + digits, Field{Rule: Rule{JSON: "."}, Type: "decimal"}, "!parse_error: field x: reading the page as JSON: the JSON has a number of more than 10000 digits"},
		"a table cell over a billion columns":    {"<table><tr><th colspan=1000000000>a</th></tr><tr><td>b</td></tr></table>", Field{Rule: Rule{Table: "a"}}, `"b"`},
		"a table cell over a billion rows":       {"<table><tr><th scope=row rowspan=999999999999999999999>a</th><td>b</td></tr></table>", Field{Rule: Rule{Table: "a"}}, `"b"`},
		"JSON-LD nested 100,000 deep":            {`<script type="application/ld+json">` + strings.Repeat("[", 100_000) + "</script>", Field{Rule: Rule{JSONLD: "a"}, Required: true}, "!validation: field x: is required and missing (1 JSON-LD blocks of the page are broken)"},
		"a graph nested 500 deep":                {`<script type="application/ld+json">` + strings.Repeat(`{"@graph":[`, 400) + `{"a":1}` + strings.Repeat("]}", 400) + "</script>", Field{Rule: Rule{JSONLD: "a"}}, `"1"`},
		"letters that NFC takes apart":           {"<p>" + strings.Repeat("\U0001D160", 100_000), Field{Rule: Rule{CSS: "p"}, Pattern: "x"}, "!validation: field x: is "},
		"a letter with a million marks":          {"<p>a" + strings.Repeat("\u0316\u0301", 500_000), Field{Rule: Rule{CSS: "p"}, Pattern: "x"}, "!validation: field x: is "},
		"a million character references":         {"<p>" + strings.Repeat("&NotEqualTilde;", 1_000_000), Field{Rule: Rule{CSS: "p"}, Pattern: "x"}, "!validation: field x: is "},
		"a million references without end":       {"<p>" + strings.Repeat("&NotEqualTilde", 1_000_000), Field{Rule: Rule{CSS: "p"}, Pattern: "x"}, "!validation: field x: is "},
		"a million white spaces":                 {"<p>a" + strings.Repeat(" \u2003", 1_000_000) + "b", Field{Rule: Rule{CSS: "p"}}, `"a b"`},
		"an expression that a backtracker blows": {"<p>" + strings.Repeat("a", 100_000), Field{Rule: Rule{Regex: "(a+)+b"}}, "null?"},
		"a pattern that a backtracker blows":     {"<p>" + strings.Repeat("a", 100_000), Field{Rule: Rule{CSS: "p"}, Pattern: "(a|aa)+b"}, "!validation: field x: is "},
		"a link of a million dot segments":       {`<a href="` + strings.Repeat("../", 1_000_000) + `x">`, Field{Rule: Rule{CSS: "a"}, Attr: "href", Type: "url"}, `"https://h.example/x"`},
		"a host of a million letters":            {`<a href="//` + strings.Repeat("ä", 1_000_000) + `/">`, Field{Rule: Rule{CSS: "a"}, Attr: "href", Type: "url"}, "!validation: field x: is not a URL: the host is longer"},
		"a month's name of a million letters":    {"<p>1. " + strings.Repeat("Mai", 300_000) + " 2026", Field{Rule: Rule{CSS: "p"}, Type: "date", Layout: "2. January 2006", Language: "de"}, "!validation: field x: is not a date"},
		"a range of a million dashes":            {"<p>1" + strings.Repeat("-1", 500_000), Field{Rule: Rule{CSS: "p"}, Type: "money", Currency: "EUR"}, "!validation: field x: is "},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Body: []byte(c.page), Target: "1", FinalURL: "https://h.example/"}
			if got := parseField(t, in, c.field); !strings.HasPrefix(got, c.want) {
				t.Errorf("it gives %.300s, want %s", got, c.want)
			}
		})
	}
}
