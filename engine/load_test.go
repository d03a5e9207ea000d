package engine

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/fetch"
	"semel/engine/gateway"
	"semel/engine/intake"
	"semel/engine/proxy"
	"semel/storage"
)

// behind is a site and a gateway that leads to it under any name.
type behind struct {
	site    *httptest.Server
	gateway *gateway.Gateway
}

func startBehind(t *testing.T, tls bool, opts gateway.Options, handler http.HandlerFunc) *behind {
	t.Helper()
	b := &behind{site: httptest.NewUnstartedServer(handler)}
	b.site.Config.ErrorLog = log.New(io.Discard, "", 0) // clients leave early on purpose
	if tls {
		b.site.StartTLS()
	} else {
		b.site.Start()
	}
	t.Cleanup(b.site.Close)
	opts.Provider, opts.Username, opts.Password = "oxylabs", "u", "p"
	opts.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, b.site.Listener.Addr().String())
	}
	g, err := gateway.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	b.gateway = g
	return b
}

// engine is one whose sources all go through the gateway, over a scheme, with
// a password; exits are kept for as long as said.
func (b *behind) engine(t *testing.T, scheme, password string, keep time.Duration, src Source) *Engine {
	t.Helper()
	p, err := proxy.New(proxy.Spec{
		Name: "home", URL: scheme + "://" + b.gateway.Addr(), Username: "u", Password: password,
		UsernameTemplate: "customer-{username}[-sessid-{session}]",
	})
	if err != nil {
		t.Fatal(err)
	}
	src.Proxies = []string{"home"}
	opts := options(openStore(t), nil, src)
	opts.Workers, opts.Pacing = 64, pacing(8, 0)
	opts.Timeouts = fetch.Timeouts{Idle: 3 * time.Second}
	opts.Proxies = []Proxy{{Proxy: p, Name: "home", Session: keep}}
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if b.site.TLS != nil {
		trustSite(e, b.site)
	}
	return e
}

func (b *behind) runOnce(t *testing.T, e *Engine) Summary {
	t.Helper()
	sum, err := e.RunOnce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// amount is a number that the whole check takes, and a tenth for every day.
func amount(n int) int {
	if os.Getenv("SEMEL_REAL") == "" {
		return n / 10
	}
	return n
}

// hosts is over how many names the targets are spread: each 503 holds back its
// host for a second, and that should not be the whole test.
const hosts = 20

// spread is a source over n targets of those hosts.
func spread(t *testing.T, n int) Source {
	src := source(t, n)
	src.URL = template(t, "http://shop{host}.test/p/{id}")
	for i := range src.Targets.Targets {
		target := &src.Targets.Targets[i]
		target.Vars = append(target.Vars, intake.Vars{{Name: "host", Value: strconv.Itoa(i % hosts)}}...)
	}
	soon := RetryPolicy{Base: 20 * time.Millisecond, Max: 200 * time.Millisecond}
	src.Retry = map[storage.Category]RetryPolicy{
		storage.CategoryServerError: soon, storage.CategoryThrottled: soon, storage.CategoryBodyTruncated: soon, storage.CategoryReadTimeout: soon,
	}
	return src
}

// badDays lets a tenth of all requests fail, a quarter of them in each way, and
// looks at when those come again that were told to wait.
type badDays struct {
	t    *testing.T
	draw func(gateway.Request) gateway.Fault

	mu    sync.Mutex
	until map[string]time.Time // by URL: not before
	met   map[string]int       // how often each happened
}

func newBadDays(t *testing.T) *badDays {
	return &badDays{
		t: t, until: map[string]time.Time{}, met: map[string]int{},
		draw: gateway.Random(7, 0.1,
			gateway.Fault{Kind: gateway.Status, Status: http.StatusInternalServerError},
			gateway.Fault{Kind: gateway.Status, Status: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"1"}}},
			gateway.Fault{Kind: gateway.Reset, After: 10 << 10},
			gateway.Fault{Kind: gateway.Stall, After: 10 << 10},
		),
	}
}

func (b *badDays) fault(r gateway.Request) gateway.Fault {
	f, now := b.draw(r), time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if early := b.until[r.URL].Sub(now); early > 0 {
		b.t.Errorf("%s came again %s before its Retry-After was over", r.URL, early)
	}
	if f.Header != nil {
		b.until[r.URL] = now.Add(time.Second)
	}
	switch f.Kind {
	case gateway.Status:
		b.met[statusText(f.Status)]++
	case gateway.Reset:
		b.met["reset"]++
	case gateway.Stall:
		b.met["stall"]++
	}
	return f
}

// bytesEach is what an observation cost.
func bytesEach(t *testing.T, e *Engine) float64 {
	t.Helper()
	c := counters(t, e.opts.Store)
	return float64(c[storage.MetricBytesUp]+c[storage.MetricBytesDown]) / float64(c[storage.MetricObservations])
}

