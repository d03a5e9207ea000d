package engine

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"runtime/debug"
	"time"

	"semel/engine/fetch"
	"semel/engine/intake"
	"semel/parser"
	"semel/storage"
)

// healthyMargin is how much longer than its timeout an attempt may take before
// its lease is no longer renewed: time to parse and to wait for the commit.
const healthyMargin = 30 * time.Second

// bodyBudget bounds the bodies that all attempts hold together: beyond it, only
// one at a time grows. 64 workers with pages of 1 MB fit.
const bodyBudget = 64 << 20

// parseSlots is how many pages are parsed at once: enough that no core waits
// for one that is held up.
func parseSlots() int { return 2 * runtime.NumCPU() }

// attempt is one execution of a claimed job.
type attempt struct {
	engine *Engine
	job    *storage.Job
	src    *Source
	proxy  string // name of the proxy that it goes through; "" direct
	lane   string // host that it was claimed for
	ctx    context.Context
	cancel context.CancelCauseFunc

	asked  string // URL of the step under way; "": none yet
	sent   string // step that must not be repeated and may have been sent, now or by an earlier attempt; "": none
	marked string // what the store has as sent
	answer string // what became of sent, for people; "": nobody knows

	started time.Time
	until   time.Time // renewed no longer than this
	decided bool      // its outcome waits for the disk: renewed as long as that takes; guarded by Engine.mu
}

// hold registers an attempt, so that its lease is renewed.
func (e *Engine) hold(ctx context.Context, j *storage.Job, src *Source, proxy string) *attempt {
	now := e.now()
	a := &attempt{engine: e, job: j, src: src, proxy: proxy, sent: j.Sent, marked: j.Sent, started: now, until: now.Add(src.longest() + healthyMargin)}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held[j.ID] = a
	return a
}

