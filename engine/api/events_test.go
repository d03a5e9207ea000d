package api

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
)

// sunk are the events that wait for a sink, as type and key.
func sunk(t *testing.T, l *Local, sink string) (events []string) {
	t.Helper()
	err := l.Store.View(func(tx *storage.Tx) error {
		pending, err := tx.PendingEvents(sink, 0, 100)
		for _, e := range pending {
			events = append(events, e.Type+" "+e.Key)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// What a command ends is told to the source's sinks, each in its own words.
func TestCommandsEmit(t *testing.T) {
	const window = "2026-04-23T15%3A00%3A00Z"
	for _, test := range []struct {
		name string
		do   func(t *testing.T, l *Local) error
		want []string
	}{
		{"cancel", func(t *testing.T, l *Local) error {
			enqueue(t, l, "shop", 0, 1)
			return l.Cancel(t.Context(), Selection{Refs: []string{"1"}}, func(Job) error { return nil })
		}, []string{"job.failed shop:00000:-:-:-:-"}},
		{"release", func(t *testing.T, l *Local) error {
			heldRun(t, l, runWindow, 2)
			_, err := l.ReleaseRun(t.Context(), "1")
			return err
		}, []string{"window.replaced shop:" + window + ":-"}},
		{"import", func(t *testing.T, l *Local) error {
			path := filepath.Join(t.TempDir(), "none.txt")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			_, err := l.Import(t.Context(), ImportRequest{Source: "shop", Path: path, ChunkRows: 10}, func(ImportNews) error { return nil })
			return err
		}, []string{"run.finished shop:-:none.txt"}},
		{"leases taken back", func(t *testing.T, l *Local) error {
			l.Config.Sources[0].Limits.Rescues = 1
			enqueue(t, l, "shop", 0, 1)
			work(t, l, 1, func(*storage.Tx, *storage.Job) error { return nil })
			enqueue(t, l, "shop", 1, 2)
			return l.Retry(t.Context(), Selection{Source: "shop", Category: storage.CategoryBlocked}, func(Job) error { return nil })
		}, []string{"job.failed shop:00000:-:-:-:-"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := local(t)
			l.Config.Sources[0].Sinks = []storage.Subscription{{Sink: "all"}, {Sink: "none", Events: []string{storage.EventJobComplete}}}
			if err := test.do(t, l); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, sunk(t, l, "all")); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if events := sunk(t, l, "none"); events != nil {
				t.Errorf("%q for a sink that wants none of it", events)
			}
		})
	}
}

// Nobody is told of what becomes of a source that is not in the config.
func TestOrphansEmitNothing(t *testing.T) {
	l := local(t)
	enqueue(t, l, "old", 0, 1)
	if err := l.Cancel(t.Context(), Selection{Refs: []string{"1"}}, func(Job) error { return nil }); err != nil {
		t.Fatal(err)
	}
	err := l.Store.View(func(tx *storage.Tx) error {
		if e, err := tx.Event(1); err == nil {
			t.Errorf("event %+v", e)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
