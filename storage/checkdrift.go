package storage

import (
	"bytes"
	"slices"
)

// drifts wants each to be of a source, a version and a lane of that source, and its pages
// to be of jobs of that source and of attempts in that lane that these rules have read, as
// far as those are there: Prune may have forgotten them.
func (c *checker) drifts() {
	c.each(bucketDrift, func(k, v []byte) {
		d, err := decodeDrift(k, v)
		if err != nil {
			c.unreadable(bucketDrift, k, err)
			return
		}
		if d.Lane.Source == "" || d.Version == 0 || !bytes.Equal(d.key(), k) {
			c.breach(bucketDrift, k, "its key is not a source, a version of rules and a lane")
			return
		}
		if lane, err := c.tx.Lane(d.LaneID); err != nil || lane.Source != d.Lane.Source {
			c.breach(bucketDrift, k, "it is of source %q, its lane %d of %q", d.Lane.Source, d.LaneID, lane.Source)
		}
		c.written(bucketDrift, k, v, d.encode())
		c.rules(bucketDrift, k, driftRules(d)...)
		for i := range d.Fields {
			c.rules(bucketDrift, k, driftFieldRules(&d.Fields[i], len(d.Pages))...)
		}
		told := len(c.found)
		for i := 0; i < len(d.Pages) && told == len(c.found); i++ { // one page tells enough
			c.driftPage(k, d, &d.Pages[i])
		}
	})
}

// driftRules are what a record promises by itself.
func driftRules(d *Drift) []rule {
	named := map[string]bool{}
	for i := range d.Fields {
		named[d.Fields[i].Name] = true
	}
	return []rule{
		{len(d.Fields) == 0, "it has no field"},
		{len(named) < len(d.Fields), "it has a field twice"},
		{len(d.Pages) == 0 || len(d.Pages) > MaxDriftPages, "it has no page, or more than are kept"},
		{d.Paused.IsZero() && d.PausedFor != "" || !d.Paused.IsZero() && !named[d.PausedFor], "it is paused for no field of it, or has one for that and is not paused"},
	}
}

func driftFieldRules(f *DriftField, pages int) []rule {
	name := "field " + f.Name + ": "
	return []rule{
		{f.Past.Sum > uint64(f.Past.Pages)*uint64(Whole), name + "its pages have more than all of it"},
		{f.Past.Records < uint64(f.Past.Pages), name + "its pages had fewer records than one each"},
		{f.Run > pages, name + "more pages lack it than there are"},
		{(f.Run > 0) == f.Since.IsZero() || f.Run == 0 && f.Before != 0 || f.Before > Whole, name + "it has drifted since no time or from no share, or has these and has not"},
	}
}

// driftPage compares a page with its job and attempt.
func (c *checker) driftPage(k []byte, d *Drift, p *DriftPage) {
	odd := func(s Share) bool { return s > Whole && s != notRead }
	c.see(jobSequence, p.Job)
	c.rules(bucketDrift, k,
		rule{p.Job == 0 || p.Generation == 0 || p.Time.IsZero(), "a page of it is of no job, no attempt or no time"},
		rule{p.Records == 0, "a page of it has no records"},
		rule{slices.ContainsFunc(p.Shares, odd), "a page of it has more than all of a field"},
	)
	j, err := c.tx.Job(p.Job)
	if err != nil {
		return
	}
	if j.Key.Source != d.Lane.Source || p.Generation > j.Generation {
		c.breach(bucketDrift, k, "a page of it is of attempt %d of job %d, which is of source %q and had %d", p.Generation, p.Job, j.Key.Source, j.Generation)
		return
	}
	a, err := c.tx.attempt(p.Job, p.Generation)
	if err != nil {
		return
	}
	if a.Outcome != OutcomeFail && a.Outcome != OutcomeComplete || a.ParserVersion != d.Version {
		c.breach(bucketDrift, k, "attempt %d of job %d read no page by version %d of the rules", p.Generation, p.Job, d.Version)
	}
	if a.Lane != 0 && a.Lane != d.LaneID {
		c.breach(bucketDrift, k, "attempt %d of job %d was in lane %d", p.Generation, p.Job, a.Lane)
	}
}
