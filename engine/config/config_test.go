package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"semel/engine/broker"
	"semel/engine/delivery"
	"semel/engine/intake"
	"semel/engine/proxy"
	"semel/parser"
	"semel/storage"
	"semel/storage/storagetest"
)

// write puts a config, and files beside it, into a folder of the test.
func write(t *testing.T, text string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "semel.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// hookSecret is a secret as webhooks want it.
const hookSecret = "whsec_c2VjcmV0LW9mLUhPT0tfU0VDUkVUIDI0IGJ5dGVz"

// secretOf answers for environment variables.
func secretOf(name string) string {
	if name == "HOOK_SECRET" {
		return hookSecret
	}
	return "secret-of-" + name
}

// mustLoad loads a config that has to be good.
func mustLoad(t *testing.T, text string, files map[string]string) *Config {
	t.Helper()
	c, err := Load(write(t, text, files), secretOf)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEmptyFileIsDefault(t *testing.T) {
	c := mustLoad(t, "version = 1", nil)
	want := Default()
	want.File = c.File
	want.Store.Path = filepath.Join(filepath.Dir(c.File), "semel.db")
	if diff := cmp.Diff(want, c, cmp.AllowUnexported(Secret{}, broker.Server{})); diff != "" {
		t.Error(diff)
	}
}

func TestServer(t *testing.T) {
	for listen, token := range map[string]string{
		"": "", "127.0.0.1:7467": "", "[::1]:0": "", "localhost:7467": "", "LocalHost:80": "env:T", "0.0.0.0:7467": "env:T", ":7467": "env:T", "box.lan:7467": "env:T",
	} {
		c := mustLoad(t, fmt.Sprintf("version = 1\n[server]\nlisten = %q\ntoken = %q\n", listen, token), nil)
		if c.Server.Listen != listen || (c.Server.Token == Secret{}) != (token == "") || token != "" && c.Server.Token.Reveal() != "secret-of-T" {
			t.Errorf("%q, %q: %+v", listen, token, c.Server)
		}
	}
}

func TestSettingsArrive(t *testing.T) {
	c := mustLoad(t, `
version = 1
[store]
path = "data/x.db"
bodies = "all"
retain = { attempts = "1h", events = "" }
[engine]
workers = 3
lease = "1d12h"
user_agent = "ua"
robots = false
max_body = "1.5MiB"
allow_private = true
[proxy.p]
provider = "packetstream"
username = "env:U"
password = "file:key"
session = "10m"
[source.a]
url = "https://example.com/{sku}"
targets = "skus.csv"
key = "{sku}"
identity = ["target", "scope", "parser"]
country = "us"
scope = "s"
proxy = ["p"]
headers = { accept = "text/html", X-Api-Key = "env:K" }
timeout = "5m"
gone = "record"
blocked = { status = [406, 200], text = ["a.B?"], css = "#x" }
priority = -5
write = "insert"
schedule = "0 15 * * 1-5"
timezone = "Europe/Berlin"
catch_up = "all"
limits = { attempts = 2, time = "30d", bytes = "2kB", rescues = 7 }
drift = { fall = 1, min = 7, jobs = 9 }
retry.throttled = { attempts = 4, base = "1s", max = "2s" }
parser.version = 9
`, map[string]string{"key": "pass\n", "skus.csv": "sku\n1\n"})
	dir := filepath.Dir(c.File)
	engine := Engine{Workers: 3, Lease: 36 * time.Hour, UserAgent: "ua", MaxBodyBytes: 3 << 19, AllowPrivate: true}
	if diff := cmp.Diff(engine, c.Engine); diff != "" {
		t.Error(diff)
	}
	store := Store{Path: filepath.Join(dir, "data", "x.db"), Bodies: BodiesAll, Retain: Retain{Attempts: time.Hour, Bodies: 30 * day}}
	if diff := cmp.Diff(store, c.Store); diff != "" {
		t.Error(diff)
	}
	s := c.Source("a")
	got := []any{
		s.URL.String(), s.Key.String(), s.Country.String(), s.Scope.String(), s.Identity, s.ParserVersion, s.Targets,
		slices.Equal(s.Proxies, []*Proxy{&c.Proxies[0]}), s.Proxies[0].Session, s.Timeout, s.Gone, s.Priority, s.Write, s.Schedule.String(), s.Schedule.Zone(), s.CatchUp, s.Limits, s.Drift, s.Retry, s.Rules.Version(),
	}
	want := []any{
		"https://example.com/{sku}", "{sku}", "us", "s", intake.Identity{Scope: true, Parser: true}, 9,
		intake.Spec{Kind: intake.CSV, Path: filepath.Join(dir, "skus.csv")},
		true, 10 * time.Minute, 5 * time.Minute, GoneRecord, int8(-5), WriteInsert, "0 15 * * 1-5", "Europe/Berlin", CatchUpAll,
		Limits{Attempts: 2, Time: 30 * day, Bytes: 2000, Rescues: 7},
		storage.DriftPolicy{Fall: storage.Whole, Min: 7, Jobs: 9, Failed: 5},
		map[storage.Category]RetryPolicy{storage.CategoryThrottled: {Attempts: 4, Base: time.Second, Max: 2 * time.Second}}, 9,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	blocked := s.Blocked
	if fmt.Sprint(blocked.Status) != "[406 200]" || len(blocked.Text) != 1 || blocked.CSS.String() != "#x" {
		t.Errorf("blocked = %+v", blocked)
	}
	if text := blocked.Text[0]; !text.MatchString("XA.b?x") || text.MatchString("aXb") {
		t.Errorf("blocked.text = %s", text)
	}
	header := s.RequestHeader()
	if header.Get("Accept") != "text/html" || header.Get("X-Api-Key") != "secret-of-K" {
		t.Errorf("headers = %v", header)
	}
	endpoint, err := s.Proxies[0].Proxy.Endpoint(proxy.Exit{Country: "US"})
	if err != nil {
		t.Fatal(err)
	}
	if pass, _ := endpoint.URL().User.Password(); !strings.HasPrefix(pass, "pass_") || endpoint.URL().User.Username() != "secret-of-U" {
		t.Errorf("login = %s", endpoint.URL())
	}
}

// TestOrder: what has an order in the file keeps it.
func TestOrder(t *testing.T) {
	c := mustLoad(t, `
version = 1
[source.zulu]
url = "https://example.com/{z}/{a}"
targets = [{ z = 1, a = true }, { a = "x", z = "y" }]
[source.zulu.parser.fields]
z = { const = "z" }
"b" = { const = "b" }
[source.alpha]
targets = ["https://example.com/2", "https://example.com/1"]
[source.zulu.parser.fields.a]
const = "a"
`, nil)
	if c.Sources[0].Name != "zulu" || c.Sources[1].Name != "alpha" {
		t.Errorf("sources are %s, %s", c.Sources[0].Name, c.Sources[1].Name)
	}
	var vars []intake.Vars
	for _, s := range c.Sources {
		for _, target := range s.Targets.Targets {
			vars = append(vars, target.Vars)
		}
	}
	want := []intake.Vars{
		{{Name: "z", Value: "1"}, {Name: "a", Value: "true"}}, {{Name: "a", Value: "x"}, {Name: "z", Value: "y"}},
		{{Name: "url", Value: "https://example.com/2"}}, {{Name: "url", Value: "https://example.com/1"}},
	}
	if diff := cmp.Diff(want, vars); diff != "" {
		t.Error(diff)
	}
	if line := c.Sources[0].Targets.Targets[1].Line; line != 5 {
		t.Errorf("line of a target = %d, want 5", line)
	}
}

func TestOffValues(t *testing.T) {
	mustLoad(t, `
version = 1
[store]
bodies = "none"
retain = { attempts = "", events = "", bodies = "" }
[server]
listen = ""
token = ""
[proxy.p]
url = "http://gw.example.com:1"
budget = ""
price = ""
[source.a]
url = "https://example.com/"
proxy = ""
schedule = ""
timezone = "UTC"
catch_up = "latest"
sinks = []
sticky = ""
method = "GET"
form = {}
json = {}
repeatable = true
blocked = { status = [], text = [], css = "" }
follow = []
step = []
parser.fields = { x = { css = "h1", step = "" } }
`, nil)
}

func TestSinks(t *testing.T) {
	c := mustLoad(t, `
version = 1
[sink.news]
type = "file"
path = "out/news.jsonl"
rotate = "1kB"
events = ["job.complete", "run.finished"]
attempts = 3
time = "1d"
timeout = "1m"
[sink.all]
type = "file"
path = "/var/all.jsonl"
rotate = ""
[sink.hook]
type = "command"
command = ["./hook", ""]
in_flight = 9
[sink.plain]
type = "command"
command = ["hook"]
[source.a]
url = "https://example.com/"
sinks = ["all", "news"]
`, nil)
	dir := filepath.Dir(c.File)
	limits := delivery.Limits{Attempts: 15, Time: 72 * time.Hour}
	want := []Sink{
		{
			Sink: delivery.Sink{
				Name: "news", Transport: delivery.NewFile(filepath.Join(dir, "out", "news.jsonl"), 1000), InFlight: 1, Batch: delivery.FileBatch,
				Timeout: time.Minute, Limits: delivery.Limits{Attempts: 3, Time: day},
			},
			Type: "file", Events: []string{storage.EventJobComplete, storage.EventRunFinished}, Path: filepath.Join(dir, "out", "news.jsonl"),
		},
		{
			Sink: delivery.Sink{Name: "all", Transport: delivery.NewFile("/var/all.jsonl", 0), InFlight: 1, Batch: delivery.FileBatch, Timeout: 10 * time.Second, Limits: limits},
			Type: "file", Path: "/var/all.jsonl",
		},
		{
			Sink: delivery.Sink{Name: "hook", Transport: delivery.NewCommand(dir, []string{"./hook", ""}), InFlight: 9, Batch: 1, Timeout: 10 * time.Second, Limits: limits},
			Type: "command",
		},
		{
			Sink: delivery.Sink{Name: "plain", Transport: delivery.NewCommand(dir, []string{"hook"}), InFlight: 4, Batch: 1, Timeout: 10 * time.Second, Limits: limits},
			Type: "command",
		},
	}
	opaque := cmp.Exporter(func(reflect.Type) bool { return true })
	if diff := cmp.Diff(want, c.Sinks, opaque, cmpopts.IgnoreTypes(&slog.Logger{}), cmpopts.IgnoreFields(Sink{}, "needs")); diff != "" {
		t.Error(diff)
	}
	subscriptions := []storage.Subscription{{Sink: "all"}, {Sink: "news", Events: []string{storage.EventJobComplete, storage.EventRunFinished}}}
	if diff := cmp.Diff(subscriptions, c.Sources[0].Sinks); diff != "" {
		t.Error(diff)
	}
}

func TestHosts(t *testing.T) {
	c := mustLoad(t, `
version = 1
[host."Shop.example.com"]
concurrency = 1
[host."*.example.com"]
interval = "9s"
[host."*"]
concurrency = 7
[host."bücher.example"]
concurrency = 2
[host."::1"]
concurrency = 3
`, nil)
	for _, test := range []struct {
		host        string
		concurrency int
		interval    time.Duration
	}{
		{"shop.example.com", 1, 250 * time.Millisecond},
		{"SHOP.example.com.", 1, 250 * time.Millisecond},
		{"www.example.com", 7, 9 * time.Second},
		{"a.b.example.com", 7, 9 * time.Second},
		{"example.com", 7, 250 * time.Millisecond},
		{"notexample.com", 7, 250 * time.Millisecond},
		{"xn--bcher-kva.example", 2, 250 * time.Millisecond},
		{"::1", 3, 250 * time.Millisecond},
		{"127.0.0.1", 7, 250 * time.Millisecond},
	} {
		if h := c.Host(test.host); h.Concurrency != test.concurrency || h.Interval != test.interval {
			t.Errorf("Host(%s) = %+v", test.host, h)
		}
	}
}

// TestTargetsFileGone: a file of targets that is not there is told, and does not
// keep the config from loading.
func TestTargetsFileGone(t *testing.T) {
	c := mustLoad(t, "version = 1\n[source.a]\nurl = \"https://example.com/{sku}\"\ntargets = \"skus.csv\"", nil)
	if err := c.Sources[0].TargetsErr; !errors.Is(err, os.ErrNotExist) {
		t.Errorf("TargetsErr = %v", err)
	}
	c = mustLoad(t, "version = 1\n[source.a]\ntargets = \"urls.txt\"", map[string]string{"urls.txt": ""})
	if err := c.Sources[0].TargetsErr; err != nil {
		t.Errorf("TargetsErr = %v", err)
	}
	_, err := Load(filepath.Join(t.TempDir(), "no.toml"), os.Getenv)
	if faults, ok := errors.AsType[Errors](err); ok || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load of no file = %v, %v", err, faults)
	}
}

// TestIdentityText: only what makes two jobs the same counts.
func TestIdentityText(t *testing.T) {
	identity := func(settings string) string {
		c := mustLoad(t, "version = 1\n[source.a]\nurl = \"https://example.com/\"\n"+settings, nil)
		return c.Sources[0].IdentityText
	}
	base := identity("")
	if want := "identity: target, country, window; key: the normalised URL"; base != want {
		t.Fatalf("identity %q, want %q", base, want)
	}
	for settings, same := range map[string]bool{
		`identity = ["window", "country", "target"]`: true,
		`timeout = "5s"`:                   true,
		`country = "US"`:                   true,
		`parser.fields.x.css = "h1"`:       true,
		`identity = ["target", "country"]`: false,
		`key = "all"`:                      false,
		`write = "insert"`:                 true,
		`write = "append"`:                 false,
		`write = "replace"`:                false,
	} {
		if got := identity(settings); (got == base) != same {
			t.Errorf("%s: same identity: %t, want %t", settings, got == base, same)
		}
	}
}

func TestLoadWithoutSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.toml")
	text := "version = 1\n[proxy.home]\nurl = \"http://gw.example:1\"\nusername = \"env:NOT_SET\"\npassword = \"file:not-there\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, func(string) string { return "" }); err == nil {
		t.Error("missing secrets were accepted")
	}
	c, err := Load(path, nil)
	if err != nil || c.Proxies[0].Proxy == nil {
		t.Errorf("without secrets: %v", err)
	}
}

