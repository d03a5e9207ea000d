package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"semel/engine/address"
	"semel/engine/fetch"
	"semel/parser"
	"semel/storage"
)

func TestErrorCategories(t *testing.T) {
	at := func(p fetch.Phase, err error) error { return &fetch.Error{Phase: p, Err: err} }
	late := func(p fetch.Phase) error { return at(p, &fetch.TimeoutError{Phase: p, After: time.Second}) }
	deadline := fmt.Errorf("%w: attempt", context.DeadlineExceeded)
	for _, test := range []struct {
		name string
		x    exchange
		want storage.Category
	}{
		{"byte limit", exchange{err: at(fetch.PhaseBody, fetch.ErrMaxBytes)}, storage.CategoryBudgetExhausted},
		{"stopping", exchange{err: at(fetch.PhaseHeaders, errStopping)}, storage.CategoryReleased},
		{"lease lost", exchange{err: at(fetch.PhaseHeaders, storage.ErrLeaseLost)}, storage.CategoryReleased},
		{"robots forbid", exchange{err: at(fetch.PhaseStart, errRobotsDenied)}, storage.CategoryRobotsDenied},
		{"robots answer 503", exchange{err: at(fetch.PhaseStart, &fetch.RobotsStatusError{Status: 503})}, storage.CategoryRobotsUnavailable},
		{"robots: the gateway answers 502", exchange{err: at(fetch.PhaseStart, &fetch.RobotsStatusError{Status: 502, ProxyOrigin: true}), proxied: true}, storage.CategoryExitConnect},
		{"robots: reset", exchange{err: at(fetch.PhaseStart, fmt.Errorf("%w: %w", fetch.ErrRobotsUnavailable, at(fetch.PhaseHeaders, fetch.ErrNoAnswer)))}, storage.CategoryBodyTruncated},
		{"robots: no connection", exchange{err: at(fetch.PhaseStart, fmt.Errorf("%w: %w", fetch.ErrRobotsUnavailable, at(fetch.PhaseDial, errors.New("refused"))))}, storage.CategoryConnectTimeout},
		{"bad url", exchange{err: at(fetch.PhaseStart, fetch.ErrURL)}, storage.CategoryConfig},
		{"private address", exchange{err: at(fetch.PhaseDial, address.ErrPrivate)}, storage.CategoryConfig},
		{"redirect to a private address", exchange{err: at(fetch.PhaseDial, address.ErrPrivate), trace: fetch.Trace{Hops: 1}}, storage.CategoryRedirectLoop},
		{"redirect to ftp", exchange{err: at(fetch.PhaseStart, fetch.ErrScheme), trace: fetch.Trace{Hops: 1}}, storage.CategoryRedirectLoop},
		{"redirect loop", exchange{err: at(fetch.PhaseHeaders, fetch.ErrRedirect)}, storage.CategoryRedirectLoop},
		{"too large", exchange{err: at(fetch.PhaseBody, fetch.ErrTooLarge)}, storage.CategoryTooLarge},
		{"encoding", exchange{err: at(fetch.PhaseBody, fetch.ErrEncoding)}, storage.CategoryContentType},
		{"panic", exchange{err: at(fetch.PhaseStart, &fetch.PanicError{Value: "x"})}, storage.CategoryInternal},
		{"socks login", exchange{err: at(fetch.PhaseConnect, &fetch.SOCKSError{Reply: fetch.SOCKSAuth}), proxied: true}, storage.CategoryProxyAuth},
		{"socks ruleset", exchange{err: at(fetch.PhaseConnect, &fetch.SOCKSError{Reply: fetch.SOCKSNotAllowed}), proxied: true}, storage.CategoryProxyDenied},
		{"socks general failure", exchange{err: at(fetch.PhaseConnect, &fetch.SOCKSError{Reply: fetch.SOCKSGeneralFailure}), proxied: true}, storage.CategoryExitUnavailable},
		{"socks ttl", exchange{err: at(fetch.PhaseConnect, &fetch.SOCKSError{Reply: fetch.SOCKSTTLExpired}), proxied: true}, storage.CategoryExitUnavailable},
		{"socks refused", exchange{err: at(fetch.PhaseConnect, &fetch.SOCKSError{Reply: fetch.SOCKSRefused}), proxied: true}, storage.CategoryExitConnect},
		{"socks refused later", exchange{err: at(fetch.PhaseConnect, &fetch.SOCKSError{Reply: fetch.SOCKSRefused}), proxied: true, worked: true}, storage.CategorySessionLost},
		{"socks other", exchange{err: at(fetch.PhaseConnect, &fetch.SOCKSError{Reply: fetch.SOCKSOther}), proxied: true}, storage.CategoryProxyUnreachable},
		{"gateway gone", exchange{err: at(fetch.PhaseDial, fetch.ErrGateway), proxied: true}, storage.CategoryProxyUnreachable},
		{"gateway's name", exchange{err: at(fetch.PhaseDial, &net.DNSError{Name: "gw"}), proxied: true}, storage.CategoryProxyUnreachable},
		{"target's name", exchange{err: at(fetch.PhaseDial, &net.DNSError{Name: "x"})}, storage.CategoryDNS},
		{"certificate", exchange{err: at(fetch.PhaseTLS, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})}, storage.CategoryTLS},
		{"plain http on https", exchange{err: at(fetch.PhaseTLS, http.ErrSchemeMismatch)}, storage.CategoryTLS},
		{"handshake too slow", exchange{err: late(fetch.PhaseTLS)}, storage.CategoryTLS},
		{"refused", exchange{err: at(fetch.PhaseDial, errors.New("connection refused"))}, storage.CategoryConnectTimeout},
		{"dial too slow", exchange{err: late(fetch.PhaseDial)}, storage.CategoryConnectTimeout},
		{"dial to the gateway too slow", exchange{err: late(fetch.PhaseDial), proxied: true}, storage.CategoryProxyUnreachable},
		{"tunnel too slow", exchange{err: late(fetch.PhaseConnect), proxied: true}, storage.CategoryConnectTimeout},
		{"headers too slow", exchange{err: late(fetch.PhaseHeaders)}, storage.CategoryReadTimeout},
		{"body too slow", exchange{err: at(fetch.PhaseBody, deadline)}, storage.CategoryReadTimeout},
		{"its turn came too late", exchange{err: at(fetch.PhaseStart, deadline)}, storage.CategoryReadTimeout},
		{"cut", exchange{err: at(fetch.PhaseBody, fetch.ErrTruncated)}, storage.CategoryBodyTruncated},
		{"no answer", exchange{err: at(fetch.PhaseHeaders, fetch.ErrNoAnswer)}, storage.CategoryBodyTruncated},
		{"no answer of a session that had worked", exchange{err: at(fetch.PhaseHeaders, fetch.ErrNoAnswer), proxied: true, worked: true}, storage.CategorySessionLost},
		{"unforeseen", exchange{err: errors.New("what?")}, storage.CategoryInternal},
		{"unforeseen before anything", exchange{err: at(fetch.PhaseStart, io.ErrShortWrite)}, storage.CategoryInternal},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := judge(test.x, time.Now())
			if got == nil || got.category != test.want {
				t.Fatalf("got %+v, want %s", got, test.want)
			}
			if got.reason == "" {
				t.Error("no reason")
			}
		})
	}
}

