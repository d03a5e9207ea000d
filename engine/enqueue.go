package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"semel/engine/intake"
	"semel/storage"
)

const (
	// enqueueChunk is how many targets one transaction makes jobs of: more would
	// make the outcomes of running attempts wait behind it (measured: 500 rows
	// keep their 99th percentile near 17 ms, 5,000 at 80 ms).
	enqueueChunk = 500
	// enqueueBytes ends a chunk before that many targets, where they are long.
	enqueueBytes = 1 << 20
)

// errUnreadable is of targets that cannot be read, which holds back nothing but
// the jobs that would be made of them.
var errUnreadable = errors.New("targets could not be read")

// enqueueAll makes the jobs that are due: of each target of a source without a
// schedule, and of the targets of each source in the windows that are due, or
// that were asked for, or whose making was cut short. With once it also takes what
// is in queues.
func (e *Engine) enqueueAll(ctx context.Context, once bool) error {
	if e.opts.Window.IsZero() {
		if err := e.openDue(ctx); err != nil {
			return err
		}
	}
	if err := e.enqueueEach(ctx, once); err != nil {
		return err
	}
	e.note(func(s *Summary) { s.Offered = true })
	return nil
}

// enqueueEach makes the jobs of one source after the other, and beside these those
// of each sitemap, whose site may take hours to give it, and of each queue.
func (e *Engine) enqueueEach(ctx context.Context, once bool) error {
	group, ctx := errgroup.WithContext(ctx)
	var local []*Source
	for i := range e.opts.Sources {
		src := &e.opts.Sources[i]
		if once && src.Targets.Kind == intake.Queue {
			group.Go(func() error { return e.takeTargets(ctx, src, once) })
		}
		if src.Targets.Kind != intake.Sitemap {
			local = append(local, src)
			continue
		}
		group.Go(func() error { return e.enqueue(ctx, src) })
	}
	group.Go(func() error {
		for _, src := range local {
			if err := e.enqueue(ctx, src); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

func (e *Engine) enqueue(ctx context.Context, src *Source) error {
	f := e.feeds[src.Name]
	defer f.begin()
	if !e.opts.Window.IsZero() {
		windows, err := e.opts.Window.Starts(src.Schedule)
		if err != nil {
			return err
		}
		if err := f.open(ctx, storage.RunWindow, windows); err != nil {
			return err
		}
	} else if src.Schedule == nil && src.Targets.Kind != intake.Queue {
		if err := e.enqueueOnce(ctx, src); err != nil {
			return err
		}
	}
	return f.work(ctx)
}

// enqueueOnce makes a job without a window of each target.
func (e *Engine) enqueueOnce(ctx context.Context, src *Source) error {
	if err := src.CheckWindow(time.Time{}); err != nil {
		e.opts.Log.Warn("targets left alone", "source", src.Name, "error", err)
		return nil
	}
	t := e.tally(src)
	err := e.readTargets(ctx, src, time.Time{}, t, func(c *chunk) error {
		unknown, err := e.unknown(c.jobs)
		if err != nil {
			return err
		}
		return e.makeJobs(ctx, c.jobs, unknown, t, nil)
	})
	if errors.Is(err, errUnreadable) {
		e.badFile(src, err)
		return nil
	}
	return err
}

// tally hears what becomes of targets.
type tally struct {
	bad  func(*intake.RowError)
	made func(fresh, known int) // jobs
}

// tally is that of the engine's own work.
func (e *Engine) tally(src *Source) tally {
	return tally{
		bad: func(bad *intake.RowError) {
			e.note(func(s *Summary) { s.BadRows++ })
			e.opts.Log.Warn("target skipped", "source", src.Name, "error", bad)
		},
		made: func(fresh, known int) {
			e.note(func(s *Summary) { s.New += fresh; s.Known += known })
		},
	}
}

func (e *Engine) badFile(src *Source, err error) {
	e.note(func(s *Summary) { s.BadFiles++ })
	e.opts.Log.Error("jobs made earlier go on", "source", src.Name, "error", err)
}

// chunk is some targets, each with its job.
type chunk struct {
	targets []intake.Target
	jobs    []storage.NewJob
	bytes   int
}

func (c *chunk) add(t intake.Target, j storage.NewJob) {
	c.targets, c.jobs = append(c.targets, t), append(c.jobs, j)
	for _, v := range t.Vars {
		c.bytes += len(v.Name) + len(v.Value)
	}
}

// flush hands on what there is, and empties the chunk.
func (c *chunk) flush(fn func(*chunk) error) error {
	if len(c.jobs) == 0 {
		return nil
	}
	err := fn(c)
	c.targets, c.jobs, c.bytes = c.targets[:0], c.jobs[:0], 0
	return err
}

// readTargets calls fn with the targets of a source, each with its job for a
// window. Rows that cannot become jobs are told and left out; what cannot be read
// any further is errUnreadable, after all before it.
func (e *Engine) readTargets(ctx context.Context, src *Source, window time.Time, t tally, fn func(*chunk) error) error {
	targets, err := e.openTargets(ctx, src)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	defer targets.Close()
	var c chunk
	for {
		target, job, err := nextJob(src, targets, window)
		var bad *intake.RowError
		switch {
		case err == nil:
			c.add(target, job)
			if len(c.jobs) < enqueueChunk && c.bytes < enqueueBytes {
				continue
			}
			if err := c.flush(fn); err != nil {
				return err
			}
		case errors.As(err, &bad):
			t.bad(bad)
		case errors.Is(err, io.EOF):
			return c.flush(fn)
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			if err := c.flush(fn); err != nil {
				return err
			}
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
	}
}

func nextJob(src *Source, targets *intake.Reader, window time.Time) (intake.Target, storage.NewJob, error) {
	target, err := targets.Next()
	if err != nil {
		return target, storage.NewJob{}, err
	}
	job, err := src.NewJob(target, window)
	return target, job, err
}

// unknown are those of some jobs that would change something: those that are
// there already cost no transaction.
func (e *Engine) unknown(jobs []storage.NewJob) (unknown []storage.NewJob, err error) {
	err = e.opts.Store.View(func(tx *storage.Tx) error {
		unknown, err = unknownJobs(tx, jobs)
		return err
	})
	return unknown, err
}

func unknownJobs(tx *storage.Tx, jobs []storage.NewJob) (unknown []storage.NewJob, err error) {
	for _, n := range jobs {
		known, err := tx.Known(n)
		if err != nil {
			return nil, fmt.Errorf("looking up jobs: %w", err)
		}
		if !known {
			unknown = append(unknown, n)
		}
	}
	return unknown, nil
}

// enqueueJobs makes jobs, and counts those that were not there.
func enqueueJobs(tx *storage.Tx, jobs []storage.NewJob) (made int, err error) {
	for _, n := range jobs {
		done, err := tx.EnqueueJob(n)
		if err != nil {
			return 0, err
		}
		if done.New {
			made++
		}
	}
	return made, nil
}

// makeJobs makes those of some jobs that are unknown, in one transaction with
// what also belongs to it (nil: nothing).
func (e *Engine) makeJobs(ctx context.Context, jobs, unknown []storage.NewJob, t tally, also func(*storage.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	made := 0
	if len(unknown) > 0 || also != nil {
		err := e.update(ctx, func(tx *storage.Tx) error {
			var err error
			if made, err = enqueueJobs(tx, unknown); err != nil || also == nil {
				return err
			}
			return also(tx)
		})
		if err != nil {
			return fmt.Errorf("making jobs: %w", err)
		}
	}
	t.made(made, len(jobs)-made)
	return nil
}
