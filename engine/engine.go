// Package engine claims jobs, runs attempts and commits outcomes.
//
// It answers for: choosing the next job (paced by host; held back by hosts in
// trouble, paused proxies, countries without exits and budgets that are used
// up) and the proxy that it goes through, the lease of each job in flight, the one map from what happened to a
// category, retries as arithmetic on (job, category, policy, now), rescue,
// promotion of due retries, and stopping cleanly. It leaves to others: what the
// states are and that only a valid lease writes (storage), one request
// (fetch), what a page means (parser), and what users see (cli).
//
// # Invariants
//
//   - A job is claimed when it may start: nothing waits for that inside a lease.
//     Only what shows itself under way does: a redirect to another host, a
//     later step, a Crawl-delay that was not known.
//   - No more jobs are claimed than workers are free.
//   - An attempt ends in exactly one commit that compares owner and generation.
//     A worker that lost its lease changes nothing.
//   - Leases are renewed and rescued by one loop, in that order: after a
//     suspend, workers that are alive keep their jobs.
//   - Only loops ask the time; what they call gets it as an argument.
package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"semel/engine/delivery"
	"semel/engine/fetch"
	"semel/storage"
)

// errStopping is the cause of attempts that a stop cuts short.
var errStopping = errors.New("the engine is stopping")

// Engine works the jobs of its sources. Make one with New; it runs once.
type Engine struct {
	opts    Options
	now     func() time.Time
	sources map[string]*Source
	feeds   map[string]*feed       // by source name
	pools   map[string]*fetch.Pool // by proxy name, "" for direct
	robots  *robotsCache
	pace    *pacer
	health  *health
	bodies  *fetch.Budget // of all attempts together
	room    room
	outbox  *delivery.Dispatcher
	parsing slots // one for each parse under way: trees are large, and more than cores gain nothing

	pausing sync.Mutex // one readPauses at a time

	guestOf *Engine   // whose hosts and budgets this one uses as well; nil: it has its own
	began   time.Time // by the store's clock; set before the loops start

	mu      sync.Mutex
	held    map[uint64]*attempt   // in flight, by job
	drifted map[string]driftPause // of sources that pause for drift, by name; those that do not are not in it
	summary Summary
}

// Summary is what one Run did.
type Summary struct {
	New       int  // jobs made, from targets and from links
	Known     int  // targets whose job was there before
	BadRows   int  // targets that cannot become jobs
	BadFiles  int  // files of targets that could not be read
	Offered   bool // all that was due has been offered
	Completed int
	SetAside  int // jobs of these, some of whose rows did not fit
	Failed    int
	Unfit     int // jobs of these whose page did not fit the rules
	Retried   int
	Released  int
	Stale     int               // outcomes that came after their lease
	Rescued   int               // leases taken back from dead or silent workers
	Delivered int               // events
	Dead      int               // events that were given up
	Open      int               // jobs of these sources that still have work ahead
	Held      int               // runs of these sources whose rows have come to wait for a person
	Paused    map[string]Pause  // proxies that are left alone at the end, by name
	Drifted   map[string]string // sources that pause for drift at the end, by name, and why

	Undelivered int               // events that the sinks wait for at the end
	Waiting     map[string]string // why, by sink that waits for some
}

// New makes an engine. Close it.
func New(opts Options) (*Engine, error) {
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("engine options: %w", err)
	}
	e := &Engine{
		opts:    opts,
		now:     opts.Now,
		sources: map[string]*Source{},
		feeds:   map[string]*feed{},
		pools:   map[string]*fetch.Pool{},
		health:  newHealth(opts.Proxies, opts.Workers),
		bodies:  fetch.NewBudget(bodyBudget),
		room:    room{turn: make(slots, 1)},
		parsing: make(slots, parseSlots()),
		held:    map[uint64]*attempt{},
		drifted: map[string]driftPause{},
	}
	if e.now == nil {
		e.now = time.Now
	}
	e.pace = newPacer(opts.pacing, e.now)
	e.robots = newRobotsCache(e)
	for i := range opts.Sources {
		src := &opts.Sources[i]
		e.sources[src.Name], e.feeds[src.Name] = src, newFeed(e, src)
	}
	e.outbox = delivery.New(delivery.Options{
		Store: opts.Store, Update: e.update, Sinks: opts.Sinks, Log: opts.Log, Now: e.now, Grace: opts.Grace,
	})
	session := fetch.Options{AllowPrivate: opts.AllowPrivate, Timeouts: opts.Timeouts, Transport: opts.Transport}
	e.pools[""] = fetch.NewPool(fetch.PoolOptions{Session: session})
	for _, p := range opts.Proxies {
		e.pools[p.Name] = fetch.NewPool(fetch.PoolOptions{Proxy: p.Proxy, TTL: p.Session, Session: session})
	}
	return e, nil
}

// Close ends all sessions.
func (e *Engine) Close() {
	for _, p := range e.pools {
		p.Close()
	}
}

// RunOnce makes the jobs that are due, works until nothing is left that it can
// do, delivers, and returns. Retries are waited for; jobs stay that only a paused
// proxy, a country without an exit, a host in long trouble or drift holds back, and
// events whose sink is stopped or in long trouble. When ctx ends it stops
// cleanly: nothing more is claimed or sent, what runs may end within Grace, the
// rest is handed back unburnt.
func (e *Engine) RunOnce(ctx context.Context) (Summary, error) { return e.run(ctx, true) }