func (e *Engine) letGo(a *attempt) {
	a.cancel(nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held[a.job.ID] == a { // else the job has been claimed anew
		delete(e.held, a.job.ID)
	}
}

// result is what an attempt found out: records, or a failure.
type result struct {
	record  storage.Attempt // outcome and next time are filled in later
	output  parser.Output
	gone    bool // the page says that there is no such target
	gateway bool // the page is the gateway's, not the site's, as far as that can be told
	failure *failure
	follow  following

	validator storage.Validator // of the page, where it is kept
}

// outcome is what an attempt wants written, and what was decided.
type outcome struct {
	decision decision
	write    func(*storage.Tx) (storage.Completed, error)
	follow   following
	setAside int              // rows that did not fit
	reading  *storage.Reading // of the page; nil: it is not counted
}

// work executes the attempt and decides what becomes of its job. When it
// returns, the host is held back if it asked for that. Its error is the
// store's.
func (a *attempt) work() (outcome, error) {
	ctx, cancel := context.WithTimeout(a.ctx, a.src.longest())
	defer cancel()
	r := a.execute(ctx)
	if cause := context.Cause(a.ctx); cause != nil && r.failure != nil {
		r.failure, r.record.Kept = &failure{category: storage.CategoryReleased, reason: cause.Error()}, nil
	}
	return a.decide(r, a.engine.now())
}

// execute fetches and parses. A panic is a failed attempt like any other.
func (a *attempt) execute(ctx context.Context) (r result) {
	defer func() {
		if p := recover(); p != nil {
			a.engine.opts.Log.Error("panic in an attempt", "job", a.job.Key.String(), "panic", p, "stack", string(debug.Stack()))
			r.failure = fail(storage.CategoryInternal, "panic: %v", p)
		}
	}()
	if v := a.job.Key.Version; v != 0 && v != a.src.Rules.Version() {
		r.failure = fail(storage.CategoryConfig, "the job is for rules of version %d, the config has version %d", v, a.src.Rules.Version())
		return r
	}
	if a.sent != "" {
		r.failure = fail(storage.CategoryUnsafeToRepeat, "the outcome of an earlier attempt is not known")
		return r
	}
	st := a.newStaging()
	defer st.share.Free()
	page := a.fetch(ctx, st, &r)
	if page == nil {
		return r
	}
	if !r.gone {
		a.parse(ctx, page, st.pages, &r)
	}
	a.keep(page, &r)
	return r
}

// keep compresses the page if attempts that end like this one keep theirs: for
// "failed" those whose page is set aside, too. A gateway's own answer is never
// kept: it may show the login.
func (a *attempt) keep(page *fetch.Page, r *result) {
	bodies := a.engine.opts.Bodies
	good := r.failure == nil && len(r.output.Bad) == 0
	if a.engine.opts.Store == nil || bodies == BodiesNone || good && bodies == BodiesFailed || r.gateway {
		return
	}
	r.record.Kept, r.record.ContentType = storage.KeepPage(page.Body), page.ContentType
	if r.record.Kept != nil {
		a.engine.opts.Store.ProbePage(r.record.Kept)
	}
	if len(a.src.Steps) == 0 { // only a plain GET can be asked for again like this
		r.validator = validatorOf(page)
	}
}

// account tells the proxy's health what this attempt showed of it. The fetch of
// robots.txt counts, too: a page may then reuse its tunnel.
func (a *attempt) account(x exchange, loginOK bool, r *result) {
	pause, news := a.engine.health.learn(a.exit(), experience{
		began: a.job.ClaimedAt, ended: a.engine.now(),
		failure:  r.failure,
		loginOK:  loginOK,
		answered: loginOK || x.trace.ConnectStatus != 0 || x.trace.Status != 0,
		dialed:   r.failure == nil || phaseOf(x.err) != fetch.PhaseDial,
		bytes:    r.record.BytesUp + r.record.BytesDown,
	})
	a.engine.charge(a.proxy, r.record.BytesUp+r.record.BytesDown, a.engine.now())
	log := a.engine.opts.Log
	switch {
	case !news:
	case pause == Pause{}:
		log.Info("a proxy is back", "proxy", a.proxy)
	default:
		log.Error("a proxy is paused: its jobs wait, no attempt is burnt",
			"proxy", a.proxy, "why", string(pause.Kind), "reason", pause.Reason, "next_try", pause.Until.Format(time.RFC3339))
	}
}

func (a *attempt) exit() exit { return exit{a.proxy, a.job.Country} }

// exitIsGood reports whether a failure says nothing against the exit, so that
// a kept session stays.
func exitIsGood(c storage.Category) bool {
	switch c {
	case storage.CategoryThrottled, storage.CategoryNotFound, storage.CategoryClientError, storage.CategoryServerError,
		storage.CategoryTooLarge, storage.CategoryRobotsDenied, storage.CategoryRedirectLoop, storage.CategoryConfig:
		return true
	}
	return false
}

// parse makes records of the page, and of those of a workflow's steps, or sets
// why there are none.
func (a *attempt) parse(ctx context.Context, page *fetch.Page, steps map[string]parser.Page, r *result) {
	if r.failure != nil {
		return
	}
	in := a.input(page)
	in.Steps = steps
	output, err := a.read(ctx, a.src.Rules, in)
	if !errors.Is(err, errNoTime) {
		r.record.ParserVersion = a.src.Rules.Version()
	}
	if err != nil {
		r.failure = judgeParse(err)
		return
	}
	if r.follow, r.failure = a.follow(output, page.FinalURL); r.failure != nil {
		return
	}
	r.output = output
	r.record.Records = len(output.Records)
}

var errNoTime = errors.New("no time was left to parse the page")

// read applies rules to a page, as soon as that is its turn. Its error is the
// parser's, or errNoTime.
func (a *attempt) read(ctx context.Context, rules *parser.Rules, in parser.Input) (parser.Output, error) {
	if !a.engine.parsing.take(ctx) {
		return parser.Output{}, errNoTime
	}
	defer a.engine.parsing.free()
	return rules.Parse(in)
}

func (a *attempt) input(page *fetch.Page) parser.Input {
	return parser.Input{
		Body: page.Body, ContentType: page.ContentType, FinalURL: page.FinalURL,
		Target: a.job.Key.Target, Vars: a.vars(),
	}
}

// vars are the target's variables and those that every source has.
func (a *attempt) vars() map[string]string {
	vars := make(map[string]string, len(a.job.Vars)+3)
	for _, v := range a.job.Vars {
		vars[v.Name] = v.Value
	}
	vars["url"], vars["country"], vars["window"] = a.job.URL, a.job.Country, ""
	if !a.job.Window.IsZero() {
		vars["window"] = a.job.Window.UTC().Format(time.RFC3339)
	}
	return vars
}

// commit writes the outcome. A lease that was lost leaves only a count. One
// that a full disk has kept back until the stop is dropped: its lease is taken
// back by the next start. Its error is the store's.
func (a *attempt) commit(o outcome) error {
	a.engine.mu.Lock()
	a.decided = true
	a.engine.mu.Unlock()
	stale := false
	var done storage.Completed
	var news storage.DriftNews
	err := a.engine.update(a.ctx, func(tx *storage.Tx) (err error) {
		done, err = o.write(tx)
		if stale = errors.Is(err, storage.ErrLeaseLost); stale {
			return nil // keeps the count
		}
		if err == nil && o.reading != nil {
			news, err = tx.CountPage(*o.reading, a.src.Drift, a.src.Sinks)
		}
		return err
	})
	if errors.Is(err, storage.ErrFull) {
		a.engine.opts.Log.Error("an outcome could not be written before the stop and will be collected again", "job", a.job.Key.String(), "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("committing job %s: %w", a.job.Key, err)
	}
	a.tell(o.decision, stale)
	if !stale {
		a.engine.note(func(s *Summary) { s.New += done.Followed })
		a.tellFollow(o.follow, done.Collided)
		a.tellSetAside(o.setAside)
		return a.engine.tellDrift(a.src, news)
	}
	return nil
}

// tellSetAside counts and logs that rows of a page were left out.
func (a *attempt) tellSetAside(rows int) {
	if rows > 0 {
		a.engine.note(func(s *Summary) { s.SetAside++ })
		a.engine.opts.Log.Warn("rows do not fit the rules and are set aside: semel quarantine lists them", "job", a.job.Key.String(), "rows", rows)
	}
}

func (a *attempt) completion(r result) storage.Completion {
	c := storage.Completion{
		Attempt: r.record, Mode: a.src.Write, Duplicates: r.output.Duplicates, Problems: problemsOf(r.output.Bad...),
		Sinks: a.src.Sinks, Validator: r.validator,
	}
	if a.engine.guestOf == nil { // which jobs a guest collects is given
		c.Follow = r.follow.jobs
	}
	if r.gone {
		c.Attempt.ParserVersion = a.src.Rules.Version()
		c.Records = []storage.NewObservation{{Key: a.job.Key.Target, Gone: true}}
	}
	for _, record := range r.output.Records {
		c.Records = append(c.Records, storage.NewObservation{Key: record.Key, Data: record.Data, Missing: record.Missing})
	}
	return c
}

// decide makes the outcome of a result.
func (a *attempt) decide(r result, now time.Time) (outcome, error) {
	a.tellHost(r, now)
	if r.failure == nil {
		return outcome{
			decision: decision{outcome: storage.OutcomeComplete}, follow: r.follow, setAside: len(r.output.Bad), reading: a.reading(&r),
			write: func(tx *storage.Tx) (storage.Completed, error) { return tx.CompleteJob(a.job.Lease(), a.completion(r)) },
		}, nil
	}
	h, err := a.history(r, now)
	if err != nil {
		return outcome{}, err
	}
	d := decide(a.job, a.src, r.failure, h, now)
	if !d.gate.IsZero() { // the site has said so, whoever holds the lease by now
		a.engine.gate(a.answered(r.record), d.gate)
	}
	r.record.Category, r.record.Reason = r.failure.category, r.failure.reason
	o := outcome{decision: d, write: func(tx *storage.Tx) (storage.Completed, error) {
		return storage.Completed{}, a.writeFailure(tx, r, d)
	}}
	if d.outcome == storage.OutcomeFail {
		o.reading = a.reading(&r)
	}
	return o, nil
}

// tellHost tells the pacer what this attempt showed of the host that answered.
func (a *attempt) tellHost(r result, now time.Time) {
	host, category := a.answered(r.record), storage.Category("")
	if r.failure != nil {
		category = r.failure.category
		if r.failure.queued {
			return
		}
	}
	if until, news := a.engine.pace.learn(host, category, a.proxy != "", a.started, now); news {
		a.engine.opts.Log.Warn("a host is left alone for a while: too many attempts in a row have failed",
			"host", host, "category", category, "next_try", until.Format(time.RFC3339))
	}
}

// history looks up what only failures need to know.
func (a *attempt) history(r result, now time.Time) (history, error) {
	h := history{
		spent:  r.record.BytesUp + r.record.BytesDown,
		paused: a.engine.health.heldSince(a.src.Proxies, a.job.FirstClaim, now),
		unsafe: a.unsafe(),
	}
	err := a.engine.opts.Store.View(func(tx *storage.Tx) error {
		attempts, err := tx.Attempts(a.job.ID)
		for _, earlier := range attempts {
			counts := earlier.Outcome != storage.OutcomeReleased && !earlier.Start.Before(a.job.FirstClaim)
			if counts && earlier.Category == r.failure.category {
				h.same++
			}
		}
		return err
	})
	if err != nil {
		return h, fmt.Errorf("reading the attempts of job %s: %w", a.job.Key, err)
	}
	return h, nil
}

func (a *attempt) writeFailure(tx *storage.Tx, r result, d decision) error {
	lease, record := a.job.Lease(), r.record
	err := a.unmark(tx)
	if err != nil {
		return err
	}
	switch d.outcome {
	case storage.OutcomeReleased:
		err = tx.ReleaseJob(lease, record)
	case storage.OutcomeFail:
		err = tx.FailJob(lease, record, storage.Failure{Category: d.category, Reason: d.reason, Problems: r.failure.problems, Sinks: a.src.Sinks})
	default:
		record.Free = d.category == storage.CategoryExitUnavailable
		err = tx.RetryJob(lease, record, d.due)
	}
	if err != nil || d.gate.IsZero() {
		return err
	}
	return tx.GateHost(a.answered(record), d.gate)
}

// answered is the host whose answer an attempt ended with: the last one that
// redirects led to, or else that of the step.
func (a *attempt) answered(record storage.Attempt) string {
	for _, text := range []string{record.FinalURL, a.asked} {
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			return intake.HostOf(u)
		}
	}
	return a.host()
}

func (a *attempt) host() string {
	u, err := url.Parse(a.job.URL)
	if err != nil {
		return ""
	}
	return intake.HostOf(u)
}

// misfits reports whether a failure is that the page does not fit the rules.
func misfits(c storage.Category) bool {
	switch c {
	case storage.CategoryParseError, storage.CategoryValidation, storage.CategoryDuplicateKey:
		return true
	}
	return false
}

// tell counts and logs the outcome.
func (a *attempt) tell(d decision, stale bool) {
	e, key := a.engine, a.job.Key.String()
	if stale {
		e.note(func(s *Summary) { s.Stale++ })
		e.opts.Log.Warn("an outcome came after its lease had ended and was dropped", "job", key)
		return
	}
	switch d.outcome {
	case storage.OutcomeComplete:
		e.note(func(s *Summary) { s.Completed++ })
	case storage.OutcomeRetry:
		e.note(func(s *Summary) { s.Retried++ })
		e.opts.Log.Debug("will try again", "job", key, "category", d.category, "reason", d.reason, "at", d.due)
	case storage.OutcomeReleased:
		e.note(func(s *Summary) { s.Released++ })
	case storage.OutcomeFail:
		e.note(func(s *Summary) {
			s.Failed++
			if misfits(d.category) {
				s.Unfit++
			}
		})
		e.opts.Log.Warn("job failed", "job", key, "category", d.category, "reason", d.reason)
	}
}
