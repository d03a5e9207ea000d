package engine

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/fetch"
	"semel/engine/gateway"
	"semel/engine/intake"
	"semel/engine/proxy"
	"semel/storage"
	"semel/storage/storagetest"
)

// unreachable is what net/http makes of a gateway that cannot be dialled.
func unreachable() error {
	return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
}

// countryProxy takes country and session in its login.
func countryProxy(t *testing.T, name string) Proxy {
	t.Helper()
	p, err := proxy.New(proxy.Spec{
		Name: name, URL: "http://" + name + ".test:8080", Username: "user-secret", Password: "pass-secret",
		UsernameTemplate: "{username}[-cc-{country}][-sid-{session}]",
	})
	if err != nil {
		t.Fatal(err)
	}
	return Proxy{Proxy: p, Name: name}
}

// tries is how many attempts of all jobs counted.
func tries(t *testing.T, s *storage.Store) int64 { return counters(t, s)[storage.MetricAttempts] }

// A gateway that goes away burns a handful of attempts, is asked by one request
// at a time, and when it is back everything completes.
func TestGatewayOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		begin, asked := time.Now(), atomic.Int64{}
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if d := time.Since(begin); d > 2*time.Second && d < 2*time.Hour {
				asked.Add(1)
				return nil, unreachable()
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 200)
		src.Proxies, src.Limits.Time = []string{"home"}, time.Hour // less than the outage
		opts := options(s, web, src)
		opts.Proxies, opts.Pacing = []Proxy{countryProxy(t, "home")}, pacing(4, 100*time.Millisecond)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		run(t, e, 3*time.Hour)
		c := counters(t, s)
		if c.State(storage.StateComplete) != 200 {
			t.Errorf("counters %v", c)
		}
		if burnt := tries(t, s) - 200; burnt > int64(outagePolicy.threshold) {
			t.Errorf("%d attempts were burnt", burnt)
		}
		// A minute apart at the end, with less at the beginning.
		if n := asked.Load(); n > 120+20 {
			t.Errorf("the gateway was tried %d times in two hours", n)
		}
	})
}

// RunOnce waits for a gateway for a while only, and not for long where it has
// never reached it, and says what it left.
func TestRunOnceLeavesAnOutage(t *testing.T) {
	for reached, patience := range map[int64]time.Duration{0: strangePatience, 20: outagePatience} {
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			var asked atomic.Int64
			web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
				if asked.Add(1) > reached {
					return nil, unreachable()
				}
				return product(req.URL.Path), nil
			})
			src := source(t, 50)
			src.Proxies = []string{"home"}
			opts := options(s, web, src)
			opts.Proxies = []Proxy{countryProxy(t, "home")}
			begin := time.Now()
			sum := runOnce(t, opts)
			if d := time.Since(begin); d < patience || d > patience+outagePolicy.max+time.Minute {
				t.Errorf("it took %s", d)
			}
			if sum.Failed != 0 || sum.Open != 50-int(reached) || sum.Paused["home"].Kind != PauseOutage {
				t.Errorf("%+v", sum)
			}
		})
	}
}

// A source that says how many attempts may end at a gateway that is gone has
// them counted.
func TestOutageCountsWhereAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(*http.Request, int) (*http.Response, error) { return nil, unreachable() })
		src := source(t, 20)
		src.Proxies, src.Retry = []string{"home"}, map[storage.Category]RetryPolicy{storage.CategoryProxyUnreachable: {Attempts: 1}}
		opts := options(s, web, src)
		opts.Proxies = []Proxy{countryProxy(t, "home")}
		sum := runOnce(t, opts)
		if n := tries(t, s); int64(sum.Failed) != n || n <= int64(outagePolicy.threshold) || sum.Failed+sum.Open != 20 {
			t.Errorf("%+v after %d attempts", sum, n)
		}
	})
}

