package simulation

import (
	"context"
	"slices"
	"sync"
	"time"

	"semel/engine/delivery"
	"semel/storage"
)

const (
	sinkTimeout = 10 * time.Second // of a delivery
	// sinkOverdue is longer than the dispatcher waits for a transport that does
	// not hear the end of its time.
	sinkOverdue = 6 * time.Second
	// failuresInRow make a dispatcher take a sink for down.
	failuresInRow = 5
)

// What befalls deliveries beside deliveryFaults.
const (
	sinkDown      = "sink: down for a while"
	sinkPaused    = "sink: five deliveries in a row fail"
	diesArrives   = "process dies while an event is on its way, and it arrives"
	diesLost      = "process dies while an event is on its way, and it is lost"
	lateArrival   = "an event arrives after the end of its process"
	personReplays = "a person sends an event again that had arrived"
)

var deliveryFates = []string{sinkDown, sinkPaused, diesArrives, diesLost, lateArrival, personReplays}

// consumer is who is behind a sink, through all lives: it knows each event by its
// id, and says so when it gets one again.
type consumer struct {
	w    *world
	sink string

	mu       sync.Mutex
	sent     map[string]int    // deliveries that began, by id
	arrived  map[string]int    // by id
	last     map[string]uint64 // the latest event that has arrived, by key
	acked    map[string]bool   // ids of which a process was told that they have arrived
	unsure   map[string]bool   // ids of which one could not know
	failures int               // of deliveries, in a row, in this life
	deaf     bool              // a delivery goes on past its time
	down     bool
}

func newConsumer(w *world, sink string) *consumer {
	return &consumer{
		w: w, sink: sink, sent: map[string]int{}, arrived: map[string]int{}, last: map[string]uint64{},
		acked: map[string]bool{}, unsure: map[string]bool{},
	}
}

// line is the way of one process to a consumer.
type line struct {
	*consumer
	life *life
}

// sinks are the consumers as an engine of this life knows them: one takes events
// one by one and some at once, like a webhook, the other several in one delivery,
// like a file. Either gives an event up, the first one soon: then a person has to
// send it again.
func (l *life) sinks() []delivery.Sink {
	s := []delivery.Sink{
		{Name: hookSink, InFlight: 3, Batch: 1, Limits: delivery.Limits{Attempts: 2, Time: time.Hour}},
		{Name: auditSink, InFlight: 1, Batch: 4, Limits: delivery.Limits{Attempts: 3, Time: 72 * time.Hour}},
	}
	for i := range s {
		c := l.w.consumers[s[i].Name]
		c.set(func() { c.failures = 0 })
		s[i].Transport, s[i].Timeout = &line{c, l}, sinkTimeout
	}
	return s
}

func (c *consumer) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// Deliver gives the events to the consumer, one after the other.
func (n *line) Deliver(ctx context.Context, events []*storage.Event) []delivery.Result {
	n.w.onTheWay.Add(1)
	defer n.w.onTheWay.Done()
	results := make([]delivery.Result, len(events))
	for i := range events {
		results[i] = n.deliver(ctx, events, i)
	}
	n.heard(events, results)
	return results
}

// Close does nothing: nothing was opened.
func (n *line) Close() error { return nil }

// heard notes what a process has heard, unless it is dead.
func (n *line) heard(events []*storage.Event, results []delivery.Result) {
	if n.life.dead() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	arrived := false
	for i, r := range results {
		switch r.Outcome {
		case storage.OutcomeDelivered, storage.OutcomeDeduplicated:
			n.acked[events[i].ID], arrived = true, true
		case storage.OutcomeAmbiguous:
			n.unsure[events[i].ID] = true
		}
	}
	if arrived {
		n.failures = 0
	} else if n.failures++; n.failures == failuresInRow {
		n.w.met(sinkPaused)
	}
}

// parcel is one event on its way.
type parcel struct {
	*line
	with  []*storage.Event // all of its delivery
	event *storage.Event
	nth   int // delivery of this event, from 1
}

func (n *line) deliver(ctx context.Context, events []*storage.Event, i int) delivery.Result {
	if n.life.dead() || ctx.Err() != nil { // nothing is sent any more
		return unsure
	}
	p := n.enter(events, i)
	err := p.wait(ctx, p.draw("latency").between(5*time.Millisecond, 300*time.Millisecond))
	switch {
	case n.life.dead():
		return p.orphan()
	case err != nil:
		return unsure
	}
	r := p.answer(ctx)
	if r.Outcome != "" {
		n.w.logf("%s says %s to event %d", n.sink, r.Outcome, p.event.Seq)
	}
	return r
}

