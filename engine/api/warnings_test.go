package api

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"semel/engine/config"
	"semel/engine/cron"
	"semel/engine/intake"
	"semel/storage"
)

// now is a time whose day, and those before, the counters below name.
var now = time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)

// took are a hundred attempts of up to 2^(bucket/4) ms: 63 is 55 s, 65 is 78 s.
func took(bucket int) storage.Counters {
	return storage.Counters{fmt.Sprintf("duration/%d", bucket): 100}
}

// daily are counters of a metric beside a thousand attempts, today and a week ago.
func daily(metric string, today, weekAgo int64) storage.Counters {
	return storage.Counters{
		"day/2026-04-23/" + metric: today, "day/2026-04-23/attempts/counted": 1000,
		"day/2026-04-16/" + metric: weekAgo, "day/2026-04-16/attempts/counted": 1000,
	}
}

// taken are counters by day of jobs that completed, with the bytes and attempts
// that all of them took: today, and a week ago.
func taken(today, weekAgo [3]int64) storage.Counters {
	c := storage.Counters{}
	for day, n := range map[string][3]int64{"2026-04-23": today, "2026-04-16": weekAgo} {
		c["day/"+day+"/attempts/complete"] = n[0]
		c["day/"+day+"/bytes_up"], c["day/"+day+"/bytes_down"] = n[1]/10, n[1]-n[1]/10
		c["day/"+day+"/attempts/counted"] = n[2]
	}
	return c
}

// A newest window in the future is told where it keeps rows out.
func TestAheadWarning(t *testing.T) {
	hourly, err := cron.Parse("@hourly", time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	plain := config.Source{Source: intake.Source{Name: "shop"}, Write: config.WriteUpsert}
	ticking, appending := plain, plain
	ticking.Schedule, appending.Write = hourly, config.WriteAppend
	for _, test := range []struct {
		name   string
		source *config.Source
		newest time.Time
		told   bool
	}{
		{"none", &plain, time.Time{}, false},
		{"today", &plain, now, false},
		{"tomorrow, where it is today already", &plain, now.AddDate(0, 0, 1), false},
		{"after that", &plain, now.AddDate(0, 0, 1).Add(time.Second), true},
		{"the next tick", &ticking, now.Add(time.Hour), false},
		{"the tick after that", &ticking, now.Add(2 * time.Hour), true},
		{"next year, beside others", &appending, now.AddDate(1, 0, 0), false},
		{"of a source that is not in the config", nil, now.AddDate(1, 0, 0), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := aheadWarning(test.source, test.newest, now); (got != "") != test.told {
				t.Errorf("warning %q", got)
			}
		})
	}
}

