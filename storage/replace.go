package storage

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// Under write mode replace the rows of a window change together. What a job
// brings is staged until the run of its window has no work ahead; then all that
// is staged takes, in one step, the place of what the same jobs brought before.
// A run whose jobs a person sends back works as a new round of the same kind.
// Bucket live says whose each row is, so that the step knows which rows go, and of
// which attempt what stands of a job is.
//
// A run takes that step by itself where the window is whole after it: all its targets
// were offered, each has rows, staged or standing, and no row goes that what stands of a
// page may give. Where the window was read again as a whole (Completion.Whole), one
// version of the rules must have read all of it, too. Whether that is so is told from what
// the buckets hold whenever the run has no work ahead, and never from how it came to be: no
// offer, release or retry can promote what an earlier look held. Where it is not so, or the
// window would lose more than half of its rows, a person decides (ReleaseRun, DiscardRun).
//
// The step is one transaction: while it writes, other writers wait. See doc.go
// for what it takes.

// replacement is how the rows of a window change when what its jobs have staged
// takes its place. before and after hold an entry for each row.
type replacement struct {
	run     *Run
	jobs    map[uint64]string  // that have staged: their keys
	brought map[uint64]brought // by job: what it has staged, or else what stands of it
	version int                // of the rules: the highest that has read what is staged
	whole   bool               // some of that was read again with the whole window
	before  map[string]uint64  // by place in bucket obs: whose row stands there
	after   map[string]uint64  // whose will
	fresh   int                // rows staged that are not counted yet
	hidden  map[uint64]int     // by job that has not staged: rows that it gave and that stand as another's
}

// replacement reads what a run has staged and what stands. Of two rows under one
// key that of the smaller job key stays, whichever was committed first.
func (tx *Tx) replacement(r *Run) (*replacement, error) {
	p := &replacement{
		run: r, jobs: map[uint64]string{}, brought: map[uint64]brought{},
		before: map[string]uint64{}, after: map[string]uint64{}, hidden: map[uint64]int{},
	}
	if err := tx.eachOwned(bucketStaged, r, func(job uint64, place, v []byte) error { return p.staged(tx, job, place, v) }); err != nil {
		return nil, err
	}
	return p, tx.eachOwned(bucketLive, r, func(job uint64, place, v []byte) error { return p.live(tx, job, place, v) })
}

// staged takes an entry of bucket staged.
func (p *replacement) staged(tx *Tx, job uint64, place, v []byte) error {
	if len(place) > 0 {
		if !p.brought[job].Counted {
			p.fresh++
		}
		return p.take(tx, job, place)
	}
	j, err := tx.Job(job)
	if err != nil {
		return err
	}
	b, err := readBrought(bucketStaged, j, v)
	p.jobs[job], p.brought[job] = j.Key.String(), b
	p.version, p.whole = max(p.version, b.Version), p.whole || b.Whole
	return err
}

// live takes an entry of bucket live, once all of staged are taken.
func (p *replacement) live(tx *Tx, job uint64, place, v []byte) error {
	_, again := p.jobs[job]
	switch {
	case len(place) > 0:
		if p.before[string(place)] = job; again {
			return nil
		}
		p.hidden[job]--
		return p.take(tx, job, place)
	case again:
		return nil
	}
	j, err := tx.Job(job)
	if err != nil {
		return err
	}
	b, err := readBrought(bucketLive, j, v)
	p.brought[job], p.hidden[job] = b, int(b.Rows)
	return err
}

// unsure counts the jobs that may give a row which goes: what of theirs stood as
// another's row is not kept, so only their pages could tell.
func (p *replacement) unsure() (jobs int) {
	goes := func(place string) bool { _, stays := p.after[place]; return !stays }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(p.before)), goes) {
		return 0
	}
	for _, rows := range p.hidden {
		if rows > 0 {
			jobs++
		}
	}
	return jobs
}

// take gives a place to a job, unless it is that of one with a smaller key.
func (p *replacement) take(tx *Tx, job uint64, place []byte) error {
	if holder, taken := p.after[string(place)]; taken {
		mine, err := tx.Job(job)
		if err != nil || p.jobs[holder] < mine.Key.String() {
			return err
		}
	}
	p.after[string(place)] = job
	return nil
}

// eachOwned calls fn with the entries of a run in bucket staged or live. place is
// empty in that of a job itself, which comes before those of its rows.
func (tx *Tx) eachOwned(id bucket, r *Run, fn func(job uint64, place, v []byte) error) error {
	prefix := idKey(r.ID)
	c := tx.bucket(id).Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		if len(k) < 16 {
			return &RecordError{bucketNames[id], bytes.Clone(k), errShort}
		}
		job, place := readRowKey(k)
		if err := fn(job, place, v); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) runStaged(r *Run) bool {
	prefix := idKey(r.ID)
	k, _ := tx.bucket(bucketStaged).Cursor().Seek(prefix)
	return bytes.HasPrefix(k, prefix)
}

