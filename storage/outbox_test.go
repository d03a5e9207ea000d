package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

// emit makes n events of type observation.created, numbered on from those that
// are there, for some sinks.
func emit(t testing.TB, s *storage.Store, n int, sinks ...string) {
	t.Helper()
	var wishes []storage.Subscription
	for _, sink := range sinks {
		wishes = append(wishes, storage.Subscription{Sink: sink, Events: []string{storage.EventCreated}})
	}
	for range n {
		name := fmt.Sprint("row ", len(stories(t, s)))
		collect(t, s, target(name), page(name, "x", wishes...))
	}
}

// dispatch is how far an event is on its way to sink a.
func dispatch(t testing.TB, s *storage.Store, seq uint64) (d *storage.Dispatch) {
	t.Helper()
	view(t, s, func(tx *storage.Tx) (err error) {
		d, err = tx.Dispatch(seq, "a")
		return err
	})
	return d
}

// take begins deliveries to sink a, and end ends some.
func take(t testing.TB, s *storage.Store, seqs ...uint64) (taken []uint64) {
	t.Helper()
	update(t, s, func(tx *storage.Tx) (err error) {
		taken, err = tx.TakeEvents("a", seqs)
		return err
	})
	return taken
}

func end(t testing.TB, s *storage.Store, ended ...storage.Delivery) {
	t.Helper()
	update(t, s, func(tx *storage.Tx) error { return tx.EndDeliveries("a", ended) })
}

func requeue(t testing.TB, s *storage.Store, seq uint64) {
	t.Helper()
	update(t, s, func(tx *storage.Tx) error { return tx.RequeueEvent(seq, "a") })
}

func discard(t testing.TB, s *storage.Store, seq uint64) {
	t.Helper()
	update(t, s, func(tx *storage.Tx) error { return tx.DiscardEvent(seq, "a") })
}

func underWay(t testing.TB, s *storage.Store) (taken []uint64) {
	t.Helper()
	view(t, s, func(tx *storage.Tx) error {
		sink, err := tx.Sink("a")
		taken = sink.Taken
		return err
	})
	return taken
}

// listed are the places of the dispatches that a filter means, read in pages.
func listed(t testing.TB, s *storage.Store, f storage.DispatchFilter, limit int) (list []string) {
	t.Helper()
	var at storage.DispatchCursor
	for more := true; more; more = at != (storage.DispatchCursor{}) {
		n := 0
		view(t, s, func(tx *storage.Tx) (err error) {
			at, err = tx.Dispatches(f, at, limit, func(e *storage.Event, d *storage.Dispatch) error {
				if e.Seq != d.Event {
					t.Errorf("event %d comes with the dispatch of %d", e.Seq, d.Event)
				}
				list = append(list, fmt.Sprint(d.Event, d.Sink, " ", d.State))
				n++
				return nil
			})
			return err
		})
		if n > limit {
			t.Errorf("%d dispatches, limit %d", n, limit)
		}
	}
	return list
}

