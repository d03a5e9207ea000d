package simulation

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"semel/engine"
	"semel/engine/intake"
	"semel/engine/proxy"
	"semel/parser"
	"semel/storage"
)

const (
	timeout = 20 * time.Second // of an attempt
	lease   = 15 * time.Second // renewed at a third of it
	// margin is how long past its timeout the engine takes an attempt for
	// healthy.
	margin = 30 * time.Second
)

// Sinks of the catalog's events: one wants all that is told by default, the
// other what becomes of jobs.
const (
	hookSink  = "hook"
	auditSink = "audit"
)

var sinkNames = []string{hookSink, auditSink}

var (
	hook  = storage.Subscription{Sink: hookSink}
	audit = storage.Subscription{Sink: auditSink, Events: []string{storage.EventJobComplete, storage.EventJobFailed}}
)

// catalog is what every world collects: two sources at one host, one of them
// with windows under upsert, and one behind a proxy with a login, with windows
// under insert.
type catalog struct {
	sources  []engine.Source
	proxies  []engine.Proxy
	windowed []storage.NewJob // submitted while the engine works
}

// The days that are submitted, out of order.
var days = []int{2, 1, 3}

func newCatalog(t testing.TB) *catalog {
	gateway, err := proxy.New(proxy.Spec{
		Name: "home", URL: "http://gateway.test:8080", Username: "user", Password: "password",
		UsernameTemplate: "{username}-sid-{session}",
	})
	if err != nil {
		t.Fatal(err)
	}
	shop := newSource(t, "shop", "http://shop.test/p/{id}", storage.WriteUpsert, 5, hook, audit)
	shop.Targets.Targets = append(shop.Targets.Targets, target("gone-1"), target("bare-1"), target("gone-2"), target("bare-2"))
	news := newSource(t, "news", "http://shop.test/n/{id}", storage.WriteUpsert, 3, audit)
	market := newSource(t, "market", "http://market.test/i/{id}", storage.WriteInsert, 5, hook)
	market.Proxies = []string{"home"}
	c := &catalog{
		sources: []engine.Source{shop, news, market},
		proxies: []engine.Proxy{{Proxy: gateway, Name: "home"}},
	}
	for _, src := range []engine.Source{shop, market} {
		for _, day := range days {
			c.windowed = append(c.windowed, dayJob(t, src, "1", day), dayJob(t, src, "same", day))
		}
	}
	return c
}

// wants reports whether a source tells a sink of such events.
func (c *catalog) wants(source, sink, event string) bool {
	for _, src := range c.sources {
		if src.Name != source {
			continue
		}
		for _, s := range src.Sinks {
			if s.Sink == sink && (slices.Contains(s.Events, event) || s.Events == nil && event != storage.EventJobComplete) {
				return true
			}
		}
	}
	return false
}

// size is the number of jobs.
func (c *catalog) size() int {
	n := len(c.windowed)
	for _, src := range c.sources {
		n += len(src.Targets.Targets)
	}
	return n
}

func newSource(t testing.TB, name, url string, mode storage.WriteMode, targets int, sinks ...storage.Subscription) engine.Source {
	src := engine.Source{
		Source: intake.Source{
			Name: name, URL: template(t, url), Key: template(t, "{id}"),
			Identity: intake.Identity{Country: true, Window: true}, ParserVersion: 1,
		},
		Timeout: timeout, Write: mode, Rules: rules(t), Sinks: sinks, IdentityText: name,
		// Nothing may give up for want of attempts or time, or the end would
		// depend on what had happened before.
		Limits: engine.Limits{Attempts: 1000, Time: 10_000 * time.Hour, Bytes: 1 << 30, Rescues: 1000},
		Drift:  storage.DriftPolicy{Fall: storage.Whole, Min: 1_000_000, Jobs: storage.MaxDriftPages}, // pages are counted, and told by none
		Retry:  map[storage.Category]engine.RetryPolicy{},
	}
	for _, category := range repeated {
		src.Retry[category] = engine.RetryPolicy{Attempts: 1000, Base: time.Second, Max: 8 * time.Second}
	}
	for i := range targets {
		src.Targets.Targets = append(src.Targets.Targets, target(fmt.Sprint(i+1)))
	}
	return src
}

// repeated are the categories of all faults that pass.
var repeated = []storage.Category{
	storage.CategoryReadTimeout, storage.CategoryBodyTruncated, storage.CategoryThrottled, storage.CategoryServerError,
	storage.CategoryBlocked, storage.CategoryExitUnavailable, storage.CategoryExitConnect, storage.CategoryProxyLimited,
}

func target(id string) intake.Target {
	return intake.Target{Vars: intake.Vars{{Name: "id", Value: id}}}
}

func template(t testing.TB, text string) intake.Template {
	parsed, err := intake.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func rules(t testing.TB) *parser.Rules {
	compiled, err := parser.Compile(parser.Spec{Version: 1, Fields: []parser.Field{
		{Name: "title", Rule: parser.Rule{CSS: "h1"}, Required: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// dayJob is the job of a target for a day. Its page says which day it is of.
func dayJob(t testing.TB, src engine.Source, id string, day int) storage.NewJob {
	j, err := src.Job(target(id), time.Date(1999, 12, day, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(j.URL, "http://"), "/")
	return storage.NewJob{
		Key: j.Key, Window: j.Window, Version: src.ParserVersion, Host: host,
		URL:  fmt.Sprintf("%s?day=%d", j.URL, day),
		Vars: []storage.Var{{Name: "id", Value: id}},
	}
}

// page is what the site shows at a URL, in every world.
func page(url string) (status int, body string) {
	switch {
	case strings.Contains(url, "/gone-"):
		return http.StatusNotFound, "<h1>Not here</h1>"
	case strings.Contains(url, "/bare-"):
		return http.StatusOK, "<p>A page that lacks what the rules want.</p>"
	case strings.Contains(url, "/same?"): // the same on all days
		url, _, _ = strings.Cut(url, "?")
	}
	return http.StatusOK, "<h1>" + url + "</h1>"
}

// pacing is that of both hosts. The interval is odd, so that its multiples and
// those of the engine's own ticks are never at one instant.
func pacing(string) engine.Pacing {
	return engine.Pacing{Concurrency: 4, Interval: 150*time.Millisecond + 1009*time.Nanosecond}
}
