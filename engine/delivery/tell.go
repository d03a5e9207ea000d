package delivery

import (
	"context"
	"log/slog"
	"time"

	"semel/storage"
)

// maxLines is how many lines of one kind a sink may log in a minute: with a
// thousand events a second, each of them failing, nobody reads the others.
const maxLines = 10

// quota bounds lines of one kind. The zero value is ready to use.
type quota struct {
	began  time.Time // the minute
	lines  int       // in it
	unsaid int       // kept back since the last line
}

// allow reports whether a line may be logged.
func (q *quota) allow(now time.Time) bool {
	if now.Sub(q.began) >= time.Minute {
		q.began, q.lines = now, 0
	}
	if q.lines == maxLines {
		q.unsaid++
		return false
	}
	q.lines++
	return true
}

// log logs a line if it may, and with it how many were kept back before.
func (q *quota) log(log *slog.Logger, level slog.Level, now time.Time, text string, args ...any) {
	if !q.allow(now) {
		return
	}
	if q.unsaid > 0 {
		args = append(args, "unsaid", q.unsaid)
		q.unsaid = 0
	}
	log.Log(context.Background(), level, text, args...)
}

// waitingEvents are how many events wait for the sink; -1: the store does not
// say.
func (l *lane) waitingEvents() int64 {
	n := int64(-1)
	_ = l.store.View(func(tx *storage.Tx) error {
		n = tx.SinkCounts()[l.sink.Name].Pending
		return nil
	})
	return n
}

func (l *lane) tellPaused(now time.Time) {
	l.pauseLines.log(l.log, slog.LevelWarn, now, "a sink is paused: its events wait, no attempt is burnt", "reason", l.health.reason,
		"failing_since", l.health.since.Format(time.RFC3339), "waiting", l.waitingEvents(), "next_try", l.health.until.Format(time.RFC3339))
}

func (l *lane) tellOpen(since, now time.Time) {
	l.pauseLines.log(l.log, slog.LevelInfo, now, "a sink is back", "after", now.Sub(since).Round(time.Second), "waiting", l.waitingEvents())
}

func (l *lane) tellGate(reason string, now time.Time) {
	l.gateLines.log(l.log, slog.LevelInfo, now, "a sink has asked for a pause", "until", l.health.gate.Format(time.RFC3339), "reason", reason)
}

func (l *lane) tellDead(e *ending, now time.Time) {
	l.deadLines.log(l.log, slog.LevelError, now, "an event was given up: semel outbox retry sends it again", "event", e.id, "reason", e.Reason)
}

// setStopped takes note of why the sink wants nothing more, or that it does.
func (l *lane) setStopped(reason string) {
	before := l.stopped
	l.stopped = reason
	switch {
	case before == "" && reason != "":
		l.log.Error("a sink wants no more events: they wait until semel outbox retry --sink "+l.sink.Name, "reason", reason, "waiting", l.waitingEvents())
	case before != "" && reason == "":
		l.log.Info("a sink that was stopped is started again", "waiting", l.waitingEvents())
	}
}

// tellWhy says for others why events wait.
func (l *lane) tellWhy() {
	reason := ""
	switch {
	case l.stopped != "":
		reason = "it is stopped: " + l.stopped
	case l.health.paused():
		reason = "it is paused: " + l.health.reason
	case l.health.failures > 0:
		reason = l.health.reason
	}
	l.reason.Store(&reason)
	l.tellPause()
}

// why says why events wait for the sink.
func (l *lane) why() string {
	if reason := l.reason.Load(); reason != nil && *reason != "" {
		return *reason
	}
	return "their next delivery is not due"
}
