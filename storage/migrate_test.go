package storage

import (
	"context"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestCountRules: a store of schema 3 says with its jobs only under which rules
// they were made; who read their pages say their attempts.
func TestCountRules(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	for _, name := range []string{"a", "b"} {
		inState(t, s, name, StatePending)
	}
	err := s.Update(context.Background(), func(tx *Tx) error {
		claimed, err := tx.ClaimJobs("me", 1e9, []ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 2}})
		if err != nil {
			return err
		}
		for i, j := range claimed[0] {
			if _, err := tx.CompleteJob(j.Lease(), Completion{Mode: WriteUpsert, Attempt: Attempt{ParserVersion: i + 1}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// As schema 3 left it: both say the rules they were made under, and nothing
	// counts them.
	err = s.Update(context.Background(), func(tx *Tx) error {
		for id := range 2 {
			if err := changeJob(uint64(id+1), func(j *Job) { j.Version = 1 })(tx); err != nil {
				return err
			}
			if err := tx.remove(bucketCounter, counterKey("s", rulesMetric(id+1))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.db.Update(func(b *bolt.Tx) error { return countRules(b) }); err != nil {
		t.Fatal(err)
	}
	err = s.View(func(tx *Tx) error {
		if got := tx.Counters("s"); got.CompleteBefore(2) != 1 || got.CompleteBefore(3) != 2 {
			t.Errorf("counters %v", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantClean(t, s)
}
