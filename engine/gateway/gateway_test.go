package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, opts Options) *Gateway {
	t.Helper()
	g, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	site := httptest.NewServer(handler)
	t.Cleanup(site.Close)
	return site
}

// client uses a proxy URL; its connections end with the test.
func client(t *testing.T, proxy *url.URL, site *httptest.Server) *http.Client {
	t.Helper()
	transport := &http.Transport{Proxy: http.ProxyURL(proxy)}
	if site != nil && site.TLS != nil {
		transport.TLSClientConfig = site.Client().Transport.(*http.Transport).TLSClientConfig
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func withLogin(base, username, password string) *url.URL {
	u, err := url.Parse(base)
	if err != nil {
		panic(err)
	}
	if username != "" {
		u.User = url.UserPassword(username, password)
	}
	return u
}

// get returns status and body.
func get(t *testing.T, c *http.Client, url string) (int, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// keeping runs a client that is to keep its connections. net/http gives one up if
// it does not hear within 50 ms of its own clock that the request is written,
// whose answer it has; in a bubble that clock stands while a connection is open.
func keeping(run func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, run) }
}

func TestForwards(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s proxy headers %d", r.Method, r.URL, len(r.Header["Proxy-Authorization"])+len(r.Header["Proxy-Connection"]))
	}
	plain := serve(t, handler)
	secure := httptest.NewTLSServer(http.HandlerFunc(handler))
	t.Cleanup(secure.Close)
	g := start(t, Options{Username: "u", Password: "p"})
	for _, base := range []string{g.URL(), g.SOCKSURL()} {
		for _, site := range []*httptest.Server{plain, secure} {
			t.Run(base[:5]+" to "+site.URL[:5], keeping(func(t *testing.T) {
				c := client(t, withLogin(base, "u", "p"), site)
				for range 2 {
					status, body, err := get(t, c, site.URL+"/a?b=c|d")
					if err != nil || status != 200 || body != "GET /a?b=c|d proxy headers 0" {
						t.Fatalf("got %d %q, %v", status, body, err)
					}
				}
			}))
		}
	}
	seen := g.Stats()
	target := strings.TrimPrefix(secure.URL, "https://")
	if seen.Requests[plain.URL+"/a?b=c|d"] != 2 || seen.Requests[target] != 2 || seen.Tunnels != 3 || len(seen.Conns) != 4 || seen.Refused != 0 {
		t.Errorf("got %+v", seen)
	}
	for _, c := range seen.Conns {
		if c.Up == 0 || c.Down == 0 || c.Requests == 0 {
			t.Errorf("a connection cost nothing: %+v", c)
		}
	}
}

func TestLogins(t *testing.T) {
	site := serve(t, func(http.ResponseWriter, *http.Request) {})
	decode := func(user, pass string) (Login, bool) {
		country, session, ok := strings.Cut(strings.TrimPrefix(user, "u-"), "-")
		return Login{Country: country, Session: session}, ok && pass == "p"
	}
	var last Login
	tests := []struct {
		name       string
		opts       Options
		user, pass string
		status     int
		login      Login
	}{
		{"open", Options{}, "", "", 200, Login{}},
		{"open takes any", Options{}, "x", "y", 200, Login{Username: "x", Password: "y"}},
		{"right", Options{Username: "u", Password: "p"}, "u", "p", 200, Login{Username: "u", Password: "p"}},
		{"wrong password", Options{Username: "u", Password: "p"}, "u", "q", 407, Login{}},
		{"wrong user", Options{Username: "u", Password: "p"}, "v", "p", 407, Login{}},
		{"none", Options{Username: "u", Password: "p"}, "", "", 407, Login{}},
		{"decoded", Options{Decode: decode}, "u-us-abc", "p", 200, Login{Username: "u-us-abc", Password: "p", Country: "us", Session: "abc"}},
		{"not decoded", Options{Decode: decode}, "u-us", "p", 407, Login{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			last = Login{}
			test.opts.Fault = func(r Request) Fault {
				last = r.Login
				return Fault{}
			}
			g := start(t, test.opts)
			status, _, err := get(t, client(t, withLogin(g.URL(), test.user, test.pass), nil), site.URL)
			if err != nil || status != test.status {
				t.Fatalf("got %d, %v", status, err)
			}
			if last != test.login {
				t.Errorf("got %+v, want %+v", last, test.login)
			}
			_, _, err = get(t, client(t, withLogin(g.SOCKSURL(), test.user, test.pass), nil), site.URL)
			if (err == nil) != (test.status == 200) {
				t.Errorf("SOCKS: got %v", err)
			}
			if refused := g.Stats().Refused; (refused == 0) != (test.status == 200) {
				t.Errorf("%d refused", refused)
			}
		})
	}
}

