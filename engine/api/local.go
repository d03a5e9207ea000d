package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"semel/engine/config"
	"semel/storage"
)

// pageRows is how many rows one look at the store reads: a long look would let
// the file grow while others write.
const pageRows = 1000

// Local answers from a store of this process.
type Local struct {
	Store  *storage.Store
	Config *config.Config
}

var _ Service = (*Local)(nil)

// Jobs implements Service.
func (l *Local) Jobs(ctx context.Context, f JobFilter, fn func(Job) error) error {
	if f.Source != "" {
		if err := l.known(f.Source); err != nil {
			return err
		}
	}
	left := f.Limit
	return l.eachJob(ctx, f, func(j *storage.Job) error {
		if err := fn(newJob(j)); err != nil {
			return err
		}
		if left--; left == 0 {
			return errEnough
		}
		return nil
	})
}

var errEnough = errors.New("enough")

// eachJob calls fn outside of any transaction, so that it may write to the
// store or to a slow reader.
func (l *Local) eachJob(ctx context.Context, f JobFilter, fn func(*storage.Job) error) error {
	for after, more := uint64(0), true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var page []*storage.Job
		err := l.Store.View(func(tx *storage.Tx) error {
			last, err := tx.Jobs(after, pageRows, func(j *storage.Job) bool {
				if f.matches(j) {
					page = append(page, j)
				}
				return true
			})
			after, more = last, last != 0
			return err
		})
		if err != nil {
			return fmt.Errorf("listing jobs: %w", err)
		}
		for _, j := range page {
			if err := fn(j); errors.Is(err, errEnough) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

func (f JobFilter) matches(j *storage.Job) bool {
	return (f.Source == "" || f.Source == j.Key.Source) &&
		(f.State == "" || f.State == j.State) &&
		(f.Category == "" || f.Category == j.Category)
}

// find reads the job that a reference names.
func find(tx *storage.Tx, ref string) (*storage.Job, error) {
	if id, err := strconv.ParseUint(ref, 10, 64); err == nil {
		return tx.Job(id)
	}
	key, err := storage.ParseJobKey(ref)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrNotFound, err)
	}
	return tx.JobByKey(key)
}

// Job implements Service.
func (l *Local) Job(_ context.Context, ref string) (JobStory, error) {
	var story JobStory
	err := l.Store.View(func(tx *storage.Tx) error {
		j, err := find(tx, ref)
		if err != nil {
			return err
		}
		attempts, err := tx.Attempts(j.ID)
		if err != nil {
			return err
		}
		story = newStory(j, attempts)
		return nil
	})
	if err == nil && l.Config.Source(story.Source) == nil {
		story.Next = "nothing: its source is not in the config"
	}
	return story, err
}

// Retry implements Service.
func (l *Local) Retry(ctx context.Context, s Selection) ([]Job, error) {
	return l.change(ctx, s, storage.StateFailed, func(tx *storage.Tx, id uint64) (*storage.Job, error) {
		return tx.RequeueJob(id)
	})
}

// Cancel implements Service.
func (l *Local) Cancel(ctx context.Context, s Selection) ([]Job, error) {
	return l.change(ctx, s, "", func(tx *storage.Tx, id uint64) (*storage.Job, error) {
		return tx.CancelJob(id, nil)
	})
}

// change applies a transition to the jobs selected: those named by reference
// all together or not at all, those that match in pages.
func (l *Local) change(ctx context.Context, s Selection, state storage.JobState, apply func(*storage.Tx, uint64) (*storage.Job, error)) ([]Job, error) {
	if len(s.Refs) > 0 {
		return l.changeNamed(ctx, s.Refs, apply)
	}
	if err := l.known(s.Source); err != nil {
		return nil, err
	}
	var ids []uint64
	var changed []Job
	flush := func() error {
		page := make([]Job, 0, len(ids))
		err := l.Store.Update(ctx, func(tx *storage.Tx) error {
			for _, id := range ids {
				j, err := apply(tx, id)
				if errors.Is(err, storage.ErrTransition) {
					continue // it moved on since it was listed
				}
				if err != nil {
					return err
				}
				page = append(page, newJob(j))
			}
			return nil
		})
		changed, ids = append(changed, page...), ids[:0]
		return err
	}
	err := l.eachJob(ctx, JobFilter{Source: s.Source, State: state, Category: s.Category}, func(j *storage.Job) error {
		if ids = append(ids, j.ID); len(ids) == pageRows {
			return flush()
		}
		return nil
	})
	if err == nil && len(ids) > 0 {
		err = flush()
	}
	return changed, err
}

