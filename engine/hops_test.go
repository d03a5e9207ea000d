package engine

import (
	"net/http"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/fetch"
	"semel/storage"
)

// A 429 at the end of a redirect holds back the host that gave it.
func TestRedirectedThrottleGatesItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		begin := time.Now()
		var mu sync.Mutex
		limited := time.Duration(-1)
		n := 0
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if req.URL.Host == "shop.test" {
				return respond(302, "", "Location", "http://b.test"+req.URL.Path), nil
			}
			mu.Lock()
			defer mu.Unlock()
			if req.URL.Path == "/p/001" && limited < 0 {
				limited = time.Since(begin)
				return respond(429, "", "Retry-After", "600"), nil
			}
			if limited >= 0 && time.Since(begin) < limited+600*time.Second {
				n++
			}
			return product(req.URL.Path), nil
		})
		a := source(t, 1)
		b := source(t, 20)
		b.Name, b.URL = "bee", template(t, "http://b.test/q/{id}")
		opts := options(s, web, a, b)
		opts.Pacing = pacing(1, time.Second)
		runOnce(t, opts)
		if n > 0 {
			t.Errorf("%d requests to b.test within its Retry-After of 600 s", n)
		}
	})
}

// A hop that had its turn reserved before the host was gated waits anew.
func TestGateReachesWaitingHops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		begin := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if req.URL.Host == "shop.test" {
				return respond(302, "", "Location", "http://b.test"+req.URL.Path), nil
			}
			mu.Lock()
			at = append(at, time.Since(begin))
			mu.Unlock()
			if time.Since(begin) < 10*time.Second {
				return respond(429, "", "Retry-After", "600"), nil
			}
			return product(req.URL.Path), nil
		})
		a := source(t, 1)
		b := source(t, 20)
		b.Name, b.URL = "bee", template(t, "http://b.test/q/{id}")
		opts := options(s, web, a, b)
		opts.Pacing = pacing(1, 11*time.Second)
		runOnce(t, opts)
		sort.Slice(at, func(i, j int) bool { return at[i] < at[j] })
		n := 0
		for _, d := range at {
			if d > 0 && d < 600*time.Second {
				n++
			}
		}
		if n > 0 {
			t.Errorf("%d requests to b.test within its Retry-After", n)
		}
	})
}

// What a site says inside TLS is the site's, though the job's URL was plain.
func TestSitesOwn402BehindTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if req.URL.Scheme == "http" {
				return respond(301, "", "Location", "https://shop.test"+req.URL.Path), nil
			}
			if req.URL.Path == "/p/002" {
				return respond(402, "<p>members only</p>"), nil
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 20)
		src.Proxies = []string{"home"}
		opts := options(s, web, src)
		opts.Proxies = []Proxy{testProxy(t, "home")}
		sum := runOnce(t, opts)
		if len(sum.Paused) > 0 || sum.Completed != 19 {
			t.Errorf("%+v", sum)
		}
	})
}

// What a gateway says on a plain hop is the gateway's, though the job's URL
// was https.
func TestGateways407OnAPlainHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if req.URL.Scheme == "https" {
				return respond(301, "", "Location", "http://shop.test"+req.URL.Path), nil
			}
			return respond(407, "", "Proxy-Authenticate", "Basic"), nil
		})
		src := source(t, 20)
		src.Proxies, src.URL = []string{"home"}, template(t, "https://shop.test/p/{id}")
		opts := options(s, web, src)
		opts.Proxies = []Proxy{testProxy(t, "home")}
		sum := runOnce(t, opts)
		j, _ := job(t, s, "001")
		if sum.Failed > 0 {
			t.Errorf("%+v %s", sum, j.Category)
		}
	})
}

// 522 is Cloudflare's where nothing marks it as the gateway's.
func TestUnmarked522IsTheSites(t *testing.T) {
	p := &fetch.Page{Status: 522, Header: http.Header{"Cf-Ray": {"x"}}, Body: []byte("x")}
	f := judge(exchange{page: p, proxied: true}, time.Now())
	if f.category != storage.CategoryServerError {
		t.Errorf("%s", f.category)
	}
}

func TestGatewaysRetryAfter(t *testing.T) {
	p := &fetch.Page{Status: 429, Header: http.Header{"Retry-After": {"90"}}, Body: []byte("x")}
	f := judge(exchange{page: p, proxied: true, trace: fetch.Trace{ProxyOrigin: true, Header: p.Header}}, time.Now())
	if f.retryAfter == 0 {
		t.Errorf("%s %s", f.category, f.retryAfter)
	}
}
