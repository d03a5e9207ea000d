package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"semel/engine/config"
	"semel/storage"
)

func (a *app) checkCommand() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "check",
		Short: "Validate the config",
		Long: `Read the config file and say whether it is right. All faults are told at once,
one a line, as file:line: key: message. What the config names and this machine does
not have, a file of targets, the program of a command sink or the folder of a file
sink, is a warning: it may be there when it is needed. Nothing else is done: the
store and the network are not touched.

` + exits(exitDone, exitUsage, exitConfig),
		Example: "  semel check\n  semel check -c other.toml",
		Args:    exactArgs(),
	}, a.check)
}

// checked is what check prints with --json.
type checked struct {
	File    string `json:"file"`
	Sources int    `json:"sources"`
	Proxies int    `json:"proxies"`
	Sinks   int    `json:"sinks"`
}

func (a *app) check(context.Context, []string) error {
	c, err := a.loadConfig()
	if err != nil {
		return err
	}
	a.checkMachine(c)
	if a.json {
		return a.line(checked{c.File, len(c.Sources), len(c.Proxies), len(c.Sinks)})
	}
	a.printf("%s: ok (%s, %s, %s)\n", c.File, count(len(c.Sources), "source"), count(len(c.Proxies), "proxy"), count(len(c.Sinks), "sink"))
	return nil
}

// checkMachine warns of what is right in the config, and would do nothing here.
func (a *app) checkMachine(c *config.Config) {
	for i := range c.Sources {
		if err := c.Sources[i].TargetsErr; err != nil {
			a.notef("warning: source %s: %v", c.Sources[i].Name, err)
		}
	}
	for i := range c.Sinks {
		if name := c.Sinks[i].Name; !subscribed(c, name) {
			a.notef("warning: sink %s: no source names it, so it gets no new events", name)
		}
		if err := c.Sinks[i].Missing(); err != nil {
			a.notef("warning: %v", err)
		}
	}
}

// subscribed reports whether any source names a sink.
func subscribed(c *config.Config, sink string) bool {
	return slices.ContainsFunc(c.Sources, func(s config.Source) bool {
		return slices.ContainsFunc(s.Sinks, func(s storage.Subscription) bool { return s.Sink == sink })
	})
}
