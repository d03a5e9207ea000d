package engine

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"semel/engine/fetch"
	"semel/engine/intake"
	"semel/storage"
)

var errRobotsDenied = errors.New("robots.txt does not allow it")

const (
	// robotsAge is how long a robots.txt is believed (RFC 9309 §2.4).
	robotsAge = 24 * time.Hour
	// robotsKept bounds the origins kept in memory; the store keeps them all.
	robotsKept = 4096
)

// robotsCache keeps the rules of origins: in memory, and in the store across
// restarts. Each origin is fetched by one attempt at a time; others wait.
type robotsCache struct {
	engine *Engine // its store is nil: memory only

	mu      sync.Mutex
	origins map[string]*robotsEntry
}

type robotsEntry struct {
	token chan struct{} // capacity 1: who holds it may fetch

	mu      sync.Mutex
	rules   *fetch.Robots // nil: not known yet
	fetched time.Time
	failed  time.Time // when the last fetch failed; zero: it did not
	failure error
}

func newRobotsCache(e *Engine) *robotsCache {
	return &robotsCache{engine: e, origins: map[string]*robotsEntry{}}
}

// check asks the rules of a URL's origin, fetching them if need be, and gives
// the delay between requests that they want. Errors: errRobotsDenied, those of
// fetch.FetchRobots and of the store, the end of ctx.
func (c *robotsCache) check(ctx context.Context, v *visit, u *url.URL) (time.Duration, error) {
	rules, err := c.rules(ctx, v, u.Scheme+"://"+intake.HostOf(u))
	if err != nil {
		return 0, err
	}
	if !rules.Allowed(c.engine.opts.UserAgent, u) {
		return rules.CrawlDelay(c.engine.opts.UserAgent), fmt.Errorf("%w: %s", errRobotsDenied, u.Redacted())
	}
	return rules.CrawlDelay(c.engine.opts.UserAgent), nil
}

func (c *robotsCache) entry(origin string) *robotsEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.origins[origin]
	if e == nil {
		if len(c.origins) >= robotsKept {
			clear(c.origins)
		}
		e = &robotsEntry{token: make(chan struct{}, 1)}
		c.origins[origin] = e
	}
	return e
}

func (e *robotsEntry) get(now time.Time) *fetch.Robots {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Sub(e.fetched) >= robotsAge {
		return nil
	}
	return e.rules
}

func (e *robotsEntry) set(rules *fetch.Robots, fetched time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rules, e.fetched = rules, fetched
}

// failedSince is why a fetch that began at a time or later failed, nil if none
// did.
func (e *robotsEntry) failedSince(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed.Before(t) {
		return nil
	}
	return e.failure
}

func (e *robotsEntry) fail(err error, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed, e.failure = now, err
}

func (c *robotsCache) rules(ctx context.Context, v *visit, origin string) (*fetch.Robots, error) {
	e := c.entry(origin)
	if rules := e.get(c.engine.now()); rules != nil {
		return rules, nil
	}
	asked := c.engine.now()
	select {
	case e.token <- struct{}{}:
		defer func() { <-e.token }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if rules := e.get(c.engine.now()); rules != nil {
		return rules, nil // another attempt fetched it meanwhile
	}
	if err := e.failedSince(asked); err != nil {
		return nil, err // or tried to
	}
	if err := c.load(e, origin); err != nil {
		return nil, err
	}
	if rules := e.get(c.engine.now()); rules != nil {
		return rules, nil
	}
	return c.fetch(ctx, v, e, origin)
}

// load takes what the store keeps.
func (c *robotsCache) load(e *robotsEntry, origin string) error {
	if c.engine.opts.Store == nil {
		return nil
	}
	return c.engine.opts.Store.View(func(tx *storage.Tx) error {
		kept, ok, err := tx.Robots(origin)
		if ok {
			e.set(fetch.ParseRobots(kept.Body), kept.FetchedAt)
		}
		return err
	})
}

// fetch reads the robots.txt through the attempt's own session and on its
// account, and keeps it.
func (c *robotsCache) fetch(ctx context.Context, v *visit, e *robotsEntry, origin string) (*fetch.Robots, error) {
	u, err := url.Parse(origin)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fetch.ErrURL, err)
	}
	body, trace, err := fetch.FetchRobots(ctx, v.session, u, fetch.Request{
		UserAgent: c.engine.opts.UserAgent,
		MaxBytes:  v.bytesLeft(),
	})
	v.book(trace)
	if err != nil {
		var refused *fetch.RobotsStatusError
		if errors.As(err, &refused) && !refused.ProxyOrigin && !refused.Unsure { // the site's word holds for all who wait
			e.fail(err, c.engine.now())
		}
		return nil, err
	}
	rules := fetch.ParseRobots(body)
	e.set(rules, c.engine.now())
	if c.engine.opts.Store == nil {
		return rules, nil
	}
	err = c.engine.opts.Store.Update(context.WithoutCancel(ctx), func(tx *storage.Tx) error {
		return tx.PutRobots(origin, trace.Status, body)
	})
	if errors.Is(err, storage.ErrFull) { // memory has it
		err = nil
	}
	return rules, err
}
