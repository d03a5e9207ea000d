package fetch

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"semel/engine/gateway"
	"semel/engine/proxy"
)

// answering makes a gateway answer everything itself.
func answering(f gateway.Fault) gateway.Options {
	return gateway.Options{Fault: func(gateway.Request) gateway.Fault { return f }}
}

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello from "+r.URL.Path) }

// tlsGateway puts TLS before a gateway: an https proxy.
func tlsGateway(t *testing.T, g *gateway.Gateway, site *httptest.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := listenTLS(l, site)
	t.Cleanup(func() { front.Close() })
	go func() {
		for {
			c, err := front.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				inner, err := net.Dial("tcp", g.Addr())
				if err != nil {
					return
				}
				defer inner.Close()
				go func() {
					defer c.Close()
					_, _ = io.Copy(c, inner)
				}()
				_, _ = io.Copy(inner, c)
			}()
		}
	}()
	return "https://" + l.Addr().String()
}

func TestEveryKindOfProxy(t *testing.T) {
	plain, secure := serve(t, hello), serveTLS(t, hello)
	g := startGateway(t, gateway.Options{})
	proxies := map[string]string{
		"http":    g.URL(),
		"socks5":  g.SOCKSURL(),
		"socks5h": strings.Replace(g.SOCKSURL(), "socks5", "socks5h", 1),
		"https":   tlsGateway(t, g, secure),
	}
	for kind, gatewayURL := range proxies {
		for _, site := range []*httptest.Server{plain, secure} {
			t.Run(kind+" to "+site.URL[:5], keeping(func(t *testing.T) {
				before := g.Stats()
				s := open(t, Options{Endpoint: endpointOf(t, gatewayURL), RootCAs: roots(secure)})
				for i := range 2 {
					page, trace, err := get(t, s, site.URL+"/x")
					if err != nil || string(page.Body) != "hello from /x" {
						t.Fatalf("got %v, %v", page, err)
					}
					if !trace.ProxyLoginOK && i == 0 || trace.ProxyOrigin || trace.Reused != (i == 1) {
						t.Errorf("request %d: got %+v", i, trace)
					}
					tunnel := site == secure && kind[:4] == "http"
					if (trace.ConnectStatus == 200) != (tunnel && i == 0) {
						t.Errorf("request %d: CONNECT status %d", i, trace.ConnectStatus)
					}
				}
				if after := g.Stats(); len(after.Conns) != len(before.Conns)+1 || after.Refused != before.Refused {
					t.Errorf("gateway saw %d connections", len(after.Conns)-len(before.Conns))
				}
			}))
		}
	}
}

func TestBytesEqualTheGatewaysCount(t *testing.T) {
	body := varied(100_000)
	handler := func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(body) }
	plain, secure := serve(t, handler), serveTLS(t, handler)
	for _, site := range []*httptest.Server{plain, secure} {
		for _, scheme := range []string{"http", "socks5"} {
			t.Run(scheme+" to "+site.URL[:5], func(t *testing.T) {
				g := startGateway(t, gateway.Options{})
				s := open(t, Options{Endpoint: endpointOf(t, scheme+"://"+g.Addr()), RootCAs: roots(secure)})
				var up, down int64
				for range 3 {
					_, trace, err := get(t, s, site.URL)
					if err != nil {
						t.Fatal(err)
					}
					up, down = up+trace.BytesUp, down+trace.BytesDown
				}
				g.Close() // only then has it counted all that it passed on
				if seen := g.Stats(); seen.Up != up || seen.Down != down {
					t.Errorf("counted %d up, %d down; gateway %d and %d", up, down, seen.Up, seen.Down)
				}
			})
		}
	}
}

func TestTwoSessionsAreTwoTunnels(t *testing.T) {
	keeping(func(t *testing.T) {
		site := serveTLS(t, hello)
		g := startGateway(t, gateway.Options{Decode: func(username, password string) (gateway.Login, bool) {
			session, ok := strings.CutPrefix(password, testPass+"_session-")
			return gateway.Login{Session: session}, ok && username == testUser
		}})
		p := newProxy(t, proxy.Spec{URL: g.URL(), PasswordTemplate: "{password}[_session-{session}]"})
		for _, id := range []string{"aaaaaaaa", "bbbbbbbb"} {
			e, err := p.Endpoint(proxy.Exit{Session: id})
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, Options{Endpoint: &e, RootCAs: roots(site)})
			for range 2 {
				if _, _, err := get(t, s, site.URL); err != nil {
					t.Fatal(err)
				}
			}
		}
		seen := g.Stats()
		if seen.Tunnels != 2 || len(seen.Conns) != 2 || seen.Conns[0].Session != "aaaaaaaa" || seen.Conns[1].Session != "bbbbbbbb" {
			t.Errorf("got %d tunnels over %+v", seen.Tunnels, seen.Conns)
		}
	})(t)
}

