package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// DispatchState says where an event stands on its way to a sink.
type DispatchState string

// States of a dispatch. Only a person moves one that is not pending.
const (
	DispatchPending   DispatchState = "pending"
	DispatchDelivered DispatchState = "delivered" // the sink has said so, or that it had it before
	DispatchDead      DispatchState = "dead"      // given up after its limit
	DispatchDiscarded DispatchState = "discarded" // by a person
)

var dispatchStates = []DispatchState{DispatchPending, DispatchDelivered, DispatchDead, DispatchDiscarded}

// DeliveryOutcome says how one delivery ended.
type DeliveryOutcome string

// Outcomes of a delivery.
const (
	OutcomeDelivered    DeliveryOutcome = "delivered"
	OutcomeDeduplicated DeliveryOutcome = "deduplicated" // the sink had it before
	OutcomeAgain        DeliveryOutcome = "retry"        // it has not arrived
	OutcomeAmbiguous    DeliveryOutcome = "ambiguous"    // it may have arrived
)

var deliveryOutcomes = []DeliveryOutcome{"", OutcomeDelivered, OutcomeDeduplicated, OutcomeAgain, OutcomeAmbiguous}

func (o DeliveryOutcome) arrived() bool { return o == OutcomeDelivered || o == OutcomeDeduplicated }

// Dispatch is the sending of one event to one sink, over all its deliveries.
type Dispatch struct {
	Event     uint64
	Sink      string
	State     DispatchState
	Requeued  bool            // a person sent it back to pending: its job may have been pruned since
	Tries     uint32          // deliveries that count against the limit, since it became pending
	Ambiguous uint32          // deliveries of all that may have arrived without a word
	Outcome   DeliveryOutcome // of the last delivery; "": there was none
	Reason    string          // why that one was no success
	First     time.Time       // end of the first delivery since it became pending; zero: there was none
	Last      time.Time       // end of the last; zero: there was none
	Next      time.Time       // pending: not before this time; zero: at once
}

const dispatchVersion = 2 // as all records that are sealed

func (d *Dispatch) encode() []byte {
	w := newEncoder(dispatchVersion, 64+len(d.Reason))
	w.text(string(d.State))
	w.flag(d.Requeued)
	w.u32(d.Tries)
	w.u32(d.Ambiguous)
	w.text(string(d.Outcome))
	w.text(d.Reason)
	w.time(d.First)
	w.time(d.Last)
	w.time(d.Next)
	return w.sealed()
}

func decodeDispatch(k, v []byte) (*Dispatch, error) {
	r := newDecoder(dispatchVersion, v)
	d := &Dispatch{
		State: DispatchState(r.text()), Requeued: r.flag(), Tries: r.u32(), Ambiguous: r.u32(),
		Outcome: DeliveryOutcome(r.text()), Reason: r.text(), First: r.time(), Last: r.time(), Next: r.time(),
	}
	err := r.done()
	if err == nil && len(k) <= 8 {
		err = errShort
	}
	if err != nil {
		return nil, &RecordError{bucketNames[bucketDispatch], bytes.Clone(k), err}
	}
	d.Event, d.Sink = binary.BigEndian.Uint64(k), string(k[8:])
	return d, nil
}

func dispatchKey(seq uint64, sink string) []byte { return append(idKey(seq), sink...) }

// addDispatch begins the sending of a new event to a sink.
func (tx *Tx) addDispatch(seq uint64, sink string) error {
	d := Dispatch{Event: seq, Sink: sink, State: DispatchPending}
	if err := tx.insert(bucketDispatch, dispatchKey(seq, sink), d.encode()); err != nil {
		return err
	}
	return tx.list(&d)
}

// index is the bucket that lists the dispatches of a state: those that somebody
// has to do something about are found without looking at all others.
func (s DispatchState) index() (id bucket, metric string, ok bool) {
	switch s {
	case DispatchPending:
		return bucketOutbox, metricOutbox, true
	case DispatchDead:
		return bucketDead, metricDead, true
	}
	return 0, "", false
}

// list adds a dispatch to the index of its state.
func (tx *Tx) list(d *Dispatch) error {
	id, metric, ok := d.State.index()
	if !ok {
		return nil
	}
	tx.count("", metric+d.Sink, 1)
	if d.State == DispatchPending {
		tx.queued = append(tx.queued, queued{d.Sink, d.Event})
	}
	return tx.insert(id, outboxKey(d.Sink, d.Event), nil)
}

func (tx *Tx) unlist(d *Dispatch) error {
	id, metric, ok := d.State.index()
	if !ok {
		return nil
	}
	tx.count("", metric+d.Sink, -1)
	return tx.remove(id, outboxKey(d.Sink, d.Event))
}

