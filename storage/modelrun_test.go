package storage_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"semel/storage"
)

// modelRun is a run with what its jobs have staged.
type modelRun struct {
	source    string
	window    time.Time
	listing   bool
	offered   bool
	finished  bool
	held      bool // when no job had work ahead for the last time
	discarded bool
	staged    map[*storage.Job]map[string]*modelRow // by record key
	brought   map[*storage.Job]modelBrought         // what it has staged
	stands    map[*storage.Job]modelBrought         // what was written
}

// modelBrought is what a job has brought.
type modelBrought struct {
	version int
	counted bool // what it brought is in the counters
	rows    int  // that it gave
}

func (r *modelRun) key() string { return storage.RunKey{Source: r.source, Window: r.window}.String() }

// place is where the model keeps a row of a job.
func (x *machine) place(j *storage.Job, key string) string {
	if x.windowed() && !j.Window.IsZero() {
		return fmt.Sprint(j.Key.Source, " ", key, " ", j.Window.Unix())
	}
	return j.Key.Source + " " + key
}

func (x *machine) windowed() bool {
	return x.mode == storage.WriteAppend || x.mode == storage.WriteReplace
}

func (m *model) runOf(j *storage.Job) *modelRun {
	if j.Run == 0 {
		return nil
	}
	return m.runs[j.Run-1]
}

// counts are how many jobs a run has, with work ahead and failed.
func (m *model) counts(r *modelRun) (jobs, open, failed int) {
	for _, j := range m.jobs {
		if m.runOf(j) != r {
			continue
		}
		jobs++
		switch {
		case !j.State.Terminal():
			open++
		case j.State == storage.StateFailed:
			failed++
		}
	}
	return jobs, open, failed
}

// write is design.md §7 for what a job brings.
func (x *machine) write(j *storage.Job, version int, records []storage.NewObservation, counted bool) {
	r := x.m.runOf(j)
	if x.mode == storage.WriteReplace && r != nil {
		if r.staged[j] != nil {
			counted = counted && r.brought[j].counted
		}
		r.brought[j] = modelBrought{version, counted, len(records)}
		r.staged[j] = map[string]*modelRow{}
		for _, record := range records {
			r.staged[j][record.Key] = &modelRow{j.Window, version, j.Key.String(), string(record.Data), 1}
		}
		return
	}
	if r != nil && x.windowed() {
		r.stands[j] = modelBrought{version, true, len(records)}
	}
	for _, record := range records {
		x.m.write(j, x.place(j, record.Key), record.Key, version, string(record.Data), x.mode, modelSinks)
	}
}

// settle is what follows from a job's end for its run.
func (x *machine) settle(r *modelRun) {
	if r == nil {
		return
	}
	jobs, open, failed := x.m.counts(r)
	if open > 0 || r.listing {
		return
	}
	if len(r.staged) > 0 {
		after, before := x.after(r)
		all := maps.Clone(r.stands)
		for j := range r.staged {
			all[j] = r.brought[j]
		}
		versions := map[int]bool{}
		for _, b := range all {
			versions[b.version] = true
		}
		if r.held = !r.offered || failed > 0 || len(all) < jobs || len(versions) > 1 || x.unsure(r, after) || 2*len(after) < before; !r.held {
			x.take(r)
		}
	}
	if r.offered && !r.finished {
		r.finished = true
		x.m.emit(modelSinks, storage.EventRunFinished, r.key())
	}
}

// unsure reports whether a row would go, and a job that has staged nothing gave one
// that stands as another's.
func (x *machine) unsure(r *modelRun, after map[string]*modelRow) bool {
	goes, own := false, map[string]int{}
	for j := range r.stands {
		for _, key := range modelKeys {
			row := x.m.rows[x.place(j, key)]
			goes = goes || row != nil && after[key] == nil
			if row != nil && row.job == j.Key.String() {
				own[row.job]++
			}
		}
	}
	for j, b := range r.stands {
		if goes && r.staged[j] == nil && b.rows > own[j.Key.String()] {
			return true
		}
	}
	return false
}

// after are the rows of a window as a promotion would leave them, by record key,
// and how many it has now.
func (x *machine) after(r *modelRun) (after map[string]*modelRow, before int) {
	after = map[string]*modelRow{}
	offer := func(key string, row *modelRow) {
		if was := after[key]; was == nil || row.job < was.job {
			after[key] = row
		}
	}
	for _, j := range x.m.jobs {
		if x.m.runOf(j) != r {
			continue
		}
		for _, key := range modelKeys {
			if row := x.m.rows[x.place(j, key)]; row != nil && row.job == j.Key.String() {
				before++
				if r.staged[j] == nil {
					offer(key, row)
				}
			}
		}
		for key, row := range r.staged[j] {
			offer(key, row)
		}
	}
	return after, before
}

