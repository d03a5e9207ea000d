package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"semel/storage"
)

// RunState is where a run stands.
type RunState string

// States of runs. One whose jobs are retried or collected again works once more.
const (
	RunListing   RunState = "listing"   // targets are offered to it
	RunWorking   RunState = "working"   // jobs have work ahead
	RunHeld      RunState = "held"      // its rows wait for a person
	RunDiscarded RunState = "discarded" // a person dropped its rows
	RunDone      RunState = "done"
)

// Run is the jobs of one window of a source, or of one import.
type Run struct {
	ID         uint64          `json:"id"`
	Key        string          `json:"key"`
	Source     string          `json:"source"`
	Window     *time.Time      `json:"window"`
	Kind       storage.RunKind `json:"kind"` // what asked for it first
	State      RunState        `json:"state"`
	Held       string          `json:"held,omitempty"`    // why
	Imports    []string        `json:"imports,omitempty"` // names of files whose import has begun and not ended
	Targets    uint64          `json:"targets"`           // of the list that was read for it; 0: none was
	Jobs       uint64          `json:"jobs"`              // made, but for those that retention has forgotten
	Open       uint64          `json:"open"`
	Complete   uint64          `json:"complete"`
	Failed     uint64          `json:"failed"`
	LeftS      *int64          `json:"left_s"` // seconds its jobs still take at the rate so far; null: nothing to go by
	CreatedAt  time.Time       `json:"created_at"`
	FinishedAt *time.Time      `json:"finished_at"` // for the first time
	ReplacedAt *time.Time      `json:"replaced_at"` // when the rows of its window were last replaced
}

// RunFilter says which runs to list; zero fields let all through.
type RunFilter struct {
	Source string
	Limit  int // 0: no limit
}

// Runs implements Service.
func (l *Local) Runs(ctx context.Context, f RunFilter, fn func(Run) error) error {
	if f.Source != "" {
		if err := l.known(f.Source); err != nil {
			return err
		}
	}
	return eachRow(ctx, f.Limit, func(before uint64) ([]Run, uint64, error) {
		page, next, err := l.runsBefore(before, f)
		if err != nil {
			err = fmt.Errorf("listing runs: %w", err)
		}
		return page, next, err
	}, fn)
}

// runsBefore reads some runs of ids under before (0: all), and tells from which
// to go on; 0: there are no more.
func (l *Local) runsBefore(before uint64, f RunFilter) (page []Run, next uint64, err error) {
	err = l.Store.View(func(tx *storage.Tx) error {
		seen := 0
		var failed error
		err := tx.Runs(before, func(r *storage.Run) bool {
			if f.Source == "" || f.Source == r.Key.Source {
				var run Run
				run, failed = newRun(tx, r)
				page = append(page, run)
			}
			if seen++; seen == pageRows && r.ID > 1 {
				next = r.ID
			}
			return seen < pageRows && failed == nil
		})
		return errors.Join(err, failed)
	})
	return page, next, err
}

// ReleaseRun implements Service.
func (l *Local) ReleaseRun(ctx context.Context, ref string) (Run, error) {
	return l.changeRun(ctx, ref, func(tx *storage.Tx, r *storage.Run) (*storage.Run, error) {
		return tx.ReleaseRun(r.ID, l.sinks(r.Key.Source))
	})
}

// DiscardRun implements Service.
func (l *Local) DiscardRun(ctx context.Context, ref string) (Run, error) {
	return l.changeRun(ctx, ref, func(tx *storage.Tx, r *storage.Run) (*storage.Run, error) { return tx.DiscardRun(r.ID) })
}

func (l *Local) changeRun(ctx context.Context, ref string, change func(*storage.Tx, *storage.Run) (*storage.Run, error)) (run Run, err error) {
	err = l.Store.Update(ctx, func(tx *storage.Tx) error {
		r, err := findRun(tx, ref)
		if err != nil {
			return err
		}
		if r, err = change(tx, r); err != nil {
			return err
		}
		run, err = newRun(tx, r)
		return err
	})
	return run, err
}

// findRun reads the run that a reference names.
func findRun(tx *storage.Tx, ref string) (*storage.Run, error) {
	if id, err := strconv.ParseUint(ref, 10, 64); err == nil {
		return tx.Run(id)
	}
	key, err := storage.ParseRunKey(ref)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrNotFound, err)
	}
	return tx.RunByKey(key)
}

