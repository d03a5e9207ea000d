package delivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"semel/storage"
)

func TestDeliversAllInOrderOfKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: func(_ context.Context, name string, try int) Result {
			time.Sleep(time.Millisecond)
			return ok
		}}
		r := setup(t, sink("a", 4, c))
		emit(t, r.store, []string{"a"}, append(versions("x", 20), rows("k", 600)...)...)
		report := r.once()
		if report.Delivered != 620 || report.Dead != 0 || report.Undelivered != 0 || len(report.Waiting) != 0 {
			t.Errorf("report: %+v", report)
		}
		if len(c.all) != 620 || c.most != 4 || len(c.faults) > 0 || !c.closed {
			t.Errorf("%d deliveries, %d at once, faults %v, closed %v", len(c.all), c.most, c.faults, c.closed)
		}
		var want []string
		for _, f := range versions("x", 20) {
			want = append(want, f.key+"="+f.value)
		}
		wantNames(t, "order of x", of("x", c.all), want...)
		if taken := r.taken("a"); len(taken) > 0 {
			t.Errorf("still taken: %v", taken)
		}
		if d := r.dispatch("a", "x=20"); d.State != storage.DispatchDelivered || d.Tries != 1 {
			t.Errorf("x=20: %+v", d)
		}
	})
}

// failing answers so for some facts and otherwise that all is well.
func failing(with Result, names ...string) func(context.Context, string, int) Result {
	return func(_ context.Context, name string, _ int) Result {
		if slices.Contains(names, name) {
			return with
		}
		return ok
	}
}

func TestLaterEventsOfAKeyWaitForARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: func(_ context.Context, name string, try int) Result {
			if name == "x=2" && try < 4 {
				return again
			}
			return ok
		}}
		r := setup(t, sink("a", 4, c))
		emit(t, r.store, []string{"a"}, append(versions("x", 3), rows("k", 50)...)...)
		r.once()
		wantNames(t, "deliveries of x", of("x", c.all), "x=1", "x=2", "x=2", "x=2", "x=2", "x=3")
		if n := slices.Index(c.all, "x=3"); n != len(c.all)-1 {
			t.Errorf("the others waited: x=3 was delivery %d of %d", n, len(c.all))
		}
	})
}

// TestWhatPassesBurnsNoAttempt: a sink that asks for patience gets it, beyond the
// limit of attempts.
func TestWhatPassesBurnsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: func(_ context.Context, _ string, try int) Result {
			if try < 4 {
				return Result{Outcome: storage.OutcomeAgain, Reason: "429", Passing: true}
			}
			return ok
		}}
		a := sink("a", 1, c)
		a.Limits.Attempts = 2
		r := setup(t, a)
		emit(t, r.store, []string{"a"}, versions("x", 1)...)
		r.once()
		if d := r.dispatch("a", "x=1"); d.State != storage.DispatchDelivered || d.Tries != 1 || len(c.all) < 4 {
			t.Errorf("after %d deliveries: %+v", len(c.all), d)
		}
	})
}

// TestWhatPassesWaitsLonger: an event that fails for now, over and over, while
// others arrive, is tried ever less often.
func TestWhatPassesWaitsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: failing(Result{Outcome: storage.OutcomeAgain, Reason: "exit status 75", Passing: true}, "x=1")}
		r := setup(t, sink("a", 1, c))
		emit(t, r.store, []string{"a"}, versions("x", 1)...)
		_, stop := r.start()
		for n := range 600 {
			emit(t, r.store, []string{"a"}, rows(fmt.Sprint("k", n), 1)...)
			pass(time.Second)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if n := c.tries["x=1"]; n < 8 || n > 12 {
			t.Errorf("%d deliveries in ten minutes", n)
		}
	})
}

func TestADeadEventNoLongerHoldsItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: failing(again, "x=1")}
		a := sink("a", 1, c)
		a.Limits.Attempts = 3
		r := setup(t, a)
		emit(t, r.store, []string{"a"}, versions("x", 2)...)
		report := r.once()
		wantNames(t, "deliveries", c.all, "x=1", "x=1", "x=1", "x=2")
		if d := r.dispatch("a", "x=1"); d.State != storage.DispatchDead || d.Tries != 3 || d.Reason != "503" {
			t.Errorf("x=1: %+v", d)
		}
		if report.Dead != 1 || report.Delivered != 1 || report.Undelivered != 0 {
			t.Errorf("report: %+v", report)
		}
		if log := r.logged(); !strings.Contains(log, "given up") || !strings.Contains(log, "sink=a event=evt_") || !strings.Contains(log, "reason=503") {
			t.Errorf("log: %s", log)
		}
	})
}

func TestTimeIsALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: failing(maybe, "x=1")}
		a := sink("a", 1, c)
		a.Limits = Limits{Attempts: 1000, Time: time.Minute}
		r := setup(t, a)
		emit(t, r.store, []string{"a"}, versions("x", 1)...)
		_, stop := r.start()
		pass(time.Hour)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		d := r.dispatch("a", "x=1")
		if over := d.Last.Sub(d.First); d.State != storage.DispatchDead || over < time.Minute || over > 3*time.Minute {
			t.Errorf("after %s: %+v", over, d)
		}
		if int(d.Ambiguous) != len(c.all) {
			t.Errorf("%d deliveries, %d of them ambiguous", len(c.all), d.Ambiguous)
		}
	})
}

func TestBackoffIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: func(_ context.Context, name string, try int) Result {
			if name == "x=1" && try < 5 {
				return again
			}
			return ok
		}}
		r := setup(t, sink("a", 2, c))
		emit(t, r.store, []string{"a"}, versions("x", 1)...)
		r.once()
		id := ""
		if err := r.store.View(func(tx *storage.Tx) error {
			e, err := tx.Event(1)
			id = e.ID
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for n := 1; n < len(c.times); n++ {
			want := delay(id, uint32(n))
			if got := c.times[n].Sub(c.times[n-1]); got < want.Truncate(time.Microsecond) || got > want+time.Microsecond {
				t.Errorf("wait %d: %s, want %s", n, got, want)
			}
		}
		if len(c.times) != 5 {
			t.Errorf("%d deliveries", len(c.times))
		}
	})
}

// TestAClockThatGoesBack: what is due in a year by the clock that was is due in an
// hour.
func TestAClockThatGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{}
		r := setup(t, sink("a", 1, c))
		emit(t, r.store, []string{"a"}, versions("x", 2)...)
		if err := r.store.Update(t.Context(), func(tx *storage.Tx) error {
			return tx.EndDeliveries("a", []storage.Delivery{{Event: 1, Outcome: storage.OutcomeAgain, Reason: "500", Next: tx.Now.AddDate(1, 0, 0)}})
		}); err != nil {
			t.Fatal(err)
		}
		_, stop := r.start()
		pass(maxDelay)
		wantNames(t, "arrived", c.got, "x=1", "x=2")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestADeadSinkHoldsBackNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context, _ string, _ int) Result {
			<-ctx.Done()
			return maybe
		}
		bad, good := &consumer{answer: hang}, &consumer{}
		r := setup(t, sink("bad", 4, bad), sink("good", 4, good))
		_, stop := r.start()
		began := time.Now()
		for i := range 10 { // the committing goes on, too
			emit(t, r.store, []string{"bad", "good"}, rows(fmt.Sprintf("k%d-", i), 100)...)
			synctest.Wait()
		}
		if len(good.got) != 1000 || !time.Now().Equal(began) {
			t.Errorf("%d events of 1000 arrived after %s", len(good.got), time.Since(began))
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestASinkThatIsDownIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up time.Time
		c := &consumer{answer: func(_ context.Context, name string, _ int) Result {
			if time.Now().Before(up) || name == "k5=1" {
				return again
			}
			return ok
		}}
		r := setup(t, sink("a", 1, c))
		up = time.Now().Add(20 * time.Second)
		emit(t, r.store, []string{"a"}, rows("k", 100)...)
		d, stop := r.start()
		pass(19 * time.Second)
		if p := d.Pauses()["a"]; p.Reason != "503" || !p.Until.Equal(up.Add(11*time.Second)) {
			t.Errorf("pause %+v", p)
		}
		// Five in a row, and probes after 1, 2, 4 and 8 s more.
		wantNames(t, "before", c.all, "k0=1", "k1=1", "k2=1", "k3=1", "k4=1", "k5=1", "k6=1", "k7=1", "k8=1")
		for name, tries := range map[string]uint32{"k4=1": 1, "k5=1": 0, "k8=1": 0} {
			if d := r.dispatch("a", name); d.Tries != tries || d.Outcome != storage.OutcomeAgain {
				t.Errorf("%s: %+v, want %d tries", name, d, tries)
			}
		}
		pass(20 * time.Second) // the probe after 16 s more opens it
		if len(c.got) != 99 {
			t.Errorf("%d events arrived", len(c.got))
		}
		if p := d.Pauses(); len(p) != 0 {
			t.Errorf("pauses %+v of a sink that is back", p)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		log := r.logged()
		for _, want := range []string{"a sink is paused", "sink=a reason=503 failing_since=2000-01-01T00:00:00Z waiting=100 next_try=", "a sink is back", "after=31s"} {
			if !strings.Contains(log, want) {
				t.Errorf("log lacks %q:\n%s", want, log)
			}
		}
		if n := strings.Count(log, "\n"); n != 2 {
			t.Errorf("%d lines:\n%s", n, log)
		}
	})
}

func TestProbesGoAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up time.Time
		poison := []string{"k0=1", "k1=1", "k2=1"}
		c := &consumer{answer: func(_ context.Context, name string, _ int) Result {
			if time.Now().Before(up) || slices.Contains(poison, name) {
				return again
			}
			return ok
		}}
		r := setup(t, sink("a", 4, c))
		up = time.Now().Add(3 * time.Minute)
		emit(t, r.store, []string{"a"}, rows("k", 4)...)
		_, stop := r.start()
		pass(30 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		var probes []string
		for i, at := range c.times {
			if i >= 5 && at.Before(up.Add(10*time.Minute)) {
				probes = append(probes, c.all[i])
			}
		}
		for i := 1; i < min(len(probes), 8); i++ { // each of the four has its turn
			before, _ := strconv.Atoi(probes[i-1][1:2])
			if want := fmt.Sprintf("k%d=1", (before+1)%4); probes[i] != want {
				t.Errorf("probes %v: after %s comes %s", probes, probes[i-1], probes[i])
			}
		}
		wantNames(t, "arrived", c.got, "k3=1")
	})
}

func TestRetryAfterHoldsBackTheSink(t *testing.T) {
	for _, test := range []struct {
		name        string
		asked, want time.Duration
	}{
		{"as asked", 90 * time.Second, 90 * time.Second},
		{"an hour at most", 48 * time.Hour, time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &consumer{answer: func(_ context.Context, name string, try int) Result {
					if name == "k0=1" && try == 1 {
						return Result{Outcome: storage.OutcomeAgain, Reason: "429", RetryAfter: test.asked}
					}
					return ok
				}}
				r := setup(t, sink("a", 1, c))
				emit(t, r.store, []string{"a"}, rows("k", 300)...)
				_, stop := r.start()
				if len(c.all) != 1 || len(r.taken("a")) != 0 {
					t.Errorf("%d deliveries, %d still taken", len(c.all), len(r.taken("a")))
				}
				pass(2 * time.Hour)
				if wait := c.times[1].Sub(c.times[0]); wait != test.want || len(c.got) != 300 {
					t.Errorf("%d events arrived, the next one after %s", len(c.got), wait)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if log := r.logged(); strings.Count(log, "asked for a pause") != 1 {
					t.Errorf("log: %s", log)
				}
			})
		})
	}
}

func TestASinkThatWantsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := true
		c := &consumer{answer: func(context.Context, string, int) Result {
			if gone {
				return Result{Outcome: storage.OutcomeAgain, Reason: "410", Stop: true}
			}
			return ok
		}}
		r := setup(t, sink("a", 1, c))
		emit(t, r.store, []string{"a"}, rows("k", 300)...)
		d, stop := r.start()
		pass(24 * time.Hour)
		emit(t, r.store, []string{"a"}, rows("l", 1)...)
		synctest.Wait()
		if len(c.all) != 1 || len(r.taken("a")) != 0 {
			t.Errorf("%d deliveries, taken %v", len(c.all), r.taken("a"))
		}
		report := r.report(d)
		if want := map[string]string{"a": "it is stopped: 410"}; report.Undelivered != 301 || !maps.Equal(report.Waiting, want) {
			t.Errorf("report: %+v", report)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if report := r.once(); report.Undelivered != 301 || len(c.all) != 1 {
			t.Errorf("after a restart: %+v, %d deliveries", report, len(c.all))
		}
		c.closed, gone = false, false
		_, stop = r.start()
		if n := strings.Count(r.logged(), "a sink wants no more events"); n != 3 {
			t.Errorf("it was told %d times in 3 runs", n)
		}
		if err := r.store.Update(t.Context(), func(tx *storage.Tx) error { return tx.StartSink("a") }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(c.got) != 301 {
			t.Errorf("%d events arrived after it was started again", len(c.got))
		}
		if d := r.dispatch("a", "k0=1"); d.State != storage.DispatchDelivered || d.Tries != 1 {
			t.Errorf("k0: %+v", d)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// Also while it is written down that a sink wants no more, nothing is sent to it.
func TestAStopHoldsWhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: func(context.Context, string, int) Result {
			return Result{Outcome: storage.OutcomeAgain, Stop: true}
		}}
		r := setup(t, sink("a", 1, c))
		r.update = func(ctx context.Context, fn func(*storage.Tx) error) error {
			time.Sleep(time.Second)
			return r.store.Update(context.WithoutCancel(ctx), fn)
		}
		emit(t, r.store, []string{"a"}, rows("k", 20)...)
		_, stop := r.start()
		pass(2500 * time.Millisecond) // one to take over, one to take, half of the one to stop
		emit(t, r.store, []string{"a"}, rows("l", 1)...)
		pass(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if len(c.all) != 1 || !strings.Contains(r.logged(), "it said so") {
			t.Errorf("%d deliveries:\n%s", len(c.all), r.logged())
		}
	})
}

func TestWhatADeadProcessHadUnderWayGoesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{}
		r := setup(t, sink("a", 1, c))
		emit(t, r.store, []string{"a"}, rows("k", 3)...)
		if err := r.store.Update(t.Context(), func(tx *storage.Tx) error {
			_, err := tx.TakeEvents("a", []uint64{1, 2})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		r.once()
		wantNames(t, "deliveries", c.all, "k0=1", "k1=1", "k2=1")
		if d := r.dispatch("a", "k1=1"); d.Ambiguous != 1 || d.State != storage.DispatchDelivered {
			t.Errorf("k1: %+v", d)
		}
		if d := r.dispatch("a", "k2=1"); d.Ambiguous != 0 {
			t.Errorf("k2: %+v", d)
		}
		if log := r.logged(); !strings.Contains(log, "when a process died") || !strings.Contains(log, "events=2") {
			t.Errorf("log: %s", log)
		}
	})
}

func TestACleanStopGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: func(ctx context.Context, name string, _ int) Result {
			wait := 5 * time.Second
			if name == "k1=1" {
				wait = 9 * time.Second // longer than grace
			}
			select {
			case <-time.After(wait):
				return ok
			case <-ctx.Done():
				return maybe
			}
		}}
		r := setup(t, sink("a", 2, c))
		emit(t, r.store, []string{"a"}, rows("k", 50)...)
		_, stop := r.start()
		if n := len(r.taken("a")); n != 16 {
			t.Errorf("%d events are taken", n)
		}
		began := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != r.grace {
			t.Errorf("the stop took %s", d)
		}
		wantNames(t, "begun", sorted(c.all), "k0=1", "k1=1")
		if taken := r.taken("a"); len(taken) != 0 {
			t.Errorf("still taken: %v", taken)
		}
		for name, want := range map[string]storage.Dispatch{
			"k0=1": {State: storage.DispatchDelivered, Tries: 1, Outcome: storage.OutcomeDelivered},
			"k1=1": {State: storage.DispatchPending, Ambiguous: 1, Outcome: storage.OutcomeAmbiguous},
			"k2=1": {State: storage.DispatchPending},
		} {
			d := r.dispatch("a", name)
			if d.State != want.State || d.Tries != want.Tries || d.Ambiguous != want.Ambiguous || d.Outcome != want.Outcome {
				t.Errorf("%s: %+v", name, d)
			}
		}
	})
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

func TestRequeuedWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		poisoned := true
		c := &consumer{answer: func(_ context.Context, name string, _ int) Result {
			if poisoned && name == "k7=1" {
				return again
			}
			return ok
		}}
		a := sink("a", 2, c)
		a.Limits.Attempts = 2
		r := setup(t, a)
		emit(t, r.store, []string{"a"}, rows("k", 20)...)
		_, stop := r.start()
		pass(time.Minute)
		if d := r.dispatch("a", "k7=1"); d.State != storage.DispatchDead {
			t.Fatalf("k7: %+v", d)
		}
		poisoned = false
		r.requeue("a", "k7=1")
		r.requeue("a", "k3=1")
		synctest.Wait()
		wantNames(t, "last", c.all[len(c.all)-2:], "k7=1", "k3=1")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if n := c.tries["k3=1"]; n != 2 {
			t.Errorf("k3 went %d times", n)
		}
	})
}

func TestRequeuedIsDueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: func(_ context.Context, name string, try int) Result {
			if name == "x=1" && try <= 4 {
				return again
			}
			return ok
		}}
		r := setup(t, sink("a", 2, c))
		emit(t, r.store, []string{"a"}, versions("x", 2)...)
		_, stop := r.start()
		pass(7500 * time.Millisecond) // three or four have failed
		tries := len(c.all)
		r.requeue("a", "x=1")
		synctest.Wait()
		if len(c.all) == tries {
			t.Error("what was requeued waits")
		}
		pass(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		wantNames(t, "arrived", c.got, "x=1", "x=2")
	})
}

func TestDiscardedIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: func(context.Context, string, int) Result { return again }}
		r := setup(t, sink("a", 1, c))
		emit(t, r.store, []string{"a"}, versions("x", 1)...)
		_, stop := r.start()
		if err := r.store.Update(t.Context(), func(tx *storage.Tx) error { return tx.DiscardEvent(1, "a") }); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if len(c.all) != 1 {
			t.Errorf("%d deliveries", len(c.all))
		}
	})
}

// TestDiscardedHoldsNoKey: those behind an event that a person gives up go at
// once, also where it is under way just then.
func TestDiscardedHoldsNoKey(t *testing.T) {
	for name, underWay := range map[string]time.Duration{"waiting": 0, "under way": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &consumer{answer: func(_ context.Context, name string, _ int) Result {
					if name == "x=1" {
						time.Sleep(underWay)
						return again
					}
					return ok
				}}
				r := setup(t, sink("a", 2, c))
				emit(t, r.store, []string{"a"}, versions("x", 3)...)
				if err := r.store.Update(t.Context(), func(tx *storage.Tx) error {
					return tx.EndDeliveries("a", []storage.Delivery{{Event: 1, Outcome: storage.OutcomeAgain, Reason: "500", Counts: true}})
				}); err != nil {
					t.Fatal(err)
				}
				_, stop := r.start()
				if err := r.store.Update(t.Context(), func(tx *storage.Tx) error { return tx.DiscardEvent(1, "a") }); err != nil {
					t.Fatal(err)
				}
				pass(underWay)
				wantNames(t, "deliveries", c.all, "x=1", "x=2", "x=3")
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if d := r.dispatch("a", "x=1"); d.State != storage.DispatchDiscarded || d.Tries != 2 {
					t.Errorf("x=1: %+v", d)
				}
			})
		})
	}
}

func TestAFullDiskIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{}
		r := setup(t, sink("a", 1, c))
		var full atomic.Bool
		r.update = func(ctx context.Context, fn func(*storage.Tx) error) error {
			for full.Load() {
				select {
				case <-ctx.Done():
					return storage.ErrFull
				case <-time.After(time.Second):
				}
			}
			return r.store.Update(context.WithoutCancel(ctx), fn)
		}
		_, stop := r.start()
		full.Store(true)
		emit(t, r.store, []string{"a"}, rows("k", 20)...)
		pass(time.Minute)
		if len(c.all) != 0 {
			t.Errorf("%d events were sent before they were noted", len(c.all))
		}
		full.Store(false)
		pass(time.Minute)
		if len(c.got) != 20 {
			t.Errorf("%d events arrived", len(c.got))
		}
		full.Store(true)
		emit(t, r.store, []string{"a"}, rows("l", 20)...)
		pass(time.Minute)
		began := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 0 || !strings.Contains(r.logged(), "could not be written before the stop") {
			t.Errorf("the stop took %s:\n%s", d, r.logged())
		}
	})
}

func TestAStoppedStoreEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: func(ctx context.Context, _ string, _ int) Result {
			<-ctx.Done()
			return maybe
		}}
		r := setup(t, sink("a", 1, c), sink("b", 1, &consumer{}))
		var broken atomic.Bool
		r.update = func(ctx context.Context, fn func(*storage.Tx) error) error {
			if broken.Load() {
				return storage.ErrStopped
			}
			return r.store.Update(ctx, fn)
		}
		emit(t, r.store, []string{"a"}, rows("k", 20)...)
		ended := make(chan error, 1)
		go func() { ended <- r.dispatcher().Run(t.Context(), nil) }()
		synctest.Wait()
		broken.Store(true)
		emit(t, r.store, []string{"b"}, rows("l", 1)...)
		if err := <-ended; !errors.Is(err, storage.ErrStopped) {
			t.Errorf("error %v", err)
		}
		if !c.closed || c.now != 0 {
			t.Errorf("closed %v with %d deliveries under way", c.closed, c.now)
		}
	})
}

func TestOnceLeavesWhatTakesLong(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer Result
		events int
		why    string
		least  time.Duration
	}{
		{"a sink that is down", again, 20, "it is paused: 503", 31 * time.Second},
		{"a sink that has asked for a long pause", Result{Outcome: storage.OutcomeAgain, Reason: "429", RetryAfter: time.Minute}, 20, "429", 0},
		{"a sink that wants no more", Result{Outcome: storage.OutcomeAgain, Reason: "410", Stop: true}, 20, "it is stopped: 410", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &consumer{answer: func(context.Context, string, int) Result { return test.answer }}
				r := setup(t, sink("a", 1, c), sink("b", 1, &consumer{}))
				emit(t, r.store, []string{"a", "b"}, rows("k", test.events)...)
				began := time.Now()
				report := r.once()
				if d := time.Since(began).Round(time.Second); d != test.least {
					t.Errorf("it took %s, want %s", d, test.least)
				}
				if want := map[string]string{"a": test.why}; report.Undelivered != test.events || report.Delivered != test.events || !maps.Equal(report.Waiting, want) {
					t.Errorf("report: %+v", report)
				}
			})
		})
	}
}

func TestOnceLeavesAnEventThatIsDueLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: failing(again, "x=1")}
		r := setup(t, sink("a", 1, c))
		emit(t, r.store, []string{"a"}, append(versions("x", 2), rows("k", 5)...)...)
		if err := r.store.Update(t.Context(), func(tx *storage.Tx) error {
			return tx.EndDeliveries("a", []storage.Delivery{{Event: 1, Outcome: storage.OutcomeAgain, Reason: "500", Next: tx.Now.Add(31 * time.Second)}})
		}); err != nil {
			t.Fatal(err)
		}
		report := r.once()
		if report.Undelivered != 2 || report.Waiting["a"] != "their next delivery is not due" || len(of("x", c.all)) != 0 || len(c.got) != 5 {
			t.Errorf("report %+v, deliveries %v", report, c.all)
		}
	})
}

// misbehaving is a transport that does as a function does.
type misbehaving struct {
	deliver   func(context.Context, []*storage.Event) []Result
	now, most atomic.Int32
}

func (m *misbehaving) Deliver(ctx context.Context, events []*storage.Event) []Result {
	m.most.Store(max(m.most.Load(), m.now.Add(1)))
	defer m.now.Add(-1)
	return m.deliver(ctx, events)
}

func (m *misbehaving) Close() error { return errors.New("not now") }

func TestTransportsThatMisbehave(t *testing.T) {
	for _, test := range []struct {
		name    string
		deliver func(ctx context.Context, events []*storage.Event) []Result
		reason  string
	}{
		{"a panic", func(context.Context, []*storage.Event) []Result { panic("oops") }, "panic: oops"},
		{"no results", func(context.Context, []*storage.Event) []Result { return []Result{} }, "the transport gave no result"},
		{"an empty result", func(context.Context, []*storage.Event) []Result { return make([]Result, 1) }, "the transport gave no result"},
		{"too many results", func(context.Context, []*storage.Event) []Result { return []Result{maybe, ok} }, "cut"},
		{"deaf to its context", func(context.Context, []*storage.Event) []Result {
			time.Sleep(time.Minute)
			return []Result{ok}
		}, "it has not ended in its time"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &misbehaving{deliver: test.deliver}
				r := setup(t, sink("a", 1, c))
				emit(t, r.store, []string{"a"}, rows("k", 20)...)
				_, stop := r.start()
				pass(16 * time.Second)
				began := time.Now()
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(began); d > r.grace+overdue {
					t.Errorf("the stop took %s", d)
				}
				d := r.dispatch("a", "k0=1")
				if d.State != storage.DispatchPending || d.Ambiguous == 0 || d.Reason != test.reason || c.most.Load() != 1 {
					t.Errorf("%+v, %d at once", d, c.most.Load())
				}
				if taken := r.taken("a"); len(taken) > 0 {
					t.Errorf("still taken: %v", taken)
				}
				if closed := strings.Contains(r.logged(), "could not be closed"); closed != (c.now.Load() == 0) {
					t.Errorf("with %d deliveries that go on, log: %s", c.now.Load(), r.logged())
				}
				pass(time.Minute) // until the deaf one has ended
			})
		})
	}
}

