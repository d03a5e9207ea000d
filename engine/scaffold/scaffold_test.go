package scaffold_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
	p, err := scaffold.Propose(page)
	if err != nil {
		t.Fatal(err)
	}
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

// numbers is a page whose rows have these in column N.
func numbers(column ...string) string {
	var b strings.Builder
	for i, n := range column {
		fmt.Fprintf(&b, "<tr><td>c%d</td><td>%s</td></tr>", i, n)
	}
	return `<table id="t"><tr><th>Code</th><th>N</th></tr>` + b.String() + "</table>"
}

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
		{"money of nobody knows where", `<html lang="en"><h1>Kettle</h1><b class="price">$ 9.50</b>`, []string{
			`price = { css = "b.price" } # "$ 9.50", which type = "money" reads if you add its currency`,
		}},
		{"money that can be read in two ways", `<div itemscope itemtype="https://schema.org/Product"><h1 itemprop="name">a</h1><meta itemprop="priceCurrency" content="EUR"></div><b class="price">1.234</b>`, []string{
			`price = { css = "b.price" } # "1.234"; with type = "money", currency = "EUR", "1.234" can be read as 1.234 and as 1234; set decimal`,
		}},
		{"an amount that can be read in two ways", `<h1>a</h1><b class="price">1.234</b>`, []string{
			`price = { css = "b.price" } # "1.234"; with type = "decimal", "1.234" can be read as 1.234 and as 1234; set decimal`,
		}},
		{"numbers that can be read in two ways", numbers("1.000", "5", "1.001", "7", "12"), []string{
			`n = { table = "N" } # "1.000"; with type = "decimal", "1.000" can be read as 1.000 and as 1000; set decimal`,
		}},
		{"amounts that can be read in two ways", numbers("5 €", "1.000 €", "1.001 €", "7 €", "12 €"), []string{
			`n = { table = "N" } # "5 €"; with type = "money", "1.000 €" can be read as 1.000 and as 1000; set decimal`,
		}},
		{"numbers of which one tells its mark", numbers("1.000", "1.001", "0.5", "2.000", "3.000"), []string{
			`n = { table = "N", type = "decimal", decimal = "." } # "1.000"`,
		}},
		{"numbers of which one tells that it is the other mark", numbers("1.000", "1.001", "1,5", "2.000", "3.000"), []string{
			`n = { table = "N", type = "decimal", decimal = "," } # "1000"`,
		}},
		{"numbers with one reading each", numbers("1.5", "7,25", "0.5", "2", "3"), []string{`n = { table = "N", type = "decimal" } # "1.5"`}},
		{"numbers of a language", `<html lang="de">` + numbers("1.000", "1.001", "2.000", "3.000", "4.000"), []string{
			`n = { table = "N", type = "decimal", decimal = "," } # "1000"`,
		}},
		{"rows", rowsPage, []string{
			`rows = { css = "ul.shelf > li" } # one record of each`, `key = "{url}"`,
			`url = { css = "h3 a", attr = "href", type = "url" } # "https://www.example.com/i/1"`,
			`title = { css = "h3" } # "Kettle of steel"`,
			`price = { css = "span.price", type = "money", locale = "en-US", decimal = "." } # {"amount":"10.00","currency":"USD"}`,
		}},
		{"a header with both quotes", `<h1>a</h1><dl><dt>a"b'c\</dt><dd>v</dd></dl>`, []string{`a_b_c = { table = "a\"b'c\\" } # "v"`}},
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

// around is what a page has around its content: menus that repeat as rows do.
func around(content string) string {
	link := func(i int) string {
		return fmt.Sprintf(`<a href="/c/%d">Everything about category %d of things</a>`, i, i)
	}
	var entries, divs strings.Builder
	for i := range 12 {
		entries.WriteString("<li>" + link(i) + "</li>")
		divs.WriteString(`<div class="entry">` + link(i) + "</div>")
	}
	return `<html lang="en-US"><link rel="canonical" href="https://shop.example/kettles"><body><header><ul>` + entries.String() + `</ul></header><div class="main-menu">` +
		divs.String() + "</div>" + content + `<div id="footer"><ul>` + entries.String() + `</ul></div><div class="related-items">` + divs.String() + "</div>"
}

