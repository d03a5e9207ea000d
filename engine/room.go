package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"semel/storage"
)

// roomWait is how long a full disk is left alone before the next try: a try
// costs one failed write, and room comes when somebody makes it.
const roomWait = time.Second

// room is the queue of those who wait for room on the disk of the store.
type room struct {
	turn slots // one, for the one who tries

	mu      sync.Mutex
	waiting int
	since   time.Time // the first of them; zero: nobody waits
}

// update is Store.Update for all that the engine writes. While the disk is full
// it says so, waits for its turn and then for room, or until ctx ends; then the
// error is storage.ErrFull. fn may run more than once, so it must set what it
// gives.
func (e *Engine) update(ctx context.Context, fn func(*storage.Tx) error) error {
	try := func() error { return e.opts.Store.Update(context.WithoutCancel(ctx), fn) }
	err := try()
	if !errors.Is(err, storage.ErrFull) {
		return err
	}
	e.beginWait(err)
	if e.room.turn.take(ctx) { // the others follow in the order in which they came
		err = tryForRoom(ctx, try)
		e.room.turn.free()
	}
	e.endWait(err == nil)
	return err
}

// tryForRoom tries until there is room or ctx ends.
func tryForRoom(ctx context.Context, try func() error) error {
	ticker := time.NewTicker(roomWait)
	defer ticker.Stop()
	for {
		err := try()
		if !errors.Is(err, storage.ErrFull) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

func (e *Engine) beginWait(err error) {
	e.room.mu.Lock()
	defer e.room.mu.Unlock()
	if e.room.waiting++; e.room.waiting == 1 {
		e.room.since = e.now()
		e.opts.Log.Error("the disk of the store is full: nothing is claimed until there is room; what was collected waits in memory",
			"store", e.opts.Store.Path(), "error", err)
	}
}

func (e *Engine) endWait(wrote bool) {
	e.room.mu.Lock()
	defer e.room.mu.Unlock()
	if e.room.waiting--; e.room.waiting > 0 {
		return
	}
	if wrote {
		e.opts.Log.Info("there is room on the disk of the store again", "after", e.now().Sub(e.room.since).Round(time.Second))
	}
	e.room.since = time.Time{}
}

// FullSince is since when writes have been waiting for room on the disk of the
// store; zero: none waits.
func (e *Engine) FullSince() time.Time {
	e.room.mu.Lock()
	defer e.room.mu.Unlock()
	return e.room.since
}
