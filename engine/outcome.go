package engine

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"semel/engine/address"
	"semel/engine/fetch"
	"semel/engine/proxy"
	"semel/engine/retryafter"
	"semel/parser"
	"semel/storage"
)

// failure is why an attempt gave no records.
type failure struct {
	category   storage.Category
	reason     string        // for people; holds no login
	retryAfter time.Duration // what the site or the gateway asked for; 0: nothing
	attempts   int           // that may end like this, below what the policy allows; 0: the policy's
	unsure     bool          // it may have been the exit's fault: another one is asked before the host is held back
	unburnt    bool          // the trouble is not the job's: it is handed back, and the attempt does not count
	queued     bool          // its time was over while it waited for its turn: that says nothing of the host

	problems []storage.Problem // where the page does not fit the rules; none: that is not why
}

func fail(c storage.Category, format string, args ...any) *failure {
	return &failure{category: c, reason: fmt.Sprintf(format, args...)}
}

// exchange is what a fetch left behind, for judging it.
type exchange struct {
	page    *fetch.Page // nil where err is set
	trace   fetch.Trace
	err     error
	proxied bool
	gateway proxy.Endpoint // that it went through; the zero one when direct
	worked  bool           // the session had got an answer before this exchange
	unread  bool           // no rule reads the page, whatever it holds
	sign    string         // the source's own rule that tells the page for a block page; "": none
}

// classify says what an answer of the gateway's own means.
func (x exchange) classify(a proxy.Answer) storage.Category {
	a.Worked = x.worked
	return x.gateway.Classify(a)
}

// judge is the only map from what happened to a category; a gateway's own
// answer it leaves to proxy.Endpoint.Classify. It gives nil for a page that the
// parser should see. The order matters: our own limits and decisions first,
// then the gateway, then the site.
func judge(x exchange, now time.Time) *failure {
	if x.err != nil {
		return judgeError(x, now)
	}
	if x.trace.ProxyOrigin {
		said := proxy.Answer{Status: x.page.Status, Reason: x.page.Reason, Header: x.page.Header, Body: string(x.page.Body)}
		f := fail(x.classify(said), "the proxy answered %s", statusText(x.page.Status))
		f.retryAfter = retryafter.Parse(x.page.Header, now)
		return f
	}
	if x.sign != "" {
		return fail(storage.CategoryBlocked, "the site answered %s with a block page: %s", statusText(x.page.Status), x.sign)
	}
	if f := judgeBlock(x.page); f != nil {
		return f
	}
	if f := judgeStatus(x.page, now); f != nil || x.unread {
		return f
	}
	return judgeContent(x.page)
}

func judgeError(x exchange, now time.Time) *failure {
	f := &failure{category: errorCategory(x), reason: x.err.Error()}
	f.queued = f.category == storage.CategoryReadTimeout && phaseOf(x.err) == fetch.PhaseStart
	switch {
	case isCertificate(x.err): // another exit may see another one, but not a third
		f.attempts = 2
	case errors.Is(x.err, fetch.ErrMaxBytes):
		f.reason += fmt.Sprintf(" (limits.bytes; this attempt moved %d)", x.trace.BytesUp+x.trace.BytesDown)
	case errors.Is(x.err, address.ErrPrivate):
		f.reason += " (engine.allow_private)"
	case errors.Is(x.err, fetch.ErrTooLarge):
		f.reason += " (engine.max_body)"
	}
	var robots *fetch.RobotsStatusError
	var connect *fetch.ConnectError
	switch {
	case errors.As(x.err, &robots):
		f.retryAfter, f.unsure = retryafter.Parse(robots.Header, now), robots.Unsure
	case errors.As(x.err, &connect):
		f.retryAfter = retryafter.Parse(connect.Header, now)
	}
	if errors.Is(x.err, fetch.ErrRobotsUnavailable) && f.category != storage.CategoryRobotsUnavailable {
		f.reason = withoutPage(x.err) + " (for robots.txt)"
	}
	return f
}

