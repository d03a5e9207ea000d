package storage_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

// listOf keeps a whole list of n targets, two to a chunk, for windows.
func listOf(t testing.TB, s *storage.Store, n int, windows ...time.Time) (l *storage.List) {
	t.Helper()
	update(t, s, func(tx *storage.Tx) (err error) {
		if l, err = tx.OpenList("s", storage.RunBackfill); err != nil {
			return err
		}
		for _, w := range windows {
			if offered, err := tx.OfferWindow(l, w); err != nil || !offered {
				t.Errorf("offering %s: %v, %v", w, offered, err)
			}
		}
		return nil
	})
	sum := sha256.New()
	for i := 0; i < n; i += 2 {
		chunk := storage.PackTargets(listTargets(i, min(i+2, n)))
		sum.Write(chunk.Plain())
		update(t, s, func(tx *storage.Tx) error { return tx.AddChunk(l, chunk) })
	}
	update(t, s, func(tx *storage.Tx) error { return tx.EndList(l, uint64(n), [sha256.Size]byte(sum.Sum(nil))) })
	return l
}

func listTargets(from, to int) (targets []storage.ListTarget) {
	for i := from; i < to; i++ {
		targets = append(targets, storage.ListTarget{Line: i + 2, Vars: []storage.Var{{Name: "id", Value: fmt.Sprint(i)}, {Name: "empty"}}})
	}
	return targets
}

// A list is read as it was kept, given to its windows in their order, and
// forgotten when the last of them has it.
func TestList(t *testing.T) {
	s := storagetest.Open(t)
	l := listOf(t, s, 5, modelWindows[3], modelWindows[2])
	var got []storage.ListTarget
	view(t, s, func(tx *storage.Tx) error {
		lists, err := tx.Lists("s")
		if err != nil || len(lists) != 1 || !cmp.Equal(lists[0], l) {
			t.Errorf("lists of the source: %v, %v, want %v", lists, err, l)
		}
		if lists, err := tx.Lists("other"); err != nil || len(lists) > 0 {
			t.Errorf("lists of another source: %v, %v", lists, err)
		}
		for chunk := range l.Chunks {
			targets, err := tx.ListTargets(l, chunk)
			if err != nil {
				return err
			}
			got = append(got, targets...)
		}
		return nil
	})
	if diff := cmp.Diff(listTargets(0, 5), got); diff != "" {
		t.Error(diff)
	}
	for _, window := range []time.Time{modelWindows[2], modelWindows[3]} {
		for chunk := range l.Chunks {
			update(t, s, func(tx *storage.Tx) error {
				r, err := tx.NextRun(l)
				if err != nil {
					return err
				}
				ended, err := tx.ChunkMade(l, r, runSinks)
				if ended != (chunk == 2) || !r.Key.Window.Equal(window) || r.Targets != 5 || r.Sum != l.Sum || r.Listing == ended || r.Offered != ended {
					t.Errorf("chunk %d for %s: %v, %+v", chunk, window, ended, r)
				}
				return err
			})
			checkClean(t, s)
		}
	}
	view(t, s, func(tx *storage.Tx) error {
		if _, err := tx.NextRun(l); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("a list that everybody has: %v", err)
		}
		return nil
	})
	for _, want := range []bool{false, true} {
		update(t, s, func(tx *storage.Tx) error {
			gone, err := tx.DropChunks(l, 2)
			if gone != want {
				t.Errorf("dropped whole: %v, want %v", gone, want)
			}
			return err
		})
		checkClean(t, s)
	}
	view(t, s, func(tx *storage.Tx) error {
		lists, err := tx.Lists("s")
		if len(lists) > 0 {
			t.Errorf("lists left: %v", lists)
		}
		return err
	})
	if n := finishedEvents(t, s); n != 2 {
		t.Errorf("%d runs without jobs told that they are over, want 2", n)
	}
}

// A list that was not read to its end is dropped, its windows not.
func TestListReadAgain(t *testing.T) {
	s := storagetest.Open(t)
	l := listOf(t, s, 4, modelWindows[2])
	update(t, s, func(tx *storage.Tx) error {
		gone, err := tx.DropChunks(l, 99)
		if !gone || l.Whole || l.Chunks != 0 {
			t.Errorf("dropped: %v, %+v", gone, l)
		}
		return err
	})
	checkClean(t, s)
	view(t, s, func(tx *storage.Tx) error {
		r, err := tx.NextRun(l)
		if err == nil && !r.Key.Window.Equal(modelWindows[2]) {
			t.Errorf("the window that wants it: %+v", r)
		}
		return err
	})
}

// A window has one list at a time.
func TestWindowIsOfferedOneList(t *testing.T) {
	s := storagetest.Open(t)
	listOf(t, s, 1, modelWindows[2])
	update(t, s, func(tx *storage.Tx) error {
		other, err := tx.OpenList("s", storage.RunWindow)
		if err != nil {
			return err
		}
		for window, want := range map[time.Time]bool{modelWindows[2]: false, modelWindows[3]: true} {
			if offered, err := tx.OfferWindow(other, window); err != nil || offered != want {
				t.Errorf("offering %s: %v, %v", window, offered, err)
			}
		}
		return nil
	})
}

func checkClean(t testing.TB, s *storage.Store) {
	t.Helper()
	if breaches, err := s.Check(); err != nil || len(breaches) > 0 {
		t.Fatalf("check: %v, %v", breaches, err)
	}
}

// A backfill lowers no job that is there, and whoever offers it next raises one
// that a backfill made.
func TestBackfillLowersNothing(t *testing.T) {
	s := storagetest.Open(t)
	at := func(name string, priority int8) storage.NewJob {
		n := target(name)
		n.Priority = priority
		return n
	}
	done := enqueue(t, s, at("a", 5), at("b", storage.PriorityBackfill))
	enqueue(t, s, at("a", storage.PriorityBackfill), at("b", 0))
	view(t, s, func(tx *storage.Tx) error {
		for i, want := range []int8{5, 0} {
			j, err := tx.Job(done[i].ID)
			if err != nil {
				return err
			}
			known, err := tx.Known(at("a", storage.PriorityBackfill))
			if j.Priority != want || !known || err != nil {
				t.Errorf("job %s has priority %d, want %d (known: %v, %v)", j.Key, j.Priority, want, known, err)
			}
		}
		return nil
	})
}

func TestSchedule(t *testing.T) {
	s := storagetest.Open(t)
	want := storage.Schedule{Source: "s", Spec: "@daily", Zone: "Europe/Berlin", Since: modelWindows[2]}
	update(t, s, func(tx *storage.Tx) error {
		if _, err := tx.Schedule("s"); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("a schedule that nobody put: %v", err)
		}
		return errors.Join(tx.PutSource(storage.Source{Name: "s"}), tx.PutSchedule(&want))
	})
	for _, last := range []time.Time{{}, modelWindows[1], modelWindows[3]} {
		want.Last = last
		update(t, s, func(tx *storage.Tx) error { return tx.PutSchedule(&want) })
		view(t, s, func(tx *storage.Tx) error {
			got, err := tx.Schedule("s")
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Error(diff)
			}
			after := modelWindows[2]
			if last.After(after) {
				after = last
			}
			if !got.After().Equal(after) {
				t.Errorf("ticks to come are after %s, want %s", got.After(), after)
			}
			return err
		})
	}
}
