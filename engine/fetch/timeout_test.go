package fetch

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/gateway"
)

// short are timeouts of which one is to run out; the others are long.
func short(set func(*Timeouts)) Timeouts {
	t := Timeouts{Dial: time.Minute, Connect: time.Minute, TLS: time.Minute, Headers: time.Minute, Idle: time.Minute}
	set(&t)
	return t
}

const soon = 50 * time.Millisecond

func wantTimeout(t *testing.T, err error, trace Trace, phase Phase) {
	t.Helper()
	var timeout *TimeoutError
	if !errors.As(err, &timeout) || timeout.Phase != phase || timeout.After != soon || trace.Phase != phase {
		t.Errorf("got %v in phase %s, want a timeout in %s", err, trace.Phase, phase)
	}
	var network net.Error
	if errors.As(err, &network) && !network.Timeout() {
		t.Errorf("%v is no timeout to net", err)
	}
}

// silent accepts and says nothing until the client leaves.
func silent(t *testing.T) string {
	return serveConn(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
}

func TestTimeoutOfEachPhase(t *testing.T) {
	hang := startGateway(t, answering(gateway.Fault{Kind: gateway.Hang}))
	stall := startGateway(t, answering(gateway.Fault{Kind: gateway.Stall, After: 10}))
	secure := serveTLS(t, hello)
	plain := serve(t, hello)
	tests := []struct {
		name  string
		opts  Options
		url   string
		phase Phase
	}{
		{"CONNECT", Options{Endpoint: endpointOf(t, hang.URL()), Timeouts: short(func(d *Timeouts) { d.Connect = soon })}, "https://example.com/", PhaseConnect},
		{"SOCKS", Options{Endpoint: endpointOf(t, hang.SOCKSURL()), Timeouts: short(func(d *Timeouts) { d.Connect = soon })}, "http://example.com/", PhaseConnect},
		{"TLS to the proxy", Options{Endpoint: endpointOf(t, strings.Replace(silent(t), "http:", "https:", 1)),
			Timeouts: short(func(d *Timeouts) { d.Connect = soon })}, "https://example.com/", PhaseConnect},
		{"TLS", Options{Timeouts: short(func(d *Timeouts) { d.TLS = soon })}, strings.Replace(silent(t), "http:", "https:", 1), PhaseTLS},
		{"TLS in a tunnel", Options{Endpoint: endpointOf(t, stall.URL()), Timeouts: short(func(d *Timeouts) { d.TLS = soon })}, secure.URL, PhaseTLS},
		{"headers", Options{Timeouts: short(func(d *Timeouts) { d.Headers = soon })}, silent(t), PhaseHeaders},
		{"headers from a proxy", Options{Endpoint: endpointOf(t, hang.URL()), Timeouts: short(func(d *Timeouts) { d.Headers = soon })}, plain.URL, PhaseHeaders},
		{"body", Options{Endpoint: endpointOf(t, stall.URL()), Timeouts: short(func(d *Timeouts) { d.Idle = soon })}, plain.URL, PhaseBody},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, test.opts)
			_, trace, err := get(t, s, test.url)
			wantTimeout(t, err, trace, test.phase)
			if errors.Is(err, context.DeadlineExceeded) {
				t.Error("a phase's timeout looks like the end of the context")
			}
		})
	}
}

// silentOnce is silent to one client, whose first byte it tells.
func silentOnce(t *testing.T, asked chan<- struct{}) string {
	return serveConn(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		close(asked)
		_, _ = io.Copy(io.Discard, c)
	})
}

