package fetch

import (
	"net/http"
	"net/url"
	"testing"

	"semel/engine/address"
	"semel/engine/gateway"
)

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	hits := 0
	site := serve(t, func(http.ResponseWriter, *http.Request) { hits++ })
	g := startGateway(t, gateway.Options{})
	port := mustParse(t, site.URL).Port()
	for name, opts := range map[string]Options{
		"direct":          {},
		"through a proxy": {Endpoint: endpointOf(t, g.URL())},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSession(opts)
			t.Cleanup(s.Close)
			for _, host := range []string{"127.0.0.1", "localhost", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]"} {
				_, trace, err := get(t, s, "http://"+host+":"+port+"/")
				wantError(t, err, address.ErrPrivate)
				if trace.BytesUp != 0 {
					t.Errorf("%s: bytes were sent", host)
				}
			}
		})
	}
	if hits != 0 || len(g.Stats().Requests) != 0 {
		t.Errorf("site had %d requests, gateway %v", hits, g.Stats().Requests)
	}
}

func TestAddressIsCheckedAsDialed(t *testing.T) {
	// A name says nothing: what counts is where it leads. Behind the check of
	// hosts there is the one of the dialed address.
	hits := 0
	site := serve(t, func(http.ResponseWriter, *http.Request) { hits++ })
	s := NewSession(Options{})
	t.Cleanup(s.Close)
	a, err := s.newAttempt(t.Context(), Request{URL: site.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.dial(withAttempt(a.ctx, a), "tcp", mustParse(t, site.URL).Host)
	wantError(t, err, address.ErrPrivate)
	a.seal()
	if hits != 0 {
		t.Error("the site was reached")
	}
}

func TestProxyOnPrivateAddressMayBeUsed(t *testing.T) {
	site := serve(t, func(http.ResponseWriter, *http.Request) {})
	g := startGateway(t, gateway.Options{Dial: dialTo(site)})
	s := NewSession(Options{Endpoint: endpointOf(t, g.URL())})
	t.Cleanup(s.Close)
	if _, _, err := get(t, s, "http://public.example/"); err != nil {
		t.Fatal(err)
	}
}
