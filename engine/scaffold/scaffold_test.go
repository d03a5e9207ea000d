package scaffold_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"semel/engine/config"
	"semel/engine/scaffold"
	"semel/parser"
)

// load reads a text as a config file.
func load(t testing.TB, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "semel.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, func(string) string { return "secret" })
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// propose makes a config of a page, loads it, and reads the page by it: each
// value in the text must come out again. It gives the first record.
func propose(t testing.TB, page scaffold.Page) (*scaffold.Proposal, map[string]json.RawMessage) {
	t.Helper()
	p := scaffold.Propose(page)
	c := load(t, p.TOML())
	out, err := c.Sources[0].Rules.Parse(parser.Input{
		Body: page.Body, ContentType: page.ContentType, FinalURL: p.URL, Target: p.URL, Vars: map[string]string{"url": p.URL},
	})
	promised := map[string]string{}
	for i, f := range p.Spec.Fields {
		if v := p.Values[i].JSON; v != nil {
			promised[f.Name] = string(v)
		}
	}
	if err != nil && len(promised) > 0 {
		t.Fatalf("the page cannot be read by its own config: %v\n%s", err, p.TOML())
	}
	records := make([]map[string]json.RawMessage, len(out.Records))
	for i, r := range out.Records {
		if err := json.Unmarshal(r.Data, &records[i]); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range promised {
		found := false
		for _, r := range records {
			found = found || string(r[name]) == want
		}
		if !found {
			t.Errorf("field %s: the config says %s, which no record has", name, want)
		}
	}
	if len(records) == 0 {
		return p, nil
	}
	return p, records[0]
}

func html(body string) scaffold.Page {
	return scaffold.Page{Body: []byte(body), ContentType: "text/html"}
}

const rowsPage = `<html lang="en-US"><body><nav><a>Home of all the shops</a></nav><ul class="shelf">
<li class="item"><h3><a href="/i/1">Kettle of steel</a></h3><span class="price">$10.00</span></li>
<li class="item"><h3><a href="/i/2">Teapot of glass</a></h3><span class="price">$11.00</span></li>
<li class="item"><h3><a href="/i/3">Cups, a set of six</a></h3><span class="price">$12.50</span></li>
<li class="item"><h3><a href="/i/4">Spoons, silver</a></h3><span class="price">$13.00</span></li>
<li class="item"><h3><a href="/i/5">Sugar bowl, small</a></h3><span class="price">$14.00</span></li></ul></body></html>`

func TestPropose(t *testing.T) {
	for _, c := range []struct {
		name, page string
		lines      []string // of the config, with single spaces
	}{
		{
			"JSON-LD",
			`<link rel="canonical" href="https://shop.example/p/1"><script type="application/ld+json">{"@graph":[{"@type":"Organization","name":"Shop"},
			{"@type":"Product","name":"Kettle","sku":"007","offers":{"price":"1.299","priceCurrency":"EUR"},"aggregateRating":{"ratingValue":4.5,"reviewCount":"12"}}]}</script>`,
			[]string{
				`targets = ["https://shop.example/p/1"]`,
				`title = { jsonld = "name", schema = "Product", required = true } # "Kettle"`,
				`price = { jsonld = "offers.price", schema = "Product", type = "money", currency = "EUR", decimal = "." } # {"amount":"1.299","currency":"EUR"}`,
				`sku = { jsonld = "sku", schema = "Product" } # "007"`,
				`rating = { jsonld = "aggregateRating.ratingValue", schema = "Product", type = "decimal", decimal = "." } # "4.5"`,
				`ratings = { jsonld = "aggregateRating.reviewCount", schema = "Product", type = "integer", decimal = "." } # 12`,
			},
		},
		{
			"microdata",
			`<html lang="de"><div itemscope itemtype="https://schema.org/Product"><h1 itemprop="name">Kanne</h1><span itemprop="offers" itemscope><b itemprop="price">19,90 €</b></span></div>`,
			[]string{
				`targets = ["` + scaffold.Placeholder + `"]`,
				`title = { microdata = "name", schema = "Product", required = true } # "Kanne"`,
				`price = { microdata = "offers.price", schema = "Product", type = "money" } # {"amount":"19.90","currency":"EUR"}`,
			},
		},
		{
			"Open Graph",
			`<meta property="og:title" content="News"><meta property="og:type" content="article"><meta property="article:published_time" content="2026-04-23 15:04:05">
			<meta property="og:image" content="/a.png">`,
			[]string{
				`title = { meta = "og:title", required = true } # "News"`,
				`published = { meta = "article:published_time", type = "timestamp", layout = "2006-01-02 15:04:05", timezone = "UTC" } # "2026-04-23T15:04:05Z"`,
				`image = { meta = "og:image", type = "url" } # "https://www.example.com/a.png"`,
			},
		},
		{
			"embedded state",
			`<title>Kettle | Shop</title><script id="__NEXT_DATA__" type="application/json">{"props":{"page-props":{"item":{"title":"Kettle","sku":"k1","price":5.5,"currency":"USD"}},"site":{"name":"Shop"}}}</script>`,
			[]string{
				`title = { css = "script#__NEXT_DATA__", json = '.props."page-props".item.title', required = true } # "Kettle"`,
				`price = { css = "script#__NEXT_DATA__", json = '.props."page-props".item.price', type = "money", currency = "USD", decimal = "." } # {"amount":"5.5","currency":"USD"}`,
			},
		},
		{
			"an assignment",
			`<h1>Kettle</h1><script>window.state = {"item":{"name":"Kettle","sku":"k\"1","brand":"Acme"}};</script>`,
			[]string{`brand = { regex = 'window\.state\s*=\s*', json = ".item.brand" } # "Acme"`},
		},
		{
			"elements and tables",
			`<html lang="de-DE"><h1>Kanne</h1><div id="product-price">1.299 €</div><p class="was-price">9 €</p><span class="byline">Ada</span>
			<table><tr><th>Größe:</th><td>12 cm</td></tr><tr><th>Gewicht</th><td>1,5</td></tr></table>`,
			[]string{
				`title = { css = "h1", required = true } # "Kanne"`,
				`price = { css = "#product-price", type = "money", decimal = "," } # {"amount":"1299","currency":"EUR"}`,
				`author = { css = "span.byline" } # "Ada"`,
				`gewicht = { table = "Gewicht", type = "decimal", decimal = "," } # "1.5"`,
			},
		},
		{"a day in words", `<html lang="fr"><h1>Fête</h1><span class="date">3 mai 2026</span>`, []string{
			`published = { css = "span.date", type = "date", layout = "2 January 2006", language = "fr" } # "2026-05-03"`,
		}},
		{"rows", rowsPage, []string{
			`rows = { css = "ul.shelf li" } # one record of each`, `key = "{url}"`,
			`url = { css = "h3 a", attr = "href", type = "url" } # "https://www.example.com/i/1"`,
			`title = { css = "h3" } # "Kettle of steel"`,
			`price = { css = "span.price", type = "money", locale = "en-US", decimal = "." } # {"amount":"10.00","currency":"USD"}`,
		}},
		{"text that would break a config", "<meta property=og:title content=\"a&quot;b&#10;# c\u202ed\x7f '''\">", []string{`# "a\"b # c\u202ed\x7f '''"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := propose(t, html(c.page))
			text := regexp.MustCompile(` +`).ReplaceAllString(p.TOML(), " ")
			for _, line := range c.lines {
				if !strings.Contains(text, line) {
					t.Errorf("no %s in\n%s", line, text)
				}
			}
		})
	}
}

// TestHints: with the marks of comments taken away the hints are settings.
func TestHints(t *testing.T) {
	hint := regexp.MustCompile(`(?m)^# (\w+ *=|\[)`)
	for _, text := range []string{scaffold.Starter, scaffold.Propose(html("<h1>a</h1>")).TOML(`allow_private = true`)} {
		c := load(t, hint.ReplaceAllString(text, "$1"))
		if len(c.Proxies) != 1 || len(c.Sinks) != 1 || len(c.Sources[0].Proxies) != 1 {
			t.Errorf("not all hints are there:\n%s", text)
		}
	}
	load(t, scaffold.Starter)
}

// TestWeird: whatever the page is, there is a config, and a note where it is
// for want of a better one.
func TestWeird(t *testing.T) {
	for name, page := range map[string]scaffold.Page{
		"empty":     html(""),
		"binary":    html("\x00\x01\x02\xff"),
		"frameset":  html(`<frameset><frame src="a.html"></frameset>`),
		"broken":    {Body: []byte(`{"a":`), ContentType: "application/json"},
		"no values": html(`<div></div>`),
		"deep":      html(strings.Repeat("<div>", 600) + "x"),
	} {
		p, _ := propose(t, page)
		if len(p.Notes) < 2 || p.URL != scaffold.Placeholder {
			t.Errorf("%s: notes %q, address %s", name, p.Notes, p.URL)
		}
	}
	if p, _ := propose(t, html(`<link rel="canonical" href="https://u:p@shop.example/">`)); p.URL != scaffold.Placeholder {
		t.Errorf("a canonical link with a login is the address %s", p.URL)
	}
	if p, record := propose(t, html(strings.Repeat("<p>x</p>", 20_000)+"<h1>Last</h1>")); string(record["title"]) != `"Last"` {
		t.Errorf("a large page gives %s", p.TOML())
	}
}

func TestJSONPages(t *testing.T) {
	item := scaffold.Page{Body: []byte(`{"item":{"name":"Kettle","price":"9.50","currency":"EUR","id":7}}`), ContentType: "application/json"}
	if _, record := propose(t, item); string(record["price"]) != `{"amount":"9.50","currency":"EUR"}` {
		t.Errorf("an object gives %s", record)
	}
	list := scaffold.Page{Body: []byte(`{"hits":[{"id":1,"a b":"x"},{"id":2,"a b":"y"},{"id":3,"a b":"x"},{"id":4,"a b":"x"},{"id":5,"a b":"x"}]}`), ContentType: "application/json"}
	if p, record := propose(t, list); p.Spec.Key != "{id}" || string(record["a_b"]) != `"x"` {
		t.Errorf("a list gives %s", p.TOML())
	}
}

func TestDeterministic(t *testing.T) {
	first := scaffold.Propose(html(rowsPage)).TOML()
	for range 3 {
		if again := scaffold.Propose(html(rowsPage)).TOML(); again != first {
			t.Fatalf("once\n%s\nand once\n%s", first, again)
		}
	}
}

// FuzzPropose: of any bytes there is a config that loads, and that reads the
// page as it says.
func FuzzPropose(f *testing.F) {
	f.Add([]byte(rowsPage), false)
	f.Add([]byte(`{"hits":[{"id":1}]}`), true)
	f.Add([]byte("<meta property=og:title content='a\"\\\x00'><link rel=canonical href='//x'>"), false)
	f.Add([]byte(`<dl><dt>1 \u0000</dt><dd>"</dd></dl><script>var a = {"title":"b"}</script>`), false)
	f.Fuzz(func(t *testing.T, body []byte, isJSON bool) {
		page := html(strings.ToValidUTF8(string(body), "\uFFFD"))
		if isJSON {
			page.ContentType = "application/json"
		}
		propose(t, page)
	})
}
