package fetch

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/publicsuffix"

	"semel/engine/address"
	"semel/engine/proxy"
)

const (
	maxHeaderBytes = 256 << 10
	// readBuffer takes a usual page in two reads.
	readBuffer = 16 << 10
	// idleConns bounds the kept connections of a session; only the direct
	// session, which all hosts share, comes near it.
	idleConns        = 512
	idleConnsPerHost = 128
	// idleConnTime stays below the 60 s after which providers let an idle exit
	// go (Oxylabs, Decodo).
	idleConnTime = 45 * time.Second

	shortLimit       = 100
	connectBodyLimit = 2 << 10
	connectBodyTime  = time.Second
)

// Session is one exit: one transport, HTTP/1.1 only, whose connections are
// shared by no other session. HTTP/2 would share connections by target alone
// and so mix exits.
//
// A direct session serves any number of Do at once. One behind a proxy should
// serve one at a time: the proxy's refusal of a connection that two wait for
// would be told to one of them.
type Session struct {
	opts      Options
	transport http.RoundTripper
	own       *http.Transport // transport, unless it was given
	jar       *cookiejar.Jar  // of Options.KeepCookies, else nil
	late      meter           // bytes that belong to no attempt
	closed    atomic.Bool
	worked    atomic.Bool

	created time.Time // set by Pool
}

// NewSession makes a session. Close it.
func NewSession(opts Options) *Session {
	opts.Timeouts = opts.Timeouts.orDefault()
	s := &Session{opts: opts, transport: opts.Transport}
	if opts.KeepCookies {
		s.jar = newJar()
	}
	if s.transport == nil {
		s.own = s.newTransport()
		s.transport = s.own
	}
	return s
}

// newJar makes a jar that gives a cookie to no site but those of its domain.
func newJar() *cookiejar.Jar {
	jar, err := cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List})
	if err != nil { // the package says that there is none
		panic(err)
	}
	return jar
}

func (s *Session) newTransport() *http.Transport {
	t := &http.Transport{
		DialContext:            s.dial,
		TLSClientConfig:        &tls.Config{RootCAs: s.opts.RootCAs, MinVersion: tls.VersionTLS12},
		DisableCompression:     true,
		MaxIdleConns:           idleConns,
		MaxIdleConnsPerHost:    idleConnsPerHost,
		IdleConnTimeout:        idleConnTime,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ReadBufferSize:         readBuffer,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	if s.opts.Endpoint != nil {
		t.Proxy = http.ProxyURL(s.opts.Endpoint.URL())
		t.OnProxyConnectResponse = onConnectResponse
	}
	return t
}

// Close closes idle connections and aborts dials. A Do that runs goes on; one
// that starts later fails with ErrClosed.
func (s *Session) Close() {
	s.closed.Store(true)
	if s.own != nil {
		s.own.CloseIdleConnections()
	}
}

// Direct reports whether the session uses no proxy.
func (s *Session) Direct() bool { return s.opts.Endpoint == nil }

// EndpointString is the redacted endpoint for records, "" when direct.
func (s *Session) EndpointString() string {
	if s.Direct() {
		return ""
	}
	return s.opts.Endpoint.String()
}

// Endpoint is the proxy's login that the session uses, the zero one when
// direct.
func (s *Session) Endpoint() proxy.Endpoint {
	if s.Direct() {
		return proxy.Endpoint{}
	}
	return *s.opts.Endpoint
}

// Country is the ISO 3166 code of the exit that was asked for, "" for any.
func (s *Session) Country() string {
	if s.Direct() {
		return ""
	}
	return s.opts.Endpoint.Country()
}

// SessionHash names the proxy's session in records, "" without one.
func (s *Session) SessionHash() string {
	if s.Direct() {
		return ""
	}
	return s.opts.Endpoint.SessionHash()
}

// Worked reports whether the session has brought an answer of a site before:
// then a sudden refusal means that its exit is gone.
func (s *Session) Worked() bool { return s.worked.Load() }

// LateBytes are the bytes that moved while no attempt held their connection:
// a closing handshake, or an answer to an attempt that had ended.
func (s *Session) LateBytes() (up, down int64) { return s.late.bytes() }

// redact takes the proxy's login out of a text.
func (s *Session) redact(text string) string {
	if s.Direct() {
		return text
	}
	return s.opts.Endpoint.Redact(text)
}

// ShowsLogin reports whether a page holds the proxy's login: then the gateway
// wrote it, though nothing in its header says so (Trace.ProxyOrigin). In a
// tunnel the gateway writes none, and there words like the login are the site's.
func (s *Session) ShowsLogin(p *Page) bool {
	if !s.httpProxy() || !strings.HasPrefix(p.FinalURL, "http:") {
		return false
	}
	body := string(p.Body)
	return s.redact(body) != body
}

// clean makes sure that no error says the proxy's login.
func (s *Session) clean(err error) error {
	text := err.Error()
	if redacted := s.redact(text); redacted != text {
		return &redactedError{text: redacted, inner: err}
	}
	return err
}

// httpProxy reports whether requests go through an HTTP proxy, SOCKS not
// counted.
func (s *Session) httpProxy() bool {
	return !s.Direct() && strings.HasPrefix(s.opts.Endpoint.Scheme(), "http")
}

// dial connects to the gateway or, when direct, the site. net/http detaches a
// dial from its request, so that it would go on, and cost bytes, after the
// attempt; here it ends with the attempt.
func (s *Session) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	a := attemptOf(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()

	dialer := net.Dialer{Timeout: s.opts.Timeouts.Dial}
	if s.Direct() && !s.opts.AllowPrivate {
		dialer.ControlContext = address.Control
	}
	a.dialing()
	start := time.Now()
	inner, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner}
	c.owner.Store(a.meter)
	if !a.dialed(c, time.Since(start)) {
		c.Close()
		return nil, context.Canceled
	}
	return c, nil
}

