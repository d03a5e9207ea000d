package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"semel/engine"
	"semel/storage"
)

// life is one process, from its start to its end.
type life struct {
	w     *world
	n     int
	store *storage.Store
	off   chan struct{}      // closed when the power goes
	ended chan struct{}      // closed when the engine has ended
	ctx   context.Context    // ends when the power goes
	stop  context.CancelFunc // asks the engine to stop
	group sync.WaitGroup     // all that goes on beside the engine

	disturbed bool        // something may befall it
	succeeded atomic.Bool // another engine works beside the one that ends
}

// live is one life: a process starts with what is durable, works until it is
// done or its end comes, and leaves what is durable then.
func (w *world) live(n int) {
	l := &life{w: w, n: n, off: make(chan struct{}), ended: make(chan struct{})}
	ctx, kill := context.WithTimeout(context.Background(), maxTime)
	defer kill()
	l.ctx = ctx
	ctx, l.stop = context.WithCancel(ctx)
	w.disk.on(func() { close(l.off); kill() })
	w.logf("life %d", n)
	if !l.open() {
		return
	}
	l.plan()
	l.group.Go(l.submit)
	l.group.Go(l.attend)
	l.work(ctx, "engine")
	close(l.ended)
	l.group.Wait()
	if w.disk.failure() == nil {
		l.check()
		l.checkLeases()
	}
	// A dead process that has met no failpoint does not know that it is dead.
	_ = l.store.Update(context.Background(), func(*storage.Tx) error { return nil })
	if err := l.store.Close(); err != nil {
		w.failf("closing the store: %v", err)
	}
	w.disk.settle()
}

// open opens the store, which must be sound and what was durable.
func (l *life) open() bool {
	s, err := storage.Open(l.w.disk.path, storage.Options{NoSync: true, Gather: engine.Gather, Now: l.w.clock.now})
	if err != nil {
		l.w.failf("opening the store: %v", err)
		return false
	}
	l.store, l.w.life = s, l
	l.check()
	l.w.ledger.reopened(l.w.look())
	return true
}

// check is `semel verify`.
func (l *life) check() {
	breaches, err := l.store.Check()
	if err != nil {
		l.w.failf("checking the store: %v", err)
	}
	for _, b := range breaches {
		l.w.failf("breach: %s", b)
	}
}

// checkLeases wants no lease to be held and no delivery to be under way when the
// engines have ended, unless there was no room to say so.
func (l *life) checkLeases() {
	if l.w.disk.wasFull() {
		return
	}
	for _, j := range l.w.ledger.state().jobs {
		if j.State == storage.StateRunning {
			l.w.failf("the engine has ended, and %s is running", name(j))
		}
	}
	for _, sink := range sinkNames {
		if taken := l.w.ledger.state().taken(sink); len(taken) > 0 {
			l.w.failf("the engine has ended, and %s may be getting events %d", sink, taken)
		}
	}
}

// work runs an engine over the store until it ends.
func (l *life) work(ctx context.Context, owner string) {
	e, err := engine.New(l.options(owner))
	if err != nil {
		l.w.failf("making an engine: %v", err)
		return
	}
	defer e.Close()
	sum, err := e.RunOnce(ctx)
	ended := err
	if errors.Is(err, storage.ErrStopped) { // of all that it stopped one is named, any
		ended = storage.ErrStopped
	}
	l.w.logf("%s ends: completed %d, failed %d, retried %d, released %d, stale %d, rescued %d, open %d, paused %d, delivered %d, dead %d, undelivered %d %v, error %v",
		owner, sum.Completed, sum.Failed, sum.Retried, sum.Released, sum.Stale, sum.Rescued, sum.Open, len(sum.Paused), sum.Delivered, sum.Dead, sum.Undelivered, sum.Waiting, ended)
	if err != nil && (l.w.disk.failure() == nil || !errors.Is(err, storage.ErrStopped)) {
		l.w.failf("the engine ended with %v", err)
	}
	if errors.Is(l.ctx.Err(), context.DeadlineExceeded) {
		l.w.failf("the engine did not end in %s", maxTime)
	}
}

func (l *life) options(owner string) engine.Options {
	return engine.Options{
		Store: l.store, Owner: fmt.Sprintf("%s of life %d", owner, l.n), Log: slog.New(l.w.log()),
		Workers: 16, Lease: lease, Grace: time.Second, UserAgent: "simulation",
		MaxBodyBytes: 1 << 20, AllowPrivate: true, Pacing: pacing,
		Proxies: l.w.catalog.proxies, Sources: l.w.catalog.sources, Sinks: l.sinks(),
		Bodies: engine.BodiesAll, Now: l.w.clock.now, Transport: l,
	}
}

func (l *life) dead() bool {
	select {
	case <-l.off:
		return true
	default:
		return false
	}
}

// wait waits about d, or less where ctx ends or the power goes.
func (l *life) wait(ctx context.Context, d time.Duration, what ...any) {
	timer := time.NewTimer(l.w.seed.until(d, what...))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-l.off:
	}
}

// rest waits about d, and reports whether the engine still runs then.
func (l *life) rest(d time.Duration, what ...any) bool {
	timer := time.NewTimer(l.w.seed.until(d, what...))
	defer timer.Stop()
	select {
	case <-timer.C:
		return !l.dead()
	case <-l.ended:
	case <-l.off:
	}
	return false
}

func (l *life) draw(what ...any) draw { return l.w.seed.draw(l.n, what) }

// submit hands in the windowed jobs, one by one, each until it is told that the
// job is durable.
func (l *life) submit() {
	l.wait(l.ctx, l.draw("submit").between(0, 15*time.Second), "submit", l.n)
	for i, job := range l.w.catalog.windowed {
		for try := 0; ; try++ {
			err := l.submitOne(job)
			if errors.Is(err, storage.ErrStopped) {
				return
			}
			if err == nil {
				break
			}
			l.wait(l.ctx, time.Second, "submit", l.n, i, try)
		}
	}
}

// submitOne submits a job. It is new exactly if the ledger did not know it, and
// once this has succeeded the ledger does.
func (l *life) submitOne(job storage.NewJob) error {
	var done storage.Enqueued
	_, known := l.w.ledger.find(job.URL)
	err := l.store.Update(context.Background(), func(tx *storage.Tx) (err error) {
		done, err = tx.EnqueueJob(job)
		return err
	})
	if err != nil {
		return err
	}
	if _, durable := l.w.ledger.find(job.URL); !durable || known == done.New {
		l.w.failf("%s was submitted: known before %v, new %v, durable %v", job.Key, known, done.New, durable)
	}
	return nil
}

// log is where engines log to: the trace, if somebody is to read it.
func (w *world) log() slog.Handler {
	if !w.verbose {
		return slog.DiscardHandler
	}
	return slog.NewTextHandler(traceWriter{w}, &slog.HandlerOptions{Level: slog.LevelDebug})
}

type traceWriter struct{ w *world }

func (t traceWriter) Write(line []byte) (int, error) {
	t.w.logf("%s", line[:len(line)-1])
	return len(line), nil
}
