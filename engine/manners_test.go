package engine

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/intake"
	"semel/storage"
)

func withRobots(text string, rest func(*http.Request, int) (*http.Response, error)) *site {
	return newSite(func(req *http.Request, nth int) (*http.Response, error) {
		if req.URL.Path == "/robots.txt" {
			return respond(200, text, "Content-Type", "text/plain"), nil
		}
		return rest(req, nth)
	})
}

func products(req *http.Request, _ int) (*http.Response, error) { return product(req.URL.Path), nil }

func TestRobots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := withRobots("User-agent: *\nDisallow: /p/002\nDisallow: /away\n", func(req *http.Request, nth int) (*http.Response, error) {
			if req.URL.Path == "/p/003" {
				return respond(302, "", "Location", "/away"), nil
			}
			return product(req.URL.Path), nil
		})
		opts := options(s, web, source(t, 4))
		opts.Robots = true
		sum := runOnce(t, opts)
		if sum.Completed != 2 || sum.Failed != 2 {
			t.Errorf("%+v", sum)
		}
		for _, target := range []string{"002", "003"} {
			if j, _ := job(t, s, target); j.Category != storage.CategoryRobotsDenied {
				t.Errorf("job %s: %+v", target, j)
			}
		}
		if web.count("/p/002") != 0 || web.count("/away") != 0 {
			t.Error("a forbidden page was asked for")
		}
		if web.count("/robots.txt") != 1 {
			t.Errorf("robots.txt was asked for %d times", web.count("/robots.txt"))
		}
	})
}

// The rules are kept for a day, also across restarts, and no longer.
func TestRobotsAreKeptADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := withRobots("User-agent: *\nAllow: /\n", products)
		for i, want := range []int{1, 1, 2} {
			opts := options(s, web, source(t, i+1))
			opts.Robots = true
			runOnce(t, opts)
			if got := web.count("/robots.txt"); got != want {
				t.Errorf("run %d: robots.txt was asked for %d times, want %d", i+1, got, want)
			}
			time.Sleep(13 * time.Hour)
		}
	})
}

// A robots.txt that answers 503 allows nothing: the job waits.
func TestRobotsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if req.URL.Path == "/robots.txt" && nth < 3 {
				return respond(503, "down"), nil
			}
			return product(req.URL.Path), nil
		})
		opts := options(s, web, source(t, 1))
		opts.Robots = true
		sum := runOnce(t, opts)
		_, attempts := job(t, s, "001")
		if sum.Completed != 1 || len(attempts) != 3 || attempts[0].Category != storage.CategoryRobotsUnavailable {
			t.Errorf("%+v, attempts %+v", sum, attempts)
		}
		if attempts[0].BytesUp != 0 && attempts[0].Status == 200 {
			t.Error("the page was asked for")
		}
	})
}

func TestCrawlDelayRaisesTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := withRobots("User-agent: *\nCrawl-delay: 7\n", products)
		opts := options(s, web, source(t, 5))
		opts.Robots = true
		opts.Pacing = pacing(1, 0)
		begin := time.Now()
		runOnce(t, opts)
		if d := time.Since(begin); d < 28*time.Second {
			t.Errorf("5 pages with a Crawl-delay of 7 s took %s", d)
		}
	})
}

// A 429 with Retry-After holds back every job of its host, also in the next
// process, and no job of another.
func TestRetryAfterGatesTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		begin := time.Now()
		var mu sync.Mutex
		early := map[string]int{}
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if d := time.Since(begin); d < 10*time.Minute {
				early[req.URL.Host]++
				if req.URL.Host == "shop.test" {
					return respond(429, "", "Retry-After", "600"), nil
				}
			}
			return product(req.URL.Path), nil
		})
		shop, other := source(t, 10), source(t, 10)
		other.Name, other.URL = "other", template(t, "http://other.test/p/{id}")
		opts := options(s, web, shop, other)
		opts.Pacing = pacing(1, 0)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		run(t, e, time.Minute)
		e.Close()
		if early["shop.test"] != 1 || early["other.test"] != 10 {
			t.Errorf("requests in the first minute: %v", early)
		}
		sum := runOnce(t, opts)
		if early["shop.test"] != 1 {
			t.Errorf("after a restart %d requests came before Retry-After was over", early["shop.test"]-1)
		}
		if sum.Completed != 10 {
			t.Errorf("%+v", sum)
		}
	})
}

