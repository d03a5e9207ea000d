package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"semel/engine"
	"semel/engine/api"
	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

func (a *app) backfillCommand() *cobra.Command {
	var from, to string
	cmd := a.command(&cobra.Command{
		Use:   "backfill SOURCE --from TIME --to TIME",
		Short: "Make the jobs of past windows of a source's schedule",
		Long: `Make the jobs of all windows of a source's schedule that begin at or after --from
and before --to, and have begun by now. TIME is an RFC 3339 instant, or a date,
which stands for its beginning in UTC.

The targets are read once, as they are now. Jobs that exist are counted and left as
they are, so the same call again makes nothing new, and one that was killed goes
on where it was. Nothing is collected here: semel run works the jobs, after all
others of a site. It may be running meanwhile.

` + exits(exitDone, exitFailed, exitUsage, exitJobs, exitConfig, exitStore, exitUnreadable, exitInterrupted) + `

A target that cannot become a job is told with its line, and makes it exit 3.`,
		ValidArgsFunction: a.completeSource,
		Example:           "  semel backfill catalog --from 2026-04-01 --to 2026-05-01\n  semel backfill catalog --from 2026-04-23T00:00:00+02:00 --to 2026-04-24 --json",
		Args:              exactArgs("SOURCE"),
	}, func(ctx context.Context, args []string) error { return a.backfill(ctx, args[0], from, to) })
	cmd.Flags().StringVar(&from, "from", "", "the first windows begin at this `TIME`")
	cmd.Flags().StringVar(&to, "to", "", "all windows begin before this `TIME`")
	return cmd
}

// backfillStory is what backfill prints with --json.
type backfillStory struct {
	Source string `json:"source"`
	api.BackfillResult
}

func (a *app) backfill(ctx context.Context, source, from, to string) error {
	r, err := backfillRequest(source, from, to)
	if err != nil {
		return err
	}
	c, err := a.loadConfigWithoutSecrets()
	if err != nil {
		return err
	}
	if _, err := findSource(c, source); err != nil {
		return err
	}
	return a.withService(ctx, c, true, storage.Options{}, func(c *config.Config, service api.Service) error {
		done, err := service.Backfill(ctx, r, func(bad api.BadTarget) error {
			a.notef("target skipped: %v", (*intake.RowError)(&bad))
			return nil
		})
		if err != nil {
			return err
		}
		return a.tellBackfill(source, done)
	})
}

func backfillRequest(source, from, to string) (r api.BackfillRequest, err error) {
	r.Source = source
	if from == "" || to == "" {
		return r, usage("such as --from 2026-04-01 --to 2026-05-01", "say which windows: --from and --to are both needed")
	}
	if r.From, err = intake.ParseTime(from); err != nil {
		return r, usage("", "--from: %v", err)
	}
	if r.To, err = intake.ParseTime(to); err != nil {
		return r, usage("", "--to: %v", err)
	}
	if !r.From.Before(r.To) {
		return r, usage("", "--to must be later than --from")
	}
	return r, nil
}

func (a *app) tellBackfill(source string, done api.BackfillResult) error {
	if a.json {
		if err := a.line(backfillStory{source, done}); err != nil {
			return err
		}
	} else {
		text := fmt.Sprintf("%s: %s, %s, %d existing", source, count(done.Windows, "window"), count(done.New, "new job"), done.Existing)
		if done.BadRows > 0 {
			text += ", " + count(done.BadRows, "bad target")
		}
		a.printf("%s\n", text)
	}
	if done.BadRows > 0 {
		return &fault{exitJobs, fmt.Errorf("%s could not become jobs", count(done.BadRows, "target")), "the lines above name them"}
	}
	return nil
}

// offer is Local.Offer where an engine runs: that engine's, of the sources that it
// works.
func offer(c *config.Config, store *storage.Store, e *engine.Engine) api.Offer {
	here := idle{c, store}
	return func(ctx context.Context, source string, from, to time.Time, bad func(*intake.RowError)) (engine.Backfilled, error) {
		if e.Works(source) {
			return e.Backfill(ctx, source, from, to, bad)
		}
		return here.offer(ctx, source, from, to, bad)
	}
}
