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

	mu    sync.Mutex
	hosts map[string]*pace
}

type pace struct {
	concurrency int
	interval    time.Duration
	next        time.Time // the earliest next start
}

func newPacer(policy func(host string) Pacing) *pacer {
	return &pacer{policy: policy, hosts: map[string]*pace{}}
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

// at is when a host may be asked next, and how many attempts may then start
// together.
func (p *pacer) at(host string) (next time.Time, together int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.get(host)
	if h.interval > 0 {
		return h.next, 1
	}
	return h.next, h.concurrency
}

// concurrency is how many attempts may be under way at a host.
func (p *pacer) concurrency(host string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.get(host).concurrency
}

// start notes a start at a host.
func (p *pacer) start(host string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.get(host)
	if next := now.Add(h.interval); next.After(h.next) {
		h.next = next
	}
}

// gate lets nothing start at a host before a time.
func (p *pacer) gate(host string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.get(host); until.After(h.next) {
		h.next = until
	}
}

// slow raises a host's interval; nothing lowers it.
func (p *pacer) slow(host string, interval time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.get(host); interval > h.interval {
		h.interval = interval
		if next := time.Now().Add(interval); next.After(h.next) {
			h.next = next
		}
	}
}

// wait takes the next start at a host and waits for it.
func (p *pacer) wait(ctx context.Context, host string) error {
	p.mu.Lock()
	h, now := p.get(host), time.Now()
	turn := now
	if h.next.After(turn) {
		turn = h.next
	}
	h.next = turn.Add(h.interval)
	p.mu.Unlock()
	timer := time.NewTimer(turn.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// forget drops what is known of hosts that could have been asked for a minute,
// so that memory does not grow with every host ever seen.
func (p *pacer) forget(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for host, h := range p.hosts {
		if now.Sub(h.next) > time.Minute {
			delete(p.hosts, host)
		}
	}
}
