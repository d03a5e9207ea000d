package fetch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
)

// errNoShare: the attempt's time was over before the body got its share.
var errNoShare = errors.New("no memory came free to hold the body")

// Budget bounds the bytes of bodies that a process holds at once, over all its
// sessions. It is safe for concurrent use.
//
// A body asks for more as it grows. When nothing is left, bodies that hold
// something must not wait for each other: one at a time may go on beyond the
// budget until it is let go, the others wait for that. So the bound is the
// budget and one whole body.
type Budget struct {
	left   *semaphore.Weighted
	beyond chan struct{} // capacity 1: a token while a body is beyond the budget
}

// NewBudget makes a budget of so many bytes, at least one body's first step.
func NewBudget(bytes int64) *Budget {
	return &Budget{left: semaphore.NewWeighted(max(bytes, budgetStep)), beyond: make(chan struct{}, 1)}
}

// budgetStep is what a body asks for at once: most pages fit into one.
const budgetStep = 256 << 10

// Share is the part of a Budget of one body, or of several (Keep). It is for one
// goroutine; the nil Share has no bound.
type Share struct {
	budget *Budget
	taken  int64
	kept   int64 // of taken, by bodies before this one
	beyond bool
}

// Share begins an empty share. Free it when nothing of it is held any longer.
func (b *Budget) Share() *Share { return &Share{budget: b} }

// Free gives everything back. The share may then be used again.
func (s *Share) Free() {
	if s.beyond {
		<-s.budget.beyond
	}
	s.budget.left.Release(s.taken)
	s.taken, s.kept, s.beyond = 0, 0, false
}

// Keep goes on with the next body while those before it are held, too.
func (s *Share) Keep() { s.kept = s.taken }

// Take makes the share at least size bytes for a body that comes from
// elsewhere, waiting for that if need be. Error: the end of ctx.
func (s *Share) Take(ctx context.Context, size int64) error { return s.grow(ctx, size, func() {}) }

// grow makes the share at least size bytes, waiting for that if need be. alive
// is called while it waits: the wait is ours, not the site's.
func (s *Share) grow(ctx context.Context, size int64, alive func()) error {
	for s != nil && s.taken-s.kept < size && !s.beyond {
		if err := s.step(ctx, alive); err != nil {
			return fmt.Errorf("%w: %w", errNoShare, err)
		}
	}
	return nil
}

func (s *Share) step(ctx context.Context, alive func()) error {
	if s.budget.left.TryAcquire(budgetStep) {
		s.taken += budgetStep
		return nil
	}
	stop := every(time.Second, alive)
	defer stop()
	if s.taken == 0 { // holds nothing, so it can wait for all the others
		if err := s.budget.left.Acquire(ctx, budgetStep); err != nil {
			return err
		}
		s.taken = budgetStep
		return nil
	}
	select {
	case s.budget.beyond <- struct{}{}:
		s.beyond = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// every calls fn again and again until the returned function is called.
func every(d time.Duration, fn func()) (stop func()) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(d)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fn()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
