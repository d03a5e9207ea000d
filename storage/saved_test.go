package storage_test

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"semel/storage"
	"semel/storage/storagetest"
)

var saveStore = flag.Bool("update", false, "save a store of this schema in testdata")

// TestSavedStores: a store of every schema there ever was opens, passes every
// check and shows what it showed when it was saved.
func TestSavedStores(t *testing.T) {
	names, err := filepath.Glob("testdata/schema*.db.gz")
	if err != nil || len(names) == 0 {
		t.Fatalf("no saved stores (%v)", err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "semel.db")
			unzip(t, name, path)
			s := storagetest.OpenAt(t, path, storage.Options{})
			want, err := os.ReadFile("testdata/saved.txt")
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(t, s); got != string(want) {
				t.Errorf("the store shows\n%s\nwant\n%s", got, want)
			}
			keep(t, s, "after the migration", []byte("<p>a page</p>"))
			storagetest.Check(t, s)
			update(t, s, letGo)
			if done := prune(t, s, storage.Retention{Attempts: time.Second}); done.Attempts != 2 {
				t.Errorf("pruned %+v", done)
			}
		})
	}
}

// letGo discards what a saved store has in quarantine, and begins its counts of pages
// anew: one of an older schema has neither.
func letGo(tx *storage.Tx) error {
	var unfit []uint64
	if _, err := tx.Quarantined(0, 100, func(q *storage.Quarantine) bool {
		unfit = append(unfit, q.Job)
		return true
	}); err != nil {
		return err
	}
	for _, id := range unfit {
		if err := tx.DiscardQuarantine(id); err != nil {
			return err
		}
	}
	return tx.ForgetDrift("shop", 1)
}

func unzip(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	data, err = io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// describe is what people see of a store.
func describe(t *testing.T, s *storage.Store) string {
	t.Helper()
	var b []byte
	view(t, s, func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, 100, func(j *storage.Job) bool {
			b = fmt.Appendf(b, "%s %s generation %d %q %q\n", j.Key, j.State, j.Generation, j.Category, j.Reason)
			attempts, err := tx.Attempts(j.ID)
			if err != nil {
				t.Error(err)
			}
			for _, a := range attempts {
				b = fmt.Appendf(b, "  %s %s status %d up %d down %d %s\n", a.Outcome, a.Category, a.Status, a.BytesUp, a.BytesDown, a.FinalURL)
			}
			return true
		})
		if err != nil {
			return err
		}
		if _, err := tx.Observations("shop", nil, 100, func(o *storage.Observation) error {
			b = o.AppendLine(b, true)
			return nil
		}); err != nil {
			return err
		}
		events, err := tx.PendingEvents("alerts", 0, 100)
		for _, e := range events {
			b = fmt.Appendf(b, "%s %s %s\n", e.ID, e.Type, e.Key)
		}
		return err
	})
	return string(b)
}

// fillStore makes jobs of every state, with all that goes with them, and has a page of
// theirs in quarantine and two counted for drift.
func fillStore(t *testing.T, s *storage.Store) {
	t.Helper()
	window := time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)
	sinks := []storage.Subscription{{Sink: "alerts"}}
	for _, name := range []string{"complete", "failed", "retryable", "running", "pending"} {
		enqueue(t, s, storage.NewJob{
			Key: storage.JobKey{Source: "shop", Target: name, Window: window, Country: "US"}, Country: "US", Window: window,
			URL: "http://shop.test/" + name, Host: "shop.test", Version: 1, Vars: []storage.Var{{Name: "id", Value: name}},
		})
	}
	jobs := claim(t, s, 4)
	attempt := storage.Attempt{Status: 200, BytesUp: 300, BytesDown: 4000, FinalURL: "http://shop.test/final", ParserVersion: 1, Phase: "done"}
	update(t, s, func(tx *storage.Tx) error {
		_, err := tx.CompleteJob(jobs[0].Lease(), storage.Completion{
			Attempt: attempt, Mode: storage.WriteUpsert, Sinks: sinks,
			Records: []storage.NewObservation{{Key: "complete", Data: []byte(`{"title":"A thing"}`)}},
		})
		if err != nil {
			return err
		}
		attempt.Category, attempt.Reason = storage.CategoryNotFound, "the site answered 404 Not Found"
		if err := tx.FailJob(jobs[1].Lease(), attempt, storage.Failure{Category: attempt.Category, Reason: attempt.Reason, Sinks: sinks}); err != nil {
			return err
		}
		for _, j := range jobs[:2] {
			fields := []storage.FieldReading{{Records: 1, Filled: 1}, {Name: "title", Required: true, Records: 1, Filled: 1}}
			reading := storage.Reading{Lane: j.Lane, Version: 1, Job: j.ID, Generation: j.Generation, Records: 1, Fields: fields}
			if _, err := tx.CountPage(reading, storage.DriftPolicy{Fall: storage.Whole / 2, Min: 50, Jobs: 50}, nil); err != nil {
				return err
			}
		}
		read, err := tx.Attempts(jobs[0].ID)
		if err != nil {
			return err
		}
		if err := tx.QuarantinePage(read[0], 2, []storage.Problem{{Row: -1, Field: "title", Reason: "is required and missing"}}, nil); err != nil {
			return err
		}
		attempt.Category = storage.CategoryThrottled
		if err := tx.RetryJob(jobs[2].Lease(), attempt, tx.Now.Add(time.Hour)); err != nil {
			return err
		}
		if err := tx.PutRobots("http://shop.test", 200, []byte("User-agent: *\nDisallow: /no")); err != nil {
			return err
		}
		return tx.GateHost("shop.test", tx.Now.Add(time.Hour))
	})
}

// TestSaveStore saves a store of this schema, when asked to.
func TestSaveStore(t *testing.T) {
	if !*saveStore {
		t.Skip("saves a store for later versions to migrate: run with -update once for each schema")
	}
	path := filepath.Join(t.TempDir(), "semel.db")
	s, err := storage.Open(path, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fillStore(t, s)
	shown := describe(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{fmt.Sprintf("schema%d.db.gz", storage.Schema): zipped.Bytes(), "saved.txt": []byte(shown)} {
		if err := os.WriteFile(filepath.Join("testdata", name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
