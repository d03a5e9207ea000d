package storage_test

import (
	"testing"

	"semel/storage"
	"semel/storage/storagetest"
)

var runSinks = []storage.Subscription{{Sink: "all"}}

func getRun(t testing.TB, s *storage.Store, id uint64) (r *storage.Run) {
	t.Helper()
	view(t, s, func(tx *storage.Tx) (err error) {
		r, err = tx.Run(id)
		return err
	})
	return r
}

// windowed is a job of source s in a window.
func windowed(name string) storage.NewJob {
	n := target(name)
	n.Window = modelWindows[2]
	n.Key.Window = n.Window
	return n
}

func completeNext(t testing.TB, s *storage.Store) {
	t.Helper()
	j := claimOne(t, s)
	update(t, s, func(tx *storage.Tx) error {
		_, err := tx.CompleteJob(j.Lease(), storage.Completion{Mode: storage.WriteUpsert, Sinks: runSinks})
		return err
	})
}

func finishedEvents(t testing.TB, s *storage.Store) (n int) {
	t.Helper()
	view(t, s, func(tx *storage.Tx) error {
		events, err := tx.PendingEvents("all", 0, 100)
		for _, e := range events {
			if e.Type == storage.EventRunFinished {
				n++
			}
		}
		return err
	})
	return n
}

// A run is over once, and not before all its targets were offered.
func TestRunFinishesOnce(t *testing.T) {
	s := storagetest.Open(t)
	var run *storage.Run
	update(t, s, func(tx *storage.Tx) (err error) {
		run, err = tx.OpenRun(storage.RunKey{Source: "s", Window: modelWindows[2]}, storage.RunTick)
		if err == nil {
			tx.BeginListing(run)
		}
		return err
	})
	enqueue(t, s, windowed("a"))
	completeNext(t, s)
	if r := getRun(t, s, run.ID); r.Jobs != 1 || r.Complete() != 1 || !r.Finished.IsZero() {
		t.Fatalf("while its targets are offered: %+v", r)
	}
	enqueue(t, s, windowed("b"))
	update(t, s, func(tx *storage.Tx) error { return tx.EndListing(mustRun(t, tx, run.ID), runSinks) })
	if n := finishedEvents(t, s); n != 0 {
		t.Fatalf("%d events before its last job", n)
	}
	completeNext(t, s)
	finished := getRun(t, s, run.ID).Finished
	enqueue(t, s, windowed("c"))
	completeNext(t, s)
	r := getRun(t, s, run.ID)
	if n := finishedEvents(t, s); n != 1 || r.Jobs != 3 || finished.IsZero() || !r.Finished.Equal(finished) {
		t.Errorf("%d events, finished %v: %+v", n, finished, r)
	}
}

func mustRun(t testing.TB, tx *storage.Tx, id uint64) *storage.Run {
	t.Helper()
	r, err := tx.Run(id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