func TestFaultsOfPlainRequests(t *testing.T) {
	site := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("x", 5000)) })
	for _, test := range []struct {
		name   string
		fault  Fault
		status int
		body   int
		err    error
	}{
		{"none", Fault{}, 200, 5000, nil},
		{"status", Fault{Kind: Status, Status: 490, Body: "no exit"}, 490, 7, nil},
		{"dead tunnel", Fault{Kind: DeadTunnel}, 502, 0, nil},
		{"odd header", Fault{Kind: Status, Status: 200, Header: http.Header{"Proxy Connection": {"close"}}, Body: "x"}, 200, 1, nil},
		{"drop", Fault{Kind: Drop}, 0, 0, io.EOF},
		{"cut", Fault{Kind: Cut}, 0, 0, io.ErrUnexpectedEOF},
		{"reset", Fault{Kind: Reset, After: 100}, 200, 100, syscall.ECONNRESET},
		{"slow", Fault{Kind: Slow, After: 1000, Pause: time.Microsecond}, 200, 5000, nil},
		{"slow by default", Fault{Kind: Slow}, 200, 5000, nil},
		{"late", Fault{Pause: time.Microsecond}, 200, 5000, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := start(t, Options{Fault: func(Request) Fault { return test.fault }})
			status, body, err := get(t, client(t, withLogin(g.URL(), "", ""), nil), site.URL)
			if status != test.status || !errors.Is(err, test.err) || test.err == nil && len(body) != test.body || len(body) > test.body {
				t.Errorf("got %d, %d bytes, %v", status, len(body), err)
			}
		})
	}
}

func TestFaultWithoutEnd(t *testing.T) {
	site := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("x", 5000)) })
	for _, test := range []struct {
		name  string
		fault Fault
		base  func(*Gateway) string
	}{
		{"hang", Fault{Kind: Hang}, (*Gateway).URL},
		{"stall", Fault{Kind: Stall, After: 10}, (*Gateway).URL},
		{"hang of SOCKS", Fault{Kind: Hang}, (*Gateway).SOCKSURL},
		{"stall of SOCKS", Fault{Kind: Stall, After: 10}, (*Gateway).SOCKSURL},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen := make(chan struct{}, 2)
			g := start(t, Options{Fault: func(Request) Fault {
				seen <- struct{}{}
				return test.fault
			}})
			c := client(t, withLogin(test.base(g), "", ""), nil)
			// A client that leaves, and one that is still there at Close.
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 2)
			for _, ctx := range []context.Context{ctx, t.Context()} {
				go func() {
					req, _ := http.NewRequestWithContext(ctx, http.MethodGet, site.URL, nil)
					resp, err := c.Do(req)
					if err == nil {
						_, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					done <- err
				}()
			}
			<-seen
			<-seen
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			g.Close()
			if err := <-done; err == nil {
				t.Error("an answer came after all")
			}
		})
	}
}

