package engine

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"semel/engine/intake"
	"semel/failpoint"
	"semel/parser"
	"semel/storage"
	"semel/storage/storagetest"
)

// follower is a source whose one target is a page of http://shop.test, and whose
// links are followed by rules that say what leads where.
func follower(t testing.TB, path string, links ...string) Source {
	t.Helper()
	s := source(t, 0)
	s.URL, s.Key = intake.Template{}, intake.Template{}
	s.Targets.Targets = []intake.Target{{Vars: intake.Vars{{Name: "url", Value: "http://shop.test" + path}, {Name: "lang", Value: "en"}}}}
	rules, err := parser.Compile(parser.Spec{Version: 1, Links: links, Fields: []parser.Field{
		{Name: "title", Rule: parser.Rule{CSS: "h1"}, Required: true}, {Name: "lang", Rule: parser.Rule{Var: "lang"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.Rules = rules
	for range links {
		s.Follow = append(s.Follow, intake.Follow{To: &s.Source, MaxDepth: intake.DefaultMaxDepth})
	}
	return s
}

// listing answers /list/N, of so many pages, each with a link to the next, to
// the first and to three products.
func listing(pages int) func(*http.Request, int) (*http.Response, error) {
	return func(req *http.Request, _ int) (*http.Response, error) {
		n, err := strconv.Atoi(strings.TrimPrefix(req.URL.Path, "/list/"))
		if err != nil {
			return product(req.URL.Path), nil
		}
		body := fmt.Sprintf(`<h1>List %d</h1> <a class="first" href="/list/1#top">first</a>`, n)
		for i := range 3 {
			body += fmt.Sprintf(` <a class="product" href="/p/%d%%20x?ref=list">p</a>`, 3*n+i)
		}
		if n < pages {
			body += fmt.Sprintf(` <a class="next" href="%d">next</a>`, n+1)
		}
		return respond(200, body), nil
	}
}

func jobsOf(t *testing.T, s *storage.Store) []*storage.Job {
	t.Helper()
	var jobs []*storage.Job
	if err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, math.MaxInt, func(j *storage.Job) bool {
			jobs = append(jobs, j)
			return true
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return jobs
}

func TestFollowListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(listing(30))
		src := follower(t, "/list/1", "a.next", "a.first")
		sum := runOnce(t, options(s, web, src))
		if sum.New != 30 || sum.Completed != 30 || sum.Open != 0 {
			t.Errorf("%+v", sum)
		}
		if web.total() != 30 {
			t.Errorf("%d requests for 30 pages that lead in a circle", web.total())
		}
		for i, j := range jobsOf(t, s) {
			if want := fmt.Sprintf("http://shop.test/list/%d", i+1); j.URL != want || int(j.Depth) != i {
				t.Errorf("job %d: %s in depth %d", j.ID, j.URL, j.Depth)
			}
		}
		if lines := strings.Count(export(t, s, "shop"), `"lang":"en"`); lines != 30 {
			t.Errorf("%d rows have the variable of the first page's target", lines)
		}
		if sum := runOnce(t, options(s, web, src)); sum.New != 0 || web.total() != 30 {
			t.Errorf("again: %+v, %d requests", sum, web.total())
		}
	})
}

// Kept pages that are parsed again make no jobs of their links a second time.
func TestReplayFollowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, scratch := openStore(t), openStore(t)
		products, src := productsSource(t), follower(t, "/list/1", "a.next", "a.product")
		products.Key, products.Country = intake.Template{}, intake.Template{}
		src.Follow[1].To = &products.Source
		opts := options(s, newSite(listing(5)), src, products)
		opts.Bodies = BodiesAll
		runOnce(t, opts)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		again, err := e.Replay(t.Context(), "shop", scratch)
		if err != nil || again.Pages != 5 || again.Rows != 5 || len(again.Unlike) > 0 {
			t.Errorf("%+v, %v", again, err)
		}
		for _, j := range jobsOf(t, scratch) {
			if j.State != storage.StateComplete {
				t.Errorf("job %s is %s", j.Key, j.State)
			}
		}
	})
}

func TestFollowStopsAtMaxDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		src := follower(t, "/list/1", "a.next")
		src.Follow[0].MaxDepth = 4
		var log bytes.Buffer
		opts := options(s, newSite(listing(30)), src)
		opts.Log = slog.New(slog.NewTextHandler(&log, nil))
		if sum := runOnce(t, opts); sum.New != 5 || sum.Completed != 5 {
			t.Errorf("%+v", sum)
		}
		if n := strings.Count(log.String(), "links beyond max_depth are not followed"); n != 1 {
			t.Errorf("told %d times:\n%s", n, log.String())
		}
	})
}

// products is a source of http://shop.test/p/{sku} that other sources lead to.
func productsSource(t testing.TB) Source {
	t.Helper()
	s := source(t, 0)
	s.Name, s.URL, s.Key, s.Country = "products", template(t, "http://shop.test/product/{sku}"), template(t, "{sku}/{lang}"), template(t, "{land}")
	s.Identity.Country = true
	return s
}

func TestFollowToAnotherSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		products := productsSource(t)
		src := follower(t, "/list/1", "a.next", "a")
		src.Targets.Targets[0].Vars = append(src.Targets.Targets[0].Vars, intake.Var{Name: "land", Value: "de"})
		src.Follow[1].To, src.Follow[1].Match = &products.Source, regexp.MustCompile(`/p/(?P<sku>[^/?]+)`)
		sum := runOnce(t, options(s, newSite(listing(2)), src, products))
		if sum.New != 2+6 || sum.Completed != 8 {
			t.Errorf("%+v", sum)
		}
		var keys []string
		for _, j := range jobsOf(t, s) {
			if j.Key.Source == "products" {
				keys = append(keys, j.Key.String()+" "+j.URL)
			}
		}
		want := "products:3 x/en:DE:-:-:- http://shop.test/product/3%20x"
		if len(keys) != 6 || keys[0] != want {
			t.Errorf("%q, want 6 that begin with %q", keys, want)
		}
	})
}

func TestFollowedJobsKeepTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		products := productsSource(t)
		src := follower(t, "/list/1", "a.next", "a.product")
		src.Targets.Targets[0].Vars = append(src.Targets.Targets[0].Vars, intake.Var{Name: "land", Value: "de"})
		src.Follow[1].To, src.Follow[1].Match = &products.Source, regexp.MustCompile(`/p/(?P<sku>[^/?]+)`)
		first, err := src.NewJob(src.Targets.Targets[0], window(3))
		if err != nil {
			t.Fatal(err)
		}
		first.Priority = storage.PriorityBackfill
		if err := s.Update(t.Context(), func(tx *storage.Tx) error {
			_, err := tx.EnqueueJob(first)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		src.Targets = intake.Spec{}
		runOnce(t, options(s, newSite(listing(2)), src, products))
		runs := map[string]uint64{}
		for _, j := range jobsOf(t, s) {
			if !j.Window.Equal(window(3)) || j.Priority != storage.PriorityBackfill || j.Run == 0 {
				t.Errorf("job %s: window %s, priority %d, run %d", j.Key, j.Window, j.Priority, j.Run)
			}
			if run, ok := runs[j.Key.Source]; ok && run != j.Run {
				t.Errorf("job %s is of run %d, others of %d", j.Key, j.Run, run)
			}
			runs[j.Key.Source] = j.Run
		}
		if len(runs) != 2 || runs["shop"] == runs["products"] {
			t.Errorf("runs by source: %v", runs)
		}
	})
}

// A second page that the site will not give is no end of the listing.
func TestFollowedPageIsThrottled(t *testing.T) {
	for _, test := range []struct {
		status    int
		completed int
	}{{429, 5}, {503, 5}, {403, 1}} {
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			pages := listing(5)
			web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
				if req.URL.Path == "/list/2" && (nth < 3 || test.status == 403) {
					return respond(test.status, "slow down", "Retry-After", "60"), nil
				}
				return pages(req, nth)
			})
			sum := runOnce(t, options(s, web, follower(t, "/list/1", "a.next")))
			if sum.Completed != test.completed || sum.Open != 0 {
				t.Errorf("%d: %+v", test.status, sum)
			}
			if test.status == 403 && sum.Failed != 1 {
				t.Errorf("%d: %+v: the page that was not given must have failed", test.status, sum)
			}
		})
	}
}

func TestLinksThatAreNoJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		src := follower(t, "/list/1", "a")
		src.Key = template(t, "{id}")
		src.Targets.Targets[0].Vars = append(src.Targets.Targets[0].Vars, intake.Var{Name: "id", Value: "1"})
		src.Follow[0].To, src.Follow[0].Match = &src.Source, regexp.MustCompile(`id=(?P<id>[^&]*)`)
		src.Follow[0].Hosts = []string{"*.shop.test", "cdn.test"}
		web := newSite(func(*http.Request, int) (*http.Response, error) {
			return respond(200, `<h1>x</h1> <a href="?id=2+a">1</a> <a href="?id=">2</a> <a href="http://user:pw@shop.test/?id=3">3</a> <a href="?id=%ff">4</a>
				<a href="/none">5</a> <a href="http://other.test/?id=6">6</a> <a href="http://a.shop.test/?id=7">7</a> <a href="http://cdn.test:81/?id=8">8</a>
				<a href="http://shop.test:81/?id=9">9</a> <a href="http://notshop.test/?id=10">10</a>`), nil
		})
		var log bytes.Buffer
		opts := options(s, web, src)
		opts.Log = slog.New(slog.NewTextHandler(&log, nil))
		if sum := runOnce(t, opts); sum.Failed > 0 {
			t.Errorf("%+v", sum)
		}
		var got []string
		for _, j := range jobsOf(t, s) {
			got = append(got, j.Key.Target)
		}
		if want := "[1 2 a 7 8]"; fmt.Sprint(got) != want {
			t.Errorf("jobs %v, want %s", got, want)
		}
		if !strings.Contains(log.String(), `msg="links cannot become jobs" job=shop:1:-:-:-:- links=3 first="it is no URL, or holds a login"`) {
			t.Errorf("log:\n%s", log.String())
		}
		if strings.Contains(log.String(), "pw") {
			t.Errorf("a login is in the log:\n%s", log.String())
		}
	})
}

