package parser

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"
)

// productPage is a made-up product page of some 20 KB, its six fields spread
// over it.
func productPage() []byte {
	var b strings.Builder
	b.WriteString(`<!doctype html><html><head><title>Blue kettle</title><meta name="description" content="A kettle">`)
	for i := range 20 {
		fmt.Fprintf(&b, `<link rel="preload" href="/assets/%d.css">`, i)
	}
	b.WriteString(`</head><body><nav><ul>`)
	for i := range 60 {
		fmt.Fprintf(&b, `<li class="nav-item level-%d"><a href="/c/%d">Category %d</a></li>`, i%3, i, i)
	}
	b.WriteString(`</ul></nav><main><h1 class="title">Blue kettle, 1.7 l</h1><span class="sku">KET-17</span>`)
	b.WriteString(`<p class="price"><span>$1,019.90</span></p><span class="stock">In stock</span><div class="text">`)
	for i := range 130 {
		fmt.Fprintf(&b, `<p>Paragraph %d says <b>something</b> about the kettle &amp; its <i>many</i> uses.</p>`, i)
	}
	b.WriteString(`</div><img class="gallery" src="/img/1.jpg"><footer>`)
	for i := range 60 {
		fmt.Fprintf(&b, `<a class="foot" href="/f/%d">Footer link %d</a>`, i, i)
	}
	b.WriteString(`<time datetime="2026-04-23 15:04">today</time></footer></body></html>`)
	return []byte(b.String())
}

func productRules(tb testing.TB) *Rules {
	return mustCompile(tb, Spec{Version: 1, Fields: []Field{
		{Name: "title", Rule: Rule{CSS: "h1"}, Required: true},
		{Name: "sku", Rule: Rule{CSS: ".sku"}},
		{Name: "price", Rule: Rule{CSS: ".price"}, Type: "money", Currency: "USD", Decimal: "."},
		{Name: "stock", Rule: Rule{CSS: ".stock"}, Map: map[string]string{"In stock": "in_stock"}},
		{Name: "updated", Rule: Rule{CSS: "time"}, Attr: "datetime", Type: "timestamp", Layout: "2006-01-02 15:04"},
		{Name: "images", Rule: Rule{CSS: "img.gallery"}, Attr: "src", Type: "url", Many: true},
	}})
}

// plainGoquery is what a program without rules does for the same six values.
func plainGoquery(tb testing.TB, body []byte) int {
	doc, err := goquery.NewDocumentFromReader(bytes.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	n := len(doc.Find("h1").Text()) + len(doc.Find(".sku").Text()) + len(doc.Find(".price").Text()) + len(doc.Find(".stock").Text())
	when, _ := doc.Find("time").Attr("datetime")
	src, _ := doc.Find("img.gallery").Attr("src")
	return n + len(when) + len(src)
}

// BenchmarkSixFields reports how much longer records of six fields take than
// goquery's parse and six Finds alone, both sides by turns in one run.
func BenchmarkSixFields(b *testing.B) {
	body, rules := productPage(), productRules(b)
	in := Input{Body: body, FinalURL: "https://shop.example/p/1", Target: "1"}
	var ours, plain time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := rules.Parse(in); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		plainGoquery(b, body)
		ours, plain = ours+middle.Sub(start), plain+time.Since(middle)
	}
	b.ReportMetric(float64(ours)/float64(plain), "x-goquery")
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N), "µs/page")
}

// BenchmarkFields is the parser alone.
func BenchmarkFields(b *testing.B) {
	in := Input{Body: productPage(), FinalURL: "https://shop.example/p/1", Target: "1"}
	rules := productRules(b)
	b.SetBytes(int64(len(in.Body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rules.Parse(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNormalizeURL(b *testing.B) {
	for b.Loop() {
		if _, err := NormalizeURL("https://Shop.example:443/a/./b/%7euser?q=1&r=a%20b#top"); err != nil {
			b.Fatal(err)
		}
	}
}
