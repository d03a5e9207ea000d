package engine

import "time"

// breaker stops a stream of failures that have one cause. It opens after some
// failures in a row and lets nothing through; when its time is over one at a
// time may try. If that one fails it stays open for twice as long, up to a
// limit; the first success closes it.
//
// Failures and successes are judged by when they began: what was under way when
// it opened says nothing new.
type breaker struct {
	breakerPolicy
	weight int       // of the failures since the last success
	opened int       // times since the last success; 0: it is closed
	since  time.Time // when it opened first; zero: it is closed
	last   time.Time // when it opened last
	until  time.Time
}

// breakerPolicy says when a breaker opens, and for how long.
type breakerPolicy struct {
	threshold int // weight of failures in a row
	base, max time.Duration
}

// failed counts a failure. Its weight matters until the breaker has opened.
func (b *breaker) failed(weight int, began, now time.Time) {
	if b.opened > 0 && began.Before(b.last) {
		return
	}
	if b.weight += weight; b.weight < b.threshold {
		return
	}
	if b.opened == 0 {
		b.since = now
	}
	wait := b.max
	if b.opened < 20 { // no shift beyond reason
		wait = min(wait, b.base<<b.opened)
	}
	b.last, b.until = now, now.Add(wait)
	b.opened++
}

// worked notes a success.
func (b *breaker) worked(began time.Time) {
	if b.opened == 0 || !began.Before(b.last) {
		*b = breaker{breakerPolicy: b.breakerPolicy}
	}
}

// slots is how many may try now, where so many are trying.
func (b *breaker) slots(now time.Time, trying int) int {
	switch {
	case b.opened == 0:
		return unlimited
	case now.Before(b.until):
		return 0
	}
	return max(0, 1-trying)
}

// openFor is how long there has been no success; 0: it is closed.
func (b *breaker) openFor(now time.Time) time.Duration {
	if b.opened == 0 {
		return 0
	}
	return now.Sub(b.since)
}

// ceiling is a limit of concurrency that adapts: halved when the other side
// says that it is too much, raised by one for as many successes as it lets
// through at once. The zero ceiling is no limit.
type ceiling struct {
	limit float64   // 0: none
	cut   time.Time // when it was lowered last
}

// lower halves what was let through. Of many that were told the same at once
// only the first counts.
func (c *ceiling) lower(underWay int, began, now time.Time) {
	if began.Before(c.cut) {
		return
	}
	c.limit, c.cut = max(1, float64(underWay)/2), now
}

// raise notes a success; a limit that has reached top is lifted.
func (c *ceiling) raise(top int) {
	if c.limit == 0 {
		return
	}
	if c.limit += 1 / c.limit; c.limit >= float64(top) {
		c.limit = 0
	}
}

// value is the limit now.
func (c *ceiling) value() int {
	if c.limit == 0 {
		return unlimited
	}
	return int(c.limit)
}

// unlimited is more than there are workers.
const unlimited = 1 << 30