func TestSecretCannotPrint(t *testing.T) {
	s := NewSecret("hunter2")
	holder := struct {
		Secret Secret
		hidden Secret
		list   []Header
	}{s, s, []Header{{"Authorization", s}}}
	encoded, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"Secret":"[secret]"}`; string(encoded) != want {
		t.Errorf("as JSON it is %s, want %s", encoded, want)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "holder", holder)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", s, "holder", holder)
	shown := string(encoded) + log.String() + fmt.Sprint(s, &s, holder, &holder) + fmt.Errorf("x: %v", s).Error()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown += fmt.Sprintf(verb+verb+verb, s, holder, &holder)
	}
	for _, leak := range []string{"hunter2", fmt.Sprintf("%x", "hunter2")} {
		if strings.Contains(shown, leak) {
			t.Errorf("the secret is shown: %s", shown)
		}
	}
	if s.Reveal() != "hunter2" || (Secret{}).Reveal() != "" {
		t.Error("Reveal does not reveal")
	}
}

// example reads config.example.toml; all: with the settings that are not acted
// on yet, too.
func example(t *testing.T, all bool) string {
	t.Helper()
	content, err := os.ReadFile("../../config.example.toml")
	if err != nil {
		t.Fatal(err)
	}
	if !all {
		return string(content)
	}
	return regexp.MustCompile(`(?m)^#([^ \n])`).ReplaceAllString(string(content), "$1")
}