// settleRows promotes what a run without work ahead has staged, or holds it.
func (tx *Tx) settleRows(r *Run, sinks []Subscription) error {
	if !tx.runStaged(r) {
		return nil
	}
	p, err := tx.replacement(r)
	if err != nil {
		return err
	}
	reason, err := tx.lacks(p)
	if err != nil {
		return err
	}
	if reason != "" {
		r.Held, r.HeldSince = reason, tx.Now
		tx.saveRun(r)
		return nil
	}
	return tx.promote(p, sinks)
}

// lacks is what keeps a run without work ahead from being promoted by itself; "":
// nothing.
func (tx *Tx) lacks(p *replacement) (string, error) {
	r := p.run
	g, err := tx.gaps(p)
	switch {
	case err != nil:
		return "", err
	case !r.Offered:
		return "not all targets of its window were offered", nil
	case g.failed > 0:
		return fmt.Sprintf("%d of its %d jobs failed", g.failed, r.Jobs), nil
	case g.missing > 0:
		return fmt.Sprintf("%d of its %d jobs are complete and have no rows, staged or not", g.missing, r.Jobs), nil
	case p.whole && g.others > 0:
		return fmt.Sprintf("the pages of %d of its %d jobs were not read by version %d of the rules, as the others were", g.others, r.Jobs, p.version), nil
	case p.unsure() > 0:
		return fmt.Sprintf("rows would go that %d of its jobs, whose pages were not read with the others, may give", p.unsure()), nil
	case 2*len(p.after) < len(p.before):
		return fmt.Sprintf("the window would have %d rows, and has %d", len(p.after), len(p.before)), nil
	}
	return "", nil
}

// gaps counts the jobs that keep a window from being whole.
type gaps struct {
	failed  int
	missing int // that are complete, and have no rows
	others  int // whose rows are not of the version that is staged
}

func (tx *Tx) gaps(p *replacement) (g gaps, err error) {
	err = tx.RunJobs(p.run, func(j *Job) error {
		b, has := p.brought[j.ID]
		failed := j.State == StateFailed
		if has && !failed && b.Version == p.version {
			return nil
		}
		superseded, err := p.superseded(tx, j)
		switch {
		case err != nil || superseded:
			return err
		case failed:
			g.failed++
		case !has:
			g.missing++
		default:
			g.others++
		}
		return nil
	})
	return g, err
}

// superseded reports whether a job whose key names other rules than those of what is
// staged has one of these beside it, with rows.
func (p *replacement) superseded(tx *Tx, j *Job) (bool, error) {
	key := j.Key
	if key.Version == 0 || key.Version == p.version {
		return false, nil
	}
	key.Version = p.version
	beside, err := tx.JobByKey(key)
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, has := p.brought[beside.ID]
	return has && beside.State == StateComplete, nil
}

// ReleaseRun promotes what a run has staged, whatever it was held for. Jobs that
// have staged nothing keep the rows they have. Errors: ErrNotFound, ErrNotHeld.
func (tx *Tx) ReleaseRun(id uint64, sinks []Subscription) (*Run, error) {
	r, err := tx.heldRun(id)
	if err != nil {
		return nil, err
	}
	p, err := tx.replacement(r)
	if err != nil {
		return nil, err
	}
	return r, tx.promote(p, sinks)
}

// DiscardRun drops what a run has staged: the rows that stood before stand.
// Errors: ErrNotFound, ErrNotHeld.
func (tx *Tx) DiscardRun(id uint64) (*Run, error) {
	r, err := tx.heldRun(id)
	if err != nil {
		return nil, err
	}
	if err := tx.clear(bucketStaged, idKey(id)); err != nil {
		return nil, err
	}
	r.Held, r.HeldSince, r.Discarded = "", noTime, tx.Now
	tx.saveRun(r)
	return r, nil
}

func (tx *Tx) heldRun(id uint64) (*Run, error) {
	r, err := tx.Run(id)
	if err == nil && r.Held == "" {
		err = fmt.Errorf("run %s: %w", r.Key, ErrNotHeld)
	}
	return r, err
}

// AsReleased gives what the rows of a run's window are once it is released, by their
// keys: as Tx.Observation, but for the rows that this would bring, change or drop.
// Errors: ErrNotFound, ErrNotHeld.
func (tx *Tx) AsReleased(run uint64) (func(JobKey) (*Observation, error), error) {
	r, err := tx.heldRun(run)
	if err != nil {
		return nil, err
	}
	p, err := tx.replacement(r)
	if err != nil {
		return nil, err
	}
	return func(key JobKey) (*Observation, error) {
		place := observationKey(key)
		owner, stays := p.after[string(place)]
		if !stays {
			return nil, fmt.Errorf("observation %s once run %s is released: %w", key, r.Key, ErrNotFound)
		}
		if _, staged := p.jobs[owner]; staged {
			return tx.stagedRow(rowKey(run, owner, place))
		}
		return tx.Observation(key)
	}, nil
}
