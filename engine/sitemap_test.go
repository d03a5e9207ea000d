package engine

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"semel/engine/intake"
	"semel/storage"
)

// sitemapSource is a source of the pages that http://shop.test/sitemap.xml names.
func sitemapSource(t testing.TB) Source {
	t.Helper()
	s := source(t, 0)
	s.URL, s.Key = intake.Template{}, intake.Template{}
	s.Header = http.Header{"Authorization": {"secret"}}
	s.Targets = intake.Spec{Kind: intake.Sitemap, Path: "http://shop.test/sitemap.xml"}
	return s
}

func sitemapOf(urls ...string) string {
	return "<urlset><url><loc>" + strings.Join(urls, "</loc></url>\n<url><loc>") + "</loc></url></urlset>"
}

func packed(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// loggedOnce works everything, and gives what was logged.
func loggedOnce(t *testing.T, opts Options) (Summary, string) {
	t.Helper()
	var log bytes.Buffer
	opts.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	return runOnce(t, opts), log.String()
}

func TestSitemapTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if strings.Contains(req.URL.Path, "sitemap") && req.Header.Get("Authorization") != "" {
				t.Error("the source's own headers went along")
			}
			switch req.URL.Path {
			case "/sitemap.xml":
				return respond(200, "<sitemapindex><sitemap><loc>http://cdn.test/sitemap-1.xml.gz</loc></sitemap><sitemap><loc>http://shop.test/sitemap-2.txt</loc></sitemap>"+
					"<sitemap><loc>http://shop.test/sitemap-gone</loc></sitemap></sitemapindex>", "Content-Type", "application/xml"), nil
			case "/sitemap-1.xml.gz":
				return respond(200, packed(t, sitemapOf("http://shop.test/p/1", "http://www.shop.test/p/2", "mailto:x", "/p/3")), "Content-Type", "application/gzip"), nil
			case "/sitemap-2.txt":
				return respond(200, "http://shop.test/p/1\nhttp://shop.test/p/4\n", "Content-Type", "text/plain"), nil
			case "/sitemap-gone":
				return respond(404, "no"), nil
			}
			return product(req.URL.Path), nil
		})
		sum, log := loggedOnce(t, options(s, web, sitemapSource(t)))
		if sum.New != 3 || sum.Known != 1 || sum.Completed != 3 || sum.BadRows != 3 || sum.BadFiles != 0 || !sum.Offered {
			t.Errorf("%+v\n%s", sum, log)
		}
		for _, want := range []string{`http://cdn.test/sitemap-1.xml.gz:3: url: scheme`, `http://cdn.test/sitemap-1.xml.gz:4: url: is not absolute`, `http://shop.test/sitemap-gone: the sitemap could not be read: not_found: `} {
			if !strings.Contains(log, want) {
				t.Errorf("the log does not say %q:\n%s", want, log)
			}
		}
		requests := web.total()
		if sum, _ := loggedOnce(t, options(s, web, sitemapSource(t))); sum.New != 0 || sum.Known != 4 || web.total() != requests+4 {
			t.Errorf("again: %+v, %d requests", sum, web.total()-requests)
		}
	})
}

// A sitemap has the manners of a page: it is paced, robots.txt is obeyed, and what
// fails for a while is tried again.
func TestSitemapManners(t *testing.T) {
	for _, test := range []struct {
		name   string
		robots string
		answer func(nth int) *http.Response
		asked  int
		log    string // "" where it is read
	}{
		{"throttled, then not", "", func(nth int) *http.Response {
			if nth < 3 {
				return respond(429, "slow down", "Retry-After", "60")
			}
			return respond(200, sitemapOf("http://shop.test/p/1"))
		}, 3, ""},
		{"cut, then whole and shorter", "", func(nth int) *http.Response {
			resp := respond(200, sitemapOf("http://shop.test/p/1"))
			if nth == 1 {
				begun := sitemapOf("http://shop.test/p/1", "http://shop.test/p/2", "http://shop.test/p/3")
				resp.Body, resp.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(begun), iotest.ErrReader(io.ErrUnexpectedEOF))), -1
			}
			return resp
		}, 2, ""},
		{"never", "", func(int) *http.Response { return respond(503, "busy") }, 6, "server_error: the site answered 503"},
		{"not there", "", func(int) *http.Response { return respond(404, "no") }, 1, "not_found: the site answered 404"},
		{"a page instead", "", func(int) *http.Response { return respond(200, "<html><h1>Welcome</h1></html>") }, 1, "it is no sitemap"},
		{"blocked", "", func(int) *http.Response { return respond(403, "go away") }, 2, "blocked: the site answered 403"},
		{"denied", "User-agent: *\nDisallow: /sitemap.xml", nil, 0, "robots_denied: preparing the request: robots.txt does not allow it"},
		{"too large", "", func(int) *http.Response {
			return respond(200, strings.Repeat("\n", intake.MaxSitemapBytes+1))
		}, 1, "too_large: it has more than 52428800 bytes, decompressed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
					switch req.URL.Path {
					case "/sitemap.xml":
						return test.answer(nth), nil
					case "/robots.txt":
						return respond(200, test.robots), nil
					}
					return product(req.URL.Path), nil
				})
				opts := options(s, web, sitemapSource(t))
				opts.Robots, opts.Pacing = true, pacing(1, 5*time.Second)
				sum, log := loggedOnce(t, opts)
				if asked := web.count("/sitemap.xml"); asked != test.asked {
					t.Errorf("asked %d times, want %d\n%s", asked, test.asked, log)
				}
				times := web.requests["/sitemap.xml"]
				for i := 1; i < len(times); i++ {
					if wait := times[i].Sub(times[i-1]); wait < 5*time.Second {
						t.Errorf("asked again after %s", wait)
					}
				}
				if test.log == "" {
					if sum.Completed != 1 || sum.BadFiles != 0 {
						t.Errorf("%+v\n%s", sum, log)
					}
				} else if sum.BadFiles != 1 || !strings.Contains(log, test.log) {
					t.Errorf("%+v, the log does not say %q:\n%s", sum, test.log, log)
				}
			})
		})
	}
}

