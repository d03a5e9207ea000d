package storage

import (
	"bytes"
	"fmt"
	"strings"
)

// Breach is one place where the store contradicts itself.
type Breach struct {
	Bucket string
	Key    []byte
	What   string
}

func (b Breach) String() string { return fmt.Sprintf("bucket %s, key %q: %s", b.Bucket, b.Key, b.What) }

// Check compares everything with everything: pages with bbolt's own check,
// jobs with their indexes both ways, attempts and observations with jobs,
// outbox rows with events, counters with a recount. It gives what does not
// agree; an error means that it could not look.
func (s *Store) Check() ([]Breach, error) {
	found, err := s.checkPages()
	if err != nil || len(found) > 0 { // nothing below can be trusted on broken pages
		return found, err
	}
	err = s.View(func(tx *Tx) error {
		c := &checker{tx: tx, counts: map[delta]int64{}}
		c.jobs()
		c.indexes()
		c.attempts()
		c.observations()
		c.outbox()
		c.counters()
		found = c.found
		return nil
	})
	return found, err
}

// checkPages is bbolt's check. It looks at the list of free pages, which
// belongs to the writer, so that writing waits while it runs.
func (s *Store) checkPages() (found []Breach, err error) {
	if err := s.Err(); err != nil {
		return nil, stoppedBy(err)
	}
	b, err := s.db.Begin(!s.read)
	if err != nil {
		return nil, stoppedBy(err)
	}
	for err := range b.Check() {
		found = append(found, Breach{Bucket: "(pages)", What: err.Error()})
	}
	return found, b.Rollback()
}

type checker struct {
	tx     *Tx
	counts map[delta]int64 // recount of what counters should hold
	found  []Breach
}

func (c *checker) breach(id bucket, key []byte, format string, args ...any) {
	c.found = append(c.found, Breach{bucketNames[id], bytes.Clone(key), fmt.Sprintf(format, args...)})
}

// each calls fn with every entry of a bucket.
func (c *checker) each(id bucket, fn func(k, v []byte)) {
	cursor := c.tx.bucket(id).Cursor()
	for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
		fn(k, v)
	}
}

func (c *checker) recount(source, metric string) { c.counts[delta{source: source, metric: metric}]++ }

func (c *checker) jobs() {
	c.each(bucketJob, func(k, v []byte) {
		j, err := decodeJob(tailID(k), v)
		if err != nil {
			c.breach(bucketJob, k, "%v", err)
			return
		}
		c.recount(j.Key.Source, metricState+string(j.State))
		if j.State == StateFailed {
			c.recount(j.Key.Source, MetricFailures+string(j.Category))
		}
		if id := c.tx.get(bucketKey, keyIndex(j.Key.Window, j.Key.String())); tailID(id) != j.ID {
			c.breach(bucketJob, k, "its key %s leads to job %d", j.Key, tailID(id))
		}
		c.placed(j, bucketReady, readyKey(j), StatePending)
		c.placed(j, bucketWait, timedKey(j.NextAt, j.ID), StateRetryable)
		c.placed(j, bucketLease, timedKey(j.LeaseUntil, j.ID), StateRunning)
		if j.State == StateRunning && (j.Owner == "" || j.LeaseUntil.IsZero()) {
			c.breach(bucketJob, k, "it runs without an owner or without an end of its lease")
		}
	})
}

// placed wants a job in an index if, and only if, it is in the index's state.
func (c *checker) placed(j *Job, id bucket, key []byte, state JobState) {
	if there := c.tx.get(id, key) != nil; there != (j.State == state) {
		c.breach(bucketJob, idKey(j.ID), "it is %s, and its entry in bucket %s: %v", j.State, bucketNames[id], there)
	}
}

