package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"semel/storage"
)

// ask sends one request to a handler.
func ask(h http.Handler, method, target, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", jsonType)
	h.ServeHTTP(w, r)
	return w
}

// What is wrong is a problem with a type and a status of its own.
func TestProblems(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 1)
	h := NewHandler(l, "")
	for _, test := range []struct {
		method, target, body string
		status               int
		kind                 string // of the problem
		detail               string // a part of it
	}{
		{"GET", "/v2/jobs", "", 404, "not_found", "there is no GET /v2/jobs"},
		{"GET", "/", "", 404, "not_found", "there is no GET /"},
		{"GET", "/v1/jobs/", "", 404, "not_found", "there is no GET /v1/jobs/"},
		{"DELETE", "/v1/jobs/1", "", 405, "", "there is no DELETE"},
		{"GET", "/v1/jobs/retry/", "", 404, "not_found", ""},
		{"GET", "/v1/jobs/77", "", 404, "not_found", "job 77"},
		{"GET", "/v1/jobs/shop%3Anothing%3A-%3A-%3A-%3A-", "", 404, "not_found", "job shop:nothing:-:-:-:-"},
		{"GET", "/v1/jobs?source=none", "", 404, "unknown_source", `"none"`},
		{"GET", "/v1/jobs?limit=x", "", 400, "bad_request", `limit is a number of at least 0 (got "x")`},
		{"GET", "/v1/jobs?limit=-1", "", 400, "bad_request", "limit"},
		{"GET", "/v1/jobs?window=today", "", 400, "bad_request", `window "today": must be an instant`},
		{"GET", "/v1/jobs?state=done", "", 400, "bad_request", `there is no state "done"`},
		{"GET", "/v1/jobs?category=slow", "", 400, "bad_request", `there is no category "slow"`},
		{"POST", "/v1/jobs/retry", `{"source":"shop","category":"slow"}`, 400, "bad_request", `there is no category "slow"`},
		{"GET", "/v1/jobs?sorce=shop", "", 400, "bad_request", `unknown parameter "sorce"`},
		{"GET", "/v1/observations/none", "", 404, "unknown_source", `"none"`},
		{"GET", "/v1/observations/shop?data_only=maybe", "", 400, "bad_request", "data_only"},
		{"GET", "/v1/observations/shop?format=xml", "", 400, "bad_request", "format"},
		{"POST", "/v1/jobs/1/retry", "", 409, "transition", "pending"},
		{"POST", "/v1/jobs/9/cancel", "", 404, "not_found", "job 9"},
		{"POST", "/v1/jobs/retry", "", 400, "bad_request", "reading the body: EOF"},
		{"POST", "/v1/jobs/retry", `{"refs":["1",}`, 400, "bad_request", "reading the body, byte 14: invalid character '}'"},
		{"POST", "/v1/jobs/retry", "{}", 400, "bad_request", "name either refs"},
		{"POST", "/v1/jobs/retry", `{"refs":["1"],"source":"shop"}`, 400, "bad_request", "name either refs"},
		{"POST", "/v1/jobs/retry", `{"refs":["1"],"category":"blocked"}`, 400, "bad_request", "name either refs"},
		{"POST", "/v1/jobs/retry", `{"refs":["1"],"all":true}`, 400, "bad_request", "unknown field"},
		{"POST", "/v1/jobs/retry", `{"refs":["1"]}{"refs":["1"]}`, 400, "bad_request", "not one JSON object"},
		{"POST", "/v1/jobs/cancel", `{"refs":["` + strings.Repeat("1", maxBody) + `"]}`, 413, "too_large", "it may have 4194304 bytes"},
		{"POST", "/v1/jobs/1/retry?recollect=maybe", "", 400, "bad_request", "recollect"},
		{"POST", "/v1/jobs/1/retry?again=true", "", 400, "bad_request", `unknown parameter "again"`},
		{"POST", "/v1/jobs/1/cancel?recollect=true", "", 400, "bad_request", "only a retry recollects"},
		{"POST", "/v1/jobs/retry", `{"source":"shop","from":"2026-04-23T00:00:00Z"}`, 400, "bad_request", "from and to"},
		{"POST", "/v1/quarantine/discard", "{}", 400, "bad_request", "name refs or a source"},
		{"POST", "/v1/jobs/cancel", `{"source":"none"}`, 404, "unknown_source", `"none"`},
	} {
		t.Run(test.method+" "+test.target, func(t *testing.T) {
			w := ask(h, test.method, test.target, test.body)
			var p problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Fatalf("%s: %v", w.Body, err)
			}
			kind := "about:blank"
			if test.kind != "" {
				kind = problemType + test.kind
			}
			if w.Code != test.status || p.Status != test.status || p.Type != kind || !strings.Contains(p.Detail, test.detail) || strings.Contains(p.Detail, ErrBadRequest.Error()) {
				t.Errorf("status %d, problem %+v", w.Code, p)
			}
			if got := w.Header().Get("Content-Type"); got != "application/problem+json" || w.Header().Get("Trailer") != "" {
				t.Errorf("header %v", w.Header())
			}
			if allow := w.Header().Get("Allow"); (test.status == 405) != (allow == "GET, HEAD") {
				t.Errorf("Allow: %q", allow)
			}
		})
	}
	if n := len(list(t, l, JobFilter{State: storage.StatePending})); n != 1 {
		t.Error("one of them changed the job")
	}
}

