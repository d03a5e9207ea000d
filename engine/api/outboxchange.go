package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"semel/storage"
)

// EventSelection names events one by one, all of them or none, or all dead ones
// that match. Not everything is ever meant: an empty one is refused.
type EventSelection struct {
	Refs []string `json:"refs,omitempty"` // numbers or ids; with them only Sink may be set
	EventFilter
	// Also are events that are meant besides: where some are retried, those that
	// are delivered, and where they are discarded, those that are pending and were
	// not named.
	Also storage.DispatchState `json:"also,omitempty"`
}

// EventsChanged says what became of a selection.
type EventsChanged struct {
	Sinks   map[string]int `json:"sinks"`             // events changed, by sink
	Started []string       `json:"started,omitempty"` // sinks that were stopped and are no longer
}

// check refuses a selection that does not say what is meant.
func (s *EventSelection) check(c *eventChange) error {
	if s.Also != "" && s.Also != c.also {
		return badRequest("also is %q here, or left out (got %q)", c.also, s.Also)
	}
	if len(s.Refs) > 0 {
		if s.EventFilter != (EventFilter{Sink: s.Sink}) {
			return badRequest("with refs only a sink can be named")
		}
		return nil
	}
	if s.EventFilter == (EventFilter{}) {
		return badRequest("name refs, or a sink, a type, from or to")
	}
	_, err := oneOf("type", s.Type, storage.EventTypes)
	return err
}

// eventChange is something that a person does to events at sinks.
type eventChange struct {
	named []storage.DispatchState // in which one may be where it is named
	also  storage.DispatchState   // in which it may be where EventSelection.Also says so
	apply func(tx *storage.Tx, event uint64, sink string) error
	start bool // sinks that were stopped
}

// RetryEvents implements Service.
func (l *Local) RetryEvents(ctx context.Context, s EventSelection) (EventsChanged, error) {
	return l.changeEvents(ctx, s, &eventChange{
		named: []storage.DispatchState{storage.DispatchPending, storage.DispatchDead, storage.DispatchDiscarded},
		also:  storage.DispatchDelivered, apply: (*storage.Tx).RequeueEvent, start: true,
	})
}

// DiscardEvents implements Service.
func (l *Local) DiscardEvents(ctx context.Context, s EventSelection) (EventsChanged, error) {
	return l.changeEvents(ctx, s, &eventChange{
		named: []storage.DispatchState{storage.DispatchPending, storage.DispatchDead},
		also:  storage.DispatchPending, apply: (*storage.Tx).DiscardEvent,
	})
}

// changeEvents changes those that are named all together or not at all, and those
// that match page by page.
func (l *Local) changeEvents(ctx context.Context, s EventSelection, c *eventChange) (EventsChanged, error) {
	changed := EventsChanged{Sinks: map[string]int{}}
	if err := s.check(c); err != nil {
		return changed, err
	}
	if err := l.knownSink(s.Sink); err != nil {
		return changed, err
	}
	if len(s.Refs) > 0 {
		return changed, l.changeNamedEvents(ctx, s, c, &changed)
	}
	states := []storage.DispatchState{storage.DispatchDead}
	if s.Also != "" {
		states = append(states, s.Also)
	}
	return changed, l.changeMatchingEvents(ctx, s.Sink, s.dispatches(states...), c, &changed)
}

func (l *Local) changeMatchingEvents(ctx context.Context, sink string, f storage.DispatchFilter, c *eventChange, changed *EventsChanged) error {
	for after, more := (storage.DispatchCursor{}), true; more; more = after != (storage.DispatchCursor{}) {
		err := l.changePageOfEvents(ctx, sink, c, changed, func(tx *storage.Tx) (page []*storage.Dispatch, err error) {
			after, err = tx.Dispatches(f, after, pageRows, func(_ *storage.Event, d *storage.Dispatch) error {
				page = append(page, d)
				return nil
			})
			return page, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Local) changeNamedEvents(ctx context.Context, s EventSelection, c *eventChange, changed *EventsChanged) error {
	events := make([]uint64, len(s.Refs))
	for i, ref := range s.Refs {
		e, err := l.event(ctx, ref)
		if err != nil {
			return err
		}
		events[i] = e.Seq
	}
	slices.Sort(events)
	events = slices.Compact(events) // a number and an id may name one
	states := c.named
	if s.Also != "" {
		states = append(slices.Clone(states), s.Also)
	}
	return l.changePageOfEvents(ctx, s.Sink, c, changed, func(tx *storage.Tx) (page []*storage.Dispatch, err error) {
		for _, event := range events {
			meant, err := dispatchesIn(tx, event, s.Sink, states)
			if err != nil {
				return nil, err
			}
			page = append(page, meant...)
		}
		return page, nil
	})
}

// dispatchesIn are the dispatches of an event, to one sink where that is named,
// which are in some states. Errors: ErrNotFound (it is not meant for the sink),
// ErrTransition (none is in such a state).
func dispatchesIn(tx *storage.Tx, event uint64, sink string, states []storage.DispatchState) (meant []*storage.Dispatch, err error) {
	list, err := tx.EventDispatches(event)
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("event %d to sink %s: %w", event, sink, storage.ErrNotFound)
	for _, d := range list {
		switch {
		case sink != "" && sink != d.Sink:
		case slices.Contains(states, d.State):
			meant = append(meant, d)
		default:
			err = fmt.Errorf("event %d is %s at sink %s: %w", event, d.State, d.Sink, storage.ErrTransition)
		}
	}
	if len(meant) > 0 {
		err = nil
	}
	return meant, err
}

// changePageOfEvents changes what list gives, in one transaction with it.
func (l *Local) changePageOfEvents(ctx context.Context, sink string, c *eventChange, changed *EventsChanged, list func(*storage.Tx) ([]*storage.Dispatch, error)) error {
	sinks := map[string]int{}
	var started []string
	err := l.Store.Update(ctx, func(tx *storage.Tx) error {
		page, err := list(tx)
		if err != nil {
			return err
		}
		if sink != "" {
			sinks[sink] = 0
		}
		for _, d := range page {
			sinks[d.Sink]++
		}
		if c.start { // before RequeueEvent does: here it is told
			if started, err = startSinks(tx, slices.Sorted(maps.Keys(sinks))); err != nil {
				return err
			}
		}
		for _, d := range page {
			if err := c.apply(tx, d.Event, d.Sink); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name, n := range sinks {
		changed.Sinks[name] += n
	}
	changed.Started = append(changed.Started, started...)
	return nil
}

// startSinks gives those that were stopped.
func startSinks(tx *storage.Tx, names []string) (started []string, err error) {
	for _, name := range names {
		s, err := tx.Sink(name)
		if err != nil {
			return nil, err
		}
		if s.Stopped.IsZero() {
			continue
		}
		if err := tx.StartSink(name); err != nil {
			return nil, err
		}
		started = append(started, name)
	}
	return started, nil
}

// event finds the event that a number or an id names. Error: ErrNotFound.
func (l *Local) event(ctx context.Context, ref string) (e *storage.Event, err error) {
	number, err := strconv.ParseUint(ref, 10, 64)
	if err != nil {
		return l.Store.FindEvent(ctx, ref)
	}
	err = l.Store.View(func(tx *storage.Tx) error {
		e, err = tx.Event(number)
		return err
	})
	return e, err
}
