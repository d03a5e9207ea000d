package cli

import (
	"context"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
)

func (a *app) acceptCommand() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "accept SOURCE",
		Short: "Take a source's changed identity, rules or pages as they are now",
		Long: `Take a source as the config has it now. semel run and whatever else makes jobs
stops, with exit code 4, where what makes its job keys has changed, where its rules
have changed under the same parser.version, and where that was lowered, or raised to
one that other rules had before: accept says that this is meant. Jobs and observations
stay as they are.

Where its pages have changed, which semel status tells, they are taken as they are
now: a source that pauses for that goes on, and they are counted anew.

New rules are better told by a raised parser.version, which needs no accept: later
rows then win over earlier ones, and semel status says which jobs keep the old ones.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		ValidArgsFunction: a.completeSource,
		Example:           "  semel accept catalog",
		Args:              exactArgs("SOURCE"),
	}, func(ctx context.Context, args []string) error { return a.writing(ctx, a.accept(ctx, args[0])) })
}

func (a *app) accept(ctx context.Context, name string) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		src, err := findSource(c, name)
		if err != nil {
			return err
		}
		result, err := service.Accept(ctx, api.NewAcceptRequest(src))
		switch {
		case err != nil:
			return err
		case a.json:
			return a.line(result)
		case len(result.Accepted) == 0:
			a.notef("nothing to accept: source %s is as it was", name)
			return nil
		}
		for _, change := range result.Accepted {
			a.printf("source %s: %s\n", name, plain(change))
		}
		a.notef("accepted: source %s goes on as it is now", name)
		return nil
	}
}
