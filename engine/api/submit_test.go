package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/engine/config"
	"semel/storage"
	"semel/storage/storagetest"
)

const shopText = `version = 1
[proxy.home]
provider = "packetstream"
username = "env:U"
password = "env:P"
[source.shop]
url = "http://x.test/{n}"
key = "{n}"
country = "{c}"
targets = [{ n = "1", c = "US" }]
[source.shop.parser.fields]
t = { css = "h1" }
[source.urls]
targets = ["http://x.test/"]
proxy = "home"
identity = ["target"]
[source.urls.parser.fields]
t = { css = "h1" }
[source.daily]
url = "http://x.test/{n}"
key = "{n}"
targets = [{ n = "1" }]
schedule = "0 3,15 * * *"
[source.daily.parser.fields]
t = { css = "h1" }
[source.front]
url = "http://x.test/front"
[source.front.parser.fields]
t = { css = "h1" }
`

// shopping is a service over a store for the sources of shopText.
func shopping(t *testing.T, store *storage.Store) *Local {
	t.Helper()
	path := filepath.Join(t.TempDir(), "semel.toml")
	if err := os.WriteFile(path, []byte(shopText), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Local{Store: store, Config: c}
}

// post submits over HTTP, under a key unless it is "".
func post(h http.Handler, key, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/v1/jobs", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	h.ServeHTTP(w, r)
	return w
}

const (
	us42 = `{"source":"shop","vars":{"n":"42","c":"us"}}`
	key  = "8e03978e-40d5-43dd-bc93-6894a57f9324"
)

// wantPost compares a whole answer.
func wantPost(t *testing.T, w *httptest.ResponseRecorder, status int, replayed, body string) {
	t.Helper()
	if w.Code != status || w.Header().Get("Idempotent-Replayed") != replayed || strings.TrimSpace(w.Body.String()) != body {
		t.Errorf("%d %v\n%s\nwant %d, replayed %q\n%s", w.Code, w.Header(), w.Body, status, replayed, body)
	}
	if got := w.Header().Get("Location"); status < 300 && !strings.Contains(body, `{"id":`+strings.TrimPrefix(got, "/v1/jobs/")+",") {
		t.Errorf("Location %q", got)
	}
}

// shown is the job of us42.
func shown(state, category string, made bool) string {
	flag := map[bool]string{true: "true", false: "false"}[made]
	return `{"id":1,"key":"shop:42:US:-:-:-","source":"shop","state":"` + state + `","generation":0,"attempts":0,"category":` + category +
		`,"next_at":null,"window":null,"country":"US","url":"http://x.test/42","new":` + flag + `}`
}

// The same request gets the same answer, the job as it is now; without a key
// the job's own decides.
func TestSubmit(t *testing.T) {
	l := shopping(t, storagetest.Open(t))
	h := NewHandler(l, "")
	wantPost(t, post(h, key, us42), 201, "", shown("pending", "null", true))
	wantPost(t, post(h, key, us42), 201, "true", shown("pending", "null", true))
	wantPost(t, post(h, key, " { \"vars\" : {\"c\":\"us\", \"n\":42},\n\"window\":null, \"source\":\"shop\"}\n"), 201, "true", shown("pending", "null", true))
	wantPost(t, post(h, "", us42), 200, "", shown("pending", "null", false))
	wantPost(t, post(h, "other", us42), 200, "", shown("pending", "null", false))
	if _, err := changed(t, l.Cancel, Selection{Refs: []string{"1"}}); err != nil {
		t.Fatal(err)
	}
	wantPost(t, post(h, key, us42), 201, "true", shown("failed", `"canceled"`, true))
	wantPost(t, post(h, "other", us42), 200, "true", shown("failed", `"canceled"`, false))
	wantPost(t, post(h, "third", us42), 200, "", shown("failed", `"canceled"`, false)) // not queued again
	for _, body := range []string{
		`{"source":"shop","vars":{"n":"43","c":"us"}}`, `{"source":"shop","vars":{"n":"42","c":"us"},"country":"us"}`, `{"source":"none","vars":{}}`,
	} {
		if w := post(h, key, body); w.Code != 422 || !strings.Contains(w.Body.String(), problemType+"key_reused") {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	if n := len(list(t, l, JobFilter{})); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

// What was answered is answered again by the next process, even where its
// config no longer has the source.
func TestReplayAfterRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	store, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	wantPost(t, post(NewHandler(shopping(t, store), ""), key, us42), 201, "", shown("pending", "null", true))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	l := &Local{Store: storagetest.OpenAt(t, path, storage.Options{}), Config: &config.Config{}}
	wantPost(t, post(NewHandler(l, ""), key, us42), 201, "true", shown("pending", "null", true))
}

func TestKeyEndsAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler(shopping(t, storagetest.Open(t)), "")
		wantPost(t, post(h, key, us42), 201, "", shown("pending", "null", true))
		time.Sleep(24*time.Hour - time.Second)
		wantPost(t, post(h, key, us42), 201, "true", shown("pending", "null", true))
		time.Sleep(time.Second)
		wantPost(t, post(h, key, us42), 200, "", shown("pending", "null", false))
	})
}

