package parser

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden is a saved page below testdata with the rules it is read by.
type golden struct {
	file string
	spec Spec
}

func goldens() []golden {
	return []golden{
		{"product.html", Spec{Version: 1, Key: "{sku}", Fields: []Field{
			{Name: "title", Rule: Rule{CSS: "h1.title"}, Required: true},
			{Name: "og_title", Rule: Rule{Meta: "og:title"}},
			{Name: "description", Rule: Rule{Meta: "description"}},
			{Name: "sku", Rule: Rule{JSONLD: "sku"}, Required: true, Pattern: `[A-Z]+-\d+`},
			{Name: "gtin", Rule: Rule{JSONLD: "gtin13"}},
			{Name: "name", Rule: Rule{JSONLD: "offers.name"}},
			{Name: "price", Rule: Rule{CSS: ".price"}, Type: "money", Currency: "EUR", Decimal: ","},
			{Name: "offer", Rule: Rule{JSONLD: "offers.price"}, Type: "money", Currency: "EUR", Decimal: "."},
			{Name: "old_price", Rule: Rule{CSS: ".old-price"}},
			{Name: "weight", Rule: Rule{CSS: ".weight"}, Type: "decimal"},
			{Name: "rating", Rule: Rule{JSONLD: "aggregateRating.ratingValue"}, Type: "decimal", Min: "1", Max: "5"},
			{Name: "reviews", Rule: Rule{JSONLD: "aggregateRating.reviewCount"}, Type: "integer"},
			{Name: "availability", Rule: Rule{JSONLD: "offers.availability"}, Map: map[string]string{"https://schema.org/InStock": "in_stock"}},
			{Name: "stock", Rule: Rule{Regex: `"stock": (\d+)`}, Type: "integer"},
			{Name: "is_new", Rule: Rule{CSS: ".new"}, Map: map[string]string{"ja": "yes", "nein": "no"}, Type: "boolean"},
			{Name: "text", Rule: Rule{CSS: ".text"}, Type: "html"},
			{Name: "colors", Rule: Rule{CSS: ".colors li"}, Many: true},
			{Name: "updated", Rule: Rule{CSS: "time"}, Attr: "datetime", Type: "timestamp", Layout: "02.01.2006 15:04", Timezone: "Europe/Berlin"},
			{Name: "from", Rule: Rule{XPath: "//span[@class='from']"}, Type: "date"},
			{Name: "images", Rule: Rule{CSS: "img.gallery"}, Attr: "src", Type: "url", Many: true},
			{Name: "links", Rule: Rule{XPath: "//nav/a/@href"}, Type: "url", Many: true},
			{Name: "pictures", Rule: Rule{XPath: "count(//img)"}, Type: "integer"},
			{Name: "offers", Rule: Rule{JSONLD: "offers"}, Type: "object"},
			{Name: "video", Rule: Rule{CSS: "video"}, Attr: "src", Type: "url"},
			{Name: "shop", Rule: Rule{Const: "example"}},
			{Name: "country", Rule: Rule{Var: "country"}},
		}}},
		{"state.html", Spec{Version: 1, Key: "{id}", Fields: []Field{
			{Name: "id", Rule: Rule{CSS: "script#state", JSON: ".product.id"}, Type: "integer"},
			{Name: "stock", Rule: Rule{Regex: `window\.STOCK\s*=`, JSON: ".[] | select(.city == \"Oslo\") | .count"}, Type: "integer"},
			{Name: "props", Rule: Rule{XPath: "//div/@data-props", JSON: "."}, Type: "object"},
			{Name: "name", Rule: Rule{JSONLD: "name", Schema: "Product"}},
			{Name: "brand", Rule: Rule{Microdata: "brand.name", Schema: "Product"}},
			{Name: "image", Rule: Rule{Microdata: "image"}, Type: "url", Many: true},
			{Name: "weight", Rule: Rule{Table: "Weight"}, Type: "decimal", Decimal: ","},
			{Name: "sizes", Rule: Rule{Table: "Size"}, Join: ", "},
			{Name: "crumb", Rule: Rule{CSS: "nav a"}, Last: true},
			{Name: "released", Rule: Rule{CSS: ".released"}, Type: "date", Layout: "2. January 2006", Language: "de"},
			{Name: "price", Rule: Rule{CSS: ".price"}, Type: "money", Decimal: ",", Pick: "max"},
			{Name: "shipping", Rule: Rule{CSS: ".shipping"}, Type: "money", Locale: "en-CA"},
			{Name: "sold", Rule: Rule{CSS: ".sold"}, Type: "integer"},
		}}},
		{"list.html", Spec{Version: 1, Rows: &Rule{CSS: "article.card"}, Key: "{id}", Fields: []Field{
			{Name: "id", Rule: Rule{CSS: ":scope"}, Attr: "data-id", Type: "integer", Required: true},
			{Name: "title", Rule: Rule{CSS: "h2"}},
			{Name: "url", Rule: Rule{XPath: "h2/a/@href"}, Type: "url"},
			{Name: "rent", Rule: Rule{CSS: ".rent"}, Type: "money", Currency: "USD", Decimal: "."},
			{Name: "beds", Rule: Rule{CSS: ".beds"}, Type: "integer"},
			{Name: "site", Rule: Rule{Meta: "generator"}},
		}}},
		{"api.json", Spec{Version: 1, Rows: &Rule{JSON: ".items[]"}, Key: "{country}/{id}", Fields: []Field{
			{Name: "id", Rule: Rule{JSON: ".id"}, Type: "integer"},
			{Name: "name", Rule: Rule{JSON: ".name"}},
			{Name: "price", Rule: Rule{JSON: ".price"}, Type: "decimal"},
			{Name: "tags", Rule: Rule{JSON: ".tags[]"}, Many: true},
			{Name: "seen", Rule: Rule{JSON: ".seen"}, Type: "timestamp"},
			{Name: "meta", Rule: Rule{JSON: ".meta"}, Type: "object", Default: map[string]any{"none": true}},
		}}},
	}
}

