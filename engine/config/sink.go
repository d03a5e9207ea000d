package config

import (
	"slices"
	"time"

	"semel/engine/delivery"
	"semel/storage"
)

// Sink is one [sink.NAME]. Its Transport is nil where secrets were not read.
type Sink struct {
	delivery.Sink
	Type   string   // "webhook", "file", "command" or "nats"
	Events []string // types of events; none: all but job.complete
	Path   string   // the file of type "file"; a relative path is joined to the config file's folder

	needs Error // the program or the file, without what Missing says of it
}

// Missing says what the sink needs of this machine and does not find there now:
// the program of a command, the folder of a file. nil: nothing; an *Error else.
func (s *Sink) Missing() error {
	needy, ok := s.Transport.(interface{ Ready() error })
	if !ok {
		return nil
	}
	if err := needy.Ready(); err != nil {
		fault := s.needs
		fault.Message = err.Error()
		return &fault
	}
	return nil
}

// sinkTypes read the settings of one kind of sink, and set its Transport. The
// table they get is of that kind: what it asks for is no key of other kinds.
var sinkTypes = map[string]func(t *table, s *Sink, c *Config){
	"webhook": webhook,
	"file":    fileSink,
	"command": commandSink,
	"nats":    natsSink,
}

// sinks reads [sink.*].
func (l *loader) sinks(t *table, c *Config) {
	for _, sink := range t.named("sink") {
		c.Sinks = append(c.Sinks, l.sink(sink, c))
	}
}

// sink reads one [sink.NAME].
func (l *loader) sink(t *table, c *Config) Sink {
	s := Sink{Sink: delivery.Sink{
		Name: t.node.name, InFlight: 1, Batch: 1, Timeout: 10 * time.Second,
		Limits: delivery.Limits{Attempts: 15, Time: 3 * day},
	}}
	if !t.oneOf("type", &s.Type, "webhook", "file", "command", "nats") && t.node.member("type") == nil {
		l.fault(t.node, "type is missing")
	}
	t.sinkEvents(&s.Events)
	t.integer("attempts", &s.Limits.Attempts, 1, 1000)
	t.duration("time", &s.Limits.Time, time.Minute)
	t.duration("timeout", &s.Timeout, time.Second)
	if read := sinkTypes[s.Type]; read != nil {
		own := l.open(t.node, s.Type+" sink")
		read(own, &s, c)
		l.unknown(t.node, slices.Concat(l.known[t.kind], l.known[own.kind]))
	}
	return s
}

// sinkEvents reads which events a sink wants.
func (t *table) sinkEvents(to *[]string) {
	n := t.get("events")
	if !t.texts("events", to) {
		return
	}
	if len(*to) == 0 {
		t.l.fault(n, "must name at least one: without events a sink gets all but %s", storage.EventJobComplete)
	}
	for i, event := range *to {
		if t.l.among(n.items[i], event, storage.EventTypes) && slices.Contains((*to)[:i], event) {
			t.l.wrong(n.items[i], "is there twice")
		}
	}
}

// subscriptions reads the sinks of a source.
func (t *table) subscriptions(c *Config, to *[]storage.Subscription) {
	var names []string
	if !t.texts("sinks", &names) {
		return
	}
	var known []string
	for i := range c.Sinks {
		known = append(known, c.Sinks[i].Name)
	}
	for i, name := range names {
		at := t.get("sinks").items[i]
		switch {
		case slices.Contains(names[:i], name):
			t.l.wrong(at, "is there twice")
		case !slices.Contains(known, name):
			t.l.wrong(at, "there is no [sink.%s]", name).Hint = nearest(name, known)
		default:
			*to = append(*to, storage.Subscription{Sink: name, Events: c.Sinks[slices.Index(known, name)].Events})
		}
	}
}