// each repeats a text for some rows, with the row's number, a name and a price
// in the places of its verbs.
func each(format string) string {
	var b strings.Builder
	for i, name := range []string{"Kettle of steel", "Teapot of glass", "Cups, a set of six", "Spoons, silver", "Sugar bowl", "Whisk, large"} {
		if i > 0 && strings.HasPrefix(format, "{") {
			b.WriteByte(',')
		}
		b.WriteString(strings.NewReplacer("$NAME", name, "$N", strconv.Itoa(i+1), "$PRICE", strconv.Itoa(10+i)+".50").Replace(format))
	}
	return b.String()
}

// TestRows: what repeats is found wherever it stands, and told from menus.
func TestRows(t *testing.T) {
	const ld = `<script type="application/ld+json">`
	const offers = `"offers":{"@type":"Offer","price":"$PRICE","priceCurrency":"EUR"}`
	const json = `{"id":$N,"name":"$NAME","price":$PRICE,"currency":"EUR","image":"/i/$N.png"}`
	for _, c := range []struct{ name, page, rows, key, fields string }{
		{"list", `<ul class="shelf">` + each(`<li><a href="/p/$N"><h2>$NAME</h2></a></li>`) + "</ul>", `css = "ul.shelf > li"`, "{url}", "url title"},
		{
			"data attributes", "<div>" + each(`<div class="x1a2b3" data-sku-id="k$N"><a href="/p/$N">$NAME</a><i data-price="$$PRICE">now</i></div>`) + "</div>",
			`css = "div[data-sku-id]"`, "{id}", "id url title price",
		},
		{
			"cards with made-up classes", `<div class="grid">` + each(`<div class="css-9a8b7c"><a href="/p/$N">$NAME</a><b class="price">$$PRICE</b></div>`) + "</div>",
			`css = "div.grid > div"`, "{url}", "url title price",
		},
		{
			"the richer of two lists", "<main><ul>" + each(`<li><a href="/blog/$N">All about the $NAME, which we do think is well worth your time</a></li>`) + `</ul><div class="results">` +
				each(`<article><h3><a href="/p/$N">$NAME</a></h3><p>The $NAME for your kitchen</p><b class="price">$$PRICE</b></article>`) + "</div></main>",
			`css = "div.results > article"`, "{url}", "url title price description",
		},
		{
			"microdata", "<div>" + each(`<div itemscope itemtype="https://schema.org/Product"><a itemprop="url" href="/p/$N"><b itemprop="name">$NAME</b></a></div>`) + "</div>",
			`css = 'div[itemtype$="/Product"]'`, "{url}", "url title",
		},
		{
			"rows that JSON-LD says less of", ld + `{"@type":"ItemList","itemListElement":[` + each(`{"url":"/p/$N","name":"$NAME"}`) + "]}</script><ul>" +
				each(`<li class="ad">An advertisement</li><li class="item"><h3><a href="/p/$N" title="The $NAME">$NAME in short...</a></h3><img src="/$N.png"></li>`) + "</ul>",
			`css = "li.item"`, "{url}", "url title image",
		},
		{"table", `<table id="t"><tr><th>Code</th><th>Name</th></tr>` + each(`<tr><td>c$N</td><td>$NAME</td></tr>`) + "</table>", `css = "table#t tr:has(td)"`, "{code}", "code name"},
		{"table of currencies", `<table id="t"><tr><th>Currency</th><th>Rate</th></tr>` + each(`<tr><td>C$N</td><td>$PRICE</td></tr>`) + "</table>", `css = "table#t tr:has(td)"`, "{currency}", "currency rate"},
		{"table without headers", `<table id="t">` + each(`<tr><td>c$N</td><td>$NAME</td></tr>`) + "</table>", `css = "table#t tr:has(td)"`, "{column_1}", "column_1 column_2"},
		{
			"JSON-LD list", ld + `{"@type":"ItemList","itemListElement":[` + each(`{"@type":"ListItem","url":"/p/$N","name":"$NAME"}`) + "]}</script>",
			`jsonld = "itemListElement", schema = "ItemList"`, "{url}", "url title",
		},
		{
			"JSON-LD list of things", ld + `{"@type":"CollectionPage","mainEntity":{"@type":"ItemList","itemListElement":[` +
				each(`{"@type":"ListItem","item":{"@type":"Product","url":"/p/$N","name":"$NAME",`+offers+`}}`) + "]}}</script>",
			`jsonld = "mainEntity.itemListElement.item"`, "{url}", "url title price",
		},
		{
			"many products", ld + `[` + each(`{"@type":["Thing","Product"],"sku":"k$N","name":"$NAME",`+offers+`}`) + "]</script>",
			`css = 'script[type="application/ld+json"]', json = '.. | objects | select([."@type"] | flatten | index("Product"))'`, "{sku}", "sku title price",
		},
		{
			"embedded list", `<script id="__NEXT_DATA__">{"menu":[` + each(`{"label":"$NAME","href":"/"}`) + `],"found":{"items":[` + each(json) + "]}}</script>",
			`css = "script#__NEXT_DATA__", json = ".found.items[]"`, "{id}", "id name price image",
		},
		{
			"assigned list", `<script>window.state = {"items":[` + each(json) + "]};</script>",
			`regex = 'window\.state\s*=\s*', json = ".items[]"`, "{id}", "id name price image",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := propose(t, html(around(c.page)))
			var fields []string
			for _, f := range p.Spec.Fields {
				fields = append(fields, f.Name)
			}
			text := p.TOML()
			if !strings.Contains(text, "rows    = { "+c.rows+" }") || p.Spec.Key != c.key || strings.Join(fields, " ") != c.fields {
				t.Errorf("key %s, fields %s of\n%s", p.Spec.Key, fields, text)
			}
		})
	}
	more := each(`<div><a href="/p/$N">$NAME</a></div>`)
	for name, page := range map[string]string{
		"one thing":             "<h1>Kettle</h1><p>There is one of it.</p>",
		"one thing and more":    "<h1>Kettle</h1><p>" + strings.Repeat("A kettle as ever was. ", 4) + "</p><div class=shelf>" + more + "</div>",
		"one thing in no <p>":   "<h1>Kettle</h1><div>" + strings.Repeat("A kettle as ever was. ", 8) + "</div><div class=shelf>" + more + "</div>",
		"one thing in a frame":  "<div class=page><div><a>top</a> of it</div>" + more + "<div><h1>Kettle</h1><p>" + strings.Repeat("A kettle <a>as</a> ever was. ", 90) + "</p></div></div>",
		"one thing of many":     "<h1>Kettle</h1>" + `<meta property="og:type" content="product"><ul class="shelf">` + each(`<li><a href="/p/$N">$NAME</a></li>`) + "</ul>",
		"one thing and menus":   "<h1>Kettle</h1><ul class=shelf>" + each(`<li><a href="/p/$N">Page $N</a></li>`) + "</ul>",
		"what others say of it": `<h1>Kettle</h1><ul>` + each(`<li><b itemprop="author">$NAME</b> wrote <a href="/login">this</a></li>`) + "</ul>",
	} {
		if p, _ := propose(t, html(around(page))); p.Spec.Rows != nil {
			t.Errorf("of %s the rows are\n%s", name, p.TOML())
		}
	}
}

