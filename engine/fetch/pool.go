package fetch

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"semel/engine/proxy"
)

// PoolOptions say where sessions come from.
type PoolOptions struct {
	Proxy   *proxy.Proxy  // nil: direct
	TTL     time.Duration // how long an exit is kept, from its first use; 0: one session for each attempt
	Session Options       // for every session; its Endpoint is set by the pool
}

// Pool gives out sessions of one proxy, or the one direct session. A proxied
// session serves one holder at a time, so that its bytes are exactly that
// holder's; the direct one is shared by all. A Pool is safe for concurrent
// use.
type Pool struct {
	opts   PoolOptions
	direct *Session // nil behind a proxy

	mu     sync.Mutex
	idle   map[string][]*Session // by country, oldest use first
	closed bool
}

// NewPool makes a pool. Close it.
func NewPool(opts PoolOptions) *Pool {
	p := &Pool{opts: opts, idle: make(map[string][]*Session)}
	if opts.Proxy == nil {
		p.opts.Session.Endpoint = nil
		p.direct = NewSession(p.opts.Session)
	}
	return p
}

// Get returns a session for a country ("" for any): a kept one younger than
// the TTL, the last used first, else a new one with a new session id. Give it
// back with Put. Its errors are proxy.ErrCountry, proxy.ErrSession and
// ErrClosed. A direct pool takes no notice of the country.
func (p *Pool) Get(now time.Time, country string) (*Session, error) {
	country = strings.ToUpper(country)
	s, err := p.takeIdle(now, country)
	if s != nil || err != nil {
		return s, err
	}
	if s, err = p.newSession(p.opts.Session, proxy.Exit{Country: country, Keep: p.opts.TTL}); err != nil {
		return nil, err
	}
	s.created = now
	return s, nil
}

// GetFresh returns a session that nobody has used or will use again, kept by the
// gateway for so long: with a new session id where the proxy has such, in the
// form that had better fail than go on from another exit, and with cookies that
// stay as long as it does. The caller closes it. Its errors are those of Get.
func (p *Pool) GetFresh(country string, keep time.Duration) (*Session, error) {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	opts := p.opts.Session
	opts.KeepCookies = true
	if p.direct != nil {
		return NewSession(opts), nil
	}
	return p.newSession(opts, proxy.Exit{Country: strings.ToUpper(country), Keep: keep, Strict: true})
}

// newSession makes a session with a new session id.
func (p *Pool) newSession(opts Options, exit proxy.Exit) (*Session, error) {
	exit.Session = p.opts.Proxy.NewSessionID()
	endpoint, err := p.opts.Proxy.Endpoint(exit)
	if err != nil {
		return nil, fmt.Errorf("choosing an exit: %w", err)
	}
	opts.Endpoint = &endpoint
	return NewSession(opts), nil
}

// takeIdle finds a kept session, or none, and drops those of the country that
// are too old.
func (p *Pool) takeIdle(now time.Time, country string) (*Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	if p.direct != nil {
		return p.direct, nil
	}
	kept := p.idle[country]
	fresh := kept[:0]
	for _, s := range kept {
		if now.Sub(s.created) < p.opts.TTL {
			fresh = append(fresh, s)
		} else {
			s.Close()
		}
	}
	clear(kept[len(fresh):])
	if len(fresh) == 0 {
		delete(p.idle, country)
		return nil, nil
	}
	last := fresh[len(fresh)-1]
	fresh[len(fresh)-1] = nil
	p.idle[country] = fresh[:len(fresh)-1]
	return last, nil
}

// Put gives a session back. One that is not good, its exit lost or refused, is
// closed and not used again; the direct one is kept in any case.
func (p *Pool) Put(s *Session, good bool) {
	if s == p.direct {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || !good || p.opts.TTL <= 0 {
		s.Close()
		return
	}
	country := s.Country()
	p.idle[country] = append(p.idle[country], s)
}

// Close closes the kept sessions. Those that are out are closed by their Put.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	if p.direct != nil {
		p.direct.Close()
	}
	for _, sessions := range p.idle {
		for _, s := range sessions {
			s.Close()
		}
	}
	p.idle = nil
}
