package storage

import (
	"bytes"
	"cmp"
	"fmt"
	"time"
)

// Outcomes of an attempt.
const (
	OutcomeComplete = "complete" // committed
	OutcomeRetry    = "retry"    // failed, to be tried again
	OutcomeFail     = "fail"     // failed, and the job with it
	OutcomeReleased = "released" // handed back, not counted
	OutcomeRescued  = "rescued"  // its worker died or fell silent, not counted
)

// KindReparse is the kind of an attempt that read a kept page by other rules: it
// fetched nothing, had no owner and counts against no limit.
const KindReparse = "reparse"

// Attempt is one execution of a job. Its number is the generation it ran
// under: released and rescued ones have theirs, too.
type Attempt struct {
	Job        uint64 // set by the store, as are Lane, Generation, Owner, Start and End
	Lane       LaneID // of the job then: whose host it asked; 0: none, or written before schema 3
	Generation uint32
	Kind       string // "": it fetched its page; or KindReparse
	Owner      string
	Start, End time.Time

	Outcome  string
	Category Category // "" when it completed
	Reason   string   // why it ended so, for people; never a credential

	Phase         string // how far it came
	Status        int    // last HTTP status of the site, 0: none
	ConnectStatus int    // the gateway's answer to CONNECT, 0: none
	ProxyCode     string // the gateway's own error code
	BytesUp       int64  // on the wire, TLS and CONNECT included
	BytesDown     int64
	FinalURL      string // after redirects, "" without a page

	Step     string // name of the workflow's step that it ended in; "" without steps
	Proxy    string // name of the proxy; "" direct
	Endpoint string // redacted; "" direct
	Country  string // exit country asked for
	Session  string // hash of the session id

	Free          bool // does not count against limits.attempts: the fault is not the job's
	ParserVersion int  // 0: not parsed
	Records       int
	NextAt        time.Time // when the job is due again; zero: not by itself

	Kept        *KeptPage // in: a page to keep with it, nil: none
	Page        PageHash  // out: the page kept with it, zero: none
	ContentType string    // of that page
	FetchedAt   time.Time // when a page that was read again had been fetched; zero: with this attempt
}

// attemptVersion 2 added Page and ContentType, and is sealed; 3 added Step,
// Proxy and Lane; 4 Kind; 5 FetchedAt.
const attemptVersion = 5

func (a *Attempt) encode() []byte {
	e := newEncoder(attemptVersion, 200+len(a.FinalURL)+len(a.Reason))
	e.time(a.Start)
	e.time(a.End)
	e.time(a.NextAt)
	for _, n := range []int{a.Status, a.ConnectStatus, a.ParserVersion, a.Records} {
		e.u32(uint32(n))
	}
	e.flag(a.Free)
	e.i64(a.BytesUp)
	e.i64(a.BytesDown)
	for _, s := range []string{a.Owner, a.Outcome, string(a.Category), a.Reason, a.Phase, a.ProxyCode, a.FinalURL, a.Endpoint, a.Country, a.Session, a.Step, a.Proxy} {
		e.text(s)
	}
	e.u32(uint32(a.Lane))
	e.text(a.Kind)
	e.time(a.FetchedAt)
	if a.Page.IsZero() {
		e.flag(false)
		return e.sealed()
	}
	e.flag(true)
	e.b = append(e.b, a.Page[:]...)
	e.text(a.ContentType)
	return e.sealed()
}

func decodeAttempt(key, b []byte) (Attempt, error) {
	d := newDecoder(attemptVersion, b)
	place := decoder{b: key}
	a := Attempt{Job: place.u64(), Generation: place.u32()}
	a.Start, a.End, a.NextAt = d.time(), d.time(), d.time()
	for _, n := range []*int{&a.Status, &a.ConnectStatus, &a.ParserVersion, &a.Records} {
		*n = int(d.u32())
	}
	a.Free = d.flag()
	a.BytesUp, a.BytesDown = d.i64(), d.i64()
	var category string
	for _, s := range []*string{&a.Owner, &a.Outcome, &category, &a.Reason, &a.Phase, &a.ProxyCode, &a.FinalURL, &a.Endpoint, &a.Country, &a.Session} {
		*s = d.text()
	}
	a.Category = Category(category)
	if d.version > 2 {
		a.Step, a.Proxy, a.Lane = d.text(), d.text(), LaneID(d.u32())
	}
	if d.version > 3 {
		a.Kind = d.text()
	}
	if d.version > 4 {
		a.FetchedAt = d.time()
	}
	if d.version > 1 && d.flag() {
		copy(a.Page[:], d.take(len(a.Page)))
		a.ContentType = d.text()
	}
	if d.err == nil {
		d.err = place.done()
	}
	if err := d.done(); err != nil {
		return Attempt{}, &RecordError{bucketNames[bucketAttempt], bytes.Clone(key), err}
	}
	return a, nil
}

// Gone reports whether it completed since the page said that there is no such
// target.
func (a *Attempt) Gone() bool {
	return a.Outcome == OutcomeComplete && (a.Status == 404 || a.Status == 410)
}

// Fetched is when the page that it read was fetched.
func (a *Attempt) Fetched() time.Time { return cmp.Or(a.FetchedAt, a.End) }

// counts reports whether an attempt is one of Job.Attempts: it fetched something
// and had an outcome of its own.
func (a *Attempt) counts() bool {
	return a.Kind != KindReparse && (a.Outcome == OutcomeComplete || a.Outcome == OutcomeRetry || a.Outcome == OutcomeFail)
}

// saveAttempt writes the attempt that a running job is in.
func (tx *Tx) saveAttempt(j *Job, a Attempt) error {
	a.Job, a.Lane, a.Generation, a.Owner, a.Start, a.End = j.ID, j.Lane, j.Generation, j.Owner, j.ClaimedAt, tx.Now
	lane, err := tx.Lane(j.Lane)
	if err != nil {
		return err
	}
	source := lane.Source
	a.traffic(lane, tx.count)
	tx.count(source, MetricBytesUp, a.BytesUp)
	tx.count(source, MetricBytesDown, a.BytesDown)
	j.BytesUp += a.BytesUp
	j.BytesDown += a.BytesDown
	j.Spent += a.BytesUp + a.BytesDown
	if a.counts() {
		j.Attempts++
		if !a.Free {
			j.Tries++
		}
		tx.count(source, MetricAttempts, 1)
		tx.count(source, durationMetric(a.End.Sub(a.Start)), 1)
	}
	if a.Kept != nil {
		a.Page = a.Kept.Hash
		if err := tx.keepPage(a.Kept); err != nil {
			return err
		}
	}
	return tx.insert(bucketAttempt, attemptKey(j.ID, j.Generation), a.encode())
}

// attempt reads one attempt. Error: ErrNotFound.
func (tx *Tx) attempt(job uint64, generation uint32) (Attempt, error) {
	key := attemptKey(job, generation)
	v := tx.get(bucketAttempt, key)
	if v == nil {
		return Attempt{}, fmt.Errorf("attempt %d of job %d: %w", generation, job, ErrNotFound)
	}
	return decodeAttempt(key, v)
}

// Attempts are a job's attempts, oldest first.
func (tx *Tx) Attempts(job uint64) ([]Attempt, error) {
	var list []Attempt
	prefix := idKey(job)
	c := tx.bucket(bucketAttempt).Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		a, err := decodeAttempt(k, v)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}
