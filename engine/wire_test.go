package engine

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"semel/engine/fetch"
	"semel/engine/gateway"
	"semel/engine/intake"
	"semel/engine/proxy"
	"semel/storage"
	"semel/storage/storagetest"
)

// way is how a request comes to its site: the scheme of the site's URL, and
// that of the gateway's, "" without one.
type way struct{ site, via string }

var (
	viaPlain    = way{"http", "http"}
	viaTunnel   = way{"https", "http"}
	viaSOCKS    = way{"http", "socks5"}
	viaSOCKSTLS = way{"https", "socks5"} // https inside of SOCKS5
	directHTTP  = way{"http", ""}
	directTLS   = way{"https", ""}
)

// wired is a story: one job meets one trouble on its first attempt, and the
// second succeeds.
type wired struct {
	name   string
	ways   []way
	fault  gateway.Fault    // of the first request that comes to the gateway
	answer http.HandlerFunc // the site's to its first request; nil: a product
	set    func(*wire)      // changes the world beforehand
	warm   bool             // the session has fetched another job's page before
	last   bool             // the trouble stays: there is no second attempt to look at

	category storage.Category
	phase    fetch.Phase // where the attempt ended; "": fetch.PhaseDone
	status   int         // of the site
	gateway  int         // status of the gateway's own answer
	code     string      // its code
	next     next        // the job's
	exit     string      // of the second attempt: anyExit, sameExit, freshExit
}

const anyExit, sameExit, freshExit = "", "the same", "a fresh one"

// next is what becomes of a job.
type next struct {
	state       storage.JobState
	tries       int           // attempts burnt
	least, most time.Duration // until the next attempt
	gated       bool          // the host is held back for as long
	released    int           // attempts handed back until the proxy is paused
}

var jobFailed = next{state: storage.StateFailed, tries: 1}

// jobHandedBack waits for its proxy, which is paused after so many refusals.
func jobHandedBack(refusals int) next {
	return next{state: storage.StatePending, released: refusals}
}

// jobRetried is tried again within a category's base.
func jobRetried(base time.Duration) next {
	return next{state: storage.StateRetryable, tries: 1, most: base}
}

// notBefore raises the least wait to what the site has asked for.
func (n next) notBefore(d time.Duration) next {
	n.least, n.most = d, max(n.most, d)
	return n
}

func (n next) gating() next { n.gated = true; return n }
func (n next) free() next   { n.tries = 0; return n }

// stillClock stands still until it is told to jump, so that waits are exact and
// none comes to its end by itself.
type stillClock struct{ at atomic.Int64 }

func (c *stillClock) now() time.Time        { return time.Unix(0, c.at.Load()).UTC() }
func (c *stillClock) jumpTo(t time.Time)    { c.at.Store(t.UnixNano()) }
func newStillClock(t time.Time) *stillClock { c := &stillClock{}; c.jumpTo(t); return c }

// unhurried is how long each silence is borne where the story is not about it.
var unhurried = fetch.Timeouts{Connect: 10 * time.Second, TLS: 10 * time.Second, Headers: 10 * time.Second, Idle: 10 * time.Second}

// wire is the world of a story: a site and a gateway on loopback, a real
// engine between them.
type wire struct {
	story   wired
	way     way
	clock   *stillClock
	site    *httptest.Server
	asked   atomic.Int64 // requests that came to the site
	passed  atomic.Int64 // and to the gateway
	gateway gateway.Options
	running *gateway.Gateway
	proxy   proxy.Spec
	keep    time.Duration // of a session
	src     Source
	opts    Options
	trust   bool // the site's certificate
	engine  *Engine
}

// begins is how many requests go well before the trouble.
func (w *wire) begins() int64 {
	if w.story.warm {
		return 1
	}
	return 0
}

