package fetch

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/gateway"
)

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }

func TestDoReturnsPage(t *testing.T) {
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "Text/HTML; charset=UTF-8")
		w.Header().Set("X-Seen", r.UserAgent()+"|"+r.Header.Get("X-Own"))
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "<h1>héllo</h1>")
	})
	page, trace, err := do(t, open(t, Options{}), Request{
		URL:       site.URL + "/p?x=1",
		UserAgent: "semel",
		Header:    http.Header{"X-Own": {"yes"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Page{
		Status: http.StatusTeapot, Reason: "I'm a teapot", RequestURL: site.URL + "/p?x=1", FinalURL: site.URL + "/p?x=1",
		ContentType: "text/html", Charset: "utf-8", Body: []byte("<h1>héllo</h1>"),
	}
	if got := page.Header.Get("X-Seen"); got != "semel|yes" {
		t.Errorf("site saw %q", got)
	}
	page.Header = nil
	if fmt.Sprint(*page) != fmt.Sprint(want) {
		t.Errorf("got page %+v\nwant %+v", *page, want)
	}
	if trace.Phase != PhaseDone || trace.Status != http.StatusTeapot || trace.Hops != 1 || trace.Reused {
		t.Errorf("got trace %+v", trace)
	}
	if trace.BytesUp == 0 || trace.BytesDown == 0 || trace.DialTime == 0 || trace.FirstByteTime == 0 {
		t.Errorf("trace lacks measures: %+v", trace)
	}
}

func TestDoSendsTheURLAsAsked(t *testing.T) {
	// The request line as received: net/http's own parsing is not asked.
	lines := make(chan string, 1)
	site := serveConn(t, func(c net.Conn) {
		line, _ := newReader(c).ReadString('\n')
		lines <- strings.TrimSpace(line)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	})
	for _, path := range []string{
		"",
		"?q=a|b&c=[1]",
		"%7Euser/~user",
		"a/../b/./c",
		"a//b/",
		"%e3%83%84?%e3=%2f",
		"p;v=1,2?x='y'&z=\"w\"",
		"back\\slash?c\\d",
		"?",
		"a%2Fb%5cc",
		"?q=100%25&p=%",
		"?q=<b>^`{}",
		"?q=a b&c=é",
	} {
		t.Run(path, func(t *testing.T) {
			asked := site + path
			page, _, err := get(t, open(t, Options{}), asked)
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(asked)
			if err != nil {
				t.Fatal(err)
			}
			makeSendable(u)
			if got, want := <-lines, "GET "+u.RequestURI()+" HTTP/1.1"; got != want {
				t.Errorf("sent %q, want %q", got, want)
			}
			if page.FinalURL != u.String() || page.RequestURL != asked {
				t.Errorf("page says %q and %q", page.RequestURL, page.FinalURL)
			}
		})
	}
}

func TestMakeSendable(t *testing.T) {
	for query, want := range map[string]string{
		"a=b c":      "a=b%20c",
		"a=é&b=\xff": "a=%C3%A9&b=%FF",
		"a=b|c[1]<>": "a=b|c[1]<>",
		"%20+%7e":    "%20+%7e",
	} {
		u := &url.URL{RawQuery: query}
		if makeSendable(u); u.RawQuery != want {
			t.Errorf("%q became %q, want %q", query, u.RawQuery, want)
		}
	}
}

func TestDoRefusesBadRequests(t *testing.T) {
	tests := []struct {
		url  string
		want error
	}{
		{"", ErrScheme},
		{"/path", ErrScheme},
		{"ftp://example.com/", ErrScheme},
		{"file:///etc/passwd", ErrScheme},
		{"javascript:alert(1)", ErrScheme},
		{"http://", ErrURL},
		{"http:///path", ErrURL},
		{"http://user:hunter2@exa mple.com/", ErrURL},
		{"http://example.com:port/", ErrURL},
		{"http://example.com/%zz", ErrURL},
		{"http://1.2.3.4.5/", ErrURL},
		{"http://xn--/", ErrURL},
		{"http://" + strings.Repeat("a.", longestHost), ErrURL},
	}
	for _, test := range tests {
		t.Run(test.url, func(t *testing.T) {
			_, trace, err := get(t, open(t, Options{}), test.url)
			wantError(t, err, test.want)
			if trace.Phase != PhaseStart || trace.Hops != 0 {
				t.Errorf("got trace %+v", trace)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error shows the password: %v", err)
			}
		})
	}
}

func TestDoSendsMethodAndBody(t *testing.T) {
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.Header.Get("Content-Type"), body)
	})
	s := open(t, Options{})
	page, _, err := do(t, s, Request{
		Method: "POST", URL: site.URL, Body: []byte("a=1"),
		Header: http.Header{"Content-Type": {"application/json"}},
	})
	if err != nil || string(page.Body) != "POST application/json a=1" {
		t.Errorf("got %q, %v", page.Body, err)
	}
	page, _, err = do(t, s, Request{Method: "HEAD", URL: site.URL})
	if err != nil || page.Status != 200 || len(page.Body) != 0 || page.CloseDelimited {
		t.Errorf("HEAD got %+v, %v", page, err)
	}
}

func TestDoIgnoresTheEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"HTTP_PROXY": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "socks5://127.0.0.1:1",
		"COLLY_USER_AGENT": "colly-env", "COLLY_MAX_BODY_SIZE": "7", "COLLY_DISALLOWED_DOMAINS": "127.0.0.1",
		"COLLY_ALLOWED_DOMAINS": "example.com", "COLLY_CACHE_DIR": t.TempDir(), "COLLY_IGNORE_ROBOTSTXT": "n",
		"COLLY_DISABLE_COOKIES": "y", "COLLY_FOLLOW_REDIRECTS": "n", "COLLY_DETECT_CHARSET": "y", "COLLY_MAX_DEPTH": "0",
	} {
		t.Setenv(name, value)
	}
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
			http.Redirect(w, r, "/next", http.StatusFound)
			return
		}
		fmt.Fprintf(w, "%s %s", r.UserAgent(), r.Header.Get("Cookie"))
	})
	page, _, err := do(t, open(t, Options{}), Request{URL: site.URL, UserAgent: "semel"})
	if err != nil {
		t.Fatal(err)
	}
	if string(page.Body) != "semel a=b" {
		t.Errorf("got %q", page.Body)
	}
}

func TestDoAsksAllowAtEachHop(t *testing.T) {
	var served []string
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		served = append(served, r.URL.Path)
		http.Redirect(w, r, "/secret?a=[1]", http.StatusFound)
	})
	denied := errors.New("robots say no")
	var asked []string
	_, trace, err := do(t, open(t, Options{}), Request{URL: site.URL + "/start", Allow: func(_ context.Context, u *url.URL) error {
		asked = append(asked, u.RequestURI())
		if u.Path == "/secret" {
			return denied
		}
		return nil
	}})
	wantError(t, err, denied)
	if err.Error() != "preparing the request: robots say no" || trace.Phase != PhaseStart {
		t.Errorf("got %v, %+v", err, trace)
	}
	if want := []string{"/start", "/secret?a=[1]"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	if want := []string{"/start"}; !slices.Equal(served, want) {
		t.Errorf("site served %q, want %q", served, want)
	}
}

// roundTripper is a network of one function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestDoTurnsPanicIntoError(t *testing.T) {
	s := open(t, Options{Transport: roundTripper(func(*http.Request) (*http.Response, error) { panic("deep below") })})
	_, _, err := get(t, s, "http://example.com/")
	var panicked *PanicError
	if !errors.As(err, &panicked) || panicked.Value != "deep below" || len(panicked.Stack) == 0 {
		t.Fatalf("got %v", err)
	}
}

func TestPolicyMayWait(t *testing.T) {
	// A redirect's turn at its host comes after the body's idle time.
	synctest.Test(t, func(t *testing.T) {
		s := NewSession(Options{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			resp := &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}, Request: r}
			if r.URL.Path == "/" {
				resp.StatusCode = 302
				resp.Header.Set("Location", "/next")
			}
			return resp, nil
		})})
		_, trace, err := s.Do(t.Context(), Request{URL: "http://example.com/", Allow: func(context.Context, *url.URL) error {
			time.Sleep(time.Hour) // of the bubble's clock
			return nil
		}})
		if err != nil || trace.Hops != 2 {
			t.Errorf("got %+v, %v", trace, err)
		}
	})
}

