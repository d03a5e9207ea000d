package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"semel/engine"
	"semel/engine/config"
	"semel/storage"
)

const (
	// leaseShare of the lease is how long an attempt may take before somebody
	// should know. An attempt that ends within its lease can commit though not
	// one renewal came through (a disk that stalls, a machine that sleeps); of
	// that reserve a third is left here, as long as one renewal takes to come.
	// The percentile is an estimate from above, by at most 19 %.
	leaseShare = 2. / 3
	// trendLeast is how many in two days are worth a word: one sleep of a
	// laptop costs a few commits and is no trend.
	trendLeast = 5
	// trendShare of the attempts is where waste begins to be felt.
	trendShare = 0.01
	// trendRise over the week before is rising, and no noise between days.
	trendRise = 2
	// bytesRise is what pages of one site do not do to each other by chance: a
	// job that takes so many times the bytes is a fault or another site.
	bytesRise = 3
)

// warnings are what the owner of a source should look at, each with its likely
// cause and what to do.
func (l *Local) warnings(name string, c storage.Counters, now time.Time) []string {
	src := l.Config.Source(name)
	var list []string
	for _, text := range []string{
		orphanWarning(name, src, c),
		oldRulesWarning(src, c),
		leaseWarning(src, l.Config.Engine.Lease, c.DurationQuantile(0.99)),
		staleWarning(trendOf(c, storage.MetricStaleCommits, now)),
		duplicateWarning(src, trendOf(c, storage.MetricDuplicates, now)),
		bytesWarning(c, now),
	} {
		if text != "" {
			list = append(list, "source "+name+": "+text)
		}
	}
	return list
}

// driftWarnings are for fields that pages have less often than they did, and for a pause
// for that: one for a source.
func (l *Local) driftWarnings(tx *storage.Tx, src *config.Source) ([]string, error) {
	if src == nil || src.Rules == nil || src.Drift.Fall == 0 {
		return nil, nil
	}
	texts, err := engine.DriftTexts(tx, src.Name, src.Rules.Version())
	if err != nil || len(texts) == 0 {
		return nil, err
	}
	pause, err := engine.DriftPause(tx, src.Name, src.Rules.Version(), src.Drift)
	if err != nil {
		return nil, err
	}
	head := "source " + src.Name
	if pause != nil {
		head += fmt.Sprintf(" pauses since %s, and none of its jobs is run", pause.Paused.UTC().Format(time.RFC3339))
	}
	return []string{fmt.Sprintf("%s: %s; %s", head, strings.Join(texts, "; "), l.driftAdvice(src.Name))}, nil
}

func (l *Local) driftAdvice(source string) string {
	return engine.DriftAdvice(source, Bodies(l.Config))
}

// releaseWarnings are for pages in quarantine that today's rules have not read.
func (l *Local) releaseWarnings(tx *storage.Tx) (list []string, err error) {
	pages, err := engine.Releasable(tx, readers(l.Config))
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		list = append(list, fmt.Sprintf("source %s: pages in quarantine by older rules: %d; %s", name, pages[name], engine.ReleaseAdvice(name)))
	}
	return list, err
}

// readers are the sources of a config as far as reading their pages again goes.
func readers(c *config.Config) (sources []engine.Source) {
	for i := range c.Sources {
		src := &c.Sources[i]
		if src.Rules == nil {
			continue
		}
		reader := engine.Source{Source: src.Source, Rules: src.Rules}
		for _, step := range src.Steps {
			reader.Steps = append(reader.Steps, engine.Step{Name: step.Name})
		}
		sources = append(sources, reader)
	}
	return sources
}

// orphanWarning is for work of a source that the config no longer has (nil).
func orphanWarning(name string, src *config.Source, c storage.Counters) string {
	open := c.Open()
	if src != nil || open == 0 {
		return ""
	}
	return fmt.Sprintf("%d jobs wait, but the source is not in the config: they are kept and not run; put it back, or cancel those that semel jobs --source %s lists", open, name)
}

// oldRulesWarning is for complete jobs that no rules of the present version have
// seen. Where versions stand side by side they are as they should be.
func oldRulesWarning(src *config.Source, c storage.Counters) string {
	if src == nil || src.Identity.Parser || src.Rules == nil {
		return ""
	}
	n := c.CompleteBefore(src.Rules.Version())
	if n == 0 {
		return ""
	}
	text := fmt.Sprintf("%d complete jobs keep the records of rules before version %d: %s", n, src.Rules.Version(), engine.OldRulesAdvice(src.Name))
	if c[storage.MetricQuarantine] > 0 {
		text += "; those whose page is in quarantine need rules that fit it"
	}
	return text
}

