package delivery

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"semel/storage"
)

const (
	// overdue is how long a transport may go on after the end of its context
	// before its events are taken for ambiguous.
	overdue = 5 * time.Second
	// maxDeliveryBytes bounds what the events of one delivery say, unless it is
	// only one event.
	maxDeliveryBytes = 4 << 20
)

// delivery is one call of a sink's transport.
type delivery struct {
	lane  *lane
	items []item
	probe bool // of a sink that is paused
}

// answer is what became of a delivery.
type answer struct {
	delivery
	results  []Result // one for each item, without an outcome where it was not sent
	ids      []string // of the events
	cut      bool     // a stop has ended it
	returned bool     // the transport has: there is room for another delivery
	err      error    // of the store
}

// run executes the delivery and answers the lane: twice if its transport goes on
// past its time.
func (d delivery) run(ctx context.Context) {
	a := answer{delivery: d, results: make([]Result, len(d.items)), ids: make([]string, len(d.items)), returned: true}
	events, sent, err := d.load()
	if err != nil || len(events) == 0 {
		a.err = err
		d.lane.answers <- a
		return
	}
	for i, e := range events {
		a.ids[sent[i]] = e.ID
	}
	ctx, cancel := context.WithTimeout(ctx, d.lane.sink.Timeout)
	defer cancel()
	returned := make(chan []Result, 1)
	go func() { returned <- d.call(ctx, events) }()
	results, inTime := await(ctx, returned)
	a.fill(results, sent)
	a.cut = errors.Is(context.Cause(ctx), errStopping)
	a.returned = inTime
	d.lane.answers <- a
	if !inTime {
		d.lane.log.Error("a sink's transport goes on past its time: it gets no other event until it ends", "timeout", d.lane.sink.Timeout)
		<-returned
		d.lane.answers <- answer{returned: true}
	}
}

// await waits for a transport until it is overdue.
func await(ctx context.Context, returned <-chan []Result) (results []Result, inTime bool) {
	select {
	case results = <-returned:
		return results, true
	case <-ctx.Done():
	}
	timer := time.NewTimer(overdue)
	defer timer.Stop()
	select {
	case results = <-returned:
		return results, true
	case <-timer.C:
		return nil, false
	}
}

// load reads the events to send, and which of the items they are of. What would
// be too much at once is left out, and so is what was discarded and pruned
// meanwhile.
func (d delivery) load() (events []*storage.Event, sent []int, err error) {
	bytes := 0
	err = d.lane.store.View(func(tx *storage.Tx) error {
		for i, it := range d.items {
			e, err := tx.Event(it.seq)
			if errors.Is(err, storage.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if bytes += len(e.Data); bytes > maxDeliveryBytes && len(events) > 0 {
				return nil
			}
			events, sent = append(events, e), append(sent, i)
		}
		return nil
	})
	return events, sent, err
}

// call is one call of the transport. A panic is a delivery that failed.
func (d delivery) call(ctx context.Context, events []*storage.Event) (results []Result) {
	defer func() {
		if p := recover(); p != nil {
			d.lane.log.Error("panic in a delivery", "panic", p, "stack", string(debug.Stack()))
			results = make([]Result, len(events))
			for i := range results {
				results[i] = Result{Outcome: storage.OutcomeAmbiguous, Reason: fmt.Sprintf("panic: %v", p)}
			}
		}
	}()
	return d.lane.sink.Transport.Deliver(ctx, events)
}

// fill takes over the results of what was sent. Without one, the event may have
// arrived.
func (a *answer) fill(results []Result, sent []int) {
	for n, i := range sent {
		r := Result{Outcome: storage.OutcomeAmbiguous, Reason: "it has not ended in its time"}
		if results != nil {
			r.Reason = "the transport gave no result"
		}
		if n < len(results) && results[n].Outcome != "" {
			r = results[n]
		}
		if r.Stop && r.Reason == "" {
			r.Reason = "it said so"
		}
		a.results[i] = r
	}
}

// sum reports whether any of the events arrived, and why one did not; "": all
// did, or were not sent.
func (a *answer) sum() (arrived bool, reason string) {
	for _, r := range a.results {
		switch r.Outcome {
		case "":
		case storage.OutcomeDelivered, storage.OutcomeDeduplicated:
			arrived = true
		default:
			reason = r.Reason
		}
	}
	return arrived, reason
}