// enter notes that an event leaves a process, which must have said durably that
// it will.
func (n *line) enter(events []*storage.Event, i int) *parcel {
	e := events[i]
	// A successor's mark may end with a delivery of the engine before it.
	if !n.w.ledger.taken(n.sink, e.Seq) && !n.life.succeeded.Load() {
		n.w.failf("event %d was sent to %s, and the store does not know that it was about to be", e.Seq, n.sink)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent[e.ID]++
	return &parcel{n, events, e, n.sent[e.ID]}
}

var (
	refused = delivery.Result{Outcome: storage.OutcomeAgain, Reason: "it was refused"}
	unsure  = delivery.Result{Outcome: storage.OutcomeAmbiguous, Reason: "nobody said a word"}
)

// deliveryFault is one way in which a delivery fails, or seems to.
type deliveryFault struct {
	name   string
	deaf   bool // to the end of its time
	answer func(context.Context, *parcel) delivery.Result
}

// deliveryFaults are all.
var deliveryFaults = []deliveryFault{
	{"sink: refuses an event", false, func(context.Context, *parcel) delivery.Result { return refused }},
	{"sink: 429 with Retry-After", false, func(_ context.Context, p *parcel) delivery.Result {
		r := refused
		r.RetryAfter = p.draw("retry after").between(2*time.Second, 20*time.Second)
		return r
	}},
	{"sink: keeps an event and breaks", false, func(_ context.Context, p *parcel) delivery.Result {
		p.arrive()
		return unsure
	}},
	{"sink: keeps an event and hangs", false, func(ctx context.Context, p *parcel) delivery.Result {
		p.arrive()
		_ = p.wait(ctx, time.Hour)
		return unsure
	}},
	{"sink: hangs", false, func(ctx context.Context, p *parcel) delivery.Result {
		_ = p.wait(ctx, time.Hour)
		return unsure
	}},
	{"sink: hangs past its time and keeps the event", true, func(_ context.Context, p *parcel) delivery.Result { return p.overdue() }},
	{"sink: 410, it wants no more", false, func(context.Context, *parcel) delivery.Result {
		r := refused
		r.Stop = true
		return r
	}},
}

// answer chooses what the consumer does with an event.
func (p *parcel) answer(ctx context.Context) delivery.Result {
	if p.isDown() {
		p.w.met(sinkDown)
		return refused
	}
	if f := p.fault(); f != nil {
		p.w.met(f.name)
		return f.answer(ctx, p)
	}
	if p.arrive() > 1 {
		return delivery.Result{Outcome: storage.OutcomeDeduplicated}
	}
	return delivery.Result{Outcome: storage.OutcomeDelivered}
}

// said is what a process was told of an event, at any time: that it has arrived,
// and nothing that it could be sure of.
func (c *consumer) said(id string) (acked, nothing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acked[id], c.unsure[id]
}

func (c *consumer) isDown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down
}

// fault is what one of the first few deliveries of an event meets; nil: nothing.
func (p *parcel) fault() *deliveryFault {
	if p.w.calm || p.nth > p.w.seed.draw("faults of", p.sink, p.event.ID).below(3) {
		return nil
	}
	f := &deliveryFaults[p.draw("fault").below(len(deliveryFaults))]
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.deaf && p.deaf { // two of one age would be given up at one instant
		return nil
	}
	p.deaf = p.deaf || f.deaf
	return f
}

// overdue is a delivery that ends long after anybody waits for it: also what was
// said to the other events is not heard.
func (p *parcel) overdue() delivery.Result {
	p.set(func() {
		for _, e := range p.with {
			p.unsure[e.ID] = true
		}
	})
	defer p.set(func() { p.deaf = false })
	p.waitDeaf(sinkTimeout + sinkOverdue + p.draw("overdue").between(0, 20*time.Second))
	select {
	case <-p.life.ended:
		p.w.met(lateArrival)
	default:
	}
	p.arrive()
	return unsure
}

// orphan is an event that was on its way when its process died.
func (p *parcel) orphan() delivery.Result {
	if p.draw("orphan").oneIn(2) {
		p.w.met(diesArrives)
		p.arrive()
	} else {
		p.w.met(diesLost)
	}
	return delivery.Result{}
}