// TestDispatches: each filter gives its dispatches in the order of events and
// sinks, however small the pages are.
func TestDispatches(t *testing.T) {
	at := time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)
	s := storagetest.OpenAt(t, t.TempDir()+"/semel.db", storage.Options{Now: func() time.Time { return at }})
	for _, sinks := range [][]string{{"a", "b"}, {"b"}, {"b", "a"}, {}, {"a", "ab"}} {
		emit(t, s, 1, sinks...)
		at = at.Add(time.Hour)
	}
	update(t, s, func(tx *storage.Tx) error {
		err := tx.EndDeliveries("a", []storage.Delivery{{Event: 2, Outcome: storage.OutcomeDelivered}}) // not meant for it
		if err == nil {
			err = tx.EndDeliveries("b", []storage.Delivery{{Event: 2, Outcome: storage.OutcomeDelivered}, {Event: 1, Outcome: storage.OutcomeAgain, Dead: true}})
		}
		if err == nil {
			err = tx.DiscardEvent(3, "a")
		}
		return err
	})
	pending, dead := storage.DispatchPending, storage.DispatchDead
	tests := map[string]struct {
		filter storage.DispatchFilter
		want   []string
	}{
		"all":                {storage.DispatchFilter{}, []string{"1a pending", "1b dead", "2b delivered", "3a discarded", "3b pending", "4a pending", "4ab pending"}},
		"sink":               {storage.DispatchFilter{Sink: "a"}, []string{"1a pending", "3a discarded", "4a pending"}},
		"states with index":  {storage.DispatchFilter{States: []storage.DispatchState{dead, pending}}, []string{"1a pending", "1b dead", "3b pending", "4a pending", "4ab pending"}},
		"of one sink":        {storage.DispatchFilter{States: []storage.DispatchState{dead, pending}, Sink: "b"}, []string{"1b dead", "3b pending"}},
		"state without":      {storage.DispatchFilter{States: []storage.DispatchState{dead, storage.DispatchDelivered}}, []string{"1b dead", "2b delivered"}},
		"type":               {storage.DispatchFilter{Types: []string{storage.EventUpdated}}, nil},
		"one type of two":    {storage.DispatchFilter{Sink: "ab", Types: []string{storage.EventUpdated, storage.EventCreated}}, []string{"4ab pending"}},
		"time":               {storage.DispatchFilter{From: at.Add(-4 * time.Hour), To: at.Add(-3 * time.Hour)}, []string{"2b delivered"}},
		"time by the states": {storage.DispatchFilter{From: at.Add(-3 * time.Hour), States: []storage.DispatchState{pending}}, []string{"3b pending", "4a pending", "4ab pending"}},
		"until":              {storage.DispatchFilter{To: at.Add(-4 * time.Hour)}, []string{"1a pending", "1b dead"}},
		"no such sink":       {storage.DispatchFilter{Sink: "c", States: []storage.DispatchState{pending}}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for limit := 1; limit < 9; limit++ {
				if diff := cmp.Diff(test.want, listed(t, s, test.filter, limit)); diff != "" {
					t.Errorf("in pages of %d (-want +got):\n%s", limit, diff)
				}
			}
		})
	}
}

// TestDispatchesBounded: one call looks at no more than a thousand dispatches,
// and the calls together at all.
func TestDispatchesBounded(t *testing.T) {
	s := storagetest.Open(t)
	const n = 2_100
	c := page("x", "x", storage.Subscription{Sink: "a"}, storage.Subscription{Sink: "b"})
	for i := range n / 2 {
		c.Records = append(c.Records, storage.NewObservation{Key: fmt.Sprint(i), Data: []byte(`{}`)})
	}
	c.Records = c.Records[1:]
	collect(t, s, target("x"), c)
	for name, f := range map[string]storage.DispatchFilter{
		"all":     {Types: []string{"none"}},
		"by name": {Types: []string{"none"}, States: []storage.DispatchState{storage.DispatchPending}},
	} {
		calls := 0
		var at storage.DispatchCursor
		for more := true; more; more = at != (storage.DispatchCursor{}) {
			calls++
			view(t, s, func(tx *storage.Tx) (err error) {
				at, err = tx.Dispatches(f, at, 10, func(*storage.Event, *storage.Dispatch) error { panic("it is of no such type") })
				return err
			})
		}
		if calls != 3 {
			t.Errorf("%s: %d calls", name, calls)
		}
		f.Types = nil
		if list := listed(t, s, f, 1_200); len(list) != n || slices.Contains(list[1:], list[0]) {
			t.Errorf("%s: %d dispatches, want %d", name, len(list), n)
		}
	}
}

