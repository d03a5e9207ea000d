package storage

import (
	"fmt"
	"slices"
)

// verb names a transition.
type verb string

const (
	verbClaim     verb = "claim"
	verbRenew     verb = "renew"
	verbMark      verb = "mark"
	verbComplete  verb = "complete"
	verbRetry     verb = "reschedule"
	verbFail      verb = "fail"
	verbRelease   verb = "release"
	verbRescue    verb = "rescue"
	verbAbandon   verb = "abandon"
	verbPromote   verb = "promote"
	verbCancel    verb = "cancel"
	verbRequeue   verb = "retry"
	verbRecollect verb = "recollect"
	verbReparse   verb = "reparse"
)

// transitions is every way a job changes its state. Those from running also
// compare owner and generation (fence), but for rescue and abandon, which need
// a lease that has ended.
var transitions = map[verb]struct {
	from []JobState
	to   JobState
}{
	verbClaim:     {[]JobState{StatePending}, StateRunning},                              // a free worker takes it: generation + 1, a lease
	verbRenew:     {[]JobState{StateRunning}, StateRunning},                              // its worker is healthy: the lease ends later
	verbMark:      {[]JobState{StateRunning}, StateRunning},                              // a step that must not be repeated is about to be sent, or was not
	verbComplete:  {[]JobState{StateRunning}, StateComplete},                             // the observation is committed with it
	verbRetry:     {[]JobState{StateRunning}, StateRetryable},                            // the attempt failed and repeating is safe
	verbFail:      {[]JobState{StateRunning}, StateFailed},                               // repeating would not help, or a limit is reached
	verbRelease:   {[]JobState{StateRunning}, StatePending},                              // handed back unburnt: clean stop, paused proxy
	verbRescue:    {[]JobState{StateRunning}, StatePending},                              // the lease ended: its worker died or fell silent
	verbAbandon:   {[]JobState{StateRunning}, StateFailed},                               // it ended too often in a row
	verbPromote:   {[]JobState{StateRetryable}, StatePending},                            // its delay is over
	verbCancel:    {[]JobState{StatePending, StateRetryable}, StateFailed},               // a person stopped it
	verbRequeue:   {[]JobState{StateFailed}, StatePending},                               // a person retries it: limits start anew
	verbRecollect: {[]JobState{StateFailed, StateComplete}, StatePending},                // a person wants it once more: what it brought stays until the next commit
	verbReparse:   {[]JobState{StatePending, StateFailed, StateComplete}, StateComplete}, // a kept page gave it what other rules find there: generation + 1
}

// move takes a job through a transition: change sets the fields that go with
// it. State, indexes, counters and the job's run follow by themselves. Error:
// ErrTransition.
func (tx *Tx) move(j *Job, v verb, change func(*Job)) error {
	t := transitions[v]
	if !slices.Contains(t.from, j.State) {
		return fmt.Errorf("%s of job %s, which is %s: %w", v, j.Key, j.State, ErrTransition)
	}
	if err := tx.unindex(j); err != nil {
		return err
	}
	tx.countState(j, -1)
	was := j.State
	j.State, j.Updated = t.to, tx.Now
	change(j)
	tx.countState(j, 1)
	if err := tx.moveInRun(j, was); err != nil {
		return err
	}
	if err := tx.index(j); err != nil {
		return err
	}
	return tx.save(j)
}

func (tx *Tx) countState(j *Job, n int64) {
	tx.count(j.Key.Source, metricState+string(j.State), n)
	switch j.State {
	case StateFailed:
		tx.count(j.Key.Source, MetricFailures+string(j.Category), n)
	case StateComplete:
		tx.count(j.Key.Source, rulesMetric(j.Version), n)
	}
}

// index puts a job into the one index of its state.
func (tx *Tx) index(j *Job) error {
	switch j.State {
	case StatePending:
		tx.ready = append(tx.ready, j.Lane)
		return tx.insert(bucketReady, readyKey(j), nil)
	case StateRetryable:
		return tx.insert(bucketWait, timedKey(j.NextAt, j.ID), nil)
	case StateRunning:
		return tx.insert(bucketLease, timedKey(j.LeaseUntil, j.ID), nil)
	}
	return nil
}

func (tx *Tx) unindex(j *Job) error {
	switch j.State {
	case StatePending:
		return tx.remove(bucketReady, readyKey(j))
	case StateRetryable:
		return tx.remove(bucketWait, timedKey(j.NextAt, j.ID))
	case StateRunning:
		return tx.remove(bucketLease, timedKey(j.LeaseUntil, j.ID))
	}
	return nil
}

// CancelJob fails a job that waits, for a person. Errors: ErrNotFound,
// ErrTransition (it runs, or is finished).
func (tx *Tx) CancelJob(id uint64, sinks []Subscription) (*Job, error) {
	j, err := tx.Job(id)
	if err != nil {
		return nil, err
	}
	if err := tx.move(j, verbCancel, func(j *Job) {
		j.NextAt = noTime
		j.Category, j.Reason = CategoryCanceled, "canceled by a person"
	}); err != nil {
		return nil, err
	}
	return j, tx.conclude(EventJobFailed, j, sinks)
}

// canceled reports whether a person has stopped a job for good.
func (j *Job) canceled() bool { return j.State == StateFailed && j.Category == CategoryCanceled }

// RequeueJob sends a failed job back to pending, its limits counted anew and
// its mark (MarkSent) taken back, for a person. Errors: ErrNotFound, ErrTransition (it has not failed).
func (tx *Tx) RequeueJob(id uint64) (*Job, error) { return tx.requeue(id, verbRequeue) }

// RecollectJob is RequeueJob of a job that has ended either way. What a complete
// one has brought stays until it commits again, under its present rules. Errors:
// ErrNotFound, ErrTransition (it has not ended).
func (tx *Tx) RecollectJob(id uint64) (*Job, error) { return tx.requeue(id, verbRecollect) }

func (tx *Tx) requeue(id uint64, v verb) (*Job, error) {
	j, err := tx.Job(id)
	if err != nil {
		return nil, err
	}
	err = tx.move(j, v, func(j *Job) {
		j.Tries, j.Spent, j.Rescues = 0, 0, 0
		j.FirstClaim, j.Sent = noTime, ""
	})
	return j, err
}
