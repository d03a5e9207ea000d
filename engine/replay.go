package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"semel/storage"
)

// replayRows is how many jobs or rows one look at a store reads.
const replayRows = 500

// Replay is what parsing kept pages again has shown.
type Replay struct {
	Pages   int // parsed again: those that completed a job under today's version of the rules
	Missing int // jobs that completed without a page kept, under another version, or whose rows are held or discarded
	Rows    int // observations that were made again and compared
	Unlike  []Unlike
}

// Unlike is an observation that came out differently.
type Unlike struct {
	Key  string // of the observation, or of the job whose page no longer parses
	What string
}

// Replay parses the kept pages of a source's complete jobs again, commits their
// records to the empty store scratch as the jobs did to theirs, and compares
// the observations of both. Errors: storage.ErrNotFound (no such source),
// storage.ErrPageLost, those of the stores.
func (e *Engine) Replay(ctx context.Context, source string, scratch *storage.Store) (Replay, error) {
	src := e.sources[source]
	if src == nil {
		return Replay{}, fmt.Errorf("source %s: %w", source, storage.ErrNotFound)
	}
	p := &replay{engine: e, src: src, scratch: scratch}
	if err := p.parse(ctx); err != nil {
		return p.done, err
	}
	return p.done, p.compare(ctx)
}

type replay struct {
	engine  *Engine
	src     *Source
	scratch *storage.Store
	done    Replay
}

// parse takes every page to the scratch store.
func (p *replay) parse(ctx context.Context) error {
	for after, more := uint64(0), true; more; {
		var jobs []*storage.Job
		err := p.engine.opts.Store.View(func(tx *storage.Tx) (err error) {
			var failed error
			after, err = tx.Jobs(after, replayRows, func(j *storage.Job) bool {
				if j.Key.Source != p.src.Name || j.State != storage.StateComplete {
					return true
				}
				stands := true
				if p.src.Write == storage.WriteReplace {
					stands, failed = tx.Stands(j)
				}
				if stands {
					jobs = append(jobs, j)
				} else {
					p.done.Missing++
				}
				return failed == nil
			})
			return errors.Join(err, failed)
		})
		if err != nil {
			return err
		}
		for _, j := range jobs {
			if err := p.job(ctx, j); err != nil {
				return fmt.Errorf("reading the page of job %s again: %w", j.Key, err)
			}
		}
		more = after != 0
	}
	return nil
}

// job parses the page that completed a job.
func (p *replay) job(ctx context.Context, j *storage.Job) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	made, err := p.completing(j)
	if err != nil {
		return err
	}
	if made.Page.IsZero() || made.ParserVersion != p.src.Rules.Version() || len(p.src.Rules.Steps()) > 0 { // of a workflow only the last page is kept
		p.done.Missing++
		return nil
	}
	a, r, err := p.engine.readAgain(ctx, p.src, j, made)
	if errors.Is(err, storage.ErrNotFound) { // retention let it go just now
		p.done.Missing++
		return nil
	}
	if err != nil {
		return err
	}
	p.done.Pages++
	if r.failure != nil {
		p.unlike(j.Key, "its page no longer gives records: %s (%s)", r.failure.reason, r.failure.category)
		return nil
	}
	return p.commit(ctx, j, a.completion(r))
}

func (p *replay) unlike(key storage.JobKey, format string, args ...any) {
	p.done.Unlike = append(p.done.Unlike, Unlike{key.String(), fmt.Sprintf(format, args...)})
}

// completing is the attempt that a complete job ended with.
func (p *replay) completing(j *storage.Job) (last storage.Attempt, err error) {
	err = p.engine.opts.Store.View(func(tx *storage.Tx) error {
		attempts, err := tx.Attempts(j.ID)
		for _, a := range attempts {
			if a.Outcome == storage.OutcomeComplete {
				last = a
			}
		}
		return err
	})
	return last, err
}

