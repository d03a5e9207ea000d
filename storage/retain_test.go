package storage_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

const day = 24 * time.Hour

// monday is a window, and so are the days after it.
var monday = time.Date(2026, 4, 20, 0, 0, 0, 0, time.UTC)

// onDay is a job for the day that comes n days after monday.
func onDay(name string, n int) storage.NewJob {
	return inWindow(name, monday.Add(time.Duration(n)*day))
}

func prune(t testing.TB, s *storage.Store, r storage.Retention) storage.Pruned {
	t.Helper()
	done, err := s.Prune(t.Context(), time.Now(), r)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// page is a completion with one record, told to some sinks.
func page(key, value string, sinks ...storage.Subscription) storage.Completion {
	c := record(storage.WriteUpsert, 1, key, value)
	c.Sinks = sinks
	return c
}

// stories are the keys of all jobs, each with its number of attempts.
func stories(t testing.TB, s *storage.Store) map[string]int {
	t.Helper()
	found := map[string]int{}
	view(t, s, func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, 1<<30, func(j *storage.Job) bool {
			attempts, err := tx.Attempts(j.ID)
			if err != nil {
				t.Error(err)
			}
			found[j.Key.String()] = len(attempts)
			return true
		})
		return err
	})
	return found
}

// TestPruneJobs: of jobs that ended long ago the attempts go, and the job itself
// only where its key has a window and no observation came from it; nothing else
// changes, and what was counted stays counted.
func TestPruneJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		collect(t, s, target("no window"), page("no window", "x"))
		collect(t, s, onDay("superseded", 0), page("superseded", "x"))
		collect(t, s, onDay("superseded", 1), page("superseded", "y")) // cited from now on
		collect(t, s, onDay("page", 0), page("row of another name", "x"))
		recorded := onDay("recorded", 0)
		recorded.Key.Window = time.Time{} // a window that is no part of the identity
		collect(t, s, recorded, page("superseded too", "x"))
		failed, waiting, running := onDay("failed", 0), onDay("waiting", 0), onDay("running", 0)
		enqueue(t, s, failed, target("failed"), waiting, running)
		jobs := claim(t, s, 4)
		update(t, s, func(tx *storage.Tx) error {
			for _, j := range jobs[:2] {
				if err := tx.FailJob(j.Lease(), storage.Attempt{Category: storage.CategoryTLS}, storage.Failure{Category: storage.CategoryTLS}); err != nil {
					return err
				}
			}
			return tx.RetryJob(jobs[2].Lease(), storage.Attempt{Category: storage.CategoryDNS}, tx.Now.Add(365*day))
		})
		last := onDay("pending", 0)
		last.Priority = -1
		enqueue(t, s, last)
		before := counters(t, s, "s")

		time.Sleep(90 * day)
		if done := prune(t, s, storage.Retention{Attempts: 91 * day}); done != (storage.Pruned{}) {
			t.Errorf("a day too early: %+v", done)
		}
		if done := prune(t, s, storage.Retention{}); done != (storage.Pruned{}) {
			t.Errorf("for ever: %+v", done)
		}
		collect(t, s, onDay("young", 9), page("young", "x"))
		collect(t, s, onDay("young", 10), page("young", "y"))
		done := prune(t, s, storage.Retention{Attempts: 90*day - time.Minute})
		if want := (storage.Pruned{Attempts: 7, Jobs: 2}); done != want {
			t.Errorf("pruned %+v, want %+v", done, want)
		}
		want := map[string]int{
			target("no window").Key.String():    0,
			onDay("superseded", 1).Key.String(): 0,
			onDay("page", 0).Key.String():       0,
			recorded.Key.String():               0,
			target("failed").Key.String():       0,
			waiting.Key.String():                1,
			running.Key.String():                0,
			last.Key.String():                   0,
			onDay("young", 9).Key.String():      1,
			onDay("young", 10).Key.String():     1,
		}
		if diff := cmp.Diff(want, stories(t, s)); diff != "" {
			t.Errorf("jobs and attempts (-want +got):\n%s", diff)
		}
		after := counters(t, s, "s")
		if n := after[storage.MetricAttempts]; n != before[storage.MetricAttempts]+2 {
			t.Errorf("%d attempts are counted, before it were %d and two more", n, before[storage.MetricAttempts])
		}
		if after.State(storage.StateComplete) != 6 || after.State(storage.StateFailed) != 1 || after[storage.MetricFailures+"tls"] != 1 {
			t.Errorf("counters %v", after)
		}
		if again := prune(t, s, storage.Retention{Attempts: 90*day - time.Minute}); again != (storage.Pruned{}) {
			t.Errorf("the second time: %+v", again)
		}
	})
}

// TestForgottenWindow: who asks for a forgotten window by name gets it again,
// and it changes no newer fact.
func TestForgottenWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		collect(t, s, onDay("a", 0), page("a", "old"))
		collect(t, s, onDay("a", 1), page("a", "new"))
		time.Sleep(10 * day)
		if done := prune(t, s, storage.Retention{Attempts: day}); done.Jobs != 1 {
			t.Fatalf("pruned %+v", done)
		}
		if e := enqueue(t, s, onDay("a", 1)); e[0].New {
			t.Error("the job of the window that counts was forgotten")
		}
		collect(t, s, onDay("a", 0), page("a", "older still"))
		rows := observations(t, s, "s")
		if len(rows) != 1 || string(rows[0].Data) != `{"v":"new"}` || counters(t, s, "s")[storage.MetricDuplicates] != 1 {
			t.Errorf("observations %+v", rows)
		}
	})
}

