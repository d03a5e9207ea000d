package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/engine/config"
	"semel/engine/delivery"
	"semel/storage"
)

// outbox is a service whose source has the sinks a and b, with the events of five
// jobs that were canceled. At sink a the first is delivered, the second dead, the
// third discarded, the fourth waits for its next try and the fifth for its first;
// at sink b the second is dead and all others pending.
func outbox(t *testing.T) *Local {
	t.Helper()
	l := local(t)
	l.Config.Sources[0].Sinks = []storage.Subscription{{Sink: "a"}, {Sink: "b"}}
	l.Config.Sinks = []config.Sink{{Sink: delivery.Sink{Name: "a"}}}
	enqueue(t, l, "shop", 0, 5)
	if err := l.Cancel(t.Context(), Selection{Source: "shop"}, func(Job) error { return nil }); err != nil {
		t.Fatal(err)
	}
	update(t, l, func(tx *storage.Tx) error {
		next := tx.Now.Add(time.Hour)
		return errors.Join(
			tx.EndDeliveries("a", []storage.Delivery{
				{Event: 1, Outcome: storage.OutcomeDelivered},
				{Event: 2, Outcome: storage.OutcomeAmbiguous, Reason: "no answer", Counts: true, Dead: true},
				{Event: 4, Outcome: storage.OutcomeAgain, Reason: "status 503", Counts: true, Next: next},
			}),
			tx.EndDeliveries("b", []storage.Delivery{{Event: 2, Outcome: storage.OutcomeAgain, Reason: "status 500", Counts: true, Dead: true}}),
			tx.DiscardEvent(3, "a"),
		)
	})
	return l
}

