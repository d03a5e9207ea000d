package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/config"
	"semel/storage/storagetest"
)

// Every status with its problem's type, over the network and over the socket.
func TestStatuses(t *testing.T) {
	l := shopping(t, storagetest.Open(t))
	socket, network, address := overBoth(t, l)
	const (
		bearer = "Authorization: Bearer sesame"
		typed  = "Content-Type: application/json"
		keyed  = "Idempotency-Key: k"
	)
	for _, test := range []struct {
		name, method, target, body string
		header                     []string
		network, socket            string // status and problem type; socket "": the same
	}{
		{"first", "POST", "/v1/jobs", us42, []string{typed, keyed}, "201", "201"},
		{"again", "POST", "/v1/jobs", us42, []string{typed, keyed}, "201", ""},
		{"by its other name", "POST", "/v1/jobs", us42, []string{typed, "X-Idempotency-Key: k"}, "201", ""},
		{"by both names", "POST", "/v1/jobs", us42, []string{typed, keyed, "X-Idempotency-Key: k"}, "201", ""},
		{"known", "POST", "/v1/jobs", us42, []string{typed}, "200", ""},
		{"two keys", "POST", "/v1/jobs", us42, []string{typed, keyed, "X-Idempotency-Key: other"}, "400 bad_request", ""},
		{"two keys of one name", "POST", "/v1/jobs", us42, []string{typed, keyed, "Idempotency-Key: other"}, "400 bad_request", ""},
		{"empty key", "POST", "/v1/jobs", us42, []string{typed, "Idempotency-Key: "}, "400 bad_request", ""},
		{"long key", "POST", "/v1/jobs", us42, []string{typed, "Idempotency-Key: " + strings.Repeat("k", 256)}, "400 bad_request", ""},
		{"key of 255", "POST", "/v1/jobs", us42, []string{typed, "Idempotency-Key: " + strings.Repeat("k", 255)}, "200", ""},
		{"unprintable key", "POST", "/v1/jobs", us42, []string{typed, "Idempotency-Key: ü"}, "400 bad_request", ""},
		{"key of another", "POST", "/v1/jobs", `{"source":"front","vars":{}}`, []string{typed, keyed}, "422 key_reused", ""},
		{"neither", "POST", "/v1/jobs", `{"source":"shop"}`, []string{typed}, "400 bad_request", ""},
		{"both", "POST", "/v1/jobs", `{"source":"shop","url":"http://x.test/","vars":{}}`, []string{typed}, "400 bad_request", ""},
		{"unknown field", "POST", "/v1/jobs", `{"source":"shop","var":{}}`, []string{typed}, "400 bad_request", ""},
		{"field in capitals", "POST", "/v1/jobs", `{"Source":"front","vars":{}}`, []string{typed}, "400 bad_request", ""},
		{"wrong type", "POST", "/v1/jobs", `{"source":["front"],"vars":{}}`, []string{typed}, "400 bad_request", ""},
		{"no body", "POST", "/v1/jobs", "", []string{typed}, "400 bad_request", ""},
		{"unknown source", "POST", "/v1/jobs", `{"source":"none","vars":{}}`, []string{typed}, "404 unknown_source", ""},
		{"form", "POST", "/v1/jobs", us42, []string{"Content-Type: application/x-www-form-urlencoded"}, "415 media_type", ""},
		{"no type", "POST", "/v1/jobs", us42, nil, "415 media_type", ""},
		{"too large", "POST", "/v1/jobs", `{"source":"` + strings.Repeat("x", maxBody) + `"}`, []string{typed}, "413 too_large", ""},
		{"list", "GET", "/v1/jobs?source=shop", "", nil, "200", ""},
		{"one", "GET", "/v1/jobs/1", "", nil, "200", ""},
		{"one by its key", "GET", "/v1/jobs/shop%3A42%3AUS%3A-%3A-%3A-", "", nil, "200", ""},
		{"none", "GET", "/v1/jobs/77", "", nil, "404 not_found", ""},
		{"retry of a job that waits", "POST", "/v1/jobs/1/retry", "", nil, "409 transition", ""},
		{"status", "GET", "/v1/status", "", nil, "200", ""},
		{"unknown path", "GET", "/v1/job", "", nil, "404 not_found", ""},
		{"unknown method", "PUT", "/v1/jobs", "", nil, "405", ""},
		{"preflight", "OPTIONS", "/v1/jobs", "", []string{"Origin: http://" + address, "Access-Control-Request-Method: POST"}, "405", ""},
		{"file of this machine", "POST", "/v1/backup", `{"path":""}`, []string{typed}, "404 not_found", "400 bad_request"},
		{"everything compared", "GET", "/v1/checksums", "", nil, "404 not_found", "200"},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantStatus(t, network, request(t, address, test.method, test.target, test.body, append(test.header, bearer)...), test.network)
			want := test.socket
			if want == "" {
				want = test.network
			}
			wantStatus(t, socket, request(t, address, test.method, test.target, test.body, test.header...), want)
		})
	}
	if n := len(list(t, l, JobFilter{})); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

