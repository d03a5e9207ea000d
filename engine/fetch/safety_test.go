package fetch

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"semel/engine/address"
	"semel/engine/gateway"
)

// privateHosts are hosts that no request may go to, as URLs spell them.
var privateHosts = []string{
	// Addresses, and what inet_aton and browsers take for the same ones.
	"127.0.0.1", "127.255.255.254", "127.1", "127.0.1", "0x7f.1", "0x7F.0.0.1", "0x7f000001", "2130706433", "017700000001",
	"0177.0.0.1", "127.0.0.0x1", "127.0.0.1.", "127.1.", "0", "0.0.0.0", "0x0",
	"10.0.0.1", "10.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "0xc0a80101", "3232235777", "100.64.0.1", "100.127.255.255",
	"169.254.169.254", "0xa9fea9fe", "2852039166", "168.63.129.16", "100.100.100.200", "192.0.0.192", "198.18.0.1", "192.0.2.1", "203.0.113.1",
	"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
	"[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[fe80::1]", "[fe80::1%25eth0]", "[fc00::1]", "[fd00:ec2::254]", "[fec0::1]", "[ff02::1]", "[100::1]",
	"[2001:db8::1]", "[2001::1]", "[4000::1]",
	// IPv4 in IPv6.
	"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:a00:1]", "[::127.0.0.1]", "[::ffff:0:7f00:1]", "[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]",
	"[64:ff9b:1::7f00:1]", "[2002:7f00:1::1]", "[2002:a9fe:a9fe::1]",
	// Names of this machine, and of a cloud's metadata.
	"localhost", "LOCALHOST", "localhost.", "a.b.localhost", "metadata.google.internal", "Metadata.Google.Internal.",
	// What IDNA makes of other digits, letters and full stops.
	"１２７.０.０.１", "①②⑦.⓪.⓪.①", "127。0。0。1", "127．0．0．1", "ｌｏｃａｌｈｏｓｔ", "𝟏𝟐𝟕.𝟎.𝟎.𝟏", "0ｘ7f.1", "127.0.0\u00ad.1", "%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1",
}

// safeNet is a network in which public.example redirects, and that notes where else
// a request was going.
type safeNet struct {
	location string
	leaked   []string
}

func (n *safeNet) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "public.example" {
		n.leaked = append(n.leaked, r.URL.String())
		return nil, errors.New("left the public site")
	}
	return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {n.location}}, Body: http.NoBody, Request: r}, nil
}

// ways are how a request may come to a URL. Each gives the error of a Do.
var ways = map[string]func(t *testing.T, s *Session, n *safeNet, to string) error{
	"page": func(t *testing.T, s *Session, _ *safeNet, to string) error {
		_, trace, err := get(t, s, to)
		if trace.BytesUp != 0 {
			t.Errorf("%s: %d bytes were sent", to, trace.BytesUp)
		}
		return err
	},
	"redirect": func(t *testing.T, s *Session, n *safeNet, to string) error {
		n.location = to
		_, _, err := get(t, s, "http://public.example/")
		return err
	},
	"robots.txt": func(t *testing.T, s *Session, _ *safeNet, to string) error {
		u, err := url.Parse(to)
		if err != nil {
			return fmt.Errorf("%w: %w", address.ErrPrivate, err) // no robots.txt is asked for a URL that is none
		}
		_, _, err = FetchRobots(t.Context(), s, u, Request{})
		return err
	},
	"redirect of robots.txt": func(t *testing.T, s *Session, n *safeNet, to string) error {
		n.location = to
		text, _, err := FetchRobots(t.Context(), s, mustParse(t, "http://public.example/x"), Request{})
		if text != nil || err != nil { // a redirect that leads nowhere is a site without rules
			t.Errorf("%s: robots.txt is %q (%v)", to, text, err)
		}
		return address.ErrPrivate
	},
}

// TestPrivateHosts: no spelling of a private host is asked, in whatever way a
// request comes to it, direct or through a proxy. With AllowPrivate each is.
func TestPrivateHosts(t *testing.T) {
	g := endpointOf(t, startGateway(t, gateway.Options{}).URL())
	for name, opts := range map[string]Options{"direct": {}, "through a proxy": {Endpoint: g}} {
		for way, do := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				for _, host := range privateHosts {
					for _, scheme := range []string{"http", "https"} {
						n := &safeNet{}
						opts.Transport = n
						s := NewSession(opts)
						err := do(t, s, n, scheme+"://"+host+":81/")
						s.Close()
						if !errors.Is(err, address.ErrPrivate) && !errors.Is(err, ErrURL) || len(n.leaked) > 0 {
							t.Errorf("%s: %v, asked %q", host, err, n.leaked)
						}
					}
				}
			})
		}
	}
}