// leaseWarning is for attempts that come near the lease, and says which of
// three causes it is. Leases are renewed at a third of their length, so that a
// long attempt is no fault by itself; but each renewal it needs is one that can
// fail, and then the job is done a second time.
func leaseWarning(src *config.Source, lease, p99 time.Duration) string {
	if float64(p99) < leaseShare*float64(lease) {
		return ""
	}
	head := fmt.Sprintf("one attempt in a hundred takes up to %s, near or over the lease of %s", p99.Round(time.Millisecond), lease)
	switch {
	case src == nil:
		return head
	case src.Timeout > lease:
		return head + fmt.Sprintf(": its timeout of %s allows that, and only renewals keep such attempts: raise engine.lease over the timeout, and they need none", src.Timeout)
	case float64(p99) > 1.19*float64(src.Timeout):
		return head + fmt.Sprintf(", and over its timeout of %s: the machine slept or stalled, or pages take long to parse: look at its load and its disk", src.Timeout)
	}
	return head + ": the site or the exits are slow: raise engine.lease, or lower the source's timeout"
}

// trend is how often something happened today and yesterday (UTC), and how
// often for each attempt then and in the week before.
type trend struct {
	n              int64
	recent, before float64
}

func trendOf(c storage.Counters, metric string, now time.Time) trend {
	n, before := c.Trend(metric, now)
	attempts, attemptsBefore := c.Trend(storage.MetricAttempts, now)
	// Outcomes that were dropped are not among the attempts: there may be none.
	return trend{n, float64(n) / float64(max(attempts, 1)), float64(before) / float64(max(attemptsBefore, 1))}
}

// felt reports whether it happens often enough to matter.
func (t trend) felt() bool { return t.n >= trendLeast && t.recent >= trendShare }

func (t trend) rising() bool { return t.felt() && t.recent >= trendRise*t.before }

// staleWarning is for outcomes that came too late. Each of them is work done
// twice, so they are told while they are many, rising or not.
func staleWarning(t trend) string {
	if !t.felt() {
		return ""
	}
	word := "as before"
	if t.rising() {
		word = "rising"
	}
	return fmt.Sprintf("%d outcomes since yesterday came after their lease had ended and were dropped (%.1f for 100 attempts, %.1f in the week before: %s): "+
		"the machine sleeps or stalls, or its disk is too slow for renewals: keep it awake, lower engine.workers, or raise engine.lease",
		t.n, 100*t.recent, 100*t.before, word)
}

// duplicateWarning is for rows that were rejected because their key was taken.
// A steady number of them can be meant (write = "insert", pages that overlap),
// so only a rise is told.
func duplicateWarning(src *config.Source, t trend) string {
	if !t.rising() {
		return ""
	}
	cause := "two targets bring rows of one key, a page holds a row twice, or past windows were collected again: look at the source's key and parser.key"
	if src != nil && src.Write == config.WriteInsert {
		cause = `with write = "insert" only the first window of a key stays: if later ones should count, use write = "upsert"`
	}
	return fmt.Sprintf("%d rows since yesterday were rejected as duplicates (%.1f for 100 attempts, %.1f in the week before: rising): %s", t.n, 100*t.recent, 100*t.before, cause)
}

// aheadWarnings are those of sources by their newest windows.
func (l *Local) aheadWarnings(newest map[string]time.Time, now time.Time) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		if text := aheadWarning(l.Config.Source(name), newest[name], now); text != "" {
			list = append(list, "source "+name+": "+text)
		}
	}
	return list
}

// aheadWarning is for a newest window that is yet to come, where later windows win.
// A tick may be noticed early by a clock that is a little behind, and a date that is
// the day of one zone already may be to come in UTC.
func aheadWarning(src *config.Source, newest, now time.Time) string {
	if src == nil || src.Write != config.WriteUpsert {
		return ""
	}
	latest := now.AddDate(0, 0, 1)
	if src.Schedule != nil {
		latest = src.Schedule.Next(now)
	}
	if !newest.After(latest) {
		return ""
	}
	return fmt.Sprintf("its newest window begins at %s, in the future: until then its rows keep out those of all windows before it. A slip in --window, or a clock that ran ahead? Cancel its jobs that still wait (semel runs --source %s); rows that it has brought stay until a later window brings others",
		newest.UTC().Format(time.RFC3339), src.Name)
}

// bytesWarning is for jobs that take more bytes than they did, which somebody
// pays for. Where nothing completes there is nothing to compare.
func bytesWarning(c storage.Counters, now time.Time) string {
	jobs, jobsBefore := c.Trend(storage.MetricComplete, now)
	if jobs < dayJobs || jobsBefore < dayJobs {
		return ""
	}
	each := func(metrics ...string) (recent, before float64) {
		for _, metric := range metrics {
			n, nBefore := c.Trend(metric, now)
			recent += float64(n) / float64(jobs)
			before += float64(nBefore) / float64(jobsBefore)
		}
		return recent, before
	}
	bytes, bytesBefore := each(storage.MetricBytesUp, storage.MetricBytesDown)
	if bytes < bytesRise*bytesBefore {
		return ""
	}
	cause := "pages are larger, or other ones: look at one with semel try"
	if attempts, attemptsBefore := each(storage.MetricAttempts); attempts >= trendRise*attemptsBefore {
		cause = fmt.Sprintf("jobs take %.1f attempts, before %.1f: look at the retries by category", attempts, attemptsBefore)
	}
	return fmt.Sprintf("a complete job takes %.0f bytes since yesterday, in the week before %.0f: %s", bytes, bytesBefore, cause)
}