func TestExampleLoads(t *testing.T) {
	c := mustLoad(t, example(t, false), nil)
	want := Default()
	if diff := cmp.Diff(want.Engine, c.Engine); diff != "" {
		t.Errorf("the example's engine is not the default (-default +example):\n%s", diff)
	}
	want.Store.Path = filepath.Join(filepath.Dir(c.File), want.Store.Path)
	if c.Hosts[0] != want.Hosts[0] || c.Store != want.Store || c.Server != want.Server {
		t.Errorf("the example's pacing, store or server is not the default: %+v %+v %+v", c.Hosts[0], c.Store, c.Server)
	}
	got, source := c.Sources[0], defaultSource()
	if got.Timeout != source.Timeout || got.Gone != source.Gone || got.Write != source.Write || got.Limits != source.Limits || got.Drift != source.Drift || got.Priority != 0 {
		t.Errorf("the example's source does not have the defaults: %+v", got)
	}
}

// TestExampleIsWhole: every key of the schema stands in the example, and nothing
// stands there that is no key.
func TestExampleIsWhole(t *testing.T) {
	text := example(t, true)
	l := newLoader(filepath.Join(t.TempDir(), "x"), secretOf)
	root, err := parse("x", text)
	if err != nil {
		t.Fatal(err)
	}
	l.config(root, Default())
	for _, e := range l.errs {
		t.Errorf("in the example: %v", e)
	}
	for kind, keys := range l.known {
		for _, key := range keys {
			if kind != "rows" && kind != "capture" && !(kind == "source" && key == "json") && !slices.ContainsFunc(l.seen[kind], func(n *node) bool { return n.member(key) != nil }) {
				t.Errorf("%s of %s is not in the example", key, kind)
			}
		}
	}
	for _, kind := range []string{
		"config", "store", "retain", "engine", "server", "host", "proxy", "sink", "file sink", "command sink", "source", "limits", "retry", "blocked", "drift",
		"follow", "step", "capture", "parser", "field",
	} {
		if len(l.known[kind]) == 0 {
			t.Errorf("no table of kind %s was read", kind)
		}
	}
}

