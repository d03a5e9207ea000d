package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
	"semel/storage"
)

func (a *app) runsCommand() *cobra.Command {
	var f api.RunFilter
	cmd := a.command(&cobra.Command{
		Use:   "runs [list [--source SOURCE] [--limit N] | release RUN | discard RUN]",
		Short: "List runs with their progress; take or drop the rows of one that is held",
		Long: `List runs, newest first: the jobs of one window of a source, or of one import,
how many of them have ended, and how long the rest still takes at that rate.

A run whose import was cut short is not over before the file has been imported
again, which goes on where it was.

A source with write = "replace" keeps the old rows of a window until all jobs of
its run are complete, and then replaces them in one step. The run is held instead
where a job has failed, the window would have fewer than half of the rows it has,
semel reparse could read some of its pages only, a row would go that a page which was
not read with the others may give, or not all of its targets were offered. Where every job has
failed there are no new rows: the old ones stay, and nothing is held. A retry that
completes its jobs, or a reparse, ends that by itself; else look at the jobs, and then

  release RUN  replaces the rows all the same: those of jobs that have failed stay
  discard RUN  drops the new rows: the old ones stay

RUN is a run's number or its key.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel runs\n  semel runs list --source catalog --json\n  semel runs release 12",
		Args:    exactArgs(),
	}, func(ctx context.Context, _ []string) error { return a.listRuns(ctx, f) })
	cmd.AddCommand(a.listRunsCommand(&f), a.changeRunCommand("release", "released", "Replace the rows of a window by those of its run, whatever that is held for", api.Service.ReleaseRun),
		a.changeRunCommand("discard", "discarded", "Drop the new rows of a run that is held", api.Service.DiscardRun))
	return cmd
}

func (a *app) listRunsCommand(f *api.RunFilter) *cobra.Command {
	cmd := a.command(&cobra.Command{
		Use:   "list [--source SOURCE] [--limit N]",
		Short: "List runs, newest first",
		Long: `List runs, newest first.

` + exits(exitDone, exitUsage, exitConfig, exitStore, exitUnreadable),
		Args: exactArgs(),
	}, func(ctx context.Context, _ []string) error { return a.listRuns(ctx, *f) })
	cmd.Flags().StringVar(&f.Source, "source", "", "only runs of this `SOURCE`")
	cmd.Flags().IntVar(&f.Limit, "limit", 0, "at most `N` runs (default no limit)")
	return cmd
}

func (a *app) changeRunCommand(verb, done, short string, change func(api.Service, context.Context, string) (api.Run, error)) *cobra.Command {
	return a.command(&cobra.Command{
		Use:   verb + " RUN",
		Short: short,
		Long: short + `.
RUN is its number or its key.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Args: exactArgs("RUN"),
	}, func(ctx context.Context, args []string) error {
		return a.writing(ctx, func(_ *config.Config, service api.Service) error {
			r, err := change(service, ctx, args[0])
			if errors.Is(err, storage.ErrNotFound) {
				return &fault{exitFailed, err, "semel runs lists the runs"}
			}
			if err != nil {
				return err
			}
			if a.json {
				return a.line(r)
			}
			a.printf("%s %d %s\n", done, r.ID, r.Key)
			return nil
		})
	})
}

func (a *app) listRuns(ctx context.Context, f api.RunFilter) error {
	if f.Limit < 0 {
		return usage("leave it out for no limit", "--limit must be at least 0 (got %d)", f.Limit)
	}
	return a.reading(ctx, func(c *config.Config, service api.Service) error {
		err := list(a, "ID\tSTATE\tKIND\tJOBS\tOPEN\tFAILED\tCOMPLETE\tLEFT\tKEY", runRow, func(show func(api.Run) error) error {
			return service.Runs(ctx, f, show)
		})
		if errors.Is(err, api.ErrUnknownSource) {
			return sourceFault(c, f.Source)
		}
		return err
	})
}

func runRow(r api.Run) string {
	const below = "\n\t\t\t\t\t\t\t\t" // under KEY: a row without the other columns would end their alignment
	row := fmt.Sprintf("%d\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s", r.ID, r.State, r.Kind, jobsText(r), r.Open, r.Failed, r.Complete, leftText(r), r.Key)
	if r.Held != "" {
		row += below + plain(r.Held)
	}
	for _, name := range r.Imports {
		row += below + fmt.Sprintf("the import of %s has not ended", plain(name))
	}
	return row
}

// jobsText is how many jobs a run has, and of how many while they are made.
func jobsText(r api.Run) string {
	if r.State == api.RunListing && r.Targets > r.Jobs {
		return fmt.Sprintf("%d of %d", r.Jobs, r.Targets)
	}
	return fmt.Sprint(r.Jobs)
}

func leftText(r api.Run) string {
	if r.LeftS == nil {
		return "-"
	}
	return durationText(time.Duration(*r.LeftS) * time.Second)
}
