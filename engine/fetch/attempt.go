package fetch

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"semel/engine/address"
)

// attempt is one Do. It is the transport that colly's client uses: RoundTrip
// runs once for each hop, all of them in the goroutine of Do. Only what the
// dialing goroutines of net/http touch as well stands under the mutex.
type attempt struct {
	session *Session
	req     Request
	asked   *url.URL
	parent  context.Context // Do's
	ctx     context.Context // ends with the attempt; its cause is a *TimeoutError if a phase took too long
	cancel  context.CancelCauseFunc
	meter   *meter
	jar     *cookiejar.Jar

	page    *Page
	seen    map[string]bool // requests already made, for loops
	sent    int             // RoundTrips begun
	refused bool            // the last one was, by policy

	mu        sync.Mutex
	trace     Trace
	sealed    bool
	plain     bool        // this hop is http
	connected bool        // this hop has its connection: what other dials do is not its phase
	handshake int         // TLS handshakes begun on the connection being dialed
	hopGot    int         // connections that this hop was given
	mark      time.Time   // when the handshake began, or the request was written
	dials     []*conn     // dialed by this attempt
	held      []*conn     // given to this attempt
	watch     *time.Timer // ends a phase that makes no progress
	deadline  time.Time   // of the phase; zero for none
}

type attemptKey struct{}

// withAttempt lets the dialer, which net/http runs in goroutines of its own,
// find the attempt.
func withAttempt(ctx context.Context, a *attempt) context.Context {
	ctx = context.WithValue(ctx, attemptKey{}, a)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              a.gotConn,
		TLSHandshakeStart:    a.handshakeStart,
		TLSHandshakeDone:     a.handshakeDone,
		WroteRequest:         a.wroteRequest,
		GotFirstResponseByte: a.firstByte,
	})
}

func attemptOf(ctx context.Context) *attempt { return ctx.Value(attemptKey{}).(*attempt) }

// RoundTrip makes one hop. The response that it returns has no body: a page's
// stays in the attempt.
func (a *attempt) RoundTrip(req *http.Request) (*http.Response, error) {
	a.sent++
	a.prepareHop(req.URL)
	if err := a.admit(req.URL); err != nil {
		a.refused = true
		return nil, err
	}
	a.startHop()
	transport, release := a.transport()
	defer release()
	resp, err := transport.RoundTrip(a.conditional(req))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a.answered(req, resp)
	if isRedirect(resp.StatusCode) && a.req.MaxRedirects >= 0 {
		if err := checkLocation(req, resp); err != nil {
			return nil, err
		}
		drain(resp.Body)
		return withoutBody(req, resp), nil
	}
	if a.page, err = a.receive(req, resp); err != nil {
		return nil, err
	}
	return withoutBody(req, resp), nil
}

// transport is what a hop goes over, and what to call when the hop is over. One
// that must be sent once has connections of its own: net/http repeats no request
// whose connection is new.
func (a *attempt) transport() (http.RoundTripper, func()) {
	if !a.req.Once || a.session.own == nil {
		return a.session.transport, func() {}
	}
	own := a.session.newTransport()
	return own, own.CloseIdleConnections
}

// conditional adds the condition to a hop to its URL. It goes into a copy: a
// transport must not change its request.
func (a *attempt) conditional(req *http.Request) *http.Request {
	c := a.req.IfChanged
	if c.URL == "" || req.URL.String() != c.URL {
		return req
	}
	req = req.Clone(req.Context())
	if c.ETag != "" {
		req.Header.Set("If-None-Match", c.ETag)
	}
	if c.LastModified != "" {
		req.Header.Set("If-Modified-Since", c.LastModified)
	}
	return req
}

// withoutBody is what colly's client sees.
func withoutBody(req *http.Request, resp *http.Response) *http.Response {
	return &http.Response{
		Status:     resp.Status,
		StatusCode: resp.StatusCode,
		Proto:      resp.Proto,
		ProtoMajor: resp.ProtoMajor,
		ProtoMinor: resp.ProtoMinor,
		Header:     resp.Header,
		Body:       http.NoBody,
		Request:    req,
		// keeps colly from decompressing
		Uncompressed: true,
	}
}

// admit is the policy of one hop, asked with the URL that is really sent.
func (a *attempt) admit(u *url.URL) error {
	if err := checkScheme(u); err != nil {
		return err
	}
	if !a.session.opts.AllowPrivate {
		if err := address.CheckHost(u.Hostname()); err != nil {
			return err
		}
	}
	if a.req.Allow == nil {
		return nil
	}
	return a.req.Allow(a.ctx, u)
}

// started reports whether colly came as far as a request.
func (a *attempt) started() bool { return a.sent > 0 }

// hops is the number of requests begun, refused ones included.
func (a *attempt) hops() int { return a.sent }

// prepareHop begins a hop. Its policy may take its time, waiting for a host's
// turn: no phase's time runs.
func (a *attempt) prepareHop(u *url.URL) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.plain, a.connected, a.hopGot = u.Scheme == "http", false, 0
	a.trace.DialTime, a.trace.TLSTime, a.trace.FirstByteTime = 0, 0, 0
	a.trace.Reused = false
	a.enter(PhaseStart)
}

// startHop is all that is known of a hop over a transport that reports
// nothing.
func (a *attempt) startHop() {
	if a.session.own != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trace.Hops++
	a.connected = true
	a.enter(PhaseHeaders)
}

