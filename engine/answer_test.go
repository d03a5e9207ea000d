package engine

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/fetch"
	"semel/engine/proxy"
	"semel/storage"
)

// What a gateway says beside its status reaches the provider's rules on every
// way there: an account out of traffic is no wrong login.
func TestGatewayExplanations(t *testing.T) {
	p, err := proxy.New(proxy.Spec{Name: "p", Provider: "dataimpulse", Username: "u", Password: "pw"})
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := p.Endpoint(proxy.Exit{})
	if err != nil {
		t.Fatal(err)
	}
	const word = "TRAFFIC_EXHAUSTED"
	code := http.Header{"Proxy-Status": {"gw; error=" + word}}
	for name, x := range map[string]exchange{
		"CONNECT, reason":    {err: &fetch.ConnectError{Status: 407, Reason: word}},
		"CONNECT, header":    {err: &fetch.ConnectError{Status: 407, Header: code}},
		"CONNECT, body":      {err: &fetch.ConnectError{Status: 407, Body: word}},
		"plain http, reason": {page: &fetch.Page{Status: 407, Reason: word}},
		"plain http, header": {page: &fetch.Page{Status: 407, Header: code}},
		"plain http, body":   {page: &fetch.Page{Status: 407, Body: []byte(word)}},
		"robots, reason":     {err: &fetch.RobotsStatusError{Status: 407, ProxyOrigin: true, Reason: word}},
		"robots, header":     {err: &fetch.RobotsStatusError{Status: 407, ProxyOrigin: true, Header: code}},
		"robots, body":       {err: &fetch.RobotsStatusError{Status: 407, ProxyOrigin: true, Body: word}},
	} {
		if x.err != nil {
			x.err = fmt.Errorf("wrapped: %w", x.err)
		}
		x.proxied, x.gateway = true, gateway
		x.trace.ProxyOrigin = x.page != nil
		if got := judge(x, time.Now()); got == nil || got.category != storage.CategoryProxyQuota {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	x := exchange{err: errors.Join(&fetch.ConnectError{Status: 407}), proxied: true, gateway: gateway}
	if got := judge(x, time.Now()); got.category != storage.CategoryProxyAuth {
		t.Errorf("407 without a word: %s", got.category)
	}
}

// The rules are those of the provider that the attempt went through.
func TestAttemptIsReadByItsProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if nth == 1 {
				return nil, refused(503)
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 1)
		src.Proxies = []string{"home"}
		opts := options(s, web, src)
		p, err := proxy.New(proxy.Spec{Name: "home", Provider: "iproyal", Username: "u", Password: "pw"})
		if err != nil {
			t.Fatal(err)
		}
		opts.Proxies = []Proxy{{Name: "home", Proxy: p}}
		sum := runOnce(t, opts)
		_, attempts := job(t, s, "001")
		if sum.Completed != 1 || attempts[0].Category != storage.CategoryExitUnavailable {
			t.Errorf("%+v, %+v", sum, attempts)
		}
	})
}