// However many events wait for their next delivery, a lane knows of few.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{}
		r := setup(t, sink("a", 4, c))
		emit(t, r.store, []string{"a"}, rows("k", 1500)...)
		if err := r.store.Update(t.Context(), func(tx *storage.Tx) error {
			var ended []storage.Delivery
			for seq := range uint64(1000) {
				ended = append(ended, storage.Delivery{Event: seq + 1, Outcome: storage.OutcomeAgain, Reason: "500", Next: tx.Now.Add(time.Hour)})
			}
			return tx.EndDeliveries("a", ended)
		}); err != nil {
			t.Fatal(err)
		}
		d, stop := r.start(func(d *Dispatcher) { d.lanes[0].window.limit = 100 })
		c.mu.Lock() // what is written below is written behind this
		if w := &d.lanes[0].window; w.size > w.limit+readEvents || len(c.all) > 0 {
			t.Errorf("%d events are known, %d were sent", w.size, len(c.all))
		}
		c.mu.Unlock()
		pass(2 * time.Hour)
		if len(c.got) != 1500 {
			t.Errorf("%d events arrived", len(c.got))
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: failing(again, "k3=1")}
		a := sink("a", 1, c)
		a.Batch, a.Limits.Attempts = 256, 2
		r := setup(t, a)
		emit(t, r.store, []string{"a"}, append(versions("x", 3), rows("k", 1000)...)...)
		report := r.once()
		if report.Delivered != 1002 || report.Dead != 1 || len(c.faults) > 0 || c.most != 1 || slices.Max(c.sizes) != 256 || len(c.sizes) > 8 {
			t.Errorf("report %+v, faults %v, %d at once, sizes %v", report, c.faults, c.most, c.sizes)
		}
		wantNames(t, "order of x", of("x", c.got), "x=1", "x=2", "x=3")
	})
}

func TestLargeEventsGoInSmallBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{}
		a := sink("a", 1, c)
		a.Batch = 256
		r := setup(t, a)
		large := strings.Repeat("x", maxDeliveryBytes/2-2000)
		emit(t, r.store, []string{"a"}, fact{"a", large}, fact{"b", large}, fact{"c", large + large + large}, fact{"d", large}, fact{"e", large})
		if report := r.once(); report.Delivered != 5 {
			t.Errorf("report: %+v", report)
		}
		if !slices.Equal(c.sizes, []int{2, 1, 2}) {
			t.Errorf("sizes of batches %v", c.sizes)
		}
	})
}

func TestLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: func(_ context.Context, name string, _ int) Result {
			if name[0] == 'k' {
				return again
			}
			return ok
		}}
		a := sink("a", 1, c)
		a.Limits.Attempts = 1
		r := setup(t, a)
		var facts []fact // one in two fails: the sink is not taken for down
		for i := range 200 {
			facts = append(facts, rows(fmt.Sprintf("k%d", i), 1)[0], rows(fmt.Sprintf("l%d", i), 1)[0])
		}
		emit(t, r.store, []string{"a"}, facts...)
		_, stop := r.start()
		pass(2 * time.Minute)
		emit(t, r.store, []string{"a"}, rows("kk", 1)...)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		log := r.logged()
		if n := strings.Count(log, "given up"); n != maxLines+1 || !strings.Contains(log, "unsaid=190") {
			t.Errorf("%d lines:\n%s", n, log)
		}
	})
}

func TestSinksThatAreGoneAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, sink("a", 1, &consumer{}))
		emit(t, r.store, []string{"a", "old"}, rows("k", 3)...)
		if report := r.once(); report.Delivered != 3 || report.Undelivered != 0 {
			t.Errorf("report: %+v", report)
		}
		if log := r.logged(); !strings.Contains(log, "not in the config") || !strings.Contains(log, "sink=old events=3") {
			t.Errorf("log: %s", log)
		}
	})
}
