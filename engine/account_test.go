package engine

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/fetch"
	"semel/engine/proxy"
	"semel/storage"
)

func testProxy(t *testing.T, name string) Proxy {
	t.Helper()
	p, err := proxy.New(proxy.Spec{
		Name: name, URL: "http://gw.test:8080", Username: "user-secret", Password: "pass-secret",
		UsernameTemplate: "{username}-sid-{session}",
	})
	if err != nil {
		t.Fatal(err)
	}
	return Proxy{Proxy: p, Name: name}
}

func refused(status int) error { return &fetch.ConnectError{Status: status, Header: http.Header{}} }

// A wrong password costs at most two requests and no attempts, pauses the
// proxy, and holds back nothing that does not use it.
func TestWrongPasswordPausesTheProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		var gateway atomic.Int64
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if strings.HasPrefix(req.URL.Path, "/p/") {
				gateway.Add(1)
				return nil, refused(407)
			}
			return product(req.URL.Path), nil
		})
		bought := source(t, 30)
		bought.URL, bought.Proxies = template(t, "https://shop.test/p/{id}"), []string{"home"}
		direct := source(t, 5)
		direct.Name, direct.URL = "direct", template(t, "https://shop.test/free/{id}")
		opts := options(s, web, bought, direct)
		opts.Proxies = []Proxy{testProxy(t, "home")}
		begin := time.Now()
		sum := runOnce(t, opts)
		if n := gateway.Load(); n != 2 {
			t.Errorf("%d requests went to the gateway", n)
		}
		if sum.Completed != 5 || sum.Failed != 0 || sum.Open != 30 || len(sum.Paused) != 1 {
			t.Errorf("%+v", sum)
		}
		if d := time.Since(begin); d > time.Minute {
			t.Errorf("the run waited %s for a paused proxy", d)
		}
		c := counters(t, s)
		if c[storage.MetricAttempts] != 0 || c.State(storage.StatePending) != 30 {
			t.Errorf("counters %v", c)
		}
	})
}

// A login that has worked is believed until five refusals in a row: each is
// that session's fault, and only that job's retry.
func TestRefusalAfterSuccessIsTheSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if nth == 1 && req.URL.Path != "/p/001" && req.URL.Path < "/p/006" {
				return nil, refused(407)
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 20)
		src.Proxies = []string{"home"}
		opts := options(s, web, src)
		opts.Proxies = []Proxy{testProxy(t, "home")}
		sum := runOnce(t, opts)
		if sum.Completed != 20 || len(sum.Paused) != 0 || sum.Retried != 4 {
			t.Errorf("%+v", sum)
		}
		if _, attempts := job(t, s, "003"); attempts[0].Category != storage.CategoryProxyLimited {
			t.Errorf("attempts %+v", attempts)
		}
	})
}

// Until the login has worked, one request at a time goes through a proxy.
func TestUnprovenProxyGetsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		var mu sync.Mutex
		under, most, answered := 0, 0, false
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			mu.Lock()
			under++
			if !answered {
				most = max(most, under)
			}
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			under--
			answered = true
			mu.Unlock()
			return product(req.URL.Path), nil
		})
		src := source(t, 20)
		src.Proxies = []string{"home"}
		opts := options(s, web, src)
		opts.Proxies = []Proxy{testProxy(t, "home")}
		begin := time.Now()
		sum := runOnce(t, opts)
		if most != 1 {
			t.Errorf("%d requests were under way before the login had worked", most)
		}
		if d := time.Since(begin); sum.Completed != 20 || d > 8*time.Second {
			t.Errorf("%+v after %s: the proxy was not opened up after its first success", sum, d)
		}
	})
}

// A running engine tries a paused proxy again with one probe.
func TestPausedProxyComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		var mu sync.Mutex
		var times []time.Time
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			times = append(times, time.Now())
			if len(times) <= 4 {
				return nil, refused(407)
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 6)
		src.Proxies = []string{"home"}
		src.Limits.Time = time.Minute // a pause does not count
		opts := options(s, web, src)
		opts.Proxies = []Proxy{testProxy(t, "home")}
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		run(t, e, 20*time.Minute)
		if c := counters(t, s); c.State(storage.StateComplete) != 6 || c[storage.MetricAttempts] != 6 {
			t.Errorf("counters %v", c)
		}
		for i, want := range []time.Duration{2: proxyPause, 3: proxyPause, 4: proxyPause} {
			if want > 0 && times[i].Sub(times[i-1]) < want {
				t.Errorf("request %d came %s after the one before", i, times[i].Sub(times[i-1]))
			}
		}
	})
}