func TestConnectRefusalIsTyped(t *testing.T) {
	site := serveTLS(t, hello)
	tests := []struct {
		name   string
		fault  gateway.Fault
		status int
		code   string
		text   string
	}{
		{"no exit", gateway.Fault{Kind: gateway.Status, Status: 522}, 522, "", "asking the proxy for a tunnel: proxy answered 522"},
		{"own code", gateway.Fault{Kind: gateway.Status, Status: 502, Body: "why",
			Header: http.Header{"X-Brd-Err-Code": {"client_10000"}}}, 502, "client_10000",
			"asking the proxy for a tunnel: proxy answered 502 Bad Gateway (client_10000)"},
		{"RFC 9209", gateway.Fault{Kind: gateway.Status, Status: 400,
			Header: http.Header{"Proxy-Status": {`gw; error=http_request_error; details="peer_30030: no peer"`}}}, 400, "peer_30030", ""},
		{"RFC 9209 without details", gateway.Fault{Kind: gateway.Status, Status: 503,
			Header: http.Header{"Proxy-Status": {`gw; error=destination_unavailable`}}}, 503, "destination_unavailable", ""},
		{"200 that is none", gateway.Fault{Kind: gateway.Status, Status: 200,
			Header: http.Header{"X-Brd-Err-Code": {"policy_20020"}}}, 200, "policy_20020", ""},
		{"login in the code", gateway.Fault{Kind: gateway.Status, Status: 407, Body: "bad " + testPass,
			Header: http.Header{"X-Error-Description": {"no user " + testUser}}}, 407, "no user [redacted]", ""},
		{"dead tunnel", gateway.Fault{Kind: gateway.DeadTunnel}, 502, "", ""},
		{"with Retry-After", gateway.Fault{Kind: gateway.Status, Status: 429, Header: http.Header{"Retry-After": {"7"}}}, 429, "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := startGateway(t, answering(test.fault))
			s := open(t, Options{Endpoint: endpointOf(t, g.URL()), RootCAs: roots(site)})
			_, trace, err := get(t, s, site.URL)
			var refused *ConnectError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v", err)
			}
			if refused.Status != test.status || refused.Code != test.code || trace.ConnectStatus != test.status || trace.ProxyCode != test.code {
				t.Errorf("got %+v and %+v", refused, trace)
			}
			if want := strings.ReplaceAll(test.fault.Body, testPass, "[redacted]"); refused.Body != want {
				t.Errorf("body is %q, want %q", refused.Body, want)
			}
			if trace.Phase != PhaseConnect || trace.Status != 0 || trace.ProxyLoginOK || s.Worked() {
				t.Errorf("got %+v", trace)
			}
			if test.text != "" && err.Error() != test.text {
				t.Errorf("error says %q", err)
			}
			if want := test.fault.Header.Get("Retry-After"); trace.Header.Get("Retry-After") != want {
				t.Errorf("Retry-After is lost: %v", trace.Header)
			}
		})
	}
}

