package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"semel/engine"
	"semel/engine/api"
	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

func (a *app) runCommand() *cobra.Command {
	var r runRequest
	cmd := a.command(&cobra.Command{
		Use:   "run [--once [--at TIME]] [--window WINDOW] [SOURCE]...",
		Short: "Collect: make jobs of targets, work them, commit their observations",
		Long: `Make the jobs that are due, and work the jobs there are. Each tick of a source's
schedule begins a window, and makes a job of each target for it; a source without
a schedule has each target collected once. Without --once it goes on until it is
stopped. With --once it ends when nothing is left to do: it waits for retries,
within the jobs' limits; jobs that only a paused proxy holds back, or a source that
pauses since its pages have changed, stay pending.

Events go to all sinks of the config meanwhile, whatever SOURCE is named; with
--once it ends when these, too, are delivered. What a sink does not take for half
a minute stays pending for the next run.

With --window the targets are collected for that window instead, again if need
be: an RFC 3339 instant (with a schedule, the window that it is in), a date (with a
schedule, all windows of that day, else one that begins with it; UTC), or A..B
of these. --at is the time that schedules see, for a run --once.

The first SIGINT or SIGTERM stops it cleanly: nothing more is claimed, what runs
may end for a few seconds, the rest is handed back. The second stops it at once.
Nothing is lost either way; running it again goes on.

` + exits(exitDone, exitFailed, exitUsage, exitJobs, exitConfig, exitStore, exitUnreadable, exitAccount, exitInterrupted) + `

Stopped cleanly by a signal, run without --once exits 0.`,
		ValidArgsFunction: a.completeSource,
		Example:           "  semel run --once\n  semel run --once catalog --json\n  semel run --once catalog --window 2026-04-23\n  semel run",
	}, func(ctx context.Context, args []string) error { return a.run(ctx, r, args) })
	cmd.Flags().BoolVar(&r.once, "once", false, "end when nothing is left to do")
	cmd.Flags().StringVar(&r.at, "at", "", "the `TIME` that schedules see, an RFC 3339 instant or a date; needs --once")
	cmd.Flags().StringVar(&r.window, "window", "", "collect the targets for this `WINDOW`: an instant, a date, or A..B")
	return cmd
}

// runRequest is what the flags of run say.
type runRequest struct {
	once       bool
	at, window string
}

// times are the time that schedules see and the window to collect for, zero where
// there is none.
func (r *runRequest) times() (at time.Time, window intake.WindowArg, err error) {
	if r.at != "" {
		if !r.once {
			return at, window, usage("", "--at needs --once: without an end, schedules see the clock")
		}
		if at, err = intake.ParseTime(r.at); err != nil {
			return at, window, usage("", "--at: %v", err)
		}
	}
	if r.window != "" {
		if window, err = intake.ParseWindow(r.window); err != nil {
			return at, window, usage("", "%v", err)
		}
	}
	return at, window, nil
}

// checkWindow wants a window to be one of some source.
func checkWindow(sources []*config.Source, window intake.WindowArg) error {
	if window.IsZero() {
		return nil
	}
	some := false
	for _, s := range sources {
		if s.Targets.Kind == intake.Queue {
			return usage("name the other sources", "source %s takes its targets from a queue, which has none for a window", s.Name)
		}
		starts, err := window.Starts(s.Schedule)
		if err != nil {
			return fmt.Errorf("window %q of source %s: %w", window, s.Name, err)
		}
		some = some || len(starts) > 0
	}
	if some {
		return nil
	}
	return usage("semel key SOURCE --window WINDOW shows which window an instant is in", "no schedule has a window in %s", window)
}

func (a *app) run(ctx context.Context, r runRequest, names []string) error {
	at, window, err := r.times()
	if err != nil {
		return err
	}
	c, err := a.loadConfig()
	if err != nil {
		return err
	}
	sources, err := allSources(c, names)
	if err != nil {
		return err
	}
	if err := checkWindow(sources, window); err != nil {
		return err
	}
	tuneRuntime(a.getenv)
	w := &work{sources: sources, once: r.once, out: newConsole(a.stderr)}
	opts := engineOptions(c, sources, slog.New(slog.NewTextHandler(w.out, nil)))
	opts.At, opts.Window = at, window
	started := time.Now()
	summary, err := hold(ctx, c, opts, w.do)
	if err != nil {
		return err
	}
	if a.json {
		if err := a.line(summaryLine(summary)); err != nil {
			return err
		}
	} else {
		a.notef("%s in %s", summaryText(summary), durationText(time.Since(started)))
	}
	return verdict(summary, api.Bodies(c), r.once, ctx.Err() != nil)
}

