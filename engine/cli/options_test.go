package cli

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"semel/engine"
	"semel/engine/config"
	"semel/storage"
)

// fullConfig sets everything that becomes an option, to other than its default.
const fullConfig = `version = 1
[store]
retain = { attempts = "5d", events = "6d" }
[engine]
workers = 7
lease = "90s"
user_agent = "tester"
robots = false
max_body = "1MB"
allow_private = true
[host."*"]
concurrency = 2
interval = "3s"
[host."slow.example"]
concurrency = 1
interval = "9s"
[proxy.gw]
budget = "2GB/day"
url = "http://gw.example:8080"
username = "env:USER_X"
password = "env:PASS_X"
session = "10m"
[source.full]
sticky = "20m"
targets = [{ n = "1" }]
key = "{n}"
identity = ["target", "scope"]
scope = "acme"
proxy = "gw"
headers = { Accept-Language = "de" }
timeout = "5s"
gone = "record"
blocked = { status = [406] }
priority = -3
write = "insert"
catch_up = "all"
[source.full.limits]
attempts = 2
time = "1h"
bytes = "1kB"
rescues = 4
[source.full.retry.read_timeout]
attempts = 3
base = "5s"
max = "7s"
[source.full.drift]
fall = 0.25
min = 8
jobs = 9
failed = 4
[source.full.parser]
version = 6
[source.full.parser.fields]
title = { css = "h1" }
[[source.full.step]]
name = "form"
url = "https://site.example/{n}"
capture = { token = { css = "input" } }
[[source.full.step]]
name = "send"
url = "https://site.example/send/{token}"
method = "POST"
headers = { Accept = "text/html" }
form = { n = "{n}" }
[[source.full.follow]]
css = "a.next"
source = "plain"
[source.plain]
url = "https://site.example/"
[source.plain.parser.fields]
title = { css = "h1" }
`

func loadText(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "semel.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, func(name string) string { return "value-of-" + name })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEngineOptions(t *testing.T) {
	c := loadText(t, fullConfig)
	sources, err := allSources(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := engineOptions(c, sources, slog.New(slog.DiscardHandler))
	if opts.Workers != 7 || opts.Lease != 90*time.Second || opts.UserAgent != "tester" || opts.Robots || opts.MaxBodyBytes != 1_000_000 || !opts.AllowPrivate {
		t.Errorf("engine options %+v", opts)
	}
	if want := (storage.Retention{Attempts: 5 * 24 * time.Hour, Events: 6 * 24 * time.Hour, Pages: 30 * 24 * time.Hour}); opts.Retention != want {
		t.Errorf("retention %+v, want %+v", opts.Retention, want)
	}
	for host, want := range map[string]engine.Pacing{
		"any.example": {Concurrency: 2, Interval: 3 * time.Second}, "slow.example": {Concurrency: 1, Interval: 9 * time.Second},
	} {
		if got := opts.Pacing(host); got != want {
			t.Errorf("pacing of %s: %+v, want %+v", host, got, want)
		}
	}
	if len(opts.Proxies) != 1 || opts.Proxies[0].Name != "gw" || opts.Proxies[0].Session != 10*time.Minute || opts.Proxies[0].Budget != 2e9 || opts.Proxies[0].Proxy == nil {
		t.Errorf("proxies %+v", opts.Proxies)
	}
	if e, err := engine.New(opts); err != nil {
		t.Errorf("the engine does not take them: %v", err)
	} else {
		e.Close()
	}
}

func TestEngineSource(t *testing.T) {
	c := loadText(t, fullConfig)
	got := engineSource(&c.Sources[0])
	want := engine.Source{
		Source: c.Sources[0].Source, Targets: c.Sources[0].Targets, Rules: c.Sources[0].Rules,
		Proxies: []string{"gw"}, Header: http.Header{"Accept-Language": {"de"}}, Timeout: 5 * time.Second, Gone: true,
		Write:        storage.WriteInsert,
		Limits:       engine.Limits{Attempts: 2, Time: time.Hour, Bytes: 1000, Rescues: 4},
		Retry:        map[storage.Category]engine.RetryPolicy{storage.CategoryReadTimeout: {Attempts: 3, Base: 5 * time.Second, Max: 7 * time.Second}},
		Blocked:      engine.BlockRules{Status: []int{406}},
		Drift:        storage.DriftPolicy{Fall: storage.Whole / 4, Min: 8, Jobs: 9, Failed: 4},
		IdentityText: c.Sources[0].IdentityText,
		Sticky:       20 * time.Minute,
		CatchUp:      engine.CatchUpAll,
		Follow:       c.Sources[0].Follow,
		Steps: []engine.Step{
			{Name: "form", URL: c.Sources[0].URL, Method: "GET", Header: http.Header{}, Captures: c.Sources[0].Steps[0].Captures},
			{
				Name: "send", URL: c.Sources[0].Steps[1].URL, Method: "POST", Header: http.Header{"Accept": {"text/html"}},
				Body: c.Sources[0].Steps[1].Body, Once: true,
			},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// A field that is added to engine.Source must come from somewhere, too.
	for i, v := 0, reflect.ValueOf(got); i < v.NumField(); i++ {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "Sinks" {
			t.Errorf("%s is not set though the config says everything", name)
		}
	}
	if plain := engineSource(&c.Sources[1]); plain.Proxies != nil || plain.Steps != nil || plain.Gone || plain.Write != storage.WriteUpsert {
		t.Errorf("a source without settings became %+v", plain)
	}
}

func TestAllSources(t *testing.T) {
	c := loadText(t, fullConfig)
	names := func(of ...string) string {
		t.Helper()
		sources, err := allSources(c, of)
		if err != nil {
			return err.Error()
		}
		var list []string
		for _, s := range sources {
			list = append(list, s.Name)
		}
		return strings.Join(list, " ")
	}
	for _, tt := range []struct {
		of   []string
		want string
	}{
		{nil, "full plain"},
		{[]string{"plain"}, "plain"},
		{[]string{"plain", "full", "plain"}, "plain full"},
		{[]string{"plain", "other"}, `unknown source "other"`},
	} {
		if got := names(tt.of...); got != tt.want {
			t.Errorf("allSources(%q) = %s, want %s", tt.of, got, tt.want)
		}
	}
}

// Owners must differ, or a dead process's leases would pass for a living one's.
func TestOwnerName(t *testing.T) {
	now := time.Now()
	a, b := ownerName(now), ownerName(now.Add(time.Millisecond))
	if a == b || strings.Count(a, ":") != 2 {
		t.Errorf("owners %q and %q", a, b)
	}
}