// Run is RunOnce without an end: it goes on until ctx ends, and makes jobs
// whenever a schedule falls due.
func (e *Engine) Run(ctx context.Context) (Summary, error) { return e.run(ctx, false) }

func (e *Engine) run(ctx context.Context, once bool) (Summary, error) {
	if err := e.takeOver(ctx); err != nil {
		return e.Summary(), ignoreStop(ctx, err)
	}
	s := newScheduler(e, once)
	group, groupCtx := errgroup.WithContext(context.WithoutCancel(ctx))
	loopCtx, endLoops := context.WithCancel(groupCtx)
	defer endLoops()
	stop, cancelStop := context.WithCancel(groupCtx)
	defer context.AfterFunc(ctx, cancelStop)()
	defer cancelStop()

	group.Go(func() error {
		err := e.enqueueAll(stop, once)
		close(s.enqueued)
		return ignoreStop(stop, err)
	})
	if !once {
		group.Go(func() error { return ignoreStop(stop, e.keepOffering(stop)) })
	}
	worked := make(chan struct{})
	group.Go(func() error {
		defer close(worked)
		return s.run(stop)
	})
	group.Go(func() error {
		defer endLoops()
		err := e.outbox.Run(stop, worked)
		<-worked // leases are renewed until then
		return err
	})
	group.Go(func() error { return e.maintain(loopCtx) })
	group.Go(func() error { return e.retain(stop, worked) })
	err := group.Wait()
	if countErr := e.countLeft(); err == nil {
		err = countErr
	}
	return e.Summary(), err
}

// ignoreStop leaves out the error that a stop itself makes.
func ignoreStop(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrFull)) {
		return nil
	}
	return err
}

// takeOver begins work on a store that this process alone holds: whoever held
// its leases before is dead.
func (e *Engine) takeOver(ctx context.Context) error {
	err := e.update(ctx, func(tx *storage.Tx) error {
		e.began = tx.Now
		if err := e.register(tx); err != nil {
			return err
		}
		for _, p := range e.opts.Proxies {
			before, err := e.guestOf.spentOn(p.Name, tx.Now)
			if err != nil {
				return err
			}
			e.health.spend(p.Name, tx.ProxyTraffic(p.Name, tx.Now).Total()+before, tx.Now)
		}
		return e.restoreGates(tx)
	})
	if errors.Is(err, ErrGuard) {
		return err
	}
	if err == nil {
		err = e.readPauses(slices.Collect(maps.Keys(e.sources))...)
	}
	if err != nil {
		return fmt.Errorf("taking over the store: %w", err)
	}
	n, err := e.rescue(ctx, storage.AllLeases)
	if n > 0 {
		e.opts.Log.Info("took back the leases of a process that died", "jobs", n)
	}
	return err
}

// register remembers under which identity and rules the sources work, and tells
// where complete jobs keep the records of older rules.
func (e *Engine) register(tx *storage.Tx) error {
	var stored []storage.Source
	for _, name := range slices.Sorted(maps.Keys(e.sources)) {
		stored = append(stored, e.sources[name].stored())
	}
	if err := Register(tx, stored...); err != nil {
		return err
	}
	for _, s := range stored {
		if e.sources[s.Name].Identity.Parser {
			continue // versions stand side by side
		}
		if n := tx.Counters(s.Name).CompleteBefore(s.Version); n > 0 {
			e.opts.Log.Warn("complete jobs keep the records of older rules: "+OldRulesAdvice(s.Name), "source", s.Name, "jobs", n, "version", s.Version)
		}
	}
	return nil
}

// restoreGates holds back hosts that asked for it before a restart.
func (e *Engine) restoreGates(tx *storage.Tx) error {
	gates, err := tx.HostGates()
	for host, until := range gates {
		e.pace.gate(host, until)
	}
	return err
}

// Summary is what was done so far.
func (e *Engine) Summary() Summary {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.summary
	s.Paused, s.Drifted = e.Paused(), make(map[string]string, len(e.drifted))
	for name, pause := range e.drifted {
		s.Drifted[name] = pause.why
	}
	return s
}

func (e *Engine) note(change func(*Summary)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.summary)
}

// Paused are the proxies that are left alone now, by name.
func (e *Engine) Paused() map[string]Pause { return e.health.pauses(e.now()) }

// SinkPauses are the sinks that are taken for down now, by name.
func (e *Engine) SinkPauses() map[string]delivery.Pause { return e.outbox.Pauses() }

// countLeft notes how many jobs of these sources have work ahead, how many of
// their runs this one has left held, and what became of the events.
func (e *Engine) countLeft() error {
	open, held := 0, 0
	err := e.opts.Store.View(func(tx *storage.Tx) error {
		for name := range e.sources {
			open += int(tx.Counters(name).Open())
		}
		return tx.Runs(0, func(r *storage.Run) bool {
			if e.sources[r.Key.Source] != nil && r.Held != "" && !r.HeldSince.Before(e.began) {
				held++
			}
			return true
		})
	})
	if err != nil {
		return err
	}
	sent, err := e.outbox.Report()
	e.note(func(s *Summary) {
		s.Open, s.Held = open, held
		s.Delivered, s.Dead, s.Undelivered, s.Waiting = sent.Delivered, sent.Dead, sent.Undelivered, sent.Waiting
	})
	return err
}