// errorCategory maps an error of package fetch, or of what Allow asked. A
// robots.txt that could not be fetched counts as what kept it from being
// fetched: only the site's own refusal is robots_unavailable.
func errorCategory(x exchange) storage.Category {
	var (
		connect *fetch.ConnectError
		socks   *fetch.SOCKSError
		crash   *fetch.PanicError
		dns     *net.DNSError
		robots  *fetch.RobotsStatusError
	)
	switch err := x.err; {
	case errors.Is(err, fetch.ErrMaxBytes):
		return storage.CategoryBudgetExhausted
	case errors.Is(err, errStopping), errors.Is(err, storage.ErrLeaseLost):
		return storage.CategoryReleased
	case errors.Is(err, errRobotsDenied):
		return storage.CategoryRobotsDenied
	case errors.Is(err, fetch.ErrURL), errors.Is(err, fetch.ErrScheme), errors.Is(err, address.ErrPrivate):
		if x.trace.Hops > 0 {
			return storage.CategoryRedirectLoop
		}
		return storage.CategoryConfig
	case errors.Is(err, fetch.ErrRedirect):
		return storage.CategoryRedirectLoop
	case errors.Is(err, fetch.ErrTooLarge):
		return storage.CategoryTooLarge
	case errors.Is(err, fetch.ErrEncoding):
		return storage.CategoryContentType
	case errors.As(err, &crash):
		return storage.CategoryInternal
	case errors.As(err, &robots) && robots.ProxyOrigin:
		return x.classify(proxy.Answer{Status: robots.Status, Reason: robots.Reason, Header: robots.Header, Body: robots.Body})
	case errors.As(err, &robots):
		return storage.CategoryRobotsUnavailable
	case errors.As(err, &connect):
		return x.classify(proxy.Answer{Status: connect.Status, Reason: connect.Reason, Header: connect.Header, Body: connect.Body})
	case errors.As(err, &socks):
		return x.classify(proxy.Answer{SOCKS: true, Status: int(socks.Reply)})
	case errors.Is(err, fetch.ErrGateway):
		return storage.CategoryProxyUnreachable
	case isCertificate(err):
		return storage.CategoryTLS
	case errors.As(err, &dns):
		if x.proxied {
			return storage.CategoryProxyUnreachable // its name, not the target's
		}
		return storage.CategoryDNS
	case errors.Is(err, fetch.ErrTruncated):
		return storage.CategoryBodyTruncated
	}
	return phaseCategory(x)
}

// phaseCategory is for errors that say less than how far the attempt came:
// timeouts, resets, closed connections.
func phaseCategory(x exchange) storage.Category {
	late := isTimeout(x.err)
	switch phaseOf(x.err) {
	case fetch.PhaseDial:
		if x.proxied {
			return storage.CategoryProxyUnreachable
		}
		return storage.CategoryConnectTimeout
	case fetch.PhaseConnect:
		return storage.CategoryConnectTimeout
	case fetch.PhaseTLS:
		return storage.CategoryTLS
	case fetch.PhaseSend, fetch.PhaseHeaders, fetch.PhaseBody:
		switch {
		case late:
			return storage.CategoryReadTimeout
		case x.proxied && x.worked:
			return storage.CategorySessionLost
		}
		return storage.CategoryBodyTruncated
	}
	if late { // it waited for its turn until its time was over
		return storage.CategoryReadTimeout
	}
	return storage.CategoryInternal
}

// withoutPage is what failed in fetching robots.txt, without the page that waited
// for it.
func withoutPage(err error) string {
	var robots *fetch.RobotsStatusError
	if errors.As(err, &robots) {
		return robots.Error()
	}
	var e, inner *fetch.Error
	for errors.As(err, &e) {
		inner, err = e, e.Err
	}
	return inner.Error()
}

