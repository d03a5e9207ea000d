package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

// noWindows is what --window says of jobs that have none.
const noWindows = "none"

func (a *app) compareCommand() *cobra.Command {
	var window string
	cmd := a.command(&cobra.Command{
		Use:   "compare SOURCE --window W",
		Short: "Collect a past window again, and report what has changed",
		Long: `Collect the jobs of a past window again, in a scratch store that is removed at the
end, and print each row that is new, changed or gone. W is an instant, a date or
A..B; none means the jobs without a window. The store is only read.

The requests are real and cost what they cost: as many as the window has jobs, with
their retries, at the pace of the config, through its proxies. Today's traffic counts
when it is held against a budget, and the other way round while semel run holds the
store; status does not show it. A source with a request that must not be repeated is refused.

A row in whose place one of another window stands by now is not compared, nor are
rows whose jobs failed this time. Differences alone exit 0.

` + exits(exitDone, exitFailed, exitUsage, exitJobs, exitConfig, exitStore, exitUnreadable, exitInterrupted),
		ValidArgsFunction: a.completeSource,
		Example:           "  semel compare catalog --window 2026-04-23\n  semel compare catalog --window none --json",
		Args:              exactArgs("SOURCE"),
	}, func(ctx context.Context, args []string) error {
		if window == "" {
			return usage("for the jobs without a window: --window none", "--window is missing")
		}
		return a.compare(ctx, args[0], window)
	})
	cmd.Flags().StringVar(&window, "window", "", "windows to collect again: `W`, or none")
	return cmd
}

func (a *app) compare(ctx context.Context, name, window string) error {
	c, err := a.loadConfig()
	if err != nil {
		return err
	}
	src, err := findSource(c, name)
	if err != nil {
		return err
	}
	r, err := compareRequest(src, window)
	if err != nil {
		return err
	}
	return a.withService(ctx, c, false, storage.Options{ReadOnly: true}, func(_ *config.Config, service api.Service) error {
		result, err := service.Compare(ctx, r, a.difference)
		if err != nil {
			return err
		}
		return a.compared(result)
	})
}

func compareRequest(src *config.Source, window string) (api.CompareRequest, error) {
	r := api.CompareRequest{Source: src.Name}
	if window == noWindows {
		return r, nil
	}
	w, err := intake.ParseWindow(window)
	if err != nil {
		return r, usage("", "%w", err)
	}
	r.From, r.To = w.Range(src.Schedule)
	return r, nil
}

func (a *app) difference(d api.Difference) error {
	if a.json {
		return a.line(d)
	}
	what := string(d.Record)
	if d.Kind == api.DifferenceChanged {
		changes := make([]string, len(d.Fields))
		for i, f := range d.Fields {
			changes[i] = fmt.Sprintf("%s was %s, is %s", f.Name, orAbsent(f.Was), orAbsent(f.Now))
		}
		what = strings.Join(changes, "; ")
	}
	a.printf("%-8s %s: %s\n", d.Kind, plain(d.Key), plain(what))
	return nil
}

// orAbsent is a value as JSON has it.
func orAbsent(value []byte) string {
	if value == nil {
		return "absent"
	}
	return string(value)
}

func (a *app) compared(r api.CompareResult) error {
	if a.json {
		if err := a.line(r); err != nil {
			return err
		}
	} else {
		a.notef("%s collected again: %s the same, %d new, %d changed, %d gone%s", count(r.Jobs, "job"),
			count(r.Same, "row"), r.New, r.Changed, r.Gone, per(int64(r.Elsewhere), ", %d not compared since a row of another window stands in their place", r.Elsewhere))
	}
	if r.Failed > 0 {
		return &fault{exitJobs, fmt.Errorf("%s failed this time, and %s not compared", count(r.Failed, "job"), count(r.NotCompared, "row")), "compare again later: their rows are in neither figure"}
	}
	return nil
}
