package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"semel/engine/gateway"
	"semel/engine/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The login of every proxied test. Neither may be seen anywhere.
const (
	testUser = "proxyuser77"
	testPass = "s3cretKEY99"
)

// serve starts a site on loopback.
func serve(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	site := httptest.NewServer(handler)
	t.Cleanup(site.Close)
	return site
}

// serveTLS starts an https site; sessions trust it with its RootCAs.
func serveTLS(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	site := httptest.NewUnstartedServer(handler)
	site.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes are broken on purpose
	site.StartTLS()
	t.Cleanup(site.Close)
	return site
}

// roots trust a site's certificate.
func roots(site *httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(site.Certificate())
	return pool
}

// serveRaw answers each connection's first request with fixed bytes, and then
// closes it. Bytes after the request's header are not read.
func serveRaw(t testing.TB, answer string) string {
	t.Helper()
	return serveConn(t, func(c net.Conn) {
		if _, err := http.ReadRequest(newReader(c)); err == nil {
			_, _ = c.Write([]byte(answer))
		}
	})
}

// serveConn handles each connection by a function.
func serveConn(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/"
}

// startGateway starts a gateway that wants the test login.
func startGateway(t testing.TB, opts gateway.Options) *gateway.Gateway {
	t.Helper()
	if opts.Decode == nil {
		opts.Username, opts.Password = testUser, testPass
	}
	g, err := gateway.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func newProxy(t testing.TB, spec proxy.Spec) *proxy.Proxy {
	t.Helper()
	if spec.Name == "" {
		spec.Name = "home"
	}
	if spec.Username == "" {
		spec.Username, spec.Password = testUser, testPass
	}
	p, err := proxy.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// endpointOf is the login at a gateway's URL.
func endpointOf(t testing.TB, url string) *proxy.Endpoint {
	t.Helper()
	e, err := newProxy(t, proxy.Spec{URL: url}).Endpoint(proxy.Exit{})
	if err != nil {
		t.Fatal(err)
	}
	return &e
}

// keeping runs a test that wants its connections kept. net/http gives one up if
// it does not hear within 50 ms of its own clock that the request is written,
// whose answer it has; in a bubble that clock stands while a connection is open.
func keeping(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// open makes a session that may reach loopback.
func open(t testing.TB, opts Options) *Session {
	t.Helper()
	opts.AllowPrivate = true
	s := NewSession(opts)
	t.Cleanup(s.Close)
	return s
}

// get asks for a URL within a generous time.
func get(t testing.TB, s *Session, url string) (*Page, Trace, error) {
	t.Helper()
	return do(t, s, Request{URL: url})
}

func do(t testing.TB, s *Session, req Request) (*Page, Trace, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	page, trace, err := s.Do(ctx, req)
	var typed *Error
	if err != nil && !errors.As(err, &typed) {
		t.Errorf("Do's error is a %T, want an *Error", err)
	}
	if (page == nil) == (err == nil) {
		t.Errorf("Do returned page %v and error %v", page, err)
	}
	return page, trace, err
}

// wantError fails unless err is the sentinel.
func wantError(t testing.TB, err, sentinel error) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Fatalf("got error %v, want %v", err, sentinel)
	}
}

// dialTo is a gateway's Dial that reaches one site whatever the name.
func dialTo(site *httptest.Server) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, site.Listener.Addr().String())
	}
}

// listenTLS speaks TLS with the certificate of a test site.
func listenTLS(l net.Listener, site *httptest.Server) net.Listener {
	return tls.NewListener(l, &tls.Config{Certificates: site.TLS.Certificates})
}
