package storage

import (
	"errors"
	"fmt"
	"time"
)

// Completion is what an attempt that succeeded commits.
type Completion struct {
	Attempt    Attempt
	Mode       WriteMode
	Records    []NewObservation
	Duplicates int       // equal rows that the page held more than once
	Problems   []Problem // of rows that were set aside (see Quarantine)
	Sinks      []Subscription

	Validator Validator // of Attempt.Kept; zero: the site gave none that may be used

	// Follow are the jobs that the page's links became. Other outcomes wait
	// while they are made: 0.3 s for 10,000, measured on two busy cores.
	Follow []NewJob

	// Whole says that all pages of the job's window are read again (WriteReplace): what
	// comes of them stands by itself only where one version of the rules has read them all.
	Whole bool

	counted bool // the job was complete: its duplicates and what was unchanged are in the counters
}

// Completed counts what became of a Completion's records, and of its Follow.
type Completed struct {
	Created, Updated, Unchanged, Rejected int
	Staged                                int // until the run of the job is over (WriteReplace)

	Followed int // jobs made
	Known    int // that were there before
	Collided int // left out, since another job's key has the same hash
}

// CompleteJob commits an attempt's records with everything that follows from
// them: the job is complete, the attempt recorded, each observation written by
// the rules of its mode, one event per change and sink, the counters moved, the
// jobs made that its links became, and its run ended where nothing of it is left
// to do. Under WriteReplace the observations are staged until then.
// Errors: ErrLeaseLost, ErrNotFound.
func (tx *Tx) CompleteJob(l Lease, c Completion) (Completed, error) {
	var done Completed
	j, err := tx.fence(l)
	if err != nil {
		return done, err
	}
	c.Attempt.Outcome = OutcomeComplete
	if err := tx.saveAttempt(j, c.Attempt); err != nil {
		return done, err
	}
	if err := tx.keepValidator(j, &c.Attempt, c.Validator); err != nil {
		return done, err
	}
	tx.count(j.Key.Source, MetricComplete, 1)
	if j.Recovered {
		tx.count(j.Key.Source, MetricAfterRecovery, 1)
	}
	err = tx.move(j, verbComplete, func(j *Job) {
		endLease(j)
		j.Rescues = 0
		j.readBy(c.Attempt.ParserVersion)
	})
	if err != nil {
		return done, err
	}
	if err := tx.finish(j, &c, &done); err != nil {
		return done, err
	}
	tx.countRows(j, &c, &done)
	return done, tx.conclude(EventJobComplete, j, c.Sinks)
}

// countRows counts the records of a page that changed nothing.
func (tx *Tx) countRows(j *Job, c *Completion, done *Completed) {
	tx.count(j.Key.Source, MetricDuplicates, int64(done.Rejected+c.Duplicates))
	tx.count(j.Key.Source, MetricUnchanged, int64(done.Unchanged))
}

// readBy notes that a job is complete, by a version of the rules; 0: none read
// its page.
func (j *Job) readBy(version int) {
	j.Category, j.Reason, j.Sent = "", "", ""
	if version > 0 && j.Key.Version == 0 {
		j.Version = version
	}
}

// finish writes what a job that is now complete has brought.
func (tx *Tx) finish(j *Job, c *Completion, done *Completed) error {
	if err := tx.writeRecords(j, c, done); err != nil {
		return err
	}
	if err := tx.follow(c.Follow, done); err != nil {
		return err
	}
	if len(c.Problems) == 0 {
		return tx.endQuarantine(j)
	}
	q := tx.newQuarantine(j, c.Attempt.ParserVersion, c.Problems)
	q.Rows = len(c.Records)
	return tx.setAside(j, q, c.Sinks)
}

// writeRecords writes a completion's records by its mode.
func (tx *Tx) writeRecords(j *Job, c *Completion, done *Completed) error {
	rows := make([]*Observation, len(c.Records))
	for i, r := range c.Records {
		rows[i] = tx.row(j, r, c)
	}
	if c.Mode == WriteReplace && c.windowed(j) {
		done.Staged = len(rows)
		return tx.stage(j, rows, c)
	}
	for _, o := range rows {
		if err := tx.observe(j, o, c, done); err != nil {
			return err
		}
	}
	if !c.windowed(j) {
		return nil
	}
	b := c.brings(j)
	b.Counted = true
	return tx.put(bucketLive, rowKey(j.Run, j.ID, nil), b.encode())
}

