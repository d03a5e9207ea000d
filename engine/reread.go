package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"semel/engine/fetch"
	"semel/storage"
)

// This file reads pages that are kept by the rules of today: nothing here asks the
// network. What comes of them is committed as if they had been fetched.

// ErrNoPage: a job has no page that can be read again.
var ErrNoPage = errors.New("no page is kept that can be read again")

// readAgain parses the page of a job's attempt by today's rules. Errors:
// storage.ErrNotFound (it is no longer kept), storage.ErrPageLost.
func (e *Engine) readAgain(ctx context.Context, src *Source, j *storage.Job, read storage.Attempt) (*attempt, result, error) {
	a := &attempt{engine: e, src: src, job: j}
	r := result{gone: read.Gone(), record: storage.Attempt{FinalURL: read.FinalURL}}
	body, err := e.opts.Store.ReadPage(read.Page)
	if err != nil {
		return a, r, err
	}
	if !r.gone {
		a.parse(ctx, &fetch.Page{Body: body, ContentType: read.ContentType, FinalURL: read.FinalURL}, nil, &r)
	}
	if r.failure != nil && len(r.failure.problems) == 0 {
		r.failure.problems = []storage.Problem{{Row: -1, Reason: r.failure.reason}}
	}
	return a, r, ctx.Err()
}

// rereadable reads whose page a job can be read from again. Error: ErrNoPage.
func rereadable(tx *storage.Tx, src *Source, j *storage.Job) (storage.Attempt, error) {
	read, err := tx.Reparsable(j)
	steps := src.steps()
	switch {
	case errors.Is(err, storage.ErrNotFound), err == nil && read.Page.IsZero():
		return read, fmt.Errorf("job %s: %w", j.Key, ErrNoPage)
	case err != nil:
		return read, err
	case len(src.Rules.Steps()) > 0:
		return read, fmt.Errorf("job %s: %w: its rules read pages of earlier steps, and only the last one is kept", j.Key, ErrNoPage)
	case read.Outcome == storage.OutcomeFail && read.Step != steps[len(steps)-1].Name:
		return read, fmt.Errorf("job %s: %w: it failed in step %s, and the rules read the page of the last one", j.Key, ErrNoPage, read.Step)
	}
	return read, nil
}

// reread is a page that was read again.
type reread struct {
	src  *Source
	job  *storage.Job // that the page is of
	read storage.Attempt
	c    storage.Completion // what it gives
	bad  *failure           // why it gives nothing; nil: it does

	beside bool // these rules have read it before, and it is read since others of its run are

	reading *storage.Reading // how well it fits these rules; nil: they have read it before, or nobody asks

	// What its commit has found.
	into    *storage.Job // that it completed; nil: none
	moved   bool         // its job was worked on meanwhile
	was     map[string]*storage.Observation
	changes []Difference
	taken   []storage.JobKey // rows that are its job's now
	drift   storage.DriftNews
}

// reread reads the page of a job. Errors: ErrNoPage, and those of readAgain.
func (e *Engine) reread(ctx context.Context, src *Source, j *storage.Job, read storage.Attempt) (*reread, error) {
	a, r, err := e.readAgain(ctx, src, j, read)
	switch {
	case errors.Is(err, storage.ErrNotFound): // retention let it go just now
		return nil, fmt.Errorf("job %s: %w", j.Key, ErrNoPage)
	case errors.Is(err, storage.ErrPageLost):
		return nil, fmt.Errorf("job %s: %w: %w", j.Key, ErrNoPage, err)
	case err != nil:
		return nil, fmt.Errorf("reading the page of job %s again: %w", j.Key, err)
	}
	page := &reread{src: src, job: j, read: read, c: a.completion(r), bad: r.failure}
	if r.failure == nil && read.ParserVersion != src.Rules.Version() {
		page.reading = a.reading(&r)
	}
	return page, nil
}