// runStore is how a run opens the store.
var runStore = storage.Options{Gather: engine.Gather}

// hold makes this process the owner of a config's store: while use works with
// an engine on it, other commands are answered over the store's socket.
func hold(ctx context.Context, c *config.Config, opts engine.Options, use func(context.Context, *engine.Engine, *storage.Store) (engine.Summary, error)) (s engine.Summary, err error) {
	store, err := own(ctx, c)
	if err != nil {
		return s, err
	}
	defer func() {
		if closeErr := store.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("closing the store: %w", closeErr)
		}
	}()
	if err := tellOrphans(c, store, opts.Log); err != nil {
		return s, err
	}
	opts.Store, opts.Owner, opts.Sinks = store, ownerName(time.Now()), deliverySinks(c)
	e, err := engine.New(opts)
	if err != nil {
		return s, err
	}
	defer e.Close()
	stop, err := serve(c, store, api.NewHandler(&api.Local{Store: store, Config: c, Engine: e, Replay: e.Replay, CompareIn: e.Compare, Release: e.Release, Reread: e.Reparse, Offer: offer(c, store, e)}, opts.Owner), opts.Log)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return use(ctx, e, store)
}

// serve answers commands over the store's socket, and over the network where
// the config says so, until stop.
func serve(c *config.Config, store *storage.Store, h *api.Handler, log *slog.Logger) (stop func() error, err error) {
	var network net.Listener
	if c.Server.Listen != "" {
		if network, err = api.ListenNetwork(c.Server.Listen); err != nil {
			return nil, &fault{exitFailed, err, "free the address, or set server.listen to another one"}
		}
	}
	socket, err := api.Listen(store.Path())
	if err != nil {
		if network != nil {
			err = errors.Join(err, network.Close())
		}
		return nil, storeFault(err)
	}
	local := api.Serve(socket, h, log)
	if network == nil {
		return local.Stop, nil
	}
	log.Info("the API is served", "address", network.Addr().String())
	remote := api.Serve(network, h.Network(c.Server, network.Addr()), log)
	return func() error { return errors.Join(remote.Stop(), local.Stop()) }, nil
}

// tellOrphans logs the sources with work ahead that the config no longer has.
func tellOrphans(c *config.Config, store *storage.Store, log *slog.Logger) error {
	return store.View(func(tx *storage.Tx) error {
		known, err := tx.Sources()
		for _, s := range known {
			if open := tx.Counters(s.Name).Open(); open > 0 && c.Source(s.Name) == nil {
				log.Warn("a source is not in the config: its jobs are kept and not run", "source", s.Name, "jobs", open)
			}
		}
		return err
	})
}

// work is one run of the engine with its progress.
type work struct {
	sources []*config.Source
	once    bool
	out     *console
}

// do runs the engine, and tells the progress meanwhile.
func (w *work) do(ctx context.Context, e *engine.Engine, store *storage.Store) (engine.Summary, error) {
	defer context.AfterFunc(ctx, func() {
		fmt.Fprintln(w.out, "semel: stopping: what runs may end; a second signal stops at once")
	})()
	watchCtx, end := context.WithCancel(context.Background())
	p := w.progress(store)
	p.begin(time.Now())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end()
	watching.Go(func() { p.watch(watchCtx) })
	run := e.Run
	if w.once {
		run = e.RunOnce
	}
	s, err := run(ctx)
	if err != nil {
		return s, err
	}
	return s, w.tellReleasable(store)
}

// tellReleasable names the pages in quarantine that today's rules may fit.
func (w *work) tellReleasable(store *storage.Store) error {
	var sources []engine.Source
	for _, s := range w.sources {
		sources = append(sources, engineSource(s))
	}
	return store.View(func(tx *storage.Tx) error {
		pages, err := engine.Releasable(tx, sources)
		for _, name := range slices.Sorted(maps.Keys(pages)) {
			fmt.Fprintf(w.out, "semel: source %s: %s in quarantine by older rules: %s\n", name, count(pages[name], "page"), engine.ReleaseAdvice(name))
		}
		return err
	})
}

func (w *work) progress(store *storage.Store) *progress {
	p := &progress{store: store, out: w.out}
	for _, s := range w.sources {
		p.sources = append(p.sources, s.Name)
	}
	return p
}

