package storage_test

import (
	"context"
	"errors"
	"maps"

	"pgregory.net/rapid"

	"semel/storage"
)

// modelPage is the page of every attempt.
var modelPage = storage.KeepPage([]byte("<p>a page</p>"))

// problems draws what did not fit on a page, nothing most of the time.
func (x *machine) problems(t *rapid.T) []storage.Problem {
	if rapid.IntRange(0, 2).Draw(t, "fits") > 0 {
		return nil
	}
	return []storage.Problem{{Row: -1, Field: "v", Value: "x", Reason: "it is no number"}}
}

// setAside quarantines a job's page, which is told once.
func (m *model) setAside(j *storage.Job, q modelUnfit) {
	before, there := m.quarantine[j]
	m.quarantine[j] = q
	if !there {
		m.count(j.Key.Source, storage.MetricQuarantine, 1)
	}
	if !there || before != q {
		m.emit(modelSinks, storage.EventQuarantined, j.Key.String())
	}
}

func (m *model) endQuarantine(j *storage.Job) {
	if _, there := m.quarantine[j]; there {
		m.count(j.Key.Source, storage.MetricQuarantine, -1)
		delete(m.quarantine, j)
	}
}

// readAgain does something with the page of a job, which has one to be read again
// once it is complete or in quarantine, and reports whether that was done.
func (x *machine) readAgain(t *rapid.T, do func(*storage.Tx, storage.Attempt) error) *storage.Job {
	if len(x.m.jobs) == 0 {
		t.Skip("no job yet")
	}
	j := rapid.SampledFrom(x.m.jobs).Draw(t, "job")
	err := x.s.Update(context.Background(), func(tx *storage.Tx) error {
		is, err := tx.Job(j.ID)
		if err != nil {
			return err
		}
		read, err := tx.Reparsable(is)
		if err != nil {
			return err
		}
		return do(tx, read)
	})
	_, quarantined := x.m.quarantine[j]
	var want error
	switch {
	case j.State != storage.StateComplete && !quarantined, j.State == storage.StateFailed && j.Category == storage.CategoryCanceled:
		want = storage.ErrNotFound
	case !j.State.Terminal():
		want = storage.ErrTransition
	}
	if !errors.Is(err, want) {
		t.Fatalf("reading the page of a %s job again: %v, want %v", j.State, err, want)
	}
	if want != nil {
		return nil
	}
	return j
}

func (x *machine) reparse(t *rapid.T) {
	c := x.completion(t)
	j := x.readAgain(t, func(tx *storage.Tx, read storage.Attempt) error {
		return reparse(tx, read, c)
	})
	if j == nil {
		return
	}
	was := j.State
	j.Generation++
	j.Version, j.Sent = c.Attempt.ParserVersion, ""
	x.m.set(j, storage.StateComplete, "")
	if r := x.m.runOf(j); r != nil && x.mode == storage.WriteReplace {
		r.discarded = false
	}
	counted := maps.Clone(x.m.counters[j.Key.Source])
	x.finish(j, c, was == storage.StateComplete)
	if was == storage.StateComplete { // its rows were counted when it was collected
		for _, metric := range []string{storage.MetricDuplicates, storage.MetricUnchanged} {
			x.m.counters[j.Key.Source][metric] = counted[metric]
		}
	} else {
		x.m.count(j.Key.Source, storage.MetricReread, 1)
		x.m.emit(modelSinks, storage.EventJobComplete, j.Key.String())
	}
	x.settle(x.m.runOf(j))
}

// unfit finds that the page of a job does not fit: what it has brought stays.
func (x *machine) unfit(t *rapid.T) {
	version := rapid.IntRange(1, 2).Draw(t, "version")
	j := x.readAgain(t, func(tx *storage.Tx, read storage.Attempt) error {
		return tx.QuarantinePage(read, version, []storage.Problem{{Row: 3, Reason: "it has no key"}}, modelSinks)
	})
	if j == nil {
		return
	}
	q, there := x.m.quarantine[j]
	if !there {
		q.attempts = j.Attempts
	}
	q.version = version
	x.m.setAside(j, q)
}

func (x *machine) discardQuarantine(t *rapid.T) {
	if len(x.m.jobs) == 0 {
		t.Skip("no job yet")
	}
	j := rapid.SampledFrom(x.m.jobs).Draw(t, "job")
	err := x.s.Update(context.Background(), func(tx *storage.Tx) error { return tx.DiscardQuarantine(j.ID) })
	if _, there := x.m.quarantine[j]; there != (err == nil) || err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("discarding: %v, there is one: %v", err, there)
	}
	x.m.endQuarantine(j)
}

func (x *machine) compareQuarantine(t *rapid.T, tx *storage.Tx) {
	n := 0
	_, err := tx.Quarantined(0, 1<<30, func(q *storage.Quarantine) bool {
		n++
		if want := x.m.quarantine[x.m.job(q.Job)]; want != (modelUnfit{q.Attempts, q.Version}) || len(q.Problems) != 1 {
			t.Fatalf("job %d has %+v in quarantine, want %+v", q.Job, q, want)
		}
		return true
	})
	if err != nil || n != len(x.m.quarantine) {
		t.Fatalf("%d pages in quarantine, want %d (%v)", n, len(x.m.quarantine), err)
	}
}