// commitPages writes what pages of a source give, sets aside those that do not fit,
// and then looks what has changed, or would where their runs are held, which it gives.
// Where rows of a window change together, all jobs of its run are given at once.
func commitPages(tx *storage.Tx, pages []*reread) (held []*storage.Run, err error) {
	rows := map[uint64]rowReader{}
	for _, r := range pages {
		r.c.Whole = r.c.Mode == storage.WriteReplace
		err := r.commit(tx)
		if r.moved = errors.Is(err, storage.ErrTransition); err != nil && !r.moved {
			return nil, fmt.Errorf("committing job %s: %w", r.job.Key, err)
		}
		if r.into != nil {
			rows[r.into.Run] = tx.Observation
		}
	}
	for _, run := range slices.Sorted(maps.Keys(rows)) {
		r, err := tx.SettleReparsed(run, pages[0].src.Sinks)
		if err != nil {
			return nil, err
		}
		if r == nil || r.Held == "" {
			continue
		}
		held = append(held, r)
		if rows[run], err = tx.AsReleased(run); err != nil {
			return nil, err
		}
	}
	for _, r := range pages {
		r.changes, r.taken = nil, nil
		if r.into == nil {
			continue
		}
		if err := r.compare(rows[r.into.Run]); err != nil {
			return nil, err
		}
	}
	return held, nil
}

// rowReader reads observations. Error: storage.ErrNotFound.
type rowReader func(storage.JobKey) (*storage.Observation, error)

