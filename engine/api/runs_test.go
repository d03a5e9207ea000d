package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
)

var runWindow = time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)

// heldRun is a run of some jobs of which the first is complete and its rows
// staged, and the second has failed.
func heldRun(t *testing.T, l *Local, window time.Time, jobs int) {
	t.Helper()
	update(t, l, func(tx *storage.Tx) error {
		r, err := tx.OpenRun(storage.RunKey{Source: "shop", Window: window}, storage.RunTick)
		if err != nil {
			return err
		}
		for i := range jobs {
			key := storage.JobKey{Source: "shop", Target: fmt.Sprint(i), Window: window}
			if _, err := tx.EnqueueJob(storage.NewJob{Key: key, Window: window, URL: "http://x.test/", Host: "x.test"}); err != nil {
				return err
			}
		}
		if r, err = tx.Run(r.ID); err != nil {
			return err
		}
		return tx.EndListing(r, nil)
	})
	work(t, l, 1, func(tx *storage.Tx, j *storage.Job) error {
		_, err := tx.CompleteJob(j.Lease(), storage.Completion{
			Mode: storage.WriteReplace, Records: []storage.NewObservation{{Key: "p", Data: []byte(`{}`)}},
		})
		return err
	})
	work(t, l, 1, failAs(storage.CategoryNotFound))
}

func listRuns(t *testing.T, s Service, f RunFilter) (runs []Run) {
	t.Helper()
	if err := s.Runs(t.Context(), f, func(r Run) error { runs = append(runs, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return runs
}

// Runs are listed newest first with where they stand, and status warns of those
// that wait for a person.
func TestRuns(t *testing.T) {
	l := local(t)
	heldRun(t, l, runWindow, 2)
	heldRun(t, l, runWindow.Add(time.Hour), 3)
	update(t, l, func(tx *storage.Tx) error {
		r, err := tx.OpenRun(storage.RunKey{Source: "other", Import: "a.csv"}, storage.RunImport)
		if err == nil {
			tx.BeginListing(r)
		}
		return err
	})
	c := client(t, NewHandler(l, "me"))
	runs := listRuns(t, c, RunFilter{})
	var got []string
	for _, r := range runs {
		got = append(got, fmt.Sprintf("%d %s %s %s %d %d %d %d %q %v", r.ID, r.Key, r.Kind, r.State, r.Jobs, r.Open, r.Complete, r.Failed, r.Held, r.LeftS != nil))
	}
	want := []string{
		"3 other:-:a.csv import listing 0 0 0 0 \"\" false",
		"2 shop:2026-04-23T16%3A00%3A00Z:- tick working 3 1 1 1 \"\" true",
		"1 shop:2026-04-23T15%3A00%3A00Z:- tick held 2 0 1 1 \"1 of its 2 jobs failed\" false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if got := listRuns(t, c, RunFilter{Source: "shop", Limit: 1}); len(got) != 1 || got[0].ID != 2 {
		t.Errorf("one run of shop: %+v", got)
	}
	status, err := c.Status(t.Context(), 0)
	warns := slices.ContainsFunc(status.Warnings, func(w string) bool { return strings.Contains(w, "semel runs release 1 ") })
	if err != nil || !warns {
		t.Errorf("warnings %q (%v)", status.Warnings, err)
	}
}

// A list of runs is read in pages.
func TestManyRuns(t *testing.T) {
	const n = 2*pageRows + 1
	l := local(t)
	update(t, l, func(tx *storage.Tx) error {
		for i := range n {
			if _, err := tx.OpenRun(storage.RunKey{Source: "shop", Window: runWindow.Add(time.Duration(i) * time.Hour)}, storage.RunTick); err != nil {
				return err
			}
		}
		return nil
	})
	runs := listRuns(t, client(t, NewHandler(l, "")), RunFilter{})
	if len(runs) != n || runs[0].ID != n || runs[n-1].ID != 1 {
		t.Errorf("%d runs, want %d", len(runs), n)
	}
}

// A held run is released or discarded once, by its number or its key.
func TestReviewRuns(t *testing.T) {
	l := local(t)
	heldRun(t, l, runWindow, 2)
	heldRun(t, l, runWindow.Add(time.Hour), 2)
	h := NewHandler(l, "me")
	for _, test := range []struct {
		path   string
		status int
		body   string
	}{
		{"/v1/runs/shop:2026-04-23T15%253A00%253A00Z:-/release", 200, `"state":"done"`},
		{"/v1/runs/1/release", 409, "urn:semel:problem:not_held"},
		{"/v1/runs/2/discard", 200, `"state":"discarded"`},
		{"/v1/runs/2/discard", 409, "urn:semel:problem:not_held"},
		{"/v1/runs/9/discard", 404, "urn:semel:problem:not_found"},
		{"/v1/runs/x/release", 404, "want 3 parts"},
	} {
		if w := ask(h, "POST", test.path, ""); w.Code != test.status || !strings.Contains(w.Body.String(), test.body) {
			t.Errorf("%s: %d %s", test.path, w.Code, w.Body)
		}
	}
	rows := 0
	err := l.Store.View(func(tx *storage.Tx) error {
		_, err := tx.Observations("shop", nil, 10, func(*storage.Observation) error { rows++; return nil })
		return err
	})
	if err != nil || rows != 1 {
		t.Errorf("%d rows (%v), want that of the run that was released", rows, err)
	}
	c := client(t, h)
	if _, err = c.DiscardRun(t.Context(), "2"); !errors.Is(err, storage.ErrNotHeld) {
		t.Errorf("discarded twice: %v", err)
	}
	if _, err = c.ReleaseRun(t.Context(), "shop:-:none"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("no such run: %v", err)
	}
}

// What is wrong with a call is told.
func TestRunsRefused(t *testing.T) {
	h := NewHandler(local(t), "")
	for path, want := range map[string]string{
		"/v1/runs?limit=-1":       "limit is a number of at least 0",
		"/v1/runs?odd=1":          "unknown parameter",
		"/v1/runs?source=nothing": "unknown source",
	} {
		if w := ask(h, "GET", path, ""); w.Code == http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
