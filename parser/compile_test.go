package parser

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// faults gives the texts of the SpecErrors that err joins.
func faults(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v joins no faults", err)
	}
	var texts []string
	for _, e := range joined.Unwrap() {
		var fault *SpecError
		if !errors.As(e, &fault) || fault.Err == nil || errors.Unwrap(fault) != fault.Err {
			t.Fatalf("%v is no SpecError with a cause", e)
		}
		texts = append(texts, e.Error())
	}
	return texts
}

// field makes a Spec of one field.
func oneField(f Field) Spec {
	if f.Name == "" {
		f.Name = "x"
	}
	return Spec{Version: 1, Fields: []Field{f}}
}

func TestCompileFieldFaults(t *testing.T) {
	css := Rule{CSS: "p"}
	for _, c := range []struct {
		field Field
		want  string // the beginning of the fault, and of no other
	}{
		{Field{}, "fields.x: needs one of css, xpath, json, jsonld, microdata, table, meta, regex, const, var"},
		{Field{Rule: Rule{CSS: "p", Var: "v"}}, `fields.x: must have one selector only, or json beside one of css, xpath and regex (got "css, var")`},
		{Field{Rule: Rule{CSS: "p", XPath: "//p", JSON: "."}}, "fields.x: must have one selector only"},
		{Field{Rule: Rule{Meta: "p", JSON: "."}}, "fields.x: must have one selector only"},
		{Field{Rule: Rule{CSS: "p[", JSON: "."}}, "fields.x.css: not a CSS selector: "},
		{Field{Rule: Rule{CSS: "p", JSON: ".["}}, "fields.x.json: not a jq expression: "},
		{Field{Rule: Rule{Regex: "(", JSON: "."}}, "fields.x.regex: not a regular expression: "},
		{Field{Rule: Rule{Regex: "s = (.*)", JSON: "."}}, "fields.x.regex: has no use for a group beside json"},
		{Field{Rule: Rule{Regex: "s", JSON: "."}, Attr: "a"}, "fields.x.attr: fits css and xpath only"},
		{Field{Rule: Rule{CSS: "p["}}, "fields.x.css: not a CSS selector: "},
		{Field{Rule: Rule{CSS: "p::before"}}, "fields.x.css: not a CSS selector: "},
		{Field{Rule: Rule{CSS: ":scope > p"}}, "fields.x.css: not a CSS selector: "},
		{Field{Rule: Rule{XPath: "//a["}}, "fields.x.xpath: not an XPath expression: "},
		{Field{Rule: Rule{XPath: "unknown(//a)"}}, "fields.x.xpath: not an XPath expression: "},
		{Field{Rule: Rule{JSON: ".a["}}, "fields.x.json: not a jq expression: "},
		{Field{Rule: Rule{JSON: "nothing"}}, "fields.x.json: not a jq expression: function not defined"},
		{Field{Rule: Rule{JSON: "input"}}, "fields.x.json: not a jq expression: "},
		{Field{Rule: Rule{JSON: "[.[] | {a: (. + now)}]"}}, "fields.x.json: now is not allowed"},
		{Field{Rule: Rule{JSON: "def f(g): g; f($ENV.HOME)"}}, "fields.x.json: $ENV is not allowed"},
		{Field{Rule: Rule{JSON: "env"}}, "fields.x.json: env is not allowed"},
		{Field{Rule: Rule{JSON: "if . then localtime else 1 end"}}, "fields.x.json: localtime is not allowed"},
		{Field{Rule: Rule{JSONLD: "a..b"}}, "fields.x.jsonld: not a path of names"},
		{Field{Rule: Rule{JSONLD: "a. b"}}, "fields.x.jsonld: not a path of names"},
		{Field{Rule: Rule{Table: " : "}}, "fields.x.table: must be the text of a header"},
		{Field{Rule: Rule{Microdata: "a.b."}}, "fields.x.microdata: not a path of names"},
		{Field{Rule: Rule{Microdata: "a", CSS: "b"}}, "fields.x: must have one selector only"},
		{Field{Rule: Rule{CSS: "a", Schema: "Product"}}, "fields.x.schema: fits jsonld and microdata only"},
		{Field{Rule: Rule{JSON: ".a", CSS: "b", Schema: "Product"}}, "fields.x.schema: fits jsonld and microdata only"},
		{Field{Rule: Rule{Microdata: "a"}, Type: "object"}, "fields.x.type: fits json, jsonld and const only"},
		{Field{Rule: Rule{Regex: "("}}, "fields.x.regex: not a regular expression: "},
		{Field{Rule: Rule{Const: []string{"a"}}}, "fields.x.const: must be a string, a boolean or a number"},
		{Field{Rule: Rule{Const: math.NaN()}}, "fields.x.const: cannot be written as JSON"},
		{Field{Name: "2x", Rule: css}, "fields.2x: a field's name has letters"},
		{Field{Name: "_meta", Rule: css}, "fields._meta: a field's name has letters"},
		{Field{Name: "a.b", Rule: css}, "fields.a.b: a field's name has letters"},
		{Field{Rule: css, Type: "number"}, `fields.x.type: must be one of text, html, integer, decimal, money, boolean, date, timestamp, url, object (got "number")`},
		{Field{Rule: Rule{JSON: "."}, Attr: "a"}, "fields.x.attr: fits css and xpath only"},
		{Field{Rule: css, Type: "object"}, "fields.x.type: fits json, jsonld and const only"},
		{Field{Rule: css, Currency: "USD"}, "fields.x.currency: fits money only"},
		{Field{Rule: css, Type: "money", Currency: "USD", Locale: "en-US"}, "fields.x.locale: has no use beside currency"},
		{Field{Rule: css, Type: "money", Locale: "en"}, "fields.x.locale: must name a region, as in en-US"},
		{Field{Rule: css, Type: "money", Locale: "in the US"}, "fields.x.locale: must be a language and a region such as en-US"},
		{Field{Rule: css, Type: "money", Locale: "en-AQ"}, "fields.x.locale: is of a region without a currency"},
		{Field{Rule: css, Type: "money", Max: "5"}, "fields.x.currency: is needed for min and max"},
		{Field{Rule: css, Locale: "en-US"}, "fields.x.locale: fits money only"},
		{Field{Rule: css, Pick: "min"}, "fields.x.pick: fits integer, decimal, money only"},
		{Field{Rule: css, Type: "integer", Pick: "avg"}, "fields.x.pick: must be min or max"},
		{Field{Rule: css, Type: "money", Currency: "usd"}, `fields.x.currency: must be an ISO 4217 code such as USD (got "usd")`},
		{Field{Rule: css, First: true, Last: true}, `fields.x: must say one way only to take several matches (got "first, last")`},
		{Field{Rule: css, Many: true, Join: ", "}, "fields.x: must say one way only to take several matches"},
		{Field{Rule: css, Type: "url", Join: ", "}, "fields.x.join: fits text only"},
		{Field{Rule: css, Decimal: "."}, "fields.x.decimal: fits integer, decimal, money only"},
		{Field{Rule: css, Type: "decimal", Decimal: ";"}, `fields.x.decimal: must be "." or ","`},
		{Field{Rule: css, Layout: "2006-01-02"}, "fields.x.layout: fits date, timestamp only"},
		{Field{Rule: css, Type: "date", Layout: "02.01."}, "fields.x.layout: must hold year, month and day"},
		{Field{Rule: css, Type: "date", Layout: "yyyy-mm-dd"}, "fields.x.layout: must hold year, month and day"},
		{Field{Rule: css, Type: "date", Layout: "2006-01-02", Timezone: "UTC"}, "fields.x.timezone: fits timestamp only"},
		{Field{Rule: css, Type: "date", Layout: "2. January 2006", Language: "xx"}, "fields.x.language: must be one of cs, da, de, en"},
		{Field{Rule: css, Type: "date", Layout: "2. January 2006", Language: "zh"}, "fields.x.language: must be one of cs, da, de, en"},
		{Field{Rule: css, Type: "date", Layout: "2.1.2006", Language: "de"}, "fields.x.language: needs a layout with the name of a month"},
		{Field{Rule: css, Type: "date", Language: "de"}, "fields.x.language: needs a layout with the name of a month"},
		{Field{Rule: css, Language: "de"}, "fields.x.language: fits date, timestamp only"},
		{Field{Rule: css, Type: "timestamp", Timezone: "UTC"}, "fields.x.timezone: needs a layout"},
		{Field{Rule: css, Type: "timestamp", Layout: "2006-01-02", Timezone: "Local"}, "fields.x.timezone: must be an IANA name"},
		{Field{Rule: css, Type: "timestamp", Layout: "2006-01-02", Timezone: "Mars/Base"}, "fields.x.timezone: must be an IANA name"},
		{Field{Rule: css, Pattern: "a)(b"}, "fields.x.pattern: not a regular expression"},
		{Field{Rule: Rule{JSON: "."}, Type: "object", Enum: []string{"a"}}, "fields.x: map, pattern and enum do not fit objects"},
		{Field{Rule: css, Min: "1"}, "fields.x.min: fits integer, decimal, money, date and timestamp only"},
		{Field{Rule: css, Type: "integer", Max: "1.5"}, "fields.x.max: is not an integer"},
		{Field{Rule: css, Type: "decimal", Min: "a"}, "fields.x.min: is not a number"},
		{Field{Rule: css, Type: "date", Min: "1.1.2026"}, "fields.x.min: is not a date like 2006-01-02"},
		{Field{Rule: css, Type: "timestamp", Min: "2026-01-01"}, "fields.x.min: is not an RFC 3339 timestamp"},
		{Field{Rule: css, Type: "integer", Min: "10", Max: "9"}, "fields.x.max: is below min"},
		{Field{Rule: css, Default: "a", Required: true}, "fields.x.default: a required field has no use for it"},
		{Field{Rule: css, Default: func() {}}, "fields.x.default: cannot be written as JSON"},
		{Field{Rule: css, Type: "integer", Default: "many"}, "fields.x.default: is not a number"},
		{Field{Rule: css, Default: []any{"a"}}, "fields.x.default: is an array where one value was expected"},
		{Field{Rule: css, Many: true, Default: "a"}, "fields.x.default: must be an array"},
		{Field{Rule: css, Type: "url", Default: "/none.png"}, "fields.x.default: is not an http or https URL"},
	} {
		_, err := Compile(oneField(c.field))
		if got := faults(t, err); len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
			t.Errorf("%+v has the faults %q, want %q", c.field, got, c.want)
		}
	}
}

