package storage_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

// TestDurationQuantile: from above and within 19 % of the true one.
func TestDurationQuantile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		if d := counters(t, s, "s").DurationQuantile(0.5); d != 0 {
			t.Errorf("without attempts: %s", d)
		}
		random := rand.New(rand.NewPCG(1, 2))
		const n = 60
		var took []time.Duration
		for i := range n {
			enqueue(t, s, target(string(rune('A'+i))))
			j := claimOne(t, s)
			d := time.Duration(math.Exp(random.Float64()*math.Log(60_000))*1000) * time.Microsecond
			time.Sleep(d)
			took = append(took, d)
			update(t, s, func(tx *storage.Tx) error {
				return tx.FailJob(j.Lease(), storage.Attempt{}, storage.Failure{Category: storage.CategoryTLS})
			})
		}
		slices.Sort(took)
		c := counters(t, s, "s")
		for _, q := range []float64{0, 0.1, 0.5, 0.9, 0.99, 1} {
			want := took[max(0, int(math.Ceil(q*n))-1)]
			if got := c.DurationQuantile(q); got < want || float64(got) > 1.19*float64(max(want, time.Millisecond)) {
				t.Errorf("quantile %g is %s, true is %s", q, got, want)
			}
		}
	})
}

func TestCounters(t *testing.T) {
	s := storagetest.Open(t)
	enqueue(t, s, target("a"), target("b"), target("c"))
	other := target("a")
	other.Key.Source = "s2" // a name that begins with the other's
	enqueue(t, s, other)
	jobs := claim(t, s, 2)
	update(t, s, func(tx *storage.Tx) error {
		if err := tx.FailJob(jobs[0].Lease(), storage.Attempt{Category: storage.CategoryTLS}, storage.Failure{Category: storage.CategoryTLS}); err != nil {
			return err
		}
		return tx.RetryJob(jobs[1].Lease(), storage.Attempt{Category: storage.CategoryDNS}, tx.Now)
	})
	c := counters(t, s, "s")
	want := map[storage.JobState]int64{storage.StatePending: 1, storage.StateRetryable: 1, storage.StateFailed: 1}
	for _, state := range storage.JobStates {
		if c.State(state) != want[state] {
			t.Errorf("%d jobs are %s, want %d", c.State(state), state, want[state])
		}
	}
	if diff := cmp.Diff(map[storage.Category]int64{storage.CategoryTLS: 1}, c.By(storage.MetricFailures)); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[storage.Category]int64{storage.CategoryDNS: 1}, c.By(storage.MetricRetries)); diff != "" {
		t.Errorf("retries (-want +got):\n%s", diff)
	}
	update(t, s, func(tx *storage.Tx) error { _, err := tx.RequeueJob(jobs[0].ID); return err })
	if by := counters(t, s, "s").By(storage.MetricFailures); len(by) != 0 {
		t.Errorf("failures after the retry: %v", by)
	}
	if c := counters(t, s, "s2"); c.State(storage.StatePending) != 1 || len(counters(t, s, "")) != 0 {
		t.Errorf("counters of the other source %v", c)
	}
}

func TestSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		put := func(source storage.Source) {
			update(t, s, func(tx *storage.Tx) error { return tx.PutSource(source) })
		}
		put(storage.Source{Name: "b", Identity: "i", Rules: "r", Version: 1})
		put(storage.Source{Name: "a", Identity: "i", Rules: "r", Version: 1})
		time.Sleep(time.Minute)
		put(storage.Source{Name: "b", Identity: "i2", Rules: "r2", Version: 2})
		now := time.Now().UTC()
		view(t, s, func(tx *storage.Tx) error {
			list, err := tx.Sources()
			want := []storage.Source{
				{Name: "a", Identity: "i", Rules: "r", Version: 1, Since: now.Add(-time.Minute)},
				{Name: "b", Identity: "i2", Rules: "r2", Version: 2, Since: now, Past: map[int]string{1: "r"}},
			}
			if diff := cmp.Diff(want, list); diff != "" {
				t.Errorf("sources (-want +got):\n%s", diff)
			}
			return err
		})
	})
}

func TestRobots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		want := storage.Robots{FetchedAt: time.Now().UTC(), Status: 200, Body: []byte("User-agent: *")}
		update(t, s, func(tx *storage.Tx) error { return tx.PutRobots("http://h:80", want.Status, want.Body) })
		view(t, s, func(tx *storage.Tx) error {
			got, ok, err := tx.Robots("http://h:80")
			if diff := cmp.Diff(want, got); diff != "" || !ok {
				t.Errorf("robots (-want +got):\n%s", diff)
			}
			if _, there, err := tx.Robots("http://h:8080"); there || err != nil {
				t.Errorf("robots of another origin: %v, %v", there, err)
			}
			return err
		})
	})
}

// TestCategories: the list is whole, and each is there once.
func TestCategories(t *testing.T) {
	seen := map[storage.Category]bool{}
	for _, c := range storage.Categories {
		if !c.Known() || seen[c] {
			t.Errorf("category %q", c)
		}
		seen[c] = true
	}
	if storage.Category("odd").Known() {
		t.Error("an unknown category is known")
	}
}
