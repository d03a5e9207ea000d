package simulation

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"semel/engine/fetch"
)

// claim is a job under one of its generations: what allows one request.
type claim struct {
	job        uint64
	generation uint32
}

// answer is what the site said to a claim's request.
type answer string

const (
	noAnswer  answer = ""         // not yet, or to a process that is dead
	itsPage   answer = "its page" // what page says
	itLate    answer = "its page, when the attempt's time was over"
	notItself answer = "a failure" // anything else
)

// site is all that lies beyond the network: the sites and the gateway before
// one of them.
type site struct {
	w *world

	mu      sync.Mutex
	asked   map[string]int // requests by URL
	answers map[claim]answer
	given   map[uint64]int // failures by job
	refusal string         // the name of what the gateway does to every request; "": nothing
	status  int            // with this status
}

func newSite(w *world) *site {
	return &site{w: w, asked: map[string]int{}, answers: map[claim]answer{}, given: map[uint64]int{}}
}

// fault is one way in which a site or a gateway fails to answer as it should.
type fault struct {
	name    string
	gateway bool // only where there is one
	answer  func(context.Context, *visit) (*http.Response, error)
}

// faults are all that one request can meet.
var faults = []fault{
	{"hangs until the attempt gives up", false, func(ctx context.Context, v *visit) (*http.Response, error) {
		return nil, v.wait(ctx, time.Hour)
	}},
	{"answers after the lease", false, func(_ context.Context, v *visit) (*http.Response, error) {
		v.waitDeaf(timeout + margin + lease + v.draw("deaf").between(time.Second, time.Minute))
		v.say(itLate)
		return v.page()
	}},
	{"takes most of the timeout", false, func(ctx context.Context, v *visit) (*http.Response, error) {
		if err := v.wait(ctx, v.draw("slow").between(timeout/3, timeout*9/10)); err != nil {
			return nil, err
		}
		v.say(itsPage)
		return v.page()
	}},
	{"429 with Retry-After", false, status(http.StatusTooManyRequests, "Retry-After", "3")},
	{"503 with Retry-After", false, status(http.StatusServiceUnavailable, "Retry-After", "2")},
	{"500", false, status(http.StatusInternalServerError)},
	{"403, a block page", false, status(http.StatusForbidden)},
	{"connection reset", false, breaks(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET})},
	{"body cut short", false, func(_ context.Context, v *visit) (*http.Response, error) {
		resp, err := v.page()
		resp.Body, resp.ContentLength = io.NopCloser(io.MultiReader(resp.Body, brokenPipe{})), -1
		return resp, err
	}},
	{"gateway: no exit (490)", true, gatewaySays(490)},
	{"gateway: exit cannot connect (502)", true, gatewaySays(http.StatusBadGateway)},
	{"gateway: too many (429)", true, gatewaySays(http.StatusTooManyRequests)},
	{"gateway: one login refused (407)", true, gatewaySays(http.StatusProxyAuthRequired)},
}

// brokenPipe is the end of a body that ended early.
type brokenPipe struct{}

func (brokenPipe) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func status(code int, header ...string) func(context.Context, *visit) (*http.Response, error) {
	return func(_ context.Context, v *visit) (*http.Response, error) {
		resp := respond(v.req, code, "<p>Sorry.</p>")
		for i := 0; i < len(header); i += 2 {
			resp.Header.Set(header[i], header[i+1])
		}
		return resp, nil
	}
}

func breaks(err error) func(context.Context, *visit) (*http.Response, error) {
	return func(context.Context, *visit) (*http.Response, error) { return nil, err }
}

// gatewaySays is a refusal as fetch shows it.
func gatewaySays(code int) func(context.Context, *visit) (*http.Response, error) {
	return breaks(&fetch.ConnectError{Status: code, Header: http.Header{}})
}

