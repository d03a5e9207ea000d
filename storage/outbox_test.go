package storage_test

import (
	"context"
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
	if e, err := s.FindEvent(t.Context(), updates[0].ID); err != nil || e.Seq != updates[2].Seq {
		t.Errorf("what came true again: %+v, %v, want event %d", e, err, updates[2].Seq)
	}
	_, err = s.FindEvent(t.Context(), "evt_none")
	wantError(t, err, storage.ErrNotFound)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.FindEvent(ctx, all[0].ID)
	wantError(t, err, context.Canceled)
}
