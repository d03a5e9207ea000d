package engine

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"semel/engine/gateway"
	"semel/engine/proxy"
)

// accounts are the user names of providers that want more than a name.
var accounts = map[string]string{"brightdata": "brd-customer-c123-zone-z1"}

// What package proxy writes into a login is what a gateway of that provider
// reads out of it, over HTTP and SOCKS5.
func TestGatewaysReadTheLogins(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(site.Close)
	for _, provider := range proxy.Providers() {
		if !slices.Contains(gateway.Providers(), provider) {
			t.Errorf("the gateway does not know provider %s", provider)
			continue
		}
		account := accounts[provider]
		if account == "" {
			account = "u42"
		}
		var read gateway.Login
		g, err := gateway.Start(gateway.Options{
			Provider: provider, Username: account, Password: "key-7/1@",
			Fault: func(r gateway.Request) gateway.Fault {
				read = r.Login
				return gateway.Fault{}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
		for _, at := range []string{g.URL(), g.SOCKSURL()} {
			p, err := proxy.New(proxy.Spec{Name: "home", Provider: provider, URL: at, Username: account, Password: "key-7/1@"})
			if err != nil {
				t.Fatal(err)
			}
			for _, country := range []string{"", "US", "GB", "DE"} {
				for _, session := range []string{"", p.NewSessionID()} {
					read = gateway.Login{}
					if !visitThrough(t, p, site.URL, country, session) {
						continue
					}
					if read.Country != country || read.Session != session {
						t.Errorf("%s over %s: country %q and session %q were read as %+v", provider, at[:5], country, session, read)
					}
				}
			}
		}
	}
}

// visitThrough makes a request through a proxy; false if its login cannot say
// that, which is fine only for what some provider leaves out.
func visitThrough(t *testing.T, p *proxy.Proxy, site, country, session string) bool {
	t.Helper()
	e, err := p.Endpoint(country, session)
	if country == "" && errors.Is(err, proxy.ErrCountry) || session == "" && errors.Is(err, proxy.ErrSession) {
		return false
	}
	if err != nil {
		t.Errorf("%s: %v", p.Name(), err)
		return false
	}
	transport := &http.Transport{Proxy: http.ProxyURL(e.URL())}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(site)
	if err != nil {
		t.Errorf("%s: %s", e, strings.ReplaceAll(err.Error(), "\n", " "))
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s: country %q, session %q: the gateway answered %d", e, country, session, resp.StatusCode)
	}
	return resp.StatusCode == http.StatusOK
}
