package storage_test

import (
	"context"
	"fmt"
	"slices"
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

// TestPruneAwaited: an event stays as long as it is pending or dead at any sink,
// however old; what was delivered or discarded everywhere goes.
func TestPruneAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		emit(t, s, 5, "a", "b")
		delivered := func(seq uint64) storage.Delivery {
			return storage.Delivery{Event: seq, Outcome: storage.OutcomeDelivered}
		}
		update(t, s, func(tx *storage.Tx) error {
			return tx.EndDeliveries("b", []storage.Delivery{delivered(1), delivered(2), delivered(3), delivered(4)})
		})
		end(t, s, delivered(1), storage.Delivery{Event: 2, Outcome: storage.OutcomeAgain, Dead: true}, delivered(5))
		discard(t, s, 3)
		take(t, s, 4)
		discard(t, s, 4)
		time.Sleep(400 * day)
		for _, want := range []storage.Pruned{{Events: 3}, {}} {
			if done := prune(t, s, storage.Retention{Events: day}); done != want {
				t.Errorf("pruned %+v, want %+v", done, want)
			}
			storagetest.Check(t, s)
		}
		end(t, s, delivered(4)) // it was under way all the time
		if left := underWay(t, s); len(left) > 0 {
			t.Errorf("under way: %v", left)
		}
		if got := listed(t, s, storage.DispatchFilter{}, 9); !slices.Equal(got, []string{"2a dead", "2b delivered", "5a delivered", "5b pending"}) {
			t.Errorf("left are %v", got)
		}
	})
}

// TestReplayAfterPrune: an event can be sent again when the job that it tells of
// was pruned, whatever had become of it, and also after the job's key was taken
// again. The store is right all the while, and the event goes in the end.
func TestReplayAfterPrune(t *testing.T) {
	delivered := storage.Delivery{Event: 1, Outcome: storage.OutcomeDelivered}
	for name, over := range map[string]func(t *testing.T, s *storage.Store){
		"delivered": func(t *testing.T, s *storage.Store) { end(t, s, delivered) },
		"discarded": func(t *testing.T, s *storage.Store) { discard(t, s, 1) },
		"dead": func(t *testing.T, s *storage.Store) {
			end(t, s, storage.Delivery{Event: 1, Outcome: storage.OutcomeAgain, Reason: "status 400", Dead: true})
		},
	} {
		for _, event := range []string{storage.EventCreated, storage.EventJobComplete} {
			t.Run(name+" "+event, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := storagetest.Open(t)
					r := storage.Retention{Attempts: day, Events: 100 * day}
					collect(t, s, onDay("x", 0), page("x", "0", storage.Subscription{Sink: "a", Events: []string{event}}))
					collect(t, s, onDay("x", 1), page("x", "1")) // from now on the row is this job's
					time.Sleep(2 * day)
					if done := prune(t, s, r); done != (storage.Pruned{Attempts: 2}) {
						t.Errorf("while the event is pending: %+v", done)
					}
					over(t, s)
					if done := prune(t, s, r); done != (storage.Pruned{Jobs: 1}) {
						t.Errorf("when it is %s: %+v", name, done)
					}
					storagetest.Check(t, s)
					requeue(t, s, 1)
					storagetest.Check(t, s)
					enqueue(t, s, onDay("x", 0))
					storagetest.Check(t, s)
					time.Sleep(200 * day)
					if done := prune(t, s, r); done != (storage.Pruned{}) {
						t.Errorf("while it is pending again: %+v", done)
					}
					take(t, s, 1)
					end(t, s, delivered)
					if done := prune(t, s, r); done != (storage.Pruned{Events: 1}) {
						t.Errorf("in the end: %+v", done)
					}
				})
			})
		}
	}
}

// TestPruneBesideASilentSink: events that a sink never takes keep the jobs that
// they tell of, and no other.
func TestPruneBesideASilentSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		collect(t, s, onDay("x", 0), page("x", "0", storage.Subscription{Sink: "silent"}))
		for n := 1; n < 4; n++ {
			collect(t, s, onDay("x", n), page("x", fmt.Sprint(n)))
		}
		time.Sleep(2 * day)
		if done := prune(t, s, storage.Retention{Attempts: day}); done != (storage.Pruned{Attempts: 4, Jobs: 2}) {
			t.Errorf("pruned %+v", done)
		}
	})
}

// TestPruneAfterAClockWasSetBack: a job stays for its pending event, also where an
// event that was committed before it is younger.
func TestPruneAfterAClockWasSetBack(t *testing.T) {
	now := monday.Add(10 * day)
	s := storagetest.OpenAt(t, t.TempDir()+"/semel.db", storage.Options{Now: func() time.Time { return now }})
	sink := storage.Subscription{Sink: "a"}
	collect(t, s, onDay("x", 0), page("x", "0", sink))
	now = now.Add(-5 * day)
	collect(t, s, onDay("x", 1), page("x", "1", sink))
	collect(t, s, onDay("x", 2), page("x", "2", sink))
	now = now.Add(4 * day)
	done, err := s.Prune(t.Context(), now, storage.Retention{Attempts: day})
	if err != nil || done.Jobs > 0 {
		t.Errorf("pruned %+v (%v)", done, err)
	}
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
