package delivery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"semel/storage"
	"semel/storage/storagetest"
)

// story is one life of a store and its consumer, over some processes.
type story struct {
	keys, inFlight, batch, attempts int
	bad                             int // how many of ten deliveries do not go well
	phases                          []phase
	seed                            uint64
}

// phase is one process: it works for a time, and then it is killed or stopped.
type phase struct {
	emits    int // events of each key before it
	requeues int // events of any state, while it works
	millis   int
	kill     bool
	written  bool // the transaction under way when it is killed is durable
}

func drawStory(t *rapid.T) story {
	s := story{
		keys:     rapid.IntRange(1, 5).Draw(t, "keys"),
		inFlight: rapid.IntRange(1, 4).Draw(t, "in flight"),
		batch:    rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "batch"),
		attempts: rapid.SampledFrom([]int{2, 15}).Draw(t, "attempts"),
		bad:      rapid.IntRange(0, 8).Draw(t, "bad"),
		seed:     rapid.Uint64().Draw(t, "seed"),
	}
	for range rapid.IntRange(1, 5).Draw(t, "phases") {
		s.phases = append(s.phases, phase{
			emits:    rapid.IntRange(0, 4).Draw(t, "emits"),
			requeues: rapid.IntRange(0, 2).Draw(t, "requeues"),
			millis:   rapid.IntRange(0, 20_000).Draw(t, "millis"),
			kill:     rapid.Bool().Draw(t, "kill"),
			written:  rapid.Bool().Draw(t, "written"),
		})
	}
	return s
}

// random answers as its seed says: an event is kept or not, and the dispatcher
// hears of it or not.
type random struct {
	consumer
	dice   *rand.Rand // guarded by mu
	bad    int
	kept   []string // every arrival
	honest bool     // from now on all goes well
}

func (c *random) deliver(ctx context.Context, name string, _ int) Result {
	c.mu.Lock()
	wait := time.Duration(c.dice.IntN(200)) * time.Millisecond
	fate, had := 10, slices.Contains(c.kept, name)
	if !c.honest && c.dice.IntN(10) < c.bad {
		fate = c.dice.IntN(4)
	}
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		return maybe
	case <-time.After(wait):
	}
	switch fate {
	case 0:
		return maybe
	case 1:
		return again
	case 2:
		return Result{Outcome: storage.OutcomeAgain, Reason: "429", RetryAfter: 7 * time.Second}
	}
	c.mu.Lock()
	c.kept = append(c.kept, name)
	c.mu.Unlock()
	switch {
	case fate == 3:
		return maybe
	case had:
		return Result{Outcome: storage.OutcomeDeduplicated}
	}
	return ok
}

// TestAtLeastOnceInOrder lets processes die and consumers fail at random: in the
// end each event has arrived under its id, those of a key in their order, and
// more than once only where the store says that it may have.
func TestAtLeastOnceInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawStory(rt)
		var faults []string
		synctest.Test(t, func(t *testing.T) { faults = s.play(t) })
		if len(faults) > 0 {
			rt.Fatalf("%+v:\n%s", s, strings.Join(faults, "\n"))
		}
	})
}

// errKilled is what a process that is killed can write.
var errKilled = errors.New("killed")

func (s story) play(t *testing.T) (faults []string) {
	c := &random{dice: rand.New(rand.NewPCG(s.seed, 1)), bad: s.bad}
	c.answer = c.deliver
	a := sink("a", s.inFlight, &c.consumer)
	a.Batch, a.Limits.Attempts = s.batch, s.attempts
	r := setup(t, a)
	var names []string
	for i, p := range s.phases {
		names = append(names, s.emit(r, i, p.emits)...)
		s.work(r, c, p, names)
	}
	c.honest = true
	for range 100 { // until the backoff of all is over
		r.retryDead()
		c.closed = false
		if r.once().Undelivered+len(r.dead()) == 0 {
			break
		}
		time.Sleep(10 * time.Minute)
	}
	faults = append(c.faults, r.losses(c, names)...)
	return append(faults, disorder(r, c, names)...)
}

