package fetch

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"semel/engine/gateway"
	"semel/engine/proxy"
)

// serveGateway answers every request with fixed bytes, as a gateway of a
// provider.
func serveGateway(t *testing.T, provider, answer string) *proxy.Endpoint {
	t.Helper()
	return at(t, provider, strings.TrimSuffix(serveRaw(t, answer), "/"))
}

// at is the login of a provider at a test's gateway.
func at(t *testing.T, provider, url string) *proxy.Endpoint {
	t.Helper()
	e, err := newProxy(t, proxy.Spec{Provider: provider, URL: url}).Endpoint(proxy.Exit{})
	if err != nil {
		t.Fatal(err)
	}
	return &e
}

func TestReasonOfGateway(t *testing.T) {
	long := strings.Repeat("é", shortLimit)
	filler := strings.Repeat("x", shortLimit-5)
	halfLogin := " " + filler + testUser
	for _, test := range []struct{ phrase, reason, text string }{
		{" TRAFFIC_EXHAUSTED", "TRAFFIC_EXHAUSTED", "asking the proxy for a tunnel: proxy answered 407 TRAFFIC_EXHAUSTED"},
		{" no user " + testUser, "no user [redacted]", "asking the proxy for a tunnel: proxy answered 407 no user [redacted]"},
		{halfLogin, filler + "[reda", "asking the proxy for a tunnel: proxy answered 407 " + filler + "[reda"},
		{" ", "", "asking the proxy for a tunnel: proxy answered 407 Proxy Authentication Required"},
		{"", "", "asking the proxy for a tunnel: proxy answered 407 Proxy Authentication Required"},
		{" " + long, long[:shortLimit], "asking the proxy for a tunnel: proxy answered 407 " + long[:shortLimit]},
	} {
		endpoint := serveGateway(t, "dataimpulse", "HTTP/1.1 407"+test.phrase+"\r\nContent-Length: 0\r\n\r\n")
		_, _, err := get(t, open(t, Options{Endpoint: endpoint}), "https://example.com/")
		refused, ok := errors.AsType[*ConnectError](err)
		if !ok || refused.Reason != test.reason || err.Error() != test.text {
			t.Errorf("%q: got %v, %+v", test.phrase, err, refused)
		}
		if test.phrase == halfLogin {
			continue // over plain http the reason is as received
		}
		page, trace, err := get(t, open(t, Options{Endpoint: endpoint}), "http://example.com/")
		if err != nil || !trace.ProxyOrigin || strings.ReplaceAll(page.Reason, testUser, "[redacted]") != test.reason {
			t.Errorf("%q, plain http: got %+v, %v", test.phrase, page, err)
		}
	}
}

func TestExitThatTheGatewayShows(t *testing.T) {
	const shown = "X-Brd-Ip: 203.0.113.7\r\n"
	const page = "HTTP/1.1 200 OK\r\n" + shown + "Content-Length: 2\r\n\r\nok"
	const refusal = "HTTP/1.1 502 x\r\n" + shown + "Content-Length: 0\r\n\r\n"
	for _, test := range []struct{ name, provider, answer, url, want string }{
		{"plain http", "brightdata", page, "http://example.com/", "203.0.113.7"},
		{"tunnel", "brightdata", "HTTP/1.1 200 OK\r\n" + shown + "\r\n", "https://example.com/", "203.0.113.7"},
		{"refused tunnel", "brightdata", refusal, "https://example.com/", "203.0.113.7"},
		{"a provider that shows none", "oxylabs", page, "http://example.com/", ""},
		{"none shown", "brightdata", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "http://example.com/", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := open(t, Options{Endpoint: serveGateway(t, test.provider, test.answer)})
			if _, trace, err := get(t, s, test.url); trace.ExitIP != test.want {
				t.Errorf("got %q (%v), want %q", trace.ExitIP, err, test.want)
			}
		})
	}
}

// The last hop that shows an exit counts; one that shows none takes nothing
// back.
func TestExitOverRedirects(t *testing.T) {
	url := serveConn(t, func(c net.Conn) {
		r := newReader(c)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			header := "X-Brd-Ip: " + req.URL.Host
			if req.URL.Host == "c.example" {
				header = "X-Other: x"
			}
			next := map[string]string{"a.example": "b.example", "b.example": "c.example"}[req.URL.Host]
			_, _ = io.WriteString(c, "HTTP/1.1 302 Found\r\n"+header+"\r\nLocation: http://"+next+"/\r\nContent-Length: 0\r\n\r\n")
		}
	})
	s := open(t, Options{Endpoint: at(t, "brightdata", url)})
	if _, trace, err := do(t, s, Request{URL: "http://a.example/", MaxRedirects: 2}); trace.ExitIP != "b.example" {
		t.Errorf("got %q, %v", trace.ExitIP, err)
	}
}

func TestSiteCannotShowAnExit(t *testing.T) {
	site := serveTLS(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Brd-Ip", "198.51.100.1") })
	g := startGateway(t, gateway.Options{})
	s := open(t, Options{RootCAs: roots(site), Endpoint: at(t, "brightdata", g.URL())})
	if _, trace, err := get(t, s, site.URL); err != nil || trace.ExitIP != "" {
		t.Errorf("got %q, %v", trace.ExitIP, err)
	}
}

func TestRobotsKeepTheGatewaysWords(t *testing.T) {
	endpoint := serveGateway(t, "dataimpulse", "HTTP/1.1 407 TRAFFIC_EXHAUSTED\r\nContent-Length: 3\r\n\r\nwhy")
	_, _, err := FetchRobots(t.Context(), open(t, Options{Endpoint: endpoint}), mustParse(t, "http://example.com/p"), Request{})
	refused, ok := errors.AsType[*RobotsStatusError](err)
	if !ok || !refused.ProxyOrigin || refused.Reason != "TRAFFIC_EXHAUSTED" || refused.Body != "why" {
		t.Errorf("got %v, %+v", err, refused)
	}
}