func TestFailuresOnTheWay(t *testing.T) {
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Close()
	secure := serveTLS(t, hello)
	g := startGateway(t, gateway.Options{})
	for _, test := range []struct {
		name  string
		opts  Options
		url   string
		phase Phase
		as    any
		is    error
	}{
		{"name that does not resolve", Options{}, "http://no-such-name.invalid/", PhaseDial, new(*net.DNSError), nil},
		{"refused", Options{}, "http://" + refused.Addr().String(), PhaseDial, new(*net.OpError), syscall.ECONNREFUSED},
		{"certificate", Options{}, secure.URL, PhaseTLS, new(*tls.CertificateVerificationError), nil},
		{"certificate in a tunnel", Options{Endpoint: endpointOf(t, g.URL())}, secure.URL, PhaseTLS, new(*tls.CertificateVerificationError), nil},
		{"certificate over SOCKS", Options{Endpoint: endpointOf(t, g.SOCKSURL())}, secure.URL, PhaseTLS, new(*tls.CertificateVerificationError), nil},
		{"http on an https port", Options{}, "http" + secure.URL[5:], PhaseDone, nil, nil},
		{"https on an http port", Options{}, "https" + serveRaw(t, "x")[4:], PhaseTLS, nil, nil},
		{"closed without an answer", Options{}, serveRaw(t, ""), PhaseHeaders, nil, ErrNoAnswer},
		{"not HTTP", Options{}, serveRaw(t, "220 smtp.example ESMTP\r\n\r\n"), PhaseHeaders, nil, ErrNoAnswer},
		{"half a header", Options{}, serveRaw(t, "HTTP/1.1 200 OK\r\nContent-"), PhaseHeaders, nil, ErrNoAnswer},
		{"endless header", Options{}, serveRaw(t, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 300<<10)), PhaseHeaders, nil, ErrNoAnswer},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, trace, err := get(t, open(t, test.opts), test.url)
			if trace.Phase != test.phase {
				t.Errorf("got phase %s: %v", trace.Phase, err)
			}
			if test.as != nil && !errors.As(err, test.as) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v", err)
			}
			if errors.Is(err, ErrNoAnswer) != (test.is == ErrNoAnswer) || errors.Is(err, ErrGateway) {
				t.Errorf("got the wrong sentinel: %v", err)
			}
		})
	}
}

func TestDoOverGivenTransport(t *testing.T) {
	s := open(t, Options{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("x")), ContentLength: 1, Request: r}, nil
	})})
	page, trace, err := get(t, s, "http://example.com/")
	if err != nil || string(page.Body) != "x" || trace.Hops != 1 || !s.Worked() {
		t.Fatalf("got %+v, %+v, %v", page, trace, err)
	}
}

func TestDoAfterClose(t *testing.T) {
	s := open(t, Options{})
	s.Close()
	_, _, err := get(t, s, "http://example.com/")
	wantError(t, err, ErrClosed)
}

func TestDoLeavesNothingForTheSiteToSeeOfTheProxy(t *testing.T) {
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, len(r.Header.Values("Proxy-Authorization")), len(r.Header.Values("Proxy-Connection")))
	})
	page, _, err := do(t, open(t, Options{}), Request{URL: site.URL, Header: http.Header{
		"Proxy-Authorization": {"Basic eDp5"}, "Proxy-Connection": {"keep-alive"},
	}})
	if err != nil || string(page.Body) != "0 0" {
		t.Fatalf("got %q, %v", page.Body, err)
	}
}

func TestDoSaysWhenARequestWasRepeated(t *testing.T) {
	keeping(func(t *testing.T) {
		// The site answers once on each connection and then, at the second
		// request, closes it without a word: net/http asks again on a new one.
		requests := make(chan string, 10)
		site := serveConn(t, func(c net.Conn) {
			r := newReader(c)
			for i := range 2 {
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				requests <- req.URL.Path
				if i == 0 {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			}
		})
		s := open(t, Options{})
		if _, trace, err := get(t, s, site+"1"); err != nil || trace.Hops != 1 || trace.Resent != 0 {
			t.Fatalf("first: %+v, %v", trace, err)
		}
		_, trace, err := get(t, s, site+"2")
		if err != nil || trace.Hops != 2 || trace.Resent != 1 {
			t.Fatalf("second: %+v, %v", trace, err)
		}
		for _, want := range []string{"/1", "/2", "/2"} {
			if got := <-requests; got != want {
				t.Errorf("site saw %s, want %s", got, want)
			}
		}
	})(t)
}

func TestHTTP2IsNotSpoken(t *testing.T) {
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	site.EnableHTTP2 = true
	site.StartTLS()
	t.Cleanup(site.Close)
	page, _, err := get(t, open(t, Options{RootCAs: roots(site)}), site.URL)
	if err != nil || string(page.Body) != "HTTP/1.1" {
		t.Fatalf("got %q, %v", page.Body, err)
	}
}

func BenchmarkDo(b *testing.B) {
	body := make([]byte, 20<<10)
	for i := range body {
		body[i] = 'a'
	}
	site := serve(b, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(body)
	})
	b.Run("semel", func(b *testing.B) {
		s := open(b, Options{})
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := s.Do(b.Context(), Request{URL: site.URL}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("net/http", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			resp, err := site.Client().Get(site.URL)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadAll(resp.Body); err != nil {
				b.Fatal(err)
			}
			resp.Body.Close()
		}
	})
}