// Of many that come at once with one key, one makes the job; the others get its
// answer, or are told that it is under way.
func TestSubmitAtOnce(t *testing.T) {
	l := shopping(t, storagetest.Open(t))
	h := NewHandler(l, "")
	var mu sync.Mutex
	seen := map[string]int{}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			w := post(h, key, us42)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case w.Code == 201:
				seen["first"+w.Header().Get("Idempotent-Replayed")]++
			case w.Code == 409 && strings.Contains(w.Body.String(), problemType+"in_flight"):
				seen["in flight"]++
			default:
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	all.Wait()
	if n := len(list(t, l, JobFilter{})); n != 1 || seen["first"] != 1 {
		t.Errorf("%d jobs, answers %v", n, seen)
	}
}

// While the first request waits for the store, the second is told so, and
// nothing of it stays behind.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := shopping(t, storagetest.Open(t))
		h := NewHandler(l, "")
		busy := make(chan struct{})
		var writing sync.WaitGroup
		writing.Go(func() { update(t, l, func(*storage.Tx) error { <-busy; return nil }) })
		synctest.Wait()
		first := make(chan *httptest.ResponseRecorder, 1)
		go func() { first <- post(h, key, us42) }()
		synctest.Wait()
		if w := post(h, key, us42); w.Code != 409 || !strings.Contains(w.Body.String(), problemType+"in_flight") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		close(busy)
		wantPost(t, <-first, 201, "", shown("pending", "null", true))
		wantPost(t, post(h, key, us42), 201, "true", shown("pending", "null", true))
		writing.Wait()
	})
}

