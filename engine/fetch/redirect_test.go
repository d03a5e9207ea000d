package fetch

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"semel/engine/address"
)

// redirects is a site whose path tells what it does.
func redirects(t *testing.T) *httptest.Server {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		var n int
		switch {
		case scan(r.URL.Path, "/down/%d", &n) && n > 0:
			http.Redirect(w, r, fmt.Sprintf("/down/%d", n-1), http.StatusFound)
		case scan(r.URL.Path, "/status/%d", &n):
			http.Redirect(w, r, "/end", n)
		case r.URL.Path == "/loop":
			http.Redirect(w, r, "/loop2", http.StatusMovedPermanently)
		case r.URL.Path == "/loop2":
			http.Redirect(w, r, "/loop", http.StatusMovedPermanently)
		case r.URL.Path == "/cookie" && r.Header.Get("Cookie") == "":
			http.SetCookie(w, &http.Cookie{Name: "seen", Value: "1"})
			http.Redirect(w, r, "/cookie", http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/to/"):
			w.Header().Set("Location", r.URL.Query().Get("u"))
			w.WriteHeader(http.StatusFound)
		case r.URL.Path == "/nowhere":
			w.WriteHeader(http.StatusFound)
		default:
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, body)
		}
	})
}

func scan(s, format string, n *int) bool {
	_, err := fmt.Sscanf(s, format, n)
	return err == nil
}

func TestRedirectsAreFollowed(t *testing.T) {
	site := redirects(t)
	tests := []struct {
		name, method, path string
		want               string
		hops               int
	}{
		{"ten", "GET", "/down/10", "GET /down/0 ", 11},
		{"to itself once a cookie is set", "GET", "/cookie", "GET /cookie ", 2},
		{"301 of GET", "GET", "/status/301", "GET /end ", 2},
		{"301 of POST", "POST", "/status/301", "GET /end ", 2},
		{"302 of POST", "POST", "/status/302", "GET /end ", 2},
		{"303 of PUT", "PUT", "/status/303", "GET /end ", 2},
		{"307 of POST", "POST", "/status/307", "POST /end body", 2},
		{"308 of POST", "POST", "/status/308", "POST /end body", 2},
	}
	for _, test := range tests {
		t.Run(test.name, keeping(func(t *testing.T) {
			req := Request{Method: test.method, URL: site.URL + test.path}
			if test.method != "GET" {
				req.Body = []byte("body")
			}
			page, trace, err := do(t, open(t, Options{}), req)
			if err != nil {
				t.Fatal(err)
			}
			if string(page.Body) != test.want || trace.Hops != test.hops {
				t.Errorf("got %q after %d hops, want %q after %d", page.Body, trace.Hops, test.want, test.hops)
			}
			if end := strings.Fields(test.want)[1]; page.FinalURL != site.URL+end {
				t.Errorf("final URL is %s", page.FinalURL)
			}
			if trace.Resent != 0 || test.hops > 2 && !trace.Reused {
				t.Errorf("connection was not kept: %+v", trace)
			}
		}))
	}
}

func TestRedirectsAreRefused(t *testing.T) {
	site := redirects(t)
	tests := []struct {
		name, path string
		status     int
		also       error
		hops       int
	}{
		{"eleven", "/down/11", 302, nil, 11},
		{"a loop", "/loop", 301, nil, 2},
		{"no Location", "/nowhere", 302, nil, 1},
		{"not a URL", "/to/?u=http://a%2525zz:x/", 302, nil, 1},
		{"a host that costs the square of its length", "/to/?u=http://" + strings.Repeat("%E4%B8%80%E4%BA%8C", 1000) + "/", 302, nil, 1},
		{"another scheme", "/to/?u=ftp://example.com/", 302, ErrScheme, 1},
		{"a file", "/to/?u=file:///etc/passwd", 302, ErrScheme, 1},
		{"data", "/to/?u=data:,x", 302, ErrScheme, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			page, trace, err := get(t, open(t, Options{}), site.URL+test.path)
			wantError(t, err, ErrRedirect)
			if test.also != nil {
				wantError(t, err, test.also)
			}
			if page != nil || trace.Status != test.status || trace.Hops != test.hops {
				t.Errorf("got %+v", trace)
			}
		})
	}
}

