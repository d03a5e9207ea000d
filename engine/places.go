package engine

import (
	"context"
	"slices"
)

// places are the rights to ask a host, as many at once as its concurrency. The
// attempts of its own jobs take theirs with the claim. Where a redirect leads
// an attempt to another host, it gives its place up for that hop and takes one
// there, waiting for it if need be: an attempt that waits holds none, so two
// hosts that redirect to each other cannot block each other. What it gave up
// goes to other hops alone and to no new claim, so that attempts do not pile up
// where a slow host is led to.
type places struct {
	own     int       // taken with claims, by attempts wherever they are now
	away    int       // of own: those that are elsewhere
	guests  int       // taken by hops of other hosts' attempts
	waiting []*waiter // hops, first come first served
}

// waiter is a hop that waits for a place.
type waiter struct {
	own   bool          // of an attempt of the host's own that comes back
	ready chan struct{} // closed when it has its place
}

// room is how many attempts more a host may be asked by.
func (p *pacer) room(host string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.get(host).room()
}

func (h *pace) room() int {
	return max(0, h.most()-h.places.own-h.places.guests-len(h.places.waiting))
}

// release gives places of a host's own attempts back.
func (p *pacer) release(host string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.get(host)
	h.places.own -= n
	h.admit()
}

// enter takes a place for one hop. Error: the end of ctx.
func (p *pacer) enter(ctx context.Context, host string, own bool) error {
	w := &waiter{own, make(chan struct{})}
	p.mu.Lock()
	h := p.get(host)
	h.places.waiting = append(h.places.waiting, w)
	h.admit()
	p.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		p.giveUp(host, w)
		return context.Cause(ctx)
	}
}

// giveUp takes a hop out of the queue, or gives the place back that it got
// meanwhile.
func (p *pacer) giveUp(host string, w *waiter) {
	p.mu.Lock()
	h := p.get(host)
	i := slices.Index(h.places.waiting, w)
	if i >= 0 {
		h.places.waiting = slices.Delete(h.places.waiting, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 {
		p.leave(host, w.own)
	}
}

// admit gives free places to those that wait.
func (h *pace) admit() {
	s := &h.places
	for len(s.waiting) > 0 && s.own-s.away+s.guests < h.most() {
		w := s.waiting[0]
		s.waiting = s.waiting[1:]
		if w.own {
			s.away--
		} else {
			s.guests++
		}
		close(w.ready)
	}
}

// leave ends a hop: an attempt of the host's own is elsewhere now, a guest is
// gone.
func (p *pacer) leave(host string, own bool) {
	p.mu.Lock()
	h := p.get(host)
	if own {
		h.places.away++
	} else {
		h.places.guests--
	}
	h.admit()
	p.mu.Unlock()
	p.tell(host)
}

// comeHome counts an attempt that ends elsewhere as back at its own host, where
// it asks nothing more.
func (p *pacer) comeHome(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.get(host).places.away--
}

// tell notes that a host may have room for a claim, which nobody else tells the
// scheduler.
func (p *pacer) tell(host string) {
	p.mu.Lock()
	p.left[host] = struct{}{}
	p.mu.Unlock()
	select {
	case p.leaving <- struct{}{}:
	default:
	}
}

// takeLeft gives the hosts that hops have left since the last call.
func (p *pacer) takeLeft() map[string]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.left
	p.left = map[string]struct{}{}
	return left
}

func (s *places) idle() bool { return s.own == 0 && s.guests == 0 && len(s.waiting) == 0 }