// It does so as well where the job that got it has used up its attempts: else
// one busy minute would burn a whole queue.
func TestRetryAfterOfAFailedJobGatesTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		begin := time.Now()
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if time.Since(begin) < 8*time.Hour {
				return respond(429, "", "Retry-After", "28800"), nil
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 5)
		src.Limits.Attempts = 1
		opts := options(s, web, src)
		opts.Pacing = pacing(1, 0)
		sum := runOnce(t, opts)
		if sum.Failed != 1 || sum.Completed != 4 || web.total() != 5 {
			t.Errorf("%+v, %d requests", sum, web.total())
		}
	})
}

// A robots.txt that cannot be read is asked for once in its delay, not once for
// each job.
func TestRobotsUnavailableHoldsTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if req.URL.Path == "/robots.txt" && nth == 1 {
				return respond(503, "down", "Retry-After", "3600"), nil
			}
			return product(req.URL.Path), nil
		})
		opts := options(s, web, source(t, 30))
		opts.Robots = true
		opts.Pacing = pacing(1, 0)
		sum := runOnce(t, opts)
		if sum.Completed != 30 || sum.Retried != 1 || web.count("/robots.txt") != 2 {
			t.Errorf("%+v, %d requests for robots.txt", sum, web.count("/robots.txt"))
		}
		times := web.requests["/robots.txt"]
		if wait := times[1].Sub(times[0]); wait < time.Hour {
			t.Errorf("asked again after %s", wait)
		}
	})
}

// A slow host never holds back another.
func TestSlowHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		begin := time.Now()
		var lastFast atomic.Int64
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if req.URL.Host == "slow.test" {
				time.Sleep(30 * time.Second)
			} else {
				time.Sleep(time.Second)
				lastFast.Store(int64(time.Since(begin)))
			}
			return product(req.URL.Path), nil
		})
		slow, fast := source(t, 40), source(t, 40)
		slow.Name, slow.URL = "slow", template(t, "http://slow.test/p/{id}")
		opts := options(s, web, slow, fast)
		opts.Pacing = pacing(4, 0)
		opts.Workers = 8
		sum := runOnce(t, opts)
		if fast := time.Duration(lastFast.Load()); sum.Completed != 80 || fast > 12*time.Second {
			t.Errorf("%+v; the fast host was done after %s", sum, fast)
		}
	})
}

// Higher priority first, then older; over all sources of a host.
func TestPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		var order []string
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			order = append(order, req.URL.Path)
			return product(req.URL.Path), nil
		})
		low, high := source(t, 3), source(t, 2)
		high.Name, high.URL, high.Priority = "high", template(t, "http://shop.test/h/{id}"), 10
		opts := options(s, web, low, high)
		opts.Pacing = pacing(1, 0)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if err := e.enqueueAll(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if _, err := e.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(order, " "); got != "/h/001 /h/002 /p/001 /p/002 /p/003" {
			t.Errorf("order: %s", got)
		}
	})
}

func TestGone(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			web := newSite(func(*http.Request, int) (*http.Response, error) { return respond(410, "gone"), nil })
			src := source(t, 1)
			src.Gone = gone
			sum := runOnce(t, options(s, web, src))
			if gone != (sum.Completed == 1) || gone == (sum.Failed == 1) {
				t.Errorf("gone = %v: %+v", gone, sum)
			}
			if n := counters(t, s)[storage.MetricObservations]; (n == 1) != gone || export(t, s, "shop") != "" {
				t.Errorf("gone = %v: %d observations, data %q", gone, n, export(t, s, "shop"))
			}
		})
	}
}

// A source that left the config keeps its jobs, and they do not run.
func TestRemovedSourceWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(products)
		gone := source(t, 3)
		gone.Name, gone.URL = "gone", template(t, "http://gone.test/p/{id}")
		e, err := New(options(s, web, gone))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.enqueueAll(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		e.Close()
		sum := runOnce(t, options(s, web, source(t, 3)))
		if sum.Completed != 3 || sum.Open != 0 || web.total() != 3 {
			t.Errorf("%+v, %d requests", sum, web.total())
		}
		if sum = runOnce(t, options(s, web, gone)); sum.Completed != 3 {
			t.Errorf("back in the config: %+v", sum)
		}
	})
}

