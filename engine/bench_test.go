package engine

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"
	"github.com/gocolly/colly/v2"

	"semel/engine/intake"
	"semel/parser"
	"semel/storage"
)

const (
	benchWorkers = 64
	benchSlice   = 4000 // pages of one contender before the next has its turn
)

// productSelectors are the six fields that every contender reads.
var productSelectors = []string{"h1", ".price", "span.sku", "p.lead", "li.stock", "time"}

// productPage is a product page of 20 KB, as a shop would serve it.
func productPage(id string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<!doctype html><html><head><title>%[1]s</title><meta charset="utf-8"></head><body><header><nav><ul>`, id)
	for i := range 40 {
		fmt.Fprintf(&b, `<li class="nav-item"><a href="/category/%d" class="link">Category number %d</a></li>`, i, i)
	}
	fmt.Fprintf(&b, `</ul></nav></header><main><h1>Product %[1]s</h1><span class="price">$19.90</span><span class="sku">%[1]s</span>
<p class="lead">A short text about it.</p><ul><li class="stock">in stock</li></ul><time datetime="2026-04-23">23 April</time><div class="description">`, id)
	for i := 0; b.Len() < 20<<10; i++ {
		fmt.Fprintf(&b, `<p class="text"><b>Point %d.</b> Plain words of a description that goes on &amp; on, with a <a href="/p/%d">link</a>.</p>`, i, i)
	}
	b.WriteString("</div></main></body></html>")
	return b.String()
}

// benchSite serves product pages over loopback, made beforehand.
func benchSite(b *testing.B) *httptest.Server {
	page := []byte(productPage("sku-000"))
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	}))
	b.Cleanup(site.Close)
	return site
}

func productRules(b *testing.B) *parser.Rules {
	var spec parser.Spec
	spec.Version = 1
	for i, css := range productSelectors {
		spec.Fields = append(spec.Fields, parser.Field{Name: fmt.Sprintf("f%d", i), Rule: parser.Rule{CSS: css}, Required: true})
	}
	rules, err := parser.Compile(spec)
	if err != nil {
		b.Fatal(err)
	}
	return rules
}

// plainLoop is what one writes by hand: net/http, goquery, and nothing kept.
func plainLoop(b *testing.B, base string, pages int) time.Duration {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchWorkers}}
	defer client.CloseIdleConnections()
	begin := time.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range benchWorkers {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(pages); n = next.Add(1) {
				resp, err := client.Get(fmt.Sprintf("%s/p/%d", base, n))
				if err != nil {
					b.Error(err)
					return
				}
				doc, err := goquery.NewDocumentFromReader(resp.Body)
				resp.Body.Close()
				if err != nil {
					b.Error(err)
					return
				}
				for _, css := range productSelectors {
					if strings.TrimSpace(doc.Find(css).First().Text()) == "" {
						b.Error("nothing at", css)
					}
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begin)
}

// plainColly is colly as its own examples use it.
func plainColly(b *testing.B, base string, pages int) time.Duration {
	c := colly.NewCollector(colly.Async(true))
	c.WithTransport(&http.Transport{MaxIdleConnsPerHost: benchWorkers})
	if err := c.Limit(&colly.LimitRule{DomainGlob: "*", Parallelism: benchWorkers}); err != nil {
		b.Fatal(err)
	}
	c.OnHTML("html", func(e *colly.HTMLElement) {
		for _, css := range productSelectors {
			if strings.TrimSpace(e.DOM.Find(css).First().Text()) == "" {
				b.Error("nothing at", css)
			}
		}
	})
	begin := time.Now()
	for n := range pages {
		if err := c.Visit(fmt.Sprintf("%s/c/%d-%d", base, begin.UnixNano(), n)); err != nil {
			b.Fatal(err)
		}
	}
	c.Wait()
	return time.Since(begin)
}

// semelRun is the whole path: claim, fetch, parse, durable commit. The jobs
// are there beforehand.
func semelRun(b *testing.B, base string, rules *parser.Rules, pages int) time.Duration {
	store, err := storage.Open(filepath.Join(b.TempDir(), "semel.db"), storage.Options{Gather: Gather})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	src := source(b, pages)
	src.URL, src.Rules, src.Drift = template(b, base+"/p/{id}"), rules, driftUsual
	opts := Options{
		Store: store, Owner: "bench", Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Workers: benchWorkers, Lease: 2 * time.Minute, UserAgent: "semel-bench", MaxBodyBytes: 10 << 20, AllowPrivate: true,
		Pacing: pacing(benchWorkers, 0), Sources: []Source{src},
	}
	queue, err := New(opts)
	if err != nil {
		b.Fatal(err)
	}
	defer queue.Close()
	if err := queue.enqueueAll(b.Context(), true); err != nil {
		b.Fatal(err)
	}
	opts.Sources[0].Targets = intake.Spec{} // they are jobs by now
	e, err := New(opts)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	begin := time.Now()
	sum, err := e.RunOnce(b.Context())
	if err != nil || sum.Completed != pages {
		b.Fatal(sum, err)
	}
	return time.Since(begin)
}

// BenchmarkPages compares the whole path with a loop that stores nothing and
// with plain colly: same site, same workers, same garbage collector, taking
// turns, so that a noisy minute hits all three, and the same number of threads. The bounds are those of the
// README; the ratios are rates, ours over theirs.
func BenchmarkPages(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 1)) // as semel run sets it; for all three
	site, rules := benchSite(b), productRules(b)
	var ours, plain, coll time.Duration
	pages := 0
	for b.Loop() {
		ours += semelRun(b, site.URL, rules, benchSlice)
		plain += plainLoop(b, site.URL, benchSlice)
		coll += plainColly(b, site.URL, benchSlice)
		pages += benchSlice
	}
	b.ReportMetric(float64(pages)/ours.Seconds(), "pages/s")
	b.ReportMetric(plain.Seconds()/ours.Seconds(), "to-plain-loop")
	b.ReportMetric(coll.Seconds()/ours.Seconds(), "to-plain-colly")
	b.ReportMetric(0, "ns/op")
}
