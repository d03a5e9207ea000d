package engine

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/storage"
)

// A worker that wakes up after its lease was rescued commits nothing, and is
// counted.
func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		release := make(chan struct{})
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if nth == 1 {
				<-release // deaf to its context, as a hung library would be
				return respond(200, "<h1>late</h1>"), nil
			}
			return respond(200, "<h1>in time</h1>"), nil
		})
		opts := options(s, web, source(t, 1))
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan Summary, 1)
		go func() {
			sum, err := e.Run(ctx)
			if err != nil {
				t.Error(err)
			}
			done <- sum
		}()
		time.Sleep(10 * time.Minute) // timeout, margin and lease are over; the second claim has committed
		if got := export(t, s, "shop"); !strings.Contains(got, "in time") {
			t.Fatalf("the rescued job did not complete: %q", got)
		}
		close(release)
		synctest.Wait()
		stop()
		sum := <-done
		if sum.Stale != 1 || sum.Rescued != 1 || sum.Completed != 1 {
			t.Errorf("summary %+v", sum)
		}
		if got := export(t, s, "shop"); strings.Contains(got, "late") {
			t.Errorf("the late worker's record was committed: %q", got)
		}
		j, attempts := job(t, s, "001")
		if j.Generation != 2 || j.Attempts != 1 || len(attempts) != 2 || attempts[0].Outcome != storage.OutcomeRescued {
			t.Errorf("job %+v, attempts %+v", j, attempts)
		}
		if n := counters(t, s)[storage.MetricStaleCommits]; n != 1 {
			t.Errorf("stale_commits = %d", n)
		}
	})
}

func counters(t *testing.T, s *storage.Store) storage.Counters {
	t.Helper()
	return countersOf(t, s, "shop")
}

func countersOf(t *testing.T, s *storage.Store, source string) storage.Counters {
	t.Helper()
	var c storage.Counters
	if err := s.View(func(tx *storage.Tx) error { c = tx.Counters(source); return nil }); err != nil {
		t.Fatal(err)
	}
	return c
}

// An attempt longer than the lease keeps it, because it is renewed.
func TestLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			time.Sleep(5 * time.Minute)
			return product(req.URL.Path), nil
		})
		src := source(t, 3)
		src.Timeout = 10 * time.Minute
		opts := options(s, web, src)
		opts.Lease = 30 * time.Second
		sum := runOnce(t, opts)
		if sum.Completed != 3 || sum.Rescued != 0 || sum.Stale != 0 || web.total() != 3 {
			t.Errorf("%+v, %d requests", sum, web.total())
		}
	})
}

// Pages that take long to parse hold up no others: what waits for them keeps its
// lease, and goes on as soon as one place is free.
func TestLongParse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) { return product(req.URL.Path), nil })
		src := source(t, 3)
		src.Timeout = 10 * time.Minute
		opts := options(s, web, src)
		opts.Lease = 30 * time.Second
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		for range cap(e.parsing) {
			e.parsing.take(t.Context())
		}
		const first = 5 * time.Minute
		time.AfterFunc(first, e.parsing.free)
		start := time.Now()
		sum, err := e.RunOnce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if sum.Completed != 3 || sum.Rescued != 0 || sum.Stale != 0 || web.total() != 3 {
			t.Errorf("%+v, %d requests", sum, web.total())
		}
		if took := time.Since(start); took < first || took > first+time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// After a death, the next process takes back what the dead one held, at once
// and without burning an attempt.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) { return product(req.URL.Path), nil })
		opts := options(s, web, source(t, 5))
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.enqueueAll(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		e.Close()
		if err := s.Update(t.Context(), func(tx *storage.Tx) error {
			_, err := tx.ClaimJobs("the dead one", time.Hour, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 4}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		sum := runOnce(t, opts)
		if sum.Rescued != 4 || sum.Completed != 5 || time.Since(begin) > time.Minute {
			t.Errorf("%+v after %s", sum, time.Since(begin))
		}
		c := counters(t, s)
		if c[storage.MetricRecovered] != 4 || c[storage.MetricAfterRecovery] != 4 || c[storage.MetricAttempts] != 5 {
			t.Errorf("counters %v", c)
		}
	})
}

// The first signal: nothing more is claimed, what ends within the grace
// commits, the rest goes back unburnt.
func TestCleanStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			wait := 5 * time.Second
			if req.URL.Path > "/p/002" {
				wait = time.Hour
			}
			select {
			case <-time.After(wait):
				return product(req.URL.Path), nil
			case <-req.Context().Done():
				return nil, req.Context().Err()
			}
		})
		src := source(t, 10)
		src.Timeout = 2 * time.Hour
		e, err := New(options(s, web, src))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		begin := time.Now()
		sum, err := e.RunOnce(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if sum.Completed != 2 || sum.Released != 2 || sum.Open != 8 || sum.Failed != 0 {
			t.Errorf("%+v", sum)
		}
		if d := time.Since(begin); d > 12*time.Second {
			t.Errorf("stopping took %s", d)
		}
		c := counters(t, s)
		if c.State(storage.StateRunning) != 0 || c[storage.MetricAttempts] != 2 {
			t.Errorf("counters %v", c)
		}
		j, _ := job(t, s, "003")
		if j.State != storage.StatePending || j.Attempts != 0 || j.Tries != 0 {
			t.Errorf("job handed back: %+v", j)
		}
	})
}

