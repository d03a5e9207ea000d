package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"semel/storage"
)

// Options of a Dispatcher.
type Options struct {
	Store *storage.Store
	// Update writes to Store, and waits while its disk is full. When ctx ends it
	// still writes, but waits no longer: then the error is storage.ErrFull.
	Update func(ctx context.Context, fn func(*storage.Tx) error) error
	Sinks  []Sink
	Log    *slog.Logger
	Now    func() time.Time
	Grace  time.Duration // how long a stop waits for deliveries under way before it cuts them
}

// Dispatcher delivers the events of a store to sinks. It runs once.
type Dispatcher struct {
	opts  Options
	lanes []*lane
}

// Report is what one Run did, and what it has left.
type Report struct {
	Delivered   int               // events
	Dead        int               // events that were given up
	Undelivered int               // events that are pending for the sinks
	Waiting     map[string]string // why, by sink that has such
}

// New makes a dispatcher.
func New(opts Options) *Dispatcher {
	d := &Dispatcher{opts: opts}
	for i := range opts.Sinks {
		l := newLane(&d.opts, &opts.Sinks[i])
		if t, ok := l.sink.Transport.(teller); ok {
			t.setLog(l.log)
		}
		d.lanes = append(d.lanes, l)
	}
	return d
}

// Run delivers what is pending and what becomes so, until done is closed: then it
// ends when nothing is left that it could deliver within patience. When ctx ends
// it stops cleanly: no delivery begins, those under way may end within Grace,
// and what was not sent goes back. At the end it closes the transports that have
// returned. Its error is the store's.
func (d *Dispatcher) Run(ctx context.Context, done <-chan struct{}) error {
	err := d.takeOver(ctx)
	if err == nil {
		err = d.deliver(ctx, done)
	}
	for _, l := range d.lanes {
		if l.slots > 0 { // it goes on past its time, with what Close would let go of
			continue
		}
		if err := l.sink.Transport.Close(); err != nil {
			l.log.Error("a sink could not be closed", "error", err)
		}
	}
	return err
}

// takeOver ends what a process that is dead had under way, and tells of events
// that nobody delivers.
func (d *Dispatcher) takeOver(ctx context.Context) error {
	var rescued int
	var counts map[string]storage.SinkCounts
	err := d.opts.Update(ctx, func(tx *storage.Tx) (err error) {
		counts = tx.SinkCounts()
		rescued, err = tx.RescueDeliveries()
		return err
	})
	if errors.Is(err, storage.ErrFull) && ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("taking over the outbox: %w", err)
	}
	if rescued > 0 {
		d.opts.Log.Warn("deliveries were under way when a process died: they may have arrived, and go again under the same ids", "events", rescued)
	}
	for _, s := range d.opts.Sinks {
		delete(counts, s.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[name].Pending; n > 0 {
			d.opts.Log.Warn("a sink is not in the config: its events are kept and not delivered", "sink", name, "events", n)
		}
	}
	return nil
}

// deliver works the lanes until all have ended.
func (d *Dispatcher) deliver(ctx context.Context, done <-chan struct{}) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, l := range d.lanes {
		group.Go(func() error { return l.run(groupCtx) })
	}
	listenCtx, end := context.WithCancel(groupCtx)
	var listening sync.WaitGroup
	listening.Go(func() { d.listen(listenCtx, done) })
	err := group.Wait()
	end()
	listening.Wait()
	return err
}

// listen passes on to the lanes which events became pending, and that no more
// will.
func (d *Dispatcher) listen(ctx context.Context, done <-chan struct{}) {
	for {
		last := false
		select {
		case <-ctx.Done():
			return
		case <-d.opts.Store.Queued():
		case <-done:
			done, last = nil, true
		}
		queued := d.opts.Store.TakeQueued()
		for _, l := range d.lanes {
			if first, ok := queued[l.sink.Name]; ok {
				l.bell.ring(first)
			}
			if last { // after the bell, for what was committed before done
				close(l.final)
			}
		}
	}
}

// Report says what was done so far. Its error is the store's.
func (d *Dispatcher) Report() (Report, error) {
	r := Report{Waiting: map[string]string{}}
	var counts map[string]storage.SinkCounts
	err := d.opts.Store.View(func(tx *storage.Tx) error {
		counts = tx.SinkCounts()
		return nil
	})
	for _, l := range d.lanes {
		r.Delivered += int(l.delivered.Load())
		r.Dead += int(l.dead.Load())
		if n := int(counts[l.sink.Name].Pending); n > 0 {
			r.Undelivered += n
			r.Waiting[l.sink.Name] = l.why()
		}
	}
	return r, err
}

// bell tells a lane which events became pending: the first of them counts.
type bell struct {
	mu    sync.Mutex
	rung  bool
	first uint64
	wake  chan struct{} // one token when rung
}

func (b *bell) ring(first uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.rung || first < b.first {
		b.first = first
	}
	b.rung = true
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take silences the bell.
func (b *bell) take() (first uint64, rung bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first, rung = b.first, b.rung
	b.rung = false
	return first, rung
}

func (b *bell) isRung() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rung
}
