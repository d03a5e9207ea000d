package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"semel/engine"
	"semel/engine/config"
	"semel/engine/delivery"
	"semel/engine/intake"
	"semel/storage"
)

// pageRows is how many rows one look at the store reads: a long look would let
// the file grow while others write.
const pageRows = 1000

// Local answers from a store of this process. Commands reach it through a
// Handler only.
type Local struct {
	Store  *storage.Store
	Config *config.Config
	Engine Engine // nil: no jobs run here, nor anywhere else on this store

	// Replay is engine.Engine.Replay, of an engine with the config's rules.
	Replay func(ctx context.Context, source string, scratch *storage.Store) (engine.Replay, error)
	// CompareIn is engine.Engine.Compare of an engine with the config's sources
	// and secrets.
	CompareIn func(ctx context.Context, past engine.Past, scratch *storage.Store, fn func(engine.Difference) error) (engine.Comparison, error)

	// Release and Reread are engine.Engine.Release and Reparse, of an engine with the
	// config's rules.
	Release func(ctx context.Context, source string, job uint64) ([]storage.Problem, error)
	Reread  func(ctx context.Context, past engine.Past, dry bool, fn func(engine.ReparseNews) error) (engine.Reparsing, error)

	// Offer is engine.Engine.Backfill: of the engine that works the source, or of
	// one that works nothing where none does.
	Offer Offer

	inFlight    sync.Map   // idempotency keys of submissions that are being answered
	importing   sync.Map   // imports under way, by importName
	backfilling sync.Mutex // one at a time: two engines must not work on one source's lists
}

// Offer makes the jobs of past windows; see engine.Engine.Backfill.
type Offer func(ctx context.Context, source string, from, to time.Time, bad func(*intake.RowError)) (engine.Backfilled, error)

// Engine tells what only a running engine knows.
type Engine interface {
	// Paused are the proxies that are left alone for now, by name.
	Paused() map[string]engine.Pause
	// SinkPauses are the sinks that are taken for down, by name.
	SinkPauses() map[string]delivery.Pause
	// HeldHosts are the hosts that are left alone for now, by name.
	HeldHosts() map[string]engine.Hold
	// Waits says what a pending job waits for; "": nothing is known.
	Waits(source, host, country string) string
	// FullSince is since when the disk of the store has had no room; zero: it
	// has.
	FullSince() time.Time
}

var _ Service = (*Local)(nil)

// Jobs implements Service.
func (l *Local) Jobs(ctx context.Context, f JobFilter, fn func(Job) error) error {
	if f.Source != "" {
		if err := l.known(f.Source); err != nil {
			return err
		}
	}
	return l.eachJob(ctx, f, func(j *storage.Job) error { return fn(newJob(j)) })
}

// eachJob calls fn with the jobs that match.
func (l *Local) eachJob(ctx context.Context, f JobFilter, fn func(*storage.Job) error) error {
	from, to := l.bounds(f)
	return eachRow(ctx, f.Limit, func(after uint64) (page []*storage.Job, last uint64, err error) {
		err = l.Store.View(func(tx *storage.Tx) error {
			last, err = tx.Jobs(after, pageRows, func(j *storage.Job) bool {
				if f.matches(j, from, to) {
					page = append(page, j)
				}
				return true
			})
			return err
		})
		if err != nil {
			err = fmt.Errorf("listing jobs: %w", err)
		}
		return page, last, err
	}, fn)
}

// eachRow calls fn with limit rows, or with all where limit is 0, outside of any
// transaction, so that it may write to the store or to a slow reader. read reads the rows
// behind a place, and where to go on; the zero place is the beginning, and the end.
func eachRow[T any, P comparable](ctx context.Context, limit int, read func(behind P) ([]T, P, error), fn func(T) error) error {
	var start P
	for at, more := start, true; more; more = at != start {
		if err := ctx.Err(); err != nil {
			return err
		}
		page, next, err := read(at)
		if err != nil {
			return err
		}
		for _, row := range page {
			if err := fn(row); err != nil {
				return err
			}
			if limit--; limit == 0 {
				return nil
			}
		}
		at = next
	}
	return nil
}

