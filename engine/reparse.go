package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"semel/storage"
)

// What is read before it is committed. It bounds what is in memory, how long others
// wait for a commit, and what is read once more after a kill. Where the rows of a window
// change together, its pages are committed together, however many they are.
const (
	reparseBatch  = 50      // pages
	reparseWeight = 1 << 20 // bytes of their records, each of these and of their links as 1 KiB at least: some 50 ms of the store
)

// Reparsing counts what today's rules make of the jobs of a source.
type Reparsing struct {
	Jobs    int // that are complete or were, or have a page in quarantine
	Current int // of these: passed over, since rules of this version have read them before
	Same    int // that give the rows that stand
	Changed int // that give others
	Unfit   int // whose pages do not fit these rules: what they gave stays
	Missing int // of which no page is kept that can be read again
	Moved   int // that were worked on meanwhile

	SetAside  int // of those that are the same or changed: with rows that do not fit
	Held      int // runs whose rows wait for a person
	Contested int // with dry, rows that more than one page gives: for these the counts may be other than those of the real run
}

// Reparsed is a job whose page gives something else by today's rules, or has none
// that can be read.
type Reparsed struct {
	Job     storage.JobKey
	Changes []Difference
	Unfit   []storage.Problem // where it does not fit these rules: as a whole, or the rows that are set aside
	Missing bool
}

// ReparseNews is what Reparse has to tell: one of these is set.
type ReparseNews struct {
	Job      *Reparsed
	Held     *ReparseHeld
	Progress *ReparseProgress
}

// ReparseHeld is a run whose rows wait for a person, or would after the real run: what
// was told of its jobs is what its release changes.
type ReparseHeld struct {
	Run storage.RunKey
	Why string
}

// ReparseProgress is how far Reparse is.
type ReparseProgress struct {
	Jobs int // that it has come to, whatever became of them
	Of   int // that the source had when it began
}

