package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"semel/engine/delivery"
	"semel/storage"
)

// An event is answered as sinks get it, by its number and by its id, also over
// the network: a webhook's reference leads there.
func TestEvent(t *testing.T) {
	l := outbox(t)
	update(t, l, func(tx *storage.Tx) error {
		_, err := tx.EnqueueJob(storage.NewJob{Key: oddKey, Country: "US", URL: `https://x.test/?a=<1>&b="2"`, Host: "x.test"})
		return err
	})
	if err := l.Cancel(t.Context(), Selection{Source: "shop"}, func(Job) error { return nil }); err != nil {
		t.Fatal(err)
	}
	var e *storage.Event
	err := l.Store.View(func(tx *storage.Tx) (err error) {
		e, err = tx.Event(6)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := string(delivery.AppendJSON(nil, e))
	if !strings.Contains(want, "<1>&b") {
		t.Fatalf("the event is %s", want)
	}
	socket, network, address := overBoth(t, l)
	c := client(t, NewHandler(l, ""))
	for _, ref := range []string{"6", e.ID} {
		if got, err := c.Event(t.Context(), ref); err != nil || string(got) != want {
			t.Errorf("event %s: %s, %v, want %s", ref, got, err, want)
		}
		for _, via := range []doer{socket, network} {
			status, got, header := send(t, via, request(t, address, "GET", "/v1/events/"+ref, "", "Authorization: Bearer sesame"))
			if status != http.StatusOK || got != want || header.Get("Content-Type") != jsonType {
				t.Errorf("event %s: %d %v %s", ref, status, header, got)
			}
		}
	}
	for _, ref := range []string{"7", "0", "evt_none", "-1", "..", "evt_", e.ID[:20]} {
		if _, err := c.Event(t.Context(), ref); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("event %q: %v", ref, err)
		}
		wantStatus(t, network, request(t, address, "GET", "/v1/events/"+segment(ref), "", "Authorization: Bearer sesame"), "404 not_found")
	}
	wantStatus(t, network, request(t, address, "GET", "/v1/events/6", ""), "401 unauthorized")
}
