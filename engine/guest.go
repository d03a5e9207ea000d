package engine

import (
	"time"

	"semel/storage"
)

// A guest is an engine on a store of its own that asks the same hosts through
// the same proxies as the engine it is a guest of. Each request of its takes a
// place and a turn at the host as one does that a redirect has led there, what
// it learns of a host that wants to be left alone holds for both, and its bytes
// count against both budgets. What the health of proxies is otherwise, each
// finds out by itself.

// spentOn is what has gone through a proxy today for an engine that has a guest;
// nil: for none. One that runs knows more than its store, one that does not
// knows nothing.
func (e *Engine) spentOn(proxy string, now time.Time) (spent int64, err error) {
	if e == nil {
		return 0, nil
	}
	err = e.opts.Store.View(func(tx *storage.Tx) error {
		spent = max(tx.ProxyTraffic(proxy, now).Total(), e.health.spent(proxy, now))
		return nil
	})
	return spent, err
}

// gate lets nothing start at a host before a time.
func (e *Engine) gate(host string, until time.Time) {
	e.pace.gate(host, until)
	if e.guestOf != nil {
		e.guestOf.pace.gate(host, until)
	}
}

// charge counts a guest's bytes against the budget of its host's proxy.
func (e *Engine) charge(proxy string, bytes int64, now time.Time) {
	if e.guestOf != nil {
		e.guestOf.health.charge(proxy, bytes, now)
	}
}