// Account states by the sequence of what a gateway answered.
func TestHealth(t *testing.T) {
	for _, test := range []struct {
		name   string
		story  string // a: accepted, r: refused, q: quota
		paused bool
		slots  int // 0, 1 or more
	}{
		{"fresh", "", false, 1},
		{"accepted", "a", false, 2},
		{"one refusal is a hiccup", "r", false, 1},
		{"two refusals pause", "rr", true, 0},
		{"refusals after success", "arrrr", false, 2},
		{"five in a row pause", "arrrrr", true, 0},
		{"a success between starts anew", "arrrrarrrr", false, 2},
		{"quota pauses at once", "aq", true, 0},
		{"back after a success", "rra", false, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, now, x := testHealth(), time.Now(), exit{proxy: "p"}
			for _, step := range test.story {
				h.learn(x, story(step, now))
			}
			if got := len(h.pauses(now)) == 1; got != test.paused {
				t.Errorf("paused: %v", got)
			}
			if got := min(h.slots(x, now), 2); got != test.slots {
				t.Errorf("slots: %d, want %d", got, test.slots)
			}
			if test.paused {
				if got := h.slots(x, now.Add(quotaPause)); got != 1 {
					t.Errorf("slots after the pause: %d, want one probe", got)
				}
			}
		})
	}
}

func testHealth() *health { return newHealth([]Proxy{{Name: "p"}}, 64) }

// story is what one letter of a story stands for: a success, or a failure with
// a login that was accepted only where the category says so.
func story(step rune, at time.Time) experience {
	e := experience{began: at, ended: at, answered: true, dialed: true}
	categories := map[rune]storage.Category{
		'r': storage.CategoryProxyAuth, 'q': storage.CategoryProxyQuota, 'u': storage.CategoryProxyUnreachable,
		'x': storage.CategoryExitUnavailable, 'l': storage.CategoryProxyLimited, 's': storage.CategoryServerError,
	}
	if c, failed := categories[step]; failed {
		e.failure = fail(c, "%s", c)
	}
	e.loginOK = e.failure == nil || step == 's'
	e.answered = step != 'u'
	e.dialed = step != 'u'
	return e
}

// The account's trouble is told apart from the target's on every way there.
func TestGatewayCategories(t *testing.T) {
	for _, test := range []struct {
		status int
		worked bool
		want   storage.Category
	}{
		{407, false, storage.CategoryProxyAuth},
		{401, false, storage.CategoryProxyAuth},
		{402, false, storage.CategoryProxyQuota},
		{429, false, storage.CategoryProxyLimited},
		{403, false, storage.CategoryProxyDenied},
		{400, false, storage.CategoryProxyDenied},
		{490, false, storage.CategoryExitUnavailable},
		{525, true, storage.CategoryExitUnavailable},
		{502, false, storage.CategoryExitConnect},
		{502, true, storage.CategorySessionLost},
		{503, false, storage.CategoryExitConnect},
		{504, true, storage.CategoryExitConnect},
		{522, false, storage.CategoryExitConnect},
		{499, false, storage.CategoryExitConnect},
		{408, false, storage.CategoryExitConnect},
	} {
		t.Run(fmt.Sprint(test.status, test.worked), func(t *testing.T) {
			x := exchange{err: fmt.Errorf("wrapped: %w", refused(test.status)), proxied: true, worked: test.worked}
			if got := judge(x, time.Now()); got.category != test.want {
				t.Errorf("CONNECT: %s, want %s", got.category, test.want)
			}
			page := &fetch.Page{Status: test.status, Header: http.Header{}}
			x = exchange{page: page, trace: fetch.Trace{ProxyOrigin: true}, proxied: true, worked: test.worked}
			if got := judge(x, time.Now()); got.category != test.want {
				t.Errorf("plain http: %s, want %s", got.category, test.want)
			}
		})
	}
}