func TestAnswerCategories(t *testing.T) {
	const html, ok = "text/html", "<html><body>fine</body></html>"
	for _, test := range []struct {
		name   string
		status int
		kind   string
		body   string
		header []string
		want   storage.Category // "": the parser sees it
	}{
		{"fine", 200, html, ok, nil, ""},
		{"created", 201, html, ok, nil, ""},
		{"json", 200, "application/json", `{"a":1}`, nil, ""},
		{"no type, html", 200, "", ok, nil, ""},
		{"octet-stream, html", 200, "application/octet-stream", ok, nil, ""},
		{"image", 200, "image/png", "\x89PNG", nil, storage.CategoryContentType},
		{"octet-stream, pdf", 200, "application/octet-stream", "%PDF-1.7 ", nil, storage.CategoryContentType},
		{"empty", 200, html, "  \n", nil, storage.CategoryContentType},
		{"no content", 204, "", "", nil, storage.CategoryContentType},
		{"not modified, unasked", 304, "", "", nil, storage.CategoryContentType},
		{"multiple choices", 300, html, ok, nil, storage.CategoryRedirectLoop},
		{"401", 401, html, ok, nil, storage.CategoryBlocked},
		{"403", 403, html, ok, nil, storage.CategoryBlocked},
		{"451", 451, html, ok, nil, storage.CategoryBlocked},
		{"404", 404, html, ok, nil, storage.CategoryNotFound},
		{"410", 410, html, ok, nil, storage.CategoryNotFound},
		{"400", 400, html, ok, nil, storage.CategoryClientError},
		{"407 of a site", 407, html, ok, nil, storage.CategoryClientError},
		{"429", 429, html, ok, nil, storage.CategoryThrottled},
		{"500", 500, html, ok, nil, storage.CategoryServerError},
		{"503", 503, html, ok, nil, storage.CategoryServerError},
		{"503 with Retry-After", 503, html, ok, []string{"Retry-After", "5"}, storage.CategoryThrottled},
		{"503 with a nonsense Retry-After", 503, html, ok, []string{"Retry-After", "soon"}, storage.CategoryServerError},
		{"522", 522, html, ok, nil, storage.CategoryServerError},
		{"challenge with 200", 200, html, ok, []string{"Cf-Mitigated", "challenge"}, storage.CategoryBlocked},
		{"challenge with 429", 429, html, ok, []string{"Cf-Mitigated", "challenge"}, storage.CategoryBlocked},
		{"challenge with 202", 202, html, ok, []string{"X-Amzn-Waf-Action", "challenge"}, storage.CategoryBlocked},
		{"challenge in the page", 200, html, "<script>window._cf_chl_opt={}</script>", nil, storage.CategoryBlocked},
		{"an article about challenges", 200, html, strings.Repeat("x", challengeSize) + "_cf_chl_opt", nil, ""},
		{"a page with a captcha in its form", 200, html, `<div class="g-recaptcha"></div>` + ok, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			header := http.Header{}
			for i := 0; i+1 < len(test.header); i += 2 {
				header.Set(test.header[i], test.header[i+1])
			}
			page := &fetch.Page{Status: test.status, ContentType: test.kind, Body: []byte(test.body), Header: header}
			got := judge(exchange{page: page}, time.Now())
			if (got == nil) != (test.want == "") || got != nil && got.category != test.want {
				t.Errorf("got %+v, want %q", got, test.want)
			}
		})
	}
}

