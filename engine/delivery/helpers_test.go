package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"semel/storage"
	"semel/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fact is one event to make: the row of a key gets a value.
type fact struct{ key, value string }

// emit commits facts for the sinks, as many as there are in one transaction, and
// gives the last event's number.
func emit(t testing.TB, s *storage.Store, sinks []string, facts ...fact) {
	t.Helper()
	var subscribed []storage.Subscription
	for _, name := range sinks {
		subscribed = append(subscribed, storage.Subscription{Sink: name, Events: []string{storage.EventCreated, storage.EventUpdated}})
	}
	err := s.Update(context.Background(), func(tx *storage.Tx) error {
		var made []storage.Enqueued
		for i, f := range facts {
			window := time.Unix(tx.Counters("s").State(storage.StateComplete)+int64(i), 0).UTC()
			done, err := tx.EnqueueJob(storage.NewJob{
				Key: storage.JobKey{Source: "s", Target: f.key, Window: window}, Window: window, URL: "http://h/", Host: "h",
			})
			if err != nil {
				return err
			}
			made = append(made, done)
		}
		groups, err := tx.ClaimJobs("me", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: len(facts)}})
		if err != nil {
			return err
		}
		for i, j := range groups[0] {
			if j.ID != made[i].ID {
				return fmt.Errorf("claimed job %d before %d", j.ID, made[i].ID)
			}
			if _, err := tx.CompleteJob(j.Lease(), storage.Completion{
				Attempt: storage.Attempt{FinalURL: "http://h/", ParserVersion: 1, Records: 1}, Mode: storage.WriteUpsert,
				Records: []storage.NewObservation{{Key: facts[i].key, Data: fmt.Appendf(nil, `{"v":%q}`, facts[i].value)}},
				Sinks:   subscribed,
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rows are facts of n keys, one for each.
func rows(prefix string, n int) []fact {
	facts := make([]fact, n)
	for i := range facts {
		facts[i] = fact{fmt.Sprintf("%s%d", prefix, i), "1"}
	}
	return facts
}

// versions are n facts of one key, after another.
func versions(key string, n int) []fact {
	facts := make([]fact, n)
	for i := range facts {
		facts[i] = fact{key, fmt.Sprint(i + 1)}
	}
	return facts
}

// nameOf is a fact as key=value, read from an event.
func nameOf(e *storage.Event) string {
	key := strings.Split(e.Key, ":")[1]
	_, rest, _ := strings.Cut(string(e.Data), `"v":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return key + "=" + value
}

var (
	ok    = Result{Outcome: storage.OutcomeDelivered}
	again = Result{Outcome: storage.OutcomeAgain, Reason: "503"}
	maybe = Result{Outcome: storage.OutcomeAmbiguous, Reason: "cut"}
)

// consumer is a transport that writes down what reaches it.
type consumer struct {
	answer func(ctx context.Context, name string, try int) Result // nil: all arrives

	mu     sync.Mutex
	got    []string        // that arrived, in their order
	all    []string        // every delivery, in their order
	times  []time.Time     // of all
	tries  map[string]int  // by name
	now    int             // deliveries under way
	most   int             // of now
	keys   map[string]bool // under way
	faults []string        // of the order
	sizes  []int           // of batches
	closed bool
}

func (c *consumer) Deliver(ctx context.Context, events []*storage.Event) []Result {
	c.begin(events)
	defer c.end(events)
	results := make([]Result, len(events))
	for i, e := range events {
		name := nameOf(e)
		c.mu.Lock()
		c.tries[name]++
		try := c.tries[name]
		c.all, c.times = append(c.all, name), append(c.times, time.Now())
		c.mu.Unlock()
		results[i] = ok
		if c.answer != nil {
			results[i] = c.answer(ctx, name, try)
		}
		if o := results[i].Outcome; o == storage.OutcomeDelivered || o == storage.OutcomeDeduplicated {
			c.mu.Lock()
			c.got = append(c.got, name)
			c.mu.Unlock()
		}
	}
	return results
}

func (c *consumer) begin(events []*storage.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tries == nil {
		c.tries, c.keys = map[string]int{}, map[string]bool{}
	}
	if c.closed {
		c.faults = append(c.faults, "a delivery after Close")
	}
	c.now++
	c.most = max(c.most, c.now)
	c.sizes = append(c.sizes, len(events))
	for _, e := range events {
		if c.keys[e.Key] {
			c.faults = append(c.faults, e.Key+" is under way twice")
		}
		c.keys[e.Key] = true
	}
}

func (c *consumer) end(events []*storage.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
	for _, e := range events {
		delete(c.keys, e.Key)
	}
}

func (c *consumer) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

// of are those of a list that are of a key.
func of(key string, names []string) []string {
	var list []string
	for _, name := range names {
		if strings.HasPrefix(name, key+"=") {
			list = append(list, name)
		}
	}
	return list
}

// rig is a store with a dispatcher and what it logs.
type rig struct {
	t     *testing.T
	path  string
	store *storage.Store
	sinks []Sink
	log   strings.Builder
	logMu sync.Mutex
	grace time.Duration

	update   func(context.Context, func(*storage.Tx) error) error // nil: the store's
	requeues map[string]int                                       // by name
}

func (r *rig) Write(p []byte) (int, error) {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	return r.log.Write(p)
}

func (r *rig) logged() string {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	return r.log.String()
}

// setup opens a store inside of a bubble.
func setup(t *testing.T, sinks ...Sink) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "semel.db"), sinks: sinks, grace: 8 * time.Second, requeues: map[string]int{}}
	r.store = storagetest.OpenAt(t, r.path, storage.Options{NoSync: true})
	return r
}

// sink is one with room for n deliveries.
func sink(name string, n int, to Transport) Sink {
	return Sink{Name: name, Transport: to, InFlight: n, Batch: 1, Timeout: 10 * time.Second, Limits: Limits{Attempts: 15, Time: 72 * time.Hour}}
}

func (r *rig) dispatcher() *Dispatcher {
	update := r.update
	if update == nil {
		update = func(ctx context.Context, fn func(*storage.Tx) error) error {
			return r.store.Update(context.WithoutCancel(ctx), fn)
		}
	}
	return New(Options{Store: r.store, Update: update, Sinks: r.sinks, Log: slog.New(slog.NewTextHandler(r, nil)), Now: time.Now, Grace: r.grace})
}

// once delivers what is there until nothing is left to do.
func (r *rig) once() Report {
	r.t.Helper()
	done := make(chan struct{})
	close(done)
	d := r.dispatcher()
	if err := d.Run(r.t.Context(), done); err != nil {
		r.t.Fatal(err)
	}
	storagetest.Check(r.t, r.store)
	return r.report(d)
}

func (r *rig) report(d *Dispatcher) Report {
	r.t.Helper()
	report, err := d.Report()
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

// start runs a dispatcher until stop, which gives its error.
func (r *rig) start(change ...func(*Dispatcher)) (d *Dispatcher, stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	d = r.dispatcher()
	for _, fn := range change {
		fn(d)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx, nil) }()
	synctest.Wait()
	return d, func() error {
		cancel()
		return <-ended
	}
}

// pass lets time pass, and all that it makes due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// dispatch is how far the event of a fact is.
func (r *rig) dispatch(sink, name string) *storage.Dispatch {
	r.t.Helper()
	var d *storage.Dispatch
	if err := r.store.View(func(tx *storage.Tx) (err error) {
		d, err = tx.Dispatch(r.seq(tx, name), sink)
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	return d
}

// seq is the number of the event of a fact: the tests make no others.
func (r *rig) seq(tx *storage.Tx, name string) uint64 {
	for seq := uint64(1); ; seq++ {
		e, err := tx.Event(seq)
		if err != nil {
			r.t.Fatalf("%s: %v", name, err)
		}
		if nameOf(e) == name {
			return seq
		}
	}
}

func (r *rig) taken(sink string) (taken []uint64) {
	r.t.Helper()
	if err := r.store.View(func(tx *storage.Tx) error {
		s, err := tx.Sink(sink)
		taken = s.Taken
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	return taken
}

func (r *rig) requeue(sink, name string) {
	r.t.Helper()
	r.requeues[name]++
	if err := r.store.Update(context.Background(), func(tx *storage.Tx) error {
		return tx.RequeueEvent(r.seq(tx, name), sink)
	}); err != nil {
		r.t.Fatal(err)
	}
}

func wantNames(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