// onConnectResponse keeps what net/http throws away: the status, header and
// explanation of a proxy that made no tunnel.
func onConnectResponse(ctx context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	a := attemptOf(ctx)
	code := a.session.opts.Endpoint.Code(resp.Header)
	failed := resp.StatusCode != http.StatusOK || code != ""
	a.connectAnswered(resp, code, !failed)
	if !failed {
		return nil
	}
	return &ConnectError{
		Status: resp.StatusCode,
		Reason: shorten(a.session.redact(reason(resp))),
		Header: resp.Header,
		Code:   code,
		Body:   a.session.redact(a.connectBody(resp)),
	}
}

// reason is what the status line says beside the number.
func reason(resp *http.Response) string {
	_, text, _ := strings.Cut(resp.Status, " ")
	return text
}

// shorten makes a text of somebody else's fit for an error.
func shorten(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), shortLimit)], "")
}

// connectBody reads the proxy's explanation. Its body may have no end, so the
// time is short; the connection is given up anyway.
func (a *attempt) connectBody(resp *http.Response) string {
	c := a.lastDialed()
	if c == nil || c.SetReadDeadline(time.Now().Add(connectBodyTime)) != nil {
		return ""
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, connectBodyLimit))
	return strings.ToValidUTF8(string(body), "")
}

// socksError finds a SOCKS proxy's refusal, which net/http gives only as text.
func socksError(err error) *SOCKSError {
	var op *net.OpError
	if !errors.As(err, &op) || !strings.HasPrefix(op.Op, "socks") || op.Err == nil {
		return nil
	}
	text := op.Err.Error()
	if strings.Contains(text, "authentication") {
		return &SOCKSError{Reply: SOCKSAuth, text: text}
	}
	refusal, found := strings.CutPrefix(text, "unknown error ")
	if !found {
		return nil
	}
	return &SOCKSError{Reply: socksReply(refusal), text: refusal}
}

func socksReply(text string) SOCKSReply {
	for reply, want := range map[SOCKSReply]string{
		SOCKSGeneralFailure:  "general SOCKS server failure",
		SOCKSNotAllowed:      "connection not allowed by ruleset",
		SOCKSNetUnreachable:  "network unreachable",
		SOCKSHostUnreachable: "host unreachable",
		SOCKSRefused:         "connection refused",
		SOCKSTTLExpired:      "TTL expired",
		SOCKSNoCommand:       "command not supported",
		SOCKSNoAddressType:   "address type not supported",
	} {
		if text == want {
			return reply
		}
	}
	return SOCKSOther
}
