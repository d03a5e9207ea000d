package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// PauseKind is why a proxy is left alone.
type PauseKind string

// Why a proxy is left alone.
const (
	PauseAccount PauseKind = "account" // the login was refused, or the account's traffic is used up
	PauseOutage  PauseKind = "outage"  // its gateway cannot be reached
	PauseLimit   PauseKind = "limit"   // its gateway takes no more requests for now
	PauseBudget  PauseKind = "budget"  // its budget of the day is used up
	PauseExit    PauseKind = "exit"    // it has no exit in some country; others go on
)

// Pause is why a proxy is left alone, and until when. The zero Pause is none.
type Pause struct {
	Kind   PauseKind
	Reason string
	Until  time.Time // then one request tries again; a budget is whole again
}

const (
	// How long RunOnce waits before it leaves what depends on them to a later
	// run: for a gateway that is gone, for one that it has never reached and
	// whose address may be wrong, and for an exit in a country.
	outagePatience  = 2 * time.Minute
	strangePatience = 30 * time.Second
	exitPatience    = 15 * time.Minute

	// worthTelling is how long a gateway must want to be left alone for that to
	// be called a pause: shorter waits are everyday life.
	worthTelling = time.Minute
)

// span is a stretch of time.
type span struct{ from, to time.Time }

// within is how much of the span lies after a time.
func (s span) within(since time.Time) time.Duration {
	if since.After(s.from) {
		s.from = since
	}
	return max(0, s.to.Sub(s.from))
}

// spansKept bounds what is remembered of pauses.
const spansKept = 1000

// pause is why the whole proxy is left alone, if it is.
func (p *proxyHealth) pause(now time.Time) Pause {
	switch {
	case p.account.paused():
		return p.account.pause
	case p.outage.opened > 0:
		return Pause{PauseOutage, fmt.Sprintf("the gateway is out of reach since %s: %s", p.outage.since.UTC().Format(time.RFC3339), p.silence), p.outage.until}
	case p.limits.opened > 0 || p.busy.Sub(now) > worthTelling:
		until := p.limits.until
		if p.busy.After(until) {
			until = p.busy
		}
		return Pause{PauseLimit, "the gateway takes no more requests for now", until}
	case p.budget.spent(now):
		return Pause{PauseBudget, p.budget.String(), nextDay(now)}
	}
	return Pause{}
}

// keepTime counts the time under pauses.
func (p *proxyHealth) keepTime(now time.Time) {
	held := p.pause(now) != Pause{}
	switch {
	case held && p.since.IsZero():
		p.since = now
	case !held && !p.since.IsZero():
		p.spans = append(p.spans[max(0, len(p.spans)+1-spansKept):], span{p.since, now})
		p.since = time.Time{}
	}
}

// pauses are the proxies that are left alone now, as a whole or in part, by
// name.
func (h *health) pauses(now time.Time) map[string]Pause {
	h.mu.Lock()
	defer h.mu.Unlock()
	pauses := map[string]Pause{}
	for name, p := range h.proxies {
		pause := p.pause(now)
		if pause == (Pause{}) {
			pause = p.lacking()
		}
		if pause != (Pause{}) {
			pauses[name] = pause
		}
	}
	return pauses
}

// lacking names the countries without an exit.
func (p *proxyHealth) lacking() Pause {
	var names []string
	var until time.Time
	for name, c := range p.countries {
		if c.opened == 0 {
			continue
		}
		names = append(names, name)
		if until.IsZero() || c.until.Before(until) {
			until = c.until
		}
	}
	if len(names) == 0 {
		return Pause{}
	}
	slices.Sort(names)
	return noExit(names, until)
}

func noExit(countries []string, until time.Time) Pause {
	where := "it has no exit in " + strings.Join(countries, ", ")
	if len(countries) == 1 && countries[0] == "" {
		where = "it has no exit"
	}
	return Pause{PauseExit, where, until}
}

// heldLong reports whether RunOnce should not wait for an exit: whole proxies
// that are paused, but for a short outage, and countries that have had no exit
// for long.
func (h *health) heldLong(x exit, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.proxies[x.proxy]
	if p == nil {
		return false
	}
	c := p.countries[x.country]
	return p.heldLong(now) || c != nil && c.openFor(now) > exitPatience
}

// heldWhole is heldLong whatever the country.
func (h *health) heldWhole(proxy string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.proxies[proxy]
	return p != nil && p.heldLong(now)
}

func (p *proxyHealth) heldLong(now time.Time) bool {
	patience := outagePatience
	if !p.reached {
		patience = strangePatience
	}
	pause := p.pause(now)
	return pause.Kind == PauseAccount || pause.Kind == PauseBudget || max(p.outage.openFor(now), p.limits.openFor(now), p.busy.Sub(now)) > patience
}

// heldSince is how much of the time since then all of some proxies were left
// alone, as far as this process knows; direct never is.
func (h *health) heldSince(proxies []string, since, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := max(0, now.Sub(since))
	for _, name := range proxies {
		d := time.Duration(0)
		if p := h.proxies[name]; p != nil {
			d = p.heldSince(since, now)
		}
		held = min(held, d)
	}
	if len(proxies) == 0 {
		return 0
	}
	return held
}

func (p *proxyHealth) heldSince(since, now time.Time) (d time.Duration) {
	p.keepTime(now)
	if !p.since.IsZero() {
		d = span{p.since, now}.within(since)
	}
	for _, s := range p.spans {
		d += s.within(since)
	}
	return d
}
