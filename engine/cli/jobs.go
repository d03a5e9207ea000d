package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
	"semel/storage"
)

func (a *app) jobsCommand() *cobra.Command {
	var f api.JobFilter
	var state, category string
	cmd := a.command(&cobra.Command{
		Use:   "jobs [--source SOURCE] [--state STATE] [--category CATEGORY] [--limit N]",
		Short: "List jobs",
		Long: `List jobs, oldest first. States are pending, running, retryable, complete and
failed; a category says why the last attempt failed.

` + exits(exitDone, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel jobs --state failed\n  semel jobs --source catalog --category not_found --json",
		Args:    exactArgs(),
	}, func(ctx context.Context, _ []string) error {
		var err error
		if f.State, err = parseState(state); err != nil {
			return err
		}
		if f.Category, err = parseCategory(category); err != nil {
			return err
		}
		if f.Limit < 0 {
			return usage("leave it out for no limit", "--limit must be at least 0 (got %d)", f.Limit)
		}
		return a.reading(ctx, a.jobs(ctx, f))
	})
	cmd.Flags().StringVar(&f.Source, "source", "", "only jobs of this `SOURCE`")
	cmd.Flags().StringVar(&state, "state", "", "only jobs in this `STATE`")
	cmd.Flags().StringVar(&category, "category", "", "only jobs whose last attempt failed with this `CATEGORY`")
	cmd.Flags().IntVar(&f.Limit, "limit", 0, "at most `N` jobs (default no limit)")
	return cmd
}

func parseState(text string) (storage.JobState, error) {
	known := []string{
		string(storage.StatePending), string(storage.StateRunning), string(storage.StateRetryable),
		string(storage.StateComplete), string(storage.StateFailed),
	}
	word, err := parseWord("--state", text, known)
	return storage.JobState(word), err
}

func parseCategory(text string) (storage.Category, error) {
	known := make([]string, len(storage.Categories))
	for i, c := range storage.Categories {
		known[i] = string(c)
	}
	word, err := parseWord("--category", text, known)
	return storage.Category(word), err
}

// parseWord holds a flag to the words there are; "" is none.
func parseWord(flag, text string, known []string) (string, error) {
	if text == "" {
		return "", nil
	}
	for _, k := range known {
		if text == k {
			return text, nil
		}
	}
	hint := "known are " + strings.Join(known, ", ")
	if near := nearest(text, known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return "", usage(hint, "%s %q is not known", flag, text)
}

func (a *app) jobs(ctx context.Context, f api.JobFilter) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		err := list(a, "ID\tSTATE\tCATEGORY\tATTEMPTS\tNEXT\tKEY", jobRow, func(show func(api.Job) error) error {
			return service.Jobs(ctx, f, show)
		})
		if errors.Is(err, api.ErrUnknownSource) {
			return sourceFault(c, f.Source)
		}
		return err
	}
}

func jobRow(j api.Job) string {
	return fmt.Sprintf("%d\t%s\t%s\t%d\t%s\t%s", j.ID, j.State, orDash(j.Category), j.Attempts, timeText(j.NextAt), j.Key)
}
