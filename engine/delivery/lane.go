package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"semel/storage"
)

const (
	// patience is how far away a delivery may be that a Run still waits for which
	// is to end when nothing is left to do.
	patience = 30 * time.Second
	// takeAhead is how many events are noted as taken for each that can be under
	// way: enough to send while the store syncs, few enough to be given back.
	takeAhead = 8
	// readEvents bounds one look into the outbox.
	readEvents = 256
)

// errStopping is the cause of deliveries that a stop cuts short.
var errStopping = errors.New("the dispatcher is stopping")

// lane brings the events of one sink to it. One goroutine plans and owns all
// fields; deliveries and the writing of what became of them go on beside it, so
// that it learns at once what a delivery has shown of the sink.
//
// An event is in window; then it is chosen and noted as taken (note); then it
// stands in taken until there is room for it in a delivery; then that is under
// way; then it stands in ends until what became of it is noted.
type lane struct {
	sink  *Sink
	store *storage.Store
	opts  *Options
	log   *slog.Logger
	bell  bell
	final chan struct{} // closed when the lane is to end once nothing is left

	window    window
	health    health
	stopped   string // why the sink wants nothing more; "": it does
	last      uint64 // number of the event that was sent last
	taken     []item
	ends      []ending
	slots     int         // deliveries whose transport has not returned
	sending   int         // events of deliveries that have no answer
	answers   chan answer // has room for all that can come
	noting    bool        // a transaction is under way
	noted     chan *note
	finishing bool // final is closed
	stopping  bool // nothing begins any more

	pauseLines, gateLines, deadLines quota

	delivered, dead atomic.Int64
	reason          atomic.Pointer[string] // for why
	pause           atomic.Pointer[Pause]  // for Pauses; nil: there is none
}

func newLane(opts *Options, s *Sink) *lane {
	return &lane{
		sink: s, store: opts.Store, opts: opts, log: opts.Log.With("sink", s.Name),
		bell: bell{wake: make(chan struct{}, 1)}, final: make(chan struct{}),
		window:  newWindow(),
		answers: make(chan answer, 2*s.InFlight),
		noted:   make(chan *note, 1),
	}
}

// run delivers until ctx ends, or until final is closed and nothing is left. When
// it returns no delivery is under way.
func (l *lane) run(ctx context.Context) error {
	deliveries, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	notes, endWait := context.WithCancel(ctx)
	err := l.loop(notes, deliveries, cut)
	cut(errStopping)
	endWait()
	if l.noting { // only where the store has failed, as below
		<-l.noted
	}
	for l.sending > 0 {
		l.ended(<-l.answers)
	}
	return err
}

// ended takes a delivery that has answered off those under way.
func (l *lane) ended(a answer) {
	l.sending -= len(a.items)
	if a.returned {
		l.slots--
	}
}

func (l *lane) loop(ctx, deliveries context.Context, cut context.CancelCauseFunc) error {
	stop := ctx.Done()
	l.bell.ring(1) // for whether it is stopped
	for {
		now := l.opts.Now()
		if err := l.plan(ctx, deliveries, now); err != nil {
			return err
		}
		if l.over(now) {
			return nil
		}
		timer := time.NewTimer(l.untilNext(now))
		select {
		case <-stop:
			stop, l.stopping = nil, true
			defer time.AfterFunc(l.grace(), func() { cut(errStopping) }).Stop()
		case <-l.final:
			l.final, l.finishing = nil, true
		case <-l.bell.wake:
		case <-timer.C:
		case a := <-l.answers:
			if err := l.hear(a); err != nil {
				return err
			}
		case n := <-l.noted:
			if err := l.apply(ctx, n); err != nil {
				return err
			}
		}
		timer.Stop()
	}
}

// grace is how long deliveries under way may go on after a stop. A store that has
// failed is not waited for.
func (l *lane) grace() time.Duration {
	if l.store.Err() != nil {
		return 0
	}
	return l.opts.Grace
}

// plan does all that can be done now.
func (l *lane) plan(ctx, deliveries context.Context, now time.Time) error {
	l.recall(now)
	l.begin(deliveries, now)
	if l.noting { // what is being written is not yet what the store says
		return nil
	}
	if err := l.look(); err != nil {
		return err
	}
	items, err := l.choose(now)
	if err != nil {
		return err
	}
	l.note(ctx, items)
	return nil
}

// open reports whether events may be sent, in a pause only one.
func (l *lane) open(now time.Time) bool {
	return !l.stopping && l.stopped == "" && l.health.allows(now)
}

// recall gives back what is taken and may not be sent now.
func (l *lane) recall(now time.Time) {
	if l.open(now) && (!l.health.paused() || len(l.taken)+l.sending <= 1) {
		return
	}
	for _, it := range l.taken {
		l.ends = append(l.ends, ending{item: it})
	}
	l.taken = nil
}

// begin starts as many deliveries as there is room for.
func (l *lane) begin(ctx context.Context, now time.Time) {
	for l.slots < l.sink.InFlight && len(l.taken) > 0 {
		n := min(l.sink.Batch, len(l.taken))
		d := delivery{lane: l, items: l.taken[:n:n], probe: l.health.paused()}
		l.taken = l.taken[n:]
		l.last = d.items[n-1].seq
		l.slots++
		l.sending += n
		go d.run(ctx)
	}
}

