package delivery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"semel/engine/broker"
	"semel/engine/brokertest"
	"semel/engine/delivery"
	"semel/storage"
)

// event makes an event of source "shop".
func event(n int, data string) *storage.Event {
	return &storage.Event{
		Seq: uint64(n), ID: fmt.Sprintf("evt_%032x", n), Type: storage.EventCreated, Key: fmt.Sprintf("shop:%d:::::", n),
		Timestamp: time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC), Data: []byte(data),
	}
}

func newNATS(t *testing.T, s *brokertest.Server, change func(*delivery.NATSOptions)) *delivery.NATS {
	t.Helper()
	opts := delivery.NATSOptions{Server: broker.Server{}.At(s.URL()), Subject: delivery.DefaultSubject, Timeout: time.Minute}
	if change != nil {
		change(&opts)
	}
	n := delivery.NewNATS(opts)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// deliver delivers events and wants each to end in the same way.
func deliver(t *testing.T, n *delivery.NATS, want storage.DeliveryOutcome, events ...*storage.Event) []delivery.Result {
	t.Helper()
	results := n.Deliver(t.Context(), events)
	for i, r := range results {
		if r.Outcome != want {
			t.Fatalf("event %d: %s (%s), want %s", i, r.Outcome, r.Reason, want)
		}
	}
	return results
}

// stored reads all messages of a stream.
func stored(t *testing.T, stream jetstream.Stream) []*jetstream.RawStreamMsg {
	t.Helper()
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []*jetstream.RawStreamMsg
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func TestNATSDelivers(t *testing.T) {
	s := brokertest.Start(t, nil)
	stream := s.Stream(jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"semel.>"}})
	n := newNATS(t, s, nil)
	var events []*storage.Event
	for i := range 256 {
		events = append(events, event(i, `{"price":"19.90"}`))
	}
	deliver(t, n, storage.OutcomeDelivered, events...)
	deliver(t, n, storage.OutcomeDeduplicated, events...)
	all := stored(t, stream)
	if len(all) != len(events) {
		t.Fatalf("the stream has %d messages, want %d", len(all), len(events))
	}
	for i, m := range all {
		if id := m.Header.Get("Nats-Msg-Id"); id != events[i].ID {
			t.Errorf("message %d has id %s, want %s", i, id, events[i].ID)
		}
		if m.Subject != "semel.shop.observation.created" {
			t.Errorf("message %d has subject %s", i, m.Subject)
		}
		if want := delivery.AppendJSON(nil, events[i]); !bytes.Equal(m.Data, want) {
			t.Errorf("message %d is %s, want %s", i, m.Data, want)
		}
	}
}

// TestNATSRefused: what certainly did not arrive is told with what to do.
func TestNATSRefused(t *testing.T) {
	s := brokertest.Start(t, nil)
	s.Stream(jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"semel.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew})
	tests := []struct {
		name   string
		change func(*delivery.NATSOptions)
		want   string
	}{
		{"no stream", func(o *delivery.NATSOptions) { o.Subject = "other.{source}" },
			"no stream takes other.shop: create one (nats stream add), or add the subject to one"},
		{"another stream", func(o *delivery.NATSOptions) { o.Stream = "ORDERS" }, "the server refused it: expected stream does not match"},
		{"full", nil, "the server refused it: maximum messages exceeded"},
	}
	deliver(t, newNATS(t, s, nil), storage.OutcomeDelivered, event(1, `{}`))
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNATS(t, s, test.change)
			if r := deliver(t, n, storage.OutcomeAgain, event(2, `{}`)); r[0].Reason != test.want {
				t.Errorf("reason %q, want %q", r[0].Reason, test.want)
			}
		})
	}
}

// TestNATSTooLarge: an event over the server's limit, or its stream's, goes as a
// reference, and its neighbours whole.
func TestNATSTooLarge(t *testing.T) {
	tests := []struct {
		name   string
		server int32
		stream int32
	}{{"for the server", 2000, -1}, {"for the stream", 1 << 20, 2000}}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := brokertest.Start(t, func(o *server.Options) { o.MaxPayload = test.server })
			stream := s.Stream(jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"semel.>"}, MaxMsgSize: test.stream})
			large := event(1, `{"text":"`+strings.Repeat("x", 3000)+`"}`)
			n := newNATS(t, s, nil)
			deliver(t, n, storage.OutcomeDelivered, event(2, `{}`), large, event(3, `{}`))
			deliver(t, n, storage.OutcomeDeduplicated, large)
			var got struct {
				ID   string
				Data struct{ Reference string }
			}
			for _, m := range stored(t, stream) {
				if m.Header.Get("Nats-Msg-Id") != large.ID {
					continue
				}
				if err := json.Unmarshal(m.Data, &got); err != nil {
					t.Fatal(err)
				}
			}
			if got.ID != large.ID || got.Data.Reference != "/v1/events/1" {
				t.Errorf("the large event arrived as %+v", got)
			}
		})
	}
}