func TestEndlessConnectBodyIsCut(t *testing.T) {
	gatewayURL := serveConn(t, func(c net.Conn) {
		_, _ = http.ReadRequest(newReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 522 x\r\n\r\n"+strings.Repeat("because ", 10))
		_, _ = io.Copy(io.Discard, c)
	})
	s := open(t, Options{Endpoint: endpointOf(t, gatewayURL)})
	_, _, err := get(t, s, "https://example.com/")
	var refused *ConnectError
	if !errors.As(err, &refused) || refused.Status != 522 || !strings.HasPrefix(refused.Body, "because because") {
		t.Fatalf("got %v, %+v", err, refused)
	}
}

func TestGatewayAnswersToPlainRequests(t *testing.T) {
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if status := r.Header.Get("X-Want"); status == "522" {
			w.Header().Set("CF-Ray", "1")
			w.WriteHeader(522)
		}
	})
	tests := []struct {
		name   string
		fault  gateway.Fault
		origin bool
		code   string
	}{
		{"402", gateway.Fault{Kind: gateway.Status, Status: 402}, true, ""},
		{"407", gateway.Fault{Kind: gateway.Status, Status: 407}, true, ""},
		{"490", gateway.Fault{Kind: gateway.Status, Status: 490}, true, ""},
		{"499", gateway.Fault{Kind: gateway.Status, Status: 499}, true, ""},
		{"522", gateway.Fault{Kind: gateway.Status, Status: 522}, true, ""},
		{"525", gateway.Fault{Kind: gateway.Status, Status: 525}, true, ""},
		{"squid", gateway.Fault{Kind: gateway.Status, Status: 503, Header: http.Header{"X-Squid-Error": {"ERR_CONNECT_FAIL 111"}}}, true, "ERR_CONNECT_FAIL 111"},
		{"tinyproxy", gateway.Fault{Kind: gateway.Status, Status: 401, Header: http.Header{"Server": {"tinyproxy/1.11.1"}}}, true, ""},
		{"401 with the proxy's challenge", gateway.Fault{Kind: gateway.Status, Status: 401, Header: http.Header{"Proxy-Authenticate": {"Basic"}}}, true, ""},
		{"200 with an error", gateway.Fault{Kind: gateway.Status, Status: 200, Header: http.Header{"X-Brd-Err-Code": {"peer_30040"}}}, true, "peer_30040"},
		{"a cache's note", gateway.Fault{Kind: gateway.Status, Status: 200, Header: http.Header{"Proxy-Status": {"cdn; hit"}}}, false, ""},
		{"503 of the site", gateway.Fault{Kind: gateway.Status, Status: 503}, false, ""},
		{"403 of the site", gateway.Fault{Kind: gateway.Status, Status: 403}, false, ""},
		{"522 of Cloudflare", gateway.Fault{Kind: gateway.Status, Status: 522, Header: http.Header{"Cf-Ray": {"1"}}}, false, ""},
		{"none", gateway.Fault{}, false, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := startGateway(t, answering(test.fault))
			s := open(t, Options{Endpoint: endpointOf(t, g.URL())})
			page, trace, err := get(t, s, site.URL)
			if err != nil {
				t.Fatal(err)
			}
			if trace.ProxyOrigin != test.origin || trace.ProxyCode != test.code || trace.Status != page.Status {
				t.Errorf("got %+v", trace)
			}
			if trace.ProxyLoginOK == test.origin || s.Worked() == test.origin {
				t.Errorf("login ok %t, worked %t", trace.ProxyLoginOK, s.Worked())
			}
		})
	}
}

func TestSiteCannotSpeakForTheGateway(t *testing.T) {
	// Inside a tunnel everything is the site's.
	site := serveTLS(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Brd-Err-Code", "client_10000")
		w.WriteHeader(407)
	})
	g := startGateway(t, gateway.Options{})
	for _, opts := range []Options{
		{RootCAs: roots(site)},
		{RootCAs: roots(site), Endpoint: endpointOf(t, g.URL())},
		{RootCAs: roots(site), Endpoint: endpointOf(t, g.SOCKSURL())},
	} {
		page, trace, err := get(t, open(t, opts), site.URL)
		if err != nil || page.Status != 407 || trace.ProxyOrigin || trace.ProxyCode != "" {
			t.Errorf("got %+v, %v", trace, err)
		}
	}
}

func TestWrongLogin(t *testing.T) {
	plain, secure := serve(t, hello), serveTLS(t, hello)
	g := startGateway(t, gateway.Options{})
	p := newProxy(t, proxy.Spec{URL: g.URL(), Username: testUser, Password: "wrong-secret"})
	e, err := p.Endpoint(proxy.Exit{})
	if err != nil {
		t.Fatal(err)
	}
	page, trace, err := get(t, open(t, Options{Endpoint: &e}), plain.URL)
	if err != nil || page.Status != 407 || !trace.ProxyOrigin || trace.ProxyLoginOK {
		t.Errorf("plain: got %+v, %v", trace, err)
	}
	_, trace, err = get(t, open(t, Options{Endpoint: &e}), secure.URL)
	var refused *ConnectError
	if !errors.As(err, &refused) || refused.Status != 407 || trace.ProxyLoginOK {
		t.Errorf("CONNECT: got %+v, %v", trace, err)
	}
	p = newProxy(t, proxy.Spec{URL: g.SOCKSURL(), Username: testUser, Password: "wrong-secret"})
	if e, err = p.Endpoint(proxy.Exit{}); err != nil {
		t.Fatal(err)
	}
	_, trace, err = get(t, open(t, Options{Endpoint: &e}), plain.URL)
	var socks *SOCKSError
	if !errors.As(err, &socks) || socks.Reply != SOCKSAuth || trace.ProxyLoginOK || trace.Phase != PhaseConnect {
		t.Errorf("SOCKS: got %+v, %v", trace, err)
	}
	if seen := g.Stats(); seen.Refused != 3 || len(seen.Requests) != 0 {
		t.Errorf("gateway saw %+v", seen)
	}
}