// TestHidden: of a page that shows no more than a title, its own JSON tells what a script
// fills it with: small as it may be, where it stands at the same place on the next page.
func TestHidden(t *testing.T) {
	const item = `{"id":7,"name":"Kettle","price":9.5,"currency":"EUR"}`
	const list = `[{"id":1,"name":"Kettle","price":9.5},{"id":2,"name":"Pot","price":8},{"id":3,"name":"Cup","price":1.5}]`
	for _, c := range []struct{ name, script, first, fields string }{
		{"an item", `<script id="__NEXT_DATA__">{"props":{"pageProps":{"item":` + item + `}}}</script>`, `json = ".props.pageProps.item.name"`, "title price sku"},
		{"an assigned item", `<script>window.__INITIAL_STATE__ = {"item":` + item + `};</script>`, `json = ".item.name"`, "title price sku"},
		{"a short list", `<script id="__NEXT_DATA__">{"items":` + list + `}</script>`, `json = ".items[]"`, "id name price"},
		{"an assigned short list", `<script>window.__INITIAL_STATE__={"items":` + list + `}</script>`, `json = ".items[]"`, "id name price"},
		{"an item with few more of it", `<script id="a">{"item":` + strings.TrimSuffix(item, "}") + `,"brand":"Acme","more":` + list + `}}</script>`, `json = ".item.name"`, "title price sku brand"},
		{"an item at its own number", `<script id="a">{"items":{"7":` + item + `}}</script>`, `css = "title"`, "title"},
		{"a list at a number", `<script id="a">{"page-1":` + list + `}</script>`, `css = "title"`, "title"},
		{"who looks at it", `<script id="a">{"user":{"id":7,"name":"Ada","image":"/a.png","currency":"EUR"}}</script>`, `css = "title"`, "title"},
		{"a list of one", `<script id="a">{"items":[` + item + `]}</script>`, `css = "title"`, "title"},
		{"a shown item beside another", `<h1>Shop</h1><b class="author">Ada</b><script id="a">{"item":` + item + `}</script>`, `css = "h1"`, "title author"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := propose(t, html("<title>Shop</title>"+c.script))
			var fields []string
			for _, f := range p.Spec.Fields {
				fields = append(fields, f.Name)
			}
			if text := p.TOML(); !strings.Contains(text, c.first) || strings.Join(fields, " ") != c.fields {
				t.Errorf("fields %s of\n%s", fields, text)
			}
			told := slices.ContainsFunc(p.Notes, func(note string) bool { return strings.Contains(note, "in its scripts") })
			if want := !strings.Contains(c.first, "css"); told != want {
				t.Errorf("notes %q", p.Notes)
			}
		})
	}
}