// follow makes jobs of links. What a site can bring about, which is a key made to
// collide, is no error.
func (tx *Tx) follow(jobs []NewJob, done *Completed) error {
	for _, n := range jobs {
		made, err := tx.EnqueueJob(n)
		switch {
		case errors.Is(err, ErrKeyCollision):
			done.Collided++
		case err != nil:
			return err
		case made.New:
			done.Followed++
		default:
			done.Known++
		}
	}
	return nil
}

// RetryJob ends an attempt that failed in a way that may be repeated: the job
// waits until due; a time that has passed stands for now. a.Category must be
// set. Errors: ErrLeaseLost, ErrNotFound, ErrTransition (a step that must not
// be repeated may have been sent).
func (tx *Tx) RetryJob(l Lease, a Attempt, due time.Time) error {
	j, err := tx.fence(l)
	if err != nil {
		return err
	}
	if j.Sent != "" {
		return fmt.Errorf("%s of job %s, which may have sent step %s: %w", verbRetry, j.Key, j.Sent, ErrTransition)
	}
	if due.Before(tx.Now) { // one before 1970 would sort behind all others, for ever
		due = tx.Now
	}
	a.Outcome, a.NextAt = OutcomeRetry, due
	if err := tx.saveAttempt(j, a); err != nil {
		return err
	}
	tx.count(j.Key.Source, MetricRetries+string(a.Category), 1)
	return tx.move(j, verbRetry, func(j *Job) {
		endLease(j)
		j.Rescues, j.NextAt = 0, due
		j.Category, j.Reason = a.Category, a.Reason
	})
}

// Failure is why a job fails.
type Failure struct {
	Category Category // of the job: the attempt's own, or budget_exhausted
	Reason   string
	Problems []Problem // where its page did not fit the rules: it is set aside (see Quarantine); none: that is not why
	Sinks    []Subscription
}

// FailJob ends an attempt and its job. Errors: ErrLeaseLost, ErrNotFound.
func (tx *Tx) FailJob(l Lease, a Attempt, f Failure) error {
	j, err := tx.fence(l)
	if err != nil {
		return err
	}
	a.Outcome = OutcomeFail
	if err := tx.saveAttempt(j, a); err != nil {
		return err
	}
	err = tx.move(j, verbFail, func(j *Job) {
		endLease(j)
		j.Rescues = 0
		j.Category, j.Reason = f.Category, f.Reason
	})
	if err != nil {
		return err
	}
	if len(f.Problems) > 0 {
		if err := tx.setAside(j, tx.newQuarantine(j, a.ParserVersion, f.Problems), f.Sinks); err != nil {
			return err
		}
	}
	return tx.conclude(EventJobFailed, j, f.Sinks)
}

// ReleaseJob hands a job back as it was before the claim, its attempt recorded
// but not counted. Errors: ErrLeaseLost, ErrNotFound.
func (tx *Tx) ReleaseJob(l Lease, a Attempt) error {
	j, err := tx.fence(l)
	if err != nil {
		return err
	}
	a.Outcome = OutcomeReleased
	if err := tx.saveAttempt(j, a); err != nil {
		return err
	}
	return tx.move(j, verbRelease, func(j *Job) {
		endLease(j)
		if j.Tries == 0 { // nothing has counted yet, so limits.time has not begun either
			j.FirstClaim = noTime
		}
		j.Category, j.Reason = a.Category, a.Reason
	})
}

// MarkSent notes, before it happens, that a running job sends a step which must
// not be repeated, so that whoever finds the job after a crash knows that the
// step may have been sent. With step "" it takes the mark back: the step is
// known not to have been sent. Errors: ErrLeaseLost, ErrNotFound.
func (tx *Tx) MarkSent(l Lease, step string) error {
	j, err := tx.fence(l)
	if err != nil {
		return err
	}
	return tx.move(j, verbMark, func(j *Job) { j.Sent = step })
}