// TestFindEvent: an event is found by its id wherever it is, the newest where
// there are two.
func TestFindEvent(t *testing.T) {
	s := storagetest.Open(t)
	_, err := s.FindEvent(t.Context(), "evt_none")
	wantError(t, err, storage.ErrNotFound)
	c := page("a", "x", storage.Subscription{Sink: "s"})
	for i := range 2_100 {
		c.Records = append(c.Records, storage.NewObservation{Key: fmt.Sprint(i), Data: []byte(`{}`)})
	}
	collect(t, s, target("x"), c)
	all := pending(t, s, "s")
	for _, i := range []int{0, 1, 500, 1_000, 1_100, 2_000, 2_099, 2_100} {
		e, err := s.FindEvent(t.Context(), all[i].ID)
		if err != nil || e.Seq != all[i].Seq {
			t.Errorf("event %d: %+v, %v", all[i].Seq, e, err)
		}
	}
	for _, value := range []string{"y", "x", "y"} {
		recollect(t, s, 1, value)
	}
	updates := pending(t, s, "s")[len(all):]
	for _, want := range []*storage.Event{updates[0], updates[2]} { // of the same content
		if e, err := s.FindEvent(t.Context(), want.ID); err != nil || e.Seq != want.Seq {
			t.Errorf("what came true again: %+v, %v, want event %d", e, err, want.Seq)
		}
	}
	_, err = s.FindEvent(t.Context(), "evt_none")
	wantError(t, err, storage.ErrNotFound)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.FindEvent(ctx, all[0].ID)
	wantError(t, err, context.Canceled)
}

// TestEndDeliveries: each outcome moves a dispatch as it should, and is counted.
func TestEndDeliveries(t *testing.T) {
	now := time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)
	soon := now.Add(time.Minute)
	tests := map[string]struct {
		ended  storage.Delivery
		want   storage.Dispatch
		counts storage.SinkCounts
	}{
		"never begun": {
			storage.Delivery{Counts: true, Next: soon},
			storage.Dispatch{State: storage.DispatchPending},
			storage.SinkCounts{Pending: 1},
		},
		"delivered": {
			storage.Delivery{Outcome: storage.OutcomeDelivered, Counts: true, Next: soon},
			storage.Dispatch{State: storage.DispatchDelivered, Outcome: storage.OutcomeDelivered, Tries: 1, First: now, Last: now},
			storage.SinkCounts{Delivered: 1},
		},
		"deduplicated, and the last in any case": {
			storage.Delivery{Outcome: storage.OutcomeDeduplicated, Dead: true},
			storage.Dispatch{State: storage.DispatchDelivered, Outcome: storage.OutcomeDeduplicated, First: now, Last: now},
			storage.SinkCounts{Deduplicated: 1},
		},
		"retry": {
			storage.Delivery{Outcome: storage.OutcomeAgain, Reason: "status 500", Counts: true, Next: soon},
			storage.Dispatch{State: storage.DispatchPending, Outcome: storage.OutcomeAgain, Reason: "status 500", Tries: 1, First: now, Last: now, Next: soon},
			storage.SinkCounts{Pending: 1, Redelivered: 1},
		},
		"retry that does not count": {
			storage.Delivery{Outcome: storage.OutcomeAgain, Reason: "it is down", Next: soon},
			storage.Dispatch{State: storage.DispatchPending, Outcome: storage.OutcomeAgain, Reason: "it is down", First: now, Last: now, Next: soon},
			storage.SinkCounts{Pending: 1, Redelivered: 1},
		},
		"ambiguous": {
			storage.Delivery{Outcome: storage.OutcomeAmbiguous, Reason: "timeout", Counts: true},
			storage.Dispatch{State: storage.DispatchPending, Outcome: storage.OutcomeAmbiguous, Reason: "timeout", Tries: 1, Ambiguous: 1, First: now, Last: now},
			storage.SinkCounts{Pending: 1, Ambiguous: 1},
		},
		"dead": {
			storage.Delivery{Outcome: storage.OutcomeAgain, Reason: "status 400", Counts: true, Dead: true, Next: soon},
			storage.Dispatch{State: storage.DispatchDead, Outcome: storage.OutcomeAgain, Reason: "status 400", Tries: 1, First: now, Last: now},
			storage.SinkCounts{Dead: 1, Redelivered: 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := storagetest.OpenAt(t, t.TempDir()+"/semel.db", storage.Options{Now: func() time.Time { return now }})
			emit(t, s, 1, "a")
			take(t, s, 1)
			test.ended.Event, test.want.Event, test.want.Sink = 1, 1, "a"
			end(t, s, test.ended)
			if diff := cmp.Diff(&test.want, dispatch(t, s, 1)); diff != "" {
				t.Errorf("dispatch (-want +got):\n%s", diff)
			}
			view(t, s, func(tx *storage.Tx) error {
				if got := tx.SinkCounts()["a"]; got != test.counts {
					t.Errorf("counts %+v, want %+v", got, test.counts)
				}
				return nil
			})
			if left := underWay(t, s); len(left) > 0 {
				t.Errorf("under way: %v", left)
			}
		})
	}
}