// TestHints: with the marks of comments taken away the hints are settings.
func TestHints(t *testing.T) {
	hint := regexp.MustCompile(`(?m)^# (\w+ *=|\[)`)
	list := mustPropose(t, html(around(each(`<article><a href="/p/$N">$NAME</a></article>`)+`<a rel="next" href="?page=2">next</a>`))).TOML(`allow_private = true`)
	for _, text := range []string{scaffold.Starter, mustPropose(t, html("<h1>a</h1>")).TOML(), list} {
		c := load(t, hint.ReplaceAllString(text, "$1"))
		if len(c.Proxies) != 1 || len(c.Sinks) != 1 || len(c.Sources[0].Proxies) != 1 || text == list && len(c.Sources[0].Follow) != 1 {
			t.Errorf("not all hints are there:\n%s", text)
		}
	}
	load(t, scaffold.Starter)
}

// TestNumbered: where an address ends with a number, that can be the target.
func TestNumbered(t *testing.T) {
	for address, want := range map[string]string{
		"https://shop.example/p/12":              "https://shop.example/p/{id}",
		"https://shop1.example/12.html":          "https://shop1.example/{id}.html",
		"https://shop.example/p?lang=de&sku=7&a": "https://shop.example/p?lang=de&sku={id}&a",
		"https://shop.example/2026/12":           "",
		"https://shop.example/12/kettle":         "",
		"https://shop.example/p/{x}/12":          "",
		"https://shop.example/list?page=2":       "",
	} {
		page := html("<h1>a</h1>")
		page.URL = address
		text := mustPropose(t, page).TOML()
		_, template, _ := strings.Cut(text, "# url     = ")
		template, _, _ = strings.Cut(template, "\n")
		if strings.Trim(template, `"`) != want {
			t.Errorf("%s has the template %s", address, template)
			continue
		}
		if want == "" {
			continue
		}
		text = regexp.MustCompile(`(?m)^targets = .*\n.*\n# (url .*\n)# (targets .*\n)# (key .*\n)`).ReplaceAllString(text, "$1$2$3")
		s := load(t, text).Sources[0]
		if job, err := s.Job(s.Targets.Targets[0], time.Time{}); err != nil || job.URL != address {
			t.Errorf("by its id the page is %s (%v), want %s", job.URL, err, address)
		}
	}
}

