package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

func (a *app) retryCommand() *cobra.Command {
	var s api.Selection
	var category, window string
	cmd := a.command(&cobra.Command{
		Use:   "retry {JOB... | --source SOURCE [--category CATEGORY] [--window W]} [--recollect]",
		Short: "Send failed jobs, or complete ones, back to pending",
		Long: `Send failed jobs back to pending, their limits counted anew: those named by id or
key, all of them or none, or all failed ones of a source. The next run works them.
Jobs with a request that must not be repeated and may have been sent are left out
of a source's, unless their category, unsafe_to_repeat, is named.

With --recollect complete jobs, too, are collected once more, by the rules as they
are now. Their observations stay until the new ones are committed; equal content
changes nothing. Of a source's complete jobs those are left out whose requests must
not be repeated, unless they are named, and those whose key is of another
parser.version. Every page is fetched again, which costs what it costs.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel retry 12 15\n  semel retry --source catalog --category read_timeout\n  semel retry --source catalog --recollect",
	}, func(ctx context.Context, args []string) (err error) {
		if s.Category, err = parseCategory(category); err != nil {
			return err
		}
		switch s.Refs = args; {
		case len(args) > 0 && (s.Source != "" || category != "" || window != ""):
			return usage("", "give jobs or --source, not both")
		case len(args) == 0 && s.Source == "":
			return usage("semel jobs --state failed lists what can be retried", "say which jobs, or --source SOURCE for all of it")
		}
		return a.writing(ctx, a.retry(ctx, s, window))
	})
	cmd.Flags().BoolVar(&s.Recollect, "recollect", false, "complete jobs, too: collect them once more")
	cmd.Flags().StringVar(&s.Source, "source", "", "all failed jobs of this `SOURCE`")
	cmd.Flags().StringVar(&category, "category", "", "of these, only those that failed with this `CATEGORY`")
	cmd.Flags().StringVar(&window, "window", "", "of these, only those of windows `W`: an instant, a date or A..B")
	return cmd
}

func (a *app) retry(ctx context.Context, s api.Selection, window string) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		var w intake.WindowArg
		if window != "" {
			var err error
			if w, err = intake.ParseWindow(window); err != nil {
				return usage("", "%w", err)
			}
			s.From, s.To = rangeOf(c, s.Source, w)
		}
		return a.change(s, "retried", func(service api.Service, each func(api.Job) error) error {
			if err := service.Retry(ctx, s, each); err != nil || s.Source == "" || s.Category != "" {
				return err
			}
			return a.tellLeftOut(ctx, c, service, s, w)
		})(c, service)
	}
}

// rangeOf is which windows of a source are meant, which need not be in the config.
func rangeOf(c *config.Config, source string, w intake.WindowArg) (from, to time.Time) {
	if src := c.Source(source); src != nil {
		return w.Range(src.Schedule)
	}
	return w.Range(nil)
}

// tellLeftOut says how many jobs a retry of a whole source, or of windows of it,
// has left alone since their requests must not be sent again by themselves.
func (a *app) tellLeftOut(ctx context.Context, c *config.Config, service api.Service, s api.Selection, w intake.WindowArg) error {
	left := api.JobFilter{Source: s.Source, State: storage.StateFailed, Category: storage.CategoryUnsafeToRepeat, Window: w}
	n, err := countJobs(ctx, service, left)
	if n > 0 {
		a.notef("%s left out as %s: look at the site whether their requests have arrived, then name them, or --category %s", count(n, "job"), left.Category, left.Category)
	}
	src := c.Source(s.Source)
	if err != nil || !s.Recollect || src != nil && src.Repeatable() {
		return err
	}
	if n, err = countJobs(ctx, service, api.JobFilter{Source: s.Source, State: storage.StateComplete, Window: w}); n > 0 {
		a.notef("%s left out: a request of theirs must not be repeated, or their source is not in the config; name those that are meant", count(n, "complete job"))
	}
	return err
}

func countJobs(ctx context.Context, service api.Service, f api.JobFilter) (n int, err error) {
	err = service.Jobs(ctx, f, func(api.Job) error { n++; return nil })
	return n, err
}

func (a *app) cancelCommand() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "cancel JOB...",
		Short: "Cancel jobs that wait",
		Long: `Make jobs that are pending or retryable failed, with category canceled: all that
are named, by id or key, or none.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel cancel 12",
	}, func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return usage("semel jobs lists the jobs", "say which jobs")
		}
		s := api.Selection{Refs: args}
		return a.writing(ctx, a.change(s, "canceled", func(service api.Service, each func(api.Job) error) error { return service.Cancel(ctx, s, each) }))
	})
}

// change applies a change to jobs and prints each as it is changed.
func (a *app) change(s api.Selection, done string, apply func(api.Service, func(api.Job) error) error) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		n := 0
		err := apply(service, func(j api.Job) error {
			n++
			if a.json {
				return a.line(j)
			}
			a.printf("%s %d %s\n", done, j.ID, j.Key)
			return nil
		})
		if errors.Is(err, api.ErrUnknownSource) {
			return sourceFault(c, s.Source)
		}
		if err == nil {
			a.notef("%s %s", done, count(n, "job"))
		}
		return err
	}
}
