package engine

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"semel/failpoint"
	"semel/storage"
)

// fullDisk makes every commit find no room while the result is set.
func fullDisk(t *testing.T) *atomic.Bool {
	full := &atomic.Bool{}
	failpoint.Set(func(p failpoint.Point, path string) error {
		if p == failpoint.BeforeCommit && full.Load() {
			return &fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
		}
		return nil
	})
	t.Cleanup(func() { failpoint.Set(nil) })
	return full
}

// While the disk is full nothing is claimed and nothing is lost: what was
// collected is written when there is room, and no page is asked for again.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		full := fullDisk(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if req.URL.Path == "/p/003" {
				full.Store(true)
			}
			return product(req.URL.Path), nil
		})
		e, err := New(options(s, web, source(t, 20)))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		done := make(chan Summary, 1)
		go func() {
			sum, err := e.RunOnce(t.Context())
			if err != nil {
				t.Error(err)
			}
			done <- sum
		}()
		time.Sleep(time.Hour) // longer than every lease
		asked := web.total()  // two may be written before, then one for each worker
		if asked > 2+8 || e.FullSince().IsZero() {
			t.Errorf("%d pages were asked for, full since %s", asked, e.FullSince())
		}
		full.Store(false)
		sum := <-done
		if sum.Completed != 20 || sum.Rescued != 0 || sum.Stale != 0 || web.total() != 20 || !e.FullSince().IsZero() {
			t.Errorf("%+v, %d requests", sum, web.total())
		}
	})
}

// While the disk is full one write a second is tried, however many wait, and
// they are written in the order in which they came.
func TestOneTriesForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		full := fullDisk(t)
		e, err := New(options(s, newSite(products), source(t, 1)))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		full.Store(true)
		var mu sync.Mutex
		var tries []int // in the order of the writes
		tried := func() []int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			list := tries
			tries = nil
			return list
		}
		for i := range 8 {
			go func() {
				_ = e.update(t.Context(), func(tx *storage.Tx) error {
					mu.Lock()
					defer mu.Unlock()
					tries = append(tries, i)
					return tx.PutRobots(fmt.Sprint(i), 200, nil)
				})
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute + time.Millisecond)
		if n := len(tried()); n > 8+62 {
			t.Errorf("%d writes were tried", n)
		}
		full.Store(false)
		time.Sleep(2 * roomWait)
		if order := tried(); !slices.IsSorted(order) || len(order) != 8 {
			t.Errorf("order %v", order)
		}
	})
}

// A stop does not wait for room: what could not be written is left to its
// lease, which the next start takes back.
func TestStopOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		full := fullDisk(t)
		var once sync.Once
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			once.Do(func() { full.Store(true) })
			return product(req.URL.Path), nil
		})
		opts := options(s, web, source(t, 20))
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		begin := time.Now()
		if _, err := e.Run(ctx); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d > time.Minute+opts.Grace+2*roomWait {
			t.Errorf("the stop took until %s", d)
		}
		full.Store(false)
		if running := counters(t, s).State(storage.StateRunning); running == 0 {
			t.Error("no lease was held: the test shows nothing")
		}
		sum := runOnce(t, opts)
		if sum.Completed != 20 || sum.Rescued == 0 {
			t.Errorf("%+v", sum)
		}
	})
}

// Also one that comes before the first transaction is written.
func TestStopBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		fullDisk(t).Store(true)
		e, err := New(options(s, newSite(products), source(t, 5)))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}
