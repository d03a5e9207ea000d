package storage

import (
	"bytes"
	"encoding/json"
	"errors"
)

// staged wants what waits for its run to be of a job of that run, and to be what
// could stand in bucket obs.
func (c *checker) staged() {
	c.eachOwned(bucketStaged, func(k, v []byte, j *Job, place []byte) {
		if len(place) == 0 {
			if b := c.brought(bucketStaged, k, v, j); b != nil && b.Rows != c.rowsUnder(k) {
				c.breach(bucketStaged, k, "it says another number of rows than job %d has staged", j.ID)
			}
			return
		}
		o, err := readObservation(place, v)
		if err != nil {
			c.unreadable(bucketStaged, k, err)
			return
		}
		c.written(bucketStaged, k, v, o.encode())
		c.same(bucketStaged, k, place, observationKey(o.Key))
		c.rules(bucketStaged, k, observationRules(o)...)
		own := c.tx.get(bucketStaged, k[:16])
		b, err := readBrought(bucketStaged, j, own)
		if err == nil && !isOldBrought(bucketStaged, own) && b.Version != o.Version { // one that cannot be read is told as such
			c.breach(bucketStaged, k, "version %d of the rules made it, and job %d has staged what version %d did", o.Version, j.ID, b.Version)
		}
		if !o.Key.Window.Equal(j.Window) || o.Job != j.Key.String() {
			c.breach(bucketStaged, k, "it names job %s, and stands under job %d", o.Job, j.ID)
		} else if c.maker(bucketStaged, k, o) != nil {
			c.made(bucketStaged, k, o, j)
		}
	})
}

// live wants each owner's rows to be there and to name it; owner wants the
// converse.
func (c *checker) live() {
	c.eachOwned(bucketLive, func(k, v []byte, j *Job, place []byte) {
		if len(place) == 0 {
			c.brought(bucketLive, k, v, j)
			return
		}
		if len(v) > 0 {
			c.breach(bucketLive, k, "it has a value")
		}
		o, err := readObservation(place, c.tx.get(bucketObservation, place))
		if err != nil || o.Job != j.Key.String() {
			c.breach(bucketLive, k, "job %d has no such observation", j.ID)
		}
	})
}

// brought looks at what a job says of its rows at its own place, which an attempt of
// its must have brought; nil: it cannot be read.
func (c *checker) brought(id bucket, k, v []byte, j *Job) *brought {
	b, err := readBrought(id, j, v)
	if err != nil {
		c.unreadable(id, k, errors.Unwrap(err))
		return nil
	}
	if isOldBrought(id, v) {
		return &b
	}
	c.written(id, k, v, b.encode())
	c.rules(id, k,
		rule{b.Generation > j.Generation, "it is of a later attempt than its job had"},
		rule{id == bucketLive && (!b.Counted || b.Whole), "it stands and is not counted, or not as what stands"},
	)
	if b.Generation <= j.Forgotten {
		return &b
	}
	a, err := c.tx.attempt(j.ID, b.Generation) // a gap is told with the attempts
	if err == nil && (a.Outcome != OutcomeComplete || a.ParserVersion != b.Version) {
		c.breach(id, k, "attempt %d of job %d completed nothing by version %d of the rules", b.Generation, j.ID, b.Version)
	}
	return &b
}

// rowsUnder counts the rows that stand behind a job's own place in bucket staged.
func (c *checker) rowsUnder(job []byte) (n uint32) {
	cursor := c.tx.bucket(bucketStaged).Cursor()
	cursor.Seek(job)
	for k, _ := cursor.Next(); bytes.HasPrefix(k, job); k, _ = cursor.Next() {
		n++
	}
	return n
}

// owner wants a row with a window in its key to stand in bucket live.
func (c *checker) owner(k []byte, o *Observation, j *Job) {
	if !o.Key.Window.IsZero() && c.tx.get(bucketLive, rowKey(j.Run, j.ID, k)) == nil {
		c.breach(bucketObservation, k, "it is missing in bucket live under job %d", j.ID)
	}
}

// eachOwned calls fn with each entry in bucket staged or live, and with its job,
// whose own place must be there.
func (c *checker) eachOwned(id bucket, fn func(k, v []byte, j *Job, place []byte)) {
	c.each(id, func(k, v []byte) {
		if len(k) < 16 {
			c.breach(id, k, "its key is not a run's and a job's id")
			return
		}
		job, place := readRowKey(k)
		j := c.jobOf(id, k, job)
		switch {
		case j == nil:
		case j.Run == 0 || !bytes.HasPrefix(k, idKey(j.Run)):
			c.breach(id, k, "job %d is of run %d", j.ID, j.Run)
		case c.tx.get(id, k[:16]) == nil:
			c.breach(id, k, "the place of job %d itself is missing", j.ID)
		default:
			fn(k, v, j, place)
		}
	})
}

// heldRules are what a run promises of what its jobs have staged.
func heldRules(r *Run, staged bool) []rule {
	idle := r.Open == 0 && !r.Listing
	return []rule{
		{(r.Held == "") != r.HeldSince.IsZero(), "it is held since no time, or for no reason"},
		{!idle && (r.Held != "" || !r.Discarded.IsZero()), "it has work ahead and is held or discarded"},
		{r.Held != "" && !staged, "it is held and nothing is staged for it"},
		{idle && r.Held == "" && staged, "what is staged for it is neither promoted nor held"},
		{!r.Discarded.IsZero() && staged, "it is discarded, and something is staged for it"},
	}
}

// overtaken reports whether the rows of an observation's window were replaced
// since an event: it may be gone, or another one in its place.
func (c *checker) overtaken(key JobKey, e *Event) bool {
	if key.Window.IsZero() {
		return false
	}
	r, err := c.tx.RunByKey(RunKey{Source: key.Source, Window: key.Window})
	return err == nil && !r.Replaced.Before(e.Timestamp)
}

// replacedEvent wants an event to say what its id says, and its run to have had
// its rows replaced: when, a clock that was set back cannot say.
func (c *checker) replacedEvent(k []byte, e *Event) {
	var told replacedEvent
	if err := json.Unmarshal(e.Data, &told); err != nil {
		c.breach(bucketEvent, k, "its data is not that of a window: %v", err)
		return
	}
	if anew, err := json.Marshal(told); err == nil {
		c.same(bucketEvent, k, e.Data, anew)
	}
	r := c.runTold(k, e)
	if r == nil {
		return
	}
	c.rules(bucketEvent, k,
		rule{e.ID != told.id(false) && e.ID != told.id(true), "its id is not that of what it tells"},
		rule{told.Run != e.Key || told.Source != r.Key.Source || !told.Window.Equal(r.Key.Window), "it tells of another run than its key"},
		rule{told.Added+told.Changed+told.Removed == 0, "it tells of no change"},
		rule{r.Replaced.IsZero(), "the rows of its run were never replaced"},
		rule{told.Revision > r.Revision, "it tells of a later revision than that of its run"},
	)
}
