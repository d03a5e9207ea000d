package engine

import (
	"slices"
	"time"

	"semel/storage"
)

// workable reports whether there are jobs that RunOnce should still wait for:
// not those that are held back by their proxies or by drift, or by a host that has been
// in trouble for as long as a job may take. Jobs that have been tried are waited
// for within their own limits.
func (e *Engine) workable(tx *storage.Tx) (bool, error) {
	now := e.now()
	untried := map[string]*Source{}
	for name, src := range e.sources {
		c := tx.Counters(name)
		switch open := c.Open(); {
		case open == 0 || e.pausesFor(name) != "" || allProxies(src, func(name string) bool { return e.health.heldWhole(name, now) }):
		case open > c.State(storage.StatePending):
			return true, nil
		default:
			untried[name] = src
		}
	}
	if len(untried) == 0 {
		return false, nil
	}
	for _, id := range tx.ReadyLanes() {
		l, err := tx.Lane(id)
		if err != nil {
			return false, err
		}
		src := untried[l.Source]
		if src == nil || e.pace.troubledFor(l.Host, now) >= src.Limits.Time {
			continue
		}
		if !allProxies(src, func(name string) bool { return e.health.heldLong(exit{name, l.Country}, now) }) {
			return true, nil
		}
	}
	return false, nil
}

// allProxies reports whether something holds of each proxy of a source.
func allProxies(src *Source, holds func(name string) bool) bool {
	return !slices.ContainsFunc(src.through(), func(name string) bool { return !holds(name) })
}

// chooseExit finds the first proxy of a lane's source that has room, and how
// much; 0: none has, or the source pauses.
func (e *Engine) chooseExit(l lane, now time.Time) (exit, int) {
	if e.pausesFor(l.src.Name) != "" {
		return exit{}, 0
	}
	for _, name := range l.src.through() {
		x := exit{name, l.country}
		if slots := e.health.slots(x, now); slots > 0 {
			return x, slots
		}
	}
	return exit{}, 0
}
