package storage

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"
)

// jobs looks at each job with its attempts beside it: both buckets are in the
// order of job ids.
func (c *checker) jobs() {
	attempts := c.walk(bucketAttempt)
	c.each(bucketJob, func(k, v []byte) {
		c.strayAttempts(attempts, k)
		list, readable := c.attemptsOf(attempts, k)
		if j := c.job(k, v); j != nil {
			c.recountJob(j, list)
			if readable {
				c.history(j, list)
			}
		}
	})
	c.strayAttempts(attempts, nil)
}

// job looks at a job by itself and at its place in the indexes; nil: it cannot
// be read.
func (c *checker) job(k, v []byte) *Job {
	if len(k) != 8 || tailID(k) == 0 {
		c.breach(bucketJob, k, "its key is not an id from 1")
		return nil
	}
	j, err := decodeJob(tailID(k), v)
	if err != nil {
		c.unreadable(bucketJob, k, err)
		return nil
	}
	c.see(jobSequence, j.ID)
	c.written(bucketJob, k, v, j.encode())
	c.rules(bucketJob, k, jobRules(j)...)
	lane, err := c.tx.Lane(j.Lane)
	if err != nil || lane.Source != j.Key.Source {
		c.breach(bucketJob, k, "it is of source %q, its lane %d of %q", j.Key.Source, j.Lane, lane.Source)
	}
	if lane.Country != "" && lane.Country != j.Country {
		c.breach(bucketJob, k, "it is of country %q, its lane %d of %q", j.Country, j.Lane, lane.Country)
	}
	c.place(j, k)
	return j
}

// jobRules are what a job's state promises about its other fields.
func jobRules(j *Job) []rule {
	running := j.State == StateRunning
	leased := j.Owner != "" || !j.LeaseUntil.IsZero() || !j.ClaimedAt.IsZero()
	blamed := j.Category != "" || j.Reason != ""
	return []rule{
		{running && (j.Owner == "" || j.LeaseUntil.IsZero()), "it runs without an owner or without an end of its lease"},
		{running && (j.Generation == 0 || j.ClaimedAt.IsZero()), "it runs and was never claimed"},
		{!running && leased, "it is " + string(j.State) + " and has a lease"},
		{j.State == StateRetryable && j.NextAt.IsZero(), "it is retryable and never due"},
		{j.State != StateRetryable && !j.NextAt.IsZero(), "it is " + string(j.State) + " and has a time to be due at"},
		{j.State == StateFailed && j.Category == "", "it failed without a category"},
		{(running || j.State == StateComplete) && blamed, "it is " + string(j.State) + " and has a reason to fail"},
		{j.Category != "" && !j.Category.Known(), "its category is unknown: " + string(j.Category)},
		{j.FirstClaim.IsZero() && (running || j.Tries > 0), "it was claimed, and its first claim has no time"},
		{j.Sent != "" && j.Generation == 0, "it may have sent a step and was never claimed"},
		{j.Sent != "" && j.State == StateRetryable, "it is to be tried again and may have sent a step that must not be repeated"},
		{j.Sent != "" && j.State == StateComplete, "it is complete and has a step that may have been sent"},
		{j.RescueForgotten && (j.Forgotten == 0 || !j.Recovered), "it has forgotten a rescue that it never had"},
		{j.Forgotten > j.Generation, "it has forgotten more attempts than it had"},
		{j.Window.Nanosecond() != 0, "its window does not begin with a second"},
	}
}

// place wants a job in bucket key, and in the one index of its state.
func (c *checker) place(j *Job, k []byte) {
	id := c.tx.get(bucketKey, keyIndex(j.Key.Window, j.Key.String()))
	switch {
	case bytes.Equal(id, k):
		c.placed[bucketKey]++
	case id == nil:
		c.breach(bucketJob, k, "its key %s is missing in bucket key", j.Key)
	default:
		c.breach(bucketJob, k, "its key %s leads to job %d", j.Key, tailID(id))
	}
	for _, x := range stateIndexes {
		switch {
		case x.state != j.State:
		case c.tx.get(x.bucket, x.key(j)) != nil:
			c.placed[x.bucket]++
		default:
			c.breach(bucketJob, k, "it is %s and missing in bucket %s", j.State, bucketNames[x.bucket])
		}
	}
}

// stateIndexes are the buckets that hold exactly the jobs of one state.
var stateIndexes = [...]struct {
	bucket bucket
	state  JobState
	key    func(*Job) []byte
}{
	{bucketReady, StatePending, readyKey},
	{bucketWait, StateRetryable, func(j *Job) []byte { return timedKey(j.NextAt, j.ID) }},
	{bucketLease, StateRunning, func(j *Job) []byte { return timedKey(j.LeaseUntil, j.ID) }},
}