func respond(req *http.Request, code int, body string) *http.Response {
	return &http.Response{
		Request: req, StatusCode: code, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/html; charset=utf-8"}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// visit is one request of a process.
type visit struct {
	site  *site
	life  *life
	req   *http.Request
	url   string
	nth   int // request for this URL, from 1
	claim claim
}

// RoundTrip is the network of a life. Nothing comes out of it any more when
// the power has gone.
func (l *life) RoundTrip(req *http.Request) (*http.Response, error) {
	v := l.w.site.enter(l, req)
	err := v.wait(req.Context(), v.draw("latency").between(20*time.Millisecond, 1500*time.Millisecond))
	if l.dead() {
		return nil, errPowerOff
	}
	if err != nil {
		return nil, err
	}
	resp, err := v.answer()
	if l.dead() {
		return nil, errPowerOff
	}
	return resp, err
}

// enter notes a request, for which a claim must be durable that has made none.
func (s *site) enter(l *life, req *http.Request) *visit {
	v := &visit{site: s, life: l, req: req, url: req.URL.String()}
	if l.dead() { // nobody hears it
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[v.url]++
	v.nth = s.asked[v.url]
	var claimed bool
	v.claim, claimed = s.w.ledger.claim(v.url)
	if _, twice := s.answers[v.claim]; twice || !claimed {
		s.w.failf("%s was asked for: claimed %v, in generation %d, asked for in that before %v", v.url, claimed, v.claim.generation, twice)
	}
	s.answers[v.claim] = noAnswer
	return v
}

// answer chooses what the request meets.
func (v *visit) answer() (*http.Response, error) {
	if name, status := v.site.refusing(); name != "" && v.proxied() {
		v.site.w.met(name)
		v.say(notItself)
		return gatewaySays(status)(v.req.Context(), v)
	}
	f := v.fault()
	if f == nil {
		v.say(itsPage)
		return v.page()
	}
	v.site.w.met(f.name)
	resp, err := f.answer(v.req.Context(), v)
	v.say(notItself) // unless it has said so
	return resp, err
}

// fault is what one of the first few requests for a URL meets; nil: nothing.
func (v *visit) fault() *fault {
	if v.nth > v.site.w.seed.draw("faults of", v.url).below(5) || v.site.w.calm {
		return nil
	}
	for try := 0; ; try++ {
		f := &faults[v.site.w.seed.draw("fault", v.url, v.nth, try).below(len(faults))]
		if !f.gateway || v.proxied() {
			return f
		}
	}
}

func (v *visit) proxied() bool { return strings.HasPrefix(v.url, "http://market.test/") }

func (v *visit) page() (*http.Response, error) {
	code, body := page(v.url)
	return respond(v.req, code, body), nil
}

// say notes the answer to the claim, once.
func (v *visit) say(a answer) {
	v.site.mu.Lock()
	defer v.site.mu.Unlock()
	if v.site.answers[v.claim] != noAnswer {
		return
	}
	v.site.answers[v.claim] = a
	if a != itsPage {
		v.site.given[v.claim.job]++
	}
}

func (v *visit) draw(what string) draw { return v.site.w.seed.draw(what, v.url, v.nth) }

// wait takes a time, or less where the attempt gives up or the process dies.
func (v *visit) wait(ctx context.Context, d time.Duration) error {
	v.life.wait(ctx, d, v.url, v.nth, d)
	if ctx.Err() != nil { // attempts that are told at one instant answer one by one
		v.waitDeaf(time.Millisecond)
	}
	return ctx.Err()
}

// waitDeaf does not hear when the attempt gives up.
func (v *visit) waitDeaf(d time.Duration) { v.life.wait(context.Background(), d, v.url, v.nth, d) }

func (s *site) refusing() (name string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusal, s.status
}

// refuse makes the gateway refuse every request; "": no more.
func (s *site) refuse(status int, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal, s.status = name, status
}

// said is the answer to a claim.
func (s *site) said(c claim) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers[c]
}

// failures is how often the site failed a job.
func (s *site) failures(job uint64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.given[job]
}