// The next proxy of a list is used while the one before it is paused, and the
// one used is recorded.
func TestNextProxyOfTheList(t *testing.T) {
	for name, status := range map[string]int{"refused": 407, "used up": 402, "gone": 0} {
		t.Run(name, func(t *testing.T) {
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<h1>Thing</h1>") }))
			defer site.Close()
			s := openStore(t)
			src := source(t, 100)
			src.URL, src.Proxies = template(t, site.URL+"/p/{id}"), []string{"home", "spare"}
			src.Retry = map[storage.Category]RetryPolicy{storage.CategoryProxyUnreachable: {Base: 1, Max: 1}}
			opts := options(s, nil, src)
			bad := startGateway(t, gateway.Options{Fault: func(gateway.Request) gateway.Fault {
				return gateway.Fault{Kind: gateway.Status, Status: status}
			}})
			if status == 0 {
				bad.Close()
			}
			opts.Proxies = []Proxy{proxyAt(t, "home", bad), proxyAt(t, "spare", startGateway(t, gateway.Options{}))}
			sum := runOnce(t, opts)
			if sum.Completed != 100 || sum.Failed != 0 || sum.Open != 0 {
				t.Errorf("%+v", sum)
			}
			_, attempts := job(t, s, "099")
			if last := attempts[len(attempts)-1]; last.Proxy != "spare" || !strings.HasPrefix(last.Endpoint, "spare ") {
				t.Errorf("recorded are %q, %q", last.Proxy, last.Endpoint)
			}
		})
	}
}

// The first of a list is used again when it is well.
func TestChooseExit(t *testing.T) {
	opts := options(nil, nil, source(t, 1))
	opts.Proxies = []Proxy{countryProxy(t, "home"), countryProxy(t, "spare")}
	opts.Sources[0].Proxies = []string{"home", "spare"}
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	now := time.Now()
	for _, step := range []struct {
		learn   rune
		country string // that it was learnt in
		want    string
	}{
		{'a', "US", "home"}, {'q', "US", "spare"}, {'a', "US", "home"}, {'x', "DE", "home"}, {'x', "DE", "home"}, {'x', "DE", "home"},
		{'x', "US", "home"}, {'x', "US", "home"}, {'x', "US", "spare"}, {'a', "US", "home"},
	} {
		now = now.Add(time.Second)
		e.health.learn(exit{"home", step.country}, story(step.learn, now))
		if got, _ := e.chooseExit(lane{&opts.Sources[0], "US"}, now); got.proxy != step.want {
			t.Errorf("after %c in %s: %q, want %s", step.learn, step.country, got.proxy, step.want)
		}
	}
}

func startGateway(t *testing.T, opts gateway.Options) *gateway.Gateway {
	t.Helper()
	g, err := gateway.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func proxyAt(t *testing.T, name string, g *gateway.Gateway) Proxy {
	t.Helper()
	p, err := proxy.New(proxy.Spec{Name: name, URL: g.URL()})
	if err != nil {
		t.Fatal(err)
	}
	return Proxy{Proxy: p, Name: name}
}

// A country without exits holds back its own jobs only, and burns none.
func TestNoExitHoldsTheCountry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		var asked atomic.Int64
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if strings.HasPrefix(req.URL.Path, "/AQ/") {
				asked.Add(1)
				return nil, refused(490)
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 0)
		src.URL, src.Country = template(t, "http://shop.test/{country}/{id}"), template(t, "{country}")
		for i, row := range source(t, 100).Targets.Targets {
			row.Vars = append(row.Vars, intake.Vars{{Name: "country", Value: []string{"AQ", "DE"}[i%2]}}...)
			src.Targets.Targets = append(src.Targets.Targets, row)
		}
		src.Proxies = []string{"home"}
		opts := options(s, web, src)
		opts.Proxies = []Proxy{countryProxy(t, "home")}
		begin := time.Now()
		sum := runOnce(t, opts)
		if sum.Completed != 50 || sum.Failed != 0 || sum.Open != 50 {
			t.Errorf("%+v", sum)
		}
		if pause := sum.Paused["home"]; pause.Kind != PauseExit || !strings.Contains(pause.Reason, "AQ") {
			t.Errorf("paused %+v", sum.Paused)
		}
		if n, d := asked.Load(), time.Since(begin); n > 20 || d < exitPatience || d > exitPatience+exitPolicy.max+time.Minute {
			t.Errorf("%d requests for an exit that is not there, in %s", n, d)
		}
	})
}

