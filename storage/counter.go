package storage

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Metrics counted per source. Those ending in "/" are followed by a category
// or a number.
const (
	MetricComplete      = "attempts/complete"        // attempts that committed
	MetricAttempts      = "attempts/counted"         // attempts that count against limits
	MetricReread        = "reread"                   // jobs that had failed and are complete by reading their page again
	MetricRecovered     = "recovered"                // leases taken back from dead or silent workers
	MetricAfterRecovery = "completed_after_recovery" // jobs that completed after such a recovery
	MetricDuplicates    = "duplicates_rejected"      // observations that changed nothing under a taken key
	MetricUnchanged     = "unchanged"                // later observations with equal content
	MetricStaleCommits  = "stale_commits"            // outcomes of workers that had lost their lease
	MetricBytesUp       = "bytes_up"                 // on the wire, all attempts
	MetricBytesDown     = "bytes_down"               //
	MetricBytesWasted   = "bytes_wasted"             // both ways, of attempts that did not complete; since schema 3
	MetricProxyUp       = "proxy_up/"                // + proxy: what of bytes_up went through it; since schema 3
	MetricProxyDown     = "proxy_down/"              //
	MetricObservations  = "observations"             // rows under this source now
	MetricQuarantine    = "quarantine"               // jobs that have a page in quarantine now
	MetricRetries       = "retries/"                 // + category: times it led to another attempt
	MetricFailures      = "failures/"                // + category: jobs now failed for it
	metricState         = "state/"                   // + state: jobs in it now
	metricRules         = "rules/"                   // + version: jobs now complete whose pages were read by these rules
	MetricDelivered     = "delivered/"               // + sink, under source "", as all to the blank line: deliveries that it has acknowledged
	MetricDeduplicated  = "deduplicated/"            // deliveries of what it had before
	MetricRedelivered   = "redelivered/"             // deliveries that have not arrived
	MetricAmbiguous     = "ambiguous/"               // deliveries that may have arrived without a word
	metricOutbox        = "outbox/"                  // events it waits for now
	metricDead          = "dead/"                    // events that were given up and wait for a person

	metricDuration = "duration/"  // + bucket: attempts whose duration fell into it
	metricPruned   = "pruned/"    // + metric: how much of it is of attempts that Prune deleted
	metricHostUp   = "host_up/"   // + host: only by day, under source ""
	metricHostDown = "host_down/" //
	metricDay      = "day/"       // + day, "/" and metric: how much of it came on that day (UTC); see daysKept
)

const (
	durationBucketsPer2x = 4   // a bucket is 2^(1/4) wide: percentiles within 19 %
	maxDurationBucket    = 200 // 2^50 ms; no attempt takes longer
)

const (
	day = 24 * time.Hour
	// trendDays is the length of the time that Trend compares with; a week
	// holds a weekend and a start of the week.
	trendDays = 7
	// daysKept is how long daily counts are kept: what Trend reads, and until a
	// month's bill of a proxy can be held against them.
	daysKept = 35 * day
)

// count moves a counter; it is written when the group commits.
func (tx *Tx) count(source, metric string, n int64) {
	if n == 0 {
		return
	}
	tx.deltas = append(tx.deltas, delta{source, metric, n})
	switch metric {
	case MetricAttempts, MetricDuplicates, MetricStaleCommits: // what Trend is asked for
		tx.deltas = append(tx.deltas, delta{source, dayMetric(tx.Now, metric), n})
	}
}