func newWire(t *testing.T, story wired, by way) *wire {
	t.Helper()
	w := &wire{story: story, way: by, clock: newStillClock(time.Now().Truncate(time.Second)), keep: 100 * time.Hour, trust: true}
	w.site = httptest.NewUnstartedServer(http.HandlerFunc(w.answer))
	w.site.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes and bodies are broken on purpose
	w.gateway = gateway.Options{Provider: "oxylabs", Username: "u", Password: "p", Fault: w.fault}
	w.proxy = proxy.Spec{Name: "home", Username: "u", Password: "p", UsernameTemplate: "customer-{username}[-sessid_oneip-{session}]"}
	w.src = source(t, 1)
	if story.warm {
		w.src = source(t, 2)
	}
	w.src.URL = template(t, by.site+"://"+w.site.Listener.Addr().String()+"/p/{id}")
	store := storagetest.OpenAt(t, filepath.Join(t.TempDir(), "semel.db"), storage.Options{NoSync: true, Now: w.clock.now})
	w.opts = options(store, nil)
	w.opts.Now, w.opts.Workers, w.opts.Pacing = w.clock.now, 1, pacing(1, 0)
	w.opts.Timeouts = unhurried
	if story.set != nil {
		story.set(w)
	}
	w.start(t)
	return w
}

// start starts site and gateway and makes the engine.
func (w *wire) start(t *testing.T) {
	t.Helper()
	if w.way.site == "https" {
		w.site.StartTLS()
	} else {
		w.site.Start()
	}
	t.Cleanup(w.site.Close)
	if w.way.via != "" {
		var err error
		if w.running, err = gateway.Start(w.gateway); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.running.Close)
		w.proxy.URL = w.way.via + "://" + cmp.Or(w.proxy.URL, w.running.Addr())
		p, err := proxy.New(w.proxy)
		if err != nil {
			t.Fatal(err)
		}
		w.opts.Proxies = []Proxy{{Proxy: p, Name: "home", Session: w.keep}}
		w.src.Proxies = []string{"home"}
	}
	w.opts.Sources = []Source{w.src}
	e, err := New(w.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	w.engine = e
	if w.trust && w.way.site == "https" {
		trustSite(e, w.site)
	}
}

// trustSite gives an engine sessions that trust a test site's certificate, if
// it has one.
func trustSite(e *Engine, site *httptest.Server) {
	roots := x509.NewCertPool()
	if c := site.Certificate(); c != nil {
		roots.AddCert(c)
	}
	session := fetch.Options{AllowPrivate: e.opts.AllowPrivate, Timeouts: e.opts.Timeouts, RootCAs: roots}
	e.Close()
	e.pools[""] = fetch.NewPool(fetch.PoolOptions{Session: session})
	for _, p := range e.opts.Proxies {
		e.pools[p.Name] = fetch.NewPool(fetch.PoolOptions{Proxy: p.Proxy, TTL: p.Session, Session: session})
	}
}

// answer is the site's handler. robots.txt is the story's, too.
func (w *wire) answer(rw http.ResponseWriter, r *http.Request) {
	n := w.asked.Add(1)
	if w.story.warm {
		rw.Header().Set("Connection", "close") // so that the next page needs a tunnel of its own
	}
	if w.story.answer != nil && n == w.begins()+1 {
		w.story.answer(rw, r)
		return
	}
	_, _ = io.WriteString(rw, "<html><body><h1>Thing</h1></body></html>")
}

func (w *wire) fault(gateway.Request) gateway.Fault {
	if w.passed.Add(1) == w.begins()+1 {
		return w.story.fault
	}
	return gateway.Fault{}
}

// await waits until n outcomes are committed, or the proxy should be paused.
func (w *wire) await(t *testing.T, n int) {
	t.Helper()
	there := func(s Summary) bool {
		return s.Completed+s.Failed+s.Retried >= n || s.Released > 0 && s.Released >= w.story.next.released
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !there(w.engine.Summary()) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("nothing more happens: %+v", w.engine.Summary())
		}
	}
}

// tell plays the story.
func (w *wire) tell(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.engine.Run(ctx)
		ended <- err
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	w.await(t, int(w.begins())+1)
	target := fmt.Sprintf("%03d", w.begins()+1)
	j, attempts := job(t, w.opts.Store, target)
	w.checkAttempt(t, &attempts[0])
	w.checkJob(t, j, &attempts[0])
	if j.State != storage.StateRetryable || w.story.last {
		return
	}
	if w.opts.Timeouts != unhurried {
		w.endSilence()
	}
	w.clock.jumpTo(w.clock.now().Add(25 * time.Hour)) // over every wait and gate
	w.await(t, int(w.begins())+2)
	j, attempts = job(t, w.opts.Store, target)
	if j.State != storage.StateComplete || len(attempts) != 2 {
		t.Fatalf("the next attempt left the job %s: %+v", j.State, attempts)
	}
	w.checkExit(t, attempts[0].Session, attempts[1].Session)
}

