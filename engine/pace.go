package engine

import (
	"context"
	"sync"
	"time"
)

// pacer keeps when each host may be asked next. It is used before a claim, so
// that no job waits inside its lease, and within an attempt only where a
// redirect leads to another host.
type pacer struct {
	policy func(host string) Pacing
	now    func() time.Time

	mu    sync.Mutex
	hosts map[string]*pace
}

type pace struct {
	concurrency int
	interval    time.Duration
	next        time.Time // the next start that pacing allows
	gated       time.Time // the host has asked for nothing before; zero: it has not
	slowed      time.Time // when the interval was last raised above the policy's; zero: never
}

func newPacer(policy func(host string) Pacing, now func() time.Time) *pacer {
	return &pacer{policy: policy, now: now, hosts: map[string]*pace{}}
}

// get wants mu held.
func (p *pacer) get(host string) *pace {
	h := p.hosts[host]
	if h == nil {
		policy := p.policy(host)
		h = &pace{concurrency: policy.Concurrency, interval: policy.Interval}
		p.hosts[host] = h
	}
	return h
}

// at is when a host may be asked next.
func (p *pacer) at(host string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.get(host).turn()
}

// begin takes a host's turn if it has come: so many attempts may start together
// now. Otherwise it gives 0, and when to ask again.
func (p *pacer) begin(host string, now time.Time) (together int, next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.get(host)
	if turn := h.turn(); turn.After(now) {
		return 0, turn
	}
	h.next = now.Add(h.interval)
	if h.interval > 0 {
		return 1, h.next
	}
	return h.concurrency, h.next
}

// turn is when the host may be asked next.
func (h *pace) turn() time.Time {
	if h.gated.After(h.next) {
		return h.gated
	}
	return h.next
}

// concurrency is how many attempts may be under way at a host.
func (p *pacer) concurrency(host string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.get(host).concurrency
}

// gate lets nothing start at a host before a time.
func (p *pacer) gate(host string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.get(host); until.After(h.gated) {
		h.gated = until
	}
}

// slow raises a host's interval; nothing lowers it. It reports whether an
// attempt that started at a time must now wait for its turn, since it was let
// go under the interval from before; the first to hear of a new one need not.
func (p *pacer) slow(host string, interval time.Duration, started time.Time) (wait bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.get(host)
	if interval <= h.interval {
		return started.Before(h.slowed)
	}
	h.interval, h.slowed = interval, p.now()
	if next := h.slowed.Add(interval); next.After(h.next) {
		h.next = next
	}
	return false
}

// wait takes the next start at a host and waits for it, and again where the
// host was gated meanwhile.
func (p *pacer) wait(ctx context.Context, host string) error {
	for {
		now := p.now()
		timer := time.NewTimer(p.take(host, now).Sub(now))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		if !p.gatedUntil(host).After(p.now()) {
			return nil
		}
	}
}

// take reserves the next start at a host.
func (p *pacer) take(host string, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.get(host)
	turn := h.turn()
	if turn.Before(now) {
		turn = now
	}
	h.next = turn.Add(h.interval)
	return turn
}

func (p *pacer) gatedUntil(host string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.get(host).gated
}

// forget drops what is known of hosts that could have been asked for a minute,
// so that memory does not grow with every host ever seen. Those whose
// robots.txt has slowed them stay.
func (p *pacer) forget(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for host, h := range p.hosts {
		if h.slowed.IsZero() && now.Sub(h.turn()) > time.Minute {
			delete(p.hosts, host)
		}
	}
}
