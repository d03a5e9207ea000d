package storage

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// dispatches wants each to be of an event, and to stand in the index of its
// state.
func (c *checker) dispatches() {
	c.each(bucketDispatch, func(k, v []byte) {
		d, err := decodeDispatch(k, v)
		if err != nil {
			c.unreadable(bucketDispatch, k, err)
			return
		}
		c.written(bucketDispatch, k, v, d.encode())
		c.rules(bucketDispatch, k, dispatchRules(d)...)
		c.rules(bucketDispatch, k, rule{c.tx.get(bucketEvent, idKey(d.Event)) == nil, "its event is missing"})
		id, metric, ok := d.State.index()
		if !ok {
			return
		}
		c.recount("", metric+d.Sink, 1)
		if c.tx.get(id, outboxKey(d.Sink, d.Event)) == nil {
			c.breach(bucketDispatch, k, "it is %s and missing in bucket %s", d.State, bucketNames[id])
			return
		}
		c.placed[id]++
	})
	c.dispatchIndex(DispatchPending)
	c.dispatchIndex(DispatchDead)
}

func dispatchRules(d *Dispatch) []rule {
	return []rule{
		{!slices.Contains(DispatchStates, d.State), "its state is unknown: " + string(d.State)},
		{d.Outcome != "" && outcomeMetrics[d.Outcome] == "", "the outcome of its last delivery is unknown: " + string(d.Outcome)},
		{(d.Outcome == "") != d.Last.IsZero(), "its last delivery has an outcome and no time, or a time and no outcome"},
		{d.State == DispatchDelivered && !d.Outcome.arrived(), "it is delivered, and its last delivery is not"},
		{d.State == DispatchPending && d.Outcome.arrived() && !d.Requeued, "it is pending, though its last delivery has arrived and nobody sent it back"},
		{d.State == DispatchDead && (d.Outcome == "" || d.Outcome.arrived()), "it is dead, and no delivery of it has failed last"},
		{d.State != DispatchPending && !d.Next.IsZero(), "it is not pending, and a delivery is due"},
		{d.Tries > 0 && d.First.IsZero(), "it has tries, and no first one"},
		{!d.First.IsZero() && d.Outcome == "", "it has a first delivery, and no last one"},
		{d.Outcome == OutcomeAmbiguous && d.Ambiguous == 0, "its last delivery was ambiguous, and it counts none"},
	}
}

// dispatchIndex looks for entries that no dispatch has, unless there are just as
// many as dispatches that were found by theirs.
func (c *checker) dispatchIndex(state DispatchState) {
	id, _, _ := state.index()
	found := c.placed[id]
	c.each(id, func(k, v []byte) {
		found--
		if len(v) > 0 {
			c.breach(id, k, "it has a value")
		}
	})
	if found == 0 {
		return
	}
	c.each(id, func(k, _ []byte) {
		sink, seq, ok := bytes.Cut(k, []byte{0})
		if !ok || len(sink) == 0 || len(seq) != 8 {
			c.breach(id, k, "its key is not a sink and the number of an event")
			return
		}
		d, err := c.tx.Dispatch(binary.BigEndian.Uint64(seq), string(sink))
		if isNotFound(err) || err == nil && d.State != state { // one that cannot be read is told as such
			c.breach(id, k, "no dispatch of event %d is %s there", tailID(seq), state)
		}
	})
}

// sinks wants what is under way to be pending, or to have been discarded since.
func (c *checker) sinks() {
	c.each(bucketSink, func(k, v []byte) {
		s, err := decodeSink(k, v)
		if err != nil {
			c.unreadable(bucketSink, k, err)
			return
		}
		c.written(bucketSink, k, v, s.encode())
		c.rules(bucketSink, k, rule{s.Stopped.IsZero() != (s.Reason == ""), "it is stopped for no reason, or has a reason and is not stopped"})
		seen := map[uint64]bool{}
		for _, seq := range s.Taken {
			if seen[seq] {
				c.breach(bucketSink, k, "event %d is under way twice", seq)
			}
			seen[seq] = true
			c.underWay(k, s, seq)
		}
	})
}

func (c *checker) underWay(k []byte, s *Sink, seq uint64) {
	if c.tx.get(bucketEvent, idKey(seq)) == nil {
		return // discarded, and pruned since
	}
	switch d, err := c.tx.Dispatch(seq, s.Name); {
	case isNotFound(err):
		c.breach(bucketSink, k, "event %d is under way to it, and was not meant for it", seq)
	case err == nil && (d.State == DispatchDelivered || d.State == DispatchDead): // one that cannot be read is told as such
		c.breach(bucketSink, k, "event %d is under way to it, and is %s", seq, d.State)
	}
}

// eventListed wants an event of a job to stand among the job's.
func (c *checker) eventListed(k []byte, e *Event) {
	if e.Job == 0 {
		return
	}
	if c.tx.get(bucketJobEvent, jobEventKey(e.Job, e.Seq)) == nil {
		c.breach(bucketEvent, k, "it is of job %d, and missing in bucket jobevent", e.Job)
		return
	}
	c.placed[bucketJobEvent]++
}

// jobEvents looks for entries that no event has, as dispatchIndex does.
func (c *checker) jobEvents() {
	found := c.placed[bucketJobEvent]
	c.each(bucketJobEvent, func(k, v []byte) {
		found--
		if len(v) > 0 {
			c.breach(bucketJobEvent, k, "it has a value")
		}
	})
	if found == 0 {
		return
	}
	c.each(bucketJobEvent, func(k, _ []byte) {
		if len(k) != 16 {
			c.breach(bucketJobEvent, k, "its key is not the numbers of a job and an event")
			return
		}
		e, err := c.tx.Event(tailID(k))
		if isNotFound(err) || err == nil && e.Job != binary.BigEndian.Uint64(k) {
			c.breach(bucketJobEvent, k, "no event %d is of this job", tailID(k))
		}
	})
}