func TestContextEndsTheAttemptInAnyPhase(t *testing.T) {
	connecting, greeted, asked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	hang := startGateway(t, gateway.Options{Fault: func(gateway.Request) gateway.Fault {
		close(connecting)
		return gateway.Fault{Kind: gateway.Hang}
	}})
	stall := startGateway(t, answering(gateway.Fault{Kind: gateway.Stall, After: 10}))
	plain := serve(t, hello)
	told := func(event <-chan struct{}) func(*Session) { return func(*Session) { <-event } }
	for _, test := range []struct {
		name    string
		opts    Options
		url     string
		phase   Phase
		reached func(*Session) // waits for the phase
	}{
		{"CONNECT", Options{Endpoint: endpointOf(t, hang.URL())}, "https://example.com/", PhaseConnect, told(connecting)},
		{"TLS", Options{}, strings.Replace(silentOnce(t, greeted), "http:", "https:", 1), PhaseTLS, told(greeted)},
		{"headers", Options{}, silentOnce(t, asked), PhaseHeaders, told(asked)},
		{"body", Options{Endpoint: endpointOf(t, stall.URL())}, plain.URL, PhaseBody, func(s *Session) {
			for !s.Worked() { // it does once it has a header
				runtime.Gosched()
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, test.opts)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				test.reached(s)
				cancel(context.DeadlineExceeded) // what a deadline gives net/http as well
			}()
			_, trace, err := s.Do(ctx, Request{URL: test.url})
			wantError(t, err, context.DeadlineExceeded)
			if trace.Phase != test.phase {
				t.Errorf("got phase %s", trace.Phase)
			}
		})
	}
}

func TestCauseOfContextIsKept(t *testing.T) {
	lost := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(lost)
	_, _, err := open(t, Options{}).Do(ctx, Request{URL: silent(t)})
	wantError(t, err, lost)
	wantError(t, err, context.Canceled)
}

func TestSlowBodyThatMovesIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A byte each 15 s for ten minutes, under an idle limit of 20 s.
		s := NewSession(Options{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			body := &slowBody{ctx: r.Context(), left: 40, pause: 15 * time.Second}
			return &http.Response{StatusCode: 200, Body: body, ContentLength: 40, Request: r}, nil
		})})
		page, _, err := s.Do(t.Context(), Request{URL: "http://example.com/"})
		if err != nil || len(page.Body) != 40 {
			t.Fatalf("got %v", err)
		}
	})
}

// slowBody gives a byte after each pause.
type slowBody struct {
	ctx   context.Context
	left  int
	pause time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(b.pause) // of the bubble's clock
	if b.ctx.Err() != nil {
		return 0, b.ctx.Err()
	}
	b.left--
	p[0] = 'x'
	return 1, nil
}

func (*slowBody) Close() error { return nil }

func TestHeadersTimeoutOverGivenTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSession(Options{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		start := time.Now()
		_, trace, err := s.Do(t.Context(), Request{URL: "http://example.com/"})
		var timeout *TimeoutError
		if !errors.As(err, &timeout) || trace.Phase != PhaseHeaders || time.Since(start) != DefaultTimeouts().Headers {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
	})
}

func TestByteLimitCutsTheTransfer(t *testing.T) {
	site := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(varied(300_000)) })
	secure := serveTLS(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(varied(300_000)) })
	g := startGateway(t, gateway.Options{})
	for _, test := range []struct {
		name, url string
		limit     int64
		opts      Options
	}{
		{"in the request", site.URL, 10, Options{}},
		{"in the headers", site.URL, 120, Options{}},
		{"in the body", site.URL, 100_000, Options{}},
		{"in CONNECT", secure.URL, 30, Options{Endpoint: endpointOf(t, g.URL())}},
		{"in the handshake", secure.URL, 1000, Options{Endpoint: endpointOf(t, g.URL())}},
		{"in a body under TLS", secure.URL, 100_000, Options{Endpoint: endpointOf(t, g.URL())}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.opts.RootCAs = roots(secure)
			_, trace, err := do(t, open(t, test.opts), Request{URL: test.url, MaxBytes: test.limit})
			wantError(t, err, ErrMaxBytes)
			over := trace.BytesUp + trace.BytesDown - test.limit
			if over < 1 || over > 1 && trace.BytesDown > 0 && test.limit > 1000 {
				t.Errorf("%d bytes over the limit", over)
			}
		})
	}
	if _, _, err := do(t, open(t, Options{}), Request{URL: site.URL, MaxBytes: 400_000}); err != nil {
		t.Errorf("under the limit: %v", err)
	}
}