// bounds are [from, to), in which the windows of a filter begin.
func (l *Local) bounds(f JobFilter) (from, to time.Time) {
	if src := l.Config.Source(f.Source); src != nil {
		return f.Window.Range(src.Schedule)
	}
	return f.Window.Range(nil)
}

func (f JobFilter) matches(j *storage.Job, from, to time.Time) bool {
	return (f.Source == "" || f.Source == j.Key.Source) &&
		(f.State == "" || f.State == j.State) &&
		(f.Category == "" || f.Category == j.Category) &&
		(f.Window.IsZero() || !j.Window.IsZero() && !j.Window.Before(from) && j.Window.Before(to))
}

// find reads the job that a reference names.
func find(tx *storage.Tx, ref string) (*storage.Job, error) {
	if id, err := strconv.ParseUint(ref, 10, 64); err == nil {
		return tx.Job(id)
	}
	key, err := storage.ParseJobKey(ref)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrNotFound, err)
	}
	return tx.JobByKey(key)
}

// Job implements Service.
func (l *Local) Job(_ context.Context, ref string) (JobStory, error) {
	var story JobStory
	err := l.Store.View(func(tx *storage.Tx) error {
		j, err := find(tx, ref)
		if err != nil {
			return err
		}
		attempts, err := tx.Attempts(j.ID)
		if err != nil {
			return err
		}
		story = newStory(j, attempts, l.Engine != nil)
		if story.Events, err = jobEvents(tx, j.ID); err != nil {
			return err
		}
		if err := addQuarantine(tx, j, &story); err != nil {
			return err
		}
		return l.addWait(tx, j, &story)
	})
	if err == nil && l.Config.Source(story.Source) == nil {
		story.Next = "nothing: its source is not in the config"
	}
	return story, err
}

// addWait says what a job waits for, where somebody knows.
func (l *Local) addWait(tx *storage.Tx, j *storage.Job, story *JobStory) error {
	if j.State.Terminal() || j.State == storage.StateRunning || j.Sent != "" {
		return nil
	}
	if src := l.Config.Source(j.Key.Source); src != nil && src.Rules != nil {
		pause, err := engine.DriftPause(tx, src.Name, src.Rules.Version(), src.Drift)
		if err != nil {
			return err
		}
		if pause != nil {
			story.Next = "nothing: its source pauses, since " + engine.PausedFor(pause) + "; " + l.driftAdvice(src.Name)
			return nil
		}
	}
	if l.Engine == nil || j.State != storage.StatePending {
		return nil
	}
	lane, err := tx.Lane(j.Lane)
	if err != nil {
		return err
	}
	if wait := l.Engine.Waits(lane.Source, lane.Host, lane.Country); wait != "" {
		story.Next = wait
	}
	return nil
}

// known refuses a source that neither the config nor the store has.
func (l *Local) known(source string) error {
	if l.Config.Source(source) != nil {
		return nil
	}
	err := l.Store.View(func(tx *storage.Tx) error {
		_, err := tx.Source(source)
		return err
	})
	if errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("%w %q", ErrUnknownSource, source)
	}
	return err
}