// Where a tenth of the requests fail, every target ends with its observation,
// none is asked for before its Retry-After, and the failures cost little.
func TestBadDays(t *testing.T) {
	page := []byte(productPage("x"))
	handler := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }
	n := amount(2000)
	run := func(fault func(gateway.Request) gateway.Fault) (float64, Summary) {
		b := startBehind(t, false, gateway.Options{Fault: fault}, handler)
		e := b.engine(t, "http", "p", 0, spread(t, n))
		sum := b.runOnce(t, e)
		if c := counters(t, e.opts.Store); sum.Completed != n || sum.Failed != 0 || c[storage.MetricObservations] != int64(n) {
			t.Errorf("%+v, %d observations of %d targets", sum, c[storage.MetricObservations], n)
		}
		return bytesEach(t, e), sum
	}
	clean, _ := run(nil)
	bad := newBadDays(t)
	cost, sum := run(bad.fault)
	t.Logf("%d targets, %d retries, faults %v: %.0f bytes for each, %.0f on a clean day: %.3f times", n, sum.Retried, bad.met, cost, clean, cost/clean)
	if cost > 1.15*clean {
		t.Errorf("an observation cost %.0f bytes, %.3f times those of a clean day", cost, cost/clean)
	}
	if share := float64(sum.Retried) / float64(n); share < 0.05 || share > 0.2 || len(bad.met) != 4 {
		t.Errorf("%d of %d requests failed: %v", sum.Retried, n, bad.met)
	}
}

// descriptors is how many this process has open, 0 where that cannot be seen.
func descriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

// A thousand sessions, each with its exit and its connections, leave nothing
// behind while the engine lives.
func TestThousandSessions(t *testing.T) {
	for _, tls := range []bool{false, true} {
		n := 1000
		if tls {
			n = amount(n) // handshakes are dear
		}
		t.Run(fmt.Sprintf("%d, https %t", n, tls), func(t *testing.T) {
			b := startBehind(t, tls, gateway.Options{}, thing)
			run := func(n int) {
				src := source(t, n)
				if tls {
					src.URL = template(t, "https://example.com/p/{id}")
				}
				if sum := b.runOnce(t, b.engine(t, "http", "p", 0, src)); sum.Completed != n {
					t.Fatalf("%+v", sum)
				}
			}
			run(50) // the gateway has its own connections to the site from now on
			goroutines, open := runtime.NumGoroutine(), descriptors()
			run(n)
			sessions := map[string]bool{}
			for _, c := range b.gateway.Stats().Conns {
				sessions[c.Session] = true
			}
			if len(sessions) != n+50 {
				t.Errorf("%d sessions for %d attempts", len(sessions), n+50)
			}
			settle(t, "goroutines", goroutines, runtime.NumGoroutine)
			settle(t, "descriptors", open, descriptors)
		})
	}
}

func thing(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<h1>Thing</h1>") }

// settle waits until a count is near what it was: the last few connections may
// still be ending on all sides.
func settle(t *testing.T, what string, before int, count func() int) {
	t.Helper()
	const few = 10
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for count() > before+few {
		select {
		case <-tick.C:
		case <-deadline:
			t.Errorf("%d %s before, %d after", before, what, count())
			return
		}
	}
}

// Two sessions to one host are two tunnels with two exits; a session that is
// kept is one.
func TestTunnelsOfSessions(t *testing.T) {
	for _, scheme := range []string{"http", "socks5"} {
		for keep, want := range map[time.Duration]int{0: 2, time.Hour: 1} {
			b := startBehind(t, true, gateway.Options{}, thing)
			keeping(t, func(t *testing.T) {
				src := source(t, 2)
				src.URL = template(t, "https://example.com/p/{id}")
				e := b.engine(t, scheme, "p", keep, src)
				e.opts.Workers = 1 // one after the other
				if sum := b.runOnce(t, e); sum.Completed != 2 {
					t.Fatalf("%+v", sum)
				}
			})
			exits := map[string]bool{}
			seen := b.gateway.Stats()
			for _, c := range seen.Conns {
				exits[c.Exit] = true
			}
			if seen.Tunnels != want || len(seen.Conns) != want || len(exits) != want {
				t.Errorf("%s, kept %s: %d tunnels, %d connections, %d exits; want %d", scheme, keep, seen.Tunnels, len(seen.Conns), len(exits), want)
			}
		}
	}
}

// keeping runs an engine that is to keep its connections. net/http gives one up
// if it does not hear within 50 ms of its own clock that the request is written,
// whose answer it has; in a bubble that clock stands while a connection is open.
func keeping(t *testing.T, run func(*testing.T)) { synctest.Test(t, run) }

// A wrong password costs two requests and no attempt, whatever way it takes.
func TestWrongPasswordOverTheWire(t *testing.T) {
	for _, scheme := range []string{"http", "socks5"} {
		for _, tls := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, https %t", scheme, tls), func(t *testing.T) {
				asked := 0
				b := startBehind(t, tls, gateway.Options{}, func(http.ResponseWriter, *http.Request) { asked++ })
				src := source(t, 30)
				if tls {
					src.URL = template(t, "https://example.com/p/{id}")
				}
				e := b.engine(t, scheme, "wrong", 0, src)
				sum := b.runOnce(t, e)
				seen, c := b.gateway.Stats(), counters(t, e.opts.Store)
				if seen.Refused != freshTries || len(seen.Conns) != freshTries || len(seen.Requests) != 0 || asked != 0 {
					t.Errorf("%d refused over %d connections, %d let through, the site was asked %d times", seen.Refused, len(seen.Conns), len(seen.Requests), asked)
				}
				if c[storage.MetricAttempts] != 0 || c.State(storage.StatePending) != 30 || sum.Open != 30 || len(sum.Paused) != 1 {
					t.Errorf("%+v, counters %v", sum, c)
				}
			})
		}
	}
}