func TestRequests(t *testing.T) {
	c := mustLoad(t, `
version = 1
[source.plain]
url = "https://example.com/"
[source.search]
url = "https://example.com/search/{cat}"
key = "{cat}-{q}"
method = "POST"
targets = [{ cat = "a", q = "x y" }]
form = { q = "{q}", "n&" = [1, true], note = "{{}}", pw = "env:PW" }
[source.api]
url = "https://example.com/api"
method = "PUT"
repeatable = true
headers = { Content-Type = "application/vnd.api+json" }
json = { key = "env:KEY", q = "{q}", deep = { list = [1, -2.5, true, "<{q}>"], none = {} }, "a\"b" = "" }
targets = [{ q = "é\"" }]
key = "{q}"
`, nil)
	vars := intake.Vars{{Name: "cat", Value: "a"}, {Name: "q", Value: "é\" &"}}
	for i, want := range []struct {
		method, kind, body string
		repeatable         bool
	}{
		{"GET", "", "", true},
		{"POST", "application/x-www-form-urlencoded", "q=%C3%A9%22+%26&n%26=1&n%26=true&note=%7B%7D&pw=secret-of-PW", false},
		{"PUT", "application/json", `{"key":"secret-of-KEY","q":"é\" &","deep":{"list":[1,-2.5,true,"<é\" &>"],"none":{}},"a\"b":""}`, true},
	} {
		s := c.Sources[i]
		if len(s.Steps) != 1 || s.Sticky != 0 {
			t.Fatalf("%s: %+v", s.Name, s.Steps)
		}
		step := s.Steps[0]
		body, err := step.Body.Expand(vars)
		if err != nil || string(body) != want.body || step.Body.ContentType() != want.kind || step.Method != want.method || step.Repeatable != want.repeatable || step.Name != "" {
			t.Errorf("%s: %+v with body %s (%v)", s.Name, step, body, err)
		}
	}
}

