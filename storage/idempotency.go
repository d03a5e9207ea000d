package storage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"
)

const (
	// IdempotencyKept is how long a key stands for the request that it came
	// with first.
	IdempotencyKept = 24 * time.Hour
	// MaxIdempotencyKey is the longest key, in bytes.
	MaxIdempotencyKey = 255
)

// Idempotency is the key that a caller gave with a request, so that the same
// request sent again is told from another one. The zero value is none: nothing
// is guessed.
type Idempotency struct {
	Key  string            // ValidIdempotencyKey; "": none
	Body [sha256.Size]byte // of what was asked for, however it was written down
}

// ValidIdempotencyKey reports whether a text may be a key: up to
// MaxIdempotencyKey printable ASCII characters.
func ValidIdempotencyKey(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return text != "" && len(text) <= MaxIdempotencyKey
}

// Submitted is the job that a request asked for, as it is now.
type Submitted struct {
	Job      *Job
	New      bool // the request made it; of a replayed one: the first request did
	Replayed bool // its key came before, with the same request
}

// idempotencyRecord is what a key stands for.
type idempotencyRecord struct {
	at   time.Time // of the first request
	body [sha256.Size]byte
	job  uint64
	made bool // the job, by that request
}

const idempotencyVersion = 2 // as all records that are sealed

func (r idempotencyRecord) encode() []byte {
	e := newEncoder(idempotencyVersion, 64)
	e.time(r.at)
	e.u64(r.job)
	e.flag(r.made)
	e.bytes(r.body[:])
	return e.sealed()
}

func decodeIdempotency(key, v []byte) (idempotencyRecord, error) {
	d := newDecoder(idempotencyVersion, v)
	r := idempotencyRecord{at: d.time(), job: d.u64(), made: d.flag()}
	if n := copy(r.body[:], d.raw()); n < len(r.body) && d.err == nil {
		d.err = errShort
	}
	if err := d.done(); err != nil {
		return idempotencyRecord{}, &RecordError{bucketNames[bucketIdempotency], bytes.Clone(key), err}
	}
	return r, nil
}

// over reports whether a key stands for nothing any more.
func (r idempotencyRecord) over(now time.Time) bool { return !r.at.Add(IdempotencyKept).After(now) }

// idempotencyJobKey is the place of a key among those of its job.
func idempotencyJobKey(job uint64, key string) []byte { return append(idKey(job), key...) }

// SubmitJob makes the job that a request asks for, or finds it: by the request's
// key, else by the job's own. Errors: ErrKeyReused, and those of EnqueueJob.
func (tx *Tx) SubmitJob(n NewJob, by Idempotency) (Submitted, error) {
	if found, err := tx.Replay(by); !isNotFound(err) {
		return found, err
	}
	made, err := tx.EnqueueJob(n)
	if err != nil {
		return Submitted{}, err
	}
	if by.Key != "" {
		if err := tx.keepKey(by, made); err != nil {
			return Submitted{}, err
		}
	}
	j, err := tx.Job(made.ID)
	return Submitted{Job: j, New: made.New}, err
}

// Replay finds the job of a request whose key came before. Errors: ErrNotFound
// where the key stands for nothing, or there is none; ErrKeyReused where it
// stands for another request.
func (tx *Tx) Replay(by Idempotency) (Submitted, error) {
	if by.Key == "" {
		return Submitted{}, fmt.Errorf("request without a key: %w", ErrNotFound)
	}
	r, err := tx.idempotency(by.Key)
	switch {
	case err != nil:
		return Submitted{}, err
	case r.over(tx.Now):
		return Submitted{}, fmt.Errorf("idempotency key %q: %w", by.Key, ErrNotFound)
	case r.body != by.Body:
		return Submitted{}, fmt.Errorf("idempotency key %q: %w", by.Key, ErrKeyReused)
	}
	j, err := tx.Job(r.job)
	if isNotFound(err) { // damage: as "not found" it would be made a second time
		err = &RecordError{bucketNames[bucketIdempotency], []byte(by.Key), fmt.Errorf("it leads to job %d, which is missing", r.job)}
	}
	return Submitted{Job: j, New: r.made, Replayed: true}, err
}

