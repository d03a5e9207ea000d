package config

import (
	"strings"

	"semel/engine/delivery"
)

// commandSink reads the keys of type "command".
func commandSink(t *table, s *Sink, _ *Config) {
	s.InFlight = 4
	t.integer("in_flight", &s.InFlight, 1, 1000)
	n := t.get("command")
	if n == nil {
		t.l.fault(t.node, "command is missing")
	}
	var args []string
	if !t.texts("command", &args) {
		return
	}
	if len(args) == 0 || strings.TrimSpace(args[0]) == "" {
		t.l.fault(n, "must begin with a program")
		return
	}
	s.needs = t.l.value(n.items[0])
	s.Transport = delivery.NewCommand(t.l.dir, args)
}