// at is that of a key; nil: there is none.
func (rows rowReader) at(key storage.JobKey) (*storage.Observation, error) {
	o, err := rows(key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	return o, err
}

// commit writes what the page gives, or sets it aside, and notes the rows that stand
// before. Errors: storage.ErrTransition (the job has moved since).
func (r *reread) commit(tx *storage.Tx) (err error) {
	if r.bad != nil {
		return tx.QuarantinePage(r.read, r.src.Rules.Version(), r.bad.problems, r.src.Sinks)
	}
	if r.was, err = r.before(tx); err != nil {
		return err
	}
	into, err := r.successor(tx)
	if err != nil {
		return err
	}
	if r.into, err = tx.ReparseJob(r.read, into, r.c); err != nil || r.reading == nil {
		return err
	}
	r.reading.Lane, r.reading.Job, r.reading.Generation, r.reading.Time = r.into.Lane, r.into.ID, r.into.Generation, r.read.Fetched()
	r.drift, err = tx.CountPage(*r.reading, r.src.Drift, r.src.Sinks)
	return err
}

// weight is what the page's commit takes, in bytes of which a record or a link is at
// least 1024.
func (r *reread) weight() int {
	const least = 1 << 10
	n := least * len(r.c.Follow)
	for i := range r.c.Records {
		n += max(least, len(r.c.Records[i].Data))
	}
	return n
}

// successor is the job that the page completes in place of its own, where the key
// names other rules than today's; nil: its own.
func (r *reread) successor(tx *storage.Tx) (*storage.NewJob, error) {
	key := r.job.Key
	if key.Version == 0 || key.Version == r.src.Rules.Version() {
		return nil, nil
	}
	lane, err := tx.Lane(r.job.Lane)
	if err != nil {
		return nil, err
	}
	key.Version = r.src.Rules.Version()
	return &storage.NewJob{
		Key: key, Country: r.job.Country, Window: r.job.Window, Scope: r.job.Scope, Version: key.Version,
		URL: r.job.URL, Host: lane.Host, Vars: r.job.Vars, Priority: r.job.Priority, Depth: r.job.Depth,
	}, nil
}

// before are the rows, by their records' keys, that stand where those of the page
// would, and those that go with the rest of their window where it does not give them.
func (r *reread) before(tx *storage.Tx) (map[string]*storage.Observation, error) {
	rows := make(map[string]*storage.Observation, len(r.c.Records))
	if r.c.Mode == storage.WriteReplace {
		own, err := tx.OwnRows(r.job)
		if err != nil {
			return nil, err
		}
		for _, o := range own {
			rows[o.Key.Target] = o
		}
	}
	for _, record := range r.c.Records {
		o, err := rowReader(tx.Observation).at(r.c.RowKey(r.job, record.Key))
		if err != nil {
			return nil, err
		}
		rows[record.Key] = o
	}
	return rows, nil
}

// compare notes which of rows are the page's, and those of them that are not what
// they were.
func (r *reread) compare(rows rowReader) error {
	owner := r.into.Key.String()
	for _, record := range slices.Sorted(maps.Keys(r.was)) {
		was, key := r.was[record], r.c.RowKey(r.into, record)
		now, err := rows.at(key)
		switch {
		case err != nil:
			return err
		case now == nil && was != nil && was.Key == key:
			r.changes = append(r.changes, Difference{Was: was})
			continue
		case now == nil || now.Job != owner: // that of another page stands
			continue
		}
		r.taken = append(r.taken, key)
		if was == nil || was.Gone != now.Gone || !bytes.Equal(was.Data, now.Data) {
			r.changes = append(r.changes, Difference{was, now})
		}
	}
	return nil
}

// guarded takes today's rules of a source for those that its rows are made by, or
// with dry only looks whether that may be. Error: *GuardError.
func (e *Engine) guarded(ctx context.Context, src *Source, dry bool) error {
	return e.updateOrDry(ctx, dry, func(tx *storage.Tx) error { return Register(tx, src.stored()) })
}

// errDry undoes what only had to be seen.
var errDry = errors.New("nothing is to be changed")

// updateOrDry is update; with dry all that fn has written is undone.
func (e *Engine) updateOrDry(ctx context.Context, dry bool, fn func(*storage.Tx) error) error {
	err := e.update(ctx, func(tx *storage.Tx) error {
		if err := fn(tx); err != nil || !dry {
			return err
		}
		return errDry
	})
	if errors.Is(err, errDry) {
		return nil
	}
	return err
}

// Releasable counts, by source, the pages in quarantine that today's rules have not read
// and can read: they may fit these. Of sources only Name, Rules and the names of Steps
// matter.
func Releasable(tx *storage.Tx, sources []Source) (map[string]int, error) {
	byName := make(map[string]*Source, len(sources))
	for i := range sources {
		byName[sources[i].Name] = &sources[i]
	}
	pages := map[string]int{}
	var failed error
	_, err := tx.Quarantined(0, math.MaxInt, func(q *storage.Quarantine) bool {
		var j *storage.Job
		if j, failed = tx.Job(q.Job); failed != nil {
			return false
		}
		var may bool
		if src := byName[j.Key.Source]; src != nil {
			may, failed = releasable(tx, src, q, j)
		}
		if may {
			pages[j.Key.Source]++
		}
		return failed == nil
	})
	return pages, errors.Join(err, failed)
}

// releasable reports whether Release may commit the page that a job has in quarantine.
func releasable(tx *storage.Tx, src *Source, q *storage.Quarantine, j *storage.Job) (bool, error) {
	if q.Version >= src.Rules.Version() || !j.State.Terminal() {
		return false, nil
	}
	_, err := rereadable(tx, src, j)
	if errors.Is(err, ErrNoPage) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	beside, err := superseded(tx, src, j)
	return !beside, err
}

// ReleaseAdvice is what a person can do about pages that Releasable counts.
func ReleaseAdvice(source string) string {
	return "semel quarantine release --source " + source + " reads them again, without a request"
}

// Release reads the page that a job of a source has in quarantine again, by today's
// rules. It gives the problems that are left: none where all that the page gives is
// committed. Errors: storage.ErrNotFound (nothing of the job is in quarantine, or it is
// not of this source), ErrNoPage, *GuardError, storage.ErrTransition (the job is
// worked on).
func (e *Engine) Release(ctx context.Context, source string, job uint64) (left []storage.Problem, err error) {
	src := e.sources[source]
	if src == nil {
		return nil, fmt.Errorf("source %s: %w", source, storage.ErrNotFound)
	}
	if err := e.guarded(ctx, src, false); err != nil {
		return nil, err
	}
	var j *storage.Job
	var read storage.Attempt
	err = e.opts.Store.View(func(tx *storage.Tx) (err error) {
		if _, err = tx.Quarantine(job); err != nil {
			return err
		}
		if j, err = tx.Job(job); err == nil && j.Key.Source != source {
			err = fmt.Errorf("job %d of source %s: %w", job, source, storage.ErrNotFound)
		}
		if err == nil {
			read, err = rereadable(tx, src, j)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r, err := e.reread(ctx, src, j, read)
	if err != nil {
		return nil, err
	}
	err = e.update(ctx, func(tx *storage.Tx) error {
		if err := r.commit(tx); err != nil || r.into == nil {
			return err
		}
		_, err := tx.SettleReparsed(r.into.Run, src.Sinks)
		return err
	})
	if err == nil {
		err = e.tellDrift(src, r.drift)
	}
	if r.bad != nil {
		return r.bad.problems, err
	}
	return r.c.Problems, err
}
