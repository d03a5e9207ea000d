package storage_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

// try runs one attempt of a job that is made for it. It fails, and so its bytes are
// wasted, where it has a category.
func try(t testing.TB, s *storage.Store, n storage.NewJob, a storage.Attempt) {
	t.Helper()
	enqueue(t, s, n)
	j := claimOne(t, s)
	update(t, s, func(tx *storage.Tx) error {
		if a.Category != "" {
			return tx.RetryJob(j.Lease(), a, tx.Now.Add(1000*day))
		}
		_, err := tx.CompleteJob(j.Lease(), storage.Completion{Attempt: a})
		return err
	})
}

// at is a job of a source at a host.
func at(source, host, name string) storage.NewJob {
	n := target(name)
	n.Key.Source, n.Host = source, host
	return n
}

// moved is an attempt that completed.
func moved(proxy string, up, down int64) storage.Attempt {
	return storage.Attempt{Proxy: proxy, BytesUp: up, BytesDown: down}
}

// wasted is one that did not.
func wasted(proxy string, up, down int64) storage.Attempt {
	a := moved(proxy, up, down)
	a.Category = storage.CategoryTLS
	return a
}

// ledger is all that a store says of bytes: by day and host, by day and proxy,
// and by source and proxy.
func ledger(t testing.TB, s *storage.Store, days ...string) map[string]storage.Traffic {
	t.Helper()
	all := map[string]storage.Traffic{}
	view(t, s, func(tx *storage.Tx) error {
		for _, name := range days {
			on, err := time.Parse(time.DateOnly, name)
			if err != nil {
				return err
			}
			c := tx.DayTraffic(on)
			for host, n := range c.Hosts() {
				all[name+" host "+host] = n
			}
			for proxy, n := range c.Proxies() {
				all[name+" proxy "+proxy] = n
				if one := tx.ProxyTraffic(proxy, on.Add(day-time.Second)); one != n {
					t.Errorf("proxy %s on %s: %v alone, %v among others", proxy, name, one, n)
				}
			}
		}
		for _, source := range []string{"s", "s2"} {
			for proxy, n := range tx.Counters(source).Proxies() {
				all[source+" proxy "+proxy] = n
			}
		}
		return nil
	})
	return all
}

func wantLedger(t testing.TB, s *storage.Store, want map[string]storage.Traffic, days ...string) {
	t.Helper()
	if diff := cmp.Diff(want, ledger(t, s, days...)); diff != "" {
		t.Errorf("bytes (-want +got):\n%s", diff)
	}
}

// TestTraffic: bytes are counted where they went, on the day in which their
// attempt ended (UTC), and stay so when the store is opened again.
func TestTraffic(t *testing.T) {
	now := time.Date(2026, 4, 23, 23, 59, 59, 999_999_999, time.UTC)
	path := filepath.Join(t.TempDir(), "semel.db")
	opts := storage.Options{NoSync: true, Now: func() time.Time { return now }}
	s, err := storage.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	try(t, s, at("s", "h", "direct"), moved("", 1, 10))
	try(t, s, at("s", "h", "a"), moved("home", 2, 20))
	try(t, s, at("s", "i:8080", "b"), wasted("home", 4, 40))
	try(t, s, at("s2", "h", "c"), moved("home/odd", 8, 80))
	enqueue(t, s, at("s2", "h", "over midnight"))
	overMidnight := claimOne(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	now = now.Add(1).In(time.FixedZone("west", -7*3600)) // the 24th, UTC
	s = storagetest.OpenAt(t, path, opts)
	try(t, s, at("s2", "h", "d"), moved("home", 16, 160))
	update(t, s, func(tx *storage.Tx) error {
		_, err := tx.CompleteJob(overMidnight.Lease(), storage.Completion{Attempt: moved("", 32, 320)})
		return err
	})
	view(t, s, func(tx *storage.Tx) error {
		if n := tx.ProxyTraffic("none", now); n != (storage.Traffic{}) {
			t.Errorf("a proxy never used: %v", n)
		}
		return nil
	})
	wantLedger(t, s, map[string]storage.Traffic{
		"2026-04-23 host h":         {Up: 11, Down: 110},
		"2026-04-23 host i:8080":    {Up: 4, Down: 40},
		"2026-04-23 proxy home":     {Up: 6, Down: 60},
		"2026-04-23 proxy home/odd": {Up: 8, Down: 80},
		"2026-04-24 host h":         {Up: 48, Down: 480},
		"2026-04-24 proxy home":     {Up: 16, Down: 160},
		"s proxy home":              {Up: 6, Down: 60},
		"s2 proxy home":             {Up: 16, Down: 160},
		"s2 proxy home/odd":         {Up: 8, Down: 80},
	}, "2026-04-23", "2026-04-24", "2026-04-25")
	c := counters(t, s, "s")
	if n := c[storage.MetricBytesWasted]; n != 44 {
		t.Errorf("%d bytes were wasted, want 44", n)
	}
	if diff := cmp.Diff(map[string]int64{"2026-04-23": 70}, c.ByDay(storage.MetricBytesDown)); diff != "" {
		t.Errorf("bytes down by day (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"2026-04-23": 2}, c.ByDay(storage.MetricComplete)); diff != "" {
		t.Errorf("complete by day (-want +got):\n%s", diff)
	}
}

// TestTrafficOfMovedJob: what an attempt moved stays with the host it asked,
// wherever its job goes later. storagetest checks the store.
func TestTrafficOfMovedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		job := at("s", "old", "a")
		try(t, s, job, wasted("", 1, 10))
		job.Host = "new"
		if e := enqueue(t, s, job); !e[0].Refreshed {
			t.Fatal("the job did not move")
		}
		storagetest.Check(t, s)
		wantLedger(t, s, map[string]storage.Traffic{"2000-01-01 host old": {Up: 1, Down: 10}}, "2000-01-01")
	})
}

