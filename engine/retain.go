package engine

import (
	"context"
	"errors"
	"time"

	"semel/storage"
)

// retainEvery is how often old history is deleted. The shortest that can be
// kept is an hour, so nothing stays much over twice its time.
const retainEvery = time.Hour

// retain deletes what Options.Retention no longer keeps, at once and then every
// retainEvery, until done is closed: then it ends what it is at, so that a
// RunOnce that finds nothing to do deletes, too. When stop ends, it leaves the
// rest to the next run. Its error is a damaged store's.
func (e *Engine) retain(stop context.Context, done <-chan struct{}) error {
	ticker := time.NewTicker(retainEvery)
	defer ticker.Stop()
	for {
		if err := e.retainOnce(stop, e.now()); err != nil {
			return err
		}
		select {
		case <-stop.Done():
			return nil
		case <-done:
			return nil
		case <-ticker.C:
		}
	}
}

// retainOnce does one pass. Failing at it must not end the collecting: what
// cannot be deleted only takes room, and a store that has stopped is noticed by
// who commits. But pages that are damaged are written to no more.
func (e *Engine) retainOnce(ctx context.Context, now time.Time) error {
	pruned, err := e.opts.Store.Prune(ctx, now, e.opts.Retention)
	if errors.Is(err, storage.ErrUnreadable) {
		return err
	}
	if err != nil && ctx.Err() == nil {
		e.opts.Log.Error("old history could not be deleted: the store grows until it can", "error", err)
	}
	if pruned != (storage.Pruned{}) {
		e.opts.Log.Info("deleted old history", "attempts", pruned.Attempts, "jobs", pruned.Jobs, "events", pruned.Events, "pages", pruned.Pages, "robots", pruned.Robots, "keys", pruned.Keys)
	}
	if err := e.opts.Store.CollectPages(ctx); err != nil && ctx.Err() == nil {
		e.opts.Log.Error("the room of old pages could not be given back", "error", err)
	}
	return nil
}
