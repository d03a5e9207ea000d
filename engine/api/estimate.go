package api

import (
	"math"
	"math/bits"

	"semel/engine/config"
	"semel/storage"
)

// Estimate is what more targets of a source will likely take, if they are like
// those before. Bytes are both ways, those of retries and failed jobs included.
// Where no job has completed nothing is known, and only Targets says something.
type Estimate struct {
	Targets int64 `json:"targets"`
	Jobs    int64 `json:"jobs"` // complete ones that it rests on
	Thin    bool  `json:"thin"` // they are few: it may be far off

	Bytes     int64  `json:"bytes,omitempty"`
	BytesLow  int64  `json:"bytes_low,omitempty"`  // if all were like the best of the last days; 0: there were too few days
	BytesHigh int64  `json:"bytes_high,omitempty"` // like the worst
	Cost      *Money `json:"cost,omitempty"`       // at today's prices of the proxies used so far; null: not known
	CostLow   *Money `json:"cost_low,omitempty"`
	CostHigh  *Money `json:"cost_high,omitempty"`
	Days      int64  `json:"days,omitempty"` // that the budgets of those proxies make of it when nothing else uses them; 0: there is none
}

const (
	// thinJobs is how many complete jobs an estimate should rest on: below it
	// one large page among ten moves it by a tenth.
	thinJobs = 30
	// dayJobs is how many a day needs to stand for itself in the range.
	dayJobs = 10
)

// newEstimate estimates from a source's history.
func newEstimate(c *config.Config, history storage.Counters, targets int64) *Estimate {
	bytes := history[storage.MetricBytesUp] + history[storage.MetricBytesDown]
	e := &Estimate{Targets: targets, Jobs: history.Completed()}
	e.Thin = e.Jobs < thinJobs
	if e.Jobs == 0 {
		return e
	}
	used := history.Proxies()
	e.Bytes = scaled(bytes, targets, e.Jobs)
	e.Days = budgetDays(c, used, targets, e.Jobs)
	spent := costOf(c, used)
	e.Cost = spent.times(targets, e.Jobs)
	if e.BytesLow, e.BytesHigh = dayRange(history, targets); e.BytesHigh > 0 {
		e.BytesLow, e.BytesHigh = min(e.BytesLow, e.Bytes), max(e.BytesHigh, e.Bytes)
		e.CostLow, e.CostHigh = spent.times(e.BytesLow, bytes), spent.times(e.BytesHigh, bytes)
	}
	return e
}

// dayRange is what as many targets would have taken on the best and on the worst
// of the days that are kept; zeros: fewer than two of them say something.
func dayRange(history storage.Counters, targets int64) (low, high int64) {
	up, down := history.ByDay(storage.MetricBytesUp), history.ByDay(storage.MetricBytesDown)
	days := 0
	for day, jobs := range history.ByDay(storage.MetricComplete) {
		if jobs < dayJobs {
			continue
		}
		n := scaled(up[day]+down[day], targets, jobs)
		if days++; days == 1 {
			low, high = n, n
		}
		low, high = min(low, n), max(high, n)
	}
	if days < 2 {
		return 0, 0
	}
	return low, high
}

// budgetDays is how many days the slowest budget makes of as many targets.
func budgetDays(c *config.Config, used map[string]storage.Traffic, targets, jobs int64) (days int64) {
	for name, n := range used {
		if p := c.Proxy(name); p != nil && p.Budget > 0 {
			days = max(days, scaled(scaled(n.Total(), targets, jobs), 1, p.Budget))
		}
	}
	return days
}

// scaled is n*by/over, rounded up; the largest number where it is over that.
func scaled(n, by, over int64) int64 {
	high, low := bits.Mul64(uint64(n), uint64(by))
	low, carry := bits.Add64(low, uint64(over-1), 0)
	high += carry
	if high >= uint64(over) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, uint64(over))
	return int64(min(quotient, math.MaxInt64))
}