func (tx *Tx) idempotency(key string) (idempotencyRecord, error) {
	v := tx.get(bucketIdempotency, []byte(key))
	if v == nil {
		return idempotencyRecord{}, fmt.Errorf("idempotency key %q: %w", key, ErrNotFound)
	}
	return decodeIdempotency([]byte(key), v)
}

// keepKey lets a key stand for the request that has just been answered.
func (tx *Tx) keepKey(by Idempotency, made Enqueued) error {
	old, err := tx.idempotency(by.Key)
	switch {
	case err == nil: // it is over
		if err := tx.remove(bucketIdempotencyJob, idempotencyJobKey(old.job, by.Key)); err != nil {
			return err
		}
	case !isNotFound(err):
		return err
	}
	r := idempotencyRecord{at: tx.Now, body: by.Body, job: made.ID, made: made.New}
	return errors.Join(
		tx.put(bucketIdempotency, []byte(by.Key), r.encode()),
		tx.put(bucketIdempotencyJob, idempotencyJobKey(made.ID, by.Key), nil),
	)
}

// hasKey reports whether an idempotency key leads to a job: it must stay.
func (tx *Tx) hasKey(job uint64) bool {
	prefix := idKey(job)
	k, _ := tx.bucket(bucketIdempotencyJob).Cursor().Seek(prefix)
	return bytes.HasPrefix(k, prefix)
}

// keys deletes those that came first before a time.
func (p *pruner) keys(before time.Time) error {
	return p.sweep(bucketIdempotency, &p.done.Keys, func(_ *Tx, k, v []byte) (verdict, error) {
		r, err := decodeIdempotency(k, v)
		if err == nil && r.at.Before(before) {
			return drop, nil
		}
		return keep, err
	}, (*Tx).forgetKey)
}

func (tx *Tx) forgetKey(k, v []byte) error {
	r, err := decodeIdempotency(k, v)
	if err != nil {
		return err
	}
	if err := tx.remove(bucketIdempotencyJob, idempotencyJobKey(r.job, string(k))); err != nil {
		return err
	}
	return tx.remove(bucketIdempotency, k)
}

// idempotencyKeys wants each to lead to a job, as old as the key where that made
// it, and to be found by it.
func (c *checker) idempotencyKeys() {
	found := 0
	c.each(bucketIdempotency, func(k, v []byte) {
		r, err := decodeIdempotency(k, v)
		if err != nil {
			c.unreadable(bucketIdempotency, k, err)
			return
		}
		c.written(bucketIdempotency, k, v, r.encode())
		if !ValidIdempotencyKey(string(k)) {
			c.breach(bucketIdempotency, k, "it cannot have come with a request")
		}
		c.keyOfJob(k, r)
		if c.tx.get(bucketIdempotencyJob, idempotencyJobKey(r.job, string(k))) != nil {
			found++
		} else {
			c.breach(bucketIdempotency, k, "it is missing in bucket idemjob, under job %d", r.job)
		}
	})
	c.keysOfJobs(found)
}

// keyOfJob compares a key with its job.
func (c *checker) keyOfJob(k []byte, r idempotencyRecord) {
	j, err := c.tx.Job(r.job)
	switch {
	case isNotFound(err):
		c.breach(bucketIdempotency, k, "there is no job %d", r.job)
	case err != nil: // told with the jobs
	case r.made && !j.Created.Equal(r.at):
		c.breach(bucketIdempotency, k, "job %d was not made when it says", r.job)
	}
}

// keysOfJobs looks for entries without a key, unless there are just as many as
// keys that found theirs.
func (c *checker) keysOfJobs(found int) {
	c.each(bucketIdempotencyJob, func(k, v []byte) {
		if found--; len(v) > 0 {
			c.breach(bucketIdempotencyJob, k, "it has a value")
		}
	})
	if found == 0 {
		return
	}
	c.each(bucketIdempotencyJob, func(k, _ []byte) {
		if len(k) > 8 {
			if r, err := c.tx.idempotency(string(k[8:])); err == nil && bytes.Equal(idKey(r.job), k[:8]) {
				return
			}
		}
		c.breach(bucketIdempotencyJob, k, "it leads to no key of this job")
	})
}