// A mended URL reaches jobs that still have work ahead.
func TestMendedURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if req.URL.Host != "shop.test" || req.URL.RawQuery != "" {
				return respond(500, "wrong place"), nil
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 3)
		for _, wrong := range []string{"http://typo.test/p/{id}", "http://shop.test/p/{id}?typo"} {
			src.URL = template(t, wrong)
			e, err := New(options(s, web, src))
			if err != nil {
				t.Fatal(err)
			}
			run(t, e, time.Second)
			e.Close()
		}
		sum := runOnce(t, options(s, web, source(t, 3)))
		if sum.Completed != 3 || sum.New != 0 {
			t.Errorf("%+v", sum)
		}
	})
}

// Rows that cannot become jobs are told and left out; the others are worked.
func TestBadRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		src := source(t, 3)
		src.Targets.Targets[1] = intake.Target{Vars: intake.Vars{{Name: "id", Value: ""}}}
		sum := runOnce(t, options(s, newSite(products), src))
		if sum.Completed != 2 || sum.BadRows != 1 {
			t.Errorf("%+v", sum)
		}
		src.Targets = intake.Spec{Kind: intake.CSV, Path: "/nowhere/targets.csv"}
		sum = runOnce(t, options(s, newSite(products), src))
		if sum.BadFiles != 1 {
			t.Errorf("%+v", sum)
		}
	})
}

// A job of another rules version is not parsed by these.
func TestOtherRulesVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(products)
		src := source(t, 1)
		src.Identity.Parser, src.ParserVersion = true, 2 // its rules are of version 1
		sum := runOnce(t, options(s, web, src))
		if sum.Failed != 1 || web.total() != 0 {
			t.Errorf("%+v, %d requests", sum, web.total())
		}
	})
}

// The attempts that were let go before robots.txt was known keep its delay,
// too.
func TestCrawlDelayOfTheFirstAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		begin := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if req.URL.Path == "/robots.txt" {
				time.Sleep(2 * time.Second)
				return respond(200, "User-agent: *\nCrawl-delay: 10\n", "Content-Type", "text/plain"), nil
			}
			mu.Lock()
			at = append(at, time.Since(begin))
			mu.Unlock()
			return product(req.URL.Path), nil
		})
		opts := options(s, web, source(t, 8))
		opts.Robots = true
		opts.Pacing = pacing(4, 250*time.Millisecond) // the defaults
		runOnce(t, opts)
		for i := 1; i < len(at); i++ {
			if at[i]-at[i-1] < 10*time.Second-time.Millisecond {
				t.Errorf("gap %s", at[i]-at[i-1])
			}
		}
	})
}

func TestSlowedHostsAreNotForgotten(t *testing.T) {
	p := newPacer(pacing(4, 0), time.Now)
	now := time.Now()
	p.slow("h", 10*time.Second, now)
	p.forget(now.Add(2 * time.Minute))
	if together := p.begin("h", 4, now.Add(2*time.Minute)); together != 1 {
		t.Errorf("after forget %d may start together; nothing lowers it", together)
	}
}

// A 429 for robots.txt holds back the host as one for a page does, and is one
// answer for all attempts that wait for it.
func TestRobotsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		begin := time.Now()
		early := 0
		var mu sync.Mutex
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(begin) < time.Hour {
				early++
				return respond(429, "", "Retry-After", "3600"), nil
			}
			return respond(200, "<h1>x</h1>"), nil
		})
		opts := options(s, web, source(t, 30))
		opts.Robots = true
		sum := runOnce(t, opts)
		if early > 4 {
			t.Errorf("%d requests of robots.txt within its Retry-After; %+v", early, sum)
		}
	})
}

// A page that blocked us is left alone for a quarter of an hour at least, unless
// the source says otherwise.
func TestBlockedIsLeftAlone(t *testing.T) {
	now, src := time.Now(), source(t, 0)
	shortest := func() time.Duration {
		least := time.Duration(1 << 62)
		for i := range 200 {
			j := &storage.Job{Key: storage.JobKey{Source: "shop", Target: "1"}, Generation: uint32(i), FirstClaim: now}
			least = min(least, decide(j, &src, &failure{category: storage.CategoryBlocked}, history{}, now).due.Sub(now))
		}
		return least
	}
	if d := shortest(); d < 15*time.Minute {
		t.Errorf("asked again after %s", d)
	}
	src.Retry = map[storage.Category]RetryPolicy{storage.CategoryBlocked: {Base: time.Minute}}
	if d := shortest(); d > time.Minute {
		t.Errorf("a base of 1m of the source's own waits %s", d)
	}
}