// take promotes what is staged.
func (x *machine) take(r *modelRun) {
	after, _ := x.after(r)
	var any *storage.Job
	fresh, changed := map[string]bool{}, false // keys of jobs whose rows are not counted
	for j, rows := range r.staged {
		any = j
		if !r.brought[j].counted {
			fresh[j.Key.String()] = true
			x.m.count(r.source, storage.MetricDuplicates, int64(len(rows)))
		}
		r.stands[j] = modelBrought{r.brought[j].version, true, len(rows)}
	}
	for _, key := range modelKeys {
		place := x.place(any, key)
		old, row := x.m.rows[place], after[key]
		switch {
		case old == row:
			continue
		case row == nil:
			delete(x.m.rows, place)
			x.m.count(r.source, storage.MetricObservations, -1)
			changed = true
			continue
		case old == nil:
			x.m.count(r.source, storage.MetricObservations, 1)
			changed = true
		case old.data == row.data:
			if fresh[row.job] {
				x.m.count(r.source, storage.MetricUnchanged, 1)
			}
			row.revision = old.revision
		default:
			row.revision = old.revision + 1
			changed = true
		}
		if fresh[row.job] {
			x.m.count(r.source, storage.MetricDuplicates, -1)
		}
		x.m.rows[place] = row
	}
	r.staged = map[*storage.Job]map[string]*modelRow{}
	r.held = false
	if changed {
		x.m.emit(modelSinks, storage.EventReplaced, r.key())
	}
}

// someRun draws a run.
func (x *machine) someRun(t *rapid.T) (id uint64, r *modelRun) {
	if len(x.m.runs) == 0 {
		t.Skip("no run yet")
	}
	i := rapid.IntRange(0, len(x.m.runs)-1).Draw(t, "run")
	return uint64(i + 1), x.m.runs[i]
}

func (x *machine) beginListing(t *rapid.T) {
	id, r := x.someRun(t)
	x.changeRun(id, func(tx *storage.Tx, r *storage.Run) error { tx.BeginListing(r); return nil })
	r.listing = true
}

func (x *machine) endListing(t *rapid.T) {
	id, r := x.someRun(t)
	x.changeRun(id, func(tx *storage.Tx, r *storage.Run) error { return tx.EndListing(r, modelSinks) })
	r.listing, r.offered = false, true
	x.settle(r)
}

func (x *machine) changeRun(id uint64, change func(*storage.Tx, *storage.Run) error) {
	x.update(func(tx *storage.Tx) error {
		r, err := tx.Run(id)
		if err != nil {
			return err
		}
		return change(tx, r)
	})
}

func (x *machine) releaseRun(t *rapid.T) {
	x.review(t, func(tx *storage.Tx, id uint64) error { _, err := tx.ReleaseRun(id, modelSinks); return err }, x.take)
}

func (x *machine) discardRun(t *rapid.T) {
	x.review(t, func(tx *storage.Tx, id uint64) error { _, err := tx.DiscardRun(id); return err }, func(r *modelRun) {
		clear(r.staged)
		r.held, r.discarded = false, true
	})
}

// review does what only a held run allows.
func (x *machine) review(t *rapid.T, do func(*storage.Tx, uint64) error, then func(*modelRun)) {
	id, r := x.someRun(t)
	var got error
	x.update(func(tx *storage.Tx) error {
		if got = do(tx, id); errors.Is(got, storage.ErrNotHeld) {
			return nil
		}
		return got
	})
	if held := x.held(r); held != (got == nil) {
		t.Fatalf("run %d: %v, the model says it is held: %v", id, got, held)
	}
	if got == nil {
		then(r)
	}
}

func (x *machine) held(r *modelRun) bool {
	_, open, _ := x.m.counts(r)
	return r.held && open == 0 && !r.listing
}

func (x *machine) compareRuns(t *rapid.T, tx *storage.Tx) {
	var got []*storage.Run
	if err := tx.Runs(0, func(r *storage.Run) bool { got = append(got, r); return true }); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(got)
	if len(got) != len(x.m.runs) {
		t.Fatalf("%d runs, want %d", len(got), len(x.m.runs))
	}
	type counts struct {
		jobs, open, failed                          int
		listing, offered, finished, held, discarded bool
	}
	for i, r := range x.m.runs {
		want := counts{listing: r.listing, offered: r.offered, finished: r.finished, held: x.held(r)}
		want.jobs, want.open, want.failed = x.m.counts(r)
		if want.open > 0 || r.listing {
			r.discarded = false
		}
		want.discarded = r.discarded
		is := counts{
			int(got[i].Jobs), int(got[i].Open), int(got[i].Failed),
			got[i].Listing, got[i].Offered, !got[i].Finished.IsZero(), got[i].Held != "", !got[i].Discarded.IsZero(),
		}
		if is != want {
			t.Fatalf("run %s: %+v, want %+v", got[i].Key, is, want)
		}
	}
}
