package simulation

import (
	"sync"
	"time"
)

// clock is what a process reads: the bubble's time and the jumps so far.
type clock struct {
	mu     sync.Mutex
	offset time.Duration
	most   time.Time // before the jumps back
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Round(0).Add(c.offset)
}

func (c *clock) jump(d time.Duration) {
	most := c.latest()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most, c.offset = most, c.offset+d
}

// latest is the latest time that it has ever shown.
func (c *clock) latest() time.Time {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most.After(now) {
		return c.most
	}
	return now
}

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