func (g golden) input(t testing.TB) Input {
	body, err := os.ReadFile(filepath.Join("testdata", g.file))
	if err != nil {
		t.Fatal(err)
	}
	return Input{Body: body, FinalURL: "https://www.example/final/page", Target: "t", Vars: map[string]string{"country": "DE"}}
}

// text is an Output as golden files hold it: a line for each record.
func (o Output) text() string {
	var b strings.Builder
	for _, r := range o.Records {
		missing, _ := json.Marshal(r.Missing)
		b.WriteString(r.Key + "\t" + string(missing) + "\n" + string(r.Data) + "\n")
	}
	return b.String() + strings.Repeat("duplicate\n", o.Duplicates)
}

func TestGolden(t *testing.T) {
	for _, g := range goldens() {
		t.Run(g.file, func(t *testing.T) {
			out, err := mustCompile(t, g.spec).Parse(g.input(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range out.Records {
				if !json.Valid(r.Data) || !utf8.Valid(r.Data) {
					t.Errorf("%s is no JSON", r.Data)
				}
			}
			file := filepath.Join("testdata", strings.TrimSuffix(g.file, filepath.Ext(g.file))+".golden.json")
			if *update {
				if err := os.WriteFile(file, []byte(out.text()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := out.text(); got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestSameBytes reads each page many times from many goroutines, under rules
// they share and under rules compiled anew.
func TestSameBytes(t *testing.T) {
	for _, g := range goldens() {
		shared, in := mustCompile(t, g.spec), g.input(t)
		body := bytes.Clone(in.Body)
		first, err := shared.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				own := mustCompile(t, g.spec)
				for range 5 {
					for _, r := range []*Rules{shared, own} {
						if out, err := r.Parse(in); err != nil || out.text() != first.text() {
							t.Errorf("%s is read anew as %v, %s", g.file, err, out.text())
						}
					}
				}
			})
		}
		group.Wait()
		if !bytes.Equal(body, in.Body) {
			t.Errorf("reading %s changed it", g.file)
		}
	}
}

// FuzzParse holds that no page brings down the parser, that a page is always
// read the same way, and that records are JSON and have keys.
func FuzzParse(f *testing.F) {
	var rules []*Rules
	for _, g := range goldens() {
		for _, required := range []bool{true, false} {
			spec := g.spec
			spec.Fields = nil
			for _, field := range g.spec.Fields {
				field.Required = field.Required && required
				field.Pattern = ""
				spec.Fields = append(spec.Fields, field)
			}
			if spec.Rows == nil && !required {
				spec.Key = ""
			}
			rules = append(rules, mustCompile(f, spec))
		}
		f.Add(g.input(f).Body, "https://www.example/final/page")
	}
	f.Add([]byte(shopPage), "")
	f.Add([]byte(shopJSON), "x")
	f.Fuzz(func(t *testing.T, body []byte, finalURL string) {
		in := Input{Body: body, FinalURL: finalURL, Target: "t", Vars: map[string]string{"country": "DE"}}
		for _, r := range rules {
			out, err := r.Parse(in)
			again, err2 := r.Parse(in)
			if out.text() != again.text() || (err == nil) != (err2 == nil) || err != nil && *err.(*Error) != *err2.(*Error) {
				t.Fatalf("first %v, %s\nthen %v, %s", err, out.text(), err2, again.text())
			}
			if err != nil && (err.(*Error).Kind == "" || strings.Contains(err.Error(), "panicked")) {
				t.Fatalf("the error is %#v", err)
			}
			for _, rec := range out.Records {
				if !json.Valid(rec.Data) || !utf8.Valid(rec.Data) || rec.Key == "" {
					t.Fatalf("%q is the record %q", rec.Key, rec.Data)
				}
			}
		}
	})
}