// Status implements Service.
func (l *Local) Status(_ context.Context, estimate int64) (Status, error) {
	s := Status{
		Sources: map[string]SourceStatus{}, Outbox: map[string]SinkStatus{},
		Proxies: map[string]ProxyStatus{}, Hosts: map[string]Traffic{}, Quarantine: map[string]int64{}, Warnings: []string{},
	}
	l.addEngine(&s)
	err := l.Store.View(func(tx *storage.Tx) error {
		stored, err := tx.Sources()
		if err != nil {
			return err
		}
		names := make([]string, 0, len(stored)+len(l.Config.Sources))
		for _, src := range stored {
			names = append(names, src.Name)
			s.Warnings = append(s.Warnings, l.guardWarnings(src)...)
		}
		for i := range l.Config.Sources {
			names = append(names, l.Config.Sources[i].Name)
		}
		slices.Sort(names)
		through := map[string]storage.Traffic{}
		for _, name := range slices.Compact(names) {
			counters := tx.Counters(name)
			s.Sources[name] = l.sourceStatus(counters, estimate)
			if n := counters[storage.MetricQuarantine]; n > 0 {
				s.Quarantine[name] = n
			}
			s.Warnings = append(s.Warnings, l.warnings(name, counters, tx.Now)...)
			drifts, err := l.driftWarnings(tx, l.Config.Source(name))
			if err != nil {
				return err
			}
			s.Warnings = append(s.Warnings, drifts...)
			for proxy, n := range counters.Proxies() {
				through[proxy] = through[proxy].Add(n)
			}
		}
		for _, more := range []func(*storage.Tx) ([]string, error){l.runWarnings, l.releaseWarnings} {
			list, err := more(tx)
			if err != nil {
				return err
			}
			s.Warnings = append(s.Warnings, list...)
		}
		l.addTraffic(&s, through, tx.DayTraffic(tx.Now))
		return l.addSinks(tx, &s)
	})
	if err != nil {
		return Status{}, fmt.Errorf("reading the status: %w", err)
	}
	return s, nil
}

// pauseHints say what to do about a pause.
var pauseHints = map[engine.PauseKind]string{
	engine.PauseAccount: "check its login and traffic with the provider",
	engine.PauseLimit:   "ask less at once, or ask the provider for more",
	engine.PauseOutage:  "check the network and the gateway's address",
	engine.PauseBudget:  "raise its budget, or wait for tomorrow (UTC)",
	engine.PauseExit:    "the provider has no exit there now: another proxy in the source's list could have one",
}

// sourceStatus is a source's status by its counters.
func (l *Local) sourceStatus(c storage.Counters, estimate int64) SourceStatus {
	s := newSourceStatus(c)
	spent := costOf(l.Config, c.Proxies())
	s.Cost, s.CostPerComplete = spent.money(), spent.times(1, c.Completed())
	if estimate > 0 {
		s.Estimate = newEstimate(l.Config, c, estimate)
	}
	return s
}

// hostsNamed bounds how many hosts a warning is given for.
const hostsNamed = 10

// heldHosts are warnings for hosts that are left alone.
func heldHosts(holds map[string]engine.Hold) []string {
	var warnings []string
	for i, name := range slices.Sorted(maps.Keys(holds)) {
		if i == hostsNamed {
			return append(warnings, fmt.Sprintf("%d more hosts are left alone", len(holds)-i))
		}
		warnings = append(warnings, fmt.Sprintf("host %s is left alone until %s: %s", name, holds[name].Until.UTC().Format(time.RFC3339), holds[name].Reason))
	}
	return warnings
}

// addEngine adds the configured proxies, and a warning for each that is paused
// and for a disk that is full.
func (l *Local) addEngine(s *Status) {
	var paused map[string]engine.Pause
	if l.Engine != nil {
		paused = l.Engine.Paused()
		if since := l.Engine.FullSince(); !since.IsZero() {
			s.Warnings = append(s.Warnings, fmt.Sprintf("the disk of the store has had no room since %s: nothing is claimed until there is; make room beside %s", since.UTC().Format(time.RFC3339), l.Store.Path()))
		}
		s.Warnings = append(s.Warnings, heldHosts(l.Engine.HeldHosts())...)
	}
	for _, p := range l.Config.Proxies {
		pause := paused[p.Name]
		s.Proxies[p.Name] = ProxyStatus{Endpoint: p.Proxy.String(), Paused: pause.Reason, PausedUntil: when(pause.Until)}
		if pause.Reason != "" {
			s.Warnings = append(s.Warnings, fmt.Sprintf("proxy %s is paused: %s; what has no other proxy waits, and no attempt is burnt", p.Name, pauseHints[pause.Kind]))
		}
	}
}
