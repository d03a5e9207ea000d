package delivery

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"semel/engine/retryafter"
	"semel/storage"
)

const (
	newSecret = "whsec_bmV3IG5ldyBuZXcgbmV3IG5ldyBuZXcgbmV3"
	oldSecret = "whsec_b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xk"
)

func signer(t testing.TB, secret string) Signer {
	t.Helper()
	s, err := NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serve starts a consumer on loopback.
func serve(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // connections are broken on purpose
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// hook makes a webhook that leads to a URL.
func hook(t testing.TB, to string, change func(*WebhookOptions)) *Webhook {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	o := WebhookOptions{URL: u, Signers: []Signer{signer(t, newSecret)}, UserAgent: "semel-test", AllowPrivate: true, InFlight: 4}
	if change != nil {
		change(&o)
	}
	w := NewWebhook(o)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func newEvent(seq uint64, data string) *storage.Event {
	return &storage.Event{
		Seq: seq, ID: fmt.Sprintf("evt_%032x", seq), Type: storage.EventCreated, Key: "shop:1",
		Timestamp: time.Date(2026, 4, 23, 15, 0, 0, 5000, time.UTC), Data: []byte(data),
	}
}

// post delivers one event.
func post(ctx context.Context, t testing.TB, w *Webhook, e *storage.Event) Result {
	t.Helper()
	results := w.Deliver(ctx, []*storage.Event{e})
	if len(results) != 1 {
		t.Fatalf("%d results of one event", len(results))
	}
	return results[0]
}

func wantResult(t *testing.T, got, want Result) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

// The library's own verifier takes every request, while secrets change by each
// secret alone, and by no other.
func TestWebhookIsStandard(t *testing.T) {
	requests := 0
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		requests++
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		for secret, want := range map[string]error{
			newSecret: nil, oldSecret: nil, "whsec_" + strings.Repeat("A", 32): standardwebhooks.ErrNoMatchingSignature,
		} {
			verifier, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			if err := verifier.Verify(body, r.Header); !errors.Is(err, want) {
				t.Errorf("verifying: %v, want %v", err, want)
			}
		}
		var e struct{ ID string }
		if err := json.Unmarshal(body, &e); err != nil || e.ID != r.Header.Get("webhook-id") || e.ID != r.Header.Get("Idempotency-Key") {
			t.Errorf("%v, event %s under %v", err, body, r.Header)
		}
		got := []string{r.Method, r.RequestURI, r.Header.Get("Content-Type"), r.UserAgent(), r.Header.Get("X-Team"), string(body)}
		want := []string{"POST", "/semel?a=b", "application/json", "semel-test", "data",
			`{"id":"` + e.ID + `","type":"observation.created","timestamp":"2026-04-23T15:00:00.000005Z","data":{"sku":"1"}}`}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
	})
	w := hook(t, c.URL+"/semel?a=b", func(o *WebhookOptions) {
		o.Signers = append(o.Signers, signer(t, oldSecret))
		o.Header = http.Header{"X-Team": {"data"}}
	})
	e := newEvent(1, `{"sku":"1"}`)
	for _, e := range []*storage.Event{e, newEvent(2, `{"sku":"1"}`), e} {
		wantResult(t, post(t.Context(), t, w, e), Result{Outcome: storage.OutcomeDelivered})
	}
	if requests != 3 {
		t.Errorf("%d requests for 3 deliveries", requests)
	}
}

func TestNewSigner(t *testing.T) {
	for _, secret := range []string{
		"", "whsec_", "whsec_aGVsbG8=", "whsec_hunter2", strings.TrimPrefix(newSecret, "whsec_"), "whsec_" + strings.Repeat("A", 31),
		"whsec_" + strings.Repeat("A", 88), newSecret + " ", "WHSEC_" + strings.Repeat("A", 32),
	} {
		if _, err := NewSigner(secret); !errors.Is(err, ErrSecret) || len(secret) > 6 && strings.Contains(err.Error(), secret) {
			t.Errorf("NewSigner(%q) = %v", secret, err)
		}
	}
	for _, secret := range []string{newSecret, "whsec_" + strings.Repeat("A", 32), "whsec_" + strings.Repeat("A", 86) + "=="} {
		s := signer(t, secret)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
			if text := fmt.Sprintf(verb, s); len(text) > 120 || strings.Contains(text, "110 101 119") {
				t.Errorf("%s prints %s", verb, text)
			}
		}
	}
}