// TestNATSDown: while the server is away nothing is taken for sent, and what was
// under way may have arrived; afterwards all goes on over the same sink.
func TestNATSDown(t *testing.T) {
	s := brokertest.Start(t, nil)
	stream := s.Stream(jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"semel.>"}})
	n := newNATS(t, s, nil)
	deliver(t, n, storage.OutcomeDelivered, event(1, `{}`))
	s.Stop()
	if r := n.Deliver(t.Context(), []*storage.Event{event(2, `{}`)})[0]; r.Outcome == storage.OutcomeDelivered || r.Reason == "" {
		t.Errorf("without a server: %+v", r)
	}
	s.Begin()
	for {
		r := n.Deliver(t.Context(), []*storage.Event{event(1, `{}`), event(2, `{}`)})
		if r[0].Outcome == storage.OutcomeDeduplicated && r[1].Outcome == storage.OutcomeDelivered {
			break
		}
		if r[1].Outcome != storage.OutcomeAgain {
			t.Fatalf("after the server is back: %+v", r)
		}
	}
	if got := len(stored(t, stream)); got != 2 {
		t.Errorf("the stream has %d messages, want 2", got)
	}
}

// TestNATSNobody: an address where nobody listens.
func TestNATSNobody(t *testing.T) {
	s := brokertest.Start(t, nil)
	n := newNATS(t, s, nil)
	s.Stop()
	want := "reaching NATS at " + s.URL() + ": "
	if r := deliver(t, n, storage.OutcomeAgain, event(1, `{}`)); !strings.HasPrefix(r[0].Reason, want) {
		t.Errorf("reason %q, want %q…", r[0].Reason, want)
	}
}

// TestNATSSilent: an acknowledgement that does not come leaves open whether the
// event has arrived. A subject with a subscriber that is no stream gives none.
func TestNATSSilent(t *testing.T) {
	s := brokertest.Start(t, nil)
	conn := s.JetStream().Conn()
	silent, err := conn.SubscribeSync("semel.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Run("sink's time", func(t *testing.T) {
		n := newNATS(t, s, func(o *delivery.NATSOptions) { o.Timeout = 50 * time.Millisecond })
		deliver(t, n, storage.OutcomeAmbiguous, event(1, `{}`), event(2, `{}`))
	})
	t.Run("stop", func(t *testing.T) {
		n := newNATS(t, s, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range 4 { // two of before
				_, _ = silent.NextMsg(time.Minute)
			}
			cancel()
		}()
		for _, r := range n.Deliver(ctx, []*storage.Event{event(1, `{}`), event(2, `{}`)}) {
			if r.Outcome != storage.OutcomeAmbiguous || r.Reason != "no acknowledgement: context canceled" {
				t.Errorf("%+v", r)
			}
		}
	})
	t.Run("server gone", func(t *testing.T) {
		n := newNATS(t, s, nil)
		go func() {
			_, _ = silent.NextMsg(time.Minute)
			s.Stop()
		}()
		deliver(t, n, storage.OutcomeAmbiguous, event(1, `{}`))
	})
}

// TestNATSLogin: a login that is refused is no secret told, and one that is right
// works.
func TestNATSLogin(t *testing.T) {
	s := brokertest.Start(t, func(o *server.Options) { o.Username, o.Password = "semel", "hunter2" })
	login := func(password string) func(*delivery.NATSOptions) {
		return func(o *delivery.NATSOptions) {
			o.Server = broker.NewServer(broker.Login{Username: "semel", Password: password}).At(s.URL())
		}
	}
	r := deliver(t, newNATS(t, s, login("hunter3")), storage.OutcomeAgain, event(1, `{}`))
	if want := "reaching NATS at " + s.URL() + ": nats: Authorization Violation"; r[0].Reason != want {
		t.Errorf("reason %q, want %q", r[0].Reason, want)
	}
	r = deliver(t, newNATS(t, s, login("hunter2")), storage.OutcomeAgain, event(1, `{}`))
	if !strings.HasPrefix(r[0].Reason, "no stream takes ") {
		t.Errorf("with the right login: %q", r[0].Reason)
	}
}

func TestCheckSubject(t *testing.T) {
	for _, good := range []string{delivery.DefaultSubject, "events", "{type}.{source}", "a.b-c.d_{source}"} {
		if err := delivery.CheckSubject(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".a", "a.", "a..b", "a.*", "a.>", "a b", "{key}", "$JS.API"} {
		if delivery.CheckSubject(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
