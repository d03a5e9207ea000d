package delivery

import "time"

const (
	// failuresToPause is how many deliveries in a row fail before a sink is taken
	// for down. Fewer, and a few bad events would hold up the good ones; more, and
	// an outage would cost every event under way one of its attempts.
	failuresToPause = 5
	firstPause      = time.Second // doubled with each probe that fails
	maxPause        = 5 * time.Minute
	maxGate         = maxDelay // of what a sink may ask for
)

// health is what the deliveries of late have shown of a sink. The zero value is
// that of a sink that is well.
type health struct {
	failures int           // in a row
	since    time.Time     // the first of them
	reason   string        // of the last of them
	pause    time.Duration // between probes; 0: the sink is not paused
	until    time.Time     // paused: no probe before
	gate     time.Time     // nothing before, as the sink itself has asked
}

func (h *health) paused() bool { return h.pause > 0 }

// from is the time before which nothing may be sent.
func (h *health) from() time.Time {
	if h.paused() && h.until.After(h.gate) {
		return h.until
	}
	return h.gate
}

// allows reports whether something may be sent: one event as a probe where the
// sink is paused.
func (h *health) allows(now time.Time) bool { return !now.Before(h.from()) }

// succeed takes note of a delivery that arrived, and reports whether that ends a
// pause.
func (h *health) succeed() (opened bool) {
	opened = h.paused()
	*h = health{gate: h.gate}
	return opened
}

// fail takes note of a delivery that did not arrive, and reports whether that
// begins a pause. What was under way before the pause says nothing new.
func (h *health) fail(reason string, probe bool, now time.Time) (paused bool) {
	if h.failures++; h.failures == 1 {
		h.since = now
	}
	h.reason = reason
	switch {
	case h.paused() && probe:
		h.pause = min(2*h.pause, maxPause)
		h.until = now.Add(h.pause)
	case !h.paused() && h.failures >= failuresToPause:
		h.pause, paused = firstPause, true
		h.until = now.Add(h.pause)
	}
	return paused
}

// wait holds back the sink for as long as it has asked, and reports whether it
// was not held back before.
func (h *health) wait(d time.Duration, now time.Time) (news bool) {
	until := now.Add(min(d, maxGate))
	if !until.After(h.gate) {
		return false
	}
	news = !h.gate.After(now)
	h.gate = until
	return news
}
