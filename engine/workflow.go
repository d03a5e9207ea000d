package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"semel/engine/fetch"
	"semel/engine/intake"
	"semel/parser"
	"semel/storage"
)

// This file runs what one attempt sends. A workflow is one job and one unit:
// each execution takes a new session, so a new exit with no cookies, and does
// the steps in order from the first. Nothing of one execution is seen by
// another, and nothing is written until all steps have passed.

// Step is one request of a source.
type Step struct {
	Name     string          // unique in its source; "" where there is no workflow
	URL      intake.Template // of later steps; the first one's is the job's
	Method   string          // "" is GET
	Header   http.Header     // besides the source's, in whose place it stands; not changed
	Body     intake.Body     // zero: none
	Captures *parser.Rules   // whose one record has the variables of later steps; nil: none
	Once     bool            // never sent again by itself once it may have been sent
}

// mark is what the store calls a step that must not be repeated.
func (s *Step) mark() string {
	if s.Name == "" {
		return "request"
	}
	return s.Name
}

// steps are what an attempt does, at least one.
func (s *Source) steps() []Step {
	if len(s.Steps) == 0 {
		return []Step{{}}
	}
	return s.Steps
}

// longest is how long an attempt may take.
func (s *Source) longest() time.Duration {
	if s.Sticky > 0 {
		return min(s.Timeout, s.Sticky)
	}
	return s.Timeout
}

// reads reports whether any rule reads the page of the n-th step.
func (s *Source) reads(n int) bool {
	steps := s.steps()
	return n == len(steps)-1 || steps[n].Captures != nil || s.stages(&steps[n])
}

// stages reports whether the page of a step is needed when all have passed.
func (s *Source) stages(step *Step) bool { return slices.Contains(s.Rules.Steps(), step.Name) }

// staging is what the steps of one attempt have brought so far. It lives in
// memory and ends with the attempt: a failure, a lost lease or the death of the
// process leaves nothing of it, so no later attempt can publish it or mix it
// with its own. What explains a failure, the page of the step that failed, is
// kept with the attempt's record.
type staging struct {
	vars  intake.Vars            // captured, then the target's
	pages map[string]parser.Page // of the steps that rules name
	share *fetch.Share           // of all bodies held
	exit  string                 // the first that the gateway showed; "": none yet
}

func (a *attempt) newStaging() *staging {
	st := &staging{pages: map[string]parser.Page{}, share: a.engine.bodies.Share()}
	for _, v := range a.job.Vars {
		st.vars = append(st.vars, intake.Var(v))
	}
	return st
}

// fetch does the steps and gives the page of the one it ended in, nil where
// that has none; or it sets what failed.
func (a *attempt) fetch(ctx context.Context, st *staging, r *result) *fetch.Page {
	session, giveBack, err := a.openSession()
	if err != nil {
		r.failure = fail(storage.CategoryConfig, "%v", err)
		return nil
	}
	r.record.Proxy, r.record.Endpoint, r.record.Session = a.proxy, session.EndpointString(), session.SessionHash()
	r.record.Country = a.job.Country
	v := newVisit(a, session, &r.record)
	defer v.end()
	good := false // nor is it where a step panics
	defer func() {
		giveBack(good)
		v.bookLate()
	}()
	var x exchange
	for n := range a.src.steps() {
		if x = a.step(ctx, n, v, st, r); r.failure != nil {
			break
		}
	}
	a.account(x, v.loginOK, r)
	good = r.failure == nil || exitIsGood(r.failure.category)
	switch {
	case r.failure == nil:
	case r.failure.category == storage.CategoryNotFound && a.src.Gone:
		r.failure, r.gone = nil, true
	case r.record.Step != "":
		r.failure.reason = "step " + r.record.Step + ": " + r.failure.reason
	}
	return x.page
}

// openSession gives the session of the attempt, and how to give it back. That
// of a workflow is its own.
func (a *attempt) openSession() (s *fetch.Session, giveBack func(good bool), err error) {
	pool := a.engine.pools[a.proxy]
	if a.src.Sticky > 0 {
		s, err = pool.GetFresh(a.job.Country, a.src.Sticky)
		return s, func(bool) { s.Close() }, err
	}
	s, err = pool.Get(a.engine.now(), a.job.Country)
	return s, func(good bool) { pool.Put(s, good) }, err
}

// step sends the n-th step, judges what came back, and takes from its page what
// later ones need.
func (a *attempt) step(ctx context.Context, n int, v *visit, st *staging, r *result) (x exchange) {
	step, before := &a.src.steps()[n], a.sent
	r.record.Step, r.record.Phase, r.record.Status, r.record.FinalURL = step.Name, string(fetch.PhaseStart), 0, ""
	request, err := a.request(n, v, st)
	if err != nil { // a captured value makes no request
		r.failure = fail(storage.CategoryValidation, "%v", err)
		return x
	}
	a.asked = request.URL
	v.begin(n, step)
	x = exchange{proxied: a.proxy != "", gateway: v.session.Endpoint(), worked: v.session.Worked(), unread: !a.src.reads(n)}
	x.page, x.trace, x.err = a.get(ctx, v, request)
	if step.Once {
		a.learn(before, x)
	}
	r.record.Phase, r.record.Status = string(x.trace.Phase), x.trace.Status
	r.record.ConnectStatus, r.record.ProxyCode = x.trace.ConnectStatus, x.trace.ProxyCode
	if x.page != nil {
		r.record.FinalURL, r.gateway = x.page.FinalURL, x.trace.ProxyOrigin || v.session.ShowsLogin(x.page)
	}
	if x.page != nil && !x.trace.ProxyOrigin {
		x.sign = a.blockSign(ctx, x.page)
	}
	r.failure = judge(x, a.engine.now())
	if x.err == nil && st.exitChanged(x.trace.ExitIP) && (r.failure == nil || !holdsHost(r.failure.category)) {
		r.failure = fail(storage.CategorySessionLost, "the gateway went on from another exit")
	}
	if r.failure == nil {
		r.failure = a.stage(ctx, step, x.page, st)
	}
	if r.failure != nil && len(r.failure.problems) > 0 {
		r.record.ParserVersion = a.src.Rules.Version() // captures have no version of their own
	}
	return x
}