// wantStatus wants "STATUS" or "STATUS TYPE", and never a header of CORS.
func wantStatus(t *testing.T, via doer, r *http.Request, want string) {
	t.Helper()
	status, text, header := send(t, via, r)
	var p problem
	if status >= 400 {
		if err := json.Unmarshal([]byte(text), &p); err != nil || header.Get("Content-Type") != "application/problem+json" || p.Status != status || p.Title != http.StatusText(status) {
			t.Errorf("%d %v %s: no problem", status, header, text)
		}
	}
	got := strconv.Itoa(status)
	if kind, ok := strings.CutPrefix(p.Type, problemType); ok {
		got += " " + kind
	}
	if got != want {
		t.Errorf("%s %s: %s, want %s\n%s", r.Method, r.URL, got, want, text)
	}
	for name := range header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("header %s", name)
		}
	}
}

// Who is let in over the network.
func TestGate(t *testing.T) {
	_, network, address := overBoth(t, shopping(t, storagetest.Open(t)))
	_, port, _ := net.SplitHostPort(address)
	const bearer = "Authorization: Bearer sesame"
	for _, test := range []struct {
		name, method, target string
		header               []string
		want                 string
	}{
		{"no token", "GET", "/v1/status", nil, "401 unauthorized"},
		{"wrong token", "GET", "/v1/status", []string{"Authorization: Bearer Sesame"}, "401 unauthorized"},
		{"longer token", "GET", "/v1/status", []string{"Authorization: Bearer sesame2"}, "401 unauthorized"},
		{"other scheme", "GET", "/v1/status", []string{"Authorization: Basic sesame"}, "401 unauthorized"},
		{"token in the path", "GET", "/v1/status?token=sesame", nil, "401 unauthorized"},
		{"no token, unknown path", "GET", "/v1/none", nil, "401 unauthorized"},
		{"token", "GET", "/v1/status", []string{"Authorization: bearer sesame"}, "200"},
		{"health", "GET", "/healthz", nil, "200"},
		{"readiness", "GET", "/readyz", nil, "200"},
		{"health by another name", "GET", "/healthz/", nil, "401 unauthorized"},
		{"name of loopback", "GET", "/v1/status", []string{bearer, "Host: LOCALHOST:" + port}, "200"},
		{"other loopback", "GET", "/v1/status", []string{bearer, "Host: [::1]:" + port}, "200"},
		{"rebound name", "GET", "/v1/status", []string{bearer, "Host: evil.example:" + port}, "421 misdirected"},
		{"rebound name, health", "GET", "/healthz", []string{"Host: evil.example:" + port}, "421 misdirected"},
		{"other address", "GET", "/v1/status", []string{bearer, "Host: 192.0.2.1:" + port}, "421 misdirected"},
		{"other port", "GET", "/v1/status", []string{bearer, "Host: 127.0.0.1:1"}, "421 misdirected"},
		{"no port", "GET", "/v1/status", []string{bearer, "Host: 127.0.0.1"}, "421 misdirected"},
		{"page of another site", "POST", "/v1/jobs/1/cancel", []string{bearer, "Origin: http://evil.example"}, "403 cross_origin"},
		{"page of no site", "POST", "/v1/jobs/1/cancel", []string{bearer, "Origin: null"}, "403 cross_origin"},
		{"as browsers say it", "POST", "/v1/jobs/1/cancel", []string{bearer, "Sec-Fetch-Site: cross-site"}, "403 cross_origin"},
		{"page of ours", "POST", "/v1/jobs/1/cancel", []string{bearer, "Origin: http://" + address}, "404 not_found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantStatus(t, network, request(t, address, test.method, test.target, "", test.header...), test.want)
		})
	}
	status, text, _ := send(t, network, request(t, address, "GET", "/healthz", ""))
	if status != 200 || text != "{\"status\":\"ok\"}\n" {
		t.Errorf("it tells strangers %s", text)
	}
	if _, _, header := send(t, network, request(t, address, "GET", "/v1/jobs", "")); header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("it does not say what to send: %v", header)
	}
}