// A panic in an attempt is a failed attempt, and no more.
func TestPanicIsAFailedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if req.URL.Path == "/p/001" && nth == 1 {
				panic("a bug")
			}
			return product(req.URL.Path), nil
		})
		sum := runOnce(t, options(s, web, source(t, 2)))
		if sum.Completed != 2 || sum.Retried != 1 {
			t.Errorf("%+v", sum)
		}
		if _, attempts := job(t, s, "001"); attempts[0].Category != storage.CategoryInternal || !strings.Contains(attempts[0].Reason, "a bug") {
			t.Errorf("attempts %+v", attempts)
		}
	})
}

// Also one outside of fetch and parser, which catch their own.
func TestPanicOfTheWorkerItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		e, err := New(options(s, newSite(products), source(t, 1)))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		src := *e.sources["shop"]
		src.Rules = nil
		a := e.hold(t.Context(), &storage.Job{ID: 1, URL: "http://shop.test/p/001"}, &src, "")
		defer e.letGo(a)
		if r := a.execute(t.Context()); r.failure == nil || r.failure.category != storage.CategoryInternal {
			t.Errorf("%+v", r.failure)
		}
	})
}

// A job that kills its worker again and again runs last in its lane, and fails
// at limits.rescues.
func TestSuspectsRunLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		var mu sync.Mutex
		var order []string
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			mu.Lock()
			order = append(order, req.URL.Path)
			mu.Unlock()
			return product(req.URL.Path), nil
		})
		opts := options(s, web, source(t, 6))
		opts.Pacing = pacing(1, 0)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if err := e.enqueueAll(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		for range 3 { // the first job's worker dies
			if err := s.Update(t.Context(), func(tx *storage.Tx) error {
				_, err := tx.ClaimJobs("x", time.Second, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := e.rescue(t.Context(), storage.AllLeases); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(order) != 6 || order[5] != "/p/001" {
			t.Errorf("order %v", order)
		}
	})
}

// When the store fails, the engine ends with its error and claims nothing more.
func TestStoreFailureStopsTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := storage.Open(t.TempDir()+"/semel.db", storage.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if req.URL.Path == "/p/003" {
				go s.Close() // as good as a dead disk: every later write fails
				time.Sleep(time.Second)
			}
			return product(req.URL.Path), nil
		})
		opts := options(s, web, source(t, 50))
		opts.Pacing = pacing(1, 0)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if _, err := e.RunOnce(t.Context()); !errors.Is(err, storage.ErrStopped) {
			t.Errorf("got %v", err)
		}
		if web.total() > 4 {
			t.Errorf("%d requests after the store had failed", web.total())
		}
	})
}

func TestLateWorkerGatesNothing(t *testing.T) {
	s := openStore(t)
	e, err := New(options(s, nil, source(t, 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	src := e.sources["shop"]
	n, _ := src.NewJob(src.Targets.Targets[0], time.Time{})
	var j *storage.Job
	err = s.Update(t.Context(), func(tx *storage.Tx) error {
		tx.EnqueueJob(n)
		c, err := tx.ClaimJobs("test", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
		if err == nil {
			j = c[0][0]
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.rescue(t.Context(), storage.AllLeases); err != nil {
		t.Fatal(err)
	}
	a := e.hold(t.Context(), j, src, "")
	defer e.letGo(a)
	o, err := a.decide(result{failure: &failure{category: storage.CategoryThrottled, retryAfter: time.Hour}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.commit(o); err != nil {
		t.Fatal(err)
	}
	_ = s.View(func(tx *storage.Tx) error {
		g, _ := tx.HostGates()
		if len(g) > 0 {
			t.Errorf("stale worker wrote %v (stale %d)", g, e.Summary().Stale)
		}
		return nil
	})
}

// After a suspend the clock says that every lease has ended, while the workers
// are alive: they keep their jobs.
func TestSuspend(t *testing.T) {
	s := openStore(t)
	e, err := New(options(s, nil, source(t, 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.enqueueAll(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), func(tx *storage.Tx) error {
		c, err := tx.ClaimJobs("test", time.Second, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
		if err == nil {
			e.hold(t.Context(), c[0][0], e.sources["shop"], "")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := e.sweepOnce(t.Context(), time.Now().Add(10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if sum := e.Summary(); sum.Rescued != 0 {
		t.Errorf("a healthy worker's job was rescued: %+v", sum)
	}
}

// A page that comes when the attempt's time is over is no page, and not by
// chance now and then.
func TestPageAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if nth == 1 {
				time.Sleep(time.Minute + time.Second) // deaf to its context
			}
			return product(req.URL.Path), nil
		})
		sum := runOnce(t, options(s, web, source(t, 16)))
		if sum.Completed != 16 || sum.Retried != 16 {
			t.Errorf("%+v", sum)
		}
	})
}
