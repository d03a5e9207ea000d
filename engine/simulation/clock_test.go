package simulation

import (
	"sync/atomic"
	"time"
)

// clock is what a process reads: the bubble's time and the jumps so far.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Round(0).Add(time.Duration(c.offset.Load())) }

func (c *clock) jump(d time.Duration) { c.offset.Add(int64(d)) }

// until is a time about d from now, in a nanosecond that nothing else has:
// two things at one instant would happen in the order that the scheduler
// likes. What it is for must be said, and be unique in its world.
func (s seed) until(d time.Duration, what ...any) time.Duration {
	now := time.Now()
	const unit = time.Millisecond
	end := now.Add(d).Truncate(unit).Add(s.draw("nanosecond", what).between(1, unit))
	if !end.After(now) {
		end = end.Add(unit)
	}
	return end.Sub(now)
}