// Dispatch reads how far an event is on its way to a sink. Error: ErrNotFound.
func (tx *Tx) Dispatch(seq uint64, sink string) (*Dispatch, error) {
	k := dispatchKey(seq, sink)
	v := tx.get(bucketDispatch, k)
	if v == nil {
		return nil, fmt.Errorf("event %d to sink %s: %w", seq, sink, ErrNotFound)
	}
	return decodeDispatch(k, v)
}

// move changes a dispatch by a function, and its place in the indexes with it.
func (tx *Tx) moveDispatch(seq uint64, sink string, change func(*Dispatch)) error {
	old, err := tx.Dispatch(seq, sink)
	if err != nil {
		return err
	}
	d := *old
	change(&d)
	if d.State != old.State {
		if err := tx.unlist(old); err != nil {
			return err
		}
		if err := tx.list(&d); err != nil {
			return err
		}
	}
	return tx.put(bucketDispatch, dispatchKey(seq, sink), d.encode())
}

// EventDispatches are the dispatches of an event, by sink.
func (tx *Tx) EventDispatches(seq uint64) ([]*Dispatch, error) {
	var list []*Dispatch
	prefix := idKey(seq)
	c := tx.bucket(bucketDispatch).Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		d, err := decodeDispatch(k, v)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// PendingEvents are up to limit events behind a number that a sink has not
// acknowledged, in the order of their commits.
func (tx *Tx) PendingEvents(sink string, after uint64, limit int) ([]*Event, error) {
	var events []*Event
	err := tx.eachListed(DispatchPending, sink, after, func(seq uint64) (bool, error) {
		if len(events) == limit {
			return false, nil
		}
		e, err := tx.eventOf(seq)
		events = append(events, e)
		return true, err
	})
	return events, err
}

// eachListed calls fn with the numbers behind one of the events that are pending
// or dead for a sink, in their order, until it gives false.
func (tx *Tx) eachListed(state DispatchState, sink string, after uint64, fn func(seq uint64) (bool, error)) error {
	id, _, _ := state.index()
	prefix := counterKey(sink, "")
	c := tx.bucket(id).Cursor()
	for k, _ := c.Seek(outboxKey(sink, after+1)); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		if more, err := fn(tailID(k)); err != nil || !more {
			return err
		}
	}
	return nil
}

// TakeEvents notes that deliveries of some events to a sink are about to begin,
// and gives those of them that are still pending: only these may be sent. What
// is taken and never ended may or may not have arrived.
func (tx *Tx) TakeEvents(sink string, seqs []uint64) (taken []uint64, err error) {
	for _, seq := range seqs {
		if tx.get(bucketOutbox, outboxKey(sink, seq)) != nil {
			taken = append(taken, seq)
		}
	}
	if len(taken) == 0 {
		return nil, nil
	}
	s, err := tx.Sink(sink)
	if err != nil {
		return nil, err
	}
	s.Taken = append(s.Taken, taken...)
	return taken, tx.saveSink(s)
}

// Delivery is how one try to send an event ended.
type Delivery struct {
	Event   uint64
	Outcome DeliveryOutcome // "": it was taken and never begun
	Reason  string          // why it was no success
	Counts  bool            // against the limit of its dispatch
	Dead    bool            // it was the last: the dispatch is given up
	Next    time.Time       // when the next one may begin; zero: at once
}