func TestSOCKSWithoutLogin(t *testing.T) {
	g := startGateway(t, gateway.Options{})
	p, err := proxy.New(proxy.Spec{Name: "open", URL: g.SOCKSURL()})
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Endpoint(proxy.Exit{})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = get(t, open(t, Options{Endpoint: &e}), "http://example.com/")
	var socks *SOCKSError
	if !errors.As(err, &socks) || socks.Reply != SOCKSAuth {
		t.Fatalf("got %v", err)
	}
}

func TestSOCKSRepliesAreTyped(t *testing.T) {
	for reply, text := range map[SOCKSReply]string{
		SOCKSGeneralFailure: "general SOCKS server failure", SOCKSNotAllowed: "connection not allowed by ruleset",
		SOCKSNetUnreachable: "network unreachable", SOCKSHostUnreachable: "host unreachable",
		SOCKSRefused: "connection refused", SOCKSTTLExpired: "TTL expired",
		SOCKSNoCommand: "command not supported", SOCKSNoAddressType: "address type not supported",
		99: "unknown code: 99",
	} {
		g := startGateway(t, answering(gateway.Fault{Kind: gateway.Status, Status: int(reply)}))
		s := open(t, Options{Endpoint: endpointOf(t, g.SOCKSURL())})
		for _, url := range []string{"http://example.com/", "https://example.com/"} {
			_, trace, err := get(t, s, url)
			var socks *SOCKSError
			if !errors.As(err, &socks) {
				t.Fatalf("reply %d: got %v", reply, err)
			}
			want := reply
			if reply == 99 {
				want = SOCKSOther
			}
			if socks.Reply != want || !strings.HasSuffix(err.Error(), "socks proxy: "+text) || trace.Phase != PhaseConnect {
				t.Errorf("reply %d: got %+v, %v, %+v", reply, socks, err, trace)
			}
		}
	}
}

func TestNoConversationWithTheGateway(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := closed.Addr().String()
	closed.Close()
	dropping := startGateway(t, answering(gateway.Fault{Kind: gateway.Drop})).Addr()
	garbage := strings.TrimSuffix(strings.TrimPrefix(serveRaw(t, "SSH-2.0-x\r\n\r\n"), "http://"), "/")
	for _, test := range []struct{ name, proxy, url string }{
		{"refused, plain", "http://" + refusing, "http://example.com/"},
		{"refused, CONNECT", "http://" + refusing, "https://example.com/"},
		{"refused, SOCKS", "socks5://" + refusing, "https://example.com/"},
		{"refused, https proxy", "https://" + refusing, "https://example.com/"},
		{"no TLS", "https://" + dropping, "https://example.com/"},
		{"dropped CONNECT", "http://" + dropping, "https://example.com/"},
		{"dropped SOCKS", "socks5://" + dropping, "http://example.com/"},
		{"not a proxy", "http://" + garbage, "https://example.com/"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, trace, err := get(t, open(t, Options{Endpoint: endpointOf(t, test.proxy)}), test.url)
			wantError(t, err, ErrGateway)
			if trace.ProxyLoginOK {
				t.Errorf("got %+v", trace)
			}
		})
	}
}

func TestFaultsInTheTunnel(t *testing.T) {
	site := serveTLS(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(varied(100_000)) })
	g := startGateway(t, gateway.Options{Fault: func(gateway.Request) gateway.Fault {
		return gateway.Fault{Kind: gateway.Reset, After: 50_000}
	}})
	_, trace, err := get(t, open(t, Options{Endpoint: endpointOf(t, g.URL()), RootCAs: roots(site)}), site.URL)
	wantError(t, err, ErrTruncated)
	if trace.Phase != PhaseBody || !trace.ProxyLoginOK {
		t.Errorf("got %+v", trace)
	}
}

