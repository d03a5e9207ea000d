package engine

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/intake"
	"semel/storage"
)

const day = 24 * time.Hour

// fileSize is how large a store's file is, and how much of it was ever used:
// the file grows in steps of 16 MB, its used part page by page.
type fileSize struct{ file, used int64 }

func sizeOf(t *testing.T, s *storage.Store) fileSize {
	t.Helper()
	info, err := os.Stat(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	copied, err := s.Backup(filepath.Join(t.TempDir(), "copy.db"))
	if err != nil {
		t.Fatal(err)
	}
	return fileSize{info.Size(), copied.Bytes}
}

// windows collects the same targets once a day, each day's pages a little
// different, and gives the size of the store after the first day and each fifth
// one. A sink takes its events at once.
func windows(t *testing.T, s *storage.Store, days, targets int, retention storage.Retention) []fileSize {
	t.Helper()
	web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
		if nth%7 == 3 {
			return respond(503, "busy"), nil // so that some have two attempts
		}
		return product(fmt.Sprintf("%s %s %d", req.URL.Path, time.Now().Format(time.DateOnly), nth)), nil
	})
	src := source(t, targets)
	list := src.Targets.Targets
	src.Targets.Targets = nil
	src.Sinks = []storage.Subscription{{Sink: "alerts"}}
	opts := options(s, web, src)
	opts.Pacing = pacing(8, 0)
	opts.Retention = retention
	var sizes []fileSize
	for i := range days {
		enqueueWindow(t, s, &src, list, time.Now().Truncate(day))
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := e.RunOnce(t.Context())
		e.Close()
		if err != nil || sum.Completed != targets || sum.Failed != 0 {
			t.Fatalf("%+v, %v", sum, err)
		}
		deliver(t, s, "alerts")
		if i == 0 || i%5 == 4 {
			sizes = append(sizes, sizeOf(t, s))
		}
		time.Sleep(time.Until(time.Now().Truncate(day).Add(day)))
	}
	return sizes
}

func enqueueWindow(t *testing.T, s *storage.Store, src *Source, targets []intake.Target, window time.Time) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx *storage.Tx) error {
		for _, target := range targets {
			job, err := src.NewJob(target, window)
			if err != nil {
				return err
			}
			if _, err := tx.EnqueueJob(job); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// deliver acknowledges all that a sink waits for.
func deliver(t *testing.T, s *storage.Store, sink string) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx *storage.Tx) error {
		events, err := tx.PendingEvents(sink, 0, 1<<30)
		if err != nil {
			return err
		}
		ended := make([]storage.Delivery, len(events))
		for i, e := range events {
			ended[i] = storage.Delivery{Event: e.Seq, Outcome: storage.OutcomeDelivered}
		}
		return tx.EndDeliveries(sink, ended)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestFiftyWindows: with retention the store of a steady workload stops growing
// once the first windows are forgotten; without, the same workload makes it
// grow with every window.
func TestFiftyWindows(t *testing.T) {
	targets := 150
	if testing.Short() {
		targets = 40
	}
	for _, test := range []struct {
		name      string
		retention storage.Retention
		flat      bool
	}{
		{"three days", storage.Retention{Attempts: 3 * day, Events: 3 * day}, true},
		{"for ever", storage.Retention{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				sizes := windows(t, s, 50, targets, test.retention)
				tenth, last := sizes[2], sizes[10]
				t.Logf("%d targets, bytes used (file): window 1 %d (%d), 10 %d (%d), 50 %d (%d)",
					targets, sizes[0].used, sizes[0].file, tenth.used, tenth.file, last.used, last.file)
				// What was ever used rises once more when a transaction is larger
				// than all before it, and how many outcomes share one is chance: 40
				// windows later it may be by what one window takes.
				for i, size := range sizes[3:] {
					if grown := size.used > tenth.used+sizes[0].used || size.file > tenth.file; test.flat && grown {
						t.Errorf("window %d: %+v, window 10: %+v", 5*i+15, size, tenth)
					}
				}
				if !test.flat && last.used < 3*tenth.used {
					t.Errorf("the workload does not grow: %+v after %+v", last, tenth)
				}
				if rows := strings.Count(export(t, s, "shop"), "\n"); rows != targets {
					t.Errorf("%d observations of %d targets", rows, targets)
				}
			})
		})
	}
}

// A running engine deletes old history once an hour, beside its work, and stops
// as ever.
func TestRetainWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) { return product(req.URL.Path), nil })
		opts := options(s, web, source(t, 3))
		opts.Retention = storage.Retention{Attempts: 90 * time.Minute}
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := e.Run(ctx)
			done <- err
		}()
		time.Sleep(time.Hour + time.Minute) // one pass later they are not old yet
		if _, attempts := job(t, s, "001"); len(attempts) != 1 {
			t.Errorf("after an hour: %d attempts", len(attempts))
		}
		time.Sleep(time.Hour)
		if j, attempts := job(t, s, "001"); len(attempts) != 0 || j.State != storage.StateComplete {
			t.Errorf("after two hours: %s with %d attempts", j.State, len(attempts))
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Retention that fails is told, and ends no run.
func TestRetainFails(t *testing.T) {
	var log strings.Builder
	s, err := storage.Open(filepath.Join(t.TempDir(), "semel.db"), storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	opts := options(s, nil)
	opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.retainOnce(ctx, time.Now())
	if log.Len() > 0 {
		t.Errorf("a stop is told as a failure: %s", log.String())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	e.retainOnce(t.Context(), time.Now())
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "the store grows until it can") {
		t.Errorf("log: %q", log.String())
	}
}
