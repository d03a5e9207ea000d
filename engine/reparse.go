package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"semel/engine/fetch"
	"semel/storage"
)

// This file reads pages that are kept by the rules of today: nothing here asks the
// network. What comes of them is committed as if they had been fetched.

// ErrNoPage: a job has no page that can be read again.
var ErrNoPage = errors.New("no page is kept that can be read again")

// reparseBatch is how many pages are read before what they gave is committed. It
// bounds what is in memory, and what is read once more after a kill.
const reparseBatch = 50

// readAgain parses the page of a job's attempt by today's rules. Errors:
// storage.ErrNotFound (it is no longer kept), *storage.RecordError (it is damaged).
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
	switch {
	case errors.Is(err, storage.ErrNotFound), err == nil && read.Page.IsZero():
		return read, fmt.Errorf("job %s: %w", j.Key, ErrNoPage)
	case err == nil && len(src.Rules.Steps()) > 0:
		return read, fmt.Errorf("job %s: %w: its rules read pages of earlier steps, and only the last one is kept", j.Key, ErrNoPage)
	}
	return read, err
}

// reread is a page that was read again.
type reread struct {
	src  *Source
	job  *storage.Job // that the page is of
	read storage.Attempt
	c    storage.Completion // what it gives
	bad  *failure           // why it gives nothing; nil: it does
}

// reread reads the page of a job. Errors: ErrNoPage, and those of readAgain.
func (e *Engine) reread(ctx context.Context, src *Source, j *storage.Job, read storage.Attempt) (*reread, error) {
	a, r, err := e.readAgain(ctx, src, j, read)
	switch {
	case errors.Is(err, storage.ErrNotFound): // retention let it go just now
		return nil, fmt.Errorf("job %s: %w", j.Key, ErrNoPage)
	case err != nil:
		return nil, fmt.Errorf("reading the page of job %s again: %w", j.Key, err)
	}
	return &reread{src: src, job: j, read: read, c: a.completion(r), bad: r.failure}, nil
}

// commit writes what the page gives, or sets it aside, and gives the rows that are
// not what they were. Errors: storage.ErrTransition (the job has moved since).
func (r *reread) commit(tx *storage.Tx) ([]Difference, error) {
	if r.bad != nil {
		return nil, tx.QuarantinePage(r.read, r.src.Rules.Version(), r.bad.problems, r.src.Sinks)
	}
	into, err := r.target(tx)
	if err != nil {
		return nil, err
	}
	was, err := r.rows(tx, r.job)
	if err != nil {
		return nil, err
	}
	if _, err := tx.ReparseJob(into.ID, r.read, r.c); err != nil {
		return nil, err
	}
	now, err := r.rows(tx, into)
	var changes []Difference
	for i := range now {
		if was[i] == nil && now[i] == nil || was[i] != nil && now[i] != nil && was[i].Gone == now[i].Gone && bytes.Equal(was[i].Data, now[i].Data) {
			continue
		}
		changes = append(changes, Difference{was[i], now[i]})
	}
	return changes, err
}

// target is the job that the page completes: the page's own, or where its key names
// other rules, that of today's.
func (r *reread) target(tx *storage.Tx) (*storage.Job, error) {
	key := r.job.Key
	if key.Version == 0 || key.Version == r.src.Rules.Version() {
		return r.job, nil
	}
	lane, err := tx.Lane(r.job.Lane)
	if err != nil {
		return nil, err
	}
	key.Version = r.src.Rules.Version()
	made, err := tx.EnqueueJob(storage.NewJob{
		Key: key, Country: r.job.Country, Window: r.job.Window, Scope: r.job.Scope, Version: key.Version,
		URL: r.job.URL, Host: lane.Host, Vars: r.job.Vars, Priority: r.job.Priority, Depth: r.job.Depth,
	})
	if err != nil {
		return nil, err
	}
	return tx.Job(made.ID)
}

// rows are the observations that stand where the records of a job would; nil:
// there is none.
func (r *reread) rows(tx *storage.Tx, j *storage.Job) ([]*storage.Observation, error) {
	rows := make([]*storage.Observation, len(r.c.Records))
	for i, record := range r.c.Records {
		o, err := tx.Observation(r.c.RowKey(j, record.Key))
		switch {
		case err == nil:
			rows[i] = o
		case !errors.Is(err, storage.ErrNotFound):
			return nil, err
		}
	}
	return rows, nil
}

// guarded takes today's rules of a source for those that its rows are made by, or
// with dry only looks whether that may be. Error: *GuardError.
func (e *Engine) guarded(ctx context.Context, src *Source, dry bool) error {
	err := e.update(ctx, func(tx *storage.Tx) error {
		if err := Register(tx, src.stored()); err != nil || !dry {
			return err
		}
		return errDry
	})
	if errors.Is(err, errDry) {
		return nil
	}
	return err
}

// errDry undoes what only had to be seen.
var errDry = errors.New("nothing is to be changed")

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
	err = e.update(ctx, func(tx *storage.Tx) error { _, err := r.commit(tx); return err })
	if r.bad != nil {
		return r.bad.problems, err
	}
	return r.c.Problems, err
}

// Reparsing counts what today's rules make of the jobs of a source.
type Reparsing struct {
	Jobs    int // that are complete, or have a page in quarantine
	Current int // of these: read by these rules before
	Same    int // that give the rows that stand
	Changed int // that give others
	Unfit   int // whose pages do not fit these rules: what they gave stays
	Missing int // of which no page is kept that can be read again
	Moved   int // that were worked on meanwhile
}

