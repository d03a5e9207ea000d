package fetch

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"semel/engine/gateway"
)

// A request that must not reach the site twice does not, whatever net/http
// thinks of repeating it over a connection that has died; another one does.
func TestOnceIsSentOnce(t *testing.T) {
	idempotent := http.Header{"Idempotency-Key": {"7"}} // net/http takes such a request as one to repeat
	for name, req := range map[string]Request{
		"GET":                                  {Method: "GET"},
		"POST":                                 {Method: "POST", Body: []byte("a=b")},
		"POST without a body":                  {Method: "POST"},
		"POST with an idempotency key":         {Method: "POST", Body: []byte("a=b"), Header: idempotent},
		"empty POST with an idempotency key":   {Method: "POST", Header: idempotent},
		"DELETE with an idempotency key in it": {Method: "DELETE", Header: idempotent},
	} {
		t.Run(name, keeping(func(t *testing.T) {
			var mu sync.Mutex
			seen := map[string]int{}
			times := func(path string) int {
				mu.Lock()
				defer mu.Unlock()
				return seen[path]
			}
			site := serveConn(t, func(c net.Conn) {
				r := newReader(c)
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					mu.Lock()
					seen[req.URL.Path]++
					mu.Unlock()
					if req.URL.Path != "/first" {
						return // without a word
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			})
			s := open(t, Options{})
			if _, _, err := get(t, s, site+"first"); err != nil {
				t.Fatal(err)
			}
			req.URL, req.Once = site+"once", true
			_, trace, err := do(t, s, req)
			if err == nil || trace.Hops != 1 || trace.Reused || times("/once") != 1 {
				t.Errorf("the site saw it %d times: %+v, %v", times("/once"), trace, err)
			}
			if _, trace, err := get(t, s, site+"first"); err != nil || !trace.Reused {
				t.Errorf("the session's own connection is gone: %+v, %v", trace, err)
			}
			req.URL, req.Once = site+"again", false
			_, _, _ = do(t, s, req)
			if repeats := name == "GET" || len(req.Header) > 0; (times("/again") == 2) != repeats {
				t.Errorf("without Once the site saw it %d times", times("/again"))
			}
		}))
	}
}

func TestOnceAndRedirects(t *testing.T) {
	site := redirects(t)
	for status, want := range map[int]string{301: "GET /end ", 302: "GET /end ", 303: "GET /end ", 307: "", 308: ""} {
		page, trace, err := do(t, open(t, Options{}), Request{Method: "POST", URL: fmt.Sprintf("%s/status/%d", site.URL, status), Body: []byte("body"), Once: true})
		if want != "" {
			if err != nil || string(page.Body) != want {
				t.Errorf("%d: %v, %v", status, page, err)
			}
			continue
		}
		wantError(t, err, ErrRedirect)
		if trace.Hops != 1 || trace.Status != status {
			t.Errorf("%d: %+v", status, trace)
		}
	}
}

// Cookies of a fresh session stay for its next request, go to no other host, and
// end with it; those of any other end with their request.
func TestCookiesOfFreshSessions(t *testing.T) {
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := r.Cookie("seen"); err != nil {
			http.SetCookie(w, &http.Cookie{Name: "seen", Value: "1"})
		}
		fmt.Fprint(w, r.Header.Get("Cookie"))
	})
	gw := startGateway(t, gateway.Options{Dial: dialTo(site), Decode: func(string, string) (gateway.Login, bool) { return gateway.Login{}, true }})
	for name, opts := range map[string]PoolOptions{
		"direct":  {},
		"proxied": {Proxy: sessions(t, gw.URL())},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, opts)
			fresh := func() *Session {
				s, err := p.GetFresh("", 0)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
				return s
			}
			cookies := func(s *Session, url string) string {
				page, _, err := get(t, s, url)
				if err != nil || page.Status != http.StatusOK {
					t.Fatalf("%+v, %v", page, err)
				}
				return string(page.Body)
			}
			first, second, plain := fresh(), fresh(), take(t, p, noon, "")
			defer p.Put(plain, true)
			if name == "proxied" && (first.SessionHash() == "" || first.SessionHash() == second.SessionHash() || first.Country() != "") {
				t.Errorf("sessions %s and %s", first.SessionHash(), second.SessionHash())
			}
			for _, c := range []struct {
				s    *Session
				host string
				want string
			}{
				{first, site.URL, ""}, {first, site.URL, "seen=1"}, {second, site.URL, ""}, {first, site.URL, "seen=1"},
				{plain, site.URL, ""}, {plain, site.URL, ""},
			} {
				if got := cookies(c.s, c.host); got != c.want {
					t.Errorf("cookies %q, want %q", got, c.want)
				}
			}
			if name == "proxied" {
				if got := cookies(first, "http://other.test/"); got != "" {
					t.Errorf("another host was sent %q", got)
				}
			}
			p.Close()
			if _, err := p.GetFresh("", 0); err != ErrClosed {
				t.Errorf("a closed pool gave %v", err)
			}
		})
	}
}
