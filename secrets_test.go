package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"semel/engine/gateway"
	"semel/storage"
)

// TestSecrets runs with good and bad logins, over each kind of proxy, and then
// looks for the logins in everything the program wrote or printed.
func TestSecrets(t *testing.T) {
	const user, good, bad = "acct-lemur-7431", "pw-ocelot/9:1@%", "pw-wrong-2718"
	site := newShop(t)
	tls := newTLSShop(t)
	gw, err := gateway.Start(gateway.Options{
		Decode: func(u, p string) (gateway.Login, bool) {
			login := gateway.Login{Username: u, Password: p}
			return login, strings.HasPrefix(u, user) && p == good
		},
		Fault: func(r gateway.Request) gateway.Fault {
			switch r.Try % 4 {
			case 1: // an answer that throws the login back at us
				echo := "login was " + r.Login.Username + ":" + r.Login.Password
				return gateway.Fault{Kind: gateway.Status, Status: 502, Body: echo, Header: http.Header{
					"X-Error-Description": {echo}, "Proxy-Status": {`gw; error="` + echo + `"`},
				}}
			case 2:
				return gateway.Fault{Kind: gateway.Reset, After: 300}
			}
			return gateway.Fault{}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer gw.Close()

	secrets := []string{user, good, bad, url.QueryEscape(good), url.PathEscape(good), url.UserPassword(user, good).String()}
	for _, password := range []string{good, bad} {
		for _, login := range []string{user + "-sid-", user + ":" + password, user, password} {
			// Base64 without its last characters, which depend on what follows.
			secrets = append(secrets, strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(login)), "=")[:len(login)*4/3-2])
		}
	}
	for _, password := range []string{good, bad} {
		for _, proxy := range []string{gw.URL(), gw.SOCKSURL(), "http://127.0.0.1:1"} {
			t.Run(fmt.Sprintf("%s over %s", password[:5], proxy[:6]), func(t *testing.T) {
				f := newFolder(t, secretsConfig(proxy, site.URL, tls), "GW_USER="+user, "GW_PASS="+password)
				var printed bytes.Buffer
				for _, args := range [][]string{
					{"check"}, {"try", "shop"}, {"try", "shop", "--json"}, {"run", "--once"}, {"run", "--once", "--json"},
					{"status"}, {"status", "--json"}, {"jobs"}, {"jobs", "--json"},
					{"show", "1"}, {"show", "1", "--json"}, {"show", "4", "--json"},
					{"key", "shop", "--var", "id=1"}, {"export", "shop"}, {"export", "shop", "-o", "out.jsonl"},
					{"retry", "--source", "shop", "--json"}, {"cancel", "1", "--json"},
				} {
					stdout, stderr, code := f.semel(args...)
					fmt.Fprintf(&printed, "$ semel %s\n%s%s[%d]\n", strings.Join(args, " "), stdout, stderr, code)
				}
				search(t, "output", printed.Bytes(), secrets)
				searchFiles(t, f.dir, secrets)
				searchPages(t, f.path("semel.db"), secrets)
				if password == bad && !strings.Contains(printed.String(), "[7]") && proxy != "http://127.0.0.1:1" {
					t.Errorf("a refused login did not end with exit 7:\n%s", &printed)
				}
			})
		}
	}
}

func secretsConfig(proxy, site, tls string) string {
	return fmt.Sprintf(`version = 1
[store]
bodies = "all"
[engine]
allow_private = true
[host."*"]
interval = "0s"
[proxy.gw]
url = %q
username = "env:GW_USER"
password = "env:GW_PASS"
username_template = "{username}-sid-{session}"
[source.shop]
url = "{base}/p/{id}"
targets = [{ base = %q, id = "1" }, { base = %q, id = "2" }, { base = %q, id = "3" }, { base = %q, id = "4" }]
key = "{id}"
proxy = "gw"
[source.shop.limits]
attempts = 3
[source.shop.retry.exit_connect]
base = "10ms"
max = "10ms"
[source.shop.retry.body_truncated]
base = "10ms"
max = "10ms"
[source.shop.retry.exit_unavailable]
base = "10ms"
max = "10ms"
[source.shop.retry.proxy_unreachable]
attempts = 1
[source.shop.parser]
version = 1
[source.shop.parser.fields]
title = { css = "h1", required = true }
`, proxy, site, site, tls, tls)
}

// newTLSShop is a site whose certificate nobody trusts, so that errors of the
// handshake behind a tunnel are seen, too.
func newTLSShop(t *testing.T) string {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that fail are the point
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func search(t *testing.T, where string, text []byte, secrets []string) {
	t.Helper()
	for _, secret := range secrets {
		if i := bytes.Index(text, []byte(secret)); i >= 0 {
			t.Errorf("%s holds %q: …%q…", where, secret, text[max(0, i-60):min(len(text), i+60)])
		}
	}
}

func searchFiles(t *testing.T, dir string, secrets []string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		search(t, d.Name(), text, secrets)
		return err
	})
	if err != nil || files < 2 {
		t.Errorf("looked at %d files: %v", files, err)
	}
}

// searchPages looks into the kept pages, which are compressed in their files.
func searchPages(t *testing.T, path string, secrets []string) {
	t.Helper()
	s, err := storage.Open(path, storage.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for id := uint64(1); id <= 4; id++ {
		var attempts []storage.Attempt
		if err := s.View(func(tx *storage.Tx) (err error) {
			attempts, err = tx.Attempts(id)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for _, a := range attempts {
			if a.Page.IsZero() {
				continue
			}
			page, err := s.ReadPage(a.Page)
			if err != nil {
				t.Fatal(err)
			}
			search(t, fmt.Sprintf("the page of job %d, attempt %d", id, a.Generation), page, secrets)
		}
	}
}
