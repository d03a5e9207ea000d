package storage_test

import (
	"context"
	"errors"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"semel/storage"
)

// modelEvent is an event with its dispatches by sink.
type modelEvent struct {
	Type, Key string
	at        map[string]*storage.Dispatch
}

// modelSink is what the model knows of a sink.
type modelSink struct {
	taken   []uint64
	stopped bool
	counts  storage.SinkCounts // of deliveries
}

func (m *model) emit(sinks []storage.Subscription, event, key string) {
	seq := uint64(len(m.events) + 1)
	e := &modelEvent{event, key, map[string]*storage.Dispatch{}}
	for _, s := range sinks {
		if slices.Contains(s.Events, event) || len(s.Events) == 0 && event != storage.EventJobComplete {
			e.at[s.Sink] = &storage.Dispatch{Event: seq, Sink: s.Sink, State: storage.DispatchPending}
			m.queue(s.Sink, seq)
		}
	}
	if len(e.at) > 0 {
		m.events = append(m.events, e)
	}
}

// queue notes what TakeQueued has to name.
func (m *model) queue(sink string, seq uint64) {
	if first, ok := m.queued[sink]; !ok || seq < first {
		m.queued[sink] = seq
	}
}

// dispatch is nil where there is none.
func (m *model) dispatch(seq uint64, sink string) *storage.Dispatch {
	if seq > uint64(len(m.events)) {
		return nil
	}
	return m.events[seq-1].at[sink]
}

func (m *model) pending(sink string) (seqs []uint64) {
	for i, e := range m.events {
		if d := e.at[sink]; d != nil && d.State == storage.DispatchPending {
			seqs = append(seqs, uint64(i+1))
		}
	}
	return seqs
}

// drawSink draws a sink, and drawEvent an event: now and then one that is not
// there, or not meant for every sink.
func (x *machine) drawSink(t *rapid.T) string {
	return rapid.SampledFrom(modelSinks).Draw(t, "sink").Sink
}

func (x *machine) drawEvent(t *rapid.T) uint64 {
	return rapid.Uint64Range(1, uint64(len(x.m.events)+1)).Draw(t, "event")
}

func (x *machine) takeEvents(t *rapid.T) {
	sink, m := x.drawSink(t), x.m
	var seqs, want, got []uint64
	for range rapid.IntRange(0, 4).Draw(t, "events") {
		seqs = append(seqs, x.drawEvent(t))
	}
	for _, seq := range seqs {
		s := m.sinks[sink]
		if d := m.dispatch(seq, sink); d != nil && d.State == storage.DispatchPending && !slices.Contains(s.taken, seq) {
			s.taken, want = append(s.taken, seq), append(want, seq)
		}
	}
	x.update(func(tx *storage.Tx) (err error) {
		got, err = tx.TakeEvents(sink, seqs)
		return err
	})
	if !slices.Equal(got, want) {
		t.Fatalf("took %v of %v, want %v", got, seqs, want)
	}
}

func (x *machine) endDeliveries(t *rapid.T) {
	sink := x.drawSink(t)
	var ended []storage.Delivery
	for range rapid.IntRange(1, 3).Draw(t, "deliveries") {
		d := storage.Delivery{
			Event: x.drawEvent(t), Reason: "it said so",
			Outcome: rapid.SampledFrom([]storage.DeliveryOutcome{
				"", storage.OutcomeDelivered, storage.OutcomeDeduplicated, storage.OutcomeAgain, storage.OutcomeAmbiguous,
			}).Draw(t, "outcome"),
			Counts: rapid.Bool().Draw(t, "counts"), Dead: rapid.IntRange(0, 2).Draw(t, "dead") == 0,
			Next: time.Now().UTC().Add(time.Minute),
		}
		if taken := x.m.sinks[sink].taken; len(taken) > 0 && rapid.IntRange(0, 3).Draw(t, "taken") > 0 {
			d.Event = rapid.SampledFrom(taken).Draw(t, "event taken")
		}
		ended = append(ended, d)
	}
	x.update(func(tx *storage.Tx) error { return tx.EndDeliveries(sink, ended) })
	x.m.end(sink, ended)
}

func (m *model) end(sink string, ended []storage.Delivery) {
	s := m.sinks[sink]
	for _, by := range ended {
		s.taken = slices.DeleteFunc(s.taken, func(seq uint64) bool { return seq == by.Event })
		d := m.dispatch(by.Event, sink)
		if d == nil || by.Outcome == "" || d.State == storage.DispatchDelivered || d.State == storage.DispatchDead {
			continue
		}
		d.Outcome, d.Reason, d.Last = by.Outcome, by.Reason, time.Now().UTC()
		if d.First.IsZero() {
			d.First = d.Last
		}
		if by.Counts {
			d.Tries++
		}
		state, next := storage.DispatchDelivered, time.Time{}
		switch by.Outcome {
		case storage.OutcomeDelivered:
			s.counts.Delivered++
		case storage.OutcomeDeduplicated:
			s.counts.Deduplicated++
		case storage.OutcomeAgain:
			s.counts.Redelivered++
			state, next = storage.DispatchPending, by.Next
		case storage.OutcomeAmbiguous:
			s.counts.Ambiguous++
			d.Ambiguous++
			state, next = storage.DispatchPending, by.Next
		}
		if state == storage.DispatchPending && by.Dead {
			state, next = storage.DispatchDead, time.Time{}
		}
		if d.State == storage.DispatchPending {
			d.State, d.Next = state, next
		}
	}
}

