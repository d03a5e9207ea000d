package engine

import (
	"math"
	"time"

	"github.com/cespare/xxhash/v2"

	"semel/storage"
)

// RetryPolicy says how attempts that failed with one category are repeated.
type RetryPolicy struct {
	Attempts int           // attempts that may end in the category before the job fails; 0: only the job's own limit counts
	Base     time.Duration // first upper bound of the delay; doubled each time
	Max      time.Duration // cap of that bound
}

// never is the policy of a category that repeating does not help.
var never = RetryPolicy{Attempts: 1}

// defaultPolicy is the policy of a category; one that is not named here is
// never repeated.
func defaultPolicy(c storage.Category) RetryPolicy {
	switch c {
	case storage.CategoryProxyLimited:
		return RetryPolicy{Base: 5 * time.Second, Max: 2 * time.Minute}
	case storage.CategoryProxyUnreachable:
		return RetryPolicy{Base: time.Second, Max: time.Minute}
	case storage.CategoryExitUnavailable:
		return RetryPolicy{Attempts: 12, Base: 10 * time.Second, Max: 10 * time.Minute}
	case storage.CategorySessionLost:
		return RetryPolicy{Attempts: 4, Base: time.Second, Max: 2 * time.Second}
	case storage.CategoryExitConnect, storage.CategoryConnectTimeout:
		return RetryPolicy{Base: 2 * time.Second, Max: 2 * time.Minute}
	case storage.CategoryDNS:
		return RetryPolicy{Attempts: 3, Base: time.Minute, Max: 10 * time.Minute}
	case storage.CategoryTLS:
		return RetryPolicy{Base: 5 * time.Second, Max: time.Minute}
	case storage.CategoryReadTimeout:
		return RetryPolicy{Base: 5 * time.Second, Max: 5 * time.Minute}
	case storage.CategoryBodyTruncated:
		return RetryPolicy{Base: time.Second, Max: time.Minute}
	case storage.CategoryThrottled:
		return RetryPolicy{Base: 30 * time.Second, Max: 30 * time.Minute}
	case storage.CategoryBlocked:
		return RetryPolicy{Attempts: 2, Base: 30 * time.Minute, Max: 24 * time.Hour}
	case storage.CategoryServerError:
		return RetryPolicy{Base: 10 * time.Second, Max: 15 * time.Minute}
	case storage.CategoryRobotsUnavailable:
		return RetryPolicy{Base: 10 * time.Minute, Max: 24 * time.Hour}
	case storage.CategoryContentType:
		return RetryPolicy{Attempts: 2, Base: 5 * time.Minute, Max: 5 * time.Minute}
	case storage.CategoryInternal:
		return RetryPolicy{Attempts: 3, Base: 10 * time.Second, Max: time.Minute}
	default:
		return never
	}
}

// policy is the default of a category with what the source overrides.
func (s *Source) policy(c storage.Category) RetryPolicy {
	p, own := defaultPolicy(c), s.Retry[c]
	if own.Attempts != 0 {
		p.Attempts = own.Attempts
	}
	if own.Base != 0 {
		p.Base = own.Base
	}
	if own.Max != 0 {
		p.Max = own.Max
	}
	return p
}

// leastDelay is what no jitter goes below: a site that has blocked us is left
// alone for a while. A base of the source's own says otherwise.
func (s *Source) leastDelay(c storage.Category) time.Duration {
	if c == storage.CategoryBlocked && s.Retry[c].Base == 0 {
		return 15 * time.Minute
	}
	return 0
}

// delay is the wait after the n-th failure (from 1) of a category: full
// jitter, so anything from nothing to min(Max, Base·2^(n-1)). It is drawn from
// the job's key and attempt, so that a story can be replayed to the letter.
func (p RetryPolicy) delay(n int, key string, generation uint32) time.Duration {
	bound := float64(p.Base) * math.Exp2(float64(n-1))
	if limit := float64(p.Max); p.Max > 0 && bound > limit {
		bound = limit
	}
	return time.Duration(bound * fraction(key, generation))
}

// fraction is a number from 0 to 1 that key and generation decide.
func fraction(key string, generation uint32) float64 {
	h := xxhash.New()
	_, _ = h.WriteString(key)
	_, _ = h.Write([]byte{byte(generation >> 24), byte(generation >> 16), byte(generation >> 8), byte(generation)})
	return float64(h.Sum64()>>11) / (1 << 53)
}