func dayName(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func dayMetric(t time.Time, metric string) string { return metricDay + dayName(t) + "/" + metric }

func (tx *Tx) flushCounters() error {
	for d, n := range tx.totals {
		if n == 0 {
			continue
		}
		key := counterKey(d.source, d.metric)
		old := int64(0)
		if v := tx.get(bucketCounter, key); len(v) == 8 {
			old = tailInt(v)
		}
		if err := tx.put(bucketCounter, key, idKey(uint64(old+n))); err != nil {
			return err
		}
	}
	return nil
}

// Counters are one source's counters by metric.
type Counters map[string]int64

// Counters reads a source's counters; a source never seen has none.
func (tx *Tx) Counters(source string) Counters { return tx.countersUnder(source, "") }

// countersUnder are the counters whose metric begins with a prefix, by the rest
// of it.
func (tx *Tx) countersUnder(source, metric string) Counters {
	prefix := counterKey(source, metric)
	counters := Counters{}
	c := tx.bucket(bucketCounter).Cursor()
	for k, v := c.Seek(prefix); strings.HasPrefix(string(k), string(prefix)); k, v = c.Next() {
		if len(v) == 8 {
			counters[string(k[len(prefix):])] = tailInt(v)
		}
	}
	return counters
}

// State is the number of jobs in a state.
func (c Counters) State(state JobState) int64 { return c[metricState+string(state)] }

func rulesMetric(version int) string { return metricRules + strconv.Itoa(version) }

// Completed is how many jobs the counted attempts have completed, in the end.
func (c Counters) Completed() int64 { return c[MetricComplete] + c[MetricReread] }

// RulesVersions are the versions of the rules that have read the pages of a source's
// complete jobs, in no order.
func (tx *Tx) RulesVersions(source string) (versions []int) {
	for text, jobs := range tx.countersUnder(source, metricRules) {
		if v, err := strconv.Atoi(text); err == nil && jobs > 0 {
			versions = append(versions, v)
		}
	}
	return versions
}

// CompleteBefore is the number of complete jobs whose pages were read by rules
// of a lower version.
func (c Counters) CompleteBefore(version int) int64 {
	n := int64(0)
	for name, jobs := range c {
		text, ok := strings.CutPrefix(name, metricRules)
		if v, err := strconv.Atoi(text); ok && err == nil && v < version {
			n += jobs
		}
	}
	return n
}

// Open is the number of jobs with work ahead.
func (c Counters) Open() int64 {
	return c.State(StatePending) + c.State(StateRunning) + c.State(StateRetryable)
}

// By are the counters of a metric that ends in "/", by category, zeros left out.
func (c Counters) By(metric string) map[Category]int64 {
	by := map[Category]int64{}
	for name, n := range c {
		if category, ok := strings.CutPrefix(name, metric); ok && n != 0 {
			by[Category(category)] = n
		}
	}
	return by
}

// ByDay is how much a metric that Trend knows grew on each day (UTC), by its
// date such as "2026-04-23"; of days that are not there it did not, or they are
// no longer kept.
func (c Counters) ByDay(metric string) map[string]int64 {
	by := map[string]int64{}
	for name, n := range c {
		if day, ok := strings.CutSuffix(name, "/"+metric); ok {
			if day, ok = strings.CutPrefix(day, metricDay); ok {
				by[day] = n
			}
		}
	}
	return by
}

// Trend is how much one of MetricAttempts, MetricComplete, MetricDuplicates,
// MetricStaleCommits, MetricBytesUp, MetricBytesDown and those of a sink's
// deliveries grew today and yesterday (UTC), and in the seven days before these.
func (c Counters) Trend(metric string, now time.Time) (recent, before int64) {
	for i := range 2 {
		recent += c[dayMetric(now.Add(-time.Duration(i)*day), metric)]
	}
	for i := range trendDays {
		before += c[dayMetric(now.Add(-time.Duration(2+i)*day), metric)]
	}
	return recent, before
}

// DurationQuantile estimates the q-quantile (0 to 1) of how long attempts
// took, from above and within 19 %; 0 when there were none.
func (c Counters) DurationQuantile(q float64) time.Duration {
	buckets := map[int]int64{}
	total, last := int64(0), 0
	for name, n := range c {
		if text, ok := strings.CutPrefix(name, metricDuration); ok && n > 0 {
			i, err := strconv.Atoi(text)
			if err != nil || i < 0 || i > maxDurationBucket {
				continue
			}
			buckets[i] += n
			total += n
			last = max(last, i)
		}
	}
	seen := int64(0)
	for i := 0; i <= last && total > 0; i++ {
		if seen += buckets[i]; seen > 0 && float64(seen) >= q*float64(total) {
			return time.Duration(math.Exp2(float64(i)/durationBucketsPer2x) * float64(time.Millisecond))
		}
	}
	return 0
}

// durationMetric names the bucket of a duration: bucket i holds what is over
// 2^((i-1)/4) and up to 2^(i/4) milliseconds.
func durationMetric(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	i := 0
	if ms > 1 {
		i = int(math.Ceil(math.Log2(ms) * durationBucketsPer2x))
	}
	return metricDuration + strconv.Itoa(i)
}

// tailInt reads a counter's value.
func tailInt(v []byte) int64 { return int64(tailID(v)) }
