package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
	"semel/storage"
)

func (a *app) showCommand() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "show JOB",
		Short: "Tell one job's whole story",
		Long: `Tell one job's whole story: what it is and which settings it is under, each
attempt with its outcome and why, the events of its outcomes and how far each is on
its way to its sinks, and what comes next. JOB is its id or its key.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel show 12\n  semel show catalog:42:US:-:-:- --json",
		Args:    exactArgs("JOB"),
	}, func(ctx context.Context, args []string) error { return a.reading(ctx, a.show(ctx, args[0])) })
}

func (a *app) show(ctx context.Context, ref string) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		story, err := service.Job(ctx, ref)
		if err != nil {
			return err
		}
		if a.json {
			return a.line(story)
		}
		a.storyText(c, story)
		return nil
	}
}

func (a *app) storyText(c *config.Config, j api.JobStory) {
	a.printf("job %d: %s\n", j.ID, stateText(j))
	a.row("next", "%s", j.Next)
	a.row("key", "%s", j.Key)
	a.row("url", "%s", plain(j.URL))
	if len(j.Vars) > 0 {
		for _, name := range slices.Sorted(maps.Keys(j.Vars)) {
			a.row("variable", "%s = %s", name, plain(j.Vars[name]))
		}
	}
	a.row("made", "%s, country %s, scope %s, window %s, priority %d",
		timeText(&j.Created), orDash(j.Country), dash(j.Scope), timeText(j.Window), j.Priority)
	a.row("rules", "parser.version %d", j.Version)
	if j.Quarantine != nil {
		a.row("quarantine", "%s", asideText(j.Quarantine))
	}
	if s := c.Source(j.Source); s != nil {
		a.row("limits", "%s", limitsText(s))
	}
	if j.Owner != "" {
		a.row("lease", "held by %s until %s", j.Owner, timeText(j.LeaseUntil))
	}
	if j.Rescues > 0 {
		a.row("rescues", "its worker died %s in a row", count(j.Rescues, "time"))
	}
	a.row("cost", "%s, %s up, %s down", count(j.Attempts, "counted attempt"), bytesText(j.BytesUp), bytesText(j.BytesDown))
	for _, at := range j.History {
		a.attemptText(at)
	}
	for i := range j.Events {
		a.eventText(&j.Events[i])
	}
}

// asideText is what of a job's page did not fit.
func asideText(q *api.Quarantined) string {
	what := "the page does not fit the rules"
	if q.Rows > 0 {
		n := len(q.Problems) + q.More
		what = fmt.Sprintf("%d of %s of the page do not fit the rules", n, count(n+q.Rows, "row"))
	}
	return fmt.Sprintf("%s (parser.version %d): semel quarantine show %d tells why", what, q.ParserVersion, q.ID)
}

func (a *app) eventText(e *api.JobEvent) {
	a.printf("event %d: %s, %s, committed at %s\n", e.Number, e.Type, e.ID, timeText(&e.Timestamp))
	for i := range e.Sinks {
		a.row("sink", "%s", dispatchText(&e.Sinks[i]))
	}
}

// dispatchText is how far an event is on its way to a sink.
func dispatchText(d *api.Dispatch) string {
	text := fmt.Sprintf("%s: %s", d.Sink, d.State)
	if d.Outcome != nil && string(*d.Outcome) != string(d.State) {
		text += fmt.Sprintf(", the last delivery %s at %s", *d.Outcome, timeText(d.LastAt))
	} else if d.LastAt != nil {
		text += " at " + timeText(d.LastAt)
	}
	if d.Tries > 0 {
		text += ", " + count(d.Tries, "counted try")
	}
	if d.Ambiguous > 0 {
		text += fmt.Sprintf(", %d ambiguous", d.Ambiguous)
	}
	if d.NextAt != nil {
		text += ", the next not before " + timeText(d.NextAt)
	}
	if d.Reason != "" {
		text += ": " + plain(d.Reason)
	}
	return text
}

// stateText is a job's state and why it is in it.
func stateText(j api.JobStory) string {
	text := string(j.State)
	if j.Category != nil {
		text += ", " + string(*j.Category)
	}
	if j.Reason != "" {
		text += ": " + plain(j.Reason)
	}
	return text
}

// limitsText is what bounds a source's jobs now.
func limitsText(s *config.Source) string {
	through := "direct"
	if len(s.Proxies) > 0 {
		names := make([]string, len(s.Proxies))
		for i, p := range s.Proxies {
			names[i] = p.Name
		}
		through = "proxy " + strings.Join(names, ", else ")
	}
	l := s.Limits
	return fmt.Sprintf("%s, %s, %s; one attempt %s, %s", count(l.Attempts, "attempt"),
		durationText(l.Time), bytesText(l.Bytes), durationText(s.Timeout), through)
}

func (a *app) attemptText(at api.Attempt) {
	a.printf("attempt %d: %s\n", at.Generation, attemptOutcome(at))
	if at.Kind == storage.KindReparse {
		a.row("when", "%s, from the page that was fetched at %s: nothing was asked for, and it is not counted", timeText(&at.Start), timeText(at.FetchedAt))
	} else {
		a.row("when", "%s, for %s, by %s", timeText(&at.Start), durationText(at.End.Sub(at.Start)), at.Owner)
	}
	if at.Reason != "" {
		a.row("why", "%s", plain(at.Reason))
	}
	a.row("reached", "%s", reachedText(at))
	if at.Endpoint != "" {
		a.row("through", "%s, country %s, session %s", plain(at.Endpoint), dash(at.Country), dash(at.Session))
	}
	if at.FinalURL != "" {
		a.row("page", "%s", plain(at.FinalURL))
	}
	if at.Page != "" {
		a.row("kept", "the page, SHA-256 %s", at.Page)
	}
	if at.NextAt != nil {
		a.row("then", "due again at %s, %s later", timeText(at.NextAt), durationText(at.NextAt.Sub(at.End)))
	}
}

// attemptOutcome says what became of an attempt, in words.
func attemptOutcome(at api.Attempt) string {
	text := at.Outcome
	switch at.Outcome {
	case storage.OutcomeComplete:
		return fmt.Sprintf("complete, %s by rules of version %d", count(at.Records, "record"), at.ParserVersion)
	case storage.OutcomeRetry:
		text = "failed, to be tried again"
	case storage.OutcomeFail:
		text = "failed, and the job with it"
	case storage.OutcomeReleased:
		text = "handed back, not counted"
	case storage.OutcomeRescued:
		text = "taken back from a dead worker, not counted"
	}
	if at.Category != nil {
		text += " (" + string(*at.Category) + ")"
	}
	return text
}

// reachedText is how far an attempt came and what it cost.
func reachedText(at api.Attempt) string {
	text := stepText(at.Step) + "phase " + dash(at.Phase)
	if at.Status != 0 {
		text += fmt.Sprintf(", status %d", at.Status)
	}
	if at.ConnectStatus != 0 {
		text += fmt.Sprintf(", status %d of the proxy", at.ConnectStatus)
	}
	if at.ProxyCode != "" {
		text += ", proxy says " + plain(at.ProxyCode)
	}
	return text + fmt.Sprintf(", %s up, %s down", bytesText(at.BytesUp), bytesText(at.BytesDown))
}

// stepText says which step of a workflow the rest is about.
func stepText(step string) string {
	if step == "" {
		return ""
	}
	return "step " + plain(step) + ", "
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return plain(text)
}
