package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"semel/engine/intake"
	"semel/storage"
)

const (
	// windowBatch is how many windows one transaction opens, some 10 ms.
	windowBatch = 1000
	// dropBatch is how many chunks of a list one transaction deletes, some 2 MB.
	dropBatch = 64
	// A file of targets that cannot be read is tried again after firstRetry, then
	// after twice as long each time, up to lastRetry: whoever writes it may be at
	// it just now, or may mend it in a while.
	firstRetry = 10 * time.Second
	lastRetry  = 10 * time.Minute
)

// feed makes the jobs of one source's windows. Whoever wants jobs opens a list
// for windows (storage.List); the feed reads the source's targets into it, once,
// and makes jobs of them window by window. Both go on where a crash has cut them
// short.
type feed struct {
	e     *Engine
	src   *Source
	begun chan struct{} // closed by begin
	begin func()        // what was due at the start has been offered: run waits for it
	wake  chan struct{} // holds one: there may be a list

	turn  slots         // one: of who works on the lists, or opens them for more windows than one transaction takes
	wait  time.Duration // before targets that could not be read are tried again; 0: they could
	retry *time.Timer   // awakes run then; nil: all could be read so far
}

func newFeed(e *Engine, src *Source) *feed {
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	return &feed{e: e, src: src, begun: begun, begin: begin, wake: make(chan struct{}, 1), turn: make(slots, 1)}
}

// run works on the lists whenever there may be some, until ctx ends.
func (f *feed) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-f.begun:
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
		if err := f.work(ctx); err != nil {
			return err
		}
	}
}

// awake tells run that there may be a list.
func (f *feed) awake() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// work works on all lists there are. Targets that cannot be read are told, and
// run is awakened for them later.
func (f *feed) work(ctx context.Context) error {
	if !f.turn.take(ctx) {
		return context.Cause(ctx)
	}
	defer f.turn.free()
	select {
	case <-f.wake: // for what is found now
	default:
	}
	if f.retry != nil {
		f.retry.Stop()
	}
	err := f.workLists(ctx, f.e.tally(f.src))
	if !errors.Is(err, errUnreadable) {
		f.wait = 0
		return err
	}
	f.e.badFile(f.src, err)
	f.wait = min(max(2*f.wait, firstRetry), lastRetry)
	f.retry = time.AfterFunc(f.wait, f.awake)
	return nil
}

// workLists is work for whose turn it is. One list that cannot be read holds
// back none that was.
func (f *feed) workLists(ctx context.Context, t tally) error {
	var lists []*storage.List
	err := f.e.opts.Store.View(func(tx *storage.Tx) (err error) {
		lists, err = tx.Lists(f.src.Name)
		return err
	})
	if err != nil {
		return fmt.Errorf("looking for lists of targets: %w", err)
	}
	var unreadable error
	for _, l := range lists {
		err := f.workList(ctx, l, t)
		if errors.Is(err, errUnreadable) {
			unreadable = err
		} else if err != nil {
			return err
		}
	}
	return unreadable
}

// workList reads a list, gives it to the windows that want it, and forgets it.
func (f *feed) workList(ctx context.Context, l *storage.List, t tally) error {
	for {
		r, err := f.nextRun(l)
		if errors.Is(err, storage.ErrNotFound) {
			return f.drop(ctx, l)
		}
		if err == nil && !l.Whole {
			err = f.read(ctx, l, r.Key.Window, t)
		}
		if err == nil {
			err = f.makeChunk(ctx, l, r, t)
		}
		if err != nil {
			return err
		}
	}
}

// nextRun is the run of the next window that wants a list. Error: ErrNotFound.
func (f *feed) nextRun(l *storage.List) (r *storage.Run, err error) {
	err = f.e.opts.Store.View(func(tx *storage.Tx) error {
		r, err = tx.NextRun(l)
		return err
	})
	return r, err
}

// read reads the source's targets into a list, from the beginning.
func (f *feed) read(ctx context.Context, l *storage.List, window time.Time, t tally) error {
	if l.Chunks > 0 { // a crash has left it half read
		if err := f.drop(ctx, l); err != nil {
			return err
		}
	}
	if f.src.Targets.Kind != intake.Sitemap {
		l.File = f.src.Targets.Path
	}
	sum, targets := sha256.New(), 0
	err := f.e.readTargets(ctx, f.src, window, t, func(c *chunk) error {
		packed := storage.PackTargets(listTargets(c.targets))
		_, _ = sum.Write(packed.Plain()) // a hash takes everything
		targets += len(c.targets)
		return f.change(ctx, l, func(tx *storage.Tx) error { return tx.AddChunk(l, packed) })
	})
	if err != nil {
		return err
	}
	return f.change(ctx, l, func(tx *storage.Tx) error { return tx.EndList(l, uint64(targets), [sha256.Size]byte(sum.Sum(nil))) })
}

