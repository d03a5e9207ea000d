package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/gocolly/colly/v2"

	"semel/engine/address"
)

// acceptEncoding are the content encodings that decoder takes.
const acceptEncoding = "gzip, deflate, br, zstd"

// Do makes one request, redirects included, within ctx. Its error is an
// *Error; any status of the site is a page. Cookies that the site sets on the
// way are kept until Do returns, or as long as the session (KeepCookies).
func (s *Session) Do(ctx context.Context, req Request) (*Page, Trace, error) {
	a, err := s.newAttempt(ctx, req)
	if err == nil {
		err = a.collect()
	}
	return a.finish(err)
}

// newAttempt checks what can be checked before anything is sent. The attempt
// is never nil.
func (s *Session) newAttempt(ctx context.Context, req Request) (*attempt, error) {
	a := &attempt{session: s, req: req, parent: ctx, meter: &meter{limit: req.MaxBytes}}
	a.trace.Phase = PhaseStart
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	if s.closed.Load() {
		return a, ErrClosed
	}
	asked, err := url.Parse(req.URL)
	if err != nil {
		return a, fmt.Errorf("%w: %w", ErrURL, parseFault(err))
	}
	if err := checkScheme(asked); err != nil {
		return a, err
	}
	if asked.Hostname() == "" {
		return a, fmt.Errorf("%w: no host", ErrURL)
	}
	if err := checkLength(asked); err != nil {
		return a, fmt.Errorf("%w: %w", ErrURL, err)
	}
	a.asked = asked
	makeSendable(asked)
	if a.jar = s.jar; a.jar == nil {
		a.jar = newJar()
	}
	return a, nil
}

// parseFault is what is wrong with a URL, without the URL, which may hold a
// password.
func parseFault(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// makeSendable percent-encodes what a request line cannot hold, which
// net/url leaves in a query: a space would end it.
func makeSendable(u *url.URL) {
	illegal := func(r rune) bool { return r <= ' ' || r >= 0x7f }
	if !strings.ContainsFunc(u.RawQuery, illegal) {
		return
	}
	var b strings.Builder
	for i := range len(u.RawQuery) {
		if c := u.RawQuery[i]; illegal(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	u.RawQuery = b.String()
}

// longestHost is that of a name in DNS (RFC 1035 §2.3.4), 253 characters, before
// IDNA, in bytes.
const longestHost = 253 * utf8.UTFMax

// checkLength refuses a host that is longer than any name before it is encoded:
// for IDNA that costs the square of the length, and the end of the attempt does
// not stop it.
func checkLength(u *url.URL) error {
	if len(u.Hostname()) > longestHost {
		return errors.New("the host is longer than any name")
	}
	return nil
}

func checkScheme(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%w, not %q", ErrScheme, u.Scheme)
	}
	return nil
}

// collect runs the request through a colly collector of its own. The collector
// is made by Init and not by NewCollector, which reads COLLY_… from the
// environment over whatever the program says.
func (a *attempt) collect() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	c := new(colly.Collector)
	c.Init()
	c.Context = withAttempt(a.ctx, a)
	c.AllowURLRevisit = true
	c.ParseHTTPErrorResponse = true
	c.MaxBodySize = 0
	c.IgnoreRobotsTxt = true
	c.SetRequestTimeout(0)
	c.SetCookieJar(a.jar)
	c.WithTransport(a)
	c.SetRedirectHandler(a.redirect)
	c.OnRequest(func(r *colly.Request) { *r.URL = *a.asked })

	var body io.Reader // an untyped nil, which a nil *bytes.Reader would not be
	if a.req.Body != nil {
		body = bytes.NewReader(a.req.Body)
	}
	method := a.req.Method
	if method == "" {
		method = http.MethodGet
	}
	err = c.Request(method, a.req.URL, body, nil, a.header())
	if err != nil && !a.started() && !decided(err) {
		// colly's own parser is stricter in hosts than net/url.
		return fmt.Errorf("%w: %w", ErrURL, parseFault(err))
	}
	return err
}

// header is a fresh map, since colly writes into it. What is meant for a proxy
// stays out: inside a tunnel it would reach the site.
func (a *attempt) header() http.Header {
	h := a.req.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Del("Proxy-Authorization")
	h.Del("Proxy-Connection")
	h["User-Agent"] = []string{a.req.UserAgent}
	if h.Get("Accept-Encoding") == "" {
		h.Set("Accept-Encoding", acceptEncoding)
	}
	return h
}

// finish ends the attempt and says what became of it.
func (a *attempt) finish(err error) (*Page, Trace, error) {
	cause := context.Cause(a.ctx) // before seal, which ends it
	trace := a.seal()
	if err == nil && a.page == nil {
		err = errors.New("no page and no error") // only if colly changes
	}
	if err != nil {
		err = a.session.clean(a.explain(err, cause, trace.Phase))
		return nil, trace, &Error{Phase: trace.Phase, Err: err}
	}
	trace.Phase = PhaseDone
	return a.page, trace, nil
}

// explain finds the reason in what a dying connection made of it. The order
// matters: a cut transfer or an ended context shows up as almost any error.
func (a *attempt) explain(err, cause error, phase Phase) error {
	var outer *url.Error // the client's, with the URL that the caller knows
	if errors.As(err, &outer) {
		err = outer.Err
	}
	var timeout *TimeoutError
	var panicked *PanicError
	switch {
	case errors.As(err, &panicked):
		return err
	case a.meter.cut.Load():
		return ErrMaxBytes
	case a.parent.Err() == nil && a.refused || decided(err):
		return a.explainDecided(err)
	case errors.As(cause, &timeout):
		return timeout
	case a.parent.Err() != nil:
		return ended(a.parent)
	}
	return a.explainTransport(err, phase)
}

// explainDecided marks a refusal of a later hop as one of a redirect.
func (a *attempt) explainDecided(err error) error {
	refused := errors.Is(err, ErrScheme) || errors.Is(err, address.ErrPrivate)
	if a.hops() > 1 && refused && !errors.Is(err, ErrRedirect) {
		return fmt.Errorf("%w: %w", ErrRedirect, err)
	}
	return err
}

// explainTransport sorts the errors of the network by what was going on.
func (a *attempt) explainTransport(err error, phase Phase) error {
	var connect *ConnectError
	var op *net.OpError
	var timeout net.Error
	switch {
	case errors.As(err, &connect):
		return connect
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return fmt.Errorf("%w: %w", ErrGateway, err)
	case phase == PhaseDial && errors.As(err, &timeout) && timeout.Timeout():
		return &TimeoutError{Phase: PhaseDial, After: a.session.opts.Timeouts.Dial}
	case phase == PhaseConnect:
		if refusal := socksError(err); refusal != nil {
			return refusal
		}
		return fmt.Errorf("%w: %w", ErrGateway, err)
	case phase == PhaseSend || phase == PhaseHeaders:
		return fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	return err // a body's is an ErrTruncated already
}
