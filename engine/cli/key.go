package cli

import (
	"context"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"semel/engine/intake"
)

// noWindow is the window of jobs that no schedule made.
var noWindow time.Time

func (a *app) keyCommand() *cobra.Command {
	var target targetFlags
	cmd := a.command(&cobra.Command{
		Use:   "key SOURCE [--url URL | --var NAME=VALUE]...",
		Short: "Show a target's canonical key, part by part",
		Long: `Show the key of the job that a target would become: each part, the setting
behind it, and whether the source's identity lets it count. Without --url and
--var it is the source's first target. Neither store nor network is needed.

` + exits(exitDone, exitFailed, exitUsage, exitConfig),
		ValidArgsFunction: a.completeSource,
		Example:           "  semel key catalog --var sku=42\n  semel key pages --url https://example.com/page --json",
		Args:              exactArgs("SOURCE"),
	}, func(_ context.Context, args []string) error { return a.key(args[0], &target) })
	target.register(cmd)
	return cmd
}

// keyStory is what key prints with --json.
type keyStory struct {
	Source string    `json:"source"`
	URL    string    `json:"url"`
	Key    string    `json:"key"`
	Parts  []keyPart `json:"parts"`
}

// keyPart is intake.KeyPart with names for JSON.
type keyPart struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Setting string `json:"setting"`
	Counts  bool   `json:"counts"`
}

func (a *app) key(name string, target *targetFlags) error {
	c, err := a.loadConfigWithoutSecrets()
	if err != nil {
		return err
	}
	s, err := findSource(c, name)
	if err != nil {
		return err
	}
	job, err := target.job(s)
	if err != nil {
		return err
	}
	parts := s.KeyParts(job)
	if !a.json {
		return a.keyText(job, parts)
	}
	story := keyStory{Source: s.Name, URL: job.URL, Key: job.Key.String()}
	for _, p := range parts {
		story.Parts = append(story.Parts, keyPart(p))
	}
	return a.line(story)
}

func (a *app) keyText(job intake.Job, parts []intake.KeyPart) error {
	table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { _, _ = table.Write([]byte(strings.Join(cells, "\t") + "\n")) }
	row("PART", "VALUE", "COUNTS", "SETTING")
	for _, p := range parts {
		value, counts := p.Value, "no"
		if value == "" {
			value = "-"
		}
		if p.Counts {
			counts = "yes"
		}
		row(p.Name, plain(value), counts, p.Setting)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	a.printf("\nkey  %s\nurl  %s\n", job.Key, job.URL)
	return nil
}
