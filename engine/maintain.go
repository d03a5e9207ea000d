package engine

import (
	"context"
	"fmt"
	"time"

	"semel/storage"
)

const (
	// sweep is how often due retries and ended leases are looked for. A look
	// costs two seeks, so this only bounds how late a retry starts.
	sweep = 200 * time.Millisecond
	// sweepBatch bounds how many jobs one transaction moves.
	sweepBatch = 500
)

// maintain renews the leases in flight at a third of their length, takes back
// those that ended, and makes retries pending when they are due. It ends the
// engine when the store's file is gone from its place.
func (e *Engine) maintain(ctx context.Context) error {
	ticker := time.NewTicker(sweep)
	defer ticker.Stop()
	renewed, tidied := e.now(), e.now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := e.now()
		if now.Sub(renewed) >= e.opts.Lease/3 {
			renewed = now
			if err := e.renewOnce(ctx, now); err != nil {
				return ignoreStop(ctx, err)
			}
		}
		if now.Sub(tidied) >= time.Minute {
			tidied = now
			e.pace.forget(now)
		}
		if err := e.opts.Store.Moved(); err != nil {
			return err
		}
		if err := e.sweepOnce(ctx, now); err != nil {
			return ignoreStop(ctx, err)
		}
	}
}

// renewOnce renews the leases of healthy attempts, and stops those whose lease
// is lost.
func (e *Engine) renewOnce(ctx context.Context, now time.Time) error {
	var leases []storage.Lease
	e.mu.Lock()
	for _, a := range e.held {
		if a.decided || now.Before(a.until) {
			leases = append(leases, a.job.Lease())
		}
	}
	e.mu.Unlock()
	if len(leases) == 0 {
		return nil
	}
	var lost []storage.Lease
	err := e.update(ctx, func(tx *storage.Tx) (err error) {
		lost, err = tx.RenewLeases(leases, e.opts.Lease)
		return err
	})
	if err != nil {
		return fmt.Errorf("renewing leases: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range lost {
		if a := e.held[l.Job]; a != nil && a.job.Generation == l.Generation {
			a.cancel(storage.ErrLeaseLost)
		}
	}
	return nil
}

// sweepOnce moves what the clock has made due.
func (e *Engine) sweepOnce(ctx context.Context, now time.Time) error {
	retry, lease, err := e.nextDue()
	if err != nil {
		return err
	}
	if ended(lease, now) {
		// After a suspend or a jump of the clock every lease looks ended, though
		// its worker is alive: those say so first.
		if err := e.renewOnce(ctx, now); err != nil {
			return err
		}
		if _, lease, err = e.nextDue(); err != nil {
			return err
		}
	}
	if ended(lease, now) {
		n, err := e.rescue(ctx, now)
		if err != nil {
			return err
		}
		e.opts.Log.Warn("took back leases of workers that fell silent", "jobs", n)
	}
	if !ended(retry, now) {
		return nil
	}
	return e.promote(ctx)
}

// ended reports whether a time is there and has come.
func ended(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

func (e *Engine) nextDue() (retry, lease time.Time, err error) {
	err = e.opts.Store.View(func(tx *storage.Tx) error {
		retry, lease = tx.NextDue()
		return nil
	})
	return retry, lease, err
}

func (e *Engine) promote(ctx context.Context) error {
	for n := sweepBatch; n == sweepBatch; {
		err := e.update(ctx, func(tx *storage.Tx) (err error) {
			n, err = tx.PromoteDue(sweepBatch)
			return err
		})
		if err != nil {
			return fmt.Errorf("making due retries pending: %w", err)
		}
	}
	return nil
}

// rescue takes back leases that ended before a time.
func (e *Engine) rescue(ctx context.Context, before time.Time) (int, error) {
	total := 0
	for n := sweepBatch; n == sweepBatch; total += n {
		err := e.update(ctx, func(tx *storage.Tx) (err error) {
			n, err = tx.RescueExpired(before, sweepBatch, e.rescuePolicy)
			return err
		})
		if err != nil {
			return total, fmt.Errorf("taking back ended leases: %w", err)
		}
	}
	e.note(func(s *Summary) { s.Rescued += total })
	return total, nil
}

// rescuePolicy lets jobs of sources that are not ours simply wait.
func (e *Engine) rescuePolicy(source string) storage.RescuePolicy {
	if src := e.sources[source]; src != nil {
		return storage.RescuePolicy{Max: src.Limits.Rescues, Sinks: src.Sinks}
	}
	return storage.RescuePolicy{}
}
