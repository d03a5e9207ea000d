package config

import (
	"time"

	"semel/engine/cron"
)

// What becomes of ticks that nobody was there for.
const (
	CatchUpNone   = "none"   // they are passed over
	CatchUpLatest = "latest" // the last of them is made
	CatchUpAll    = "all"
)

// schedule reads when a source's windows begin. Without a schedule its zone and
// what becomes of missed ticks do not matter.
func (t *table) schedule(s *Source) {
	t.oneOf("catch_up", &s.CatchUp, CatchUpNone, CatchUpLatest, CatchUpAll)
	zone := t.zone("timezone")
	var text string
	if !t.text("schedule", &text) || text == "" {
		return
	}
	var err error
	if s.Schedule, err = cron.Parse(text, zone); err != nil {
		t.l.wrong(t.get("schedule"), `must be five fields of cron, such as "0 15 * * *", or one of @hourly, @daily, @weekly, @monthly, @yearly: %v`, err)
	}
}

// zone reads a time zone; UTC where there is none, or a wrong one.
func (t *table) zone(name string) *time.Location {
	var text string
	if !t.text(name, &text) {
		return time.UTC
	}
	zone, err := cron.Zone(text)
	if err != nil {
		t.l.wrong(t.get(name), `must be an IANA time zone such as "Europe/Berlin"`)
		return time.UTC
	}
	return zone
}
