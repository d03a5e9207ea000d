package config

// This file reads the settings that nothing acts on yet. They are as strict as
// the others, and then refused, unless they say "off".

// laterTexts reads a list of texts, empty for off.
func (t *table) laterTexts(name string) {
	var list []string
	if t.texts(name, &list) && len(list) > 0 {
		t.l.notYet(t.get(name))
	}
}

// sinkEvents are what a sink can ask for.
var sinkEvents = []string{
	"observation.created", "observation.updated", "window.replaced", "job.complete", "job.failed", "run.finished", "page.quarantined",
}

func (l *loader) sinks(t *table) {
	for _, sink := range t.named("sink") {
		l.notYet(sink.node)
		var text string
		if !sink.oneOf("type", &text, "webhook", "file", "command", "nats") && sink.node.member("type") == nil {
			l.fault(sink.node, "type is missing")
		}
		sink.text("url", &text)
		if n := sink.get("secret"); n != nil {
			if text, _ := n.scalar.(string); !isReference(text) {
				l.fault(n, "%s", literalSecret)
			}
		}
		var events []string
		sink.texts("events", &events)
		for i, event := range events {
			l.among(sink.get("events").items[i], event, sinkEvents)
		}
		sink.done()
	}
}

// sourceLater reads what a source will have.
func (t *table) sourceLater() {
	t.laterTexts("sinks")
}
