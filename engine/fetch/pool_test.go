package fetch

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"semel/engine/gateway"
	"semel/engine/proxy"
)

var noon = time.Date(2026, 4, 23, 12, 0, 0, 0, time.UTC)

func newPool(t *testing.T, opts PoolOptions) *Pool {
	t.Helper()
	opts.Session.AllowPrivate = true
	p := NewPool(opts)
	t.Cleanup(p.Close)
	return p
}

func take(t *testing.T, p *Pool, now time.Time, country string) *Session {
	t.Helper()
	s, err := p.Get(now, country)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sessions is a proxy that takes country and session.
func sessions(t *testing.T, url string) *proxy.Proxy {
	return newProxy(t, proxy.Spec{URL: url, PasswordTemplate: "{password}[_country-{country}][_session-{session}]"})
}

func TestPoolDirectIsShared(t *testing.T) {
	p := newPool(t, PoolOptions{TTL: time.Minute})
	a, b := take(t, p, noon, ""), take(t, p, noon.Add(time.Hour), "US")
	if a != b || !a.Direct() || a.EndpointString() != "" || a.Country() != "" || a.SessionHash() != "" {
		t.Errorf("got %v and %v", a, b)
	}
	p.Put(a, false)
	if c := take(t, p, noon, ""); c != a || c.closed.Load() {
		t.Error("the direct session was dropped")
	}
}

func TestPoolKeepsSessions(t *testing.T) {
	p := newPool(t, PoolOptions{Proxy: sessions(t, "http://127.0.0.1:1"), TTL: 10 * time.Minute})
	us := take(t, p, noon, "us")
	if us.Country() != "US" || us.SessionHash() == "" || us.EndpointString() != "home (http://127.0.0.1:1 country=US)" {
		t.Errorf("got %s %s %s", us.EndpointString(), us.Country(), us.SessionHash())
	}
	if other := take(t, p, noon, "US"); other == us || other.SessionHash() == us.SessionHash() {
		t.Error("a session was given out twice")
	}
	p.Put(us, true)
	if de := take(t, p, noon, "DE"); de == us {
		t.Error("a session served another country")
	}
	if again := take(t, p, noon.Add(10*time.Minute-1), "US"); again != us {
		t.Error("a young session was not kept")
	}
	p.Put(us, true)
	if again := take(t, p, noon.Add(10*time.Minute), "US"); again == us || !us.closed.Load() {
		t.Error("an old session was kept")
	}
}

func TestPoolAsksForItsTTL(t *testing.T) {
	timed := newProxy(t, proxy.Spec{URL: "http://127.0.0.1:1", PasswordTemplate: "{password}[_session-{session}][_lifetime-{ttl}]"})
	for ttl, want := range map[time.Duration]bool{10 * time.Minute: true, 0: false} {
		s := take(t, newPool(t, PoolOptions{Proxy: timed, TTL: ttl}), noon, "")
		password, _ := s.opts.Endpoint.URL().User.Password()
		if strings.HasSuffix(password, "_lifetime-10") != want || strings.Contains(password, "_lifetime") != want {
			t.Errorf("TTL %s: password %s", ttl, password)
		}
	}
}

func TestPoolDropsBadSessions(t *testing.T) {
	p := newPool(t, PoolOptions{Proxy: sessions(t, "http://127.0.0.1:1"), TTL: time.Minute})
	s := take(t, p, noon, "")
	p.Put(s, false)
	if again := take(t, p, noon, ""); again == s || !s.closed.Load() {
		t.Error("a bad session was kept")
	}
}

func TestPoolOfOneAttempt(t *testing.T) {
	p := newPool(t, PoolOptions{Proxy: sessions(t, "http://127.0.0.1:1")})
	s := take(t, p, noon, "")
	p.Put(s, true)
	if again := take(t, p, noon, ""); again == s || !s.closed.Load() {
		t.Error("a session outlived its attempt")
	}
}

func TestPoolRefusesCountryItCannotAskFor(t *testing.T) {
	p := newPool(t, PoolOptions{Proxy: newProxy(t, proxy.Spec{URL: "http://127.0.0.1:1"})})
	if _, err := p.Get(noon, "US"); !errors.Is(err, proxy.ErrCountry) {
		t.Errorf("got %v", err)
	}
	if _, err := p.Get(noon, ""); err != nil {
		t.Errorf("without a country: %v", err)
	}
}

func TestPoolAfterClose(t *testing.T) {
	p := newPool(t, PoolOptions{Proxy: sessions(t, "http://127.0.0.1:1"), TTL: time.Minute})
	out, idle := take(t, p, noon, ""), take(t, p, noon, "")
	p.Put(idle, true)
	p.Close()
	p.Close()
	if !idle.closed.Load() || out.closed.Load() {
		t.Error("Close closed the wrong sessions")
	}
	p.Put(out, true)
	if !out.closed.Load() {
		t.Error("a session survived its pool")
	}
	_, err := p.Get(noon, "")
	wantError(t, err, ErrClosed)
	direct := newPool(t, PoolOptions{})
	direct.Close()
	_, err = direct.Get(noon, "")
	wantError(t, err, ErrClosed)
}

func TestKeptSessionKeepsItsConnection(t *testing.T) {
	keeping(func(t *testing.T) {
		site := serveTLS(t, hello)
		g := startGateway(t, gateway.Options{Decode: func(user, pass string) (gateway.Login, bool) {
			_, session, ok := strings.Cut(pass, "_session-")
			return gateway.Login{Session: session}, ok
		}})
		p := newPool(t, PoolOptions{Proxy: sessions(t, g.URL()), TTL: time.Minute, Session: Options{RootCAs: roots(site)}})
		for i := range 3 {
			s := take(t, p, noon, "")
			if s.Worked() != (i > 0) {
				t.Errorf("attempt %d: worked before: %t", i, s.Worked())
			}
			page, trace, err := get(t, s, site.URL)
			if err != nil || page.Status != http.StatusOK || trace.Reused != (i > 0) {
				t.Fatalf("attempt %d: %+v, %v", i, trace, err)
			}
			p.Put(s, true)
		}
		if seen := g.Stats(); seen.Tunnels != 1 {
			t.Errorf("%d tunnels", seen.Tunnels)
		}
	})(t)
}