// exitChanged notes the exit that a step went through, as far as the gateway
// shows it, and reports whether an earlier one went through another. Then the
// site's answer says nothing: it is to somebody else.
func (st *staging) exitChanged(now string) bool {
	if st.exit == "" {
		st.exit = now
	}
	return now != "" && now != st.exit
}

// request is what the n-th step sends. The byte cap is what the job's limit has
// left.
func (a *attempt) request(n int, v *visit, st *staging) (fetch.Request, error) {
	step := &a.src.steps()[n]
	r := fetch.Request{
		Method:    step.Method,
		URL:       a.job.URL,
		Header:    a.header(step),
		UserAgent: a.engine.opts.UserAgent,
		MaxBody:   a.engine.opts.MaxBodyBytes,
		MaxBytes:  v.bytesLeft(),
		Share:     st.share,
		Once:      step.Once,
		Allow:     v.allow,
	}
	var err error
	if n > 0 {
		if r.URL, err = step.URL.Expand(st.vars, intake.URL); err == nil {
			err = intake.CheckURL(r.URL)
		}
		if err != nil {
			return r, fmt.Errorf("url: %w", err)
		}
	}
	if r.Body, err = step.Body.Expand(st.vars); err != nil {
		return r, fmt.Errorf("body: %w", err)
	}
	return r, nil
}

func (a *attempt) header(step *Step) http.Header {
	h := a.src.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	maps.Copy(h, step.Header)
	if kind := step.Body.ContentType(); kind != "" && h.Get("Content-Type") == "" {
		h.Set("Content-Type", kind)
	}
	return h
}

// stage takes from a step's page what later steps and the rules need.
func (a *attempt) stage(ctx context.Context, step *Step, page *fetch.Page, st *staging) *failure {
	if step.Captures != nil {
		captured, f := a.capture(ctx, step.Captures, page)
		if f != nil {
			return f
		}
		st.vars = append(captured, st.vars...)
	}
	if a.src.stages(step) {
		st.pages[step.Name] = parser.Page{Body: page.Body, ContentType: page.ContentType, FinalURL: page.FinalURL}
	}
	if len(st.pages) > 0 {
		st.share.Keep()
	}
	return nil
}

// capture reads variables of a page. One that matched nothing is left out.
func (a *attempt) capture(ctx context.Context, rules *parser.Rules, page *fetch.Page) (intake.Vars, *failure) {
	output, err := a.read(ctx, rules, a.input(page))
	var bad *parser.Error
	if errors.As(err, &bad) && bad.Field != "" {
		fault := *bad
		fault.Field = ""
		f := judgeParse(fmt.Errorf("capture %s: %w", bad.Field, &fault))
		f.problems = problemsOf(bad)
		return nil, f
	}
	if err != nil {
		return nil, judgeParse(err)
	}
	values := map[string]*string{}
	if err := json.Unmarshal(output.Records[0].Data, &values); err != nil {
		return nil, judgeParse(fmt.Errorf("reading what was captured: %w", err))
	}
	var vars intake.Vars
	for name, value := range values {
		if value != nil {
			vars = append(vars, intake.Var{Name: name, Value: *value})
		}
	}
	return vars, nil
}

// markSent notes in the store, before it happens, that a step is sent which
// must not be repeated: whatever dies now, nobody sends it a second time.
func (a *attempt) markSent(ctx context.Context, step string) error {
	if a.job.ID == 0 {
		return nil // a trial
	}
	a.sent, a.marked = step, step
	err := a.engine.update(ctx, func(tx *storage.Tx) error { return tx.MarkSent(a.job.Lease(), step) })
	if err != nil {
		return fmt.Errorf("marking step %s as sent: %w", step, err)
	}
	return nil
}

// learn is what the exchange of a step that must not be repeated has shown.
// Where no connection was made for it, or the gateway refused the login, the
// site cannot have seen it: only what was sent before counts then. Any other
// answer over plain http, a 402 too, may be the site's.
func (a *attempt) learn(before string, x exchange) {
	loginRefused := x.trace.Hops == 1 && x.trace.ProxyOrigin && x.trace.Status == http.StatusProxyAuthRequired
	switch {
	case x.trace.Hops == 0, loginRefused:
		a.sent = before
	case x.page != nil:
		a.answer = "answered with " + statusText(x.page.Status)
	default:
		a.answer = "no answer came"
	}
}

// unsafe says why the job must not be repeated by itself, "" if it may be.
func (a *attempt) unsafe() string {
	if a.sent == "" {
		return ""
	}
	what := "the request"
	if a.src.Sticky > 0 {
		what = "step " + a.sent
	}
	if a.answer != "" {
		return fmt.Sprintf("%s must not be repeated and was sent (%s)", what, a.answer)
	}
	return what + " must not be repeated and may have been sent"
}

// unmark takes back the mark of a step that is known not to have been sent.
func (a *attempt) unmark(tx *storage.Tx) error {
	if a.marked == a.sent {
		return nil
	}
	return tx.MarkSent(a.job.Lease(), a.sent)
}
