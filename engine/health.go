package engine

import (
	"sync"
	"time"
)

const (
	// proxyPause is how long a proxy is left alone after its login was
	// refused; then one request tries again.
	proxyPause = 5 * time.Minute
	// quotaPause is the same for an account whose traffic is used up.
	quotaPause = 30 * time.Minute
	// freshTries is how many refusals a login may meet before it has ever
	// worked: one can be a hiccup of the gateway.
	freshTries = 2
	// refusalsInRow is how many refusals in a row, without a success between
	// them, end the trust in a login that has worked.
	refusalsInRow = 5
)

// health is what is known of each proxy's account. A proxy starts with one
// request at a time until its login has worked.
type health struct {
	mu      sync.Mutex
	proxies map[string]*account
	changed uint64 // counts changes of what available says
}

type account struct {
	proven   bool // the login has worked since the start or the last pause
	refused  int  // refusals in a row
	inFlight int
	until    time.Time // paused until then; zero: not paused
	since    time.Time // of the running or the last pause
	last     time.Time // when it was last paused, or a probe failed
	total    time.Duration
	reason   string
}

func newHealth(proxies []Proxy) *health {
	h := &health{proxies: map[string]*account{}}
	for _, p := range proxies {
		h.proxies[p.Name] = &account{}
	}
	return h
}

// slots is how many attempts may start through a proxy now: none while it is
// paused, one until its login has worked, else many. Direct has no account.
func (h *health) slots(name string, now time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.proxies[name]
	switch {
	case a == nil || a.proven:
		return 1 << 30
	case now.Before(a.until):
		return 0
	}
	return max(0, 1-a.inFlight)
}

// begin and end bracket an attempt.
func (h *health) begin(name string) { h.add(name, 1) }
func (h *health) end(name string)   { h.add(name, -1) }

func (h *health) add(name string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.proxies[name]; a != nil {
		a.inFlight += n
		if !a.proven {
			h.changed++
		}
	}
}

// accepted notes that the gateway took the login of an attempt that began at
// started. One from before the last pause proves nothing any more.
func (h *health) accepted(name string, started, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.proxies[name]
	if a == nil || started.Before(a.last) {
		return
	}
	a.refused = 0
	if !a.proven {
		a.proven = true
		a.resume(now)
		h.changed++
	}
}

// refusal notes that the gateway refused the login or the account, and
// reports whether that is the account's fault; else it is that session's.
func (h *health) refusal(name, reason string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.proxies[name]
	if a == nil {
		return true
	}
	a.refused++
	if a.proven && a.refused < refusalsInRow {
		return false
	}
	if a.proven || a.refused >= freshTries || !a.until.IsZero() {
		a.pause(reason, now, proxyPause)
		h.changed++
	}
	return true
}

// quota notes that the account is used up.
func (h *health) quota(name, reason string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.proxies[name]; a != nil {
		a.pause(reason, now, quotaPause)
		h.changed++
	}
}

func (a *account) pause(reason string, now time.Time, d time.Duration) {
	if a.until.IsZero() {
		a.since = now
	}
	a.proven, a.until, a.reason, a.last = false, now.Add(d), reason, now
}

func (a *account) resume(now time.Time) {
	if !a.until.IsZero() {
		a.total += now.Sub(a.since)
		a.until = time.Time{}
	}
}

// Pause is why a proxy is left alone, and until when.
type Pause struct {
	Reason string
	Until  time.Time // then one request tries again
}

// Paused are the proxies that are paused now, by name.
func (e *Engine) Paused() map[string]Pause { return e.health.paused() }

// paused are the proxies that are paused, by name.
func (h *health) paused() map[string]Pause {
	h.mu.Lock()
	defer h.mu.Unlock()
	pauses := map[string]Pause{}
	for name, a := range h.proxies {
		if !a.until.IsZero() {
			pauses[name] = Pause{a.reason, a.until}
		}
	}
	return pauses
}

// pausedUntil is when a paused proxy may be tried again; zero: it is not paused.
func (h *health) pausedUntil(name string) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.proxies[name]; a != nil {
		return a.until
	}
	return time.Time{}
}

// pausedSince is how much of the time since then a proxy was paused, as far as
// this process knows.
func (h *health) pausedSince(name string, since, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.proxies[name]
	if a == nil {
		return 0
	}
	d := a.total
	if !a.until.IsZero() {
		d += now.Sub(a.since)
	}
	return min(d, max(0, now.Sub(since)))
}

// nextProbe is when the first paused proxy may be tried again; zero: none is
// paused.
func (h *health) nextProbe() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	var first time.Time
	for _, a := range h.proxies {
		if !a.until.IsZero() && (first.IsZero() || a.until.Before(first)) {
			first = a.until
		}
	}
	return first
}

// version changes whenever slots may answer otherwise than before, time aside.
func (h *health) version() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}