func TestWorkflow(t *testing.T) {
	c := mustLoad(t, `
version = 1
[source.quote]
key = "{zip}"
targets = [{ zip = "10001" }, { zip = "94103" }]
[[source.quote.step]]
name = "form"
url = "https://example.com/quote?zip={zip}"
headers = { Accept = "text/html" }
[source.quote.step.capture]
token = { css = "input", attr = "value", required = true }
next = { css = "a", attr = "href", type = "url", last = true, default = "https://example.com/next" }
ids = { css = "li", join = "," }
[[source.quote.step]]
name = "pay"
url = "{next}"
method = "POST"
form = { token = "{token}", zip = "{zip}", ids = "{ids}" }
capture = { id = { json = ".id" } }
[[source.quote.step]]
name = "result"
url = "https://{zip}.example.com/{id}"
repeatable = false
[source.quote.parser.fields]
token = { css = "input", step = "form" }
price = { css = ".price" }
[source.long]
sticky = "60m"
[[source.long.step]]
name = "a"
url = "https://example.com/"
`, nil)
	s := c.Sources[0]
	var got []string
	for _, step := range s.Steps {
		got = append(got, fmt.Sprint(step.Name, " ", step.Method, " ", step.URL, " ", step.Body.Vars(), " ", step.Captures != nil, " ", step.Repeatable, " ", len(step.RequestHeader())))
	}
	want := []string{
		"form GET https://example.com/quote?zip={zip} [] true true 1",
		"pay POST {next} [token zip ids] true false 0",
		"result GET https://{zip}.example.com/{id} [] false false 0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if s.Sticky != 10*time.Minute || c.Sources[1].Sticky != time.Hour || s.URL.String() != s.Steps[0].URL.String() || !slices.Equal(s.Rules.Steps(), []string{"form"}) {
		t.Errorf("sticky %s and %s, url %s, rules read %v", s.Sticky, c.Sources[1].Sticky, s.URL, s.Rules.Steps())
	}
	page := `<input value="t"><a href="/first"></a><a href="/last"></a><li>1<li>2`
	out, err := s.Steps[0].Captures.Parse(parser.Input{Body: []byte(page), FinalURL: "https://example.com/", Target: "1"})
	if want := `{"token":"t","next":"https://example.com/last","ids":"1,2"}`; err != nil || string(out.Records[0].Data) != want {
		t.Errorf("captured %+v (%v), want %s", out.Records, err, want)
	}
	job, err := s.Job(s.Targets.Targets[1], time.Time{})
	if err != nil || job.URL != "https://example.com/quote?zip=94103" || job.Key.String() != "quote:94103:-:-:-:-" {
		t.Errorf("job %+v (%v)", job, err)
	}
}