func TestTunnelFaults(t *testing.T) {
	// The site says hello at once; the client speaks CONNECT by hand.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, strings.Repeat("x", 5000))
			c.Close()
		}
	}()
	target := listener.Addr().String()
	for _, test := range []struct {
		name   string
		fault  Fault
		status int
		bytes  int
		err    error
	}{
		{"none", Fault{}, 200, 5000, nil},
		{"status", Fault{Kind: Status, Status: 522}, 522, 0, nil},
		{"with a header", Fault{Kind: Status, Status: 429, Header: http.Header{"Retry-After": {"3"}}}, 429, 0, nil},
		{"dead", Fault{Kind: DeadTunnel}, 502, 0, nil},
		{"reset", Fault{Kind: Reset, After: 70}, 200, 70, syscall.ECONNRESET},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := start(t, Options{Fault: func(r Request) Fault {
				if r.Method != "CONNECT" || r.URL != target || r.Try != 1 {
					t.Errorf("got %+v", r)
				}
				return test.fault
			}})
			c, err := net.Dial("tcp", g.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
			if err != nil || resp.StatusCode != test.status {
				t.Fatalf("got %v, %v", resp, err)
			}
			if want := test.fault.Header.Get("Retry-After"); resp.Header.Get("Retry-After") != want {
				t.Errorf("header is %v", resp.Header)
			}
			if test.status != 200 {
				return
			}
			n, err := io.Copy(io.Discard, r)
			if int(n) > test.bytes || test.err == nil && int(n) != test.bytes || !errors.Is(err, test.err) {
				t.Errorf("got %d bytes, %v", n, err)
			}
		})
	}
}

func TestSOCKSFaults(t *testing.T) {
	for _, test := range []struct {
		fault Fault
		want  string
	}{
		{Fault{Kind: Status, Status: 2}, "not allowed by ruleset"},
		{Fault{Kind: Status, Status: 502}, "general SOCKS server failure"},
		{Fault{Kind: DeadTunnel}, "general SOCKS server failure"},
		{Fault{Kind: Drop}, "EOF"},
		{Fault{Kind: Cut}, "EOF"},
		{Fault{}, "connection refused"},
	} {
		g := start(t, Options{
			Fault: func(Request) Fault { return test.fault },
			Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, syscall.ECONNREFUSED
			},
		})
		_, _, err := get(t, client(t, withLogin(g.SOCKSURL(), "", ""), nil), "http://example.com/")
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got %v, want %q", test.fault, err, test.want)
		}
	}
}

func TestUnreachableSite(t *testing.T) {
	g := start(t, Options{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }})
	c := client(t, withLogin(g.URL(), "", ""), nil)
	if status, _, err := get(t, c, "http://example.com/"); status != 502 || err != nil {
		t.Errorf("plain: got %d, %v", status, err)
	}
	if _, _, err := get(t, c, "https://example.com/"); err == nil || !strings.Contains(err.Error(), "Bad Gateway") {
		t.Errorf("CONNECT: got %v", err)
	}
}

func TestRandomRepeats(t *testing.T) {
	reset, dead := Fault{Kind: Reset}, Fault{Kind: DeadTunnel}
	a, same, other := Random(1, 0.2, reset, dead), Random(1, 0.2, reset, dead), Random(2, 0.2, reset, dead)
	count := map[Kind]int{}
	differs, retried := 0, 0
	for i := range 10_000 {
		r := Request{URL: fmt.Sprint("http://h/", i), Try: 1}
		f := a(r)
		count[f.Kind]++
		if same(r).Kind != f.Kind {
			t.Fatal("the same request fared differently")
		}
		if other(r).Kind != f.Kind {
			differs++
		}
		r.Try = 2
		if f.Kind != None && a(r).Kind == None {
			retried++
		}
	}
	if n := count[Reset] + count[DeadTunnel]; n < 1800 || n > 2200 {
		t.Errorf("%d of 10,000 failed, want about 2,000", n)
	}
	if count[Reset] < 850 || count[DeadTunnel] < 850 {
		t.Errorf("faults are uneven: %v", count)
	}
	if differs < 2000 || retried < 1400 {
		t.Errorf("seed or try hardly matter: %d differ, %d succeed later", differs, retried)
	}
	if Random(1, 1)(Request{}).Kind != None || Random(1, 0, dead)(Request{}).Kind != None || Random(1, 1, dead)(Request{}).Kind != DeadTunnel {
		t.Error("the ends of the range are wrong")
	}
}