// TestWeird: whatever HTML or JSON a page is, there is a config, and a note where it is
// for want of a better one.
func TestWeird(t *testing.T) {
	for name, page := range map[string]scaffold.Page{
		"frameset":  html(`<frameset><frame src="a.html"></frameset>`),
		"a number":  {Body: []byte(`42`), ContentType: "application/json"},
		"no values": html(`<div></div>`),
		"one value": html(`<title>Just a moment...</title>`),
		"deep":      html(strings.Repeat("<div>", 600) + "x"),
		"unclosed":  html(strings.Repeat("<b a><b b><b c><b d>", 100) + strings.Repeat("</p><p>x", 50_000)),
		"large":     html(strings.Repeat("<li>some text <b>5 €</b></li>", 25_001)),
	} {
		p, _ := propose(t, page)
		if len(p.Notes) < 2 || p.URL != scaffold.Placeholder {
			t.Errorf("%s: notes %q, address %s", name, p.Notes, p.URL)
		}
	}
	for _, body := range []string{"", " \n", "\x00\x01\x02\xff", "‰PNG\r\n\x1a\n and no zeros", "%PDF-1.7\n"} { // as UTF-8, which all pages are made
		if _, err := scaffold.Propose(html(body)); !errors.Is(err, scaffold.ErrNoText) {
			t.Errorf("%q: %v", body, err)
		}
	}
	if p, _ := propose(t, html(`<link rel="canonical" href="https://u:p@shop.example/">`)); p.URL != scaffold.Placeholder {
		t.Errorf("a canonical link with a login is the address %s", p.URL)
	}
	moved := scaffold.Page{Body: []byte("<h1>a</h1><h2 id=price>1 €</h2>"), URL: "https://shop.example/a", FinalURL: "https://shop.example/b"}
	if p, _ := propose(t, moved); len(p.Notes) != 1 || !strings.Contains(p.Notes[0], moved.FinalURL) {
		t.Errorf("of an address that redirects the notes are %q", p.Notes)
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
	for _, small := range []string{`{"hits":[{"id":1,"name":"x"}]}`, ` [{"id":1,"name":"x"},{"id":2,"name":"y"}]`} {
		if p, _ := propose(t, html(small)); p.Spec.Rows == nil || p.Spec.Key != "{id}" { // whatever its type
			t.Errorf("%s gives %s", small, p.TOML())
		}
	}
	list := scaffold.Page{Body: []byte(`{"hits":[{"id":1,"a b":"x"},{"id":2,"a b":"y"},{"id":3,"a b":"x"},{"id":4,"a b":"x"},{"id":5,"a b":"x"}]}`), ContentType: "application/json"}
	if p, record := propose(t, list); p.Spec.Key != "{id}" || string(record["a_b"]) != `"x"` {
		t.Errorf("a list gives %s", p.TOML())
	}
}

// TestInvalidJSON: a page that says that it is JSON, and is not, is refused with the
// place where it breaks.
func TestInvalidJSON(t *testing.T) {
	for body, want := range map[string]string{
		"{\"a\":[1,2\n":             "line 1, column 9: unexpected end of JSON input",
		"{\"ä\": 1,\n \"é\": x}":    "line 2, column 7: invalid character 'x' looking for beginning of value",
		"{\"a\":1}\n{\"a\":2}\n":    "line 2, column 1: invalid character '{' after top-level value",
		"<h1>Not what it says</h1>": "line 1, column 1: invalid character '<' looking for beginning of value",
	} {
		_, err := scaffold.Propose(scaffold.Page{Body: []byte(body), ContentType: "application/json"})
		if err == nil || err.Error() != "the page is not valid JSON: "+want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

// TestCurrencies: of amounts in several currencies the config says none.
func TestCurrencies(t *testing.T) {
	const one = `{"uuid":"a","name":"x","price":1.5,"currency":"EUR"}`
	for currency, want := range map[string]string{"EUR": `{"amount":"1.5","currency":"EUR"}`, "USD": `"1.5"`} {
		page := html("[" + one + "," + strings.NewReplacer("EUR", currency, `"a"`, `"b"`).Replace(one) + "]")
		if p, record := propose(t, page); string(record["price"]) != want || p.Spec.Key != "{uuid}" {
			t.Errorf("beside %s the price is %s, by\n%s", currency, record["price"], p.TOML())
		}
	}
}

func TestDeterministic(t *testing.T) {
	first := mustPropose(t, html(rowsPage)).TOML()
	for range 3 {
		if again := mustPropose(t, html(rowsPage)).TOML(); again != first {
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
		if _, err := scaffold.Propose(page); err == nil {
			propose(t, page)
		}
	})
}

func mustPropose(t testing.TB, page scaffold.Page) *scaffold.Proposal {
	t.Helper()
	p, err := scaffold.Propose(page)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
