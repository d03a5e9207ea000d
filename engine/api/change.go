package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"semel/engine/config"
	"semel/storage"
)

// transition is a change of jobs.
type transition struct {
	from   []storage.JobState // where jobs are not named, only those in these states
	apply  func(tx *storage.Tx, id uint64) (*storage.Job, error)
	spares func(*storage.Job) bool // where jobs are not named, not these; nil: none
}

// Retry implements Service. What must not be sent again by itself is not swept
// along with the rest of a source: somebody has to mean it.
func (l *Local) Retry(ctx context.Context, s Selection, fn func(Job) error) error {
	t := transition{[]storage.JobState{storage.StateFailed}, (*storage.Tx).RequeueJob, nil}
	if s.Recollect {
		t.from, t.apply = append(t.from, storage.StateComplete), (*storage.Tx).RecollectJob
	}
	src := l.Config.Source(s.Source)
	t.spares = func(j *storage.Job) bool {
		if j.State == storage.StateComplete {
			return !recollectable(src, j)
		}
		return j.Sent != "" && s.Category != storage.CategoryUnsafeToRepeat
	}
	return l.change(ctx, s, fn, t)
}

// recollectable reports whether a complete job may be collected once more
// without anybody naming it. Of a source that is not in the config (nil) nobody
// knows what it would send.
func recollectable(src *config.Source, j *storage.Job) bool {
	return src != nil && src.Repeatable() && (j.Key.Version == 0 || j.Key.Version == src.ParserVersion)
}

// Cancel implements Service.
func (l *Local) Cancel(ctx context.Context, s Selection, fn func(Job) error) error {
	return l.change(ctx, s, fn, transition{[]storage.JobState{storage.StatePending, storage.StateRetryable}, l.cancel, nil})
}

func (l *Local) cancel(tx *storage.Tx, id uint64) (*storage.Job, error) {
	j, err := tx.Job(id)
	if err != nil {
		return nil, err
	}
	return tx.CancelJob(id, l.sinks(j.Key.Source))
}

// sinks are those that want a source's events; none of a source that is not in
// the config.
func (l *Local) sinks(source string) []storage.Subscription {
	if s := l.Config.Source(source); s != nil {
		return s.Sinks
	}
	return nil
}

// change applies a transition to the jobs selected: those named by reference
// all together or not at all, those that match in pages.
func (l *Local) change(ctx context.Context, s Selection, fn func(Job) error, t transition) error {
	if err := l.takeBack(ctx); err != nil {
		return err
	}
	var told error // of fn, which ends no change
	tell := func(jobs []Job) {
		for i := 0; i < len(jobs) && told == nil; i++ {
			told = fn(jobs[i])
		}
	}
	var err error
	if len(s.Refs) > 0 {
		err = l.changeNamed(ctx, s.Refs, tell, t)
	} else {
		err = l.changeMatching(ctx, s, tell, t)
	}
	return errors.Join(err, told)
}

func (l *Local) changeNamed(ctx context.Context, refs []string, tell func([]Job), t transition) error {
	changed := make([]Job, 0, len(refs))
	err := l.Store.Update(ctx, func(tx *storage.Tx) error {
		for _, ref := range refs {
			j, err := find(tx, ref)
			if err != nil {
				return err
			}
			if j, err = t.apply(tx, j.ID); err != nil {
				return err
			}
			changed = append(changed, newJob(j))
		}
		return nil
	})
	if err == nil {
		tell(changed)
	}
	return err
}

func (l *Local) changeMatching(ctx context.Context, s Selection, tell func([]Job), t transition) error {
	if err := l.known(s.Source); err != nil {
		return err
	}
	var ids []uint64
	flush := func() error {
		page, err := l.changePage(ctx, ids, t)
		tell(page)
		ids = ids[:0]
		return err
	}
	err := l.eachJob(ctx, JobFilter{Source: s.Source, Category: s.Category}, func(j *storage.Job) error {
		if !slices.Contains(t.from, j.State) || !s.inWindow(j) || t.spares != nil && t.spares(j) {
			return nil
		}
		if ids = append(ids, j.ID); len(ids) == pageRows {
			return flush()
		}
		return nil
	})
	if err != nil || len(ids) == 0 {
		return err
	}
	return flush()
}

func (s *Selection) inWindow(j *storage.Job) bool {
	return s.To.IsZero() || !j.Window.IsZero() && !j.Window.Before(s.From) && j.Window.Before(s.To)
}

func (l *Local) changePage(ctx context.Context, ids []uint64, t transition) ([]Job, error) {
	page := make([]Job, 0, len(ids))
	err := l.Store.Update(ctx, func(tx *storage.Tx) error {
		for _, id := range ids {
			j, err := t.apply(tx, id)
			if errors.Is(err, storage.ErrTransition) || errors.Is(err, storage.ErrNotFound) {
				continue // it moved on, or retention forgot it, since it was listed
			}
			if err != nil {
				return err
			}
			page = append(page, newJob(j))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// takeBack takes back the leases of a process that died. Where an engine runs
// here, the leases are its own.
func (l *Local) takeBack(ctx context.Context) error {
	if l.Engine != nil {
		return nil
	}
	for n := pageRows; n == pageRows; {
		err := l.Store.Update(ctx, func(tx *storage.Tx) (err error) {
			n, err = tx.RescueExpired(storage.AllLeases, pageRows, l.rescuePolicy)
			return err
		})
		if err != nil {
			return fmt.Errorf("taking back leases: %w", err)
		}
	}
	return nil
}

func (l *Local) rescuePolicy(source string) storage.RescuePolicy {
	if s := l.Config.Source(source); s != nil {
		return storage.RescuePolicy{Max: s.Limits.Rescues, Sinks: s.Sinks}
	}
	return storage.RescuePolicy{}
}