func TestCompileSpecFaults(t *testing.T) {
	rows := &Rule{CSS: "li"}
	sku := []Field{{Name: "sku", Rule: Rule{CSS: "b"}}}
	for _, c := range []struct {
		spec Spec
		want []string
	}{
		{Spec{Version: -1}, []string{`version: must be at least 1 (got "-1")`}},
		{Spec{Empty: "ignore", Rows: rows, Key: "{a}"}, []string{`empty: must be fail or accept (got "ignore")`}},
		{Spec{Empty: "accept"}, []string{"empty: needs rows"}},
		{Spec{Rows: rows}, []string{"key: is needed where there are rows"}},
		{Spec{Rows: &Rule{}, Key: "{a}"}, []string{"rows: needs one of css"}},
		{Spec{Rows: &Rule{Meta: "a"}, Key: "{a}"}, []string{"rows.meta: cannot give rows; css, xpath, json and jsonld can"}},
		{Spec{Rows: &Rule{CSS: "["}, Key: "{a}"}, []string{"rows.css: not a CSS selector"}},
		{Spec{Rows: rows, Key: "{a}", Fields: []Field{{Name: "x", Rule: Rule{JSON: "."}}}}, []string{"fields.x.json: rows are elements"}},
		{Spec{Rows: &Rule{JSON: "."}, Key: "{a}", Fields: []Field{{Name: "x", Rule: Rule{XPath: "a"}}}}, []string{"fields.x.xpath: rows are JSON values"}},
		{Spec{Rows: &Rule{JSONLD: "a"}, Key: "{a}", Fields: []Field{{Name: "x", Rule: Rule{CSS: "a"}}}}, []string{"fields.x.css: rows are JSON values"}},
		{Spec{Rows: &Rule{JSON: "."}, Key: "{a}", Fields: []Field{{Name: "x", Rule: Rule{Microdata: "a"}}}}, []string{"fields.x.microdata: rows are JSON values"}},
		{Spec{Rows: &Rule{Microdata: "a"}, Key: "{a}"}, []string{"rows.microdata: cannot give rows"}},
		{Spec{Rows: &Rule{CSS: "b", JSON: "."}, Key: "{a}", Fields: []Field{{Name: "x", Rule: Rule{CSS: "a"}}}}, []string{"fields.x.css: rows are JSON values"}},
		{Spec{Rows: &Rule{Regex: "b", JSON: "."}, Key: "{a}", Fields: []Field{{Name: "x", Rule: Rule{XPath: "a", JSON: "."}}}}, []string{"fields.x.xpath: rows are JSON values"}},
		{Spec{Key: "a}"}, []string{`key: has a "}" without "{"`}},
		{Spec{Key: "{a"}, []string{`key: has a "{" that no name and "}" follow`}},
		{Spec{Key: "{}"}, []string{`key: has a "{" that no name`}},
		{Spec{Key: "{{a}}"}, []string{`key: has a "{" that no name`}},
		{Spec{Key: "{x}", Fields: []Field{{Name: "x", Many: true, Rule: Rule{CSS: "a"}}}}, []string{"key: cannot hold x: only single values have a text form"}},
		{Spec{Fields: append(sku, sku...)}, []string{"fields.sku: there is another field of this name"}},
		// All faults at once.
		{
			Spec{Version: -1, Rows: &Rule{XPath: "["}, Fields: []Field{{Name: "a", Type: "b", Rule: Rule{CSS: "["}}, {Name: "c", Decimal: ","}}},
			[]string{"version: ", "key: ", "rows.xpath: ", "fields.a.type: ", "fields.a.css: ", "fields.c: ", "fields.c.decimal: "},
		},
	} {
		_, err := Compile(c.spec)
		got := faults(t, err)
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%+v has the faults\n%q, want\n%q", c.spec, got, c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	for version, want := range map[int]int{0: 1, 1: 1, 7: 7} {
		if got := mustCompile(t, Spec{Version: version}).Version(); got != want {
			t.Errorf("version %d counts as %d, want %d", version, got, want)
		}
	}
}