func (s story) emit(r *rig, phase, n int) (names []string) {
	for i := range n {
		var facts []fact
		for k := range s.keys {
			f := fact{fmt.Sprintf("k%d", k), fmt.Sprintf("%d.%d", phase, i)}
			facts = append(facts, f)
			names = append(names, f.key+"="+f.value)
		}
		emit(r.t, r.store, []string{"a"}, facts...)
	}
	return names
}

// work is one process.
func (s story) work(r *rig, c *random, p phase, names []string) {
	c.closed = false
	var killed atomic.Bool
	r.update = func(ctx context.Context, fn func(*storage.Tx) error) error {
		if killed.Load() && !p.written {
			return errKilled
		}
		err := r.store.Update(context.WithoutCancel(ctx), fn)
		if killed.Load() {
			return errKilled
		}
		return err
	}
	_, stop := r.start()
	for range p.requeues {
		time.Sleep(time.Duration(p.millis) * time.Millisecond / 3)
		if len(names) > 0 {
			c.mu.Lock()
			name := names[c.dice.IntN(len(names))]
			c.mu.Unlock()
			r.requeue("a", name)
		}
	}
	time.Sleep(time.Duration(p.millis) * time.Millisecond)
	killed.Store(p.kill)
	if err := stop(); err != nil && !errors.Is(err, errKilled) {
		r.t.Fatal(err)
	}
	r.update = nil
	storagetest.Check(r.t, r.store)
}

func (r *rig) each(fn func(e *storage.Event, d *storage.Dispatch)) {
	r.t.Helper()
	if err := r.store.View(func(tx *storage.Tx) error {
		for seq := uint64(1); ; seq++ {
			e, err := tx.Event(seq)
			if errors.Is(err, storage.ErrNotFound) {
				return nil
			}
			d, err := tx.Dispatch(seq, "a")
			if err != nil {
				return err
			}
			fn(e, d)
		}
	}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) dead() (names []string) {
	r.each(func(e *storage.Event, d *storage.Dispatch) {
		if d.State == storage.DispatchDead {
			names = append(names, nameOf(e))
		}
	})
	return names
}

func (r *rig) retryDead() {
	for _, name := range r.dead() {
		r.requeue("a", name)
	}
}

// losses are events that have not arrived, are not delivered, or arrived more
// often than the store knows a reason for.
func (r *rig) losses(c *random, names []string) (faults []string) {
	seen := 0
	r.each(func(e *storage.Event, d *storage.Dispatch) {
		seen++
		name, arrivals := nameOf(e), 0
		for _, kept := range c.kept {
			if kept == name {
				arrivals++
			}
		}
		if arrivals == 0 || d.State != storage.DispatchDelivered {
			faults = append(faults, fmt.Sprintf("%s is %s and arrived %d times", name, d.State, arrivals))
		}
		if allowed := 1 + int(d.Ambiguous) + r.requeues[name]; arrivals > allowed {
			faults = append(faults, fmt.Sprintf("%s arrived %d times, explained are %d", name, arrivals, allowed))
		}
	})
	if seen != len(names) {
		faults = append(faults, fmt.Sprintf("%d events of %d", seen, len(names)))
	}
	if taken := r.taken("a"); len(taken) > 0 {
		faults = append(faults, fmt.Sprintf("still taken: %v", taken))
	}
	return faults
}

// disorder are keys whose events, but for those sent again by a person, did not
// first arrive in the order of names.
func disorder(r *rig, c *random, names []string) (faults []string) {
	last := map[string]int{}
	seen := map[string]bool{}
	for _, name := range c.kept {
		if seen[name] || r.requeues[name] > 0 {
			continue
		}
		seen[name] = true
		key, _, _ := strings.Cut(name, "=")
		at := slices.Index(names, name)
		if before, ok := last[key]; ok && at < before {
			faults = append(faults, fmt.Sprintf("%s arrived after %s", name, names[before]))
		}
		last[key] = at
	}
	return faults
}
