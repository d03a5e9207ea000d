package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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

// DispatchStates are all states, in the order of a dispatch's life.
var DispatchStates = []DispatchState{DispatchPending, DispatchDelivered, DispatchDead, DispatchDiscarded}

// DeliveryOutcome says how one delivery ended.
type DeliveryOutcome string

// Outcomes of a delivery.
const (
	OutcomeDelivered    DeliveryOutcome = "delivered"
	OutcomeDeduplicated DeliveryOutcome = "deduplicated" // the sink had it before
	OutcomeAgain        DeliveryOutcome = "retry"        // it has not arrived, or the sink says that it failed
	OutcomeAmbiguous    DeliveryOutcome = "ambiguous"    // it may have arrived: nobody who would know has answered
)

// outcomeMetrics count deliveries by their outcome, each followed by the sink.
var outcomeMetrics = map[DeliveryOutcome]string{
	OutcomeDelivered: MetricDelivered, OutcomeDeduplicated: MetricDeduplicated,
	OutcomeAgain: MetricRedelivered, OutcomeAmbiguous: MetricAmbiguous,
}

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

// newDispatch is the record of a dispatch that has just begun: its event and sink
// stand in its key.
var newDispatch = (&Dispatch{State: DispatchPending}).encode()

// addDispatch begins the sending of a new event to a sink.
func (tx *Tx) addDispatch(seq uint64, sink string) error {
	if err := tx.insert(bucketDispatch, dispatchKey(seq, sink), newDispatch); err != nil {
		return err
	}
	tx.queued = append(tx.queued, queued{sink, seq})
	return tx.list(&Dispatch{Event: seq, Sink: sink, State: DispatchPending})
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
	d, _, err := tx.readDispatch(dispatchKey(seq, sink))
	return d, err
}

// readDispatch gives the record, too.
func (tx *Tx) readDispatch(k []byte) (*Dispatch, []byte, error) {
	v := tx.get(bucketDispatch, k)
	if v == nil {
		return nil, nil, fmt.Errorf("event %d to sink %s: %w", binary.BigEndian.Uint64(k), k[8:], ErrNotFound)
	}
	d, err := decodeDispatch(k, v)
	return d, v, err
}