func TestLoginIsNeverSeen(t *testing.T) {
	site := serveTLS(t, hello)
	basic := base64.StdEncoding.EncodeToString([]byte(testUser + ":" + testPass))
	echo := gateway.Fault{Kind: gateway.Status, Status: 407, Body: basic, Header: http.Header{
		"X-Brd-Err-Msg": {"user " + testUser + " pass " + testPass + " is " + basic},
	}}
	faults := map[string]gateway.Options{
		"echo": answering(echo), "drop": answering(gateway.Fault{Kind: gateway.Drop}),
		"status": answering(gateway.Fault{Kind: gateway.Status, Status: 5}), "none": {},
		"reset": answering(gateway.Fault{Kind: gateway.Reset}),
	}
	gateways := map[string]string{
		"quoting": mustParse(t, serveConn(t, func(c net.Conn) { // whatever it is asked
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, "HTTP/1.1 "+testUser+":"+testPass+"\r\n\r\n")
		})).Host,
	}
	for name, opts := range faults {
		gateways[name] = startGateway(t, opts).Addr()
	}
	for name, addr := range gateways {
		for _, scheme := range []string{"http", "https", "socks5"} {
			for _, target := range []string{"http://127.0.0.1:1/", site.URL, "https://no.such.name.invalid/"} {
				t.Run(name+" "+scheme+" "+target, func(t *testing.T) {
					s := open(t, Options{Endpoint: endpointOf(t, scheme+"://"+addr)})
					page, trace, err := get(t, s, target)
					trace.Header = nil // as received, for machines
					shown := fmt.Sprintf("%v %+v %#v %s %+v", err, err, trace, s.EndpointString(), trace)
					for e := err; e != nil; e = errors.Unwrap(e) {
						shown += e.Error()
					}
					if page != nil {
						shown += page.FinalURL
					}
					for _, secret := range []string{testUser, testPass, basic, base64.StdEncoding.EncodeToString([]byte(testPass))} {
						if strings.Contains(shown, secret) {
							t.Errorf("%q is seen in %s", secret, shown)
						}
					}
				})
			}
		}
	}
}

func TestCancelledDuringConnectSpendsNothingMore(t *testing.T) {
	// The gateway answers CONNECT only after the attempt has ended.
	connecting, answer, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	site := serveTLS(t, hello)
	g := startGateway(t, gateway.Options{
		Fault: func(gateway.Request) gateway.Fault {
			close(connecting)
			<-answer
			return gateway.Fault{}
		},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &closing{Conn: c, closed: sync.OnceFunc(func() { close(ended) })}, err
		},
	})
	s := open(t, Options{Endpoint: endpointOf(t, g.URL()), RootCAs: roots(site)})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-connecting
		cancel()
	}()
	_, trace, err := s.Do(ctx, Request{URL: site.URL})
	wantError(t, err, context.Canceled)
	if trace.Phase != PhaseConnect || trace.BytesUp == 0 {
		t.Errorf("got %+v", trace)
	}
	close(answer)
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the tunnel outlived the attempt")
	}
	if up, down := s.LateBytes(); up != 0 || down != 0 {
		t.Errorf("%d bytes up and %d down after the attempt", up, down)
	}
	g.Close()
	if seen := g.Stats(); seen.Up != trace.BytesUp {
		t.Errorf("gateway got %d bytes, attempt counted %d", seen.Up, trace.BytesUp)
	}
}

// closing says when it is closed.
type closing struct {
	net.Conn
	closed func()
}

func (c *closing) Close() error {
	c.closed()
	return c.Conn.Close()
}

func TestSessionsLeaveNothingBehind(t *testing.T) {
	plain, secure := serve(t, hello), serveTLS(t, hello)
	g := startGateway(t, gateway.Options{})
	e := endpointOf(t, g.URL())
	run := func(site *httptest.Server, n int) {
		for range n {
			s := NewSession(Options{Endpoint: e, AllowPrivate: true, RootCAs: roots(secure)})
			if _, _, err := get(t, s, site.URL); err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
	}
	run(secure, 1)
	before := runtime.NumGoroutine()
	run(plain, 900)
	run(secure, 100)
	// The last few connections may still be ending, on all three sides.
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before+20; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines before, %d after 1,000 sessions", before, runtime.NumGoroutine())
		}
	}
}

func TestPlainProxyConnectionServesManyHosts(t *testing.T) {
	keeping(func(t *testing.T) {
		site := serve(t, hello)
		g := startGateway(t, gateway.Options{Dial: dialTo(site)})
		s := open(t, Options{Endpoint: endpointOf(t, g.URL())})
		for _, host := range []string{"a.example", "b.example"} {
			if _, _, err := get(t, s, "http://"+host+"/"); err != nil {
				t.Fatal(err)
			}
		}
		if seen := g.Stats(); len(seen.Conns) != 1 || seen.Requests["http://a.example/"] != 1 || seen.Requests["http://b.example/"] != 1 {
			t.Errorf("gateway saw %+v", seen)
		}
	})(t)
}
