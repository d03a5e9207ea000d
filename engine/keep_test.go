package engine

import (
	"encoding/base64"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"semel/storage"
)

// Pages are kept as the parser saw them, of the attempts that the setting
// names, and a job handed back keeps none.
func TestBodies(t *testing.T) {
	for bodies, want := range map[Bodies]struct{ failed, complete bool }{
		BodiesNone:   {false, false},
		BodiesFailed: {true, false},
		BodiesAll:    {true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
				if nth == 1 {
					return respond(200, "<p>no title \xe4</p>", "Content-Type", "text/html; charset=iso-8859-1"), nil
				}
				return product(req.URL.Path), nil
			})
			src := source(t, 1)
			src.Retry = map[storage.Category]RetryPolicy{storage.CategoryValidation: {Attempts: 3}}
			opts := options(s, web, src)
			opts.Bodies = bodies
			runOnce(t, opts)
			_, attempts := job(t, s, "001")
			if len(attempts) != 2 {
				t.Fatalf("%+v", attempts)
			}
			wantKept(t, s, attempts[0], want.failed, "<p>no title ä</p>")
			wantKept(t, s, attempts[1], want.complete, "<html><head><title>page /p/001</title></head><body><h1>Thing /p/001</h1></body></html>")
		})
	}
}

// What a gateway answers itself is never kept: it may show the login. Over plain
// http nothing but the login may tell it from a page of the site.
func TestGatewaysPagesAreNotKept(t *testing.T) {
	for page, test := range map[string]struct {
		header []string
		kept   bool
	}{
		"the site is down":                {kept: true},
		"the exit is down":                {header: []string{"X-Squid-Error", "ERR_CONNECT_FAIL 111"}},
		"no exit for user-secret-sid-123": {},
		"no exit for pass-secret":         {},
		"you sent Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("pass-secret")): {},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			web := newSite(func(*http.Request, int) (*http.Response, error) {
				return respond(502, page, append(test.header, "Content-Type", "text/html")...), nil
			})
			src := source(t, 1)
			src.URL, src.Proxies, src.Limits.Attempts = template(t, "http://shop.test/p/{id}"), []string{"home"}, 1
			opts := options(s, web, src)
			opts.Proxies, opts.Bodies = []Proxy{testProxy(t, "home")}, BodiesAll
			runOnce(t, opts)
			_, attempts := job(t, s, "001")
			if len(attempts) != 1 {
				t.Fatalf("%q: %+v", page, attempts)
			}
			wantKept(t, s, attempts[0], test.kept, page)
		})
	}
}

func wantKept(t *testing.T, s *storage.Store, a storage.Attempt, kept bool, page string) {
	t.Helper()
	if a.Page.IsZero() == kept {
		t.Errorf("attempt %d kept %s", a.Generation, a.Page)
	}
	if !kept {
		return
	}
	body, err := s.ReadPage(a.Page)
	if err != nil || string(body) != page || a.ContentType != "text/html" {
		t.Errorf("attempt %d kept %q as %q (%v)", a.Generation, body, a.ContentType, err)
	}
	if _, err := s.ReadPage(storage.PageHash{}); !errors.Is(err, storage.ErrNotFound) {
		t.Error(err)
	}
}
