package storage

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// worn are n failed jobs of a window with some attempts each.
func worn(t *testing.T, s *Store, n, attempts int) []wornJob {
	t.Helper()
	var list []wornJob
	err := s.Update(context.Background(), func(tx *Tx) error {
		for i := range n {
			job := newJob(fmt.Sprint(i))
			job.Window = time.Unix(0, 0).UTC()
			job.Key.Window = job.Window
			e, err := tx.EnqueueJob(job)
			if err != nil {
				return err
			}
			for range attempts {
				if err := releaseOnce(tx); err != nil {
					return err
				}
			}
			if _, err := tx.CancelJob(e.ID, nil); err != nil {
				return err
			}
			list = append(list, wornJob{e.ID, job.Key.String()})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func releaseOnce(tx *Tx) error {
	jobs, err := tx.ClaimJobs("me", time.Minute, []ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
	if err != nil {
		return err
	}
	return tx.ReleaseJob(jobs[0][0].Lease(), Attempt{Category: CategoryReleased})
}

// TestPruneTransactions: no transaction deletes more than pruneKeys keys, be it
// of many jobs or of one with many attempts.
func TestPruneTransactions(t *testing.T) {
	for name, size := range map[string]struct{ jobs, attempts int }{
		"many jobs":          {pruneKeys, 1},
		"many attempts":      {2, 2*pruneKeys + 1},
		"one key left over":  {1, pruneKeys - 1},
		"two keys left over": {1, pruneKeys - 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openTest(t, Options{NoSync: true})
				left := worn(t, s, size.jobs, size.attempts)
				time.Sleep(time.Second)
				p := &pruner{store: s, ctx: t.Context()}
				most, before := 0, Pruned{}
				for len(left) > 0 {
					var err error
					if left, err = p.forgetJobs(left, time.Now()); err != nil {
						t.Fatal(err)
					}
					most = max(most, p.done.Attempts-before.Attempts+2*(p.done.Jobs-before.Jobs))
					if before == p.done {
						t.Fatal("a transaction deleted nothing")
					}
					before = p.done
				}
				if want := (Pruned{Attempts: size.jobs * size.attempts, Jobs: size.jobs}); p.done != want {
					t.Errorf("pruned %+v, want %+v", p.done, want)
				}
				if most > pruneKeys {
					t.Errorf("a transaction deleted %d keys", most)
				}
				wantClean(t, s)
			})
		})
	}
}

// TestPruneSparesWhatMoved: a job that a person retries between the look and
// the deletion keeps its story; one that is gone by then is no error.
func TestPruneSparesWhatMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openTest(t, Options{NoSync: true})
		found := worn(t, s, 1, 1)
		time.Sleep(time.Hour)
		before := time.Now()
		if err := s.Update(t.Context(), func(tx *Tx) error { _, err := tx.RequeueJob(found[0].id); return err }); err != nil {
			t.Fatal(err)
		}
		p := &pruner{store: s, ctx: t.Context()}
		if left, err := p.forgetJobs(found, before); err != nil || len(left) > 0 || p.done != (Pruned{}) {
			t.Errorf("pruned %+v, left %v, %v", p.done, left, err)
		}
		if _, err := p.forgetJobs([]wornJob{{99, "of another Prune"}}, before); err != nil {
			t.Errorf("a job that is gone: %v", err)
		}
		wantClean(t, s)
	})
}

// TestForgetPageOnce: the page of an attempt that another Prune has come to
// first is not let go of twice.
func TestForgetPageOnce(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	err := s.Update(t.Context(), func(tx *Tx) error {
		if _, err := tx.EnqueueJob(newJob("a")); err != nil {
			return err
		}
		jobs, err := tx.ClaimJobs("me", time.Minute, []ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
		if err != nil {
			return err
		}
		_, err = tx.CompleteJob(jobs[0][0].Lease(), Completion{Attempt: Attempt{Kept: KeepPage([]byte("x"))}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		err := s.Update(t.Context(), func(tx *Tx) error {
			n, err := tx.drop(bucketAttempt, [][]byte{attemptKey(1, 1)}, hasPage(tx.Now.Add(time.Second)), (*Tx).forgetPage)
			if n != want {
				t.Errorf("let go of %d pages, want %d", n, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	wantClean(t, s)
}

// TestCitations: what was added is always found; of what was not, next to
// nothing.
func TestCitations(t *testing.T) {
	c := &citations{seed: 1, bits: make([]uint64, citationBits/64)}
	const n = 10_000
	for i := range n {
		word, mask := c.bit(fmt.Sprint("cited ", i))
		c.bits[word] |= mask
	}
	wrong := 0
	for i := range n {
		if !c.has(fmt.Sprint("cited ", i)) {
			t.Fatalf("%d is missing", i)
		}
		if c.has(fmt.Sprint("other ", i)) {
			wrong++
		}
	}
	if wrong > 30 { // expected: 10,000 * 10,000 / 2^26, that is 1.5
		t.Errorf("%d of %d that were not added are found", wrong, n)
	}
}
