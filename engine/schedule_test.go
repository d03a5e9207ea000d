package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// A run that has nothing to do ends when it has read its targets, also where
// that happens just between its look for work and its sleep.
func TestEndOfOfferingWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(options(openStore(t), shop(), source(t, 0)))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		s := newScheduler(e, true)
		if done, err := s.done(); done || err != nil {
			t.Fatalf("done before all was read: %v, %v", done, err)
		}
		close(s.enqueued)
		began := time.Now()
		if err := s.sleep(t.Context()); err != nil || time.Since(began) > 0 {
			t.Fatalf("slept %s (%v)", time.Since(began), err)
		}
		if done, err := s.done(); !done || err != nil {
			t.Fatalf("not done: %v", err)
		}
	})
}