// What a sitemap cost is traffic of its source, its host and the proxy, as the
// gateway counts it, also where its first answer was no sitemap. A paused proxy
// is not waited for.
func TestSitemapTraffic(t *testing.T) {
	g, via := billed(t, "home")
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "<urlset>"+strings.Repeat(" ", 100_000)+"</urlset>")
	}))
	t.Cleanup(server.Close)
	src := sitemapSource(t)
	src.Targets.Path = server.URL + "/sitemap.xml"
	src.Proxies = []string{"home"}
	src.Retry = map[storage.Category]RetryPolicy{storage.CategoryServerError: {Base: time.Millisecond, Max: time.Millisecond}}
	s := openStore(t)
	opts := options(s, nil, src)
	opts.Proxies = []Proxy{via}
	opts.Proxies[0].Budget = 150_000
	if sum, log := loggedOnce(t, opts); sum.BadFiles != 0 || asked.Load() != 2 {
		t.Errorf("%+v, asked %d times\n%s", sum, asked.Load(), log)
	}
	view := func() (at storage.Traffic, of storage.Counters) {
		if err := s.View(func(tx *storage.Tx) error {
			at, of = tx.ProxyTraffic("home", time.Now()), tx.Counters("shop")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return at, of
	}
	at, of := view()
	if at.Down < 100_000 || of[storage.MetricBytesDown] != at.Down || of[storage.MetricBytesUp] != at.Up || of[storage.MetricBytesWasted] != 0 {
		t.Errorf("through the proxy %+v, of the source %v", at, of)
	}
	if seen := g.Stats(); seen.Up != at.Up || seen.Down != at.Down {
		t.Errorf("the gateway counts %+v, the store %+v", seen, at)
	}
	loggedOnce(t, opts) // uses the budget up
	sum, log := loggedOnce(t, opts)
	if now, _ := view(); sum.BadFiles != 1 || asked.Load() != 3 || !strings.Contains(log, "no proxy of source shop takes requests now") {
		t.Errorf("with no budget left: %+v, asked %d times, %+v\n%s", sum, asked.Load(), now, log)
	}
}

// A stop ends the wait for a sitemap, and is no failure of it.
func TestSitemapStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		ctx, cancel := context.WithCancel(t.Context())
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			time.AfterFunc(time.Second, cancel)
			return hang(req)
		})
		e, err := New(options(s, web, sitemapSource(t)))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if sum, err := e.Run(ctx); err != nil || sum.BadFiles != 0 || sum.Offered {
			t.Errorf("%+v, %v", sum, err)
		}
	})
}

// A site that keeps its sitemap to itself holds back neither the targets of other
// sources nor their ticks, nor whoever gives up waiting for it.
func TestSitemapHoldsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if req.URL.Path == "/sitemap.xml" {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return product(req.URL.Path), nil
		})
		slow, hourly := sitemapSource(t), scheduled(t, 1, "0 * * * *", "", CatchUpLatest)
		slow.Name, slow.Schedule = "slow", hourly.Schedule
		opts := options(s, web, slow, hourly)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := e.Run(ctx)
			ended <- err
		}()
		time.Sleep(time.Minute)
		wantWindows(t, s, "01T00:00 1")
		impatient, giveUp := context.WithTimeout(ctx, time.Second)
		defer giveUp()
		if _, err := e.Backfill(impatient, "slow", listedWindow, listedWindow.Add(time.Hour), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("backfill: %v", err)
		}
		time.Sleep(time.Hour)
		wantWindows(t, s, "01T00:00 1", "01T01:00 1")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