// TestTakeOnce: what is under way is not taken a second time, also where a person
// sends it again meanwhile; what is not pending is not taken at all.
func TestTakeOnce(t *testing.T) {
	s := storagetest.Open(t)
	emit(t, s, 3, "a")
	end(t, s, storage.Delivery{Event: 2, Outcome: storage.OutcomeDelivered})
	if got := take(t, s, 3, 1, 2, 1, 9); !slices.Equal(got, []uint64{3, 1}) {
		t.Errorf("took %v", got)
	}
	requeue(t, s, 1)
	if got := take(t, s, 1, 2, 3); len(got) > 0 {
		t.Errorf("took %v again", got)
	}
	end(t, s, storage.Delivery{Event: 1, Outcome: storage.OutcomeAgain, Reason: "status 500"})
	if got := take(t, s, 1, 3); !slices.Equal(got, []uint64{1}) {
		t.Errorf("after the delivery has ended: took %v", got)
	}
}

// TestRescueDeliveries: what a dead process left under way is ambiguous, counts
// against no limit and goes again at once; what has ended is left alone.
func TestRescueDeliveries(t *testing.T) {
	path := t.TempDir() + "/semel.db"
	s, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	emit(t, s, 4, "a")
	take(t, s, 1, 2, 3)
	end(t, s, storage.Delivery{Event: 2, Outcome: storage.OutcomeDelivered})
	discard(t, s, 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = storagetest.OpenAt(t, path, storage.Options{})
	for _, want := range []int{2, 0} {
		update(t, s, func(tx *storage.Tx) error {
			n, err := tx.RescueDeliveries()
			if n != want {
				t.Errorf("rescued %d, want %d", n, want)
			}
			return err
		})
	}
	type fate struct {
		state            storage.DispatchState
		outcome          storage.DeliveryOutcome
		tries, ambiguous uint32
		waits            bool
	}
	want := map[uint64]fate{
		1: {storage.DispatchPending, storage.OutcomeAmbiguous, 0, 1, false},
		2: {storage.DispatchDelivered, storage.OutcomeDelivered, 0, 0, false},
		3: {storage.DispatchDiscarded, storage.OutcomeAmbiguous, 0, 1, false},
		4: {storage.DispatchPending, "", 0, 0, false},
	}
	for seq, want := range want {
		d := dispatch(t, s, seq)
		if got := (fate{d.State, d.Outcome, d.Tries, d.Ambiguous, !d.Next.IsZero()}); got != want {
			t.Errorf("event %d: %+v, want %+v", seq, got, want)
		}
	}
}

// TestRequeueEvent: from every state an event becomes pending and due, its limits
// begin anew, and its sink is started.
func TestRequeueEvent(t *testing.T) {
	next := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	again := storage.Delivery{Event: 1, Outcome: storage.OutcomeAmbiguous, Reason: "timeout", Counts: true, Next: next}
	dead, delivered := again, again
	dead.Dead, delivered.Outcome = true, storage.OutcomeDelivered
	for name, from := range map[string]func(t *testing.T, s *storage.Store){
		"pending":   func(t *testing.T, s *storage.Store) { end(t, s, again) },
		"dead":      func(t *testing.T, s *storage.Store) { end(t, s, again, dead) },
		"delivered": func(t *testing.T, s *storage.Store) { end(t, s, again, delivered) },
		"discarded": func(t *testing.T, s *storage.Store) { end(t, s, again); discard(t, s, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			s := storagetest.Open(t)
			emit(t, s, 1, "a")
			from(t, s)
			update(t, s, func(tx *storage.Tx) error { return tx.StopSink("a", "status 410") })
			was := dispatch(t, s, 1)
			s.TakeQueued()
			requeue(t, s, 1)
			want := *was
			want.State, want.Requeued = storage.DispatchPending, name != "pending"
			want.Tries, want.First, want.Next = 0, time.Time{}, time.Time{}
			if diff := cmp.Diff(&want, dispatch(t, s, 1)); diff != "" {
				t.Errorf("dispatch (-want +got):\n%s", diff)
			}
			if got := s.TakeQueued(); len(got) != 1 || got["a"] != 0 {
				t.Errorf("announced %v, want that the sink may go on", got)
			}
			view(t, s, func(tx *storage.Tx) error {
				if sink, err := tx.Sink("a"); err != nil || !sink.Stopped.IsZero() {
					t.Errorf("the sink is %+v (%v)", sink, err)
				}
				return nil
			})
			if left := pending(t, s, "a"); len(left) != 1 {
				t.Errorf("%d are pending", len(left))
			}
		})
	}
	s := storagetest.Open(t)
	wantError(t, s.Update(t.Context(), func(tx *storage.Tx) error { return tx.RequeueEvent(1, "a") }), storage.ErrNotFound)
}

// TestDiscardEvent: what waits for a sink or a person is given up, and nothing
// else; a delivery that was under way is noted and changes nothing more.
func TestDiscardEvent(t *testing.T) {
	s := storagetest.Open(t)
	emit(t, s, 3, "a")
	discarding := func(seq uint64, want error) {
		t.Helper()
		wantError(t, s.Update(t.Context(), func(tx *storage.Tx) error { return tx.DiscardEvent(seq, "a") }), want)
	}
	end(t, s, storage.Delivery{Event: 1, Outcome: storage.OutcomeDelivered}, storage.Delivery{Event: 2, Outcome: storage.OutcomeAgain, Dead: true})
	take(t, s, 3)
	discarding(1, storage.ErrTransition)
	discarding(2, nil)
	discarding(2, storage.ErrTransition)
	discarding(3, nil)
	discarding(4, storage.ErrNotFound)
	storagetest.Check(t, s)
	end(t, s, storage.Delivery{Event: 3, Outcome: storage.OutcomeDelivered})
	if d := dispatch(t, s, 3); d.State != storage.DispatchDiscarded || d.Outcome != storage.OutcomeDelivered {
		t.Errorf("discarded while it was under way: %+v", d)
	}
	view(t, s, func(tx *storage.Tx) error {
		if got, want := tx.SinkCounts()["a"], (storage.SinkCounts{Delivered: 2, Redelivered: 1}); got != want {
			t.Errorf("counts %+v, want %+v", got, want)
		}
		return nil
	})
}

// TestPendingEvents: those behind a number, in the order of their commits.
func TestPendingEvents(t *testing.T) {
	s := storagetest.Open(t)
	emit(t, s, 5, "a", "b")
	end(t, s, storage.Delivery{Event: 3, Outcome: storage.OutcomeDelivered})
	for _, test := range []struct {
		after uint64
		limit int
		want  []uint64
	}{{0, 9, []uint64{1, 2, 4, 5}}, {0, 2, []uint64{1, 2}}, {2, 1, []uint64{4}}, {3, 9, []uint64{4, 5}}, {5, 9, nil}, {0, 0, nil}} {
		view(t, s, func(tx *storage.Tx) error {
			events, err := tx.PendingEvents("a", test.after, test.limit)
			var got []uint64
			for _, e := range events {
				got = append(got, e.Seq)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("behind %d, at most %d: %v, want %v", test.after, test.limit, got, test.want)
			}
			return err
		})
	}
}

// TestQueued: what became pending is announced once its commit is durable, by
// sink, and nothing of a step that was undone.
func TestQueued(t *testing.T) {
	s := storagetest.Open(t)
	emit(t, s, 2, "a", "b")
	end(t, s, storage.Delivery{Event: 1, Outcome: storage.OutcomeDelivered})
	<-s.Queued()
	if got, want := s.TakeQueued(), (map[string]uint64{"a": 1, "b": 1}); !cmp.Equal(got, want) {
		t.Errorf("announced %v, want %v", got, want)
	}
	failed := errors.New("half-way")
	wantError(t, s.Update(t.Context(), func(tx *storage.Tx) error { return errors.Join(tx.RequeueEvent(1, "a"), failed) }), failed)
	update(t, s, func(tx *storage.Tx) error {
		err := errors.Join(tx.RequeueEvent(2, "a"), tx.RequeueEvent(1, "a"))
		if got := s.TakeQueued(); len(got) > 0 {
			t.Errorf("announced before the commit: %v", got)
		}
		return err
	})
	<-s.Queued()
	if got, want := s.TakeQueued(), (map[string]uint64{"a": 1}); !cmp.Equal(got, want) {
		t.Errorf("announced %v, want %v", got, want)
	}
	update(t, s, func(tx *storage.Tx) error { return tx.StartSink("b") }) // it was not stopped
	select {
	case <-s.Queued():
		t.Errorf("announced %v", s.TakeQueued())
	default:
	}
}

// TestJobEvents: a job leads to what it was told of by.
func TestJobEvents(t *testing.T) {
	s := storagetest.Open(t)
	sink := storage.Subscription{Sink: "a", Events: []string{storage.EventCreated, storage.EventJobComplete, storage.EventJobFailed}}
	collect(t, s, target("x"), page("x", "1", sink))
	collect(t, s, target("y"), page("y", "1", sink))
	update(t, s, func(tx *storage.Tx) error {
		_, err := tx.RecollectJob(1)
		if err == nil {
			_, err = tx.CancelJob(1, []storage.Subscription{sink})
		}
		return err
	})
	view(t, s, func(tx *storage.Tx) error {
		for job, want := range map[uint64][]string{1: {"1 observation.created", "2 job.complete", "5 job.failed"}, 2: {"3 observation.created", "4 job.complete"}, 3: nil} {
			events, err := tx.JobEvents(job)
			if err != nil {
				return err
			}
			var got []string
			for _, e := range events {
				got = append(got, fmt.Sprint(e.Seq, " ", e.Type))
			}
			if !slices.Equal(got, want) {
				t.Errorf("events of job %d: %v, want %v", job, got, want)
			}
		}
		return nil
	})
}

// TestSavedEvents: an event that a store of an older schema had pending is on its
// way to its sink, and its job leads to it.
func TestSavedEvents(t *testing.T) {
	for schema := 1; schema < storage.Schema; schema++ {
		path := t.TempDir() + "/semel.db"
		unzip(t, fmt.Sprintf("testdata/schema%d.db.gz", schema), path)
		s := storagetest.OpenAt(t, path, storage.Options{})
		view(t, s, func(tx *storage.Tx) error {
			events, err := tx.PendingEvents("alerts", 0, 100)
			if len(events) == 0 || tx.SinkCounts()["alerts"].Pending != int64(len(events)) {
				t.Errorf("schema %d: %d events, counts %+v", schema, len(events), tx.SinkCounts())
			}
			for _, e := range events {
				if d, err := tx.Dispatch(e.Seq, "alerts"); err != nil || d.State != storage.DispatchPending {
					t.Errorf("schema %d: dispatch %+v (%v)", schema, d, err)
				}
				of, err := tx.JobEvents(e.Job)
				if err != nil || !slices.ContainsFunc(of, func(o *storage.Event) bool { return o.Seq == e.Seq }) {
					t.Errorf("schema %d: event %d is not among those of job %d (%v)", schema, e.Seq, e.Job, err)
				}
			}
			return err
		})
	}
}