// EndDeliveries notes how deliveries to a sink ended. One whose event is no
// longer pending changes nothing: a person has discarded it meanwhile, or it was
// acknowledged before.
func (tx *Tx) EndDeliveries(sink string, ended []Delivery) error {
	if err := tx.giveBack(sink, ended); err != nil {
		return err
	}
	for i := range ended {
		d := &ended[i]
		if d.Outcome == "" || tx.get(bucketOutbox, outboxKey(sink, d.Event)) == nil {
			continue
		}
		tx.countDelivery(sink, d)
		if err := tx.moveDispatch(d.Event, sink, func(to *Dispatch) { to.end(d, tx.Now) }); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) countDelivery(sink string, d *Delivery) {
	metric := map[DeliveryOutcome]string{
		OutcomeDelivered: MetricDelivered, OutcomeDeduplicated: MetricDeduplicated,
		OutcomeAgain: MetricRedelivered, OutcomeAmbiguous: MetricAmbiguous,
	}[d.Outcome]
	tx.count("", metric+sink, 1)
}

// end takes over how a delivery ended.
func (d *Dispatch) end(by *Delivery, now time.Time) {
	d.Outcome, d.Reason, d.Last, d.Next = by.Outcome, by.Reason, now, noTime
	if by.Outcome == OutcomeAmbiguous {
		d.Ambiguous++
	}
	if d.First.IsZero() {
		d.First = now
	}
	if by.Counts {
		d.Tries++
	}
	switch {
	case by.Outcome.arrived():
		d.State = DispatchDelivered
	case by.Dead:
		d.State = DispatchDead
	default:
		d.Next = by.Next
	}
}

// giveBack ends what TakeEvents has noted.
func (tx *Tx) giveBack(sink string, ended []Delivery) error {
	s, err := tx.Sink(sink)
	if err != nil {
		return err
	}
	over := make(map[uint64]bool, len(ended))
	for i := range ended {
		over[ended[i].Event] = true
	}
	before := len(s.Taken)
	s.Taken = slices.DeleteFunc(s.Taken, func(seq uint64) bool { return over[seq] })
	if len(s.Taken) == before {
		return nil
	}
	return tx.saveSink(s)
}

// RescueDeliveries ends all deliveries that TakeEvents noted and nobody ended,
// and gives their number: the process that began them is dead, so they may have
// arrived.
func (tx *Tx) RescueDeliveries() (n int, err error) {
	sinks, err := tx.Sinks()
	if err != nil {
		return 0, err
	}
	for _, s := range sinks {
		var ended []Delivery
		for _, seq := range s.Taken {
			ended = append(ended, Delivery{Event: seq, Outcome: OutcomeAmbiguous, Reason: "the process ended while it was under way"})
		}
		n += len(ended)
		if err := tx.EndDeliveries(s.Name, ended); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// RequeueEvent makes an event pending at a sink once more, under the same id and
// with all its tries, and one that is pending due at once. Error: ErrNotFound.
func (tx *Tx) RequeueEvent(seq uint64, sink string) error {
	err := tx.moveDispatch(seq, sink, func(d *Dispatch) {
		d.Requeued = d.Requeued || d.State != DispatchPending
		d.State, d.Tries, d.First, d.Next = DispatchPending, 0, noTime, noTime
	})
	if err == nil {
		tx.queued = append(tx.queued, queued{sink, seq})
	}
	return err
}

// DiscardEvent gives up an event that is pending or dead at a sink. Errors:
// ErrNotFound, ErrTransition.
func (tx *Tx) DiscardEvent(seq uint64, sink string) error {
	d, err := tx.Dispatch(seq, sink)
	if err != nil {
		return err
	}
	if d.State != DispatchPending && d.State != DispatchDead {
		return fmt.Errorf("event %d to sink %s is %s: %w", seq, sink, d.State, ErrTransition)
	}
	return tx.moveDispatch(seq, sink, func(d *Dispatch) { d.State, d.Next = DispatchDiscarded, noTime })
}

// awaited reports whether an event is pending or dead at a sink.
func (tx *Tx) awaited(seq uint64) (bool, error) {
	list, err := tx.EventDispatches(seq)
	return slices.ContainsFunc(list, func(d *Dispatch) bool {
		return d.State == DispatchPending || d.State == DispatchDead
	}), err
}

// forgetEvent deletes an event that no sink waits for, with all that leads to it.
func (tx *Tx) forgetEvent(k, v []byte) error {
	e, err := decodeEvent(tailID(k), v)
	if err != nil {
		return err
	}
	if e.Job != 0 {
		if err := tx.remove(bucketJobEvent, jobEventKey(e.Job, e.Seq)); err != nil {
			return err
		}
	}
	if err := tx.clear(bucketDispatch, k); err != nil {
		return err
	}
	return tx.remove(bucketEvent, k)
}

// SinkCounts are how many events a sink waits for and how many of them were
// given up, and how its deliveries have ended until now.
type SinkCounts struct {
	Pending, Dead                                   int64 // events
	Delivered, Deduplicated, Redelivered, Ambiguous int64 // deliveries
}

// SinkCounts reads the counts of all sinks that ever had an event, by name.
func (tx *Tx) SinkCounts() map[string]SinkCounts {
	sinks := map[string]SinkCounts{}
	for name, n := range tx.Counters("") {
		metric, sink, _ := strings.Cut(name, "/")
		c := sinks[sink]
		if field := c.field(metric + "/"); field != nil {
			*field = n
			sinks[sink] = c
		}
	}
	return sinks
}

func (c *SinkCounts) field(metric string) *int64 {
	switch metric {
	case metricOutbox:
		return &c.Pending
	case metricDead:
		return &c.Dead
	case MetricDelivered:
		return &c.Delivered
	case MetricDeduplicated:
		return &c.Deduplicated
	case MetricRedelivered:
		return &c.Redelivered
	case MetricAmbiguous:
		return &c.Ambiguous
	}
	return nil
}