// TestFingerprint sets each setting alone and wants another fingerprint for
// each, so that a setting added later cannot be forgotten.
func TestFingerprint(t *testing.T) {
	print := func(s Spec) string { return fingerprint(&s) }
	seen := map[string]string{print(Spec{}): "zero", print(oneField(Field{})): "one field"}
	add := func(what string, s Spec) {
		if other, ok := seen[print(s)]; ok {
			t.Errorf("%s has the fingerprint of %s", what, other)
		}
		seen[print(s)] = what
	}
	add("key", Spec{Key: "{a}"})
	add("empty", Spec{Empty: "accept"})
	add("rows", Spec{Rows: &Rule{CSS: "a"}})
	typ := reflect.TypeFor[Field]()
	for _, f := range reflect.VisibleFields(typ) {
		if f.Anonymous || f.Name == "First" { // says what is so without it
			continue
		}
		s := oneField(Field{})
		v := reflect.ValueOf(&s.Fields[0]).Elem().FieldByIndex(f.Index)
		switch v.Kind() {
		case reflect.String:
			v.SetString("y")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Interface:
			v.Set(reflect.ValueOf(false))
		case reflect.Map:
			v.Set(reflect.ValueOf(map[string]string{"a": "b"}))
		case reflect.Slice:
			v.Set(reflect.ValueOf([]string{"a"}))
		default:
			t.Fatalf("no value for %s", f.Name)
		}
		add(f.Name, s)
	}
	same := [][2]Spec{
		{{Version: 1}, {Version: 2}},
		{{}, {Empty: "fail"}},
		{oneField(Field{}), oneField(Field{Type: "text", First: true, Timezone: "UTC", Map: map[string]string{}, Enum: []string{}})},
	}
	for _, pair := range same {
		if print(pair[0]) != print(pair[1]) {
			t.Errorf("%+v and %+v have different fingerprints", pair[0], pair[1])
		}
	}
}