// endSilence gives the next attempt its time, and no trouble though the first
// one may have ended before its request arrived.
func (w *wire) endSilence() {
	w.engine.opts.Timeouts = unhurried
	trustSite(w.engine, w.site)
	w.passed.Store(w.begins() + 1)
	w.asked.Store(w.begins() + 1)
}

func (w *wire) checkAttempt(t *testing.T, a *storage.Attempt) {
	t.Helper()
	s := w.story
	phase, status, connect := cmp.Or(s.phase, fetch.PhaseDone), s.status, 0
	if w.way == viaTunnel && (status != 0 || phase == fetch.PhaseTLS || phase == fetch.PhaseHeaders) {
		connect = http.StatusOK
	}
	switch {
	case s.gateway == 0:
	case w.way == viaPlain:
		phase, status = fetch.PhaseDone, s.gateway
	default:
		phase, connect = fetch.PhaseConnect, s.gateway
	}
	if a.Category != s.category || a.Phase != string(phase) || a.Status != status || a.ConnectStatus != connect || a.ProxyCode != s.code {
		t.Errorf("the attempt ended as %s, phase %s, status %d, CONNECT %d, code %q (%s);\nwant %s, %s, %d, %d, %q",
			a.Category, a.Phase, a.Status, a.ConnectStatus, a.ProxyCode, a.Reason, s.category, phase, status, connect, s.code)
	}
	if a.Reason == "" || (a.Endpoint != "") != (w.way.via != "") {
		t.Errorf("reason %q, endpoint %q", a.Reason, a.Endpoint)
	}
}

func (w *wire) checkJob(t *testing.T, j *storage.Job, a *storage.Attempt) {
	t.Helper()
	want := w.story.next
	if j.State != want.state || int(j.Tries) != want.tries {
		t.Fatalf("the job is %s after %d tries, want %s after %d: %s", j.State, j.Tries, want.state, want.tries, a.Reason)
	}
	if want.state == storage.StateRetryable {
		if wait := j.NextAt.Sub(w.clock.now()); wait < want.least || wait > want.most || !a.NextAt.Equal(j.NextAt) {
			t.Errorf("the next attempt is in %s, want %s to %s", wait, want.least, want.most)
		}
	}
	u, err := url.Parse(j.URL)
	if err != nil {
		t.Fatal(err)
	}
	gate := w.engine.pace.gatedUntil(intake.HostOf(u))
	if want.gated != gate.After(w.clock.now()) || want.gated && gate.Before(w.clock.now().Add(want.least)) {
		t.Errorf("the host is held back until %s, want %t", gate, want.gated)
	}
	if paused := len(w.engine.Paused()) > 0; paused != (want.released > 0) {
		t.Errorf("the proxy is paused: %t", paused)
	}
}

func (w *wire) checkExit(t *testing.T, first, second string) {
	t.Helper()
	if w.way.via == "" {
		return
	}
	if w.story.exit == sameExit && first != second || w.story.exit == freshExit && first == second {
		t.Errorf("sessions %s and %s, want %s", first, second, w.story.exit)
	}
}

// TestFromTheWire has every category come about as it does in the world, and
// looks at what is recorded and what becomes of the job.
func TestFromTheWire(t *testing.T) {
	for _, story := range stories(t) {
		for _, by := range story.ways {
			t.Run(fmt.Sprintf("%s/%s/%s by %q", story.category, story.name, by.site, by.via), func(t *testing.T) {
				t.Parallel()
				newWire(t, story, by).tell(t)
			})
		}
	}
}

// notFromTheWire are the categories that no answer brings about.
var notFromTheWire = map[storage.Category]string{
	storage.CategoryUnsafeToRepeat: "a step of a workflow that was cut short; any trouble will do",
	storage.CategoryCanceled:       "a person's",
	storage.CategoryReleased:       "a stop of the engine",
	storage.CategoryLeaseExpired:   "a worker that died",
}

func TestEveryCategoryHasAStory(t *testing.T) {
	told := map[storage.Category]bool{}
	for _, story := range stories(t) {
		told[story.category] = true
	}
	for _, c := range storage.Categories {
		if _, no := notFromTheWire[c]; no == told[c] {
			t.Errorf("%s: a story %t, left out %t", c, told[c], no)
		}
	}
}
