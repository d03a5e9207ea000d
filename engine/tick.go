package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"semel/engine/intake"
	"semel/storage"
)

// CatchUp says what becomes of ticks that came while nobody looked.
type CatchUp string

// What becomes of missed ticks.
const (
	CatchUpNone   CatchUp = "none"   // they are passed over
	CatchUpLatest CatchUp = "latest" // the last of them is made
	CatchUpAll    CatchUp = "all"
)

const (
	// watch is how long the clock goes unlooked at: it may be set, and a laptop
	// may sleep, while timers know of neither.
	watch = time.Minute
	// onTime is how late a tick may be noticed and count as not missed. A look
	// comes within watch, and may have to wait for the disk.
	onTime = 2 * watch
)

// keepOffering makes jobs whenever a schedule falls due and whenever a queue has
// messages, until ctx ends.
func (e *Engine) keepOffering(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return e.tick(ctx) })
	for _, f := range e.feeds {
		group.Go(func() error { return f.run(ctx) })
		if f.src.Targets.Kind == intake.Queue {
			group.Go(func() error { return e.takeTargets(ctx, f.src, false) })
		}
	}
	return group.Wait()
}

// tick opens windows as they fall due.
func (e *Engine) tick(ctx context.Context) error {
	for {
		timer := time.NewTimer(e.untilTick(e.now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if err := e.openDue(ctx); err != nil {
			return err
		}
	}
}

// untilTick is how long no schedule falls due.
func (e *Engine) untilTick(now time.Time) time.Duration {
	wait := watch
	for i := range e.opts.Sources {
		if s := e.opts.Sources[i].Schedule; s != nil {
			wait = min(wait, s.Next(now).Sub(now))
		}
	}
	return wait
}

// openDue opens the windows that are due of all sources, and remembers up to
// which tick it has done so, in one transaction: however often it looks, and
// whatever is killed, each tick has its turn once.
func (e *Engine) openDue(ctx context.Context) error {
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var opened []string
		err := e.update(ctx, func(tx *storage.Tx) error {
			more, opened = false, nil
			for i := range e.opts.Sources {
				src := &e.opts.Sources[i]
				n, err := src.openDue(tx, e.scheduleNow())
				if err != nil {
					return fmt.Errorf("schedule of %s: %w", src.Name, err)
				}
				if n > 0 {
					opened = append(opened, src.Name)
				}
				more = more || n == windowBatch
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, name := range opened {
			e.feeds[name].awake()
		}
	}
	return nil
}

// scheduleNow is the time that schedules see.
func (e *Engine) scheduleNow() time.Time {
	if !e.opts.At.IsZero() {
		return e.opts.At
	}
	return e.now()
}

// openDue opens the windows of a source that are due, up to windowBatch of them,
// and gives their number.
func (s *Source) openDue(tx *storage.Tx, now time.Time) (int, error) {
	kept, after, err := s.kept(tx, now)
	if kept == nil || err != nil {
		return 0, err
	}
	windows, last := s.due(after, now)
	if last.IsZero() {
		return 0, nil
	}
	kept.Last = last
	if err := tx.PutSchedule(kept); err != nil || len(windows) == 0 {
		return 0, err
	}
	l, err := tx.OpenList(s.Name, storage.RunTick)
	if err != nil {
		return 0, err
	}
	return len(windows), offerWindows(tx, l, windows)
}

// kept is what the store remembers of the source's schedule, and the time whose
// later ticks are to come. A schedule that is seen for the first time begins with
// the window that it is in, one that has changed with its next tick. nil: the
// source has no schedule.
func (s *Source) kept(tx *storage.Tx, now time.Time) (kept *storage.Schedule, after time.Time, err error) {
	today := &storage.Schedule{Source: s.Name, Since: now}
	if s.Schedule != nil {
		today.Spec, today.Zone = s.Schedule.String(), s.Schedule.Zone()
	}
	kept, err = tx.Schedule(s.Name)
	switch first := errors.Is(err, storage.ErrNotFound); {
	case first && s.Schedule == nil:
		return nil, after, nil
	case first:
		return today, s.Schedule.Last(now).Add(-1), tx.PutSchedule(today)
	case err != nil:
		return nil, after, err
	case kept.Spec != today.Spec || kept.Zone != today.Zone:
		kept, err = today, tx.PutSchedule(today)
	}
	if s.Schedule == nil {
		return nil, after, err
	}
	return kept, kept.After(), err
}

// due are the windows to open of the ticks in (after, now], at most windowBatch,
// and the last tick that these settle; zero: there is none.
func (s *Source) due(after, now time.Time) (windows []time.Time, last time.Time) {
	if s.CatchUp == CatchUpAll {
		for tick := range s.Schedule.Ticks(after.Add(1), now.Add(1)) {
			if windows = append(windows, tick); len(windows) == windowBatch {
				break
			}
		}
		if len(windows) == 0 {
			return nil, last
		}
		return windows, windows[len(windows)-1]
	}
	last = s.Schedule.Last(now)
	switch {
	case !last.After(after):
		return nil, time.Time{}
	case s.CatchUp == CatchUpNone && now.Sub(last) > onTime:
		return nil, last
	}
	return []time.Time{last}, last
}
