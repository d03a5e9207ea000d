package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
)

func (a *app) statusCommand() *cobra.Command {
	var estimate int64
	cmd := a.command(&cobra.Command{
		Use:   "status [--estimate N]",
		Short: "Show how each source stands, and what more of it would cost",
		Long: `Show for each source its jobs by state, progress, attempts (the retry
multiplier), bytes and cost per complete job, recovered leases, how long attempts
take beside the lease and the timeout, retries and failures by category, and
warnings with their likely cause; for each proxy what went through it today (UTC)
and in all, beside its budget and price; for each sink the events that wait for it
and what became of its deliveries. While semel run goes on, also which proxies and
sinks are paused, why and until when.

With --estimate, also the bytes, the cost and the days of budget that N more
targets of each source would take if they are like those before, retries and
failures included. The range is that of the best and the worst of the last days.

` + exits(exitDone, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel status\n  semel status --estimate 10000\n  semel status --json | jq .sources.catalog.failed",
		Args:    exactArgs(),
	}, func(ctx context.Context, _ []string) error {
		if estimate < 0 {
			return usage("leave it out for no estimate", "--estimate must be at least 0 (got %d)", estimate)
		}
		return a.reading(ctx, a.status(ctx, estimate))
	})
	cmd.Flags().Int64Var(&estimate, "estimate", 0, "what `N` more targets of each source would take (default none)")
	return cmd
}

func (a *app) status(ctx context.Context, estimate int64) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		s, err := service.Status(ctx, estimate)
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
		a.sinkText(sink, s.Outbox[sink])
	}
	if len(s.Proxies) > 0 {
		a.printf("proxies\n")
		for _, name := range slices.Sorted(maps.Keys(s.Proxies)) {
			a.row(name, "%s", proxyText(s.Proxies[name]))
			a.row("", "%s", spentText(s.Proxies[name]))
		}
	}
	if len(s.Hosts) > 1 {
		a.printf("busiest hosts today: %s\n", hostsText(&s))
	}
	if len(s.Quarantine) > 0 {
		a.printf("quarantine\n")
		for _, name := range slices.Sorted(maps.Keys(s.Quarantine)) {
			a.row(name, "%s not fit the rules: semel quarantine list --source %s", does(s.Quarantine[name]), name)
		}
	}
	for _, w := range s.Warnings {
		a.printf("warning: %s\n", plain(w))
	}
}

// does is how many pages do not do something.
func does(pages int64) string {
	if pages == 1 {
		return "1 page does"
	}
	return fmt.Sprintf("%d pages do", pages)
}

func (a *app) sinkText(name string, s api.SinkStatus) {
	a.printf("sink %s\n", name)
	a.row("events", "%d pending, %d delivered, %d deduplicated, %d ambiguous, %d dead", s.Pending, s.Delivered, s.Deduplicated, s.Ambiguous, s.Dead)
	if s.Retried > 0 {
		a.row("retries", "%d", s.Retried)
	}
	if s.Paused != "" {
		a.row("paused", "until %s: %s", timeText(s.PausedUntil), plain(s.Paused))
	}
	if s.Stopped != nil {
		a.row("stopped", "since %s: %s", timeText(s.Stopped), plain(s.StopReason))
	}
}

// proxyText is where a proxy is, and whether it is in use.
func proxyText(p api.ProxyStatus) string {
	if p.Paused == "" {
		return plain(p.Endpoint)
	}
	return fmt.Sprintf("%s, paused until %s: %s", plain(p.Endpoint), timeText(p.PausedUntil), plain(p.Paused))
}

// spentText is what went through a proxy.
func spentText(p api.ProxyStatus) string {
	text := fmt.Sprintf("today %s up, %s down", bytesText(p.Today.BytesUp), bytesText(p.Today.BytesDown))
	if p.Budget != nil {
		text += fmt.Sprintf(" (%s of the budget of %s)", share(p.Today.Total(), *p.Budget), bytesText(*p.Budget))
	}
	if p.CostToday != nil {
		text += fmt.Sprintf(", %s", p.CostToday)
	}
	text += "; in all " + bytesText(p.Total())
	if p.Cost != nil {
		text += fmt.Sprintf(", %s", p.Cost)
	}
	return text
}

// shownHosts is how many hosts make a line: the rest is in the JSON.
const shownHosts = 5

func hostsText(s *api.Status) string {
	names := s.BusiestHosts()
	parts := make([]string, min(len(names), shownHosts))
	for i := range parts {
		parts[i] = plain(names[i]) + " " + bytesText(s.Hosts[names[i]].Total())
	}
	return strings.Join(parts, ", ")
}

// wastedText is which share of the traffic came to nothing.
func wastedText(s api.SourceStatus) string {
	if s.BytesWasted == 0 {
		return ""
	}
	return fmt.Sprintf(", %s in attempts that did not complete", share(s.BytesWasted, s.BytesUp+s.BytesDown))
}

// share is n of a whole, which is not 0, in percent.
func share(n, whole int64) string { return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(whole)) }

func estimateText(e *api.Estimate) string {
	if e.Jobs == 0 {
		return fmt.Sprintf("%s: nothing to go by, since no job has completed", count(e.Targets, "more target"))
	}
	text := fmt.Sprintf("%s: %s", count(e.Targets, "more target"), bytesText(e.Bytes))
	if e.BytesHigh > 0 {
		text += fmt.Sprintf(" (%s to %s)", bytesText(e.BytesLow), bytesText(e.BytesHigh))
	}
	if e.Cost != nil {
		text += fmt.Sprintf(", %s", e.Cost)
	}
	if e.CostHigh != nil {
		text += fmt.Sprintf(" (%s to %s)", e.CostLow, e.CostHigh)
	}
	if e.Days > 0 {
		text += ", " + count(e.Days, "day") + " of budget"
	}
	text += ", by " + count(e.Jobs, "complete job")
	if e.Thin {
		text += ": few to go by"
	}
	return text
}

// sourceText leaves out rows in which nothing happened.
func (a *app) sourceText(c *config.Config, name string, s api.SourceStatus) {
	if total := s.Total(); total > 0 {
		a.printf("source %s: %d%% of %s ended\n", name, (s.Complete+s.Failed)*100/total, count(total, "job"))
		a.historyText(c, name, s)
	} else {
		a.printf("source %s: no jobs yet\n", name)
	}
	if s.Estimate != nil {
		a.row("estimate", "%s", estimateText(s.Estimate))
	}
}

func (a *app) historyText(c *config.Config, name string, s api.SourceStatus) {
	a.row("jobs", "%d pending, %d running, %d retryable, %d complete, %d failed", s.Pending, s.Running, s.Retryable, s.Complete, s.Failed)
	a.row("attempts", "%d%s", s.Attempts, per(s.Complete, ", %.2f per complete job (the retry multiplier)", s.AttemptsPerComplete))
	if s.AttemptP99 > 0 {
		a.row("time", "%s", attemptTimes(c, name, s))
	}
	a.row("traffic", "%s up, %s down%s%s", bytesText(s.BytesUp), bytesText(s.BytesDown),
		per(s.Complete, ", %s per complete job", bytesText(int64(s.BytesPerComplete))), wastedText(s))
	if s.Cost != nil {
		a.row("cost", "%s%s", s.Cost, per(s.Complete, ", %s per complete job", s.CostPerComplete))
	}
	a.row("rows", "%s, %d unchanged, %s rejected", count(s.Observations, "observation"), s.Unchanged, count(s.DuplicatesRejected, "duplicate"))
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