// runSummary is engine.Summary with names for JSON.
type runSummary struct {
	New       int               `json:"new"`
	Known     int               `json:"known"`
	BadRows   int               `json:"bad_rows"`
	BadFiles  int               `json:"bad_files"`
	Offered   bool              `json:"offered"`
	Completed int               `json:"completed"`
	SetAside  int               `json:"set_aside"` // of these, pages with rows that did not fit
	Failed    int               `json:"failed"`
	Retried   int               `json:"retried"`
	Released  int               `json:"released"`
	Stale     int               `json:"stale"`
	Rescued   int               `json:"rescued"`
	Open      int               `json:"open"`
	Held      int               `json:"held"` // runs
	Paused    map[string]string `json:"paused"`
	Drifted   map[string]string `json:"drifted"` // why sources pause

	Delivered   int `json:"delivered"`   // events, as the two below
	DeadEvents  int `json:"dead_events"` // given up in this run
	Undelivered int `json:"undelivered"` // pending at the end
}

func summaryLine(s engine.Summary) runSummary {
	paused := make(map[string]string, len(s.Paused))
	for name, p := range s.Paused {
		paused[name] = p.Reason
	}
	return runSummary{
		New: s.New, Known: s.Known, BadRows: s.BadRows, BadFiles: s.BadFiles, Offered: s.Offered,
		Completed: s.Completed, SetAside: s.SetAside, Failed: s.Failed, Retried: s.Retried, Released: s.Released,
		Stale: s.Stale, Rescued: s.Rescued, Open: s.Open, Held: s.Held, Paused: paused, Drifted: s.Drifted,
		Delivered: s.Delivered, DeadEvents: s.Dead, Undelivered: s.Undelivered,
	}
}

// summaryText leaves out what did not happen.
func summaryText(s engine.Summary) string {
	parts := []string{fmt.Sprintf("%d complete, %d failed", s.Completed, s.Failed)}
	for _, p := range []struct {
		n    int
		text string
	}{
		{s.SetAside, fmt.Sprint(s.SetAside, " with rows set aside")}, {s.Open, fmt.Sprint(s.Open, " left")}, {s.Retried, fmt.Sprint(s.Retried, " retried")},
		{s.New, fmt.Sprint(s.New, " new")}, {s.Known, fmt.Sprint(s.Known, " known before")},
		{s.BadRows, count(s.BadRows, "bad target")}, {s.BadFiles, count(s.BadFiles, "unreadable target file")},
		{s.Released, fmt.Sprint(s.Released, " handed back")}, {s.Held, count(s.Held, "run") + " held"},
		{s.Rescued, fmt.Sprint(s.Rescued, " taken back from a dead worker")}, {s.Stale, fmt.Sprint(s.Stale, " too late")},
		{s.Delivered, count(s.Delivered, "event") + " delivered"}, {s.Undelivered, count(s.Undelivered, "event") + " left"},
		{s.Dead, count(s.Dead, "event") + " given up"},
	} {
		if p.n > 0 {
			parts = append(parts, p.text)
		}
	}
	return strings.Join(parts, ", ")
}

// verdict is what a run's exit code says. A daemon's jobs are no news at its
// end: whoever wants to know asks status.
func verdict(s engine.Summary, kept engine.Bodies, once, interrupted bool) error {
	switch {
	case !once:
		return nil
	case interrupted && !s.Offered:
		return &fault{exitInterrupted, errors.New("interrupted before all targets were read"), "run it again to go on"}
	case interrupted && s.Open > 0:
		return &fault{exitInterrupted, fmt.Errorf("interrupted with %s left", count(s.Open, "job")), "run it again to go on"}
	case interrupted && s.Undelivered > 0:
		return &fault{exitInterrupted, fmt.Errorf("interrupted: %w", undeliveredText(s)), "run it again to go on"}
	case s.Open > 0 && refusedAccount(s):
		return &fault{exitAccount, heldText(s), "check its login and traffic with the provider, then run again: no attempt was burnt"}
	case s.BadFiles > 0:
		return &fault{exitFailed, fmt.Errorf("%s of targets could not be read", count(s.BadFiles, "file")), "the log above names them"}
	case s.Open > 0:
		return &fault{exitJobs, heldText(s), heldHint(s, kept)}
	case s.Failed > 0:
		return &fault{exitJobs, fmt.Errorf("%s failed", count(s.Failed, "job")), failedHint(s)}
	case s.Held > 0:
		return heldFault(s.Held)
	case s.SetAside > 0:
		return &fault{exitJobs, fmt.Errorf("rows of %s do not fit the rules", count(s.SetAside, "page")), "semel quarantine tells which; the others are committed"}
	case s.BadRows > 0:
		return &fault{exitJobs, fmt.Errorf("%s could not become jobs", count(s.BadRows, "target")), "the log above names them"}
	}
	return deliveryVerdict(s)
}

