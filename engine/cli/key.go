package cli

import (
	"context"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"semel/engine/config"
	"semel/engine/intake"
)

func (a *app) keyCommand() *cobra.Command {
	var target targetFlags
	var window string
	cmd := a.command(&cobra.Command{
		Use:   "key SOURCE [--url URL | --var NAME=VALUE]... [--window WINDOW]",
		Short: "Show a target's canonical key, part by part",
		Long: `Show the key of the job that a target would become: each part, the setting
behind it, and whether the source's identity lets it count. Without --url and
--var it is the source's first target, and without --window it is in none. With a
schedule an instant means the window that it is in, as for semel run. Neither
store nor network is needed.

` + exits(exitDone, exitFailed, exitUsage, exitConfig),
		ValidArgsFunction: a.completeSource,
		Example:           "  semel key catalog --var sku=42\n  semel key pages --url https://example.com/page --json\n  semel key catalog --window 2026-04-23T15:00:00Z",
		Args:              exactArgs("SOURCE"),
	}, func(_ context.Context, args []string) error { return a.key(args[0], &target, window) })
	target.register(cmd)
	cmd.Flags().StringVar(&window, "window", "", "the job's `WINDOW`: an instant, a date, or A..B")
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

func (a *app) key(name string, target *targetFlags, text string) error {
	c, err := a.loadConfigWithoutSecrets()
	if err != nil {
		return err
	}
	s, err := findSource(c, name)
	if err != nil {
		return err
	}
	window, err := oneWindow(s, text)
	if err != nil {
		return err
	}
	job, err := target.job(s, window)
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

// oneWindow is the start of the window that a text names; zero for "".
func oneWindow(s *config.Source, text string) (start time.Time, err error) {
	if text == "" {
		return start, nil
	}
	window, err := intake.ParseWindow(text)
	if err == nil {
		start, err = window.Start(s.Schedule)
	}
	if err != nil {
		return start, usage("", "--%w", err)
	}
	return start, nil
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