// indexes looks for entries that no job has its place at.
func (c *checker) indexes() {
	c.extra(bucketKey, func(k, v []byte) {
		if len(v) != 8 {
			c.breach(bucketKey, k, "its value is not an id")
		} else if j := c.jobOf(bucketKey, k, tailID(v)); j != nil && !bytes.Equal(keyIndex(j.Key.Window, j.Key.String()), k) {
			c.breach(bucketKey, k, "job %d has the key %s", j.ID, j.Key)
		}
	})
	for _, x := range stateIndexes {
		c.extra(x.bucket, func(k, _ []byte) {
			j := c.jobOf(x.bucket, k, tailID(k))
			switch {
			case j == nil:
			case j.State != x.state:
				c.breach(x.bucket, k, "job %d is %s", j.ID, j.State)
			case !bytes.Equal(x.key(j), k):
				c.breach(x.bucket, k, "job %d stands elsewhere", j.ID)
			}
		})
		c.each(x.bucket, func(k, v []byte) {
			if len(v) > 0 {
				c.breach(x.bucket, k, "it has a value")
			}
		})
	}
}

// extra calls fn with the entries of an index, unless there are just as many
// as jobs that were found in it: then each is one of theirs.
func (c *checker) extra(id bucket, fn func(k, v []byte)) {
	entries := 0
	c.each(id, func(_, _ []byte) { entries++ })
	if entries != c.placed[id] {
		c.each(id, fn)
	}
}

// jobOf reads the job that an entry names; nil: it is told why there is none.
func (c *checker) jobOf(id bucket, key []byte, job uint64) *Job {
	j, err := c.tx.Job(job)
	switch {
	case isNotFound(err):
		c.breach(id, key, "there is no job %d", job)
	case err != nil:
		c.breach(id, key, "job %d cannot be read", job)
	}
	return j
}

// lanes wants names and numbers to lead to each other.
func (c *checker) lanes() {
	c.each(bucketLaneName, func(k, v []byte) {
		switch {
		case len(k) != 4 || !bytes.Contains(v, []byte{0}):
			c.breach(bucketLaneName, k, "it is not the number of a lane with a host and a source")
			return
		case !bytes.Equal(c.tx.get(bucketLane, v), k):
			c.breach(bucketLaneName, k, "its name %q leads to another lane or none", v)
		}
		c.see(laneSequence, uint64(binary.BigEndian.Uint32(k)))
	})
	c.each(bucketLane, func(k, v []byte) {
		if !bytes.Equal(c.tx.get(bucketLaneName, v), k) {
			c.breach(bucketLane, k, "the lane it leads to has another name or none")
		}
	})
}

// strayAttempts tells of attempts before the job that stands at key; nil: of
// all that are left.
func (c *checker) strayAttempts(w *walk, key []byte) {
	for ; w.k != nil && (key == nil || bytes.Compare(w.k, key) < 0); w.next() {
		if len(w.k) != 12 {
			c.breach(bucketAttempt, w.k, "its key is not a job's id and a generation")
		} else {
			c.breach(bucketAttempt, w.k, "there is no job %d", binary.BigEndian.Uint64(w.k))
		}
	}
}

// attemptsOf reads the attempts of the job that stands at key.
func (c *checker) attemptsOf(w *walk, key []byte) (list []Attempt, readable bool) {
	readable = true
	for ; bytes.HasPrefix(w.k, key); w.next() {
		a, err := decodeAttempt(w.k, w.v)
		if err != nil {
			c.unreadable(bucketAttempt, w.k, err)
			readable = false
			continue
		}
		c.written(bucketAttempt, w.k, w.v, a.encode())
		c.rules(bucketAttempt, w.k, attemptRules(&a)...)
		if !a.Page.IsZero() && c.tx.get(bucketPage, a.Page[:]) == nil {
			c.breach(bucketAttempt, w.k, "there is no page %s", a.Page)
		}
		list = append(list, a)
	}
	return list, readable
}

var outcomes = []string{OutcomeComplete, OutcomeRetry, OutcomeFail, OutcomeReleased, OutcomeRescued}

// attemptRules are what an attempt promises by itself.
func attemptRules(a *Attempt) []rule {
	return []rule{
		{!slices.Contains(outcomes, a.Outcome), "its outcome is unknown: " + a.Outcome},
		{a.Outcome == OutcomeComplete && a.Category != "", "it completed and has a category"},
		{a.Outcome == OutcomeRetry && a.Category == "", "it is to be tried again for no category"},
		{a.Category != "" && !a.Category.Known(), "its category is unknown: " + string(a.Category)},
		{(a.Outcome == OutcomeRetry) == a.NextAt.IsZero(), "its outcome and the time of the next attempt contradict each other"},
		{a.Kind != "" && a.Kind != KindReparse, "its kind is unknown: " + a.Kind},
		{a.Kind != KindReparse && !a.FetchedAt.IsZero(), "it fetched its page at another time than its own"},
		{a.Owner == "" && a.Kind != KindReparse, "it has no owner"},
		{a.Kind == KindReparse && (a.Outcome != OutcomeComplete || a.Owner != "" || a.BytesUp != 0 || a.BytesDown != 0), "it read a kept page, and did not complete, had an owner or moved bytes"},
		{a.Start.IsZero() || a.End.IsZero(), "it has no start or no end"},
		{a.BytesUp < 0 || a.BytesDown < 0, "it moved less than no bytes"},
	}
}

