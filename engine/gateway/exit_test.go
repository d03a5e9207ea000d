package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"testing"
)

const exitHeader = "X-Brd-Ip"

// exitsOf is the exit's address as the gateway tells it, and as the site sees
// it.
func exitsOf(t *testing.T, c *http.Client, site string) (told, seen string, status int) {
	t.Helper()
	resp, err := c.Get(site)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Get(exitHeader), string(body), resp.StatusCode
}

func showExit(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, r.Header.Get(exitHeader))
}

func TestOneExitForEachSession(t *testing.T) {
	site := serve(t, showExit)
	g := start(t, Options{Provider: "proxyrack", Username: "U", Password: "P", ExitHeader: exitHeader})
	ask := func(user string) string {
		t.Helper()
		told, seen, status := exitsOf(t, client(t, withLogin(g.URL(), user, "P"), nil), site.URL)
		address, err := netip.ParseAddr(told)
		if err != nil || told != seen || status != 200 || !exitNet.Contains(address) {
			t.Fatalf("%s: told %q, seen %q, status %d", user, told, seen, status)
		}
		return told
	}
	a, b := ask("U;session=a"), ask("U;session=b")
	if a == b {
		t.Error("two sessions have one exit")
	}
	if ask("U;country=US;session=a") != a || ask("U;session=b") != b {
		t.Error("a session has changed its exit")
	}
	if one, other := ask("U"), ask("U"); one == other {
		t.Error("two connections without a session have one exit")
	}
	keeping(func(t *testing.T) {
		kept := client(t, withLogin(g.URL(), "U", "P"), nil)
		first, _, _ := exitsOf(t, kept, site.URL)
		if second, _, _ := exitsOf(t, kept, site.URL); first != second {
			t.Error("one connection has two exits")
		}
	})(t)
	if seen := g.Stats().Conns; seen[0].Exit != a || seen[1].Exit != b {
		t.Errorf("the counts say %+v", seen)
	}
}

// A tunnel's exit is told with the answer to CONNECT, and to nobody unless
// that is wanted.
func TestExitOfTunnel(t *testing.T) {
	site := httptest.NewTLSServer(http.HandlerFunc(showExit))
	t.Cleanup(site.Close)
	for _, header := range []string{exitHeader, ""} {
		g := start(t, Options{Provider: "proxyrack", Username: "U", Password: "P", ExitHeader: header})
		c := client(t, withLogin(g.URL(), "U;session=a", "P"), site)
		var told string
		c.Transport.(*http.Transport).OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
			told = resp.Header.Get(exitHeader)
			return nil
		}
		inside, seen, _ := exitsOf(t, c, site.URL)
		if want := g.Stats().Conns[0].Exit; header != "" && told != want || header == "" && told != "" {
			t.Errorf("header %q: CONNECT told %q, want %q", header, told, want)
		}
		if inside != "" || seen != "" {
			t.Errorf("header %q: the tunnel was opened", header)
		}
	}
}

func TestKilledExit(t *testing.T) {
	site := serve(t, showExit)
	g := start(t, Options{Provider: "oxylabs", Username: "U", Password: "P", ExitHeader: exitHeader})
	ask := func(user string) (string, int) {
		told, _, status := exitsOf(t, client(t, withLogin(g.URL(), user, "P"), nil), site.URL)
		return told, status
	}
	loose, _ := ask("customer-U-sessid-a")
	if _, status := ask("customer-U-sessid_oneip-b"); status != 200 {
		t.Fatal(status)
	}
	g.KillExit("a")
	g.KillExit("b")
	g.KillExit("c") // never seen: nothing to kill
	swapped, status := ask("customer-U-sessid-a")
	if status != 200 || swapped == loose {
		t.Errorf("a session that is not strict: %d, exit %s after %s", status, swapped, loose)
	}
	if again, _ := ask("customer-U-sessid-a"); again != swapped {
		t.Error("the new exit did not stay")
	}
	resp, err := client(t, withLogin(g.URL(), "customer-U-sessid_oneip-b", "P"), nil).Get(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 502 || !strings.HasPrefix(resp.Header.Get("X-Error-Description"), "Session failed") {
		t.Errorf("a strict session: %d %v", resp.StatusCode, resp.Header)
	}
	if _, status := ask("customer-U-sessid_oneip-c"); status != 200 {
		t.Errorf("a new session: %d", status)
	}
}

// An open tunnel dies with its exit.
func TestKilledExitResetsTunnels(t *testing.T) {
	asked := make(chan struct{})
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	t.Cleanup(site.Close)
	g := start(t, Options{Provider: "proxyrack", Username: "U", Password: "P"})
	go func() {
		<-asked
		g.KillExit("a")
	}()
	if _, _, err := get(t, client(t, withLogin(g.URL(), "U;session=a", "P"), site), site.URL); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
}

// No exit in the country is the provider's own answer, and a reply of SOCKS5;
// any country is always had.
func TestEmptyCountry(t *testing.T) {
	site := serve(t, showExit)
	for provider, want := range map[string]struct {
		user, pass string
		status     int
		mark       string
	}{
		"iproyal":     {"U", "P_country-fr", 503, ""},
		"netnut":      {"U-res-fr", "P", 490, ""},
		"brightdata":  {"brd-customer-U-country-fr", "P", 502, "X-Brd-Err-Code"},
		"oxylabs":     {"customer-U-cc-FR", "P", 502, "X-Error-Description"},
		"dataimpulse": {"U__cr.fr", "P", 503, ""},
	} {
		g := start(t, Options{Provider: provider, Username: "U", Password: "P", Countries: []string{"US"}})
		resp, err := client(t, withLogin(g.URL(), want.user, want.pass), nil).Get(site.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want.status || want.mark != "" && resp.Header.Get(want.mark) == "" {
			t.Errorf("%s: %d %v", provider, resp.StatusCode, resp.Header)
		}
		_, _, err = get(t, client(t, withLogin(g.SOCKSURL(), want.user, want.pass), nil), site.URL)
		if err == nil || !strings.Contains(err.Error(), "general SOCKS server failure") {
			t.Errorf("%s over SOCKS: %v", provider, err)
		}
		here := [2]string{strings.NewReplacer("fr", "us", "FR", "US").Replace(want.user), strings.Replace(want.pass, "fr", "us", 1)}
		if status, _, err := get(t, client(t, withLogin(g.URL(), here[0], here[1]), nil), site.URL); status != 200 || err != nil {
			t.Errorf("%s: a country with exits: %d, %v", provider, status, err)
		}
	}
}

func TestExitsAreManyAndOfTheirNet(t *testing.T) {
	g := &Gateway{}
	seen := map[string]bool{}
	for range 70_000 { // more than two bytes count
		address := g.newExit().address
		if a := netip.MustParseAddr(address); seen[address] || !exitNet.Contains(a) {
			t.Fatalf("%s comes twice or is not of %s", address, exitNet)
		}
		seen[address] = true
	}
}