// A page that is kept gives its links again, for the new window.
func TestFollowUnchangedPage(t *testing.T) {
	s, site := openStore(t), newShop(t, "Etag", `"1"`)
	site.title = `first <a href="/p/002">next</a>`
	src := shopSource(t, site)
	rules, err := parser.Compile(parser.Spec{Version: 1, Links: []string{"a"}, Fields: []parser.Field{{Name: "title", Rule: parser.Rule{CSS: "h1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	src.Rules = rules
	src.Follow = []intake.Follow{{To: &src.Source, Match: regexp.MustCompile(`/p/(?P<id>[0-9]+)`), MaxDepth: 1}}
	src.Identity.Window = true
	collect(t, s, src, 1, nil)
	again := collect(t, s, src, 2, nil)
	wantAttempt(t, again, 304, true)
	var got []string
	for _, j := range jobsOf(t, s) {
		got = append(got, fmt.Sprintf("%s %d %s", j.Key.Target, j.Window.Hour(), j.State))
	}
	if want := "[001 1 complete 002 1 complete 001 2 complete 002 2 complete]"; fmt.Sprint(got) != want {
		t.Errorf("jobs %v, want %s", got, want)
	}
}

// Wherever the process dies, the next run makes of a listing what an undisturbed
// one does: no page without its links' jobs, none twice.
func TestFollowAfterDeath(t *testing.T) {
	undisturbed := func(t *testing.T) (rows string, jobs int) {
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			runOnce(t, options(s, newSite(listing(4)), follower(t, "/list/1", "a")))
			rows, jobs = export(t, s, "shop"), len(jobsOf(t, s))
		})
		return rows, jobs
	}
	rows, jobs := undisturbed(t)
	if jobs != 4+12 {
		t.Fatalf("%d jobs", jobs)
	}
	for _, point := range []failpoint.Point{failpoint.BeforeCommit, failpoint.AfterCommit} {
		for nth := 1; nth <= 12; nth++ {
			t.Run(fmt.Sprintf("%s %d", point, nth), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "semel.db")
					dieAt(t, path, point, nth, newSite(listing(4)), follower(t, "/list/1", "a"))
					s := storagetest.OpenAt(t, path, storage.Options{NoSync: true})
					sum := runOnce(t, options(s, newSite(listing(4)), follower(t, "/list/1", "a")))
					if sum.Open != 0 || sum.Failed != 0 || len(jobsOf(t, s)) != jobs || export(t, s, "shop") != rows {
						t.Errorf("%+v, %d jobs, rows\n%s\nwant %d jobs, rows\n%s", sum, len(jobsOf(t, s)), export(t, s, "shop"), jobs, rows)
					}
				})
			})
		}
	}
}

// dieAt runs a source until the nth commit is at a point; what was committed
// stays.
func dieAt(t *testing.T, path string, point failpoint.Point, nth int, web *site, src Source) {
	t.Helper()
	s, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it has died
	died, left := errors.New("died here"), nth
	failpoint.Set(func(p failpoint.Point, at string) error {
		if p == point && at == path {
			if left--; left == 0 {
				return died
			}
		}
		return nil
	})
	defer failpoint.Set(nil)
	opts := options(s, web, src)
	opts.Workers = 1 // so that few outcomes share a commit
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.RunOnce(t.Context()); !errors.Is(err, died) {
		t.Fatalf("the run ended with %v", err)
	}
}

// A page whose links would fill the memory fails, and says why.
func TestFollowBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		src := follower(t, "/", "a")
		src.Targets.Targets[0].Vars = append(src.Targets.Targets[0].Vars, intake.Var{Name: "note", Value: strings.Repeat("x", 1<<20)})
		var page strings.Builder
		for i := range 40 {
			fmt.Fprintf(&page, `<a href="/%d">x</a>`, i)
		}
		web := newSite(func(*http.Request, int) (*http.Response, error) { return respond(200, "<h1>x</h1>"+page.String()), nil })
		if sum := runOnce(t, options(s, web, src)); sum.Failed != 1 || sum.New != 1 {
			t.Errorf("%+v", sum)
		}
		if j := jobsOf(t, s)[0]; j.Category != storage.CategoryValidation || !strings.Contains(j.Reason, "the jobs of the page's links would hold") {
			t.Errorf("%s: %s", j.Category, j.Reason)
		}
	})
}

func TestTryShowsLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := follower(t, "/list/1", "a.next", "a.product")
		opts := options(nil, newSite(listing(2)), src)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		trial, err := e.Try(t.Context(), "shop", src.Targets.Targets[0])
		want := Link{"shop", "http://shop.test/list/2", "shop:http%3A//shop.test/list/2:-:-:-:-"}
		if err != nil || len(trial.Links) != 4 || trial.Links[0] != want {
			t.Errorf("%v, links %+v", err, trial.Links)
		}
	})
}