func TestRedirectsAreNotFollowedWhenNotWanted(t *testing.T) {
	page, trace, err := do(t, open(t, Options{}), Request{URL: redirects(t).URL + "/status/302", MaxRedirects: -1})
	if err != nil || page.Status != 302 || trace.Hops != 1 {
		t.Fatalf("got %+v, %v", page, err)
	}
}

func TestRedirectToPrivateAddressIsRefused(t *testing.T) {
	hits := 0
	inner := serve(t, func(http.ResponseWriter, *http.Request) { hits++ })
	// The first hop is public by its name and answered by no network.
	s := NewSession(Options{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host != "public.example" {
			return nil, errors.New("left the public site")
		}
		return &http.Response{StatusCode: 302, Header: http.Header{"Location": {inner.URL}}, Body: http.NoBody, Request: r}, nil
	})})
	_, _, err := get(t, s, "http://public.example/")
	wantError(t, err, ErrRedirect)
	wantError(t, err, address.ErrPrivate)
	if hits != 0 {
		t.Error("the private site was reached")
	}
}

func TestLoginHeadersStayWithTheirOrigin(t *testing.T) {
	var seen http.Header
	elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header
		if back := r.URL.Query().Get("back"); back != "" {
			http.Redirect(w, r, back, http.StatusFound)
		}
	})
	home := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header
		if to := r.URL.Query().Get("to"); to != "" {
			http.SetCookie(w, &http.Cookie{Name: "own", Value: "1"})
			http.Redirect(w, r, to, http.StatusFound)
		}
	})
	secret := http.Header{
		"Authorization": {"Bearer x"}, "Cookie": {"login=1"}, "X-Api-Key": {"k"}, "Referer": {"http://a/?t=1"},
		"Accept-Language": {"en"},
	}
	tests := []struct {
		name, url string
		kept      bool
	}{
		{"same origin", home.URL + "/?to=/end", true},
		{"another origin", home.URL + "/?to=" + elsewhere.URL, false},
		{"away and back", home.URL + "/?to=" + elsewhere.URL + "%3Fback=" + home.URL + "/end", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, _, err := do(t, open(t, Options{}), Request{URL: test.url, Header: secret}); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"Authorization", "X-Api-Key", "Referer"} {
				if got := seen.Get(name) != ""; got != test.kept {
					t.Errorf("%s arrived: %t, want %t", name, got, test.kept)
				}
			}
			if got := strings.Contains(seen.Get("Cookie"), "login=1"); got != test.kept {
				t.Errorf("cookie header is %q", seen.Get("Cookie"))
			}
			if seen.Get("Accept-Language") != "en" {
				t.Error("Accept-Language was lost")
			}
		})
	}
}

func TestOrigin(t *testing.T) {
	same := [][2]string{{"http://a/", "http://A:80/x"}, {"https://a/", "https://a:443/"}}
	other := [][2]string{{"http://a/", "https://a/"}, {"http://a/", "http://a:81/"}, {"http://a/", "http://b.a/"}}
	for _, pair := range same {
		if origin(mustParse(t, pair[0])) != origin(mustParse(t, pair[1])) {
			t.Errorf("%s differs from %s", pair[0], pair[1])
		}
	}
	for _, pair := range other {
		if origin(mustParse(t, pair[0])) == origin(mustParse(t, pair[1])) {
			t.Errorf("%s equals %s", pair[0], pair[1])
		}
	}
}

// A request's body may hold a login or a token: it stays with its origin, as
// headers that hold such do.
func TestBodyStaysWithItsOrigin(t *testing.T) {
	var elsewhere atomic.Int64
	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		if scan(r.URL.Path, "/away/%d", &status) {
			http.Redirect(w, r, other.URL, status)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})
	for _, status := range []int{307, 308} {
		_, _, err := do(t, open(t, Options{}), Request{Method: "POST", URL: fmt.Sprintf("%s/away/%d", site.URL, status), Body: []byte("pw=x")})
		wantError(t, err, ErrRedirect)
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("another origin was asked %d times", n)
	}
	if _, trace, err := do(t, open(t, Options{}), Request{Method: "POST", URL: site.URL + "/away/303", Body: []byte("pw=x")}); err != nil || elsewhere.Load() != 1 || trace.Hops != 2 {
		t.Errorf("a 303 sends no body and was not followed: %+v, %v", trace, err)
	}
}