// look hears the bell and reads what it has rung for.
func (l *lane) look() error {
	first, rung := l.bell.take()
	if !rung {
		return nil
	}
	l.window.rewind(first)
	return l.readStopped()
}

// readStopped asks the store whether the sink is stopped, unless what stops it is
// not yet written there.
func (l *lane) readStopped() error {
	for i := range l.ends {
		if l.ends[i].Stop {
			return nil
		}
	}
	var s *storage.Sink
	err := l.store.View(func(tx *storage.Tx) (err error) {
		s, err = tx.Sink(l.sink.Name)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading sink %s: %w", l.sink.Name, err)
	}
	l.setStopped(s.Reason)
	l.tellWhy()
	return nil
}

// choose takes events out of the window that are to go next.
func (l *lane) choose(now time.Time) ([]item, error) {
	if !l.open(now) {
		return nil, nil
	}
	l.window.wake(now)
	if l.health.paused() {
		return l.chooseProbe(now)
	}
	n := takeAhead*l.sink.InFlight*l.sink.Batch - len(l.taken) - l.sending
	for len(l.window.ready) < n && l.window.hasMore() {
		if err := l.read(now); err != nil {
			return nil, err
		}
	}
	return l.window.take(max(n, 0)), nil
}

// chooseProbe takes the next event in order after the one that was sent last, and
// after the last of all the first: none that fails by itself keeps the sink
// closed.
func (l *lane) chooseProbe(now time.Time) ([]item, error) {
	if len(l.taken)+l.sending+len(l.ends) > 0 {
		return nil, nil
	}
	for {
		if it, ok := l.window.probe(l.last); ok {
			return []item{it}, nil
		}
		switch {
		case l.window.hasMore():
			if err := l.read(now); err != nil {
				return nil, err
			}
		case l.last > 0:
			l.last = 0
		default:
			return nil, nil
		}
	}
}

// read takes the next events of the outbox into the window.
func (l *lane) read(now time.Time) error {
	var list []storage.PendingDelivery
	err := l.store.View(func(tx *storage.Tx) (err error) {
		list, err = tx.PendingDeliveries(l.sink.Name, l.window.after, readEvents)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the outbox of sink %s: %w", l.sink.Name, err)
	}
	for _, p := range list {
		due := p.Next
		if farthest := now.Add(maxDelay); due.After(farthest) { // it was set by a clock that has gone back since
			due = farthest
		}
		l.window.add(p.Event, xxhash.Sum64String(p.Key), due, now)
		l.window.after = p.Event
	}
	l.window.more = len(list) == readEvents
	return nil
}

// hear learns from the answer of a delivery. Its error is the store's.
func (l *lane) hear(a answer) error {
	l.ended(a)
	if a.err != nil {
		return fmt.Errorf("reading events for sink %s: %w", l.sink.Name, a.err)
	}
	counts := !a.cut && !l.health.paused()
	for i, r := range a.results {
		l.ends = append(l.ends, ending{
			item: a.items[i], Result: r, id: a.ids[i], counts: counts && !r.Stop && !r.Passing, passes: counts && r.Passing, cut: a.cut,
		})
		if r.Stop {
			l.setStopped(r.Reason)
		}
	}
	if !a.cut && l.stopped == "" {
		l.learn(a, l.opts.Now())
	}
	l.tellWhy()
	return nil
}

// learn books what an answer says of the sink.
func (l *lane) learn(a answer, now time.Time) {
	arrived, reason := a.sum()
	for _, r := range a.results {
		if r.RetryAfter > 0 && l.health.wait(r.RetryAfter, now) {
			l.tellGate(r.Reason, now)
		}
	}
	since := l.health.since
	switch {
	case arrived && l.health.succeed():
		l.tellOpen(since, now)
	case !arrived && reason != "" && l.health.fail(reason, a.probe, now):
		l.tellPaused(now)
	}
}

// over reports whether the lane has ended.
func (l *lane) over(now time.Time) bool {
	if l.noting || l.sending > 0 || len(l.ends)+len(l.taken) > 0 {
		return false
	}
	if l.stopping {
		return true
	}
	next := l.next(now)
	return l.finishing && !l.bell.isRung() && (next.IsZero() || next.Sub(now) > patience)
}

// next is when something can begin; zero: never by the clock alone.
func (l *lane) next(now time.Time) time.Time {
	if l.stopped != "" || l.window.size == 0 && !l.window.more {
		return time.Time{}
	}
	from := l.health.from()
	if l.health.paused() || len(l.window.ready) > 0 || l.window.hasMore() {
		return latest(from, now)
	}
	if due := l.window.next(); !due.IsZero() {
		return latest(from, due)
	}
	return time.Time{}
}

// untilNext is how long nothing can begin by the clock alone. What could begin
// now, and has not, waits for an answer or for a commit.
func (l *lane) untilNext(now time.Time) time.Duration {
	if next := l.next(now); !l.stopping && next.After(now) {
		return next.Sub(now)
	}
	return time.Hour
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
