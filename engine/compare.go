package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"semel/engine/intake"
	"semel/storage"
)

// Past are the jobs of a source that Compare collects again.
type Past struct {
	Source   string
	From, To time.Time // windows that start in [From, To); both zero: the jobs without a window
}

func (p Past) contains(window time.Time) bool {
	if p.To.IsZero() {
		return window.IsZero()
	}
	return !window.IsZero() && !window.Before(p.From) && window.Before(p.To)
}

// Comparison counts what collecting again has shown.
type Comparison struct {
	Jobs        int // of the past
	Failed      int // of these: they brought nothing this time
	Same        int // rows
	New         int
	Changed     int
	Gone        int
	Elsewhere   int // rows that another window's stand in the place of
	NotCompared int // rows of jobs that failed now
}

// Difference is one row from both sides.
type Difference struct {
	Was, Now *storage.Observation // nil: it is new, it is gone
}

// Compare collects the jobs of the past again into the empty store scratch, and
// calls fn with each row that is not what the engine's own store has. That one
// is only read. The requests are real: they keep to the pace that this engine
// keeps to and count against its budgets while it lives. Errors:
// storage.ErrNotFound (no such source, or no such jobs), the end of ctx, those
// of fn and of the stores.
func (e *Engine) Compare(ctx context.Context, past Past, scratch *storage.Store, fn func(Difference) error) (Comparison, error) {
	src := e.sources[past.Source]
	if src == nil {
		return Comparison{}, fmt.Errorf("source %s, which is not among those that are run here: %w", past.Source, storage.ErrNotFound)
	}
	c := &comparison{engine: e, src: src, past: past, scratch: scratch, tell: fn}
	for _, step := range []func(context.Context) error{c.copyJobs, c.collect, c.rows} {
		if err := step(ctx); err != nil {
			return c.done, err
		}
	}
	return c.done, nil
}

type comparison struct {
	engine  *Engine
	src     *Source
	past    Past
	scratch *storage.Store
	tell    func(Difference) error
	done    Comparison
}

// copyJobs makes the jobs of the past anew in the scratch store.
func (c *comparison) copyJobs(ctx context.Context) error {
	for after, more := uint64(0), true; more; more = after != 0 {
		var jobs []storage.NewJob
		err := c.engine.opts.Store.View(func(tx *storage.Tx) (err error) {
			jobs, after, err = c.pastJobs(tx, after)
			return err
		})
		if err != nil {
			return fmt.Errorf("reading the jobs of %s: %w", c.past.Source, err)
		}
		if err := c.scratch.Update(ctx, func(tx *storage.Tx) error { _, err := enqueueJobs(tx, jobs); return err }); err != nil {
			return fmt.Errorf("copying the jobs of %s: %w", c.past.Source, err)
		}
		c.done.Jobs += len(jobs)
	}
	if c.done.Jobs == 0 {
		return fmt.Errorf("jobs of source %s in this window: %w", c.past.Source, storage.ErrNotFound)
	}
	return nil
}

// pastJobs are those among the next replayRows jobs.
func (c *comparison) pastJobs(tx *storage.Tx, after uint64) (jobs []storage.NewJob, last uint64, err error) {
	var laneErr error
	last, err = tx.Jobs(after, replayRows, func(j *storage.Job) bool {
		if j.Key.Source != c.past.Source || !c.past.contains(j.Window) {
			return true
		}
		var lane storage.Lane
		lane, laneErr = tx.Lane(j.Lane)
		jobs = append(jobs, storage.NewJob{
			Key: j.Key, Country: j.Country, Window: j.Window, Scope: j.Scope, Version: j.Version,
			URL: j.URL, Host: lane.Host, Vars: j.Vars,
		})
		return laneErr == nil
	})
	return jobs, last, errors.Join(err, laneErr)
}

// collect works the scratch store's jobs as a guest of this engine's hosts.
func (c *comparison) collect(ctx context.Context) error {
	src := *c.src
	src.Targets, src.Sinks = intake.Spec{}, nil
	if src.Write == storage.WriteReplace {
		src.Write = storage.WriteAppend // the same rows under the same keys, and none waits for the others
	}
	opts := c.engine.opts
	opts.Store, opts.Sources, opts.Log = c.scratch, []Source{src}, opts.Log.With("comparing", src.Name)
	opts.Sinks, opts.Bodies, opts.Retention, opts.Grace = nil, BodiesNone, storage.Retention{}, 0 // what is under way at the end is lost anyway
	again, err := New(opts)
	if err != nil {
		return err
	}
	defer again.Close()
	again.guestOf = c.engine
	done, err := again.RunOnce(ctx)
	if err == nil {
		err = context.Cause(ctx)
	}
	c.done.Failed = c.done.Jobs - done.Completed
	return err
}

// rows compares the rows of both stores.
func (c *comparison) rows(ctx context.Context) error {
	err := eachObservation(ctx, c.scratch, c.past.Source, func(now *storage.Observation) error {
		was, err := lookup(c.engine.opts.Store, now.Key)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			return c.compare(nil, now)
		case err != nil:
			return err
		case !c.past.contains(was.Window):
			c.done.Elsewhere++
			return nil
		}
		return c.compare(was, now)
	})
	if err != nil {
		return err
	}
	return eachObservation(ctx, c.engine.opts.Store, c.past.Source, func(was *storage.Observation) error {
		if !c.past.contains(was.Window) {
			return nil
		}
		_, err := lookup(c.scratch, was.Key)
		if !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		complete, err := c.collected(was)
		if err != nil {
			return err
		}
		if !complete {
			c.done.NotCompared++
			return nil
		}
		return c.compare(was, nil)
	})
}

// collected reports whether the job that made a row has completed again.
func (c *comparison) collected(was *storage.Observation) (bool, error) {
	key, err := storage.ParseJobKey(was.Job)
	if err != nil {
		return false, err
	}
	complete := false
	err = c.scratch.View(func(tx *storage.Tx) error {
		j, err := tx.JobByKey(key)
		complete = err == nil && j.State == storage.StateComplete
		return err
	})
	if errors.Is(err, storage.ErrNotFound) { // made since
		return false, nil
	}
	return complete, err
}

// compare counts one row, and tells it where it differs. A row that is marked
// gone is as good as none.
func (c *comparison) compare(was, now *storage.Observation) error {
	d := Difference{present(was), present(now)}
	switch {
	case d.Was == nil && d.Now == nil:
		c.done.Same++
		return nil
	case d.Was == nil:
		c.done.New++
	case d.Now == nil:
		c.done.Gone++
	case bytes.Equal(was.Data, now.Data):
		c.done.Same++
		return nil
	default:
		c.done.Changed++
	}
	return c.tell(d)
}

func present(o *storage.Observation) *storage.Observation {
	if o == nil || o.Gone {
		return nil
	}
	return o
}