// The warning is there while a job of the window may bring rows, or has.
func TestStatusTellsOfTheFuture(t *testing.T) {
	l := local(t)
	l.Config.Sources[0].Write = config.WriteUpsert
	window := time.Now().UTC().AddDate(0, 0, 3).Truncate(time.Second)
	update(t, l, func(tx *storage.Tx) error {
		_, err := tx.EnqueueJob(storage.NewJob{Key: storage.JobKey{Source: "shop", Target: "x"}, Window: window, URL: "http://h/x", Host: "h"})
		return err
	})
	told := func() bool {
		s, err := l.Status(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(strings.Join(s.Warnings, "\n"), "source shop: its newest window begins at "+window.Format(time.RFC3339))
	}
	if !told() {
		t.Error("it does not tell of a window in three days")
	}
	if err := l.Cancel(t.Context(), Selection{Source: "shop"}, func(Job) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if told() {
		t.Error("it tells of a window whose only job was canceled")
	}
}

// Trouble is told with its likely cause, and only when there is some. The lease
// is a minute.
func TestWarnings(t *testing.T) {
	const stale, duplicates = storage.MetricStaleCommits, storage.MetricDuplicates
	shop := config.Source{Timeout: 50 * time.Second, Write: config.WriteUpsert}
	long, insert := shop, shop
	long.Timeout = 10 * time.Minute
	insert.Write = config.WriteInsert
	for _, test := range []struct {
		name     string
		source   config.Source
		counters storage.Counters
		want     string // "" for none
	}{
		{"nothing yet", shop, nil, ""},
		{"quick attempts", shop, took(40), ""},                // 1 s
		{"under two thirds of the lease", shop, took(61), ""}, // 39 s
		{"near the lease", shop, took(63), "takes up to 55.109s, near or over the lease of 1m0s: the site or the exits are slow: raise engine.lease"},
		{"near the lease, as the timeout allows", long, took(63), "its timeout of 10m0s allows that, and only renewals keep such attempts"},
		{"over the lease, as the timeout allows", long, took(75), "raise engine.lease over the timeout"},
		{"over the timeout", shop, took(65), "over its timeout of 50s: the machine slept or stalled"},

		{"few stale commits", shop, daily(stale, 4, 0), ""},
		{"stale commits under one in a hundred", shop, daily(stale, 9, 0), ""},
		{"stale commits", shop, daily(stale, 10, 0), "10 outcomes since yesterday came after their lease had ended and were dropped (1.0 for 100 attempts, 0.0 in the week before: rising): the machine sleeps"},
		{"twice as many", shop, daily(stale, 20, 10), "rising"},
		{"not twice as many", shop, daily(stale, 20, 11), "as before"},
		{"only long ago", shop, daily(stale, 0, 500), ""},
		{"nothing but stale commits", shop, storage.Counters{"day/2026-04-22/" + stale: 5}, "5 outcomes since yesterday"},
		{"all in one place, but of other days", shop, storage.Counters{stale: 1000, "day/2026-04-13/" + stale: 900}, ""},

		{"few duplicates", shop, daily(duplicates, 4, 0), ""},
		{"duplicates rise", shop, daily(duplicates, 40, 20), "40 rows since yesterday were rejected as duplicates (4.0 for 100 attempts, 2.0 in the week before: rising): two targets bring rows of one key"},
		{"duplicates as ever", shop, daily(duplicates, 40, 21), ""},
		{"jobs take as many bytes", shop, taken([3]int64{10, 2999, 10}, [3]int64{100, 10_000, 100}), ""},
		{"jobs take three times the bytes", shop, taken([3]int64{10, 3000, 10}, [3]int64{100, 10_000, 100}), "a complete job takes 300 bytes since yesterday, in the week before 100: pages are larger, or other ones"},
		{"by attempts", shop, taken([3]int64{10, 3000, 25}, [3]int64{100, 10_000, 120}), "jobs take 2.5 attempts, before 1.2: look at the retries"},
		{"too few jobs to tell", shop, taken([3]int64{9, 9000, 9}, [3]int64{100, 10_000, 100}), ""},
		{"too few jobs before", shop, taken([3]int64{100, 90_000, 100}, [3]int64{9, 900, 9}), ""},
		{"duplicates of insert", insert, daily(duplicates, 40, 0), `with write = "insert" only the first window`},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := local(t)
			test.source.Name = "shop"
			l.Config.Sources = []config.Source{test.source}
			got := l.warnings("shop", test.counters, now)
			if test.want == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || test.want == "" || !strings.HasPrefix(got[0], "source shop: ") || !strings.Contains(got[0], test.want) {
				t.Errorf("warnings %q, want one with %q", got, test.want)
			}
		})
	}
}

// A source that the config no longer has: what waits is told, and causes that
// its settings would show are left out.
func TestWarningsOfGoneSource(t *testing.T) {
	l := local(t)
	c := took(63)
	c["state/pending"], c["state/retryable"] = 2, 1
	got := strings.Join(l.warnings("gone", c, now), "\n")
	want := "source gone: 3 jobs wait, but the source is not in the config: they are kept and not run; put it back, or cancel those that semel jobs --source gone lists\n" +
		"source gone: one attempt in a hundred takes up to 55.109s, near or over the lease of 1m0s"
	if got != want {
		t.Errorf("warnings:\n%s\nwant:\n%s", got, want)
	}
}

// What happens in the store arrives: a worker that lost its lease again and
// again is a warning of status.
func TestStatusWarns(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 1)
	for range trendLeast {
		update(t, l, func(tx *storage.Tx) error {
			err := tx.RetryJob(storage.Lease{Job: 1, Owner: "late", Generation: 7}, storage.Attempt{Category: storage.CategoryDNS}, tx.Now)
			if !errors.Is(err, storage.ErrLeaseLost) {
				t.Errorf("error %v", err)
			}
			return nil
		})
	}
	s, err := l.Status(t.Context(), 0)
	if err != nil || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "source shop: 5 outcomes since yesterday came after their lease") {
		t.Errorf("warnings %q, %v", s.Warnings, err)
	}
}