func newRun(tx *storage.Tx, r *storage.Run) (Run, error) {
	run := Run{
		ID: r.ID, Key: r.Key.String(), Source: r.Key.Source, Window: when(r.Key.Window), Kind: r.Kind,
		State: runState(r), Held: r.Held, Targets: r.Targets,
		Jobs: r.Jobs, Open: r.Open, Complete: r.Complete(), Failed: r.Failed, LeftS: runLeft(r, tx.Now),
		CreatedAt: r.Created, FinishedAt: when(r.Finished), ReplacedAt: when(r.Replaced),
	}
	if !r.Listing {
		return run, nil
	}
	imports, err := tx.OpenImports(r)
	for _, im := range imports {
		run.Imports = append(run.Imports, im.Key.Name)
	}
	return run, err
}

func runState(r *storage.Run) RunState {
	switch {
	case r.Listing:
		return RunListing
	case r.Open > 0:
		return RunWorking
	case r.Held != "":
		return RunHeld
	case !r.Discarded.IsZero():
		return RunDiscarded
	}
	return RunDone
}

// runLeft estimates the seconds that the jobs of a run still take, by how fast
// the others have ended. What a person sends back after the run was finished says
// nothing of that.
func runLeft(r *storage.Run, now time.Time) *int64 {
	ended := r.Jobs - r.Open
	todo := max(r.Targets, r.Jobs) - ended
	if ended == 0 || todo == 0 || r.Open == 0 && !r.Listing || !r.Finished.IsZero() {
		return nil
	}
	left := int64(now.Sub(r.Created).Seconds() * float64(todo) / float64(ended))
	return &left
}

// runsNamed bounds how many runs of a kind a warning is given for.
const runsNamed = 10

// runWarnings are warnings for runs whose rows wait for a person, for those that
// wait for an import which nobody goes on with, and for windows in the future.
func (l *Local) runWarnings(tx *storage.Tx) (warnings []string, err error) {
	var held, cut []string
	var failed error
	newest := map[string]time.Time{} // by source, of windows that have rows or will
	err = tx.Runs(0, func(r *storage.Run) bool {
		if r.Jobs > r.Failed && r.Key.Window.After(newest[r.Key.Source]) {
			newest[r.Key.Source] = r.Key.Window
		}
		if r.Held != "" {
			held = append(held, fmt.Sprintf("source %s: window %s keeps its old rows, since %s: look at its jobs, then semel runs release %d takes the new rows all the same, semel runs discard %d drops them, and a retry that completes all jobs needs neither (semel retry --source %s, with --recollect --window %s for complete ones that have no rows, or those of other rules: semel reparse %s reads their pages where they are kept)",
				r.Key.Source, r.Key.Window.UTC().Format(time.RFC3339), r.Held, r.ID, r.ID, r.Key.Source, r.Key.Window.UTC().Format(time.RFC3339), r.Key.Source))
		}
		if !r.Listing {
			return true
		}
		var imports []*storage.Import
		imports, failed = tx.OpenImports(r)
		for _, im := range imports {
			if !l.imports(im.Key) {
				cut = append(cut, fmt.Sprintf("source %s: the import of %s was cut short, and run %s waits for the rest: import the file again, and it goes on", im.Key.Source, im.Key.Name, r.Key))
			}
		}
		return failed == nil
	})
	return slices.Concat(fewRuns(held, "are held"), fewRuns(cut, "wait for an import"), l.aheadWarnings(newest, tx.Now)), errors.Join(err, failed)
}

// fewRuns leaves out warnings that are too many to be read.
func fewRuns(warnings []string, what string) []string {
	if len(warnings) <= runsNamed {
		return warnings
	}
	return append(warnings[:runsNamed:runsNamed], fmt.Sprintf("%d more runs %s: semel runs lists them", len(warnings)-runsNamed, what))
}

// parseRunFilter reads a RunFilter from a query, and values write it.
func parseRunFilter(query url.Values) (f RunFilter, err error) {
	err = eachParameter(query, func(name, value string) (err error) {
		switch name {
		case "source":
			f.Source = value
		case "limit":
			f.Limit, err = parseLimit(value)
		default:
			err = unknownParameter(name)
		}
		return err
	})
	return f, err
}

func (f RunFilter) values() url.Values {
	v := url.Values{}
	if f.Source != "" {
		v.Set("source", f.Source)
	}
	if f.Limit != 0 {
		v.Set("limit", strconv.Itoa(f.Limit))
	}
	return v
}
