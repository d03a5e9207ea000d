package engine

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

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
				id := p.NewSessionID()
				for _, exit := range []proxy.Exit{{}, {Session: id}, {Session: id, Keep: 10 * time.Minute}, {Session: id, Keep: 10 * time.Minute, Strict: true}} {
					exit.Country, read = country, gateway.Login{}
					if !visitThrough(t, p, site.URL, exit) {
						continue
					}
					// Not every provider is told how long, or has a strict form.
					kept := read.TTL == 0 || read.TTL == exit.Keep
					if read.Country != country || read.Session != exit.Session || !kept {
						t.Errorf("%s over %s: %+v was read as %+v", provider, at[:5], exit, read)
					}
				}
			}
		}
	}
}

// visitThrough makes a request through a proxy; false if its login cannot say
// that, which is fine only for what some provider leaves out.
func visitThrough(t *testing.T, p *proxy.Proxy, site string, exit proxy.Exit) bool {
	t.Helper()
	e, err := p.Endpoint(exit)
	if exit.Country == "" && errors.Is(err, proxy.ErrCountry) || exit.Session == "" && errors.Is(err, proxy.ErrSession) {
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
		t.Errorf("%s: %+v: the gateway answered %d", e, exit, resp.StatusCode)
	}
	return resp.StatusCode == http.StatusOK
}