// What a consumer's answer means.
func TestWebhookAnswers(t *testing.T) {
	again := func(reason string) Result { return Result{Outcome: storage.OutcomeAgain, Reason: reason} }
	held := func(reason string, wait time.Duration) Result {
		return Result{Outcome: storage.OutcomeAgain, Reason: reason, RetryAfter: wait, Passing: true}
	}
	unsure := func(reason string) Result { return Result{Outcome: storage.OutcomeAmbiguous, Reason: reason} }
	delivered, deduplicated := Result{Outcome: storage.OutcomeDelivered}, Result{Outcome: storage.OutcomeDeduplicated}
	for _, test := range []struct {
		status int
		header string // "Name: value"; "": none
		body   string
		want   Result
	}{
		{200, "", "", delivered},
		{201, "", "thanks", delivered},
		{204, "", "", delivered},
		{299, "", "{}", delivered},
		{200, "", `{"duplicate":true}`, deduplicated},
		{202, "", ` {"status":"duplicate","id":7}`, deduplicated},
		{200, "", `{"status":200,"duplicate":true}`, deduplicated},
		{200, "", `{"duplicate":false,"status":"new"}`, delivered},
		{200, "", `{"duplicate":"true"}`, delivered},
		{200, "", `{"duplicate":true`, delivered},
		{200, "", `"duplicate"`, delivered},
		{200, "", `[{"duplicate":true}]`, delivered},
		{409, "", "", deduplicated},
		{409, "", "key exists", deduplicated},
		{410, "", "no more, please", Result{Outcome: storage.OutcomeAgain, Reason: "it answered 410 Gone: no more, please", Stop: true}},
		{400, "", `{"duplicate":true}`, again(`it answered 400 Bad Request: {"duplicate":true}`)},
		{404, "", "", again("it answered 404 Not Found")},
		{401, "", "<p>who\n\tare you?</p>\x00\xff", again("it answered 401 Unauthorized: <p>who are you?</p>")},
		{500, "", "é" + strings.Repeat("x", 1000), again("it answered 500 Internal Server Error: é" + strings.Repeat("x", reasonBytes-len("it answered 500 Internal Server Error: é")) + "…")},
		{502, "", "", unsure("it answered 502 Bad Gateway")},
		{504, "", "", unsure("it answered 504 Gateway Timeout")},
		{599, "", "", again("it answered 599")},
		{500, "Retry-After: 60", "", again("it answered 500 Internal Server Error")},
		{503, "", "", held("it answered 503 Service Unavailable", 0)},
		{503, "Retry-After: 60", "", held("it answered 503 Service Unavailable", time.Minute)},
		{429, "Retry-After: 60", "", held("it answered 429 Too Many Requests", time.Minute)},
		{429, "Retry-After: 7200", "", held("it answered 429 Too Many Requests", 2*time.Hour)},
		{429, "Retry-After: -1", "", held("it answered 429 Too Many Requests", 0)},
		{429, "Retry-After: soon", "", held("it answered 429 Too Many Requests", 0)},
		{429, "Retry-After: Fri, 01 Jan 2100 00:00:00 GMT", "", held("it answered 429 Too Many Requests", retryafter.Max)},
		{429, "Retry-After: Fri, 01 Jan 2010 00:00:00 GMT", "", held("it answered 429 Too Many Requests", 0)},
		{301, "", "", again("it answered 301 Moved Permanently")},
		{304, "", "", again("it answered 304 Not Modified")},
		{307, "Location: https://other.example:8443/secret?x=y", "gone there",
			again("it answered 307 Temporary Redirect, which leads to other.example:8443: redirects are not followed")},
	} {
		t.Run(fmt.Sprint(test.status, test.header, test.body[:min(len(test.body), 30)]), func(t *testing.T) {
			requests := 0
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				requests++
				if name, value, ok := strings.Cut(test.header, ": "); ok {
					w.Header().Set(name, value)
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			wantResult(t, post(t.Context(), t, hook(t, c.URL, nil), newEvent(1, "{}")), test.want)
			if requests != 1 {
				t.Errorf("%d requests", requests)
			}
		})
	}
}

// A redirect is not followed, not even within the consumer.
func TestWebhookFollowsNoRedirect(t *testing.T) {
	asked := []string{}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		http.Redirect(w, r, "/elsewhere", http.StatusPermanentRedirect)
	})
	host := strings.TrimPrefix(c.URL, "http://")
	wantResult(t, post(t.Context(), t, hook(t, c.URL+"/hook", nil), newEvent(1, "{}")),
		Result{Outcome: storage.OutcomeAgain, Reason: "it answered 308 Permanent Redirect, which leads to " + host + ": redirects are not followed"})
	if !slices.Equal(asked, []string{"/hook"}) {
		t.Errorf("asked for %q", asked)
	}
}