func TestTriesAreCounted(t *testing.T) {
	site := serve(t, func(http.ResponseWriter, *http.Request) {})
	var tries []int
	g := start(t, Options{Fault: func(r Request) Fault {
		tries = append(tries, r.Try)
		return Fault{}
	}})
	c := client(t, withLogin(g.URL(), "", ""), nil)
	for _, path := range []string{"/a", "/b", "/a", "/a"} {
		if _, _, err := get(t, c, site.URL+path); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(tries) != "[1 1 2 3]" {
		t.Errorf("got %v", tries)
	}
}

func TestGarbageFromClients(t *testing.T) {
	g := start(t, Options{Username: "u", Password: "p"})
	for _, sent := range []string{
		"", "\x16\x03\x01\x00", "GET\r\n\r\n", "\x05", "\x05\x01\x00", "\x05\x01\x02\x01", "\x05\x01\x02\x01\x01u\x01p\x05\x01\x00\x09",
		"\x05\x01\x02\x01\x01u\x01p\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x01\x02\x01\x01u\x01p\x05\x01\x00\x03\xffshort",
		"GET http://h/ HTTP/1.1\r\nHost: h\r\nProxy-Authorization: Basic !!\r\nConnection: close\r\n\r\n",
	} {
		c, err := net.Dial("tcp", g.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, sent)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c) // ends when the gateway gives up
		c.Close()
	}
	if seen := g.Stats(); len(seen.Requests) != 0 {
		t.Errorf("garbage was taken for requests: %v", seen.Requests)
	}
}

func TestStartOnTakenPort(t *testing.T) {
	g := start(t, Options{})
	if _, err := Start(Options{Addr: g.Addr()}); err == nil || !strings.HasPrefix(err.Error(), "starting the gateway: ") {
		t.Errorf("got %v", err)
	}
}

// halfWritten takes half of a write, and asks for the count in the middle.
type halfWritten struct {
	net.Conn
	during func()
}

func (h halfWritten) Write(p []byte) (int, error) {
	h.during()
	return len(p) / 2, io.ErrShortWrite
}

// What a client can have read is counted.
func TestBytesAreCountedBeforeTheyArrive(t *testing.T) {
	c := &clientConn{}
	c.Conn = halfWritten{during: func() {
		if n := c.down.Load(); n != 10 {
			t.Errorf("%d bytes are counted while 10 are on their way", n)
		}
	}}
	if n, err := c.Write(make([]byte, 10)); n != 5 || err == nil || c.down.Load() != 5 {
		t.Errorf("wrote %d (%v), counted %d", n, err, c.down.Load())
	}
}

// lastToEnd is a site's connection that does something before it ends.
type lastToEnd struct {
	net.Conn
	before func()
}

func (c *lastToEnd) Close() error {
	c.before()
	return c.Conn.Close()
}

// Close takes nothing more from a client, such as its good-bye to the site:
// whoever compares counts would find bytes that the client does not know of.
func TestCloseEndsClientsFirst(t *testing.T) {
	var client net.Conn
	site, far := net.Pipe()
	defer far.Close()
	inner := &lastToEnd{site, sync.OnceFunc(func() {
		_ = client.SetReadDeadline(time.Now().Add(10 * time.Second)) // reached only where the order is wrong
		if _, err := io.Copy(io.Discard, client); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the site's connection ended before the client's")
		}
	})}
	g := start(t, Options{Dial: func(context.Context, string, string) (net.Conn, error) { return inner, nil }})
	client, err := net.Dial("tcp", g.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fmt.Fprint(client, "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\nhello")
	if _, err := io.ReadFull(far, make([]byte, len("hello"))); err != nil { // the tunnel is there
		t.Fatal(err)
	}
	g.Close()
}