func (x *machine) rescueDeliveries(t *rapid.T) {
	got, want := 0, 0
	x.update(func(tx *storage.Tx) (err error) {
		got, err = tx.RescueDeliveries()
		return err
	})
	for name, s := range x.m.sinks {
		for _, seq := range slices.Clone(s.taken) {
			want++
			x.m.end(name, []storage.Delivery{{Event: seq, Outcome: storage.OutcomeAmbiguous, Reason: "the process ended while it was under way"}})
		}
	}
	if got != want {
		t.Fatalf("rescued %d deliveries, want %d", got, want)
	}
}

func (x *machine) requeueEvent(t *rapid.T) {
	seq, sink := x.drawEvent(t), x.drawSink(t)
	err := x.s.Update(context.Background(), func(tx *storage.Tx) error { return tx.RequeueEvent(seq, sink) })
	d := x.m.dispatch(seq, sink)
	if d == nil != errors.Is(err, storage.ErrNotFound) || d != nil && err != nil {
		t.Fatalf("requeueing %+v: %v", d, err)
	}
	if d == nil {
		return
	}
	d.Requeued = d.Requeued || d.State != storage.DispatchPending
	d.State, d.Tries, d.First, d.Next = storage.DispatchPending, 0, time.Time{}, time.Time{}
	x.m.queue(sink, seq)
	x.m.start(sink)
}

func (x *machine) discardEvent(t *rapid.T) {
	seq, sink := x.drawEvent(t), x.drawSink(t)
	err := x.s.Update(context.Background(), func(tx *storage.Tx) error { return tx.DiscardEvent(seq, sink) })
	var want error
	switch d := x.m.dispatch(seq, sink); {
	case d == nil:
		want = storage.ErrNotFound
	case d.State == storage.DispatchDelivered || d.State == storage.DispatchDiscarded:
		want = storage.ErrTransition
	default:
		d.State, d.Next = storage.DispatchDiscarded, time.Time{}
		x.m.queue(sink, seq)
	}
	if !errors.Is(err, want) {
		t.Fatalf("discarding event %d at %s: %v, want %v", seq, sink, err, want)
	}
}

func (x *machine) stopSink(t *rapid.T) {
	sink := x.drawSink(t)
	x.update(func(tx *storage.Tx) error { return tx.StopSink(sink, "it is gone") })
	x.m.sinks[sink].stopped = true
}

func (x *machine) startSink(t *rapid.T) {
	sink := x.drawSink(t)
	x.update(func(tx *storage.Tx) error { return tx.StartSink(sink) })
	x.m.start(sink)
}

func (m *model) start(sink string) {
	if m.sinks[sink].stopped {
		m.sinks[sink].stopped = false
		m.queue(sink, 0)
	}
}

// compareOutbox wants every dispatch and sink to be as the model has it, and the
// last step to have been announced.
func (x *machine) compareOutbox(t *rapid.T, tx *storage.Tx) {
	for i, want := range x.m.events {
		e, err := tx.Event(uint64(i + 1))
		if err != nil || e.Type != want.Type || e.Key != want.Key {
			t.Fatalf("event %d: %+v, want %+v (%v)", i+1, e, want, err)
		}
		list, err := tx.EventDispatches(e.Seq)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]*storage.Dispatch{}
		for _, d := range list {
			got[d.Sink] = d
		}
		if diff := gocmp.Diff(want.at, got); diff != "" {
			t.Fatalf("event %d (-want +got):\n%s", i+1, diff)
		}
	}
	for name := range x.m.sinks {
		x.compareSink(t, tx, name)
	}
	if diff := gocmp.Diff(x.m.queued, x.s.TakeQueued()); diff != "" {
		t.Fatalf("announced (-want +got):\n%s", diff)
	}
	clear(x.m.queued)
}

func (x *machine) compareSink(t *rapid.T, tx *storage.Tx, name string) {
	want := x.m.sinks[name]
	s, err := tx.Sink(name)
	if err != nil || !slices.Equal(s.Taken, want.taken) || s.Stopped.IsZero() == want.stopped {
		t.Fatalf("sink %+v, want %+v (%v)", s, want, err)
	}
	pending, err := tx.PendingEvents(name, 0, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	seqs := []uint64(nil)
	for _, e := range pending {
		seqs = append(seqs, e.Seq)
	}
	if all := x.m.pending(name); !slices.Equal(seqs, all) {
		t.Fatalf("pending at %s: %v, want %v", name, seqs, all)
	}
	counts := want.counts
	for _, e := range x.m.events {
		switch d := e.at[name]; {
		case d == nil:
		case d.State == storage.DispatchPending:
			counts.Pending++
		case d.State == storage.DispatchDead:
			counts.Dead++
		}
	}
	if got := tx.SinkCounts()[name]; got != counts {
		t.Fatalf("counts of sink %s: %+v, want %+v", name, got, counts)
	}
}