func listTargets(targets []intake.Target) []storage.ListTarget {
	list := make([]storage.ListTarget, len(targets))
	for i, t := range targets {
		list[i].Line = t.Line
		for _, v := range t.Vars {
			list[i].Vars = append(list[i].Vars, storage.Var(v))
		}
	}
	return list
}

// makeChunk makes jobs of the next chunk of a list for a run.
func (f *feed) makeChunk(ctx context.Context, l *storage.List, r *storage.Run, t tally) error {
	var jobs, unknown []storage.NewJob
	err := f.e.opts.Store.View(func(tx *storage.Tx) (err error) {
		if r.Made < uint64(l.Chunks) {
			if jobs, err = f.jobs(tx, l, r, t); err != nil {
				return err
			}
		}
		unknown, err = unknownJobs(tx, jobs)
		return err
	})
	if err != nil {
		return err
	}
	return f.e.makeJobs(ctx, jobs, unknown, t, func(tx *storage.Tx) error {
		r, err := tx.NextRun(l)
		if err != nil {
			return err
		}
		_, err = tx.ChunkMade(l, r, f.src.Sinks)
		return err
	})
}

// jobs are those of the next chunk of a list for a run.
func (f *feed) jobs(tx *storage.Tx, l *storage.List, r *storage.Run, t tally) ([]storage.NewJob, error) {
	targets, err := tx.ListTargets(l, uint32(r.Made))
	if err != nil {
		return nil, err
	}
	jobs := make([]storage.NewJob, 0, len(targets))
	for _, kept := range targets {
		target := intake.Target{File: l.File, Line: kept.Line}
		for _, v := range kept.Vars {
			target.Vars = append(target.Vars, intake.Var(v))
		}
		job, err := f.src.NewJob(target, r.Key.Window)
		if bad, ok := errors.AsType[*intake.RowError](err); ok { // the config has changed since the list was read
			t.bad(bad)
			continue
		}
		if job.Run = r.ID; l.Kind == storage.RunBackfill {
			job.Priority = storage.PriorityBackfill
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// drop deletes what is kept of a list: all of it, if no window wants it any
// longer.
func (f *feed) drop(ctx context.Context, l *storage.List) error {
	for gone := false; !gone; {
		err := f.change(ctx, l, func(tx *storage.Tx) (err error) {
			gone, err = tx.DropChunks(l, dropBatch)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// change writes to a list, which is as it was before whenever fn runs.
func (f *feed) change(ctx context.Context, l *storage.List, fn func(*storage.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	was := *l
	err := f.e.update(ctx, func(tx *storage.Tx) error {
		*l = was
		return fn(tx)
	})
	if err != nil {
		return fmt.Errorf("keeping targets of %s: %w", f.src.Name, err)
	}
	return nil
}

// open is openWindows for the feed's source, when it is its turn.
func (f *feed) open(ctx context.Context, kind storage.RunKind, windows []time.Time) error {
	if !f.turn.take(ctx) {
		return context.Cause(ctx)
	}
	defer f.turn.free()
	return f.e.openWindows(ctx, f.src, kind, windows)
}

// openWindows opens one list for windows of a source. Those that have one that is
// not made yet are left to it.
func (e *Engine) openWindows(ctx context.Context, src *Source, kind storage.RunKind, windows []time.Time) error {
	var list *storage.List
	for batch := range slices.Chunk(windows, windowBatch) {
		if err := ctx.Err(); err != nil {
			return err
		}
		var l *storage.List
		err := e.update(ctx, func(tx *storage.Tx) (err error) {
			if l = list; l == nil {
				if l, err = tx.OpenList(src.Name, kind); err != nil {
					return err
				}
			}
			return offerWindows(tx, l, batch)
		})
		if err != nil {
			return fmt.Errorf("opening windows of %s: %w", src.Name, err)
		}
		list = l
	}
	return nil
}

func offerWindows(tx *storage.Tx, l *storage.List, windows []time.Time) error {
	for _, w := range windows {
		if _, err := tx.OfferWindow(l, w); err != nil {
			return err
		}
	}
	return nil
}