// A budget defers what it does not pay for to the next day, and RunOnce leaves
// it. What was spent is known after a restart.
func TestBudgetDefersToTheNextDay(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "<h1>Thing</h1>"+strings.Repeat("x", 10_000))
	}))
	defer site.Close()
	now := time.Date(2026, 4, 23, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	s := storagetest.OpenAt(t, filepath.Join(t.TempDir(), "semel.db"), storage.Options{Now: clock})
	src := source(t, 50)
	src.URL, src.Proxies = template(t, site.URL+"/p/{id}"), []string{"home"}
	opts := options(s, nil, src)
	opts.Now = clock
	g := startGateway(t, gateway.Options{})
	home := proxyAt(t, "home", g)
	home.Budget = 220_000 // twenty-one pages
	opts.Proxies = []Proxy{home}
	for day, want := range []int{21, 21, 8} {
		before := g.Stats()
		for range 2 { // once more the same day changes nothing
			sum := runOnce(t, opts)
			if left := sum.Open > 0; left != (day < 2) || left != (sum.Paused["home"].Kind == PauseBudget) {
				t.Errorf("day %d: %+v", day, sum)
			}
		}
		after := g.Stats()
		if moved := after.Up + after.Down - before.Up - before.Down; moved > home.Budget+12_000 {
			t.Errorf("day %d: %d bytes moved of %d", day, moved, home.Budget)
		}
		if n := len(after.Requests) - len(before.Requests); n < want-2 || n > want+2 {
			t.Errorf("day %d: %d pages, want some %d", day, n, want)
		}
		now = now.Add(24 * time.Hour)
	}
	if n := tries(t, s); n != 50 {
		t.Errorf("%d attempts for 50 pages", n)
	}
}

// A host that fails again and again is left alone, and asked by one request at
// a time; others do not notice.
func TestTroubledHostIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		begin := time.Now()
		var asked atomic.Int64
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if req.URL.Host == "shop.test" && time.Since(begin) < time.Hour {
				asked.Add(1)
				return respond(503, "down"), nil
			}
			return product(req.URL.Path), nil
		})
		well := source(t, 60)
		well.Name, well.URL = "well", template(t, "http://well.test/p/{id}")
		opts := options(s, web, source(t, 60), well)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		run(t, e, 10*time.Minute)
		if n := asked.Load(); n > 20 {
			t.Errorf("the host was asked %d times in ten minutes of trouble", n)
		}
		if c := countersOf(t, s, "well"); c.State(storage.StateComplete) != 60 {
			t.Errorf("the other host's jobs: %v", c)
		}
	})
}

// A host that says too many requests is asked by half as many at once, and by
// more again while it does not.
func TestThrottledHostIsAskedByFewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		var under, refusals atomic.Int64
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			defer under.Add(-1)
			n := under.Add(1)
			time.Sleep(time.Second)
			if n > 3 {
				refusals.Add(1)
				return respond(429, ""), nil
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 400)
		src.Retry = map[storage.Category]RetryPolicy{storage.CategoryThrottled: {Base: time.Second, Max: time.Second}}
		opts := options(s, web, src)
		opts.Pacing = pacing(8, 0)
		sum := runOnce(t, opts)
		if sum.Completed != 400 {
			t.Errorf("%+v", sum)
		}
		// Without it, five of each eight are refused.
		if n := refusals.Load(); n > 100 {
			t.Errorf("%d refusals for 400 pages", n)
		}
	})
}

