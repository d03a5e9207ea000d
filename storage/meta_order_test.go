package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// Equal content of two windows: what stands beside it is that of the later
// window, whichever was committed first.
func TestOrderOfCommitsNeverDecidesMeta(t *testing.T) {
	run := func(order []int) string {
		s, err := Open(filepath.Join(t.TempDir(), "s.db"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		jobs := make([]*Job, 2)
		var out string
		err = s.Update(context.Background(), func(tx *Tx) error {
			for i := range 2 {
				w := time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC)
				_, err := tx.EnqueueJob(NewJob{Key: JobKey{Source: "s", Target: "t", Window: w}, Window: w, URL: "http://x/", Host: "x", Version: 1, Country: []string{"US", "DE"}[i]})
				if err != nil {
					return err
				}
			}
			c, err := tx.ClaimJobs("o", time.Minute, []ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 2}})
			copy(jobs, c[0])
			if err != nil {
				return err
			}
			for _, i := range order {
				_, err := tx.CompleteJob(jobs[i].Lease(), Completion{Mode: WriteUpsert, Attempt: Attempt{FinalURL: fmt.Sprintf("http://x/%d", i), ParserVersion: 1},
					Records: []NewObservation{{Key: "t", Data: []byte(`{"a":1}`), Missing: [][]string{nil, {"b"}}[i]}}})
				if err != nil {
					return err
				}
			}
			_, err = tx.Observations("s", nil, 10, func(o *Observation) error {
				o.ObservedAt = time.Time{}
				out = string(o.AppendLine(nil, false))
				return nil
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	a, b := run([]int{0, 1}), run([]int{1, 0})
	if a != b {
		t.Errorf("order of commits decides:\n%s%s", a, b)
	}
}