// changeDispatch changes a dispatch by a function, unless that gives an error, and
// its place in the indexes with it.
func (tx *Tx) changeDispatch(seq uint64, sink string, change func(*Dispatch) error) error {
	k := dispatchKey(seq, sink)
	d, v, err := tx.readDispatch(k)
	if err != nil {
		return err
	}
	old := *d
	if err := change(d); err != nil {
		return err
	}
	if d.State != old.State {
		if err := errors.Join(tx.unlist(&old), tx.list(d)); err != nil {
			return err
		}
	}
	return tx.replace(bucketDispatch, k, v, d.encode())
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

// PendingEvents are up to limit events behind a number that are pending at a sink,
// in the order of their commits.
func (tx *Tx) PendingEvents(sink string, after uint64, limit int) ([]*Event, error) {
	var events []*Event
	for _, seq := range tx.pendingNumbers(sink, after, limit) {
		e, err := tx.eventOf(seq)
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// PendingDelivery is what planning an event's next delivery takes.
type PendingDelivery struct {
	Event uint64
	Key   string    // of the event
	Next  time.Time // not before this time; zero: at once
}

// PendingDeliveries is PendingEvents without what the events say.
func (tx *Tx) PendingDeliveries(sink string, after uint64, limit int) ([]PendingDelivery, error) {
	var list []PendingDelivery
	for _, seq := range tx.pendingNumbers(sink, after, limit) {
		e, err := tx.eventOf(seq)
		if err != nil {
			return nil, err
		}
		d, err := tx.Dispatch(seq, sink)
		if err != nil {
			return nil, err
		}
		list = append(list, PendingDelivery{seq, e.Key, d.Next})
	}
	return list, nil
}

func (tx *Tx) pendingNumbers(sink string, after uint64, limit int) (seqs []uint64) {
	prefix := counterKey(sink, "")
	c := tx.bucket(bucketOutbox).Cursor()
	for k, _ := c.Seek(outboxKey(sink, after+1)); bytes.HasPrefix(k, prefix) && len(seqs) < limit; k, _ = c.Next() {
		seqs = append(seqs, tailID(k))
	}
	return seqs
}

// TakeEvents notes that deliveries of some events to a sink are about to begin,
// and gives those of them that are still pending and not under way already: only
// these may be sent. What is taken and never ended may or may not have arrived.
func (tx *Tx) TakeEvents(sink string, seqs []uint64) (taken []uint64, err error) {
	s, err := tx.Sink(sink)
	if err != nil {
		return nil, err
	}
	under := make(map[uint64]bool, len(s.Taken)+len(seqs))
	for _, seq := range s.Taken {
		under[seq] = true
	}
	for _, seq := range seqs {
		if !under[seq] && tx.get(bucketOutbox, outboxKey(sink, seq)) != nil {
			under[seq] = true
			taken = append(taken, seq)
		}
	}
	if len(taken) == 0 {
		return nil, nil
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

// EndDeliveries notes how deliveries to a sink ended. Where a person has discarded
// the event meanwhile that is noted, too, and it stays discarded; one that is
// delivered or dead already, or that was pruned, does not change.
func (tx *Tx) EndDeliveries(sink string, ended []Delivery) error {
	if err := tx.giveBack(sink, ended); err != nil {
		return err
	}
	for i := range ended {
		if ended[i].Outcome == "" {
			continue
		}
		if err := tx.endDelivery(sink, &ended[i]); err != nil && !isNotFound(err) {
			return err
		}
	}
	return nil
}

func (tx *Tx) endDelivery(sink string, by *Delivery) error {
	return tx.changeDispatch(by.Event, sink, func(d *Dispatch) error {
		if d.State == DispatchDelivered || d.State == DispatchDead {
			return nil
		}
		metric := outcomeMetrics[by.Outcome] + sink
		tx.count("", metric, 1)
		tx.count("", dayMetric(tx.Now, metric), 1)
		d.end(by, tx.Now)
		return nil
	})
}

// end takes over how a delivery ended.
func (d *Dispatch) end(by *Delivery, now time.Time) {
	d.Outcome, d.Reason, d.Last = by.Outcome, by.Reason, now
	if by.Outcome == OutcomeAmbiguous {
		d.Ambiguous++
	}
	if d.First.IsZero() {
		d.First = now
	}
	if by.Counts {
		d.Tries++
	}
	if d.State != DispatchPending {
		return
	}
	d.Next = noTime
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
		ended := make([]Delivery, len(s.Taken))
		for i, seq := range s.Taken {
			ended[i] = Delivery{Event: seq, Outcome: OutcomeAmbiguous, Reason: "the process ended while it was under way"}
		}
		n += len(ended)
		if err := tx.EndDeliveries(s.Name, ended); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// RequeueEvent makes an event pending at a sink once more, under the same id and
// with all its tries, and one that is pending due at once. A sink that was stopped
// is started. Error: ErrNotFound.
func (tx *Tx) RequeueEvent(seq uint64, sink string) error {
	err := tx.changeDispatch(seq, sink, func(d *Dispatch) error {
		d.Requeued = d.Requeued || d.State != DispatchPending
		d.State, d.Tries, d.First, d.Next = DispatchPending, 0, noTime, noTime
		return nil
	})
	if err != nil {
		return err
	}
	tx.queued = append(tx.queued, queued{sink, seq})
	return tx.StartSink(sink)
}

// DiscardEvent gives up an event that is pending or dead at a sink. Errors:
// ErrNotFound, ErrTransition.
func (tx *Tx) DiscardEvent(seq uint64, sink string) error {
	return tx.changeDispatch(seq, sink, func(d *Dispatch) error {
		if !d.awaited() {
			return fmt.Errorf("event %d to sink %s is %s: %w", seq, sink, d.State, ErrTransition)
		}
		d.State, d.Next = DispatchDiscarded, noTime
		tx.queued = append(tx.queued, queued{sink, seq}) // those behind it need no longer wait
		return nil
	})
}

// awaited reports whether a sink or a person is still to do something about it:
// its event must stay.
func (d *Dispatch) awaited() bool { return d.State == DispatchPending || d.State == DispatchDead }

// bindsJob reports whether what its event tells of must stay, too: it has been
// pending ever since the event was made.
func (d *Dispatch) bindsJob() bool { return d.State == DispatchPending && !d.Requeued }

// anyDispatch reports whether something holds for a dispatch of an event.
func (tx *Tx) anyDispatch(seq uint64, is func(*Dispatch) bool) (bool, error) {
	list, err := tx.EventDispatches(seq)
	return slices.ContainsFunc(list, is), err
}

// forgetEvent deletes an event that nobody awaits, with all that leads to it.
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
	for _, m := range []struct {
		metric string
		set    func(*SinkCounts, int64)
	}{
		{metricOutbox, func(c *SinkCounts, n int64) { c.Pending = n }},
		{metricDead, func(c *SinkCounts, n int64) { c.Dead = n }},
		{MetricDelivered, func(c *SinkCounts, n int64) { c.Delivered = n }},
		{MetricDeduplicated, func(c *SinkCounts, n int64) { c.Deduplicated = n }},
		{MetricRedelivered, func(c *SinkCounts, n int64) { c.Redelivered = n }},
		{MetricAmbiguous, func(c *SinkCounts, n int64) { c.Ambiguous = n }},
	} {
		for sink, n := range tx.countersUnder("", m.metric) {
			c := sinks[sink]
			m.set(&c, n)
			sinks[sink] = c
		}
	}
	return sinks
}