// TestPruneEvents: an event goes when it is old and no sink waits for it, and
// until then the jobs it may name stay.
func TestPruneEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		both := []storage.Subscription{{Sink: "a"}, {Sink: "b"}}
		collect(t, s, onDay("x", 0), page("x", "0"))
		time.Sleep(time.Second)
		collect(t, s, onDay("x", 1), page("x", "1", both...))
		collect(t, s, onDay("x", 2), page("x", "2", both...))
		ack := func(sink string, seqs ...uint64) {
			update(t, s, func(tx *storage.Tx) error { return tx.Deliver(sink, seqs) })
		}
		ack("a", 1, 2, 2, 77)
		ack("b", 2)
		r := storage.Retention{Attempts: day, Events: day}
		time.Sleep(2 * day)
		collect(t, s, onDay("y", 1), page("y", "1", both...))
		if done := prune(t, s, r); done != (storage.Pruned{Attempts: 3, Jobs: 1, Events: 1}) {
			t.Errorf("while sink b waits for the first event: %+v", done)
		}
		if left := pending(t, s, "b"); len(left) != 2 || left[0].Seq != 1 || left[1].Seq != 3 {
			t.Errorf("sink b waits for %v", left)
		}
		ack("b", 1)
		if done := prune(t, s, r); done != (storage.Pruned{Jobs: 1, Events: 1}) {
			t.Errorf("when nobody waits for it: %+v", done)
		}
		view(t, s, func(tx *storage.Tx) error {
			if c := tx.Counters(""); c[storage.MetricDelivered+"a"] != 2 || c[storage.MetricDelivered+"b"] != 2 {
				t.Errorf("delivered: %v", c)
			}
			return nil
		})
	})
}

// TestEventsOutliveTheirJobs: events that all sinks have stay when the job they
// tell of is forgotten, and when its key is taken again. storagetest checks the
// store.
func TestEventsOutliveTheirJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		sink := storage.Subscription{Sink: "a", Events: []string{storage.EventCreated, storage.EventUpdated, storage.EventJobComplete}}
		collect(t, s, onDay("x", 0), page("x", "0", sink))
		time.Sleep(time.Second)
		collect(t, s, onDay("x", 1), page("x", "1", sink))
		update(t, s, func(tx *storage.Tx) error { return tx.Deliver("a", []uint64{1, 2, 3, 4}) })
		time.Sleep(2 * day)
		if done := prune(t, s, storage.Retention{Attempts: day}); done != (storage.Pruned{Attempts: 2, Jobs: 1}) {
			t.Fatalf("pruned %+v", done)
		}
		storagetest.Check(t, s)
		enqueue(t, s, onDay("x", 0))
	})
}

// TestPruneRobots: a robots.txt goes a week after it was fetched last.
func TestPruneRobots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		put := func(origin string) {
			update(t, s, func(tx *storage.Tx) error { return tx.PutRobots(origin, 200, []byte("User-agent: *")) })
		}
		put("http://old")
		put("http://kept")
		time.Sleep(6 * day)
		put("http://kept")
		time.Sleep(day + time.Second)
		if done := prune(t, s, storage.Retention{}); done != (storage.Pruned{Robots: 1}) {
			t.Errorf("pruned %+v", done)
		}
		view(t, s, func(tx *storage.Tx) error {
			_, old, _ := tx.Robots("http://old")
			_, kept, _ := tx.Robots("http://kept")
			if old || !kept {
				t.Errorf("old is there: %v, kept is there: %v", old, kept)
			}
			return nil
		})
	})
}

// TestTrend: what came today and yesterday stands against the week before, and
// older days are forgotten.
func TestTrend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight UTC
		s := storagetest.Open(t)
		for n := range 15 { // n attempts on day n
			for i := range n {
				collect(t, s, target(fmt.Sprint(n, " ", i)), page(fmt.Sprint(n, " ", i), "x"))
			}
			time.Sleep(day)
		}
		now := time.Now().Add(-time.Second) // still on the last day
		recent, before := counters(t, s, "s").Trend(storage.MetricAttempts, now)
		if recent != 14+13 || before != 12+11+10+9+8+7+6 {
			t.Errorf("recent %d, before %d", recent, before)
		}
		had := len(counters(t, s, "s"))
		time.Sleep(25 * day) // to day 40
		prune(t, s, storage.Retention{})
		left := counters(t, s, "s")
		if r, b := left.Trend(storage.MetricAttempts, now); r != recent || b != before {
			t.Errorf("after pruning: recent %d, before %d", r, b)
		}
		if gone := had - len(left); gone != 2*4 { // attempts, and those that completed, of days 1 to 4; day 0 had none
			t.Errorf("%d daily counts are gone", gone)
		}
	})
}

// TestPruneStops: with its context over it does no more, and what it did holds.
func TestPruneStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		collect(t, s, target("a"), page("a", "x"))
		time.Sleep(2 * day)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Prune(ctx, time.Now(), storage.Retention{Attempts: day})
		wantError(t, err, context.Canceled)
		if n := stories(t, s)[target("a").Key.String()]; n != 1 {
			t.Errorf("it pruned all the same: %d attempts", n)
		}
	})
}
