package engine

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"semel/engine/intake"
	"semel/parser"
	"semel/storage"
	"semel/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a scripted web: a RoundTripper that answers by path.
type site struct {
	mu       sync.Mutex
	requests map[string][]time.Time // by path, when each came
	answer   func(req *http.Request, nth int) (*http.Response, error)
}

func newSite(answer func(req *http.Request, nth int) (*http.Response, error)) *site {
	return &site{requests: map[string][]time.Time{}, answer: answer}
}

func (s *site) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.requests[req.URL.Path] = append(s.requests[req.URL.Path], time.Now())
	nth := len(s.requests[req.URL.Path])
	s.mu.Unlock()
	resp, err := s.answer(req, nth)
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}

func (s *site) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests[path])
}

func (s *site) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, times := range s.requests {
		n += len(times)
	}
	return n
}

func respond(status int, body string, header ...string) *http.Response {
	h := http.Header{"Content-Type": {"text/html; charset=utf-8"}}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

func product(path string) *http.Response {
	return respond(200, "<html><head><title>page "+path+"</title></head><body><h1>Thing "+path+"</h1></body></html>")
}

func titleRules(t testing.TB) *parser.Rules {
	t.Helper()
	rules, err := parser.Compile(parser.Spec{Version: 1, Fields: []parser.Field{
		{Name: "title", Rule: parser.Rule{CSS: "h1"}, Required: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func template(t testing.TB, text string) intake.Template {
	t.Helper()
	tmpl, err := intake.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

// source is a source over n targets of http://shop.test/p/{id}.
func source(t testing.TB, n int) Source {
	t.Helper()
	s := Source{
		Source: intake.Source{
			Name: "shop", URL: template(t, "http://shop.test/p/{id}"), Key: template(t, "{id}"),
			Identity: intake.Identity{Country: true, Window: true}, ParserVersion: 1,
		},
		Timeout: time.Minute, Write: storage.WriteUpsert, Rules: titleRules(t), IdentityText: "x",
		Limits: Limits{Attempts: 6, Time: 6 * time.Hour, Bytes: 5 << 20, Rescues: 100},
	}
	for i := range n {
		s.Targets.Targets = append(s.Targets.Targets, intake.Target{Vars: intake.Vars{{Name: "id", Value: fmt.Sprintf("%03d", i+1)}}})
	}
	return s
}

func options(store *storage.Store, rt http.RoundTripper, sources ...Source) Options {
	return Options{
		Store: store, Owner: "test", Log: slog.New(slog.DiscardHandler),
		Workers: 8, Lease: 2 * time.Minute, Grace: 10 * time.Second, UserAgent: "semel-test",
		MaxBodyBytes: 1 << 20, AllowPrivate: true,
		Pacing:    pacing(4, 0),
		Sources:   sources,
		Transport: rt,
	}
}

// pacing is the same for every host.
func pacing(concurrency int, interval time.Duration) func(string) Pacing {
	return func(string) Pacing { return Pacing{concurrency, interval} }
}

// runOnce works everything and checks the store.
func runOnce(t *testing.T, opts Options) Summary {
	t.Helper()
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	sum, err := e.RunOnce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	storagetest.Check(t, opts.Store)
	return sum
}

func openStore(t *testing.T) *storage.Store {
	t.Helper()
	return storagetest.OpenAt(t, filepath.Join(t.TempDir(), "semel.db"), storage.Options{NoSync: true})
}

func export(t *testing.T, s *storage.Store, source string) string {
	t.Helper()
	var b []byte
	for after, more := []byte(nil), true; more; {
		if err := s.View(func(tx *storage.Tx) (err error) {
			after, err = tx.Observations(source, after, 100, func(o *storage.Observation) error {
				b = o.AppendLine(b, true)
				return nil
			})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		more = after != nil
	}
	return string(b)
}

func job(t *testing.T, s *storage.Store, target string) (*storage.Job, []storage.Attempt) {
	t.Helper()
	var j *storage.Job
	var attempts []storage.Attempt
	if err := s.View(func(tx *storage.Tx) (err error) {
		if j, err = tx.JobByKey(storage.JobKey{Source: "shop", Target: target}); err != nil {
			return err
		}
		attempts, err = tx.Attempts(j.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return j, attempts
}

func TestRunOnceTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) { return product(req.URL.Path), nil })
		src := source(t, 20)
		sum := runOnce(t, options(s, web, src))
		if sum.New != 20 || sum.Completed != 20 || sum.Failed != 0 || sum.Open != 0 {
			t.Fatalf("first run: %+v", sum)
		}
		first, requests := export(t, s, "shop"), web.total()
		if lines := strings.Count(first, "\n"); lines != 20 {
			t.Fatalf("first run exported %d lines", lines)
		}
		sum = runOnce(t, options(s, web, src))
		if sum.New != 0 || sum.Known != 20 || sum.Completed != 0 {
			t.Errorf("second run: %+v", sum)
		}
		if web.total() != requests {
			t.Errorf("second run made %d requests", web.total()-requests)
		}
		if export(t, s, "shop") != first {
			t.Error("second run changed the export")
		}
	})
}

func TestRetryWaitsAndCompletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if nth < 3 {
				return respond(503, "busy", "Retry-After", "90"), nil
			}
			return product(req.URL.Path), nil
		})
		sum := runOnce(t, options(s, web, source(t, 3)))
		if sum.Completed != 3 {
			t.Fatalf("%+v", sum)
		}
		for path, times := range web.requests {
			for i := 1; i < len(times); i++ {
				if wait := times[i].Sub(times[i-1]); wait < 90*time.Second {
					t.Errorf("%s was asked again after %s", path, wait)
				}
			}
		}
		j, attempts := job(t, s, "001")
		if j.State != storage.StateComplete || attempts[0].Category != storage.CategoryThrottled {
			t.Errorf("job %+v, attempts %+v", j, attempts)
		}
	})
}

// A host sees starts no closer than its interval, and never more attempts at
// once than its concurrency.
func TestPacing(t *testing.T) {
	for _, interval := range []time.Duration{0, 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			var mu sync.Mutex
			var starts []time.Time
			under := 0
			web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
				mu.Lock()
				starts = append(starts, time.Now())
				if under++; under > 3 {
					t.Errorf("interval %s: %d attempts at once", interval, under)
				}
				wait := time.Duration(1+len(starts)%3) * time.Second // so that they end one by one
				mu.Unlock()
				time.Sleep(wait)
				mu.Lock()
				under--
				mu.Unlock()
				return product(req.URL.Path), nil
			})
			opts := options(s, web, source(t, 12))
			opts.Pacing = pacing(3, interval)
			runOnce(t, opts)
			if len(starts) != 12 {
				t.Fatal(len(starts))
			}
			for i := 1; i < len(starts); i++ {
				if d := starts[i].Sub(starts[i-1]); d < interval {
					t.Errorf("start %d came %s after the one before", i, d)
				}
			}
		})
	}
}

// run lets an engine run for a while and stops it.
func run(t *testing.T, e *Engine, d time.Duration) Summary {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	sum, err := e.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
