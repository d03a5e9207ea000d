package api

import (
	"fmt"
	"time"

	"semel/storage"
)

// null makes nil of a zero value, which JSON shows as null.
func null[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// when is null for times; a zero time need not equal time.Time{}.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func newJob(j *storage.Job) Job {
	return Job{
		ID: j.ID, Key: j.Key.String(), Source: j.Key.Source, State: j.State,
		Generation: j.Generation, Attempts: j.Attempts, Category: null(j.Category),
		NextAt: when(j.NextAt), Window: when(j.Window), Country: null(j.Country), URL: j.URL,
	}
}

func newStory(j *storage.Job, attempts []storage.Attempt, worked bool) JobStory {
	s := JobStory{
		Job: newJob(j), Reason: j.Reason, Next: next(j, worked), Scope: j.Scope, Version: j.Version,
		Priority: j.Priority, Created: j.Created, Updated: j.Updated, FirstClaim: when(j.FirstClaim),
		Owner: j.Owner, LeaseUntil: when(j.LeaseUntil), Rescues: j.Rescues,
		BytesUp: j.BytesUp, BytesDown: j.BytesDown, History: make([]Attempt, 0, len(attempts)),
	}
	for _, v := range j.Vars {
		if s.Vars == nil {
			s.Vars = map[string]string{}
		}
		s.Vars[v.Name] = v.Value
	}
	for _, a := range attempts {
		s.History = append(s.History, newAttempt(a))
	}
	return s
}

func newAttempt(a storage.Attempt) Attempt {
	page := ""
	if !a.Page.IsZero() {
		page = a.Page.String()
	}
	return Attempt{
		Page:   page,
		Number: a.Generation, Generation: a.Generation, Kind: a.Kind, Outcome: a.Outcome, Category: null(a.Category), Reason: a.Reason,
		Step: a.Step, Phase: a.Phase, Status: a.Status, ConnectStatus: a.ConnectStatus, ProxyCode: a.ProxyCode,
		BytesUp: a.BytesUp, BytesDown: a.BytesDown, FinalURL: a.FinalURL,
		Endpoint: a.Endpoint, Country: a.Country, Session: a.Session,
		ParserVersion: a.ParserVersion, Records: a.Records,
		Owner: a.Owner, Start: a.Start, End: a.End, FetchedAt: when(a.FetchedAt), NextAt: when(a.NextAt),
	}
}

// next says what happens to a job without anybody doing anything; worked is
// set where the process that answers runs jobs. Where it does not, none does:
// it has the store, which a run would hold alone.
func next(j *storage.Job, worked bool) string {
	switch j.State {
	case storage.StatePending:
		if j.Sent != "" {
			return "it fails as unsafe_to_repeat when it is claimed: a request that must not be repeated may have been sent"
		}
		return "it is claimed as soon as a worker is free, its host may be asked and its proxy works"
	case storage.StateRunning:
		if worked {
			return "it is being worked on: the outcome is committed when the attempt ends"
		}
		return "its process is gone: the next semel run takes it back"
	case storage.StateRetryable:
		return fmt.Sprintf("the next attempt is due at %s", j.NextAt.Format(time.RFC3339))
	case storage.StateFailed:
		if j.Category == storage.CategoryUnsafeToRepeat {
			return fmt.Sprintf("nothing: look at the site whether it was done; semel retry %d sends it again", j.ID)
		}
		return fmt.Sprintf("nothing: run semel retry %d to try again", j.ID)
	default:
		return "nothing: its observation is committed"
	}
}

func newSourceStatus(c storage.Counters) SourceStatus {
	s := SourceStatus{
		Pending: c.State(storage.StatePending), Running: c.State(storage.StateRunning),
		Retryable: c.State(storage.StateRetryable), Complete: c.State(storage.StateComplete),
		Failed: c.State(storage.StateFailed),

		Observations: c[storage.MetricObservations], Attempts: c[storage.MetricAttempts],
		Recovered: c[storage.MetricRecovered], CompletedAfterRecovery: c[storage.MetricAfterRecovery],
		DuplicatesRejected: c[storage.MetricDuplicates], Unchanged: c[storage.MetricUnchanged],
		StaleCommits: c[storage.MetricStaleCommits],
		BytesUp:      c[storage.MetricBytesUp], BytesDown: c[storage.MetricBytesDown], BytesWasted: c[storage.MetricBytesWasted],
		AttemptP50: c.DurationQuantile(0.5).Milliseconds(), AttemptP99: c.DurationQuantile(0.99).Milliseconds(),
		Retries: c.By(storage.MetricRetries), Failures: c.By(storage.MetricFailures),
	}
	if n := c.Completed(); n > 0 { // also of jobs that are forgotten by now
		s.AttemptsPerComplete = float64(s.Attempts) / float64(n)
		s.BytesPerComplete = float64(s.BytesUp+s.BytesDown) / float64(n)
	}
	return s
}
