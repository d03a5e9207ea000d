package simulation

import (
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
)

// seed decides all that happens in a world.
type seed uint64

// draw gives a number that depends on the seed and on what it is drawn for, and
// on nothing else.
func (s seed) draw(what ...any) draw {
	h := xxhash.New()
	fmt.Fprintln(h, uint64(s), what)
	return draw(h.Sum64())
}

// draw is a number to be used once.
type draw uint64

func (d draw) below(n int) int { return int(uint64(d) % uint64(n)) }

func (d draw) oneIn(n int) bool { return d.below(n) == 0 }

// between gives a time from low up to, not including, high.
func (d draw) between(low, high time.Duration) time.Duration {
	return low + time.Duration(uint64(d)%uint64(high-low))
}

// oneOf draws out of a list.
func oneOf[T any](d draw, list []T) T { return list[d.below(len(list))] }