// TakeBack takes back the leases of a process that died. Whoever has opened the
// store for writing knows that it has.
func (l *Local) TakeBack(ctx context.Context) error {
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
		return storage.RescuePolicy{Max: s.Limits.Rescues}
	}
	return storage.RescuePolicy{}
}

func (l *Local) changeNamed(ctx context.Context, refs []string, apply func(*storage.Tx, uint64) (*storage.Job, error)) ([]Job, error) {
	changed := make([]Job, 0, len(refs))
	err := l.Store.Update(ctx, func(tx *storage.Tx) error {
		for _, ref := range refs {
			j, err := find(tx, ref)
			if err != nil {
				return err
			}
			if j, err = apply(tx, j.ID); err != nil {
				return err
			}
			changed = append(changed, newJob(j))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return changed, nil
}

// known refuses a source that neither the config nor the store has.
func (l *Local) known(source string) error {
	if l.Config.Source(source) != nil {
		return nil
	}
	err := l.Store.View(func(tx *storage.Tx) error {
		_, err := tx.Source(source)
		return err
	})
	if errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("%w %q", ErrUnknownSource, source)
	}
	return err
}

// Export implements Service.
func (l *Local) Export(ctx context.Context, r ExportRequest, w io.Writer) (ExportResult, error) {
	var result ExportResult
	if err := l.known(r.Source); err != nil {
		return result, err
	}
	var buf []byte
	for after, more := []byte(nil), true; more; {
		if err := ctx.Err(); err != nil {
			return result, err
		}
		buf = buf[:0]
		err := l.Store.View(func(tx *storage.Tx) (err error) {
			after, err = tx.Observations(r.Source, after, pageRows, func(o *storage.Observation) error {
				before := len(buf)
				if buf = o.AppendLine(buf, r.DataOnly); len(buf) > before {
					result.add(o.Window)
				}
				return nil
			})
			return err
		})
		if err != nil {
			return result, fmt.Errorf("exporting %s: %w", r.Source, err)
		}
		if _, err := w.Write(buf); err != nil {
			return result, fmt.Errorf("exporting %s: %w", r.Source, err)
		}
		more = after != nil
	}
	return result, nil
}

func (r *ExportResult) add(window time.Time) {
	r.Rows++
	if window.IsZero() {
		return
	}
	if r.FirstWindow == nil || window.Before(*r.FirstWindow) {
		r.FirstWindow = &window
	}
	if r.LastWindow == nil || window.After(*r.LastWindow) {
		r.LastWindow = &window
	}
}

// Status implements Service.
func (l *Local) Status(context.Context) (Status, error) {
	s := Status{
		Sources: map[string]SourceStatus{}, Outbox: map[string]SinkStatus{},
		Proxies: map[string]ProxyStatus{}, Quarantine: map[string]int64{}, Warnings: []string{},
	}
	for _, p := range l.Config.Proxies {
		s.Proxies[p.Name] = ProxyStatus{Endpoint: p.Proxy.String()}
	}
	err := l.Store.View(func(tx *storage.Tx) error {
		stored, err := tx.Sources()
		if err != nil {
			return err
		}
		names := make([]string, 0, len(stored)+len(l.Config.Sources))
		for _, src := range stored {
			names = append(names, src.Name)
		}
		for i := range l.Config.Sources {
			names = append(names, l.Config.Sources[i].Name)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			counters := tx.Counters(name)
			s.Sources[name] = newSourceStatus(counters)
			s.Warnings = append(s.Warnings, l.warnings(name, counters, tx.Now)...)
		}
		pending, err := tx.PendingBySink()
		for sink, n := range pending {
			s.Outbox[sink] = SinkStatus{Pending: n}
		}
		return err
	})
	if err != nil {
		return Status{}, fmt.Errorf("reading the status: %w", err)
	}
	return s, nil
}
