package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
)

func (a *app) verifyCommand() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "verify",
		Short: "Compare everything in the store with everything",
		Long: `Compare everything in the store with everything: pages, jobs with their indexes
both ways, attempts and observations with jobs, events, counters with a recount.
Each place that does not agree is a line, with its bucket and key; where all
agrees, each source is one. A run that goes on stops writing meanwhile.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel verify\n  semel verify --json",
		Args:    exactArgs(),
	}, func(ctx context.Context, _ []string) error { return a.reading(ctx, a.verify(ctx)) })
}

// verifiedSource is what verify prints with --json of a source.
type verifiedSource struct {
	Source string `json:"source"`
	api.SourceSum
}

func (a *app) verify(ctx context.Context) func(*config.Config, api.Service) error {
	return func(_ *config.Config, service api.Service) error {
		result, err := service.Verify(ctx, a.breach)
		if err != nil {
			return err
		}
		if result.Breaches > 0 {
			return &fault{exitFailed, fmt.Errorf("the store contradicts itself in %s", count(result.Breaches, "place")), "keep a copy of the file for a report, and go back to an earlier copy"}
		}
		for _, name := range slices.Sorted(maps.Keys(result.Sources)) {
			if err := a.verified(verifiedSource{name, result.Sources[name]}); err != nil {
				return err
			}
		}
		a.notef("the store agrees with itself")
		return nil
	}
}

func (a *app) breach(b api.Breach) error {
	if a.json {
		return a.line(b)
	}
	a.printf("bucket %s, key %s: %s\n", b.Bucket, b.Key, plain(b.What))
	return nil
}

func (a *app) verified(s verifiedSource) error {
	if a.json {
		return a.line(s)
	}
	text := count(s.Rows, "observation")
	if s.Checksum != "" {
		text += ", checksum " + s.Checksum
	}
	a.printf("source %s: %s\n", s.Source, text)
	return nil
}
