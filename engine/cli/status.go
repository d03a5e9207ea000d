package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
)

func (a *app) statusCommand() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "status",
		Short: "Show how each source stands",
		Long: `Show for each source its jobs by state, progress, attempts and bytes per complete
job, recovered leases, how long attempts take beside the lease and the timeout,
retries and failures by category, and warnings with their likely cause. While
semel run goes on, also which proxies are paused, why and until when.

` + exits(exitDone, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel status\n  semel status --json | jq .sources.catalog.failed",
		Args:    exactArgs(),
	}, func(ctx context.Context, _ []string) error { return a.reading(ctx, a.status(ctx)) })
}

func (a *app) status(ctx context.Context) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		s, err := service.Status(ctx)
		if err != nil {
			return err
		}
		if a.json {
			return a.line(s)
		}
		a.statusText(c, s)
		return nil
	}
}

func (a *app) statusText(c *config.Config, s api.Status) {
	if s.Run != nil {
		a.printf("semel run, pid %d, since %s\n", s.Run.PID, s.Run.Started.Format(time.RFC3339))
	} else {
		a.printf("no semel run holds the store\n")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Sources)) {
		a.sourceText(c, name, s.Sources[name])
	}
	for _, sink := range slices.Sorted(maps.Keys(s.Outbox)) {
		o := s.Outbox[sink]
		a.printf("sink %s\n", sink)
		a.row("events", "%d pending, %d delivered, %d deduplicated, %d ambiguous, %d dead", o.Pending, o.Delivered, o.Deduplicated, o.Ambiguous, o.Dead)
	}
	if len(s.Proxies) > 0 {
		a.printf("proxies\n")
		for _, name := range slices.Sorted(maps.Keys(s.Proxies)) {
			a.row(name, "%s", proxyText(s.Proxies[name]))
		}
	}
	for _, w := range s.Warnings {
		a.printf("warning: %s\n", plain(w))
	}
}

// proxyText is where a proxy is, and whether it is in use.
func proxyText(p api.ProxyStatus) string {
	if p.Paused == "" {
		return plain(p.Endpoint)
	}
	return fmt.Sprintf("%s, paused until %s: %s", plain(p.Endpoint), timeText(p.PausedUntil), plain(p.Paused))
}

// sourceText leaves out rows in which nothing happened.
func (a *app) sourceText(c *config.Config, name string, s api.SourceStatus) {
	total := s.Total()
	if total == 0 {
		a.printf("source %s: no jobs yet\n", name)
		return
	}
	done := s.Complete + s.Failed
	a.printf("source %s: %d%% of %s ended\n", name, done*100/total, count(total, "job"))
	a.row("jobs", "%d pending, %d running, %d retryable, %d complete, %d failed", s.Pending, s.Running, s.Retryable, s.Complete, s.Failed)
	a.row("attempts", "%d%s", s.Attempts, per(s.Complete, ", %.2f per complete job", s.AttemptsPerComplete))
	if s.AttemptP99 > 0 {
		a.row("time", "%s", attemptTimes(c, name, s))
	}
	a.row("traffic", "%s up, %s down%s", bytesText(s.BytesUp), bytesText(s.BytesDown), per(s.Complete, ", %s per complete job", bytesText(int64(s.BytesPerComplete))))
	a.row("rows", "%s, %d unchanged, %d duplicates rejected", count(s.Observations, "observation"), s.Unchanged, s.DuplicatesRejected)
	if s.Recovered+s.CompletedAfterRecovery+s.StaleCommits > 0 {
		a.row("recovery", "%s taken back, %s completed after that, %s dropped",
			count(s.Recovered, "lease"), count(s.CompletedAfterRecovery, "job"), count(s.StaleCommits, "late outcome"))
	}
	if len(s.Retries) > 0 {
		a.row("retries", "%s", tallyText(s.Retries))
	}
	if len(s.Failures) > 0 {
		a.row("failures", "%s", tallyText(s.Failures))
	}
}

// attemptTimes sets how long attempts take beside what bounds them.
func attemptTimes(c *config.Config, name string, s api.SourceStatus) string {
	millis := func(n int64) string { return durationText(time.Duration(n) * time.Millisecond) }
	text := fmt.Sprintf("half of the attempts within %s, 99%% within %s; lease %s", millis(s.AttemptP50), millis(s.AttemptP99), durationText(c.Engine.Lease))
	if source := c.Source(name); source != nil {
		text += ", timeout " + durationText(source.Timeout)
	}
	return text
}

// per is a text about an average, "" where there is nothing to divide by.
func per(n int64, format string, value any) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, value)
}

// row prints one line under a heading.
func (a *app) row(name, format string, args ...any) {
	a.printf("  %-10s %s\n", name, fmt.Sprintf(format, args...))
}
