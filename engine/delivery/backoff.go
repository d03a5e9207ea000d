package delivery

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	firstDelay = time.Second // after the first delivery that failed; doubled each time
	maxDelay   = time.Hour   // nothing waits longer for its next delivery
)

// delay is the wait after the n-th delivery of an event that failed, from 1. One
// half is fixed, the other drawn from the event's id and n: the events of an
// outage do not all come back at once, and a story can be replayed to the letter.
func delay(id string, n uint32) time.Duration {
	bound := maxDelay
	if n <= 12 { // 2^12 s are more than an hour
		bound = min(firstDelay<<(max(n, 1)-1), maxDelay)
	}
	half := float64(bound) / 2
	return time.Duration(half + half*fraction(id, n))
}

// fraction is a number from 0 to 1 that an id and n decide.
func fraction(id string, n uint32) float64 {
	h := xxhash.New()
	_, _ = h.WriteString(id)
	_, _ = h.Write(binary.BigEndian.AppendUint32(nil, n))
	return float64(h.Sum64()>>11) / math.Exp2(53)
}
