package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"semel/engine/intake"
	"semel/storage"
)

// ErrNoSchedule is of a source that has no schedule, and so no past windows.
var ErrNoSchedule = errors.New("the source has no schedule")

// Backfilled is what a backfill has done.
type Backfilled struct {
	Windows int // of the schedule, in the range
	New     int // jobs made
	Known   int // jobs that were there before
	BadRows int // targets that cannot become jobs
}

// Works reports whether a source is one of the engine's.
func (e *Engine) Works(source string) bool { return e.sources[source] != nil }

// Backfill makes the jobs of a source's windows that begin in [from, to) and have
// begun. It works none. bad hears of each target that cannot become a job. Cut
// short, the same call again goes on. It may run beside Run. The source must be one
// of the engine's. Errors:
// ErrNoSchedule, intake.ErrTooManyWindows, and that of targets that cannot be read; their windows then stay
// open, and are made when they can be.
func (e *Engine) Backfill(ctx context.Context, source string, from, to time.Time, bad func(*intake.RowError)) (b Backfilled, err error) {
	f := e.feeds[source]
	if f.src.Schedule == nil {
		return b, fmt.Errorf("backfill of %s: %w", source, ErrNoSchedule)
	}
	if now := e.now(); to.After(now) {
		to = now.Add(1)
	}
	windows, err := intake.Windows(f.src.Schedule, from, to)
	if err != nil {
		return b, fmt.Errorf("backfill of %s: %w", source, err)
	}
	if !f.turn.take(ctx) { // another's may wait for a site
		return b, context.Cause(ctx)
	}
	defer f.turn.free()
	defer f.awake() // goes on with what this leaves
	if err := e.update(ctx, func(tx *storage.Tx) error { return Register(tx, f.src.stored()) }); err != nil {
		return b, err
	}
	b.Windows = len(windows)
	if err := e.openWindows(ctx, f.src, storage.RunBackfill, windows); err != nil {
		return b, err
	}
	err = f.workLists(ctx, tally{
		bad:  func(row *intake.RowError) { b.BadRows++; bad(row) },
		made: func(fresh, known int) { b.New += fresh; b.Known += known },
	})
	return b, err
}
