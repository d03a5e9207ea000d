package storage

import (
	"bytes"
	"fmt"
)

// Validator is what a site gave with a page for asking later whether it still
// is the same (RFC 9110 §8.8), as it was received. The zero value is none.
type Validator struct {
	ETag         string // "" for none
	LastModified string // "" for none
}

// IsZero reports whether there is nothing to ask with.
func (v Validator) IsZero() bool { return v == Validator{} }

// validatorRecord is a validator and the attempt that its page is kept with.
type validatorRecord struct {
	Validator
	job        uint64
	generation uint32
	bytes      uint32 // of the page
}

const validatorVersion = 2 // as all records that are sealed

func (r validatorRecord) encode() []byte {
	e := newEncoder(validatorVersion, 32+len(r.ETag)+len(r.LastModified))
	e.u64(r.job)
	e.u32(r.generation)
	e.u32(r.bytes)
	e.text(r.ETag)
	e.text(r.LastModified)
	return e.sealed()
}

func decodeValidator(key, v []byte) (validatorRecord, error) {
	d := newDecoder(validatorVersion, v)
	r := validatorRecord{job: d.u64(), generation: d.u32(), bytes: d.u32()}
	r.ETag, r.LastModified = d.text(), d.text()
	if err := d.done(); err != nil {
		return validatorRecord{}, &RecordError{bucketNames[bucketValidator], bytes.Clone(key), err}
	}
	return r, nil
}

// validatorKey is the same for all windows of a target. The country is the one
// that the attempt asked for.
func validatorKey(k JobKey, country string) []byte {
	b := make([]byte, 0, len(k.Source)+len(k.Target)+len(country)+5)
	b = append(b, k.Source...)
	b = append(b, 0)
	b = appendText(b, k.Target)
	return appendText(b, country)
}

// KeptAnswer is the page that last completed a job of a target.
type KeptAnswer struct {
	Validator         // of what stands at Attempt.FinalURL, and nowhere else
	Attempt   Attempt // that it is kept with; its job may be another window's
	PageBytes int64   // length of the page
}

// KeptAnswer gives the page to ask a job's site for before that is fetched
// anew. Error: ErrNotFound where none is kept that can be asked for.
func (tx *Tx) KeptAnswer(j *Job) (KeptAnswer, error) {
	key := validatorKey(j.Key, j.Country)
	v := tx.get(bucketValidator, key)
	if v == nil {
		return KeptAnswer{}, fmt.Errorf("validator of job %s: %w", j.Key, ErrNotFound)
	}
	r, err := decodeValidator(key, v)
	if err != nil {
		return KeptAnswer{}, err
	}
	a, err := tx.attempt(r.job, r.generation)
	return KeptAnswer{r.Validator, a, int64(r.bytes)}, err
}

// keepValidator notes what asks for the page that has just completed a job.
// Without one, or without the page, nothing does: what stood there was that of
// an older page.
func (tx *Tx) keepValidator(j *Job, a *Attempt, v Validator) error {
	key := validatorKey(j.Key, a.Country)
	old := tx.get(bucketValidator, key)
	switch {
	case a.Kept != nil && !v.IsZero():
		return tx.replace(bucketValidator, key, old, validatorRecord{v, j.ID, j.Generation, uint32(a.Kept.bytes)}.encode())
	case old != nil:
		return tx.remove(bucketValidator, key)
	}
	return nil
}

// dropValidator removes the validator of an attempt's page, if it is the one
// that the target is asked with.
func (tx *Tx) dropValidator(j *Job, a *Attempt) error {
	key := validatorKey(j.Key, a.Country)
	v := tx.get(bucketValidator, key)
	if v == nil {
		return nil
	}
	r, err := decodeValidator(key, v)
	if err != nil || r.job != a.Job || r.generation != a.Generation {
		return err
	}
	return tx.remove(bucketValidator, key)
}

// validators wants each to lead to the completed attempt of its target, and
// that attempt to have its page.
func (c *checker) validators() {
	c.each(bucketValidator, func(k, v []byte) {
		r, err := decodeValidator(k, v)
		if err != nil {
			c.unreadable(bucketValidator, k, err)
			return
		}
		c.written(bucketValidator, k, v, r.encode())
		if r.IsZero() {
			c.breach(bucketValidator, k, "it has neither an ETag nor a Last-Modified")
		}
		c.validated(k, r)
	})
}

func (c *checker) validated(k []byte, r validatorRecord) {
	a, err := c.tx.attempt(r.job, r.generation)
	if isNotFound(err) {
		c.breach(bucketValidator, k, "there is no attempt %d of job %d", r.generation, r.job)
	}
	j, jobErr := c.tx.Job(r.job)
	if err != nil || jobErr != nil {
		return // told with the attempts and the jobs
	}
	if a.Outcome != OutcomeComplete || a.Page.IsZero() {
		c.breach(bucketValidator, k, "attempt %d of job %d did not complete with a page that is kept", r.generation, r.job)
	}
	if !bytes.Equal(k, validatorKey(j.Key, a.Country)) {
		c.breach(bucketValidator, k, "attempt %d of job %d is of another source, target or country", r.generation, r.job)
	}
}