// Reparsed is what today's rules make of one page, where that is not what stands.
type Reparsed struct {
	Job     storage.JobKey
	Changes []Difference
	Unfit   []storage.Problem // where it does not fit these rules: as a whole, or the rows that are set aside
}

// Reparse reads the kept pages of past jobs again, by today's rules, and commits
// what they give. With dry it only finds that out. It calls fn with each job that
// gives something else. Jobs whose pages these rules have read are passed over, so
// that a call that was cut short is made again, and one more does nothing. Errors:
// storage.ErrNotFound (no such source), *GuardError, the end of ctx, those of fn and of
// the store.
func (e *Engine) Reparse(ctx context.Context, past Past, dry bool, fn func(Reparsed) error) (Reparsing, error) {
	p := &reparsing{engine: e, src: e.sources[past.Source], past: past, dry: dry, tell: fn}
	if p.src == nil {
		return p.done, fmt.Errorf("source %s: %w", past.Source, storage.ErrNotFound)
	}
	if err := e.guarded(ctx, p.src, dry); err != nil {
		return p.done, err
	}
	for after, more := uint64(0), true; more; more = after != 0 {
		var batch []*reread
		err := e.opts.Store.View(func(tx *storage.Tx) (err error) {
			batch, after, err = p.look(tx, after)
			return err
		})
		if err == nil {
			err = p.batch(ctx, batch)
		}
		if err != nil {
			return p.done, err
		}
	}
	return p.done, nil
}

// reparsing is one Reparse.
type reparsing struct {
	engine *Engine
	src    *Source
	past   Past
	dry    bool
	tell   func(Reparsed) error
	done   Reparsing
}

// look finds the next jobs whose pages are to be read, and the id to go on behind;
// 0: there are no more.
func (p *reparsing) look(tx *storage.Tx, after uint64) (batch []*reread, last uint64, err error) {
	last, jobsErr := tx.Jobs(after, replayRows, func(j *storage.Job) bool {
		if j.Key.Source == p.src.Name && p.past.has(j.Window) {
			err = p.add(tx, &batch, j)
		}
		return err == nil && len(batch) < reparseBatch
	})
	return batch, last, errors.Join(jobsErr, err)
}

// has is contains, and without bounds all windows.
func (p Past) has(w time.Time) bool { return p.To.IsZero() || p.contains(w) }

// add puts a job's page into the batch, or counts why it is not read.
func (p *reparsing) add(tx *storage.Tx, batch *[]*reread, j *storage.Job) error {
	version, quarantined := j.Version, false
	switch q, err := tx.Quarantine(j.ID); {
	case err == nil:
		version, quarantined = q.Version, true
	case !errors.Is(err, storage.ErrNotFound):
		return err
	}
	if !j.State.Terminal() || j.State == storage.StateFailed && !quarantined {
		return nil
	}
	p.done.Jobs++
	superseded, err := p.superseded(tx, j)
	if err != nil {
		return err
	}
	if version == p.src.Rules.Version() || superseded {
		p.done.Current++
		return nil
	}
	read, err := rereadable(tx, p.src, j)
	if errors.Is(err, ErrNoPage) {
		p.done.Missing++
		return nil
	}
	*batch = append(*batch, &reread{src: p.src, job: j, read: read})
	return err
}

// superseded reports whether a job whose key names older rules has one beside it of
// newer ones that is complete.
func (p *reparsing) superseded(tx *storage.Tx, j *storage.Job) (bool, error) {
	if j.Key.Version == 0 {
		return false, nil
	}
	key := j.Key
	for _, key.Version = range tx.Counters(p.src.Name).RulesVersions() {
		if key.Version <= j.Key.Version {
			continue
		}
		newer, err := tx.JobByKey(key)
		if err == nil && newer.State == storage.StateComplete {
			return true, nil
		}
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return false, err
		}
	}
	return false, nil
}

// batch reads pages, commits what they give in one transaction, and tells of it.
func (p *reparsing) batch(ctx context.Context, batch []*reread) error {
	pages := batch[:0]
	for _, b := range batch {
		r, err := p.engine.reread(ctx, p.src, b.job, b.read)
		switch {
		case errors.Is(err, ErrNoPage):
			p.done.Missing++
		case err != nil:
			return err
		default:
			pages = append(pages, r)
		}
	}
	if len(pages) == 0 {
		return nil
	}
	changes := make([][]Difference, len(pages))
	moved := make([]bool, len(pages))
	err := p.engine.update(ctx, func(tx *storage.Tx) (err error) {
		for i, r := range pages {
			changes[i], err = r.commit(tx)
			if moved[i] = errors.Is(err, storage.ErrTransition); err != nil && !moved[i] {
				return fmt.Errorf("committing job %s: %w", r.job.Key, err)
			}
		}
		if p.dry {
			return errDry
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDry) {
		return err
	}
	for i, r := range pages {
		if err := p.count(r, changes[i], moved[i]); err != nil {
			return err
		}
	}
	return nil
}

// count counts a page, and tells of it where it gives something else.
func (p *reparsing) count(r *reread, changes []Difference, moved bool) error {
	switch {
	case moved:
		p.done.Moved++
		return nil
	case r.bad != nil:
		p.done.Unfit++
		return p.tell(Reparsed{Job: r.job.Key, Unfit: r.bad.problems})
	case len(changes) == 0 && len(r.c.Problems) == 0:
		p.done.Same++
		return nil
	}
	p.done.Changed++
	return p.tell(Reparsed{Job: r.job.Key, Changes: changes, Unfit: r.c.Problems})
}
