package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// proxyPages is how many pages go through each real proxy.
const proxyPages = 40

func proxyConfig(base, proxy string) string {
	return fmt.Sprintf(`version = 1
[engine]
allow_private = true
[host."*"]
interval = "0s"
concurrency = 8
[proxy.real]
url = %q
username = "env:GW_USER"
password = "env:GW_PASS"
[source.shop]
url = "%s/{id}.html"
targets = "targets.csv"
key = "{id}"
proxy = "real"
[source.shop.parser]
version = 1
[source.shop.parser.fields]
title = { css = "h1", required = true }
`, proxy, base)
}

// pages writes a site of pages for nginx, and the targets that name them.
func pages(t *testing.T) (root, targets string) {
	t.Helper()
	root = partDir(t, "root")
	targets = "id\n"
	for i := range proxyPages {
		body := fmt.Sprintf("<html><body><h1>Thing %d</h1>%s</body></html>", i, strings.Repeat(fmt.Sprintf("<p>line %d of it</p>", i*i), 400))
		writeFile(t, filepath.Join(root, fmt.Sprintf("page%d.html", i)), body)
		targets += fmt.Sprintf("page%d\n", i)
	}
	return root, targets
}

// TestRealProxies collects pages over http and https through tinyproxy, squid
// and microsocks, with the right login and with a wrong one.
func TestRealProxies(t *testing.T) {
	real(t, "tinyproxy", "squid", "microsocks", "nginx")
	root, targets := pages(t)
	web := startNginx(t, root)
	squid, squidLog := startSquid(t)
	for _, part := range []struct{ name, url, log string }{
		{"tinyproxy", startTinyproxy(t), ""},
		{"squid", squid, squidLog},
		{"microsocks", startMicrosocks(t), ""},
	} {
		for _, base := range []string{web.HTTP, web.HTTPS} {
			scheme, _, _ := strings.Cut(base, ":")
			t.Run(part.name+" "+scheme, func(t *testing.T) {
				config := proxyConfig(base, part.url)
				good := newFolder(t, config, "GW_USER="+partUser, "GW_PASS="+partPassword, "SSL_CERT_FILE="+web.CA).racing()
				good.write("targets.csv", targets)
				logged := squidBytes(t, part.log)
				good.ok("run", "--once")
				if n := strings.Count(good.ok("export", "shop", "--data-only"), "\n"); n != proxyPages {
					t.Errorf("%d records of %d pages", n, proxyPages)
				}
				if part.log != "" {
					compareBytes(t, good, part.log, logged)
				}
				bad := newFolder(t, config, "GW_USER="+partUser, "GW_PASS=wrong", "SSL_CERT_FILE="+web.CA)
				bad.write("targets.csv", targets)
				_, stderr, code := bad.semel("run", "--once")
				s := status(t, bad)
				if code != 7 || s.Attempts != 0 || s.Pending != proxyPages {
					t.Errorf("a wrong password: exit %d, %+v\n%s", code, s, stderr)
				}
			})
		}
	}
}

type shopStatus struct {
	Pending, Complete, Failed, Attempts int
	BytesUp                             int64 `json:"bytes_up"`
	BytesDown                           int64 `json:"bytes_down"`
	Failures                            map[string]int
}

func status(t *testing.T, f *folder) shopStatus { return statusOf(t, f, "shop") }

func statusOf(t testing.TB, f *folder, source string) shopStatus {
	t.Helper()
	var all struct{ Sources map[string]shopStatus }
	if err := json.Unmarshal([]byte(f.ok("status", "--json")), &all); err != nil {
		t.Fatal(err)
	}
	return all.Sources[source]
}

// squidBytes adds up squid's log.
func squidBytes(t *testing.T, log string) (sum [2]int64) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil && log != "" && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var up, down int64
		if _, err := fmt.Sscan(line, &up, &down); err != nil {
			t.Fatalf("squid's log has the line %q", line)
		}
		sum[0] += up
		sum[1] += down
	}
	return sum
}

// compareBytes wants our meter to agree with squid's log within 1 %. Squid
// writes a tunnel's line when it closes, so a moment may pass.
func compareBytes(t *testing.T, f *folder, log string, before [2]int64) {
	t.Helper()
	s := status(t, f)
	var up, down int64
	within := func(a, b int64) bool { return 100*max(a-b, b-a) <= b }
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for {
		now := squidBytes(t, log)
		up, down = now[0]-before[0], now[1]-before[1]
		if within(s.BytesUp, up) && within(s.BytesDown, down) {
			t.Logf("our meter: %d up, %d down; squid's log: %d up, %d down", s.BytesUp, s.BytesDown, up, down)
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Errorf("our meter: %d up, %d down; squid's log: %d up, %d down", s.BytesUp, s.BytesDown, up, down)
			return
		}
	}
}