// TestPruneTraffic: what was counted stays counted when its attempt goes, and
// goes with its day; all sums hold at every time on the way.
func TestPruneTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight UTC
		s := storagetest.Open(t)
		day0, day30 := "2000-01-01", "2000-01-31"
		try(t, s, at("s", "h", "a"), moved("home", 1, 10))
		try(t, s, at("s", "h", "waits"), wasted("home", 2, 20)) // its attempt is never pruned
		time.Sleep(30 * day)
		try(t, s, at("s", "h", "b"), moved("home", 4, 40))
		want := map[string]storage.Traffic{
			day0 + " host h": {Up: 3, Down: 30}, day0 + " proxy home": {Up: 3, Down: 30},
			day30 + " host h": {Up: 4, Down: 40}, day30 + " proxy home": {Up: 4, Down: 40},
			"s proxy home": {Up: 7, Down: 70},
		}
		for _, step := range []struct {
			after     time.Duration
			retention storage.Retention
			attempts  int
			gone      string // a day
		}{
			{0, storage.Retention{Attempts: day}, 1, "none"},
			{4 * day, storage.Retention{}, 0, "none"},
			{2 * day, storage.Retention{}, 0, day0},                     // day 36
			{30 * day, storage.Retention{Attempts: 50 * day}, 0, day30}, // day 66: the days go before the attempt
			{30 * day, storage.Retention{Attempts: 50 * day}, 1, "none"},
		} {
			time.Sleep(step.after)
			if done := prune(t, s, step.retention); done.Attempts != step.attempts {
				t.Errorf("pruned %+v", done)
			}
			storagetest.Check(t, s)
			delete(want, step.gone+" host h")
			delete(want, step.gone+" proxy home")
			wantLedger(t, s, want, day0, day30)
			byDay := map[string]int64{}
			for _, name := range []string{day0, day30} {
				if n, ok := want[name+" host h"]; ok {
					byDay[name] = n.Down
				}
			}
			if diff := cmp.Diff(byDay, counters(t, s, "s").ByDay(storage.MetricBytesDown)); diff != "" {
				t.Errorf("bytes down by day (-want +got):\n%s", diff)
			}
		}
		if n := counters(t, s, "s")[storage.MetricBytesWasted]; n != 22 {
			t.Errorf("%d bytes were wasted, want 22", n)
		}
		for _, source := range []string{"", "s"} {
			for name, n := range counters(t, s, source) {
				if strings.HasPrefix(strings.TrimPrefix(name, "pruned/"), "day/") {
					t.Errorf("counter %s of %q is left: %d", name, source, n)
				}
			}
		}
	})
}

// TestTrafficOfDroppedDays: what a clock that was set back counts for days that
// are no longer kept contradicts nothing, and goes with the next Prune.
func TestTrafficOfDroppedDays(t *testing.T) {
	now := time.Date(2026, 4, 23, 12, 0, 0, 0, time.UTC)
	s := storagetest.OpenAt(t, filepath.Join(t.TempDir(), "semel.db"), storage.Options{NoSync: true, Now: func() time.Time { return now }})
	pruneAt := func(at time.Time) {
		t.Helper()
		if _, err := s.Prune(t.Context(), at, storage.Retention{}); err != nil {
			t.Fatal(err)
		}
	}
	try(t, s, at("s", "h", "a"), moved("", 1, 10))
	pruneAt(now.Add(100 * day))
	try(t, s, at("s", "h", "b"), moved("", 2, 20))
	wantLedger(t, s, map[string]storage.Traffic{"2026-04-23 host h": {Up: 2, Down: 20}}, "2026-04-23")
	storagetest.Check(t, s)
	pruneAt(now) // drops nothing, and does not bring back what is dropped
	storagetest.Check(t, s)
	pruneAt(now.Add(100 * day))
	wantLedger(t, s, map[string]storage.Traffic{}, "2026-04-23")
}

// TestTrafficOfManyHosts: thousands of hosts on one day, over several
// transactions of a Prune.
func TestTrafficOfManyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		const hosts = 1500
		update(t, s, func(tx *storage.Tx) error {
			for i := range hosts {
				if _, err := tx.EnqueueJob(at("s", fmt.Sprint("h", i), fmt.Sprint(i))); err != nil {
					return err
				}
			}
			groups, err := tx.ClaimJobs("me", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: hosts}})
			if err != nil {
				return err
			}
			for _, j := range groups[0] {
				if _, err := tx.CompleteJob(j.Lease(), storage.Completion{Attempt: moved("", 1, 2)}); err != nil {
					return err
				}
			}
			return nil
		})
		if n := len(ledger(t, s, "2000-01-01")); n != hosts {
			t.Errorf("%d hosts, want %d", n, hosts)
		}
		time.Sleep(37 * day)
		prune(t, s, storage.Retention{})
		wantLedger(t, s, map[string]storage.Traffic{}, "2000-01-01")
	})
}
