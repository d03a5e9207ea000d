package delivery

import "time"

// Pause says why a sink is taken for down, and until when it is left alone.
type Pause struct {
	Reason string
	Until  time.Time // then one event is sent to see whether it is back
}

// Pauses are the sinks that are taken for down, by name. It may be called while
// Run works.
func (d *Dispatcher) Pauses() map[string]Pause {
	pauses := map[string]Pause{}
	for _, l := range d.lanes {
		if p := l.pause.Load(); p != nil {
			pauses[l.sink.Name] = *p
		}
	}
	return pauses
}

// tellPause says for Pauses whether the sink is taken for down.
func (l *lane) tellPause() {
	if l.stopped != "" || !l.health.paused() {
		l.pause.Store(nil)
		return
	}
	l.pause.Store(&Pause{l.health.reason, l.health.from()})
}