// Where the config names a host, that is one of ours; on all addresses, the one
// that the connection came to.
func TestHosts(t *testing.T) {
	h := NewHandler(shopping(t, storagetest.Open(t)), "")
	for _, test := range []struct {
		listen, host string
		port         int
		ours         bool
	}{
		{"box.lan:7467", "Box.lan:7467", 7467, true},
		{"box.lan:7467", "other.lan:7467", 7467, false},
		{"box.lan:80", "box.lan", 80, true},
		{"[::1]:80", "[::1]", 80, true},
		{"0.0.0.0:7467", "192.0.2.7:7467", 7467, true},
		{":7467", "192.0.2.7:7467", 7467, true},
		{":7467", "192.0.2.8:7467", 7467, false},
		{":7467", ":7467", 7467, false},
		{":7467", "", 7467, false},
		{":80", "", 80, false},
		{":80", "evil.example", 80, false},
	} {
		g := h.Network(config.Server{Listen: test.listen}, &net.TCPAddr{Port: test.port}).(*gate)
		r := request(t, "x.test", "GET", "/", "")
		r.Host = test.host
		came := &net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: test.port}
		if got := g.ours(r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, came))); got != test.ours {
			t.Errorf("listening at %s, Host %q: %v", test.listen, test.host, got)
		}
	}
}

// Who sends nothing, or a body that never ends, is cut off; a body that nobody
// wants holds nothing up either.
func TestSlowCallers(t *testing.T) {
	for name, test := range map[string]struct {
		sent string
		want string // begins the answer; "": none
		by   time.Duration
	}{
		"half a header":      {"GET /v1/status HTTP/1.1\r\nHost: loc", "", headerTime},
		"nothing":            {"", "", headerTime},
		"half a body":        {"POST /v1/jobs HTTP/1.1\r\nHost: localhost:7467\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", "HTTP/1.1 408 ", bodyTime},
		"body after refusal": {"POST /v1/jobs HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100\r\n\r\n{", "HTTP/1.1 421 ", bodyTime},
		"idle":               {"GET /healthz HTTP/1.1\r\nHost: localhost:7467\r\n\r\n", "HTTP/1.1 200 ", idleTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := NewHandler(shopping(t, storagetest.Open(t)), "")
				m := newMemory()
				serveOn(t, func() *Server {
					return Serve(m, h.Network(config.Server{Listen: "localhost:7467"}, &net.TCPAddr{Port: 7467}), slog.New(slog.DiscardHandler))
				})
				conn, err := m.dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				started := time.Now()
				if test.sent != "" {
					if _, err := io.WriteString(conn, test.sent); err != nil {
						t.Fatal(err)
					}
				}
				answer, err := io.ReadAll(bufio.NewReader(conn))
				if err != nil || !strings.HasPrefix(string(answer), test.want) || test.want == "" && len(answer) > 0 {
					t.Errorf("answer %q, %v", answer, err)
				}
				if took := time.Since(started); took > test.by {
					t.Errorf("it was held for %s, want at most %s", took, test.by)
				}
			})
		})
	}
}