// phaseOf is how far the exchange came that an error is of, "" for none: where
// the fetch of robots.txt failed, that one, and not the page's that waited.
func phaseOf(err error) (phase fetch.Phase) {
	var e *fetch.Error
	for errors.As(err, &e) {
		phase, err = e.Phase, e.Err
	}
	return phase
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func isCertificate(err error) bool {
	var (
		verify *tls.CertificateVerificationError
		host   x509.HostnameError
		record tls.RecordHeaderError
		alert  tls.AlertError
	)
	return errors.As(err, &verify) || errors.As(err, &host) || errors.As(err, &record) || errors.As(err, &alert) ||
		errors.Is(err, http.ErrSchemeMismatch)
}

// challengeMarks stand in the pages that ask for proof of a person, and in no
// others: what ordinary pages load as well (recaptcha, Cloudflare's beacon) is
// left out.
var challengeMarks = []string{"_cf_chl_opt", `id="px-captcha"`, "captcha-delivery.com/c.js", "captcha-delivery.com/i.js", "Incapsula incident ID"}

// challengeSize is how large a challenge page gets: those known have 2 to 10
// KB. Marks in larger pages are somebody's article about them.
const challengeSize = 16 << 10

// judgeBlock finds block and challenge pages, whatever their status.
func judgeBlock(p *fetch.Page) *failure {
	if strings.EqualFold(p.Header.Get("Cf-Mitigated"), "challenge") {
		return fail(storage.CategoryBlocked, "the site answered %s with a challenge (cf-mitigated)", statusText(p.Status))
	}
	if action := p.Header.Get("X-Amzn-Waf-Action"); action != "" {
		return fail(storage.CategoryBlocked, "the site answered %s with a challenge (x-amzn-waf-action: %s)", statusText(p.Status), action)
	}
	switch p.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusUnavailableForLegalReasons:
		return fail(storage.CategoryBlocked, "the site answered %s", statusText(p.Status))
	}
	if len(p.Body) <= challengeSize {
		for _, mark := range challengeMarks {
			if bytes.Contains(p.Body, []byte(mark)) {
				return fail(storage.CategoryBlocked, "the page is a challenge (%s) with status %d", mark, p.Status)
			}
		}
	}
	return nil
}

func judgeStatus(p *fetch.Page, now time.Time) *failure {
	after := retryafter.Parse(p.Header, now)
	text := "the site answered " + statusText(p.Status)
	switch s := p.Status; {
	case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable && after > 0:
		return &failure{category: storage.CategoryThrottled, reason: text, retryAfter: after}
	case s == http.StatusNotFound, s == http.StatusGone:
		return fail(storage.CategoryNotFound, "%s", text)
	case s >= 500:
		return &failure{category: storage.CategoryServerError, reason: text, retryAfter: after}
	case s >= 400:
		return fail(storage.CategoryClientError, "%s", text)
	case s == http.StatusNotModified:
		return fail(storage.CategoryContentType, "%s to a request that did not ask for that", text)
	case s >= 300:
		return fail(storage.CategoryRedirectLoop, "%s without a place to go", text)
	case s < 200:
		return fail(storage.CategoryInternal, "%s", text)
	}
	return nil
}

// judgeContent refuses what no rule reads.
func judgeContent(p *fetch.Page) *failure {
	if len(p.Body) <= 512 && len(bytes.TrimSpace(p.Body)) == 0 {
		if p.Status == http.StatusOK {
			return fail(storage.CategoryContentType, "the body is empty")
		}
		return fail(storage.CategoryContentType, "the body is empty (status %d)", p.Status)
	}
	kind := p.ContentType
	if kind == "" || kind == "application/octet-stream" {
		kind, _, _ = strings.Cut(http.DetectContentType(p.Body), ";")
	}
	for _, prefix := range []string{"image/", "audio/", "video/", "font/", "application/pdf", "application/zip", "application/x-gzip", "application/octet-stream"} {
		if strings.HasPrefix(kind, prefix) {
			return fail(storage.CategoryContentType, "the page is %s, which no rule reads", kind)
		}
	}
	return nil
}

// judgeParse maps an error of attempt.read.
func judgeParse(err error) *failure {
	category := storage.CategoryInternal
	var problems []storage.Problem
	if errors.Is(err, errNoTime) {
		category = storage.CategoryReadTimeout
	}
	var e *parser.Error
	if errors.As(err, &e) {
		problems = problemsOf(e)
		switch e.Kind {
		case parser.KindSyntax:
			category = storage.CategoryParseError
		case parser.KindValidation, parser.KindEmpty:
			category = storage.CategoryValidation
		case parser.KindDuplicateKey:
			category = storage.CategoryDuplicateKey
		}
	}
	return &failure{category: category, reason: err.Error(), queued: errors.Is(err, errNoTime), problems: problems}
}