// commit does in the scratch store what the job did in its own.
func (p *replay) commit(ctx context.Context, j *storage.Job, c storage.Completion) error {
	c.Sinks, c.Follow = nil, nil        // only the observations are compared
	if c.Mode == storage.WriteReplace { // a promotion leaves the same rows, and waits for a run
		c.Mode = storage.WriteAppend
	}
	return p.scratch.Update(ctx, func(tx *storage.Tx) error {
		again := storage.NewJob{
			Key: j.Key, Country: j.Country, Window: j.Window, Scope: j.Scope, Version: j.Version,
			URL: j.URL, Host: "replay", Vars: j.Vars,
		}
		if _, err := tx.EnqueueJob(again); err != nil {
			return err
		}
		claimed, err := tx.ClaimJobs("replay", p.engine.opts.Lease, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
		if err != nil {
			return err
		}
		_, err = tx.CompleteJob(claimed[0][0].Lease(), c)
		return err
	})
}

// compare looks at each observation from both sides. One that came from a job
// whose page was not read again is left out.
func (p *replay) compare(ctx context.Context) error {
	err := eachObservation(ctx, p.scratch, p.src.Name, func(again *storage.Observation) error {
		was, err := lookup(p.engine.opts.Store, again.Key)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			p.unlike(again.Key, "its page gives it now, and did not")
			return nil
		case err != nil:
			return err
		}
		made, err := p.madeAgain(was)
		if err != nil || !made {
			return err
		}
		p.done.Rows++
		if was.Gone != again.Gone || !bytes.Equal(was.Data, again.Data) {
			p.unlike(again.Key, "it was %s, and is %s", was.Data, again.Data)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return eachObservation(ctx, p.engine.opts.Store, p.src.Name, func(was *storage.Observation) error {
		made, err := p.madeAgain(was)
		if err != nil || !made {
			return err
		}
		_, err = lookup(p.scratch, was.Key)
		if !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		older, err := p.older(was)
		if err == nil && !older {
			p.unlike(was.Key, "its page gave it, and does not now")
		}
		return err
	})
}

// older reports whether an observation may come from an earlier page of its job, or
// from other rules: what a job's last page no longer gives stays.
func (p *replay) older(o *storage.Observation) (bool, error) {
	if o.Version != p.src.Rules.Version() {
		return true, nil
	}
	key, err := storage.ParseJobKey(o.Job)
	if err != nil {
		return false, err
	}
	var j *storage.Job
	err = p.engine.opts.Store.View(func(tx *storage.Tx) (err error) { j, err = tx.JobByKey(key); return err })
	if err != nil {
		return false, err
	}
	made, err := p.completing(j)
	return o.ObservedAt.Before(made.Fetched()), err
}

// madeAgain reports whether the job that an observation came from is in the
// scratch store.
func (p *replay) madeAgain(o *storage.Observation) (bool, error) {
	key, err := storage.ParseJobKey(o.Job)
	if err != nil {
		return false, err
	}
	err = p.scratch.View(func(tx *storage.Tx) error {
		_, err := tx.JobByKey(key)
		return err
	})
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func lookup(s *storage.Store, key storage.JobKey) (o *storage.Observation, err error) {
	err = s.View(func(tx *storage.Tx) (err error) {
		o, err = tx.Observation(key)
		return err
	})
	return o, err
}

// eachObservation calls fn with a source's observations in a store, outside of
// any transaction.
func eachObservation(ctx context.Context, s *storage.Store, source string, fn func(*storage.Observation) error) error {
	for after, more := []byte(nil), true; more; more = after != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		var rows []*storage.Observation
		err := s.View(func(tx *storage.Tx) (err error) {
			after, err = tx.Observations(source, after, replayRows, func(o *storage.Observation) error {
				rows = append(rows, o)
				return nil
			})
			return err
		})
		if err != nil {
			return err
		}
		for _, o := range rows {
			if err := fn(o); err != nil {
				return err
			}
		}
	}
	return nil
}
