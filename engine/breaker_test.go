package engine

import (
	"testing"
	"time"
)

// A breaker by a story, one step a second: f and w are a failure and a success
// that begin then, o and k are one of each that began before it all, and a digit
// is how many may try.
func TestBreaker(t *testing.T) {
	policy := breakerPolicy{threshold: 3, base: 2 * time.Second, max: 5 * time.Second}
	for _, test := range []struct{ name, story string }{
		{"closed", "9"},
		{"below the threshold", "ff9"},
		{"opens", "fff0"},
		{"a success between", "ffwff9"},
		{"one at a time when its time is over", "fff.1"},
		{"a failed probe doubles", "fff.f...1"},
		{"is open meanwhile", "fff.f..0"},
		{"up to the limit", "fff.f....f.....f....1"},
		{"a success closes", "fff.w9"},
		{"and forgets", "fff.wff9"},
		{"a late failure says nothing", "fffo1"},
		{"a late success says nothing", "fff.k1"},
		{"early ones count", "ooo0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, begin := breaker{breakerPolicy: policy}, time.Now()
			now := begin.Add(time.Minute)
			for i, step := range test.story {
				switch step {
				case 'f':
					b.failed(1, now, now)
				case 'o':
					b.failed(1, begin, now)
				case 'w':
					b.worked(now)
				case 'k':
					b.worked(begin)
				case '.':
				default:
					if got := min(b.slots(now, 0), 9); got != int(step-'0') {
						t.Errorf("step %d: %d may try, want %c", i, got, step)
					}
				}
				now = now.Add(time.Second)
			}
			if b.opened > 0 && b.slots(now.Add(time.Hour), 1) != 0 {
				t.Error("a second one may try beside the probe")
			}
		})
	}
}

func TestBreakerWeights(t *testing.T) {
	b, now := breaker{breakerPolicy: outagePolicy}, time.Now()
	b.failed(weightDial, now, now)
	b.failed(weightDial, now, now)
	if b.opened > 0 {
		t.Error("two dials that failed opened it")
	}
	b.failed(weightDial, now, now)
	if b.opened == 0 {
		t.Error("three dials that failed did not open it")
	}
}

func TestCeiling(t *testing.T) {
	var c ceiling
	t0 := time.Now()
	if c.value() != unlimited {
		t.Error("the zero ceiling limits")
	}
	c.lower(16, t0, t0)
	for range 7 { // the others of the same burst
		c.lower(16, t0.Add(-time.Second), t0)
	}
	if c.value() != 8 {
		t.Errorf("half of 16 is %d", c.value())
	}
	c.lower(1, t0, t0.Add(time.Second))
	if c.value() != 1 {
		t.Errorf("the least is %d", c.value())
	}
	c.raise(16)
	if c.value() != 2 {
		t.Errorf("one success at 1 makes %d", c.value())
	}
	for range 3 {
		c.raise(16)
	}
	if got := c.value(); got != 3 {
		t.Errorf("two or three successes at 2 make %d", got)
	}
	for range 200 {
		c.raise(16)
	}
	if c.value() != unlimited {
		t.Errorf("it stays at %d for ever", c.value())
	}
}

func TestBudget(t *testing.T) {
	now := time.Date(2026, 4, 23, 22, 0, 0, 0, time.UTC)
	b := budget{daily: 1000}
	want := func(slots, inFlight int) {
		t.Helper()
		if got := b.slots(now, inFlight); got != slots {
			t.Errorf("%d slots beside %d, want %d", got, inFlight, slots)
		}
	}
	want(1, 0) // what an attempt costs is not known
	want(0, 1)
	b.spend(100, now)
	want(9, 0)
	want(5, 4)
	b.spend(0, now) // moved nothing, so it is no measure
	want(9, 0)
	for range 8 {
		b.spend(100, now)
	}
	want(1, 0)
	b.spend(60, now)
	want(0, 0) // 40 bytes pay for no usual attempt
	if !b.spent(now) {
		t.Error("not spent")
	}
	now = now.Add(2 * time.Hour)
	if b.spent(now) {
		t.Error("spent on the next day")
	}
	want(1, 0)
	b.spend(5000, now) // the first of a day may cost what it wants
	want(0, 0)
	if none := (&budget{}); none.slots(now, 7) != unlimited || none.spent(now) {
		t.Error("no budget bounds")
	}
}