// A gateway that takes no more requests is asked by one at a time, not before it
// wants, and fails no job.
func TestGatewayLimitBurnsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		begin, asked := time.Now(), atomic.Int64{}
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if time.Since(begin) < 30*time.Minute && asked.Add(1) > 3 {
				return nil, &fetch.ConnectError{Status: 429, Header: http.Header{"Retry-After": {"2"}}}
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 40)
		src.Proxies = []string{"home"}
		opts := options(s, web, src)
		opts.Proxies = []Proxy{countryProxy(t, "home")}
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		run(t, e, time.Hour)
		if c := counters(t, s); c.State(storage.StateComplete) != 40 {
			t.Errorf("counters %v", c)
		}
		if n, burnt := asked.Load(), tries(t, s)-40; n > 60 || burnt > 10 {
			t.Errorf("the gateway was asked %d times, %d attempts were burnt", n, burnt)
		}
	})
}

// What a country's exits fail to reach says nothing of the host.
func TestFailingExitsHoldNoHost(t *testing.T) {
	p, now := newPacer(pacing(4, 0), time.Now), time.Now()
	for range 50 {
		p.learn("h", storage.CategoryExitConnect, true, now, now)
		p.learn("h", storage.CategoryConnectTimeout, true, now, now)
	}
	if p.at("h").After(now) {
		t.Error("the host is held back for its exits' failures")
	}
	for range 50 {
		p.learn("h", storage.CategoryConnectTimeout, false, now, now)
	}
	if !p.at("h").After(now) {
		t.Error("a host that cannot be reached directly is not left alone")
	}
}

// What a job waits for is told while it waits.
func TestWhatAJobWaitsFor(t *testing.T) {
	src := source(t, 1)
	src.Proxies = []string{"home", "spare"}
	opts := options(nil, nil, src)
	opts.Proxies = []Proxy{countryProxy(t, "home"), countryProxy(t, "spare")}
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	want := func(when, text string) {
		t.Helper()
		got := e.Waits("shop", "shop.test", "US")
		if text == "" && got != "" || !strings.Contains(got, text) {
			t.Errorf("%s it waits for %q, want %q", when, got, text)
		}
	}
	want("at first", "")
	e.health.learn(exit{"home", "US"}, story('q', time.Now()))
	want("with another proxy", "")
	e.health.learn(exit{"spare", "US"}, story('q', time.Now()))
	want("with none", "proxy home is paused until ")
	e.pace.gate("shop.test", time.Now().Add(time.Hour))
	want("at a host that asked for it", "host shop.test is left alone until ")
	if held := e.HeldHosts(); len(held) != 1 || held["shop.test"].Reason == "" {
		t.Errorf("held are %v", held)
	}
	if got := e.Waits("other", "shop.test", ""); !strings.Contains(got, "not worked by this run") {
		t.Errorf("of another source: %q", got)
	}
}

// A trial goes on with the next proxy of the list, as a run does.
func TestTryGoesOnWithTheNextProxy(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<h1>Thing</h1>") }))
	defer site.Close()
	src := source(t, 0)
	src.URL, src.Proxies = template(t, site.URL+"/p/{id}"), []string{"dead", "spare"}
	opts := options(nil, nil, src)
	dead := startGateway(t, gateway.Options{})
	opts.Proxies = []Proxy{proxyAt(t, "dead", dead), proxyAt(t, "spare", startGateway(t, gateway.Options{}))}
	dead.Close()
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	trial, err := e.Try(t.Context(), "shop", intake.Target{Vars: intake.Vars{{Name: "id", Value: "1"}}})
	if err != nil || trial.Category != "" || trial.Attempt.Proxy != "spare" || len(trial.Records) != 1 {
		t.Errorf("%+v, %v", trial, err)
	}
}