func TestParseCategories(t *testing.T) {
	for kind, want := range map[parser.Kind]storage.Category{
		parser.KindSyntax: storage.CategoryParseError, parser.KindValidation: storage.CategoryValidation,
		parser.KindEmpty: storage.CategoryValidation, parser.KindDuplicateKey: storage.CategoryDuplicateKey,
	} {
		if got := judgeParse(&parser.Error{Kind: kind, Reason: "x"}); got.category != want {
			t.Errorf("%s: %s, want %s", kind, got.category, want)
		}
	}
}

func TestDecide(t *testing.T) {
	now := time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name     string
		category storage.Category
		after    time.Duration
		change   func(*storage.Job, *Source, *history)
		outcome  string
		job      storage.Category // of a failed job
	}{
		{"first timeout", storage.CategoryReadTimeout, 0, nil, storage.OutcomeRetry, ""},
		{"not found", storage.CategoryNotFound, 0, nil, storage.OutcomeFail, storage.CategoryNotFound},
		{"stop", storage.CategoryReleased, 0, nil, storage.OutcomeReleased, ""},
		{"login", storage.CategoryProxyAuth, 0, nil, storage.OutcomeReleased, ""},
		{"quota", storage.CategoryProxyQuota, 0, nil, storage.OutcomeReleased, ""},
		{"last attempt", storage.CategoryReadTimeout, 0, func(j *storage.Job, _ *Source, _ *history) { j.Tries = 5 }, storage.OutcomeFail, storage.CategoryReadTimeout},
		{"last but one", storage.CategoryReadTimeout, 0, func(j *storage.Job, _ *Source, _ *history) { j.Tries = 4 }, storage.OutcomeRetry, ""},
		{"exits have their own cap", storage.CategoryExitUnavailable, 0, func(j *storage.Job, _ *Source, _ *history) { j.Tries = 5 }, storage.OutcomeRetry, ""},
		{"and reach it", storage.CategoryExitUnavailable, 0, func(_ *storage.Job, _ *Source, h *history) { h.same = 11 }, storage.OutcomeFail, storage.CategoryExitUnavailable},
		{"cap of the category", storage.CategoryContentType, 0, func(_ *storage.Job, _ *Source, h *history) { h.same = 1 }, storage.OutcomeFail, storage.CategoryContentType},
		{"handshakes may be slow more often", storage.CategoryTLS, 0, func(_ *storage.Job, _ *Source, h *history) { h.same = 3 }, storage.OutcomeRetry, ""},
		{"cap of the source", storage.CategoryReadTimeout, 0, func(_ *storage.Job, s *Source, h *history) {
			s.Retry = map[storage.Category]RetryPolicy{storage.CategoryReadTimeout: {Attempts: 3}}
			h.same = 2
		}, storage.OutcomeFail, storage.CategoryReadTimeout},
		{"a source may retry what is final by default", storage.CategoryNotFound, 0, func(_ *storage.Job, s *Source, _ *history) {
			s.Retry = map[storage.Category]RetryPolicy{storage.CategoryNotFound: {Attempts: 2, Base: time.Second}}
		}, storage.OutcomeRetry, ""},
		{"bytes", storage.CategoryReadTimeout, 0, func(j *storage.Job, _ *Source, h *history) { j.Spent, h.spent = 4<<20, 1<<20 }, storage.OutcomeFail, storage.CategoryBudgetExhausted},
		{"cut by the byte limit", storage.CategoryBudgetExhausted, 0, nil, storage.OutcomeFail, storage.CategoryBudgetExhausted},
		{"time", storage.CategoryReadTimeout, 0, func(j *storage.Job, _ *Source, _ *history) { j.FirstClaim = now.Add(-6 * time.Hour) }, storage.OutcomeFail, storage.CategoryBudgetExhausted},
		{"a pause is not counted", storage.CategoryReadTimeout, 0, func(j *storage.Job, _ *Source, h *history) {
			j.FirstClaim, h.paused = now.Add(-6*time.Hour), time.Hour
		}, storage.OutcomeRetry, ""},
		{"Retry-After beyond the limit", storage.CategoryThrottled, 7 * time.Hour, nil, storage.OutcomeFail, storage.CategoryBudgetExhausted},
	} {
		t.Run(test.name, func(t *testing.T) {
			src := source(t, 0)
			j := &storage.Job{Key: storage.JobKey{Source: "shop", Target: "1"}, Generation: 1, FirstClaim: now}
			var h history
			if test.change != nil {
				test.change(j, &src, &h)
			}
			d := decide(j, &src, &failure{category: test.category, reason: "why", retryAfter: test.after}, h, now)
			if d.outcome != test.outcome || d.outcome == storage.OutcomeFail && d.category != test.job {
				t.Errorf("got %+v", d)
			}
			if !strings.HasPrefix(d.reason, "why") {
				t.Errorf("the reason is lost: %q", d.reason)
			}
			if d.outcome == storage.OutcomeRetry && d.due.Before(now) {
				t.Errorf("due %s, before now", d.due)
			}
		})
	}
}

