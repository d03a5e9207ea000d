package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// meddling are variables that net/http and colly obey in other programs. decoy
// is a proxy.
func meddling(decoy string) []string {
	var env []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		env = append(env, name+"="+decoy, strings.ToLower(name)+"="+decoy)
	}
	return append(env,
		"NO_PROXY=", "COLLY_USER_AGENT=meddler", "COLLY_MAX_BODY_SIZE=7", "COLLY_ALLOWED_DOMAINS=example.com",
		"COLLY_DISALLOWED_DOMAINS=0.0.0.0,shop.example", "COLLY_DISALLOWED_URL_FILTERS=.*", "COLLY_IGNORE_ROBOTSTXT=y",
		"COLLY_DISABLE_COOKIES=y", "COLLY_FOLLOW_REDIRECTS=n", "COLLY_DETECT_CHARSET=y", "COLLY_MAX_DEPTH=0",
		"COLLY_PARSE_HTTP_ERROR_RESPONSE=n", "COLLY_TRACE_HTTP=y",
	)
}

// TestEnvironmentMeansNothing runs the program with and without such variables,
// direct and through a proxy of its own. The direct site has the address
// 0.0.0.0, since net/http never takes a proxy from the environment for loopback.
func TestEnvironmentMeansNothing(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(environmentSite))
	t.Cleanup(site.Close)
	_, port, err := net.SplitHostPort(site.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	decoy, real := startGateway(t, nil), startGateway(t, nil)
	config := environmentConfig("http://0.0.0.0:"+port, site.URL, real.URL())
	login := []string{"GW_USER=u", "GW_PASS=p"}
	var exports []string
	for _, env := range [][]string{login, append(meddling(decoy.URL()), login...)} {
		f := newFolder(t, config, env...)
		_, stderr, code := f.semel("run", "--once")
		if code != 3 { // what robots.txt forbids fails, whatever the environment says
			t.Errorf("exit %d: %s", code, stderr)
		}
		for _, source := range []string{"direct", "proxied"} {
			exports = append(exports, f.ok("export", source, "--data-only"))
			if s := statusOf(t, f, source); s.Complete != 3 || s.Failures["robots_denied"] != 1 {
				t.Errorf("%s: %+v", source, s)
			}
		}
	}
	if exports[0] != exports[2] || exports[1] != exports[3] {
		t.Errorf("the environment changed what was collected:\n%s", strings.Join(exports, "\n"))
	}
	if seen := decoy.Stats(); len(seen.Conns) != 0 {
		t.Errorf("the proxy of the environment had %d connections", len(seen.Conns))
	}
	if seen := real.Stats(); len(seen.Requests) == 0 {
		t.Error("nothing came through the proxy of the config")
	}
}

// environmentSite shows the user agent in its pages.
func environmentSite(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/robots.txt":
		_, _ = io.WriteString(w, "User-agent: *\nDisallow: /secret\n")
	case strings.HasPrefix(r.URL.Path, "/old/"):
		http.Redirect(w, r, "/new/"+r.URL.Path[5:], http.StatusFound)
	default:
		fmt.Fprintf(w, "<h1>Thing of %s for %s</h1>", r.URL.Path, r.UserAgent())
	}
}

func environmentConfig(direct, behind, proxy string) string {
	text := fmt.Sprintf(`version = 1
[engine]
allow_private = true
[host."*"]
interval = "0s"
[proxy.gw]
url = %q
username = "env:GW_USER"
password = "env:GW_PASS"
`, proxy)
	for _, source := range []struct{ name, base, proxy string }{{"direct", direct, ""}, {"proxied", behind, `proxy = "gw"`}} {
		text += fmt.Sprintf(`[source.%[1]s]
url = "%[2]s/{place}/{id}"
targets = [{ place = "new", id = "1" }, { place = "new", id = "2" }, { place = "old", id = "3" }, { place = "secret", id = "4" }]
key = "{id}"
%[3]s
[source.%[1]s.parser]
version = 1
[source.%[1]s.parser.fields]
title = { css = "h1", required = true }
`, source.name, source.base, source.proxy)
	}
	return text
}
