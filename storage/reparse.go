package storage

import "fmt"

// Reparsable is the attempt whose page a job can be read from again: the one in
// quarantine, or that which completed the job. Its page may be gone or never have
// been kept. Error: ErrNotFound where there is none, it is pruned, or a person has
// canceled the job.
func (tx *Tx) Reparsable(j *Job) (Attempt, error) {
	if j.canceled() {
		return Attempt{}, fmt.Errorf("page of job %s, which was canceled: %w", j.Key, ErrNotFound)
	}
	q, err := tx.Quarantine(j.ID)
	switch {
	case err == nil:
		return tx.attempt(j.ID, q.Generation)
	case !isNotFound(err):
		return Attempt{}, err
	case j.State != StateComplete:
		return Attempt{}, fmt.Errorf("page of job %s, which is %s: %w", j.Key, j.State, ErrNotFound)
	}
	return tx.attempt(j.ID, j.Generation)
}

// readAgain reads the job of a page that was read again, which Reparsable must
// still give.
func (tx *Tx) readAgain(read Attempt) (*Job, error) {
	j, err := tx.Job(read.Job)
	if isNotFound(err) {
		return nil, fmt.Errorf("%s of job %d, which was forgotten meanwhile: %w", verbReparse, read.Job, ErrTransition)
	}
	if err != nil {
		return nil, err
	}
	now, err := tx.Reparsable(j)
	if err != nil && !isNotFound(err) {
		return nil, err
	}
	if err != nil || !j.State.Terminal() || now.Generation != read.Generation || now.Page != read.Page {
		return nil, fmt.Errorf("%s of job %s, which was worked on meanwhile: %w", verbReparse, j.Key, ErrTransition)
	}
	return j, nil
}

// ReparseJob commits what rules make of a page that is kept, as CompleteJob does
// for one that was fetched, and gives the job that is now complete. read is the
// page's attempt, as Reparsable gave it. The job is that attempt's own; with into,
// where the key names the rules, the one that stands for the same under others: it
// is made unless it is there. The commit is an attempt of its own, of KindReparse: of
// c.Attempt only what the parser found counts. Links lead to jobs where the job was
// not complete before. SettleReparsed must follow for the job's run, once all pages
// of it are read.
// Errors: ErrNotFound, ErrTransition (a job has moved since the page was read).
func (tx *Tx) ReparseJob(read Attempt, into *NewJob, c Completion) (*Job, error) {
	j, err := tx.readAgain(read)
	if err == nil && into != nil {
		j, err = tx.reparsedInto(j, *into)
	}
	if err != nil {
		return nil, err
	}
	was := j.State
	err = tx.move(j, verbReparse, func(j *Job) {
		j.Generation++
		j.readBy(c.Attempt.ParserVersion)
	})
	if err != nil {
		return nil, err
	}
	if err := tx.saveReparse(j, read, &c.Attempt); err != nil {
		return nil, err
	}
	switch {
	case was == StateComplete:
		c.Follow, c.counted = nil, true
	case into == nil:
		tx.count(j.Key.Source, MetricReread, 1)
	}
	var done Completed
	if err := tx.finish(j, &c, &done); err != nil || was == StateComplete { // its rows were counted when it was collected
		return j, err
	}
	tx.countRows(j, &c, &done)
	return j, tx.emitJob(EventJobComplete, j, c.Sinks)
}

// reparsedInto is the job that a page of another completes. One that has a page of
// its own, or is about to, and one that a person has canceled is left alone.
func (tx *Tx) reparsedInto(from *Job, n NewJob) (*Job, error) {
	j, err := tx.JobByKey(n.Key)
	if isNotFound(err) {
		var made Enqueued
		if made, err = tx.EnqueueJob(n); err == nil {
			j, err = tx.Job(made.ID)
		}
	}
	if err != nil {
		return nil, err
	}
	if j.State != StatePending && j.State != StateFailed || j.canceled() || tx.hasQuarantine(j.ID) {
		return nil, fmt.Errorf("%s of job %s, which is %s: %w", verbReparse, j.Key, j.State, ErrTransition)
	}
	return j, tx.endQuarantine(from)
}

// SettleReparsed ends a run where the pages of its jobs that were read again have
// left nothing to do, and promotes or holds what they have staged. It gives the run as
// it is then; nil where it is 0 and there is none.
func (tx *Tx) SettleReparsed(run uint64, sinks []Subscription) (*Run, error) {
	if run == 0 {
		return nil, nil
	}
	if err := tx.settleRun(run, sinks); err != nil {
		return nil, err
	}
	return tx.Run(run)
}

// saveReparse writes the attempt that a job was reparsed by: nobody had a lease
// and no host was asked, so it has no owner and no lane, and is not counted. A clock
// that was set back since the page was fetched makes it no later than its rows' events.
func (tx *Tx) saveReparse(j *Job, read Attempt, a *Attempt) error {
	*a = Attempt{
		Job: j.ID, Generation: j.Generation, Kind: KindReparse, Start: tx.Now, End: tx.Now, Outcome: OutcomeComplete,
		Phase: read.Phase, Status: read.Status, FinalURL: read.FinalURL, Step: read.Step, Country: read.Country,
		ParserVersion: a.ParserVersion, Records: a.Records, Page: read.Page, ContentType: read.ContentType,
		FetchedAt: read.Fetched(),
	}
	if a.FetchedAt.After(tx.Now) {
		a.FetchedAt = tx.Now
	}
	if err := tx.sharePage(a.Page); err != nil {
		return err
	}
	return tx.insert(bucketAttempt, attemptKey(j.ID, j.Generation), a.encode())
}

// QuarantinePage sets a page aside that was read again and does not fit the
// rules of a version. What its job has brought stays. Where it stood there for the same
// reasons nothing changes. Errors as those of ReparseJob.
func (tx *Tx) QuarantinePage(read Attempt, version int, problems []Problem, sinks []Subscription) error {
	j, err := tx.readAgain(read)
	if err != nil {
		return err
	}
	q := tx.newQuarantine(j, version, problems)
	q.Generation = read.Generation
	before, err := tx.Quarantine(j.ID)
	switch {
	case err == nil:
		q.Attempts, q.Rows = before.Attempts, before.Rows
	case !isNotFound(err):
		return err
	}
	return tx.setAside(j, q, sinks)
}
