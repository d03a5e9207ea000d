package simulation

import (
	"maps"
	"reflect"
	"slices"

	"semel/storage"
)

// readOutbox reads the events and how far they are on their way to each sink.
func (st *state) readOutbox(tx *storage.Tx) error {
	_, err := tx.Dispatches(storage.DispatchFilter{}, storage.DispatchCursor{}, 1<<30, func(e *storage.Event, d *storage.Dispatch) error {
		if st.dispatches[d.Sink] == nil {
			st.dispatches[d.Sink] = map[uint64]*storage.Dispatch{}
		}
		st.outbox[e.Seq], st.dispatches[d.Sink][e.Seq] = e, d
		return nil
	})
	if err != nil {
		return err
	}
	sinks, err := tx.Sinks()
	for _, s := range sinks {
		st.sinks[s.Name] = s
	}
	return err
}

// events are those that stand in one of some states on their way to a sink.
func (st *state) events(sink string, states ...storage.DispatchState) (seqs []uint64) {
	for _, seq := range slices.Sorted(maps.Keys(st.dispatches[sink])) {
		if slices.Contains(states, st.dispatches[sink][seq].State) {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// taken are the events whose delivery to a sink may be under way.
func (st *state) taken(sink string) []uint64 {
	if s := st.sinks[sink]; s != nil {
		return s.Taken
	}
	return nil
}

func (st *state) stopped(sink string) bool {
	s := st.sinks[sink]
	return s != nil && !s.Stopped.IsZero()
}

// parcelOf is an event on its way to a sink.
type parcelOf struct {
	sink  string
	event uint64
}

// taken reports whether the store knows that an event is about to be sent.
func (l *ledger) taken(sink string, seq uint64) bool {
	return slices.Contains(l.state().taken(sink), seq)
}

// arrivals is how often an event may have arrived at a sink by now: once, and
// once more for each delivery of which nobody knows and each time that a person
// sent it again. One that was given up or sent again is excused from the order of
// its key.
func (l *ledger) arrivals(sink string, seq uint64) (most int, excused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	most = 1 + l.requeued[parcelOf{sink, seq}]
	if d := l.now.dispatches[sink][seq]; d != nil {
		most += int(d.Ambiguous)
		excused = d.Requeued || d.State == storage.DispatchDead
	}
	return most, excused
}

// enterOutbox counts what a person sends again. It wants mu held.
func (l *ledger) enterOutbox(next *state) {
	for _, e := range next.outbox {
		l.events[e.ID] = e
	}
	for sink, dispatches := range next.dispatches {
		for seq, d := range dispatches {
			old := l.now.dispatches[sink][seq]
			if old != nil && old.State != storage.DispatchPending && d.State == storage.DispatchPending {
				l.requeued[parcelOf{sink, seq}]++
			}
		}
	}
}

// outbox wants one event for each thing that a sink is to be told, in the
// transaction that made it so, and none else, and a reason for each step of one
// on its way.
func (c *change) outbox(sink string) {
	var got []string
	moved := map[uint64]bool{}
	for _, seq := range c.next.events(sink, storage.DispatchStates...) {
		old, next := c.old.dispatches[sink][seq], c.next.dispatches[sink][seq]
		if old == nil {
			e := c.next.outbox[seq]
			got = append(got, e.Type+" "+e.Key)
		} else if moved[seq] = !reflect.DeepEqual(old, next); moved[seq] {
			c.dispatch(old, next)
		}
	}
	for seq := range c.old.dispatches[sink] {
		if c.next.dispatches[sink][seq] == nil {
			c.wrong("event %d for sink %s is gone", seq, sink)
		}
	}
	slices.Sort(got)
	if want := c.wanted(sink); !slices.Equal(got, want) {
		c.wrong("sink %s got events %q, want %q", sink, got, want)
	}
	c.sink(sink, moved)
}

// rescuedReason is what the store notes of a delivery whose process has died.
const rescuedReason = "the process ended while it was under way"

// dispatch follows one event one step on its way: it has arrived, or may have,
// only where its consumer has said so.
func (c *change) dispatch(old, next *storage.Dispatch) {
	acked, unsure := c.w.consumers[next.Sink].said(c.next.outbox[next.Event].ID)
	ambiguous := next.Ambiguous > old.Ambiguous
	switch {
	case next.Last.Equal(old.Last) && next.State == storage.DispatchPending:
		c.move(requeue, "%d to %s", next.Event, next.Sink)
	case old.State != storage.DispatchPending:
		c.wrong("event %d was %s to %s and has changed: %+v", next.Event, old.State, next.Sink, next)
	case next.State == storage.DispatchDelivered:
		c.move(acknowledge, "%d by %s", next.Event, next.Sink)
		if !acked {
			c.wrong("event %d is %s, and %s has never said so", next.Event, next.Outcome, next.Sink)
		}
	case ambiguous && next.Reason == rescuedReason:
		c.move(salvage, "%d to %s", next.Event, next.Sink)
	case ambiguous && !unsure:
		c.wrong("event %d is ambiguous, and %s has always answered", next.Event, next.Sink)
	case next.State == storage.DispatchDead:
		c.move(giveUp, "%d to %s", next.Event, next.Sink)
	default:
		c.move(putOff, "%d to %s, %s", next.Event, next.Sink, next.Outcome)
	}
}

// sink follows what is remembered of a sink, moved being the events that went a
// step on their way.
func (c *change) sink(sink string, moved map[uint64]bool) {
	old, next := c.old.taken(sink), c.next.taken(sink)
	for _, seq := range next {
		if !slices.Contains(old, seq) {
			c.move(take, "%d to %s", seq, sink)
		}
	}
	for _, seq := range old {
		if !slices.Contains(next, seq) && !moved[seq] {
			c.move(giveBack, "%d to %s", seq, sink)
		}
	}
	switch before, after := c.old.stopped(sink), c.next.stopped(sink); {
	case after && !before:
		c.move(halt, "%s", sink)
	case before && !after:
		c.move(resume, "%s", sink)
	}
}