// heldFault is of runs whose new rows wait for a person.
func heldFault(runs int) error {
	return &fault{exitJobs, fmt.Errorf("%s held: the rows of before stand", count(runs, "run")), "semel runs tells why; semel runs release RUN takes the new rows, semel runs discard RUN drops them"}
}

// deliveryVerdict is what it says of a run whose jobs are no news.
func deliveryVerdict(s engine.Summary) error {
	switch {
	case s.Undelivered > 0:
		return &fault{exitJobs, undeliveredText(s), "run it again when that is over: what waits is in the store"}
	case s.Dead > 0:
		return &fault{exitJobs, fmt.Errorf("%s given up", count(s.Dead, "event")), "semel outbox list tells why, semel outbox retry sends them again"}
	}
	return nil
}

// undeliveredText says which sinks hold back the events that are left.
func undeliveredText(s engine.Summary) error {
	var reasons []string
	for _, name := range slices.Sorted(maps.Keys(s.Waiting)) {
		reasons = append(reasons, fmt.Sprintf("sink %s: %s", name, s.Waiting[name]))
	}
	return fmt.Errorf("%s not delivered (%s)", count(s.Undelivered, "event"), strings.Join(reasons, "; "))
}

// failedHint is what to do about jobs that failed, and about the runs that they
// hold.
func failedHint(s engine.Summary) string {
	var hints []string
	if s.Unfit < s.Failed {
		hints = append(hints, "semel jobs --state failed lists them, semel show JOB tells why, semel retry JOB tries again")
	}
	if s.Unfit > 0 {
		hints = append(hints, fmt.Sprintf("semel quarantine lists %s whose page does not fit the rules: mend these, raise parser.version, and semel quarantine release JOB reads a kept page again, without a request", count(s.Unfit, "job")))
	}
	hint := strings.Join(hints, "; ")
	if s.Held > 0 {
		hint += "; until they are complete " + count(s.Held, "run") + " held (semel runs)"
	}
	return hint
}

// refusedAccount reports whether a provider has refused an account.
func refusedAccount(s engine.Summary) bool {
	for _, p := range s.Paused {
		if p.Kind == engine.PauseAccount {
			return true
		}
	}
	return false
}

// heldText says what holds back the jobs that are left.
func heldText(s engine.Summary) error {
	var reasons []string
	for _, name := range slices.Sorted(maps.Keys(s.Paused)) {
		reasons = append(reasons, fmt.Sprintf("proxy %s is paused (%s)", name, s.Paused[name].Reason))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Drifted)) {
		reasons = append(reasons, fmt.Sprintf("source %s pauses, since its pages have changed (%s)", name, s.Drifted[name]))
	}
	if len(reasons) == 0 {
		reasons = []string{"a site has not answered as it should for long"}
	}
	return fmt.Errorf("%s; %s left", strings.Join(reasons, ", "), count(s.Open, "job"))
}

// heldHint is what to do about them.
func heldHint(s engine.Summary, kept engine.Bodies) string {
	if drifted := slices.Sorted(maps.Keys(s.Drifted)); len(drifted) > 0 {
		return engine.DriftAdvice(drifted[0], kept)
	}
	return "run it again when that is over: what waits has burnt no attempt"
}

// tuneRuntime fits the runtime to a fetch loop, and to an import. What the user sets in GOGC,
// GOMEMLIMIT or GOMAXPROCS stands.
//
// The heap may grow between collections: little is kept and much allocated, so
// with the default target it collects all the time. The memory limit takes that
// back where much is kept.
//
// One processor more than there are: the store's writer sits in fsync a good
// part of the time, and until the runtime notices, a processor sits there with
// it. On 2 cores that was a tenth of all pages.
func tuneRuntime(getenv func(string) string) {
	const (
		percent = 400
		limit   = 100 << 20
	)
	if getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
	if getenv("GOGC") != "" || debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	debug.SetGCPercent(percent)
	debug.SetMemoryLimit(limit)
}

// runOnceFile is run --once of a config file for demo: it logs nothing.
func (a *app) runOnceFile(ctx context.Context, path string) (s engine.Summary, err error) {
	c, err := loadConfigFile(path, a.getenv)
	if err != nil {
		return s, err
	}
	sources, err := allSources(c, nil)
	if err != nil {
		return s, err
	}
	return hold(ctx, c, engineOptions(c, sources, slog.New(slog.DiscardHandler)), func(ctx context.Context, e *engine.Engine, _ *storage.Store) (engine.Summary, error) {
		return e.RunOnce(ctx)
	})
}