func TestPrivateHostsWhereAllowed(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "2130706433", "[::1]", "localhost", "１２７.０.０.１"} {
		n := &safeNet{}
		s := NewSession(Options{Transport: n, AllowPrivate: true})
		_, _, _ = get(t, s, "http://"+host+"/")
		s.Close()
		if len(n.leaked) != 1 {
			t.Errorf("%s was not asked", host)
		}
	}
}

// TestSchemes: nothing but http and https is asked.
func TestSchemes(t *testing.T) {
	for _, to := range []string{
		"ftp://other.example/", "file:///etc/passwd", "file://other.example/x", "javascript:alert(1)", "data:text/html,x", "gopher://other.example/",
		"ws://other.example/", "unix:///run/docker.sock", "about:blank", "mailto:a@other.example", "httpx://other.example/", "blob:http://other.example/x",
	} {
		for _, way := range []string{"page", "redirect"} {
			n := &safeNet{}
			s := NewSession(Options{Transport: n})
			err := ways[way](t, s, n, to)
			s.Close()
			if !errors.Is(err, ErrScheme) || len(n.leaked) > 0 {
				t.Errorf("%s %s: %v, asked %q", way, to, err, n.leaked)
			}
		}
		n := &safeNet{}
		s := NewSession(Options{Transport: n})
		_ = ways["redirect of robots.txt"](t, s, n, to)
		s.Close()
		if len(n.leaked) > 0 {
			t.Errorf("robots.txt of %s: asked %q", to, n.leaked)
		}
	}
}

// TestLoginsStayWithTheirOrigin: whatever makes another origin, of what the
// config says only harmless headers go there, and no login of the URL.
func TestLoginsStayWithTheirOrigin(t *testing.T) {
	for _, test := range []struct {
		from, to string
		kept     bool
	}{
		{"http://a.example/", "http://a.example/x", true},
		{"http://a.example/", "https://a.example/x", false},
		{"https://a.example/", "http://a.example/x", false},
		{"https://a.example/", "https://a.example:8443/x", false},
		{"https://a.example/", "https://www.a.example/x", false},
		{"https://www.a.example/", "https://a.example/x", false},
		{"https://a.example/", "https://a.example.evil.example/x", false},
		{"https://user:pw-ocelot@a.example/", "https://b.example/x", false},
	} {
		t.Run(test.from+" to "+test.to, func(t *testing.T) {
			var last http.Header
			s := open(t, Options{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				last = r.Header.Clone()
				resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}
				if r.URL.Path == "/" {
					resp.StatusCode, resp.Header = http.StatusFound, http.Header{"Location": {test.to}, "Set-Cookie": {"own=1"}}
				}
				return resp, nil
			})})
			secret := http.Header{"Cookie": {"login=pw-ocelot"}, "X-Secret-Of-Config": {"pw-ocelot"}, "Accept-Language": {"en"}}
			if !strings.Contains(test.from, "@") {
				secret.Set("Authorization", "Bearer pw-ocelot")
			}
			if _, _, err := do(t, s, Request{URL: test.from, Header: secret}); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"Authorization", "Cookie", "X-Secret-Of-Config"} {
				if got := strings.Contains(last.Get(name), "pw-ocelot") || name == "Authorization" && last.Get(name) != ""; got != test.kept {
					t.Errorf("%s is %q", name, last.Get(name))
				}
			}
			if strings.Contains(last.Get("Referer"), "ocelot") || last.Get("Accept-Language") != "en" {
				t.Errorf("got %v", last)
			}
		})
	}
}

// TestProxyLoginNeverReachesASite: over every kind of proxy, to a plain and a
// TLS site, and also where the config names the header.
func TestProxyLoginNeverReachesASite(t *testing.T) {
	seen := make(chan http.Header, 1)
	note := func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }
	plain, secure := serve(t, note), serveTLS(t, note)
	g := startGateway(t, gateway.Options{})
	for kind, opts := range map[string]Options{
		"direct": {}, "http": {Endpoint: endpointOf(t, g.URL())}, "socks5": {Endpoint: endpointOf(t, g.SOCKSURL())},
		"https": {Endpoint: endpointOf(t, tlsGateway(t, g, secure))},
	} {
		for _, site := range []*httptest.Server{plain, secure} {
			opts.RootCAs = roots(secure)
			s := open(t, opts)
			for range 2 { // the second over the kept connection
				_, trace, err := do(t, s, Request{URL: site.URL, Header: http.Header{
					"Proxy-Authorization": {"Basic eDp5"}, "Proxy-Connection": {"keep-alive"},
				}})
				if err != nil || trace.ProxyOrigin {
					t.Fatalf("%s to %s: %v, %+v", kind, site.URL, err, trace)
				}
				for name, values := range <-seen {
					text := strings.Join(values, " ")
					if strings.HasPrefix(name, "Proxy-") || strings.Contains(text, testPass) || strings.Contains(text, testUser) {
						t.Errorf("%s to %s: the site saw %s: %s", kind, site.URL, name, text)
					}
				}
			}
		}
	}
}