// answered notes the headers of a hop.
func (a *attempt) answered(req *http.Request, resp *http.Response) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enter(PhaseBody)
	a.trace.Status = resp.StatusCode
	a.trace.Header = resp.Header
	a.trace.ProxyOrigin = false
	plain := req.URL.Scheme == "http" && a.session.httpProxy()
	if plain {
		endpoint := a.session.opts.Endpoint
		a.trace.ProxyOrigin = endpoint.Owns(resp.StatusCode, resp.Header)
		if a.trace.ProxyOrigin {
			a.trace.ProxyCode = endpoint.Code(resp.Header)
		}
		a.trace.ProxyLoginOK = a.trace.ProxyLoginOK || !a.trace.ProxyOrigin
		a.noteExit(resp.Header)
	}
	if !a.trace.ProxyOrigin {
		a.session.worked.Store(true)
	}
}

// enter begins a phase and its time. Callers hold the mutex.
func (a *attempt) enter(p Phase) {
	a.trace.Phase = p
	limit := a.session.opts.Timeouts.of(p)
	if a.sealed || limit == 0 {
		a.deadline = time.Time{}
		return
	}
	a.deadline = time.Now().Add(limit)
	if a.watch == nil {
		a.watch = time.AfterFunc(limit, a.expire)
	} else {
		a.watch.Reset(limit)
	}
}

// expire ends the attempt if its phase is out of time. In the body every byte
// read begins that time anew, so the deadline is worked out when it is due
// rather than moved at each read.
func (a *attempt) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sealed || a.deadline.IsZero() {
		return
	}
	limit := a.session.opts.Timeouts.of(a.trace.Phase)
	due := a.deadline
	if a.trace.Phase == PhaseBody {
		if moved := time.Unix(0, a.meter.last.Load()).Add(limit); moved.After(due) {
			due = moved
		}
	}
	if left := time.Until(due); left > 0 {
		a.watch.Reset(left)
		return
	}
	a.cancel(&TimeoutError{Phase: a.trace.Phase, After: limit})
}

// dialing and dialed frame a dial for this attempt. dialed reports false if
// the attempt has ended and the connection is not wanted.
func (a *attempt) dialing() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.connected {
		a.enter(PhaseDial)
		a.handshake = 0
	}
}

func (a *attempt) dialed(c *conn, took time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sealed {
		return false
	}
	a.dials = append(a.dials, c)
	// Without tunnel and handshake it may at once go to another attempt of a
	// shared session.
	c.ready.Store(a.plain && a.session.Direct())
	if a.connected {
		return true
	}
	a.trace.DialTime = took
	if !a.session.Direct() {
		a.enter(PhaseConnect)
	}
	return true
}

func (a *attempt) lastDialed() *conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.dials) == 0 {
		return nil
	}
	return a.dials[len(a.dials)-1]
}

// connectAnswered notes a proxy's answer to CONNECT.
func (a *attempt) connectAnswered(resp *http.Response, code string, tunnel bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.connected {
		return
	}
	a.trace.ConnectStatus = resp.StatusCode
	a.trace.ProxyCode = code
	a.trace.ProxyLoginOK = a.trace.ProxyLoginOK || tunnel
	a.noteExit(resp.Header)
	if !tunnel {
		a.trace.Header = resp.Header
	}
}

// noteExit keeps the exit that a gateway's header shows. Callers hold the
// mutex.
func (a *attempt) noteExit(h http.Header) {
	if ip := a.session.opts.Endpoint.ExitIP(h); ip != "" {
		a.trace.ExitIP = ip
	}
}

func (a *attempt) handshakeStart() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.connected {
		return
	}
	a.handshake++
	if a.withGateway() {
		return // still PhaseConnect
	}
	a.mark = time.Now()
	a.enter(PhaseTLS)
}

// withGateway reports whether the handshake is that with an https proxy.
func (a *attempt) withGateway() bool {
	return !a.session.Direct() && a.session.opts.Endpoint.Scheme() == "https" && a.handshake == 1
}

func (a *attempt) handshakeDone(_ tls.ConnectionState, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil || a.withGateway() {
		return
	}
	for _, c := range a.dials {
		c.ready.Store(true)
	}
	if !a.connected {
		a.trace.TLSTime = time.Since(a.mark)
	}
}

// gotConn takes over the connection's bytes. A second one for the same hop
// means that net/http repeats the request, the first having died unused.
func (a *attempt) gotConn(info httptrace.GotConnInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := meteredConn(info.Conn); c != nil && !a.sealed {
		c.ready.Store(true)
		c.owner.Store(a.meter)
		a.held = append(a.held, c)
	}
	a.connected = true
	a.hopGot++
	a.trace.Hops++
	if a.hopGot > 1 {
		a.trace.Resent++
	}
	a.trace.Reused = info.Reused
	if !a.session.Direct() && !a.session.httpProxy() {
		a.trace.ProxyLoginOK = true // SOCKS asks for the login before it connects
	}
	a.enter(PhaseSend)
}

func (a *attempt) wroteRequest(info httptrace.WroteRequestInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if info.Err == nil && a.trace.Phase == PhaseSend {
		a.mark = time.Now()
		a.enter(PhaseHeaders)
	}
}

func (a *attempt) firstByte() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.trace.Phase == PhaseHeaders {
		a.trace.FirstByteTime = time.Since(a.mark)
	}
}

// seal ends the attempt: nothing of its own goes on, and bytes that still
// move are the session's. It returns the finished trace.
func (a *attempt) seal() Trace {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sealed = true
	if a.watch != nil {
		a.watch.Stop()
	}
	for _, c := range a.dials {
		if !c.ready.Load() {
			c.Close()
		}
	}
	a.cancel(nil)
	for _, list := range [][]*conn{a.dials, a.held} {
		for _, c := range list {
			c.owner.CompareAndSwap(a.meter, &a.session.late)
		}
	}
	a.trace.BytesUp, a.trace.BytesDown = a.meter.end(&a.session.late)
	return a.trace
}