// waiting are the events at their sinks, such as "2 a dead".
func waiting(t *testing.T, s Service, f OutboxFilter) []string {
	t.Helper()
	list := []string{}
	err := s.Outbox(t.Context(), f, func(d Dispatched) error {
		list = append(list, fmt.Sprintf("%d %s %s", d.Number, d.Sink, d.State))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestOutbox(t *testing.T) {
	l := outbox(t)
	c := client(t, NewHandler(l, ""))
	later := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, test := range []struct {
		name   string
		filter OutboxFilter
		want   []string
	}{
		{"what waits for somebody", OutboxFilter{}, []string{"1 b pending", "2 a dead", "2 b dead", "3 b pending", "4 a pending", "4 b pending", "5 a pending", "5 b pending"}},
		{"all of a sink", OutboxFilter{EventFilter: EventFilter{Sink: "a"}, State: StateAll}, []string{"1 a delivered", "2 a dead", "3 a discarded", "4 a pending", "5 a pending"}},
		{"in a state", OutboxFilter{State: storage.DispatchDelivered}, []string{"1 a delivered"}},
		{"dead", OutboxFilter{State: storage.DispatchDead}, []string{"2 a dead", "2 b dead"}},
		{"limited", OutboxFilter{Limit: 2}, []string{"1 b pending", "2 a dead"}},
		{"of a type that there is", OutboxFilter{EventFilter: EventFilter{Type: storage.EventJobFailed}, State: storage.DispatchDead}, []string{"2 a dead", "2 b dead"}},
		{"of a type that there is not", OutboxFilter{EventFilter: EventFilter{Type: storage.EventCreated}}, []string{}},
		{"from later on", OutboxFilter{EventFilter: EventFilter{From: Instant{later}}}, []string{}},
		{"before then", OutboxFilter{EventFilter: EventFilter{To: Instant{later}}, State: storage.DispatchDead}, []string{"2 a dead", "2 b dead"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, waiting(t, c, test.filter)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A line of the list has all that is known, under names that stay.
func TestOutboxLine(t *testing.T) {
	l := outbox(t)
	w := ask(NewHandler(l, ""), "GET", "/v1/outbox?state=dead&sink=a", "")
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"id", "timestamp", "last_at"} {
		if got[name] == nil {
			t.Errorf("%s is missing", name)
		}
		delete(got, name)
	}
	want := map[string]any{
		"event": 2., "type": "job.failed", "key": "shop:00001:-:-:-:-", "sink": "a", "state": "dead", "outcome": "ambiguous",
		"tries": 1., "ambiguous": 1., "reason": "no answer", "next_at": nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A list is read in pages, and ends where who reads it has enough.
func TestManyEvents(t *testing.T) {
	const n = 2*pageRows + 5
	l := local(t)
	l.Config.Sources[0].Sinks = []storage.Subscription{{Sink: "a"}}
	enqueue(t, l, "shop", 0, n)
	if err := l.Cancel(t.Context(), Selection{Source: "shop"}, func(Job) error { return nil }); err != nil {
		t.Fatal(err)
	}
	c := client(t, NewHandler(l, ""))
	for _, limit := range []int{0, 3, pageRows, pageRows + 1} {
		want := n
		if limit > 0 {
			want = limit
		}
		if list := waiting(t, c, OutboxFilter{Limit: limit}); len(list) != want || list[0] != "1 a pending" {
			t.Errorf("limit %d: %d lines", limit, len(list))
		}
	}
	enough := errors.New("enough")
	if err := l.Outbox(t.Context(), OutboxFilter{}, func(Dispatched) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Outbox(ended, OutboxFilter{}, func(Dispatched) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	changed, err := c.DiscardEvents(t.Context(), EventSelection{EventFilter: EventFilter{Sink: "a"}, Also: storage.DispatchPending})
	if err != nil || changed.Sinks["a"] != n || len(waiting(t, c, OutboxFilter{})) != 0 {
		t.Errorf("discarded %+v (%v)", changed, err)
	}
}

// stopped are the sinks that are stopped.
func stopped(t *testing.T, l *Local) (names []string) {
	t.Helper()
	err := l.Store.View(func(tx *storage.Tx) error {
		sinks, err := tx.Sinks()
		for _, s := range sinks {
			if !s.Stopped.IsZero() {
				names = append(names, s.Name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestChangeEvents(t *testing.T) {
	retry, discard := Service.RetryEvents, Service.DiscardEvents
	ofA := EventFilter{Sink: "a"}
	for _, test := range []struct {
		name    string
		change  func(Service, context.Context, EventSelection) (EventsChanged, error)
		s       EventSelection
		sinks   map[string]int
		started []string
		want    []string // of what the change touches
	}{
		{"dead ones of a sink again", retry, EventSelection{EventFilter: ofA}, map[string]int{"a": 1}, []string{"a"}, []string{"2 a pending"}},
		{"and delivered ones", retry, EventSelection{EventFilter: ofA, Also: storage.DispatchDelivered}, map[string]int{"a": 2}, []string{"a"}, []string{"1 a pending", "2 a pending"}},
		{"of a type at all sinks", retry, EventSelection{EventFilter: EventFilter{Type: storage.EventJobFailed}}, map[string]int{"a": 1, "b": 1}, []string{"a", "b"}, []string{"2 a pending", "2 b pending"}},
		{"none of another type, and the sink goes on", retry, EventSelection{EventFilter: EventFilter{Sink: "a", Type: storage.EventCreated}}, map[string]int{"a": 0}, []string{"a"}, nil},
		{"named", retry, EventSelection{Refs: []string{"2"}}, map[string]int{"a": 1, "b": 1}, []string{"a", "b"}, []string{"2 a pending", "2 b pending"}},
		{"named at one sink", retry, EventSelection{Refs: []string{"2", "3"}, EventFilter: ofA}, map[string]int{"a": 2}, []string{"a"}, []string{"2 a pending", "3 a pending"}},
		{"delivered one by name", retry, EventSelection{Refs: []string{"1"}, EventFilter: ofA, Also: storage.DispatchDelivered}, map[string]int{"a": 1}, []string{"a"}, []string{"1 a pending"}},
		{"dead ones of a sink discarded", discard, EventSelection{EventFilter: ofA}, map[string]int{"a": 1}, nil, []string{"2 a discarded"}},
		{"and pending ones", discard, EventSelection{EventFilter: ofA, Also: storage.DispatchPending}, map[string]int{"a": 3}, nil, []string{"2 a discarded", "4 a discarded", "5 a discarded"}},
		{"of a sink that is not in the config", discard, EventSelection{EventFilter: EventFilter{Sink: "b"}}, map[string]int{"b": 1}, nil, []string{"2 b discarded"}},
		{"pending one by name", discard, EventSelection{Refs: []string{"5"}}, map[string]int{"a": 1, "b": 1}, nil, []string{"5 a discarded", "5 b discarded"}},
		{"named twice", discard, EventSelection{Refs: []string{"5", "5"}}, map[string]int{"a": 1, "b": 1}, nil, []string{"5 a discarded", "5 b discarded"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := outbox(t)
			update(t, l, func(tx *storage.Tx) error {
				return errors.Join(tx.StopSink("a", "status 410"), tx.StopSink("b", "status 410"))
			})
			c := client(t, NewHandler(l, ""))
			before := waiting(t, c, OutboxFilter{State: StateAll})
			changed, err := test.change(c, t.Context(), test.s)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(EventsChanged{test.sinks, test.started}, changed); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
			var got []string
			for _, line := range waiting(t, c, OutboxFilter{State: StateAll}) {
				if !slices.Contains(before, line) {
					got = append(got, line)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
			for _, sink := range stopped(t, l) {
				if slices.Contains(test.started, sink) {
					t.Errorf("sink %s is stopped still", sink)
				}
			}
		})
	}
}

// An event that waits for its next try goes at once when it is named, by its id
// too, and its limits count anew.
func TestRetryAtOnce(t *testing.T) {
	l := outbox(t)
	var id string
	last := func() (d Dispatched) {
		err := l.Outbox(t.Context(), OutboxFilter{EventFilter: EventFilter{Sink: "a"}}, func(at Dispatched) error {
			if at.Number == 4 {
				d, id = at, at.ID
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := last(); d.NextAt == nil || d.Tries != 1 || *d.Outcome != storage.OutcomeAgain || d.Reason != "status 503" {
		t.Fatalf("before %+v", d)
	}
	if _, err := l.RetryEvents(t.Context(), EventSelection{Refs: []string{id}}); err != nil {
		t.Fatal(err)
	}
	if d := last(); d.NextAt != nil || d.Tries != 0 {
		t.Errorf("after %+v", d)
	}
}

// What cannot be done is told, and nothing is changed.
func TestChangeEventsRefused(t *testing.T) {
	l := outbox(t)
	l.Config.Sources[0].Sinks = l.Config.Sources[0].Sinks[:1]
	enqueue(t, l, "shop", 5, 6)
	if err := l.Cancel(t.Context(), Selection{Refs: []string{"6"}}, func(Job) error { return nil }); err != nil {
		t.Fatal(err)
	}
	c := client(t, NewHandler(l, ""))
	retry, discard := c.RetryEvents, c.DiscardEvents
	before := waiting(t, c, OutboxFilter{State: StateAll})
	for _, test := range []struct {
		name   string
		change func(context.Context, EventSelection) (EventsChanged, error)
		s      EventSelection
		want   error
		text   string
	}{
		{"everything", retry, EventSelection{}, ErrBadRequest, "name refs, or a sink, a type, from or to"},
		{"everything pending", discard, EventSelection{Also: storage.DispatchPending}, ErrBadRequest, "name refs"},
		{"names and a type", retry, EventSelection{Refs: []string{"2"}, EventFilter: EventFilter{Type: storage.EventCreated}}, ErrBadRequest, "only a sink"},
		{"no such type", retry, EventSelection{EventFilter: EventFilter{Type: "odd"}}, ErrBadRequest, `no type "odd"`},
		{"no such sink", discard, EventSelection{EventFilter: EventFilter{Sink: "c"}}, ErrUnknownSink, `unknown sink "c"`},
		{"no such event", retry, EventSelection{Refs: []string{"2", "99"}}, storage.ErrNotFound, "event 99"},
		{"no such id", retry, EventSelection{Refs: []string{"evt_0"}}, storage.ErrNotFound, "evt_0"},
		{"not for this sink", retry, EventSelection{Refs: []string{"6"}, EventFilter: EventFilter{Sink: "b"}}, storage.ErrNotFound, "event 6 to sink b"},
		{"delivered", retry, EventSelection{Refs: []string{"2", "1"}, EventFilter: EventFilter{Sink: "a"}}, storage.ErrTransition, "event 1 is delivered at sink a"},
		{"discarded again", discard, EventSelection{Refs: []string{"2", "3"}, EventFilter: EventFilter{Sink: "a"}}, storage.ErrTransition, "event 3 is discarded at sink a"},
		{"pending ones retried", retry, EventSelection{EventFilter: EventFilter{Sink: "a"}, Also: storage.DispatchPending}, ErrBadRequest, `also is "delivered"`},
		{"delivered ones discarded", discard, EventSelection{EventFilter: EventFilter{Sink: "a"}, Also: storage.DispatchDelivered}, ErrBadRequest, `also is "pending"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.change(t.Context(), test.s)
			if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.text) {
				t.Errorf("error %v, want %q", err, test.text)
			}
		})
	}
	if diff := cmp.Diff(before, waiting(t, c, OutboxFilter{State: StateAll})); diff != "" {
		t.Errorf("changed:\n%s", diff)
	}
	err := c.Outbox(t.Context(), OutboxFilter{EventFilter: EventFilter{Sink: "c"}}, func(Dispatched) error { return nil })
	if !errors.Is(err, ErrUnknownSink) {
		t.Errorf("listing sink c: %v", err)
	}
	for path, want := range map[string]string{
		"/v1/outbox?state=odd": `no state \"odd\"`, "/v1/outbox?type=odd": `no type \"odd\"`, "/v1/outbox?from=odd": "from: ",
		"/v1/outbox?to=odd": "to: ", "/v1/outbox?limit=-1": "limit is", "/v1/outbox?odd=1": "unknown parameter",
	} {
		if w := ask(NewHandler(l, ""), "GET", path, ""); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// A job's story has its events with all their sinks.
func TestJobEvents(t *testing.T) {
	story, err := client(t, NewHandler(outbox(t), "")).Job(t.Context(), "2")
	if err != nil || len(story.Events) != 1 {
		t.Fatalf("events %+v (%v)", story.Events, err)
	}
	e := story.Events[0]
	var got []string
	for _, d := range e.Sinks {
		got = append(got, fmt.Sprintf("%s %s %s %d %d %s", d.Sink, d.State, *d.Outcome, d.Tries, d.Ambiguous, d.Reason))
	}
	want := []string{"a dead ambiguous 1 1 no answer", "b dead retry 1 0 status 500"}
	if diff := cmp.Diff(want, got); diff != "" || e.Number != 2 || e.Type != storage.EventJobFailed || e.Key != story.Key {
		t.Errorf("event %+v\n%s", e, diff)
	}
}

// A time means the same in a query and in a body, whether it is an instant or a
// date.
func TestOutboxTimes(t *testing.T) {
	tomorrow := time.Now().UTC().AddDate(0, 0, 1)
	for _, test := range []struct {
		name, at string
		status   int
		before   int // events before it that are dead at sink a
	}{
		{"a date", tomorrow.Format(time.DateOnly), 200, 1},
		{"a date long ago", "2001-02-03", 200, 0},
		{"an instant", tomorrow.Format(time.RFC3339), 200, 1},
		{"no time", "noon", 400, 0},
		{"a year out of range", "9999-01-01", 400, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := NewHandler(outbox(t), "")
			list := ask(h, "GET", "/v1/outbox?sink=a&state=dead&to="+test.at, "")
			if n := strings.Count(list.Body.String(), `"event"`); list.Code != test.status || n != test.before {
				t.Errorf("listed %d with status %d", n, list.Code)
			}
			w := ask(h, "POST", "/v1/outbox/retry", fmt.Sprintf(`{"sink": "a", "from": null, "to": %q}`, test.at))
			var changed EventsChanged
			if err := json.Unmarshal(w.Body.Bytes(), &changed); err != nil {
				t.Fatal(err)
			}
			if w.Code != test.status || changed.Sinks["a"] != test.before {
				t.Errorf("retried with status %d: %s", w.Code, w.Body)
			}
		})
	}
}