// A consumer that keeps a unique key has each event once, and says so.
func TestWebhookToUniqueKey(t *testing.T) {
	rows := map[string]int{}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Idempotency-Key")
		if rows[id]++; rows[id] > 1 {
			w.WriteHeader(http.StatusConflict)
		}
	})
	w := hook(t, c.URL, nil)
	first, second := newEvent(1, "{}"), newEvent(2, "{}")
	for i, want := range []storage.DeliveryOutcome{storage.OutcomeDelivered, storage.OutcomeDeduplicated} {
		for _, r := range w.Deliver(t.Context(), []*storage.Event{first, second}) {
			wantResult(t, r, Result{Outcome: want})
		}
		if len(rows) != 2 || rows[first.ID] != i+1 {
			t.Errorf("the consumer has %v", rows)
		}
	}
}

// cut ends the connection of a request.
func cut(t *testing.T, w http.ResponseWriter, reset bool) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Fatal(err)
	}
	if reset {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	c.Close()
}

// Whatever goes wrong after the request has left leaves it open whether it
// arrived.
func TestWebhookIsAmbiguous(t *testing.T) {
	for name, misbehave := range map[string]func(http.ResponseWriter){
		"closed":  func(w http.ResponseWriter) { cut(t, w, false) },
		"reset":   func(w http.ResponseWriter) { cut(t, w, true) },
		"no HTTP": func(w http.ResponseWriter) { answerRaw(t, w, "hello\r\n\r\n") },
		"half":    func(w http.ResponseWriter) { answerRaw(t, w, "HTTP/1.1 200 OK\r\nX: ") },
		"long header": func(w http.ResponseWriter) {
			answerRaw(t, w, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 2*maxAnswerHeader))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stored atomic.Int64
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(r.Body); err == nil {
					stored.Add(1)
				}
				misbehave(w)
			})
			r := post(t.Context(), t, hook(t, c.URL, nil), newEvent(1, "{}"))
			if r.Outcome != storage.OutcomeAmbiguous || !strings.HasPrefix(r.Reason, "no answer: ") || stored.Load() != 1 {
				t.Errorf("%+v, and %d requests arrived", r, stored.Load())
			}
		})
	}
}

// So does the end of its time.
func TestWebhookWithoutAnswer(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	over := make(chan struct{})
	c := serve(t, func(http.ResponseWriter, *http.Request) {
		end(errors.New("the run ends"))
		<-over
	})
	wantResult(t, post(ctx, t, hook(t, c.URL, nil), newEvent(1, "{}")),
		Result{Outcome: storage.OutcomeAmbiguous, Reason: "no answer: the run ends"})
	close(over)
}

// answerRaw writes bytes to a connection and closes it.
func answerRaw(t *testing.T, w http.ResponseWriter, text string) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, text)
	c.Close()
}

// What never left is no more than a retry.
func TestWebhookIsNotSent(t *testing.T) {
	hits := atomic.Int64{}
	c := serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	closed := serve(t, nil)
	closed.Close()
	secure := httptest.NewUnstartedServer(c.Config.Handler)
	secure.Config.ErrorLog = c.Config.ErrorLog
	secure.StartTLS()
	t.Cleanup(secure.Close)
	ended, end := context.WithCancel(t.Context())
	end()
	over, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	host := strings.TrimPrefix(c.URL, "http://")
	public := func(o *WebhookOptions) { o.AllowPrivate = false }
	for name, test := range map[string]struct {
		ctx    context.Context
		to     string
		change func(*WebhookOptions)
		reason string
	}{
		"refused":                 {t.Context(), closed.URL, nil, "connection refused"},
		"unknown certificate":     {t.Context(), secure.URL, nil, "certificate"},
		"http to https":           {t.Context(), "https://" + host, nil, "TLS handshake"},
		"ended":                   {ended, c.URL, nil, "context canceled"},
		"out of time":             {over, c.URL, nil, "its time is over"},
		"private":                 {t.Context(), c.URL, public, "private and local addresses are not allowed: " + host + " (allow_private)"},
		"a name of this machine":  {t.Context(), strings.Replace(c.URL, "127.0.0.1", "localhost", 1), public, "private and local addresses are not allowed"},
		"this machine, otherwise": {t.Context(), strings.Replace(c.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1), public, "private and local addresses are not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := post(test.ctx, t, hook(t, test.to+"/token-of-the-path?token=of-the-query", test.change), newEvent(1, "{}"))
			if r.Outcome != storage.OutcomeAgain || !strings.HasPrefix(r.Reason, "not sent: ") || !strings.Contains(r.Reason, test.reason) {
				t.Errorf("%+v", r)
			}
			if strings.Contains(r.Reason, "of-the") {
				t.Errorf("the URL is shown: %s", r.Reason)
			}
		})
	}
	if hits.Load() != 0 {
		t.Errorf("the consumer had %d requests", hits.Load())
	}
}

