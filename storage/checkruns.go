package storage

import (
	"bytes"
	"encoding/json"
	"slices"
)

// runCounts are what a run should say of its jobs.
type runCounts struct{ jobs, open, failed uint64 }

// recountRun counts a job for its run.
func (c *checker) recountRun(j *Job) {
	if j.Run == 0 {
		return
	}
	r := Run{Jobs: 1}
	r.countAs(j.State, 1)
	n := c.runs[j.Run]
	c.runs[j.Run] = runCounts{n.jobs + r.Jobs, n.open + r.Open, n.failed + r.Failed}
}

// runRecords wants every run to be found by its key, and to count its jobs.
func (c *checker) runRecords() {
	keys := 0
	c.each(bucketRun, func(k, v []byte) {
		if len(k) != 8 || tailID(k) == 0 {
			c.breach(bucketRun, k, "its key is not a number from 1")
			return
		}
		r, err := decodeRun(tailID(k), v)
		if err != nil {
			c.unreadable(bucketRun, k, err)
			return
		}
		c.see(runSequence, r.ID)
		c.written(bucketRun, k, v, r.encode())
		c.rules(bucketRun, k, runRules(r, c.runs[r.ID])...)
		c.rules(bucketRun, k, heldRules(r, c.tx.runStaged(r))...)
		delete(c.runs, r.ID)
		if bytes.Equal(c.tx.get(bucketRunKey, []byte(r.Key.String())), k) {
			keys++
		} else {
			c.breach(bucketRun, k, "its key %s is missing in bucket runkey, or leads elsewhere", r.Key)
		}
	})
	for id, n := range c.runs {
		c.breach(bucketRun, idKey(id), "it is missing, and %d jobs are of it", n.jobs)
	}
	c.runKeys(keys)
}

func runRules(r *Run, n runCounts) []rule {
	return []rule{
		{!slices.Contains(RunKinds, r.Kind), "its kind is unknown: " + string(r.Kind)},
		{r.Key.Source == "", "it has no source"},
		{r.Key.Window.IsZero() == (r.Key.Import == ""), "it has neither a window nor an import, or both"},
		{r.Key.Window.Nanosecond() != 0, "its window does not begin with a second"},
		{!r.Finished.IsZero() && !r.Offered, "it is finished and its targets were never offered"},
		{r.Offered && !r.Listing && r.Open == 0 && r.Finished.IsZero(), "nothing of it has work ahead, and it is not finished"},
		{runCounts{r.Jobs, r.Open, r.Failed} != n, "its counts are not those of its jobs"},
		{r.Revision > 0 && r.Replaced.IsZero(), "its rows have changed and were never replaced"},
		{len(r.Told) > maxTold || uint64(len(r.Told)) > r.Revision, "its rows are told of more often than they have changed"},
	}
}

// runKeys looks for keys that no run has, unless there are just as many as
// runs that were found by theirs.
func (c *checker) runKeys(found int) {
	c.each(bucketRunKey, func(_, _ []byte) { found-- })
	if found == 0 {
		return
	}
	c.each(bucketRunKey, func(k, v []byte) {
		if r, err := c.tx.Run(tailID(v)); len(v) != 8 || err != nil || r.Key.String() != string(k) {
			c.breach(bucketRunKey, k, "it leads to no run of this key")
		}
	})
}

// runEvent wants an event to say what its id says, and its run to be there and
// finished.
func (c *checker) runEvent(k []byte, e *Event) {
	r := c.runTold(k, e)
	if r == nil {
		return
	}
	c.rules(bucketEvent, k,
		rule{e.ID != eventID(e.Type, e.Key), "its id is not that of what it tells"},
		rule{!json.Valid(e.Data), "its data is not JSON"},
		rule{!r.Finished.Equal(e.Timestamp), "its run was finished at another time"},
	)
}

// runTold reads the run that an event is about; nil: it is told why there is none.
func (c *checker) runTold(k []byte, e *Event) *Run {
	key, err := ParseRunKey(e.Key)
	if err != nil {
		c.breach(bucketEvent, k, "it names %q, which is not the key of a run", e.Key)
		return nil
	}
	r, err := c.tx.RunByKey(key)
	if err != nil {
		c.breach(bucketEvent, k, "its run: %v", err)
		return nil
	}
	return r
}