// An attempt that logged in before a pause proves nothing after it.
func TestStaleSuccessLiftsNoPause(t *testing.T) {
	h, t0, x := testHealth(), time.Now(), exit{proxy: "p"}
	h.learn(x, story('a', t0))
	for i := range 5 {
		h.learn(x, story('r', t0.Add(time.Duration(i)*time.Second)))
	}
	h.learn(x, story('q', t0.Add(6*time.Second)))
	late := story('a', t0) // begun before the pause, ends its body now
	late.ended = t0.Add(7 * time.Second)
	h.learn(x, late)
	if n := h.slots(x, t0.Add(8*time.Second)); n > 1 {
		t.Errorf("slots %d, paused %v", n, h.pauses(t0.Add(8*time.Second)))
	}
}

// Time under a paused proxy is not the job's, also in the next process.
func TestPauseAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		bad := true
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if bad {
				return nil, refused(407)
			}
			if nth <= 3 && strings.HasSuffix(req.URL.Path, "001") {
				return respond(500, ""), nil
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 1)
		src.Proxies, src.URL = []string{"home"}, template(t, "https://shop.test/p/{id}")
		opts := options(s, web, src)
		opts.Proxies = []Proxy{testProxy(t, "home")}
		runOnce(t, opts)
		time.Sleep(8 * time.Hour)
		bad = false
		runOnce(t, opts)
		j, _ := job(t, s, "001")
		if j.State != storage.StateComplete {
			t.Errorf("%s %s %s", j.State, j.Category, j.Reason)
		}
	})
}

// A login that only the fetch of robots.txt had to show counts for the page
// that reuses its tunnel.
func TestLoginOfRobotsCounts(t *testing.T) {
	v := &visit{record: &storage.Attempt{}}
	v.book(fetch.Trace{ProxyLoginOK: true, BytesUp: 1})
	v.book(fetch.Trace{BytesUp: 2})
	if !v.loginOK || v.record.BytesUp != 3 {
		t.Errorf("%+v", v)
	}
}

// An exit that could not be had burns no attempt, and its session goes.
func TestExitUnavailableIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if nth <= 8 {
				return nil, refused(490)
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 1)
		src.Proxies = []string{"home"}
		opts := options(s, web, src)
		p := testProxy(t, "home")
		p.Session = 24 * time.Hour
		opts.Proxies = []Proxy{p}
		sum := runOnce(t, opts)
		j, attempts := job(t, s, "001")
		if sum.Completed != 1 || j.Tries != 1 || len(attempts) != 9 {
			t.Errorf("%+v, job %+v", sum, j)
		}
		sessions := map[string]bool{}
		for _, a := range attempts {
			sessions[a.Session] = true
		}
		if len(sessions) != 9 {
			t.Errorf("9 attempts went through %d sessions", len(sessions))
		}
	})
}

// Time under a pause is known while the process lives.
func TestHeldSince(t *testing.T) {
	h, now, x := testHealth(), time.Now(), exit{proxy: "p"}
	held := func(since, until time.Duration) time.Duration {
		return h.heldSince([]string{"p"}, now.Add(since), now.Add(until))
	}
	h.learn(x, story('q', now))
	if d := held(-time.Hour, 10*time.Minute); d != 10*time.Minute {
		t.Errorf("while paused: %s", d)
	}
	h.learn(x, story('a', now.Add(31*time.Minute)))
	if d := held(-time.Hour, time.Hour); d != 31*time.Minute {
		t.Errorf("after the pause: %s", d)
	}
	if d := held(55*time.Minute, time.Hour); d > 5*time.Minute {
		t.Errorf("of a job younger than the pause: %s", d)
	}
	h.learn(x, story('q', now.Add(2*time.Hour)))
	if d := held(time.Hour, 150*time.Minute); d != 30*time.Minute {
		t.Errorf("of a job between two pauses and under the second: %s", d)
	}
	if d := h.heldSince([]string{"p", ""}, now.Add(-time.Hour), now.Add(time.Hour)); d != 0 {
		t.Errorf("with a second way that was never held: %s", d)
	}
	if d := h.heldSince(nil, now.Add(-time.Hour), now.Add(time.Hour)); d != 0 {
		t.Errorf("direct: %s", d)
	}
}
