package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"semel/engine/brokertest"
	"semel/failpoint"
	"semel/storage"
)

// boxConfig is that of one of several boxes, each of which publishes the events of
// source shop to the same server.
func boxConfig(site, nats, targets string) string {
	return fmt.Sprintf(`version = 1
[engine]
allow_private = true
robots = false
[host."*"]
concurrency = 8
interval = "0s"
[nats]
url = %q
[sink.events]
type = "nats"
stream = "EVENTS"
[source.shop]
url = "%s/p/{id}"
key = "{id}"
targets = %s
sinks = ["events"]
[source.shop.parser.fields]
title = { css = "h1", required = true }
`, nats, site, targets)
}

// eventStream makes the stream that the boxes publish to. It knows ids again for
// longer than any test takes.
func eventStream(s *brokertest.Server) jetstream.Stream {
	return s.Stream(jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"semel.>"}, Duplicates: time.Hour})
}

// wantOnePerEvent wants n messages in a stream, and no id twice.
func wantOnePerEvent(t *testing.T, stream jetstream.Stream, n int) {
	t.Helper()
	ids := map[string]bool{}
	for seq := range uint64(n) {
		m, err := stream.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		id := m.Header.Get("Nats-Msg-Id")
		if id == "" || ids[id] {
			t.Errorf("message %d has the id %q of another", seq+1, id)
		}
		ids[id] = true
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs != uint64(n) {
		t.Errorf("there are %d events, want %d", info.State.Msgs, n)
	}
}

// TestTwoBoxesOneStream: two boxes collect the same targets, each for itself. The
// stream that both publish to has each observation once, and the second box knows
// that it was there.
func TestTwoBoxesOneStream(t *testing.T) {
	const n = 40
	site, nats := newShop(t), brokertest.Start(t, nil)
	events := eventStream(nats)
	targets := "["
	for i := range n {
		targets += fmt.Sprintf("{ id = %q },", fmt.Sprint(i))
	}
	for _, want := range []storage.SinkCounts{{Delivered: n}, {Deduplicated: n}} {
		f := newFolder(t, boxConfig(site.URL, nats.URL(), targets+"]")).racing()
		f.ok("run", "--once")
		if got := sinkCounts(t, openChecked(t, f.path("semel.db")))["events"]; got != want {
			t.Errorf("a box counts %+v, want %+v", got, want)
		}
	}
	wantOnePerEvent(t, events, n)
}

func sinkCounts(t *testing.T, s *storage.Store) (counts map[string]storage.SinkCounts) {
	t.Helper()
	err := s.View(func(tx *storage.Tx) error {
		counts = tx.SinkCounts()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// TestTwoBoxesOneQueue: two boxes take their targets from one stream, and one of
// them is killed again and again, first around the commits of its jobs. Every
// target is collected, each store has each of its jobs once, and what came to both
// boxes is one event.
func TestTwoBoxesOneQueue(t *testing.T) {
	const n = 600
	site, nats := newShop(t), brokertest.Start(t, nil)
	events := eventStream(nats)
	queue := nats.Stream(jetstream.StreamConfig{Name: "TODO", Subjects: []string{"todo"}, Retention: jetstream.WorkQueuePolicy})
	if _, err := queue.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: "semel_shop", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MaxDeliver: -1,
	}); err != nil {
		t.Fatal(err)
	}
	js := nats.JetStream()
	for i := range n {
		if _, err := js.Publish(t.Context(), "todo", fmt.Appendf(nil, `{"id":"%03d"}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	config := boxConfig(site.URL, nats.URL(), `"nats:TODO"`)
	mortal, steady := newFolder(t, config), newFolder(t, config).racing()
	for i := range 10 {
		at := trap{Point: []failpoint.Point{failpoint.BeforeCommit, failpoint.AfterCommit}[i%2], Hit: 1 + i/2}
		cmd := mortal.command("run", "--once")
		cmd.Env = append(cmd.Env, at.env())
		if !killed(t, cmd, nil) {
			t.Fatalf("commit %d did not come", at.Hit)
		}
	}
	daemon := steady.start("run")
	for range 3 {
		if !killed(t, mortal.command("run", "--once"), site.after(20)) {
			t.Log("it had nothing left to do")
		}
	}
	mortal.ok("run", "--once")
	awaitEmpty(t, queue)
	daemon.signal(os.Interrupt)
	if code := daemon.exit(); code != 0 {
		t.Fatalf("the other box ends with %d", code)
	}
	steady.ok("run", "--once")

	collected := map[string]int{}
	for _, f := range []*folder{mortal, steady} {
		for target, jobs := range completeJobs(t, openChecked(t, f.path("semel.db"))) {
			if jobs != 1 {
				t.Errorf("a store has %d jobs of target %s", jobs, target)
			}
			collected[target]++
		}
	}
	twice := 0
	for _, boxes := range collected {
		twice += boxes - 1
	}
	if len(collected) != n {
		t.Errorf("%d targets were collected, want %d", len(collected), n)
	}
	wantOnePerEvent(t, events, n)
	t.Logf("%d targets came to both boxes", twice)
}

// awaitEmpty waits until a stream has no message.
func awaitEmpty(t *testing.T, stream jetstream.Stream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		info, err := stream.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if info.State.Msgs == 0 {
			return
		}
	}
}

// completeJobs are the complete jobs of a store by target.
func completeJobs(t *testing.T, s *storage.Store) map[string]int {
	t.Helper()
	jobs := map[string]int{}
	err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, math.MaxInt, func(j *storage.Job) bool {
			if j.State == storage.StateComplete {
				jobs[j.Key.Target]++
			}
			return true
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}