// The paths as others see them.
func TestPaths(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 3)
	work(t, l, 1, complete)
	h := NewHandler(l, "host:1:x")
	for _, test := range []struct{ method, target, kind, start string }{
		{"GET", "/healthz", "application/json", `{"status":"ok","pid":`},
		{"GET", "/readyz", "application/json", `{"status":"ready"}`},
		{"GET", "/v1/status", "application/json", `{"sources":{"shop":{"pending":2,`},
		{"GET", "/v1/jobs?state=complete", "application/jsonl", `{"id":1,"key":"shop:00000:-:-:-:-",`},
		{"GET", "/v1/jobs/shop:00000:-:-:-:-", "application/json", `{"id":1,`},
		{"GET", "/v1/jobs/shop%3A00000%3A-%3A-%3A-%3A-", "application/json", `{"id":1,`},
		{"GET", "/v1/observations/shop?data_only=true", "application/jsonl", `{"n":"00000"}`},
		{"POST", "/v1/jobs/2/cancel", "application/jsonl", `{"id":2,"key":"shop:00001:-:-:-:-","source":"shop","state":"failed",`},
		{"POST", "/v1/jobs/shop:00001:-:-:-:-/retry", "application/jsonl", `{"id":2,"key":"shop:00001:-:-:-:-","source":"shop","state":"pending",`},
		{"POST", "/v1/jobs/1/retry?recollect=true", "application/jsonl", `{"id":1,"key":"shop:00000:-:-:-:-","source":"shop","state":"pending",`},
		{"GET", "/v1/verify", "application/jsonl", ""},
		{"GET", "/v1/checksums", "application/json", `{"shop":{"rows":1,"checksum":"`},
	} {
		w := ask(h, test.method, test.target, "")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != test.kind || !strings.HasPrefix(w.Body.String(), test.start) {
			t.Errorf("%s %s: %d %v %s", test.method, test.target, w.Code, w.Header(), w.Body)
		}
	}
	if got := ask(h, "GET", "/v1/observations/shop", "").Header().Get(trailerResult); got != `{"rows":1,"first_window":null,"last_window":null}` {
		t.Errorf("an export's result is %s", got)
	}
}

// Not ready: the store has stopped.
func TestNotReady(t *testing.T) {
	store, err := storage.Open(filepath.Join(t.TempDir(), "semel.db"), storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	h := NewHandler(&Local{Store: store}, "")
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if w := ask(h, "GET", "/readyz", ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), problemType+"stopped") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