// Ways to name a target, and what becomes of them.
func TestSubmissionsBecomeJobs(t *testing.T) {
	l := shopping(t, storagetest.Open(t))
	c := client(t, NewHandler(l, ""))
	one := map[string]string{"n": "1"}
	for _, test := range []struct {
		s    Submission
		key  string
		url  string
		made bool
	}{
		{Submission{Source: "shop", Vars: map[string]string{"n": "1", "c": "US"}}, "shop:1:US:-:-:-", "http://x.test/1", true},
		{Submission{Source: "shop", Vars: map[string]string{"n": "1", "c": "US"}, Country: "de"}, "shop:1:DE:-:-:-", "http://x.test/1", true},
		{Submission{Source: "shop", Vars: map[string]string{"n": "1"}, Country: " De "}, "shop:1:DE:-:-:-", "http://x.test/1", false},
		{Submission{Source: "urls", URL: "http://x.test/a?b=1"}, "urls:http%3A//x.test/a?b=1:-:-:-:-", "http://x.test/a?b=1", true},
		{Submission{Source: "urls", Vars: map[string]string{"url": "http://x.test/a?b=1"}}, "urls:http%3A//x.test/a?b=1:-:-:-:-", "http://x.test/a?b=1", false},
		{Submission{Source: "urls", URL: "http://x.test/a?b=1", Country: "FR"}, "urls:http%3A//x.test/a?b=1:-:-:-:-", "http://x.test/a?b=1", false}, // not in its identity
		{Submission{Source: "front", Vars: map[string]string{}}, "front:http%3A//x.test/front:-:-:-:-", "http://x.test/front", true},
		{Submission{Source: "front", URL: "http://x.test/back"}, "front:http%3A//x.test/back:-:-:-:-", "http://x.test/back", true},
		{Submission{Source: "front", Vars: map[string]string{}, Window: "2026-04-23"}, "front:http%3A//x.test/front:-:2026-04-23T00%3A00%3A00Z:-:-", "http://x.test/front", true},
		{Submission{Source: "urls", URL: "http://x.test/w", Window: "2026-04-23T15:00:00+02:00"}, "urls:http%3A//x.test/w:-:-:-:-", "http://x.test/w", true}, // not in its identity
		{Submission{Source: "daily", Vars: one}, "daily:1:-:-:-:-", "http://x.test/1", true},
		{Submission{Source: "daily", Vars: one, Window: "2026-04-23T16:59:00Z"}, "daily:1:-:2026-04-23T15%3A00%3A00Z:-:-", "http://x.test/1", true},
		{Submission{Source: "daily", Vars: one, Window: "2026-04-23T15:00:00Z"}, "daily:1:-:2026-04-23T15%3A00%3A00Z:-:-", "http://x.test/1", false},
		{Submission{Source: "daily", Vars: one, Window: "2026-04-23T12:00:00Z..2026-04-24"}, "daily:1:-:2026-04-23T15%3A00%3A00Z:-:-", "http://x.test/1", false},
	} {
		done, err := c.Submit(t.Context(), test.s)
		if err != nil || done.Key != test.key || done.URL != test.url || done.New != test.made || done.Replayed {
			t.Errorf("%+v: %+v, %v", test.s, done, err)
		}
	}
	story, err := l.Job(t.Context(), "urls:http%3A//x.test/a?b=1:-:-:-:-")
	if err != nil || story.Country == nil || *story.Country != "FR" {
		t.Errorf("a country outside of the identity is recorded: %+v, %v", story, err)
	}
	for query, want := range map[string]int{
		"window=2026-04-23": 3, "source=daily&window=2026-04-23T16:00:00Z": 1, "window=2026-04-23T16:00:00Z": 0,
		"window=2026-04-23T13:00:00Z": 1, "window=2026-04-22..2026-04-23": 0, "source=daily": 2,
	} {
		f, err := parseFilter(request(t, "x", "GET", "/?"+query, "").URL.Query())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := c.Jobs(t.Context(), f, func(Job) error { n++; return nil }); err != nil || n != want {
			t.Errorf("%s: %d jobs, want %d (%v)", query, n, want, err)
		}
	}
}

