package storage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// recount adds to what a counter should say.
func (c *checker) recount(source, metric string, n int64) {
	if n != 0 {
		c.counts[delta{source: source, metric: metric}] += n
	}
}

// recountJob counts a job with its attempts as the writers do.
func (c *checker) recountJob(j *Job, list []Attempt) {
	source := j.Key.Source
	c.recount(source, metricState+string(j.State), 1)
	c.recountRun(j)
	switch j.State {
	case StateFailed:
		c.recount(source, MetricFailures+string(j.Category), 1)
	case StateComplete:
		c.recount(source, rulesMetric(j.Version), 1)
	}
	j.tally(list, func(metric string, n int64) { c.recount(source, metric, n) })
	for i := range list {
		c.recountTraffic(j, &list[i])
	}
}

// recountTraffic counts what an attempt moved, unless it is older than the
// counters of that.
func (c *checker) recountTraffic(j *Job, a *Attempt) {
	if a.Lane == 0 {
		return
	}
	lane, err := c.tx.Lane(a.Lane)
	if err != nil || lane.Source != j.Key.Source {
		if a.Lane != j.Lane { // that one is told with the job
			c.breach(bucketAttempt, attemptKey(a.Job, a.Generation), "its job is of source %q, its lane %d of %q", j.Key.Source, a.Lane, lane.Source)
		}
		return
	}
	a.traffic(lane, func(source, metric string, n int64) {
		if !dropped(metric, c.daysFrom) {
			c.recount(source, metric, n)
		}
	})
}

// tally counts a job's attempts again as they were when they were saved: all
// of them, or all that were not pruned. Durations are counted together.
func (j *Job) tally(attempts []Attempt, count func(metric string, n int64)) {
	rescued := j.RescueForgotten
	for i := range attempts {
		a := &attempts[i]
		if a.Kind == KindReparse {
			continue
		}
		count(MetricBytesUp, a.BytesUp)
		count(MetricBytesDown, a.BytesDown)
		if a.counts() {
			count(MetricAttempts, 1)
			count(metricDuration, 1)
		}
		switch a.Outcome {
		case OutcomeRescued:
			rescued = true
			count(MetricRecovered, 1)
		case OutcomeRetry:
			count(MetricRetries+string(a.Category), 1)
		case OutcomeComplete:
			count(MetricComplete, 1)
			if rescued {
				count(MetricAfterRecovery, 1)
			}
		}
	}
}

// recountable reports whether records tell what a counter should say.
// Duplicates, unchanged records and stale commits leave nothing behind.
func recountable(metric string) bool {
	switch metric {
	case MetricComplete, MetricAttempts, MetricRecovered, MetricAfterRecovery, MetricBytesUp, MetricBytesDown, MetricBytesWasted, MetricObservations, MetricQuarantine:
		return true
	}
	for _, prefix := range []string{MetricRetries, MetricFailures, metricState, metricRules, MetricProxyUp, MetricProxyDown, metricOutbox, metricDead} {
		if strings.HasPrefix(metric, prefix) {
			return true
		}
	}
	return recountableByDay(metric)
}

// recountableByDay is recountable of daily counts. Attempts by day are not: of
// those that were pruned before schema 3 nobody knows the day.
func recountableByDay(metric string) bool {
	rest, daily := strings.CutPrefix(metric, metricDay)
	_, metric, _ = strings.Cut(rest, "/")
	switch kind, _, named := strings.Cut(metric, "/"); {
	case !daily:
		return false
	case named:
		return metric == MetricComplete || slices.Contains([]string{MetricProxyUp, MetricProxyDown, metricHostUp, metricHostDown}, kind+"/")
	default:
		return metric == MetricBytesUp || metric == MetricBytesDown
	}
}

// counters compares the counters with the recount. Of durations only the sum is
// known: their bucket was chosen before they were rounded to microseconds.
func (c *checker) counters() {
	c.each(bucketCounter, func(k, v []byte) {
		source, metric, ok := bytes.Cut(k, []byte{0})
		if !ok || len(v) != 8 {
			c.breach(bucketCounter, k, "it is not a counter of a source")
			return
		}
		d, n := delta{source: string(source), metric: string(metric)}, tailInt(v)
		if d.metric == metricPruned+metricDuration {
			c.recount(d.source, metricDuration, n)
			return
		}
		pruned := tailInt(c.tx.get(bucketCounter, counterKey(d.source, metricPruned+d.metric)))
		switch {
		case n < 0:
			c.breach(bucketCounter, k, "it says %d", n)
		case dropped(d.metric, c.daysFrom): // of a clock that was set back, or Prune is about to delete it
		case recountable(d.metric) && n != c.counts[d]+pruned:
			c.breach(bucketCounter, k, "it says %d, a recount gives %d", n, c.counts[d]+pruned)
		case strings.HasPrefix(d.metric, metricDuration):
			c.recount(d.source, metricDuration, -n)
			return
		}
		delete(c.counts, d)
	})
	c.uncounted()
}

// uncounted tells of what no counter has counted.
func (c *checker) uncounted() {
	left := slices.SortedFunc(maps.Keys(c.counts), func(a, b delta) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.metric, b.metric))
	})
	for _, d := range left {
		switch n := c.counts[d]; {
		case n == 0:
		case d.metric == metricDuration:
			c.breach(bucketCounter, counterKey(d.source, d.metric), "the counters under it hold %+d attempts against a recount", -n)
		default:
			c.breach(bucketCounter, counterKey(d.source, d.metric), "it is missing, a recount gives %d", n)
		}
	}
}

// meta wants the sequences to be past every id in use: one that fell back would
// hand out an id a second time.
func (c *checker) meta() {
	if v := c.tx.get(bucketMeta, schemaKey); !bytes.Equal(v, appendU32(nil, schema)) {
		c.breach(bucketMeta, schemaKey, "it is not %d, the version of this layout", schema)
	}
	if from := c.tx.daysFrom(); from != "" && !isDay(from) {
		c.breach(bucketMeta, daysKey, "it is not a day")
	}
	for s, name := range sequenceNames {
		v := c.tx.get(bucketMeta, []byte(name))
		switch {
		case v != nil && len(v) != 8:
			c.breach(bucketMeta, []byte(name), "it is not a number")
		case tailID(v) < c.largest[s]:
			c.breach(bucketMeta, []byte(name), "it says %d, and %d is in use", tailID(v), c.largest[s])
		}
	}
}

func (c *checker) sources() {
	c.each(bucketSource, func(k, v []byte) {
		s, err := c.tx.Source(string(k))
		if err != nil {
			c.unreadable(bucketSource, k, err)
			return
		}
		if anew, err := json.Marshal(s); err == nil {
			c.same(bucketSource, k, v, anew)
		}
	})
}

func (c *checker) hosts() {
	c.each(bucketHost, func(k, v []byte) {
		if len(v) != 8 {
			c.breach(bucketHost, k, "it is not a time")
		}
	})
}

func (c *checker) robots() {
	c.each(bucketRobots, func(k, _ []byte) {
		if _, _, err := c.tx.Robots(string(k)); err != nil {
			c.unreadable(bucketRobots, k, err)
		}
	})
}
