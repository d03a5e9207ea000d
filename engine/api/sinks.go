package api

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"semel/storage"
)

// oldEvent is how long an event waits before somebody should know: retries of a
// sink that is well again begin within the hour.
const oldEvent = time.Hour

// addSinks adds what is known of all sinks, of the config and of the store, and
// warnings for those that somebody has to do something about.
func (l *Local) addSinks(tx *storage.Tx, s *Status) error {
	for name, n := range tx.SinkCounts() {
		s.Outbox[name] = SinkStatus{
			Pending: n.Pending, Delivered: n.Delivered, Deduplicated: n.Deduplicated, Ambiguous: n.Ambiguous, Dead: n.Dead, Retried: n.Redelivered,
		}
	}
	for i := range l.Config.Sinks {
		if _, ok := s.Outbox[l.Config.Sinks[i].Name]; !ok { // it never had an event
			s.Outbox[l.Config.Sinks[i].Name] = SinkStatus{}
		}
	}
	l.addSinkPauses(s)
	counters := tx.Counters("")
	for _, name := range slices.Sorted(maps.Keys(s.Outbox)) {
		status := s.Outbox[name]
		if err := status.complete(tx, name); err != nil {
			return err
		}
		s.Outbox[name] = status
		for _, text := range l.sinkWarnings(name, status, deliveriesTrend(counters, name, tx.Now), tx.Now) {
			s.Warnings = append(s.Warnings, "sink "+name+": "+text)
		}
	}
	return nil
}

func (l *Local) addSinkPauses(s *Status) {
	if l.Engine == nil {
		return
	}
	for name, pause := range l.Engine.SinkPauses() {
		status := s.Outbox[name]
		status.Paused, status.PausedUntil = pause.Reason, when(pause.Until)
		s.Outbox[name] = status
	}
}

// complete adds what no counter says.
func (s *SinkStatus) complete(tx *storage.Tx, name string) error {
	stored, err := tx.Sink(name)
	if err != nil {
		return err
	}
	s.Stopped, s.StopReason = when(stored.Stopped), stored.Reason
	first, err := tx.PendingEvents(name, 0, 1)
	if len(first) > 0 {
		s.OldestPending = &first[0].Timestamp
	}
	return err
}

// deliveriesTrend is how often a sink's deliveries were ambiguous, for each
// delivery.
func deliveriesTrend(c storage.Counters, sink string, now time.Time) trend {
	n, before := c.Trend(storage.MetricAmbiguous+sink, now)
	all, allBefore := n, before
	for _, metric := range []string{storage.MetricDelivered, storage.MetricDeduplicated, storage.MetricRedelivered} {
		more, moreBefore := c.Trend(metric+sink, now)
		all, allBefore = all+more, allBefore+moreBefore
	}
	return trend{n, float64(n) / float64(max(all, 1)), float64(before) / float64(max(allBefore, 1))}
}

// sinkWarnings are what the owner of a sink should look at, each with its likely
// cause and what to do.
func (l *Local) sinkWarnings(name string, s SinkStatus, ambiguous trend, now time.Time) (list []string) {
	switch {
	case !l.configured(name):
		if s.Pending > 0 {
			list = append(list, fmt.Sprintf("%s, but the sink is not in the config: kept and not sent until it is back, or you give up: semel outbox discard --sink %s --pending", eventsWait(s.Pending), name))
		}
	case s.Stopped != nil:
		list = append(list, fmt.Sprintf("it has wanted nothing more since %s (%s), and %s: ask its owner, then semel outbox retry --sink %s starts it again, or take it out of the config", s.Stopped.UTC().Format(time.RFC3339), s.StopReason, eventsWait(s.Pending), name))
	case s.Paused != "":
		list = append(list, fmt.Sprintf("it is paused since its deliveries fail (%s), and %s: look whether it is up; no attempt is burnt meanwhile", s.Paused, eventsWait(s.Pending)))
	case s.OldestPending != nil && now.Sub(*s.OldestPending) > oldEvent:
		list = append(list, l.oldWarning(name, s))
	}
	if s.Dead > 0 {
		list = append(list, fmt.Sprintf("%s given up: semel outbox list --sink %s --state dead says why; semel outbox retry --sink %s sends again, semel outbox discard --sink %s gives up for good", eventsAre(s.Dead, "was", "were"), name, name, name))
	}
	if ambiguous.rising() {
		list = append(list, fmt.Sprintf("%d deliveries since yesterday may have arrived without a word (%.1f of 100, %.1f in the week before: rising): it answers too late, its connections break, or semel was killed meanwhile: raise the sink's timeout, or look at what stands before it; a webhook and a command get such events twice",
			ambiguous.n, 100*ambiguous.recent, 100*ambiguous.before))
	}
	return list
}

// oldWarning is for events that have waited long for a sink that is not stopped.
func (l *Local) oldWarning(name string, s SinkStatus) string {
	text := fmt.Sprintf("%s, the first of them committed at %s: ", eventsWait(s.Pending), s.OldestPending.UTC().Format(time.RFC3339))
	if l.Engine == nil {
		return text + "no semel run goes on, which would send them: start one"
	}
	return text + fmt.Sprintf("it is down, refuses some, or is slower than they come: semel outbox list --sink %s says why", name)
}

func eventsWait(n int64) string { return eventsAre(n, "waits", "wait") }

// eventsAre is a number of events with what one does, or several do.
func eventsAre(n int64, one, several string) string {
	if n == 1 {
		return "1 event " + one
	}
	return fmt.Sprintf("%d events %s", n, several)
}
