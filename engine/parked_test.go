package engine

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/gateway"
	"semel/storage"
)

// twoHosts are sources of one proxy: the host of the first comes first wherever
// nothing else decides.
func twoHosts(t *testing.T, first, second int) []Source {
	t.Helper()
	a, b := otherSource(t, "a", "http://a.test/p/{id}", first), otherSource(t, "b", "http://b.test/p/{id}", second)
	a.Proxies, b.Proxies = []string{"home"}, []string{"home"}
	return []Source{a, b}
}

// A gateway that asks for nothing for a while holds back every host, and all go
// on when it is over.
func TestBusyGatewayHoldsNobodyForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		opts := options(openStore(t), newSite(products), twoHosts(t, 5, 5)...)
		opts.Proxies = []Proxy{countryProxy(t, "home")}
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		busy := story('l', begin)
		busy.failure.retryAfter = time.Minute
		e.health.learn(exit{proxy: "home"}, busy)
		sum, err := e.RunOnce(t.Context())
		if d := time.Since(begin); err != nil || sum.Completed != 10 || d < time.Minute || d > 2*time.Minute {
			t.Errorf("%+v after %s: %v", sum, d, err)
		}
	})
}

// Where a proxy lets one request through at a time, a host that turns out to
// have no job left does not keep the place.
func TestEmptyHostKeepsNoPlace(t *testing.T) {
	s := openStore(t)
	opts := options(s, newSite(products), twoHosts(t, 1, 1)...)
	opts.Proxies = []Proxy{countryProxy(t, "home")}
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.enqueueAll(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	lanes := s.TakeReady()
	if err := s.Update(t.Context(), func(tx *storage.Tx) error {
		_, err := tx.ClaimJobs("another", time.Hour, []storage.ClaimGroup{{Lanes: lanes[:1], Max: 1}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	sched := newScheduler(e, true)
	if err := sched.activate(lanes); err != nil {
		t.Fatal(err)
	}
	if err := sched.dispatch(t.Context(), t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(sched.attempts) != 1 {
		t.Errorf("%d attempts have started, %d hosts are parked", len(sched.attempts), len(sched.parked))
	}
}

// A host that the gateway hangs up on does not hold back the others, though its
// failures look like the gateway's: who tries next whether it is back is not
// always the same.
func TestProbesGoToEveryHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if req.URL.Host == "a.test" {
				return nil, unreachable()
			}
			return product(req.URL.Path), nil
		})
		opts := options(s, web, twoHosts(t, 30, 20)...)
		opts.Proxies = []Proxy{countryProxy(t, "home")}
		opts.Sources[0].Retry = map[storage.Category]RetryPolicy{storage.CategoryProxyUnreachable: {Base: 24 * time.Hour, Max: 24 * time.Hour}}
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		run(t, e, 5*time.Minute)
		if c := countersOf(t, s, "b"); c.State(storage.StateComplete) != 20 {
			t.Errorf("the other host's jobs: %v", c)
		}
	})
}

// A host whose proxy has no room for it keeps its turn.
func TestParkedHostKeepsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin := openStore(t), time.Now()
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			time.Sleep(time.Second)
			return product(req.URL.Path), nil
		})
		opts := options(s, web, twoHosts(t, 1, 1)...)
		opts.Proxies, opts.Pacing = []Proxy{countryProxy(t, "home")}, pacing(4, time.Hour)
		sum := runOnce(t, opts)
		if d := time.Since(begin); sum.Completed != 2 || d > time.Minute {
			t.Errorf("%+v after %s", sum, d)
		}
	})
}

// Where a proxy has had no exit for jobs that name no country, RunOnce still
// waits for those that name one.
func TestNoExitAnywhereHoldsNoCountry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		sources := twoHosts(t, 3, 0)
		sources[0].Country = template(t, "de")
		opts := options(s, newSite(products), sources...)
		opts.Proxies, opts.Pacing = []Proxy{countryProxy(t, "home")}, pacing(1, time.Second)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		long := time.Now().Add(-exitPatience - time.Minute)
		for range exitPolicy.threshold {
			e.health.learn(exit{proxy: "home"}, story('x', long))
		}
		if sum, err := e.RunOnce(t.Context()); err != nil || sum.Completed != 3 {
			t.Errorf("%+v: %v", sum, err)
		}
	})
}

// A site that answers, whatever it says, shows that the gateway lets more
// through again.
func TestFailureOfTheSiteRaisesTheCeiling(t *testing.T) {
	h, now, x := testHealth(), time.Now(), exit{proxy: "p"}
	h.learn(x, story('a', now))
	h.learn(x, story('l', now))
	if n := h.slots(x, now); n != 1 {
		t.Fatalf("%d slots after it was too much", n)
	}
	h.learn(x, story('s', now))
	if n := h.slots(x, now); n != 2 {
		t.Errorf("%d slots after an answer of the site", n)
	}
}

// Attempts that were handed back unburnt do not count when a later one fails in
// the same way.
func TestReleasedAttemptsAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		e, err := New(options(s, newSite(products), source(t, 1)))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if err := e.enqueueAll(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		var j *storage.Job
		claim := func(end func(*storage.Tx, storage.Lease, storage.Attempt) error) {
			t.Helper()
			if err := s.Update(t.Context(), func(tx *storage.Tx) error {
				jobs, err := tx.ClaimJobs("test", time.Hour, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
				if err != nil {
					return err
				}
				j = jobs[0][0]
				return end(tx, j.Lease(), storage.Attempt{Category: storage.CategoryExitUnavailable, Reason: "x"})
			}); err != nil {
				t.Fatal(err)
			}
		}
		claim(func(tx *storage.Tx, l storage.Lease, a storage.Attempt) error { return tx.RetryJob(l, a, tx.Now) })
		if err := e.promote(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 12 {
			claim((*storage.Tx).ReleaseJob)
		}
		a := &attempt{engine: e, src: e.sources["shop"], job: j}
		h, err := a.history(result{failure: fail(storage.CategoryExitUnavailable, "x")}, time.Now())
		if err != nil || h.same != 1 {
			t.Errorf("%d attempts count, want 1: %v", h.same, err)
		}
	})
}

// Attempts whose time is over while they wait for their turn at a host that
// redirects lead to are no trouble of the host that sent them there.
func TestWaitingIsNoTroubleOfTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			return respond(302, "", "Location", "http://b.test"+req.URL.Path), nil
		})
		opts := options(openStore(t), web, source(t, 20))
		opts.Pacing, opts.Workers = pacing(20, 0), 20
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		e.pace.gate("b.test", time.Now().Add(time.Hour))
		sum := run(t, e, 90*time.Second)
		if d := e.pace.troubledFor("shop.test", time.Now()); d > 0 || sum.Retried < troublePolicy.threshold {
			t.Errorf("the host has been in trouble for %s: %+v", d, sum)
		}
	})
}

// An attempt that panics leaves no connection behind.
func TestPanicClosesTheSession(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(thing))
	defer site.Close()
	gw := startGateway(t, gateway.Options{})
	src := source(t, 20)
	src.URL, src.Proxies, src.Blocked = template(t, site.URL+"/p/{id}"), []string{"home"}, BlockRules{Text: []*regexp.Regexp{nil}}
	src.Limits.Attempts = 1
	opts := options(openStore(t), nil, src)
	home := proxyAt(t, "home", gw)
	home.Session = time.Hour
	opts.Proxies = []Proxy{home}
	before := runtime.NumGoroutine()
	if sum := runOnce(t, opts); sum.Failed != 20 {
		t.Errorf("%+v", sum)
	}
	settle(t, "goroutines", before, runtime.NumGoroutine)
}