// No proxy of the environment is used: net/http exempts loopback from them, so
// only the setting itself tells.
func TestWebhookUsesNoProxy(t *testing.T) {
	if hook(t, "https://example.com", nil).transport.Proxy != nil {
		t.Error("a proxy is set")
	}
}

// Over TLS the certificate is checked, and HTTP/1.1 is spoken whatever the
// consumer would like.
func TestWebhookOverTLS(t *testing.T) {
	proto := ""
	c := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { proto = r.Proto }))
	c.EnableHTTP2 = true
	c.StartTLS()
	t.Cleanup(c.Close)
	w := hook(t, c.URL, nil)
	w.transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	w.transport.TLSClientConfig.RootCAs.AddCert(c.Certificate())
	wantResult(t, post(t.Context(), t, w, newEvent(1, "{}")), Result{Outcome: storage.OutcomeDelivered})
	if proto != "HTTP/1.1" {
		t.Errorf("it speaks %s", proto)
	}
}

// weakConn breaks when it is told to.
type weakConn struct {
	net.Conn
	room *atomic.Int64 // bytes that still go over it; negative: all
}

func (c weakConn) Write(p []byte) (int, error) {
	room := int(c.room.Load())
	if room < 0 || room >= len(p) {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:room])
	return n, syscall.EPIPE
}

// A kept connection that is dead costs nothing as long as nothing went over it.
// After that net/http must not send again by itself: nobody would count it.
func TestWebhookOverKeptConnections(t *testing.T) {
	for name, test := range map[string]struct {
		room     int64 // bytes of the second request that go over the kept connection
		dropped  bool  // by the consumer, once it has the second request
		want     storage.DeliveryOutcome
		requests int64
	}{
		"kept":               {-1, false, storage.OutcomeDelivered, 2},
		"dead before":        {0, false, storage.OutcomeDelivered, 2},
		"dead in the middle": {20, false, storage.OutcomeAmbiguous, 1},
		"dead after":         {-1, true, storage.OutcomeAmbiguous, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var requests, dials atomic.Int64
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if requests.Add(1) == 2 && test.dropped {
					cut(t, w, true)
				}
			})
			w := hook(t, c.URL, nil)
			w.transport.IdleConnTimeout = 0 // however slow the machine is
			rooms := []*atomic.Int64{}
			w.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				inner, err := new(net.Dialer).DialContext(ctx, network, addr)
				room := new(atomic.Int64)
				room.Store(-1)
				rooms = append(rooms, room)
				dials.Add(1)
				return &countedConn{Conn: weakConn{inner, room}}, err
			}
			wantResult(t, post(t.Context(), t, w, newEvent(1, "{}")), Result{Outcome: storage.OutcomeDelivered})
			rooms[0].Store(test.room)
			r := post(t.Context(), t, w, newEvent(2, "{}"))
			if r.Outcome != test.want || requests.Load() != test.requests {
				t.Errorf("%+v after %d requests, want %s after %d", r, requests.Load(), test.want, test.requests)
			}
			if again := test.room == 0; (dials.Load() == 2) != again {
				t.Errorf("%d connections", dials.Load())
			}
		})
	}
}

// An answer's body is read as far as it is of interest, and holds up nothing.
func TestWebhookAnswerWithoutEnd(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
		var sent atomic.Int64
		over := make(chan struct{})
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			defer close(over)
			w.WriteHeader(status)
			for sent.Load() < 1<<30 {
				n, err := io.WriteString(w, strings.Repeat("x", 32<<10))
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
		r := post(t.Context(), t, hook(t, c.URL, nil), newEvent(1, "{}"))
		<-over
		if (r.Outcome == storage.OutcomeDelivered) != (status == http.StatusOK) || len(r.Reason) > 300 || sent.Load() >= 1<<30 {
			t.Errorf("%d: %+v after %d bytes", status, r, sent.Load())
		}
	}
}