// Reparse reads the kept pages of past jobs again, by today's rules, and commits
// what they give. With dry it only finds that out. It calls fn with each job that
// gives something else or has no page, with each run that is held, and now and then with
// how far it is. Jobs whose pages these rules have read are passed over, unless a person
// has discarded what that gave, so that a call that was cut short is made again, and one
// more does nothing. Errors: storage.ErrNotFound (no such source), *GuardError, the end of
// ctx, those of fn and of the store.
func (e *Engine) Reparse(ctx context.Context, past Past, dry bool, fn func(ReparseNews) error) (Reparsing, error) {
	p := &reparsing{
		engine: e, src: e.sources[past.Source], past: past, dry: dry, tell: fn,
		runs: map[uint64]bool{}, seed: maphash.MakeSeed(), taken: map[uint64]bool{},
	}
	if p.src == nil {
		return p.done, fmt.Errorf("source %s: %w", past.Source, storage.ErrNotFound)
	}
	if err := e.guarded(ctx, p.src, dry); err != nil {
		return p.done, err
	}
	if err := p.begin(); err != nil {
		return p.done, err
	}
	for after, more := uint64(0), true; more; more = after != 0 {
		b := &batch{}
		err := e.opts.Store.View(func(tx *storage.Tx) (err error) {
			after, err = p.look(tx, b, after)
			return err
		})
		if err == nil {
			err = p.work(ctx, b)
		}
		if err == nil {
			progress := p.progress
			err = fn(ReparseNews{Progress: &progress})
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
	tell   func(ReparseNews) error

	done     Reparsing
	progress ReparseProgress
	last     uint64          // of the jobs that there were when it began: those it makes come after
	runs     map[uint64]bool // whose jobs were read as one batch
	seed     maphash.Seed
	taken    map[uint64]bool // with dry, hashes of the rows that pages have given: of two that are equal one row too many is told as contested
}

// batch are jobs that are committed together.
type batch struct {
	pages   []*reread
	unread  []*storage.Job // that have no page to be read
	current []*storage.Job // that are passed over, of the run that was taken last
}

// begin notes which jobs there are.
func (p *reparsing) begin() error {
	return p.engine.opts.Store.View(func(tx *storage.Tx) error {
		p.last = tx.LastJob()
		c := tx.Counters(p.src.Name)
		for _, state := range storage.JobStates {
			p.progress.Of += int(c.State(state))
		}
		return nil
	})
}

// look finds the next jobs whose pages are to be read, and the id to go on behind;
// 0: there are no more.
func (p *reparsing) look(tx *storage.Tx, b *batch, after uint64) (last uint64, err error) {
	last, jobsErr := tx.Jobs(after, replayRows, func(j *storage.Job) bool {
		if j.Key.Source == p.src.Name && j.ID <= p.last && !p.runs[j.Run] {
			err = p.take(tx, b, j)
		}
		return err == nil && len(b.pages) < reparseBatch
	})
	return last, errors.Join(jobsErr, err)
}

// take takes a job, or all of its run where their rows change together: where a page of
// it is read, so are those that these rules have read before. What another page gave too
// was dropped from what they brought, and that page may no longer give it.
func (p *reparsing) take(tx *storage.Tx, b *batch, j *storage.Job) error {
	if p.src.Write != storage.WriteReplace || j.Run == 0 || j.Key.Window.IsZero() {
		return p.add(tx, b, j)
	}
	p.runs[j.Run] = true
	r, err := tx.Run(j.Run)
	if err != nil {
		return err
	}
	before := len(b.pages)
	b.current = nil
	err = tx.RunJobs(r, func(j *storage.Job) error { return p.add(tx, b, j) })
	if err != nil || len(b.pages) == before {
		return err
	}
	return p.addBeside(tx, b)
}

// addBeside adds the pages of jobs that would be passed over and whose rows stand, but
// for those that are not kept.
func (p *reparsing) addBeside(tx *storage.Tx, b *batch) error {
	for _, j := range b.current {
		if !p.readByToday(j) {
			continue
		}
		stands, err := tx.Stands(j)
		if err != nil {
			return err
		}
		read, err := rereadable(tx, p.src, j)
		switch {
		case !stands || errors.Is(err, ErrNoPage):
		case err != nil:
			return err
		default:
			p.done.Current--
			b.pages = append(b.pages, &reread{src: p.src, job: j, read: read, beside: true})
		}
	}
	return nil
}

// readByToday reports whether today's rules have completed a job.
func (p *reparsing) readByToday(j *storage.Job) bool {
	return j.State == storage.StateComplete && j.Version == p.src.Rules.Version()
}

// has is contains, and without bounds all windows.
func (p Past) has(w time.Time) bool { return p.To.IsZero() || p.contains(w) }

// add puts a job's page into a batch, or counts why it is not read.
func (p *reparsing) add(tx *storage.Tx, b *batch, j *storage.Job) error {
	p.progress.Jobs++
	if !p.past.has(j.Window) {
		return nil
	}
	version, quarantined := j.Version, false
	switch q, err := tx.Quarantine(j.ID); {
	case err == nil:
		version, quarantined = q.Version, true
	case !errors.Is(err, storage.ErrNotFound):
		return err
	}
	if !j.State.Terminal() {
		return nil
	}
	if j.State == storage.StateFailed && !quarantined {
		if stood, err := everComplete(tx, j); err != nil || !stood {
			return err
		}
	}
	p.done.Jobs++
	current, err := p.isCurrent(tx, j, version)
	if err != nil {
		return err
	}
	if current {
		p.done.Current++
		b.current = append(b.current, j)
		return nil
	}
	read, err := rereadable(tx, p.src, j)
	if errors.Is(err, ErrNoPage) {
		b.unread = append(b.unread, j)
		return nil
	}
	b.pages = append(b.pages, &reread{src: p.src, job: j, read: read})
	return err
}

// everComplete reports whether a job that has failed was complete before, so that it
// has rows.
func everComplete(tx *storage.Tx, j *storage.Job) (bool, error) {
	attempts, err := tx.Attempts(j.ID)
	return slices.ContainsFunc(attempts, func(a storage.Attempt) bool { return a.Outcome == storage.OutcomeComplete }), err
}

// isCurrent reports whether nothing is left to do for a job, whose page a version of the
// rules has read last. What they made of it may have been discarded by a person.
func (p *reparsing) isCurrent(tx *storage.Tx, j *storage.Job, version int) (bool, error) {
	beside, err := superseded(tx, p.src, j)
	if err != nil || beside || version != p.src.Rules.Version() {
		return beside, err
	}
	if p.src.Write != storage.WriteReplace || !p.readByToday(j) || tx.Staged(j) {
		return true, nil
	}
	return tx.Stands(j)
}

// superseded reports whether a job whose key names other rules has one beside it, of
// today's or of newer ones than its own, that is complete, or has a page of its own in
// quarantine.
func superseded(tx *storage.Tx, src *Source, j *storage.Job) (bool, error) {
	if j.Key.Version == 0 {
		return false, nil
	}
	key, today := j.Key, src.Rules.Version()
	versions := append(tx.RulesVersions(src.Name), today)
	for _, key.Version = range versions {
		if key.Version == j.Key.Version || key.Version < j.Key.Version && key.Version != today {
			continue
		}
		newer, err := tx.JobByKey(key)
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err != nil || newer.State == storage.StateComplete {
			return err == nil, err
		}
		if _, err = tx.Quarantine(newer.ID); !errors.Is(err, storage.ErrNotFound) {
			return err == nil, err
		}
	}
	return false, nil
}

// work reads the pages of a batch, commits what they give, in one transaction unless
// that is too much, and tells of it.
func (p *reparsing) work(ctx context.Context, b *batch) error {
	var pages []*reread
	weight := 0
	for _, page := range b.pages {
		r, err := p.engine.reread(ctx, p.src, page.job, page.read)
		switch {
		case errors.Is(err, ErrNoPage):
			b.unread = append(b.unread, page.job)
			continue
		case err != nil:
			return err
		}
		r.beside = page.beside
		pages, weight = append(pages, r), weight+r.weight()
		if weight < reparseWeight || p.src.Write == storage.WriteReplace {
			continue
		}
		if err := p.finish(ctx, pages); err != nil {
			return err
		}
		pages, weight = nil, 0
	}
	for _, j := range b.unread {
		p.done.Missing++
		if err := p.tell(ReparseNews{Job: &Reparsed{Job: j.Key, Missing: true}}); err != nil {
			return err
		}
	}
	return p.finish(ctx, p.withoutLone(pages))
}

// withoutLone leaves out pages that were read beside others of which none fits: their
// rows stand as they do.
func (p *reparsing) withoutLone(pages []*reread) []*reread {
	fitting := map[uint64]bool{} // runs
	for _, r := range pages {
		fitting[r.job.Run] = fitting[r.job.Run] || r.bad == nil && !r.beside
	}
	return slices.DeleteFunc(pages, func(r *reread) bool {
		lone := r.beside && !fitting[r.job.Run]
		if lone {
			p.done.Current++
		}
		return lone
	})
}

// finish commits pages, and counts what became of them.
func (p *reparsing) finish(ctx context.Context, pages []*reread) error {
	if len(pages) == 0 {
		return nil
	}
	held, err := p.commit(ctx, pages)
	if err != nil {
		return err
	}
	for _, r := range pages {
		if err := p.count(r); err != nil {
			return err
		}
	}
	for _, r := range held {
		p.done.Held++
		if err := p.tell(ReparseNews{Held: &ReparseHeld{r.Key, r.Held}}); err != nil {
			return err
		}
	}
	return nil
}

// commit commits pages and gives the runs that are held; with dry all of it is undone.
func (p *reparsing) commit(ctx context.Context, pages []*reread) (held []*storage.Run, err error) {
	err = p.engine.updateOrDry(ctx, p.dry, func(tx *storage.Tx) (err error) {
		held, err = commitPages(tx, pages)
		return err
	})
	for i := 0; i < len(pages) && err == nil && !p.dry; i++ {
		err = p.engine.tellDrift(p.src, pages[i].drift)
	}
	return held, err
}

// count counts a page, and tells of it where it gives something else.
func (p *reparsing) count(r *reread) error {
	p.contest(r)
	problems := r.c.Problems
	if r.bad == nil && !r.moved && len(problems) > 0 {
		p.done.SetAside++
	}
	switch {
	case r.moved:
		p.done.Moved++
		return nil
	case r.bad != nil:
		p.done.Unfit++
		problems = r.bad.problems
	case len(r.changes) == 0 && len(problems) == 0:
		p.done.Same++
		return nil
	default:
		p.done.Changed++
	}
	return p.tell(ReparseNews{Job: &Reparsed{Job: r.job.Key, Changes: r.changes, Unfit: problems}})
}

// contest counts rows that another page has given in this dry run, and that it has
// not seen since: what was undone does not stand any more.
func (p *reparsing) contest(r *reread) {
	if !p.dry {
		return
	}
	for _, key := range r.taken {
		h := maphash.String(p.seed, key.String())
		if p.taken[h] {
			p.done.Contested++
		}
		p.taken[h] = true
	}
}