// TestFewestDriftJobs: of the fewest last pages that may be looked at all together tell
// that a field is gone which a thousand had, and of fewer none would.
func TestFewestDriftJobs(t *testing.T) {
	for jobs, want := range map[int]bool{storage.MinDriftPages: true, storage.MinDriftPages - 1: false} {
		s := storagetest.Open(t)
		told := false
		err := s.Update(t.Context(), func(tx *storage.Tx) error {
			if _, err := tx.EnqueueJob(storage.NewJob{Key: storage.JobKey{Source: "s", Target: "a"}, URL: "http://s.test/", Host: "s.test"}); err != nil {
				return err
			}
			_, err := tx.ClaimJobs("me", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
			for page := 0; page < 2000 && err == nil; page++ {
				title := storage.FieldReading{Name: "title", Records: 1, Filled: 1}
				if page >= 999 { // of 1,000 the store forgets half
					title.Filled = 0
				}
				var news storage.DriftNews
				news, err = tx.CountPage(storage.Reading{
					Lane: 1, Version: 1, Job: 1, Generation: 1, Records: 1, Fields: []storage.FieldReading{{Required: true}, title},
				}, storage.DriftPolicy{Fall: storage.Whole / 2, Min: 1, Jobs: jobs}, nil)
				told = told || len(news.Began) > 0
			}
			return err
		})
		if err != nil || told != want {
			t.Errorf("%d last pages tell: %t (%v)", jobs, told, err)
		}
	}
}
