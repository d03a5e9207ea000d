package fetch

import (
	"context"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"time"

	"semel/engine/proxy"
)

// DefaultMaxRedirects is how many redirects a request follows unless it says
// otherwise.
const DefaultMaxRedirects = 10

// Request is one page to get.
type Request struct {
	Method    string // "" is GET
	URL       string // sent as it stands; never normalised
	Header    http.Header
	Body      []byte
	UserAgent string // "" sends none
	MaxBody   int64  // decompressed bytes; 0: no cap
	MaxBytes  int64  // bytes on the wire, both ways together; over it the transfer is cut; 0: no cap

	// Share is the body's part of a Budget; the caller frees it. nil: no bound.
	Share *Share

	// Into takes the body of an answer of status 200 as it comes, decompressed and
	// in its own charset; the Page then has none. It may get a part before Do fails.
	// nil: every body is the Page's.
	Into    io.Writer
	MaxInto int64 // decompressed bytes for Into, in the place of MaxBody; 0: no cap

	// Once: the request must not reach the site twice. It goes over connections
	// of its own, since net/http sends a request again whose kept connection
	// had died, and no redirect is followed that would send it again.
	Once bool

	// IfChanged asks for the page only where it is not what it was; the answer
	// is then a page of status 304 and no body. The zero value asks as usual.
	IfChanged Condition

	MaxRedirects int // 0: DefaultMaxRedirects; negative: none is followed

	// Allow is asked before each hop, the first included, with the URL that is
	// really sent; its error stops the request and is found by errors.Is/As in
	// the *Error that Do returns. nil allows everything.
	Allow func(ctx context.Context, u *url.URL) error

	// cutBody ends the body at MaxBody instead of failing, as robots.txt wants.
	cutBody bool
}

// Condition is what an earlier answer gave for telling whether its page still
// is the same (RFC 9110 §13.1). It goes with the hops to that page's own URL and
// with no other: elsewhere it means nothing, and would tell what was read.
type Condition struct {
	URL          string // Page.FinalURL of the earlier answer; "" for no condition
	ETag         string // as If-None-Match; "" for none
	LastModified string // as If-Modified-Since; "" for none
}

// Page is a whole response: status, headers, and the body decompressed and, if
// it is text, in UTF-8 without a byte order mark.
type Page struct {
	Status      int
	Reason      string      // what the status line says beside the number, at most 100 bytes
	Header      http.Header // as received, Content-Encoding too
	RequestURL  string      // as asked
	FinalURL    string      // after redirects
	ContentType string      // media type without parameters, lower case; "" if none was sent
	Charset     string      // what the body was decoded from, by its WHATWG name; "" for binary
	Body        []byte

	// CloseDelimited: the body had neither length nor chunks and ended with
	// the connection, so a cut would not have shown.
	CloseDelimited bool
}

// Phase is how far an attempt came.
type Phase string

const (
	PhaseStart   Phase = "start"   // nothing sent
	PhaseDial    Phase = "dial"    // connecting to the proxy or the site
	PhaseConnect Phase = "connect" // asking the proxy for a tunnel; TLS with the proxy itself
	PhaseTLS     Phase = "tls"     // handshake with the site
	PhaseSend    Phase = "send"    // connected, request on its way
	PhaseHeaders Phase = "headers" // request sent, waiting for the answer
	PhaseBody    Phase = "body"    // headers received
	PhaseDone    Phase = "done"    // whole response received
)

// Trace is what one Do did, whether it ended in a page or an error. Phase,
// statuses and header are those of the last hop.
type Trace struct {
	Phase         Phase
	Status        int         // last HTTP status, 0 if none; the site's unless ProxyOrigin
	ConnectStatus int         // status of the proxy's answer to CONNECT, 0 if none
	ProxyOrigin   bool        // plain http: the answer is the gateway's own, not the site's
	ProxyCode     string      // the gateway's own error code, "" if it gave none; holds no login
	ExitIP        string      // the exit as the gateway last showed it (see proxy.Endpoint.ExitIP); "" if it did not, as over a kept tunnel
	ProxyLoginOK  bool        // the gateway accepted the login during this Do
	Hops          int         // requests sent: redirects and repeats count
	Resent        int         // of Hops, repeats that net/http made because a kept connection had died
	Reused        bool        // the last hop went over a kept connection
	BytesUp       int64       // written to the wire, TLS and CONNECT included
	BytesDown     int64       // read from the wire
	Header        http.Header // last response header seen (site's or gateway's); nil if none

	DialTime      time.Duration // TCP, name resolution included; 0 over a kept connection
	TLSTime       time.Duration // handshake with the site
	FirstByteTime time.Duration // from the request's last byte to the answer's first
}

// Timeouts of each phase. Zero fields take those of DefaultTimeouts. The whole
// attempt is bounded by Do's context.
type Timeouts struct {
	Dial    time.Duration // name resolution and TCP
	Connect time.Duration // CONNECT or SOCKS, and TLS with the proxy
	TLS     time.Duration // handshake with the site
	Headers time.Duration // sending the request; then again, waiting for the answer
	Idle    time.Duration // without a byte of the body
}

// DefaultTimeouts are what a healthy but slow residential exit needs.
func DefaultTimeouts() Timeouts {
	return Timeouts{
		Dial:    10 * time.Second,
		Connect: 20 * time.Second,
		TLS:     10 * time.Second,
		Headers: 30 * time.Second,
		Idle:    20 * time.Second,
	}
}

// orDefault fills the zero fields.
func (t Timeouts) orDefault() Timeouts {
	d := DefaultTimeouts()
	for _, f := range []struct{ have, want *time.Duration }{
		{&t.Dial, &d.Dial}, {&t.Connect, &d.Connect}, {&t.TLS, &d.TLS}, {&t.Headers, &d.Headers}, {&t.Idle, &d.Idle},
	} {
		if *f.have == 0 {
			*f.have = *f.want
		}
	}
	return t
}

// of is the time that a phase may take, 0 for no limit.
func (t Timeouts) of(p Phase) time.Duration {
	switch p {
	case PhaseConnect:
		return t.Connect
	case PhaseTLS:
		return t.TLS
	case PhaseSend, PhaseHeaders:
		return t.Headers
	case PhaseBody:
		return t.Idle
	}
	return 0 // the dialer keeps PhaseDial's time itself, over all addresses of a name
}

// Options of a Session.
type Options struct {
	Endpoint     *proxy.Endpoint // nil: direct
	AllowPrivate bool            // may requests reach loopback and private addresses?
	Timeouts     Timeouts
	KeepCookies  bool              // cookies stay for the session's next Do; else until Do returns
	RootCAs      *x509.CertPool    // nil: the system's
	Transport    http.RoundTripper // replaces the network, for tests; nil: a transport of the session's own
}
