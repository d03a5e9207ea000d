package engine

import (
	"context"
	"sync"
	"time"

	"semel/storage"
)

// pacer keeps when each host may be asked next, and how much at once: what the
// config says, and less while the host has trouble or asks for less. It is used
// before a claim, so that no job waits inside its lease, and within an attempt
// only for what was not known then: hosts that redirects lead to, later steps, a
// new Crawl-delay.
type pacer struct {
	policy func(host string) Pacing
	now    func() time.Time

	mu    sync.Mutex
	hosts map[string]*pace
	left  map[string]struct{} // hosts that hops have left since takeLeft

	leaving chan struct{} // capacity 1: there are such
}

type pace struct {
	concurrency int
	interval    time.Duration
	next        time.Time // the next start that pacing allows
	gated       time.Time // the host has asked for nothing before; zero: it has not
	places      places
	slowed      time.Time // when the interval was last raised above the policy's; zero: never
	ceiling     ceiling
	trouble     breaker
	blocked     breaker
}

// A host that fails ten times in a row is left alone for a while, and one that
// has blocked three exits in a row for long.
var (
	troublePolicy = breakerPolicy{threshold: 10, base: 30 * time.Second, max: 15 * time.Minute}
	blockedPolicy = breakerPolicy{threshold: 3, base: time.Hour, max: 24 * time.Hour}
)

func newPacer(policy func(host string) Pacing, now func() time.Time) *pacer {
	return &pacer{policy: policy, now: now, hosts: map[string]*pace{}, left: map[string]struct{}{}, leaving: make(chan struct{}, 1)}
}

// get wants mu held.
func (p *pacer) get(host string) *pace {
	h := p.hosts[host]
	if h == nil {
		policy := p.policy(host)
		h = &pace{
			concurrency: policy.Concurrency, interval: policy.Interval,
			trouble: breaker{breakerPolicy: troublePolicy}, blocked: breaker{breakerPolicy: blockedPolicy},
		}
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

// begin takes a host's turn, if it has come, and up to so many places for
// attempts of its own jobs. It gives how many; 0: it is not the host's turn, or
// it has no room.
func (p *pacer) begin(host string, want int, now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.get(host)
	if h.turn().After(now) {
		return 0
	}
	n := min(want, h.room())
	if h.interval > 0 {
		n = min(n, 1)
	}
	if n > 0 {
		h.next = now.Add(h.interval)
		h.places.own += n
	}
	return n
}

// turn is when the host may be asked next.
func (h *pace) turn() time.Time {
	turn := h.next
	for _, t := range []time.Time{h.gated, h.trouble.until, h.blocked.until} {
		if t.After(turn) {
			turn = t
		}
	}
	return turn
}

// most is how many may ask the host at once.
func (h *pace) most() int {
	if h.trouble.opened+h.blocked.opened > 0 {
		return 1
	}
	return min(h.concurrency, h.ceiling.value())
}

// learn takes in how an attempt at a host ended, directly or through a proxy. It
// gives the time until which the host is left alone for that, where that is
// news.
func (p *pacer) learn(host string, c storage.Category, proxied bool, began, now time.Time) (until time.Time, news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.get(host)
	was := h.trouble.opened + h.blocked.opened
	switch standing(c, proxied) {
	case hostWell:
		h.trouble.worked(began)
		h.blocked.worked(began)
		h.ceiling.raise(h.concurrency)
	case hostTroubled:
		h.trouble.failed(1, began, now)
	case hostBlocks:
		h.blocked.failed(1, began, now)
	case hostThrottles:
		h.ceiling.lower(h.most(), began, now)
	}
	return h.turn(), was == 0 && h.trouble.opened+h.blocked.opened > 0
}

// troubledFor is how long a host has not worked; 0: it does.
func (p *pacer) troubledFor(host string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.get(host)
	return max(h.trouble.openFor(now), h.blocked.openFor(now))
}

// What an attempt's end says about the host that it ended at.
type hostStanding int

const (
	hostUnknown hostStanding = iota // nothing: it was not reached, or not asked
	hostWell
	hostTroubled
	hostBlocks
	hostThrottles
)

// standing is what a category says about the host; "" is success. Through a
// proxy, that a host was not reached may be its exit's fault, or its country's.
func standing(c storage.Category, proxied bool) hostStanding {
	switch c {
	case "", storage.CategoryNotFound, storage.CategoryClientError, storage.CategoryRedirectLoop, storage.CategoryTooLarge,
		storage.CategoryParseError, storage.CategoryValidation, storage.CategoryDuplicateKey:
		return hostWell
	case storage.CategoryConnectTimeout, storage.CategoryDNS, storage.CategoryTLS:
		if !proxied {
			return hostTroubled
		}
	case storage.CategoryReadTimeout, storage.CategoryServerError:
		return hostTroubled
	case storage.CategoryBlocked:
		return hostBlocks
	case storage.CategoryThrottled:
		return hostThrottles
	}
	return hostUnknown
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

// plain reports whether a host may be asked as the policy says.
func (h *pace) plain() bool {
	return h.slowed.IsZero() && h.ceiling.limit == 0 && h.trouble.opened+h.blocked.opened == 0
}

// forget drops what is known of hosts that could have been asked for a minute,
// so that memory does not grow with every host ever seen. Those that have been
// slowed, or have trouble, stay for a day.
func (p *pacer) forget(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for host, h := range p.hosts {
		idle := now.Sub(h.turn())
		if h.places.idle() && (idle > time.Minute && h.plain() || idle > 24*time.Hour) {
			delete(p.hosts, host)
		}
	}
}
