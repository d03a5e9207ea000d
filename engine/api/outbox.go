package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

// ErrUnknownSink: neither the config nor the store knows the sink.
var ErrUnknownSink = errors.New("unknown sink")

// EventFilter says which events of which sinks are meant; zero fields let all
// through.
type EventFilter struct {
	Sink string  `json:"sink,omitempty"`
	Type string  `json:"type,omitempty"` // one of storage.EventTypes
	From Instant `json:"from,omitzero"`  // only events committed at or after it
	To   Instant `json:"to,omitzero"`    // and before it
}

// Instant is a time that a request names, in JSON as intake.ParseTime reads it:
// an instant or a date. "" and null are none.
type Instant struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler.
func (i *Instant) UnmarshalJSON(data []byte) error {
	var text string
	err := json.Unmarshal(data, &text)
	if err == nil && text != "" {
		i.Time, err = intake.ParseTime(text)
	}
	return err
}

// OutboxFilter says what to list of the outbox.
type OutboxFilter struct {
	EventFilter
	State storage.DispatchState // "": what waits for somebody, pending and dead; StateAll: all
	Limit int                   // 0: no limit
}

// StateAll stands for all states in an OutboxFilter.
const StateAll storage.DispatchState = "all"

// Event is an event without its data.
type Event struct {
	Number    uint64    `json:"event"` // in the order of commits
	ID        string    `json:"id"`    // what sinks know it by
	Type      string    `json:"type"`
	Key       string    `json:"key"` // of the observation, the job or the run
	Timestamp time.Time `json:"timestamp"`
}

// Dispatch is how far an event is on its way to one sink. Times are null where
// there is none.
type Dispatch struct {
	Sink      string                   `json:"sink"`
	State     storage.DispatchState    `json:"state"`
	Outcome   *storage.DeliveryOutcome `json:"outcome"`   // of the last delivery; null: there was none
	Tries     uint32                   `json:"tries"`     // that count against the sink's limit
	Ambiguous uint32                   `json:"ambiguous"` // deliveries that may have arrived without a word
	Reason    string                   `json:"reason,omitempty"`
	LastAt    *time.Time               `json:"last_at"` // end of the last delivery
	NextAt    *time.Time               `json:"next_at"` // pending: not before; null: as soon as its turn comes
}

// Dispatched is an event on its way to one sink.
type Dispatched struct {
	Event
	Dispatch
}

// JobEvent is an event of a job's outcomes, with all sinks that wanted it.
type JobEvent struct {
	Event
	Sinks []Dispatch `json:"sinks"`
}

func newEvent(e *storage.Event) Event {
	return Event{Number: e.Seq, ID: e.ID, Type: e.Type, Key: e.Key, Timestamp: e.Timestamp}
}

func newDispatch(d *storage.Dispatch) Dispatch {
	return Dispatch{
		Sink: d.Sink, State: d.State, Outcome: null(d.Outcome), Tries: d.Tries, Ambiguous: d.Ambiguous,
		Reason: d.Reason, LastAt: when(d.Last), NextAt: when(d.Next),
	}
}

// jobEvents are the events of a job, in the order of their commits.
func jobEvents(tx *storage.Tx, job uint64) ([]JobEvent, error) {
	stored, err := tx.JobEvents(job)
	events := make([]JobEvent, 0, len(stored))
	for _, e := range stored {
		list, err := tx.EventDispatches(e.Seq)
		if err != nil {
			return nil, err
		}
		event := JobEvent{newEvent(e), make([]Dispatch, 0, len(list))}
		for _, d := range list {
			event.Sinks = append(event.Sinks, newDispatch(d))
		}
		events = append(events, event)
	}
	return events, err
}

// dispatches is a filter as the store has it; no states: all.
func (f *EventFilter) dispatches(states ...storage.DispatchState) storage.DispatchFilter {
	d := storage.DispatchFilter{Sink: f.Sink, From: f.From.Time, To: f.To.Time, States: states}
	if f.Type != "" {
		d.Types = []string{f.Type}
	}
	return d
}

// Outbox implements Service.
func (l *Local) Outbox(ctx context.Context, f OutboxFilter, fn func(Dispatched) error) error {
	if err := l.knownSink(f.Sink); err != nil {
		return err
	}
	meant := f.stored()
	return eachRow(ctx, f.Limit, func(after storage.DispatchCursor) (page []Dispatched, next storage.DispatchCursor, err error) {
		err = l.Store.View(func(tx *storage.Tx) error {
			next, err = tx.Dispatches(meant, after, pageRows, func(e *storage.Event, d *storage.Dispatch) error {
				page = append(page, Dispatched{newEvent(e), newDispatch(d)})
				return nil
			})
			return err
		})
		if err != nil {
			err = fmt.Errorf("listing the outbox: %w", err)
		}
		return page, next, err
	}, fn)
}

func (f *OutboxFilter) stored() storage.DispatchFilter {
	switch f.State {
	case "":
		return f.dispatches(storage.DispatchPending, storage.DispatchDead)
	case StateAll:
		return f.dispatches()
	}
	return f.dispatches(f.State)
}

// knownSink refuses a sink that neither the config nor the store has; "" is any.
func (l *Local) knownSink(name string) error {
	if name == "" || l.configured(name) {
		return nil
	}
	return l.Store.View(func(tx *storage.Tx) error {
		if _, ok := tx.SinkCounts()[name]; !ok {
			return fmt.Errorf("%w %q", ErrUnknownSink, name)
		}
		return nil
	})
}

// configured reports whether the config has a sink.
func (l *Local) configured(sink string) bool {
	return slices.ContainsFunc(l.Config.Sinks, func(s config.Sink) bool { return s.Name == sink })
}

// parseOutboxFilter reads an OutboxFilter from a query, and values write it.
func parseOutboxFilter(query url.Values) (f OutboxFilter, err error) {
	err = eachParameter(query, func(name, value string) (err error) {
		switch name {
		case "sink":
			f.Sink = value
		case "state":
			f.State, err = oneOf(name, storage.DispatchState(value), append(slices.Clone(storage.DispatchStates), StateAll))
		case "type":
			f.Type, err = oneOf(name, value, storage.EventTypes)
		case "from":
			f.From.Time, err = parseInstant(name, value)
		case "to":
			f.To.Time, err = parseInstant(name, value)
		case "limit":
			f.Limit, err = parseLimit(value)
		default:
			err = unknownParameter(name)
		}
		return err
	})
	return f, err
}

func parseInstant(name, text string) (time.Time, error) {
	t, err := intake.ParseTime(text)
	if err != nil {
		err = badRequest("%s: %w", name, err)
	}
	return t, err
}

func (f OutboxFilter) values() url.Values {
	v := url.Values{}
	for name, text := range map[string]string{"sink": f.Sink, "state": string(f.State), "type": f.Type} {
		if text != "" {
			v.Set(name, text)
		}
	}
	for name, t := range map[string]Instant{"from": f.From, "to": f.To} {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if f.Limit != 0 {
		v.Set("limit", strconv.Itoa(f.Limit))
	}
	return v
}