func TestWebhookSlowAnswer(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	over := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"duplicate":`)
		_ = http.NewResponseController(w).Flush()
		end()
		<-over
	})
	r := post(ctx, t, hook(t, c.URL, nil), newEvent(1, "{}"))
	close(over)
	// Where the end came before the status was read, it may have arrived.
	if r.Outcome != storage.OutcomeDelivered && r.Outcome != storage.OutcomeAmbiguous {
		t.Errorf("%+v", r)
	}
}

// Connections are used again.
func TestWebhookKeepsConnections(t *testing.T) {
	var mu sync.Mutex
	peers := map[string]bool{}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		peers[r.RemoteAddr] = true
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, strings.Repeat("x", maxAnswer/2))
	})
	w := hook(t, c.URL, nil)
	w.transport.IdleConnTimeout = 0 // however slow the machine is
	for i := range uint64(20) {
		post(t.Context(), t, w, newEvent(i, "{}"))
	}
	if len(peers) != 1 {
		t.Errorf("%d connections for 20 deliveries, one after the other", len(peers))
	}
}

// An event that is too large goes as a reference to it.
func TestWebhookPayload(t *testing.T) {
	whole := newEvent(7, `{"text":"`)
	room := maxPayload - len(AppendJSON(nil, whole)) - len(`"}`)
	for _, test := range []struct {
		text      int
		reference bool
	}{{0, false}, {room, false}, {room + 1, true}, {maxPayload, true}, {10 * maxPayload, true}} {
		e := newEvent(7, `{"text":"`+strings.Repeat("x", test.text)+`"}`)
		e.Key = `shop:"1"`
		got := webhookPayload(e)
		var sent struct {
			ID, Type string
			Data     struct {
				Reference, Key, Text string
				Bytes                int
			}
		}
		if err := json.Unmarshal(got, &sent); err != nil || len(got) > maxPayload || sent.ID != e.ID || sent.Type != e.Type {
			t.Errorf("%d bytes: %s (%v)", test.text, got[:min(len(got), 200)], err)
		}
		referred := sent.Data.Reference == "/v1/events/7" && sent.Data.Key == e.Key && sent.Data.Bytes == len(e.Data)
		if referred != test.reference || !test.reference && len(sent.Data.Text) != test.text {
			t.Errorf("%d bytes: sent as %s", test.text, got[:min(len(got), 200)])
		}
	}
}

// Consumers say in their errors what they were asked. No reason holds what keeps
// others from writing there.
func TestWebhookReasonsHideSecrets(t *testing.T) {
	secrets := []string{"T0KEN-of/the", "T0KEN-of", "PATHTOKEN", "query%20TOKEN", "query TOKEN", "HEADERTOKEN", "COOKIETOKEN", "NAMETOKEN", "whsec_U0lHTklORy1TRUNSRVQ="}
	path := "/services/T0KEN-of%2Fthe/PATHTOKEN?key=query%20TOKEN&NAMETOKEN&n=1"
	var answer string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, answer, r.RequestURI, r.URL.Path, r.URL.Query(), r.Header)
	})
	w := hook(t, c.URL+path, func(o *WebhookOptions) {
		o.Header = http.Header{"Authorization": {"Bearer HEADERTOKEN"}, "Cookie": {"COOKIETOKEN"}}
	})
	for _, answer = range []string{
		"%[1]s", "Cannot POST %[2]s", "%[3]v", "%[4]v", "<pre>%[1]q %[2]q</pre>", "%[2]s%[2]s%[2]s", "wrong key, not %[2]s whsec_U0lHTklORy1TRUNSRVQ=",
		strings.Repeat("x", 190) + "%[1]s", strings.Repeat("x", 170) + "%[4]s",
	} {
		r := post(t.Context(), t, w, newEvent(1, "{}"))
		if !strings.HasPrefix(r.Reason, "it answered 404 Not Found: ") {
			t.Errorf("%+v", r)
		}
		for _, secret := range secrets {
			if strings.Contains(r.Reason, secret) || strings.HasSuffix(strings.TrimSuffix(r.Reason, "…"), secret[:4]) {
				t.Errorf("%q shows %q", r.Reason, secret)
			}
		}
	}
}
