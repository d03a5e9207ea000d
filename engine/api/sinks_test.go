package api

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/engine/config"
	"semel/engine/delivery"
	"semel/storage"
)

// Trouble of a sink is told with its likely cause, and only when there is some.
func TestSinkWarnings(t *testing.T) {
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	waits := SinkStatus{Pending: 3, OldestPending: ago(time.Minute)}
	old, stop := waits, waits
	old.OldestPending = ago(oldEvent + time.Second)
	stop.Stopped, stop.StopReason, stop.OldestPending = ago(time.Hour), "status 410", ago(2*time.Hour)
	for _, test := range []struct {
		name      string
		sink      string
		status    SinkStatus
		ambiguous trend
		running   bool
		want      string // "" for none
	}{
		{"nothing yet", "a", SinkStatus{}, trend{}, false, ""},
		{"some wait", "a", waits, trend{}, false, ""},
		{"for long, and nobody sends them", "a", old, trend{}, false, "3 events wait, the first of them committed at 2026-04-23T13:59:59Z: no semel run goes on"},
		{"for long", "a", old, trend{}, true, "it is down, refuses some, or is slower than they come: semel outbox list --sink a says why"},
		{"paused", "a", SinkStatus{Pending: 3, OldestPending: old.OldestPending, Paused: "status 503"}, trend{}, true, "it is paused since its deliveries fail (status 503), and 3 events wait: look whether it is up"},
		{"stopped", "a", stop, trend{}, true, "it has wanted nothing more since 2026-04-23T14:00:00Z (status 410), and 3 events wait: ask its owner, then semel outbox retry --sink a starts it again"},
		{"dead", "a", SinkStatus{Dead: 2}, trend{}, true, "2 events were given up: semel outbox list --sink a --state dead says why; semel outbox retry --sink a sends again"},
		{"gone with events", "gone", old, trend{}, true, "3 events wait, but the sink is not in the config: kept and not sent until it is back, or you give up: semel outbox discard --sink gone --pending"},
		{"gone without", "gone", SinkStatus{Delivered: 9}, trend{}, true, ""},
		{"few are ambiguous", "a", SinkStatus{}, trend{4, 1, 0}, true, ""},
		{"as many as ever", "a", SinkStatus{}, trend{50, 0.05, 0.05}, true, ""},
		{"more are ambiguous", "a", SinkStatus{}, trend{50, 0.05, 0.02}, true, "50 deliveries since yesterday may have arrived without a word (5.0 of 100, 2.0 in the week before: rising): it answers too late, its connections break, or semel was killed meanwhile"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := local(t)
			l.Config.Sinks = []config.Sink{{Sink: delivery.Sink{Name: "a"}}}
			if test.running {
				l.Engine = pauses{}
			}
			got := l.sinkWarnings(test.sink, test.status, test.ambiguous, now)
			if test.want == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || test.want == "" || !strings.Contains(got[0], test.want) {
				t.Errorf("warnings %q, want one with %q", got, test.want)
			}
		})
	}
}

// How often deliveries were ambiguous is compared with the week before.
func TestDeliveriesTrend(t *testing.T) {
	c := storage.Counters{
		"day/2026-04-23/ambiguous/a": 3, "day/2026-04-22/delivered/a": 5, "day/2026-04-22/deduplicated/a": 1, "day/2026-04-22/redelivered/a": 3,
		"day/2026-04-16/ambiguous/a": 1, "day/2026-04-16/delivered/a": 9,
		"day/2026-04-23/ambiguous/b": 100, "day/2026-04-13/ambiguous/a": 100,
	}
	if got, want := deliveriesTrend(c, "a", now), (trend{3, 0.25, 0.1}); got != want {
		t.Errorf("trend %v, want %v", got, want)
	}
	if got := deliveriesTrend(c, "c", now); got != (trend{}) {
		t.Errorf("trend %v of a sink that never had an event", got)
	}
}

// Status has each sink of the config and of the store with what became of its
// events.
func TestSinkStatus(t *testing.T) {
	l := outbox(t)
	l.Config.Sinks = append(l.Config.Sinks, config.Sink{Sink: delivery.Sink{Name: "new"}})
	var stoppedAt, first time.Time
	update(t, l, func(tx *storage.Tx) error {
		stoppedAt = tx.Now
		e, err := tx.Event(4)
		if err != nil {
			return err
		}
		first = e.Timestamp
		return tx.StopSink("b", "status 410")
	})
	l.Engine = pauses{}
	s, err := client(t, NewHandler(l, "")).Status(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	stoppedAt = stoppedAt.Truncate(time.Microsecond)
	want := map[string]SinkStatus{
		"a":   {Pending: 2, Delivered: 1, Ambiguous: 1, Dead: 1, Retried: 1, OldestPending: &first},
		"b":   {Pending: 4, Dead: 1, Retried: 1, OldestPending: s.Outbox["b"].OldestPending, Stopped: &stoppedAt, StopReason: "status 410"},
		"new": {}, "down": {Paused: "status 503", PausedUntil: s.Outbox["down"].PausedUntil},
	}
	if diff := cmp.Diff(want, s.Outbox); diff != "" {
		t.Errorf("outbox (-want +got):\n%s", diff)
	}
	warnings := strings.Join(s.Warnings, "\n")
	for _, want := range []string{"sink a: 1 event was given up", "sink b: 4 events wait, but the sink is not in the config", "sink b: 1 event was"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("no warning %q in\n%s", want, warnings)
		}
	}
}
