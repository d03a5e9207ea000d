package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
	"semel/engine/intake"
)

func (a *app) reparseCommand() *cobra.Command {
	var r api.ReparseRequest
	var window string
	cmd := a.command(&cobra.Command{
		Use:   "reparse SOURCE [--window W] [--dry-run]",
		Short: "Read the pages that are kept by the rules as they are now",
		Long: `Read the kept pages of a source's jobs (store.bodies = "all") by the rules as they
are now, without a request, and commit what they give by the source's write mode: rows
of a higher parser.version take the place of older ones, or stand beside them where
identity names the parser. Raise parser.version first.

With --dry-run nothing is changed: each job that would change is shown, and each field
counts rows in which it was added, lost or changed, and its problems. The counts are
those of the run that then follows, but for rows that more than one page gives: each of
these pages is held against what stands now, and a note says how many such rows there
are. It exits 0 also where pages would not fit.

A page that no longer fits leaves what it gave and goes to the quarantine (exit 3). A
row that the rules no longer give stays under insert, upsert and append, as it does
when its page is collected again. Under replace it goes: the rows of a window change in
one step, and are held for semel runs where a page of the window does not fit or is not
kept, or fewer than half of them would be left. Runs that are held are named with the
reason, and what is told of their jobs is what semel runs release changes. All pages of a
window are in memory then, also those that these rules have read before: one may give a
row that another no longer does.

Jobs that rules of this version have read are passed over, unless semel runs discard has
dropped what that gave: a call that was cut short is made again and goes on, and one more
does nothing. Jobs without a page that can be read are
named and counted: semel retry --source SOURCE --recollect collects all of the source
again, semel retry JOB --recollect one. (Where identity names the parser, semel run makes
jobs for the new version.) Of a workflow only the last page is kept, so rules with fields
of earlier steps cannot be used.

` + exits(exitDone, exitFailed, exitUsage, exitJobs, exitConfig, exitStore, exitUnreadable, exitInterrupted),
		ValidArgsFunction: a.completeSource,
		Example:           "  semel reparse catalog --dry-run\n  semel reparse catalog --window 2026-04-23",
		Args:              exactArgs("SOURCE"),
	}, func(ctx context.Context, args []string) error {
		r.Source = args[0]
		return a.writing(ctx, a.reparse(ctx, r, window))
	})
	cmd.Flags().StringVar(&window, "window", "", "only jobs of windows `W`: an instant, a date or A..B")
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "only tell what would change")
	return cmd
}

func (a *app) reparse(ctx context.Context, r api.ReparseRequest, window string) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		src, err := findSource(c, r.Source)
		if err != nil {
			return err
		}
		if window != "" {
			w, err := intake.ParseWindow(window)
			if err != nil {
				return usage("", "%w", err)
			}
			r.From, r.To = w.Range(src.Schedule)
		}
		r.Rules = api.RulesOf(c)
		out := newConsole(a.stderr)
		result, err := service.Reparse(ctx, r, func(n api.ReparseNews) error {
			if n.Progress == nil {
				out.hide()
				return a.reparseNews(n, r.DryRun)
			}
			if out.terminal {
				out.draw(int64(n.Progress.Jobs), int64(n.Progress.Of), "reading pages again")
			}
			return nil
		})
		out.finish()
		if err != nil {
			return reparseFault(err, r.DryRun)
		}
		return a.reparseText(r, result)
	}
}

// reparseFault says of a reparse that was interrupted how to go on.
func reparseFault(err error, dry bool) error {
	if !dry && (errors.Is(err, context.Canceled) || errors.Is(err, errInterrupted)) {
		return &fault{exitInterrupted, errors.New("interrupted"), "what was read is committed: run it again to go on"}
	}
	return rulesFault(err)
}

// reparseNews prints a run that is held, or a job.
func (a *app) reparseNews(n api.ReparseNews, dry bool) error {
	switch {
	case n.Held == nil:
		return a.reparsed(*n.Job, dry)
	case a.json:
		return a.line(n.Held)
	}
	a.printf("held     run %s: %s\n", plain(n.Held.Run), plain(n.Held.Held))
	return nil
}

// reparsed prints a job that gives something else, or has no page: without --dry-run
// and --json only the latter.
func (a *app) reparsed(of api.Reparsed, dry bool) error {
	switch {
	case a.json:
		return a.line(of)
	case of.Missing:
		a.printf("missing  job %s\n", plain(of.Job))
		return nil
	case !dry:
		return nil
	}
	a.printf("job %s\n", plain(of.Job))
	for _, row := range of.Rows {
		if err := a.difference(row); err != nil {
			return err
		}
	}
	for _, p := range of.Problems {
		a.printf("unfit    %s\n", problemText(p))
	}
	return nil
}

func (a *app) reparseText(r api.ReparseRequest, result api.ReparseResult) error {
	if a.json {
		if err := a.line(result); err != nil {
			return err
		}
	} else {
		a.reparseCounts(r, result)
	}
	switch {
	case r.DryRun:
	case result.Unfit > 0:
		return &fault{exitJobs, fmt.Errorf("%s not fit these rules", does(int64(result.Unfit))), "what they gave stays; semel quarantine tells what is wrong"}
	case result.Held > 0:
		return heldFault(result.Held)
	case result.SetAside > 0:
		return &fault{exitJobs, fmt.Errorf("rows of %s do not fit these rules", count(result.SetAside, "page")), "the others are committed; semel quarantine tells what is wrong"}
	}
	return nil
}

func (a *app) reparseCounts(r api.ReparseRequest, result api.ReparseResult) {
	for _, name := range slices.Sorted(maps.Keys(result.Fields)) {
		n := result.Fields[name]
		field := "field " + name
		if name == "" {
			field = "no single field"
		}
		a.printf("%s: %d added, %d lost, %d changed, %d failing\n", plain(field), n.Added, n.Lost, n.Changed, n.Failing)
	}
	verb, held := "read again", "held"
	if r.DryRun {
		verb, held = "would be read again", "would be held"
	}
	a.notef("%s %s: %d changed, %d the same, %d not fitting; %d read by rules of this version before", count(result.Jobs-result.Current-result.Missing-result.Moved, "page"), verb, result.Changed, result.Same, result.Unfit, result.Current)
	if result.Missing > 0 {
		a.notef("%s without a page that can be read again: semel retry --source %s --recollect collects those again", count(result.Missing, "job"), r.Source)
	}
	if result.Gone > 0 {
		a.notef("%s no longer given, and gone from their windows", count(result.Gone, "row"))
	}
	if result.Contested > 0 {
		a.notef("%s given by more than one page: the real run decides between them, and may change fewer", count(result.Contested, "row"))
	}
	if result.Held > 0 {
		a.notef("%s %s: the rows of before stand, and what is counted is what semel runs release changes", count(result.Held, "run"), held)
	}
	if result.Moved > 0 {
		a.notef("%s worked on meanwhile: reparse again when that is over", count(result.Moved, "job"))
	}
}
