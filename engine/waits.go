package engine

import (
	"fmt"
	"strings"
	"time"
)

// Hold is why a host is left alone, and until when.
type Hold struct {
	Reason string
	Until  time.Time
}

// HeldHosts are the hosts that nothing is asked of for now, by name.
func (e *Engine) HeldHosts() map[string]Hold { return e.pace.holds(e.now()) }

// Waits says what a pending job of a source waits for, at a host and in a country;
// "" where nothing is known to hold it back.
func (e *Engine) Waits(source, host, country string) string {
	src, now := e.sources[source], e.now()
	if src == nil {
		return "nothing claims it: its source is not worked by this run"
	}
	if why := e.pausesFor(source); why != "" {
		return "its source pauses, since " + why
	}
	if hold, held := e.pace.holds(now)[host]; held {
		return fmt.Sprintf("host %s is left alone until %s: %s", host, hold.Until.UTC().Format(time.RFC3339), hold.Reason)
	}
	if _, slots := e.chooseExit(lane{src, country}, now); slots > 0 {
		return ""
	}
	pauses := e.Paused()
	var reasons []string
	for _, name := range src.Proxies {
		if p, paused := pauses[name]; paused {
			reasons = append(reasons, fmt.Sprintf("proxy %s is paused until %s: %s", name, p.Until.UTC().Format(time.RFC3339), p.Reason))
		}
	}
	return strings.Join(reasons, "; ")
}

// holds are the hosts that may not be asked yet for more than their interval.
func (p *pacer) holds(now time.Time) map[string]Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	holds := map[string]Hold{}
	for name, h := range p.hosts {
		for _, hold := range []Hold{
			{"it has asked for that, or its robots.txt cannot be read", h.gated},
			{fmt.Sprintf("the last %d attempts have failed", h.trouble.weight), h.trouble.until},
			{fmt.Sprintf("the last %d attempts were blocked", h.blocked.weight), h.blocked.until},
		} {
			if hold.Until.After(now) && hold.Until.After(holds[name].Until) {
				holds[name] = hold
			}
		}
	}
	return holds
}
