package config

import (
	"fmt"
	"strings"
	"testing"

	"semel/engine/delivery"
	"semel/engine/intake"
)

func TestNATS(t *testing.T) {
	c := mustLoad(t, `version = 1
[nats]
url = "tls://a.example.com:4222,tls://b.example.com:4222"
username = "env:NATS_USER"
password = "env:NATS_PASSWORD"
[sink.here]
type = "nats"
[sink.there]
type = "nats"
url = "nats://there.example.com"
subject = "events.{source}"
stream = "EVENTS"
[source.a]
targets = "nats:TO-DO"
sinks = ["here", "there"]
`, nil)
	if want := "tls://a.example.com:4222,tls://b.example.com:4222"; c.NATS.String() != want {
		t.Errorf("the server is %s, want %s", c.NATS, want)
	}
	if got := c.Sources[0].Targets; got.Kind != intake.Queue || got.Path != "TO-DO" {
		t.Errorf("targets are %+v", got)
	}
	for _, s := range c.Sinks {
		if _, ok := s.Transport.(*delivery.NATS); !ok || s.InFlight != 1 || s.Batch != natsBatch {
			t.Errorf("sink %s: %+v", s.Name, s.Sink)
		}
		if text := fmt.Sprintf("%+v %#v", s.Transport, c.NATS); strings.Contains(text, "secret-of") {
			t.Errorf("sink %s shows its login: %s", s.Name, text)
		}
	}
}

// TestNATSUnread: who only looks at a store needs no login and connects to nothing.
func TestNATSUnread(t *testing.T) {
	const text = "version = 1\n[nats]\ntoken = \"env:TOKEN\"\n[sink.s]\ntype = \"nats\"\n"
	c, err := Load(write(t, text, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Sinks[0].Transport != nil {
		t.Error("a sink has a transport where secrets were not read")
	}
}
