package config

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"semel/storage"
)

// oldHookSecret is what hookSecret takes the place of.
const oldHookSecret = "whsec_dGhlIG9uZSB0aGF0IHdhcyBiZWZvcmUgaXQ="

// A webhook of the config sends what it says: both secrets sign, the newer one
// first, the headers go along, and the URL may be a secret.
func TestWebhookSends(t *testing.T) {
	var got http.Header
	var body []byte
	c := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		body, _ = io.ReadAll(r.Body)
	}))
	t.Cleanup(c.Close)
	path := write(t, `
version = 1
[engine]
allow_private = true
user_agent = "ours/1"
[sink.hook]
type = "webhook"
url = "env:URL"
secret = ["env:NEW", "file:old"]
headers = { X-Team = "data", Authorization = "env:LOGIN" }
[sink.second]
type = "webhook"
url = "https://example.com/"
secret = "env:NEW"
in_flight = 3
`, map[string]string{"old": oldHookSecret + "\n"})
	env := map[string]string{"URL": c.URL + "/x", "NEW": hookSecret, "LOGIN": "Bearer us"}
	conf, err := Load(path, func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	sink := conf.Sinks[0]
	if sink.InFlight != 16 || conf.Sinks[1].InFlight != 3 || sink.Batch != 1 {
		t.Errorf("sinks %+v", conf.Sinks)
	}
	results := sink.Transport.Deliver(t.Context(), []*storage.Event{{ID: "evt_1", Type: "x", Data: []byte("{}")}})
	if results[0].Outcome != storage.OutcomeDelivered {
		t.Fatalf("%+v", results)
	}
	for _, secret := range []string{hookSecret, oldHookSecret} {
		verifier, err := standardwebhooks.NewWebhook(secret)
		if err := errors.Join(err, verifier.Verify(body, got)); err != nil {
			t.Error(err)
		}
	}
	if got.Get("X-Team") != "data" || got.Get("Authorization") != "Bearer us" || got.Get("User-Agent") != "ours/1" {
		t.Errorf("header %v", got)
	}
	if err := sink.Transport.Close(); err != nil {
		t.Error(err)
	}
	if conf, err = Load(path, nil); err != nil || conf.Sinks[0].Transport != nil {
		t.Errorf("without secrets: %v, %+v", err, conf)
	}
}