// history compares a job with what its attempts say of it.
func (c *checker) history(j *Job, list []Attempt) {
	if !c.unbroken(j, list) {
		return // sums over some of them say nothing
	}
	k := idKey(j.ID)
	if j.Forgotten == 0 { // else sums over the rest say nothing
		c.sums(j, k, list)
	}
	if j.Forgotten == 0 || len(list) > 0 {
		c.lastAttempt(j, k, list)
	}
	if j.Forgotten > 0 {
		return
	}
	claimed := func(at time.Time) bool { return at.Equal(j.FirstClaim) }
	isStart := slices.ContainsFunc(list, func(a Attempt) bool { return claimed(a.Start) })
	if !j.FirstClaim.IsZero() && !isStart && !claimed(j.ClaimedAt) {
		c.breach(bucketJob, k, "no attempt of it began at its first claim")
	}
	if !spentSince(j, list) {
		c.breach(bucketJob, k, "its tries, its rescues and the bytes it spent are not those of its newest attempts")
	}
}

// unbroken wants the attempts from the first that is not pruned up to the job's
// generation, whose own is not written while it runs. Their keys make them
// ordered and unique.
func (c *checker) unbroken(j *Job, list []Attempt) bool {
	ended := uint64(j.Generation)
	if j.State == StateRunning && ended > 0 {
		ended--
	}
	whole, next := true, uint64(j.Forgotten)+1
	gap := func(until uint64) {
		if next <= until {
			whole = false
			c.breach(bucketAttempt, attemptKey(j.ID, uint32(next)), "it is missing, the first of %d of job %d", until+1-next, j.ID)
		}
	}
	for i := range list {
		generation := uint64(list[i].Generation)
		if generation < next || generation > ended {
			whole = false
			c.breach(bucketAttempt, attemptKey(j.ID, list[i].Generation), "generation %d, job %d has ended %d and forgotten %d", generation, j.ID, ended, j.Forgotten)
			continue
		}
		gap(generation - 1)
		next = generation + 1
	}
	gap(ended)
	return whole
}

// sums compares what a job counts over its whole life.
func (c *checker) sums(j *Job, k []byte, list []Attempt) {
	var counted uint32
	var up, down int64
	rescued := false
	for i := range list {
		a := &list[i]
		if a.counts() {
			counted++
		}
		up, down = up+a.BytesUp, down+a.BytesDown
		rescued = rescued || a.Outcome == OutcomeRescued
	}
	if counted != j.Attempts {
		c.breach(bucketJob, k, "%d of its attempts count, it says %d", counted, j.Attempts)
	}
	if up != j.BytesUp || down != j.BytesDown {
		c.breach(bucketJob, k, "its attempts moved %d bytes up and %d down, it says %d and %d", up, down, j.BytesUp, j.BytesDown)
	}
	if rescued != j.Recovered {
		c.breach(bucketJob, k, "rescued by its attempts: %v, by itself: %v", rescued, j.Recovered)
	}
}

// spentSince reports whether some of the newest attempts, those since a person
// last retried the job, add up to what limits compare.
func spentSince(j *Job, list []Attempt) bool {
	var tries, rescues uint32
	var spent int64
	inRow := true // deaths, up to the newest attempt that counts
	for i := len(list); ; i-- {
		if tries == j.Tries && rescues == j.Rescues && spent == j.Spent {
			return true
		}
		if i == 0 {
			return false
		}
		a := &list[i-1]
		spent += a.BytesUp + a.BytesDown
		switch {
		case a.counts():
			inRow = false
			if !a.Free {
				tries++
			}
		case a.Outcome == OutcomeRescued && inRow:
			rescues++
		}
	}
}

// lastAttempt compares a job's state with the attempt that brought it there.
func (c *checker) lastAttempt(j *Job, k []byte, list []Attempt) {
	var last Attempt
	if len(list) > 0 {
		last = list[len(list)-1]
	}
	switch j.State {
	case StateComplete:
		if last.Outcome != OutcomeComplete || !last.End.Equal(j.Updated) {
			c.breach(bucketJob, k, "it is complete, and no attempt completed then")
		}
		if read := last.ParserVersion; read > 0 && read != j.Version {
			c.breach(bucketJob, k, "version %d of the rules read its page, it says %d", read, j.Version)
		}
	case StateRetryable:
		if last.Outcome != OutcomeRetry || last.Category != j.Category || last.Reason != j.Reason || !last.NextAt.Equal(j.NextAt) {
			c.breach(bucketJob, k, "it is retryable, and its last attempt does not say why and when")
		}
	case StateFailed:
		if last.Outcome != OutcomeFail && last.Outcome != OutcomeRescued && j.Category != CategoryCanceled {
			c.breach(bucketJob, k, "it failed, and neither its last attempt nor a person says so")
		}
	}
}
