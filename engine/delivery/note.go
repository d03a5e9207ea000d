package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"semel/storage"
)

// ending is what became of an event that was taken.
type ending struct {
	item
	Result        // without an outcome: it was not sent
	id     string // of the event, where it was sent
	counts bool   // against its limit of attempts
	passes bool   // it does not count for Passing alone
	cut    bool   // by a stop: no limit ends it
}

// note is one transaction of a lane: what became of some events and which others
// are taken.
type note struct {
	ends  []ending
	items []item // to take

	deliveries []storage.Delivery // of ends, in their order
	taken      map[uint64]bool    // of items
	err        error
}

// note begins to write what became of events, and that others are taken.
func (l *lane) note(ctx context.Context, items []item) {
	if len(l.ends) == 0 && len(items) == 0 {
		return
	}
	n := &note{ends: l.ends, items: items}
	l.ends, l.noting = nil, true
	go func() {
		n.err = l.opts.Update(ctx, func(tx *storage.Tx) error { return n.write(tx, l.sink) })
		l.noted <- n
	}()
}

func (n *note) write(tx *storage.Tx, s *Sink) error {
	n.deliveries = n.deliveries[:0]
	stop := ""
	for i := range n.ends {
		e := &n.ends[i]
		d, err := e.delivery(tx, s)
		if err != nil {
			return err
		}
		n.deliveries = append(n.deliveries, d)
		if e.Stop {
			stop = e.Reason
		}
	}
	if err := tx.EndDeliveries(s.Name, n.deliveries); err != nil {
		return err
	}
	if stop != "" {
		if err := tx.StopSink(s.Name, stop); err != nil {
			return err
		}
	}
	seqs := make([]uint64, len(n.items))
	for i, it := range n.items {
		seqs[i] = it.seq
	}
	taken, err := tx.TakeEvents(s.Name, seqs)
	n.taken = make(map[uint64]bool, len(taken))
	for _, seq := range taken {
		n.taken[seq] = true
	}
	return err
}

// delivery decides what an ending means for the event: whether it goes again, and
// when.
func (e *ending) delivery(tx *storage.Tx, s *Sink) (storage.Delivery, error) {
	d := storage.Delivery{Event: e.seq, Outcome: e.Outcome, Reason: e.Reason, Counts: e.counts}
	if e.Outcome != storage.OutcomeAgain && e.Outcome != storage.OutcomeAmbiguous {
		return d, nil
	}
	so, err := tx.Dispatch(e.seq, s.Name)
	if errors.Is(err, storage.ErrNotFound) { // discarded and pruned
		return d, nil
	}
	if err != nil || so.State != storage.DispatchPending { // discarded: nobody need wait for it
		return d, err
	}
	tries := so.Tries
	if e.counts {
		tries++
	}
	overtime := !so.First.IsZero() && tx.Now.Sub(so.First) >= s.Limits.Time
	d.Dead = !e.cut && !e.Stop && (e.counts && int(tries) >= s.Limits.Attempts || overtime)
	if d.Dead {
		return d, nil
	}
	wait := max(delay(e.id, tries), min(e.RetryAfter, maxGate))
	if e.passes && !so.First.IsZero() { // as long again as it has failed: doubled, as if it counted
		wait = max(wait, min(tx.Now.Sub(so.First), maxDelay))
	}
	d.Next = tx.Now.Add(wait)
	return d, nil
}

// apply takes over what was written.
func (l *lane) apply(ctx context.Context, n *note) error {
	l.noting = false
	if errors.Is(n.err, storage.ErrFull) && ctx.Err() != nil {
		l.log.Error("what became of deliveries could not be written before the stop: they count as ambiguous and go again", "events", len(n.ends), "error", n.err)
		return nil
	}
	if n.err != nil {
		return fmt.Errorf("noting deliveries to sink %s: %w", l.sink.Name, n.err)
	}
	now := l.opts.Now()
	for i := range n.ends {
		l.settle(&n.ends[i], &n.deliveries[i], now)
	}
	for _, it := range n.items {
		if n.taken[it.seq] {
			l.taken = append(l.taken, it)
			continue
		}
		l.window.forget(it, now)
	}
	return nil
}

// settle puts an event back that is still pending, and counts one that is not.
func (l *lane) settle(e *ending, d *storage.Delivery, now time.Time) {
	switch {
	case e.Outcome == storage.OutcomeDelivered || e.Outcome == storage.OutcomeDeduplicated:
		l.delivered.Add(1)
		l.window.forget(e.item, now)
	case d.Dead:
		l.dead.Add(1)
		l.window.forget(e.item, now)
		l.tellDead(e, now)
	default:
		l.window.putBack(e.item, d.Next, now)
	}
}
