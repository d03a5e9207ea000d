package fetch

import (
	"errors"
	"strings"
	"testing"

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

func TestRobotsKeepTheGatewaysWords(t *testing.T) {
	endpoint := serveGateway(t, "dataimpulse", "HTTP/1.1 407 TRAFFIC_EXHAUSTED\r\nContent-Length: 3\r\n\r\nwhy")
	_, _, err := FetchRobots(t.Context(), open(t, Options{Endpoint: endpoint}), mustParse(t, "http://example.com/p"), Request{})
	refused, ok := errors.AsType[*RobotsStatusError](err)
	if !ok || !refused.ProxyOrigin || refused.Reason != "TRAFFIC_EXHAUSTED" || refused.Body != "why" {
		t.Errorf("got %v, %+v", err, refused)
	}
}
