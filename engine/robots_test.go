package engine

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"semel/engine/gateway"
	"semel/engine/proxy"
	"semel/storage"
)

// Whatever keeps a robots.txt from being read, no page is asked for until it
// was. What a site without one answers lets everything through.
func TestRobotsAreReadBeforeAnyPage(t *testing.T) {
	for name, test := range map[string]struct {
		scheme  string
		proxied bool
		answer  func() (*http.Response, error)
		waits   storage.Category // ""; the page may be asked for at once
	}{
		"401":            {"http", false, func() (*http.Response, error) { return respond(401, ""), nil }, ""},
		"403":            {"http", false, func() (*http.Response, error) { return respond(403, ""), nil }, ""},
		"404":            {"http", false, func() (*http.Response, error) { return respond(404, ""), nil }, ""},
		"410":            {"http", false, func() (*http.Response, error) { return respond(410, ""), nil }, ""},
		"empty":          {"http", false, func() (*http.Response, error) { return respond(200, ""), nil }, ""},
		"a page":         {"http", false, func() (*http.Response, error) { return product("/robots.txt"), nil }, ""},
		"redirect loop":  {"http", false, func() (*http.Response, error) { return respond(302, "", "Location", "/robots.txt"), nil }, ""},
		"429":            {"http", false, func() (*http.Response, error) { return respond(429, ""), nil }, storage.CategoryRobotsUnavailable},
		"500":            {"http", false, func() (*http.Response, error) { return respond(500, ""), nil }, storage.CategoryRobotsUnavailable},
		"503":            {"http", true, func() (*http.Response, error) { return respond(503, ""), nil }, storage.CategoryRobotsUnavailable},
		"304":            {"http", false, func() (*http.Response, error) { return respond(304, ""), nil }, storage.CategoryRobotsUnavailable},
		"no answer":      {"http", false, func() (*http.Response, error) { return nil, errors.New("reset") }, storage.CategoryBodyTruncated},
		"the gateway's":  {"http", true, func() (*http.Response, error) { return respond(404, "", "X-Squid-Error", "ERR_DNS_FAIL 0"), nil }, storage.CategoryDNS},
		"no tunnel":      {"https", true, func() (*http.Response, error) { return nil, refused(502) }, storage.CategoryExitConnect},
		"no exit for it": {"https", true, func() (*http.Response, error) { return nil, refused(490) }, storage.CategoryExitUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				asked, before := 0, 0 // times of robots.txt, in all and when the first page was asked for
				web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
					switch {
					case req.URL.Path == "/robots.txt" && nth == 1:
						asked++
						return test.answer()
					case req.URL.Path == "/robots.txt":
						asked++
						return respond(200, "User-agent: *\nAllow: /"), nil
					case before == 0:
						before = asked
					}
					return product(req.URL.Path), nil
				})
				src := source(t, 1)
				src.URL = template(t, test.scheme+"://shop.test/p/{id}")
				opts := options(s, web, src)
				opts.Robots = true
				if test.proxied {
					opts.Sources[0].Proxies, opts.Proxies = []string{"home"}, []Proxy{testProxy(t, "home")}
				}
				sum := runOnce(t, opts)
				_, attempts := job(t, s, "001")
				if sum.Completed != 1 || attempts[0].Category != test.waits {
					t.Errorf("%+v, the first attempt ended as %q: %s", sum, attempts[0].Category, attempts[0].Reason)
				}
				if want := map[bool]int{true: 1, false: 2}[test.waits == ""]; before != want {
					t.Errorf("the page was asked for after %d requests for robots.txt", before)
				}
			})
		})
	}
}

// robots.txt is asked through the exit that asks for the page.
func TestRobotsGoThroughTheSameSession(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("<h1>x</h1>"))
	}))
	defer site.Close()
	var mu sync.Mutex
	var logins []string // in the order of requests
	gw, err := gateway.Start(gateway.Options{
		Decode: func(username, _ string) (gateway.Login, bool) { return gateway.Login{Session: username}, true },
		Fault: func(r gateway.Request) gateway.Fault {
			mu.Lock()
			defer mu.Unlock()
			logins = append(logins, strings.TrimPrefix(r.URL, site.URL)+" "+r.Login.Session)
			return gateway.Fault{}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer gw.Close()
	p, err := proxy.New(proxy.Spec{Name: "home", URL: gw.URL(), Username: "u", Password: "p", UsernameTemplate: "{username}-sid-{session}"})
	if err != nil {
		t.Fatal(err)
	}
	src := source(t, 2)
	src.URL, src.Proxies = template(t, site.URL+"/p/{id}"), []string{"home"}
	opts := options(openStore(t), nil, src)
	opts.Robots, opts.Proxies, opts.Pacing = true, []Proxy{{Proxy: p, Name: "home"}}, pacing(1, 0)
	runOnce(t, opts)
	if len(logins) != 3 || logins[0] != strings.Replace(logins[1], "/p/001", "/robots.txt", 1) || strings.HasSuffix(logins[2], strings.Fields(logins[1])[1]) {
		t.Errorf("asked %q", logins)
	}
}