// The wait is never shorter than what the site asked for, however small the
// jitter.
func TestRetryAfterBeatsJitter(t *testing.T) {
	now, src := time.Now(), source(t, 0)
	for i := range 200 {
		j := &storage.Job{Key: storage.JobKey{Source: "shop", Target: fmt.Sprint(i)}, Generation: 1, FirstClaim: now}
		d := decide(j, &src, &failure{category: storage.CategoryThrottled, reason: "429", retryAfter: 10 * time.Second}, history{}, now)
		if wait := d.due.Sub(now); wait < 10*time.Second || wait > 30*time.Second {
			t.Fatalf("target %d waits %s", i, wait)
		}
	}
}

// Delays are spread over the whole range, bounded, and the same every time.
func TestDelay(t *testing.T) {
	p := RetryPolicy{Base: 10 * time.Second, Max: time.Minute}
	for n, bound := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 3: 40 * time.Second, 4: time.Minute, 60: time.Minute} {
		low, high := bound, time.Duration(0)
		for i := range 1000 {
			key := fmt.Sprintf("shop:%d:-:-:-:-", i)
			d := p.delay(n, key, 7)
			if d < 0 || d > bound {
				t.Fatalf("failure %d: %s is not within %s", n, d, bound)
			}
			if d != p.delay(n, key, 7) {
				t.Fatal("the same job and attempt gave two delays")
			}
			low, high = min(low, d), max(high, d)
		}
		if low > bound/20 || high < bound*19/20 {
			t.Errorf("failure %d: delays run from %s to %s of %s", n, low, high, bound)
		}
	}
	if p.delay(1, "a", 1) == p.delay(1, "a", 2) {
		t.Error("two attempts have the same jitter")
	}
}

// Every category has a policy that the table of the design allows.
func TestEveryCategoryHasAPolicy(t *testing.T) {
	for _, c := range storage.Categories {
		p := defaultPolicy(c)
		if p.Attempts != 1 && (p.Base <= 0 || p.Max < p.Base) {
			t.Errorf("%s: %+v", c, p)
		}
	}
}