// arrive is the consumer getting an event: one that is durable, no more often
// than the store can explain at this moment, and of its key none before those
// that came before it.
func (p *parcel) arrive() (times int) {
	e := p.event
	if !p.w.ledger.knows(e) {
		p.w.failf("%s got event %s (%s of %s), which is not durable", p.sink, e.ID, e.Type, e.Key)
	}
	explained, excused := p.w.ledger.arrivals(p.sink, e.Seq)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrived[e.ID]++
	times = p.arrived[e.ID]
	if times > explained {
		p.w.failf("%s got event %d %d times, the store explains %d", p.sink, e.Seq, times, explained)
	}
	if times == 1 && e.Seq < p.last[e.Key] && !excused {
		p.w.failf("%s got event %d of %s after event %d", p.sink, e.Seq, e.Key, p.last[e.Key])
	}
	p.last[e.Key] = max(p.last[e.Key], e.Seq)
	return times
}

func (p *parcel) draw(what string) draw {
	return p.w.seed.draw(what, p.sink, p.event.ID, p.nth)
}

// wait takes a time, or less where the delivery's is over or the process dies.
func (p *parcel) wait(ctx context.Context, d time.Duration) error {
	p.life.wait(ctx, d, p.sink, p.event.ID, p.nth, d)
	if ctx.Err() != nil { // deliveries that are told at one instant answer one by one
		p.waitDeaf(time.Millisecond)
	}
	return ctx.Err()
}

// waitDeaf does not hear that the delivery's time is over.
func (p *parcel) waitDeaf(d time.Duration) {
	p.life.wait(context.Background(), d, p.sink, p.event.ID, p.nth, d)
}

// sinkFails is a spell of a consumer's.
func sinkFails(l *life, name string) {
	c := l.w.consumers[oneOf(l.draw("sink that is down"), sinkNames)]
	l.later(name, func() {
		c.set(func() { c.down = true })
		l.wait(l.ctx, l.draw(name, "for").between(5*time.Second, 60*time.Second), name, "over", l.n)
		c.set(func() { c.down = false })
	})
}

// attend is a person who looks after the sinks, also when no engine works.
func (l *life) attend() {
	for round := 0; ; round++ {
		running := l.rest(l.draw("attends", round).between(4*time.Second, 20*time.Second), "attend", l.n, round)
		if l.dead() {
			return
		}
		for _, sink := range sinkNames {
			l.attendSink(sink, round)
		}
		if !running {
			return
		}
	}
}

// attendSink starts a sink that has stopped, and sends again what was given up,
// and now and then something that had arrived.
func (l *life) attendSink(sink string, round int) {
	st := l.w.ledger.state()
	again := st.events(sink, storage.DispatchDead)
	arrived := st.events(sink, storage.DispatchDelivered)
	replays := l.disturbed && len(arrived) > 0 && l.draw("replay", sink, round).oneIn(40)
	if replays {
		again = append(again, oneOf(l.draw("replayed", sink, round), arrived))
	}
	if len(again) == 0 && !st.stopped(sink) {
		return
	}
	err := l.store.Update(context.Background(), func(tx *storage.Tx) error {
		for _, seq := range again {
			if err := tx.RequeueEvent(seq, sink); err != nil {
				return err
			}
		}
		return tx.StartSink(sink)
	})
	if err == nil && replays {
		l.w.met(personReplays)
	}
}

// checkDeliveries wants every event to have arrived where it is wanted.
func (w *world) checkDeliveries() {
	st := w.ledger.state()
	for _, sink := range sinkNames {
		for _, seq := range st.events(sink, storage.DispatchStates...) {
			e := st.outbox[seq]
			if w.consumers[sink].arrived[e.ID] == 0 {
				w.failf("event %s (%s of %s) has never arrived at %s", e.ID, e.Type, e.Key, sink)
			}
		}
	}
}

// told is, by sink, of what there were events. Updates are left out: which of
// two windows came first decides whether there is one.
func (w *world) told() map[string][]string {
	told := map[string][]string{}
	for sink, c := range w.consumers {
		for id := range c.arrived {
			if e := w.ledger.events[id]; e.Type != storage.EventUpdated {
				told[sink] = append(told[sink], e.Type+" "+e.Key)
			}
		}
		slices.Sort(told[sink])
	}
	return told
}