// A client gives the errors that Local gives.
func TestSubmitErrors(t *testing.T) {
	l := shopping(t, storagetest.Open(t))
	update(t, l, func(tx *storage.Tx) error { return tx.PutSource(storage.Source{Name: "old"}) })
	c := client(t, NewHandler(l, ""))
	one := map[string]string{"n": "1", "c": "US"}
	if _, err := c.Submit(t.Context(), Submission{Source: "shop", Vars: one, IdempotencyKey: key}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		s    Submission
		kind error
		text string
	}{
		{Submission{Vars: one}, ErrBadRequest, "source is missing"},
		{Submission{Source: "shop"}, ErrBadRequest, "by url or by vars"},
		{Submission{Source: "shop", URL: "http://x.test/", Vars: one}, ErrBadRequest, "not by both"},
		{Submission{Source: "shop", Vars: map[string]string{"n": "\xff"}}, ErrBadRequest, `"\xff" is not UTF-8`},
		{Submission{Source: "shop", Vars: one, IdempotencyKey: "a\nb"}, ErrBadRequest, "printable"},
		{Submission{Source: "none", Vars: one}, ErrUnknownSource, `unknown source "none"`},
		{Submission{Source: "old", Vars: one}, ErrUnknownSource, "it is in the store, and in the config no more"},
		{Submission{Source: "shop", Vars: map[string]string{"c": "US"}}, ErrBadRequest, `target of source shop: url: variable "n" is missing`},
		{Submission{Source: "shop", Vars: map[string]string{"n": "1"}}, ErrBadRequest, `country: variable "c" is missing`},
		{Submission{Source: "shop", Vars: one, Country: "USA"}, ErrBadRequest, `country: "USA" is not a two-letter country code`},
		{Submission{Source: "urls", URL: "http://x.test/", Country: "XX"}, ErrBadRequest, "country"},
		{Submission{Source: "daily", Vars: one, Window: "today"}, ErrBadRequest, `window "today": must be an instant`},
		{Submission{Source: "daily", Vars: one, Window: "2026-04-23"}, ErrBadRequest, "the schedule has more than one there"},
		{Submission{Source: "daily", Vars: one, Window: "2026-04-23T04:00:00Z..2026-04-23T05:00:00Z"}, ErrBadRequest, "the schedule has none there"},
		{Submission{Source: "urls", URL: "ftp://x.test/"}, ErrBadRequest, `scheme "ftp"`},
		{Submission{Source: "shop", Vars: map[string]string{"n": "2"}, IdempotencyKey: key}, storage.ErrKeyReused, key},
	} {
		_, err := c.Submit(t.Context(), test.s)
		if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%+v: %v", test.s, err)
		}
		_, here := l.Submit(t.Context(), test.s)
		if here == nil || here.Error() != err.Error() {
			t.Errorf("over HTTP: %v\nhere: %v", err, here)
		}
	}
	if n := len(list(t, l, JobFilter{})); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

// Whatever a body is, it is refused or has one meaning, that of its canonical
// form.
func FuzzSubmission(f *testing.F) {
	f.Add([]byte(us42))
	f.Add([]byte(`{"source":"s","url":"http://x/","window":"2026-04-23","country":null,"vars":null}`))
	f.Add([]byte(`{"source":"s","vars":{"a":1e3,"b":true,"c":null}}`))
	f.Add([]byte(`{"source":"\ud800","SOURCE":"b","vars":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var s Submission
		if json.Unmarshal(body, &s) != nil {
			return
		}
		canonical, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var again Submission
		if err := json.Unmarshal(canonical, &again); err != nil || !cmp.Equal(s, again) {
			t.Fatalf("%q is read as %+v, written as %s, read as %+v (%v)", body, s, canonical, again, err)
		}
		one, err := s.idempotency()
		two, err2 := again.idempotency()
		if err != nil || err2 != nil || one != two {
			t.Errorf("%q has two meanings", body)
		}
	})
}

// serveOn keeps a server for the test.
func serveOn(t *testing.T, serve func() *Server) {
	t.Helper()
	s := serve()
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// doer sends requests to one server.
type doer func(r *http.Request) (*http.Response, error)

// overBoth serves an API over the socket and over the network, which wants the
// token "sesame", and gives a way to each.
func overBoth(t *testing.T, l *Local) (socket, network doer, address string) {
	t.Helper()
	h := NewHandler(l, "me")
	log := slog.New(slog.DiscardHandler)
	store := l.Store.Path()
	unix := listen(t, store)
	serveOn(t, func() *Server { return Serve(unix, h, log) })
	c, _, err := Dial(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	settings := config.Server{Listen: "127.0.0.1:0", Token: config.NewSecret("sesame")}
	tcp, err := ListenNetwork(settings.Listen)
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, func() *Server { return Serve(tcp, h.Network(settings, tcp.Addr()), log) })
	over := &http.Transport{}
	t.Cleanup(over.CloseIdleConnections)
	return c.transport.RoundTrip, over.RoundTrip, tcp.Addr().String()
}

// request makes one; header lines are "Name: value", and "Host: " is the host.
func request(t *testing.T, address, method, target, body string, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, "http://"+address+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	return r
}

// send gives status, body and header of an answer.
func send(t *testing.T, via doer, r *http.Request) (int, string, http.Header) {
	t.Helper()
	resp, err := via(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}