func (c *checker) indexes() {
	want := func(id bucket, state JobState, place func(*Job) []byte) {
		c.each(id, func(k, _ []byte) {
			j, err := c.tx.Job(tailID(k))
			switch {
			case err != nil:
				c.breach(id, k, "its job: %v", err)
			case j.State != state:
				c.breach(id, k, "job %d is %s", j.ID, j.State)
			case !bytes.Equal(place(j), k):
				c.breach(id, k, "job %d stands elsewhere", j.ID)
			}
		})
	}
	want(bucketReady, StatePending, readyKey)
	want(bucketWait, StateRetryable, func(j *Job) []byte { return timedKey(j.NextAt, j.ID) })
	want(bucketLease, StateRunning, func(j *Job) []byte { return timedKey(j.LeaseUntil, j.ID) })
	c.each(bucketKey, func(k, v []byte) {
		j, err := c.tx.Job(tailID(v))
		if err != nil {
			c.breach(bucketKey, k, "its job: %v", err)
		} else if !bytes.Equal(keyIndex(j.Key.Window, j.Key.String()), k) {
			c.breach(bucketKey, k, "job %d has the key %s", j.ID, j.Key)
		}
	})
}

func (c *checker) attempts() {
	var job *Job
	counted := uint32(0)
	end := func() {
		if job != nil && counted > job.Attempts {
			c.breach(bucketAttempt, idKey(job.ID), "%d attempts count, its job says %d", counted, job.Attempts)
		}
	}
	c.each(bucketAttempt, func(k, v []byte) {
		a, err := decodeAttempt(k, v)
		if err != nil {
			c.breach(bucketAttempt, k, "%v", err)
			return
		}
		if job == nil || job.ID != a.Job {
			end()
			counted = 0
			if job, err = c.tx.Job(a.Job); err != nil {
				c.breach(bucketAttempt, k, "its job: %v", err)
				return
			}
		}
		if a.Generation > job.Generation {
			c.breach(bucketAttempt, k, "generation %d, its job has %d", a.Generation, job.Generation)
		}
		if a.Outcome != OutcomeReleased && a.Outcome != OutcomeRescued {
			counted++
			c.recount(job.Key.Source, MetricAttempts)
		}
		if a.Outcome == OutcomeComplete {
			c.recount(job.Key.Source, MetricComplete)
		}
	})
	end()
}

func (c *checker) observations() {
	c.each(bucketObservation, func(k, v []byte) {
		o, err := decodeObservation(k, v)
		if err != nil {
			c.breach(bucketObservation, k, "%v", err)
			return
		}
		c.recount(o.Key.Source, MetricObservations)
		key, err := ParseJobKey(o.Job)
		if err == nil {
			_, err = c.tx.JobByKey(key)
		}
		if err != nil {
			c.breach(bucketObservation, k, "its job: %v", err)
		}
	})
}

func (c *checker) outbox() {
	c.each(bucketEvent, func(k, v []byte) {
		if _, err := decodeEvent(tailID(k), v); err != nil {
			c.breach(bucketEvent, k, "%v", err)
		}
	})
	c.each(bucketOutbox, func(k, _ []byte) {
		if c.tx.get(bucketEvent, idKey(tailID(k))) == nil {
			c.breach(bucketOutbox, k, "there is no event %d", tailID(k))
		}
	})
}

// counters compares those that can be recounted; the others only grow.
func (c *checker) counters() {
	c.each(bucketCounter, func(k, v []byte) {
		source, metric, _ := bytes.Cut(k, []byte{0})
		d := delta{source: string(source), metric: string(metric)}
		recounted := d.metric == MetricObservations || d.metric == MetricAttempts || d.metric == MetricComplete ||
			strings.HasPrefix(d.metric, metricState) || strings.HasPrefix(d.metric, MetricFailures)
		gone := tailInt(c.tx.get(bucketCounter, counterKey(d.source, metricPruned+d.metric)))
		if want := c.counts[d] + gone; recounted && tailInt(v) != want {
			c.breach(bucketCounter, k, "it says %d, a recount gives %d", tailInt(v), want)
		}
		delete(c.counts, d)
	})
	for d, n := range c.counts {
		c.breach(bucketCounter, counterKey(d.source, d.metric), "it is missing, a recount gives %d", n)
	}
}
