package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
	"semel/storage"
)

func (a *app) verifyCommand() *cobra.Command {
	var twice string
	cmd := a.command(&cobra.Command{
		Use:   "verify [--twice SOURCE]",
		Short: "Compare everything in the store with everything",
		Long: `Compare everything in the store with everything: pages, jobs with their indexes
both ways, attempts and observations with jobs, events, kept pages with their
checksums and their folder, counters with a recount.
Each place that does not agree is a line, with its bucket and key; where all
agrees, each source is one, with the checksum of its observations: two stores that
collected the same have the same one, whatever happened on the way. A run that goes
on stops writing while the pages are looked at.

With --twice, all kept pages of a source (store.bodies = "all") are then parsed
again in a scratch store, and each observation that comes out differently is a line.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel verify\n  semel verify --json\n  semel verify --twice catalog",
		Args:    exactArgs(),
	}, func(ctx context.Context, _ []string) error { return a.reading(ctx, a.verify(ctx, twice)) })
	cmd.Flags().StringVar(&twice, "twice", "", "parse all kept pages of this `SOURCE` again and compare")
	return cmd
}

// verifiedSource is what verify prints with --json of a source.
type verifiedSource struct {
	Source string `json:"source"`
	api.SourceSum
}

func (a *app) verify(ctx context.Context, twice string) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		if twice != "" && c.Source(twice) == nil {
			return sourceFault(c, twice)
		}
		result, err := service.Verify(ctx, a.breach)
		if err != nil {
			return err
		}
		if result.Breaches > 0 {
			return &fault{exitFailed, fmt.Errorf("the store contradicts itself in %s", count(result.Breaches, "place")), "keep a copy of the file for a report, and go back to a backup; " + ofLostPages}
		}
		sums, err := service.Checksums(ctx)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(sums)) {
			if err := a.verified(verifiedSource{name, sums[name]}); err != nil {
				return err
			}
		}
		a.notef("the store agrees with itself")
		if twice == "" {
			return nil
		}
		return a.verifyTwice(ctx, service, twice)
	}
}

func (a *app) verifyTwice(ctx context.Context, service api.Service, source string) error {
	result, err := service.VerifyTwice(ctx, source, a.unlike)
	switch {
	case err != nil:
		return err
	case result.Unlike > 0:
		return &fault{exitFailed, fmt.Errorf("%s came out differently", count(result.Unlike, "observation")),
			"if the rules were changed, raise parser.version; if not, report this with one of the pages"}
	case a.json:
		return a.line(result)
	case result.Pages == 0:
		a.notef("there is no page of %s to read again: store.bodies = \"all\" keeps those of attempts to come", source)
		return nil
	}
	a.printf("source %s: %s read again, %s compared and equal, checksum %s\n", source, count(result.Pages, "page"), count(result.Rows, "observation"), result.Checksum)
	if result.Missing > 0 {
		a.notef("%s could not be read again: their pages were not kept, or belong to another version of the rules, or their rows are held or discarded", count(result.Missing, "complete job"))
	}
	return nil
}

func (a *app) unlike(u api.Unlike) error {
	if a.json {
		return a.line(u)
	}
	a.printf("%s: %s\n", u.Key, plain(u.What))
	return nil
}

func (a *app) breach(b api.Breach) error {
	if a.json {
		return a.line(b)
	}
	key, err := hex.DecodeString(b.Key)
	a.printf("%s\n", plain(storage.Breach{Bucket: b.Bucket, Key: key, What: b.What}.String()))
	return err
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