// problemsOf are what the parser found as the store keeps it.
func problemsOf(bad ...*parser.Error) []storage.Problem {
	var problems []storage.Problem
	for _, e := range bad {
		problems = append(problems, storage.Problem{Row: e.Row, Field: e.Field, Value: e.Value, Reason: e.Reason})
	}
	return problems
}

func statusText(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}

// decision is what becomes of a job after an attempt, and of its host.
type decision struct {
	outcome  string    // one of storage.Outcome…
	due      time.Time // of a retry
	gate     time.Time // nothing starts at the host before; zero: no matter
	category storage.Category
	reason   string
}

// history is what a decision needs to know beside the job.
type history struct {
	same   int           // earlier attempts that ended with this category, since a person last retried it
	spent  int64         // bytes of the attempt that just ended
	paused time.Duration // how long all its proxies were paused since the first claim
	unsafe string        // why it must not be repeated by itself; "": it may be
}

// decide is arithmetic on (job, failure, policy, now).
func decide(j *storage.Job, src *Source, f *failure, h history, now time.Time) decision {
	d := decideJob(j, src, f, h, now)
	if holdsHost(f.category) && (!f.unsure || h.same > 0) {
		// Also where the job gives up: the host has asked all of us to wait.
		d.gate = now.Add(max(src.policy(f.category).delay(h.same+1, j.Key.String(), j.Generation), f.retryAfter))
	}
	return d
}

// unsureBase is the base of the delay before another exit is asked.
const unsureBase = 10 * time.Second

// holdsHost reports whether a failure says that the host wants no requests for
// a while, from anybody.
func holdsHost(c storage.Category) bool {
	return c == storage.CategoryThrottled || c == storage.CategoryRobotsUnavailable
}

func decideJob(j *storage.Job, src *Source, f *failure, h history, now time.Time) decision {
	giveUp := func(c storage.Category, why string) decision {
		return decision{outcome: storage.OutcomeFail, category: c, reason: f.reason + why}
	}
	if h.unsafe != "" {
		why := fmt.Sprintf("%s: %s; semel retry %d sends it again", h.unsafe, f.reason, j.ID)
		return decision{outcome: storage.OutcomeFail, category: storage.CategoryUnsafeToRepeat, reason: why}
	}
	asked := src.Retry[f.category].Attempts > 0 // whoever says how many may fail wants them to count
	if f.category == storage.CategoryReleased || accountWide(f.category) || f.unburnt && !asked {
		return decision{outcome: storage.OutcomeReleased, category: f.category, reason: f.reason}
	}
	policy, n := src.policy(f.category), h.same+1
	if f.unsure && n == 1 {
		policy.Base = min(policy.Base, unsureBase)
	}
	if f.attempts > 0 && (policy.Attempts == 0 || f.attempts < policy.Attempts) {
		policy.Attempts = f.attempts
	}
	switch {
	case policy.Attempts == 1 && n == 1:
		return giveUp(f.category, "")
	case policy.Attempts > 0 && n >= policy.Attempts:
		return giveUp(f.category, fmt.Sprintf("; that was %s %d of %d", f.category, n, policy.Attempts))
	case int(j.Tries)+1 >= src.Limits.Attempts && f.category != storage.CategoryExitUnavailable:
		return giveUp(f.category, fmt.Sprintf("; that was attempt %d of %d (limits.attempts)", j.Tries+1, src.Limits.Attempts))
	case j.Spent+h.spent >= src.Limits.Bytes:
		return giveUp(storage.CategoryBudgetExhausted, fmt.Sprintf("; %d bytes are spent of %d (limits.bytes)", j.Spent+h.spent, src.Limits.Bytes))
	}
	wait := max(policy.delay(n, j.Key.String(), j.Generation), src.leastDelay(f.category), f.retryAfter)
	due := now.Add(wait)
	if end := j.FirstClaim.Add(src.Limits.Time + h.paused); due.After(end) {
		return giveUp(storage.CategoryBudgetExhausted, fmt.Sprintf("; the next attempt, at %s, would be after limits.time is over", due.Format(time.RFC3339)))
	}
	return decision{outcome: storage.OutcomeRetry, due: due, category: f.category, reason: f.reason}
}

// accountWide reports whether every other job would meet the same trouble.
func accountWide(c storage.Category) bool {
	return c == storage.CategoryProxyAuth || c == storage.CategoryProxyQuota
}