// TestParts: what differs between two Rules is told by the setting it stands at;
// the order of fields by none.
func TestParts(t *testing.T) {
	field := func(name, css string) Field { return Field{Name: name, Rule: Rule{CSS: css}} }
	base := mustCompile(t, Spec{Key: "{a}", Rows: &Rule{CSS: "li"}, Fields: []Field{field("a", "b"), field("c", "d")}})
	for want, spec := range map[string]Spec{
		"":         {Version: 7, Key: "{a}", Rows: &Rule{CSS: "li"}, Fields: []Field{field("c", "d"), field("a", "b")}},
		"key":      {Key: "{c}", Rows: &Rule{CSS: "li"}, Fields: []Field{field("a", "b"), field("c", "d")}},
		"rows":     {Key: "{a}", Rows: &Rule{CSS: "tr"}, Fields: []Field{field("a", "b"), field("c", "d")}},
		"empty":    {Key: "{a}", Rows: &Rule{CSS: "li"}, Fields: []Field{field("a", "b"), field("c", "d")}, Empty: "accept"},
		"fields.a": {Key: "{a}", Rows: &Rule{CSS: "li"}, Fields: []Field{field("a", "x"), field("c", "d")}},
		"fields.c": {Key: "{a}", Rows: &Rule{CSS: "li"}, Fields: []Field{field("a", "b")}},
	} {
		was, now := base.Parts(), mustCompile(t, spec).Parts()
		var differ []string
		for name := range was {
			if was[name] != now[name] {
				differ = append(differ, name)
			}
		}
		if got := strings.Join(differ, " "); got != want || len(now) > len(was) {
			t.Errorf("%q differs, want %q", got, want)
		}
	}
}

// TestFingerprintStays: stores keep fingerprints, so a change of the form would
// make every source's rules look edited.
func TestFingerprintStays(t *testing.T) {
	got := productRules(t).Fingerprint()
	if want := "d22bf60c6c968ca6cde339b4c45e8cca04483f4b0f58a134bb73a536ab960386"; got != want {
		t.Errorf("the fingerprint is %s, want %s", got, want)
	}
}
