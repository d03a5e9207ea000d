package engine

import (
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"semel/engine/fetch"
	"semel/engine/gateway"
	"semel/engine/intake"
	"semel/parser"
	"semel/storage"
)

var (
	everyWay   = []way{directHTTP, directTLS, viaPlain, viaTunnel, viaSOCKS, viaSOCKSTLS}
	proxyWays  = []way{viaPlain, viaTunnel}
	socksWays  = []way{viaSOCKS, viaSOCKSTLS}
	commonWays = []way{directHTTP, viaPlain, viaTunnel}
)

// stories are all that is told.
func stories(t *testing.T) []wired {
	return slices.Concat(accountStories(), gatewayStories(t), exitStories(), providerStories(), transportStories(), siteStories(), robotsStories(), pageStories(t))
}

// ends gives stories one category, and where they have none of their own, what
// becomes of the job and of its exit.
func ends(c storage.Category, then next, exit string, stories ...wired) []wired {
	for i := range stories {
		s := &stories[i]
		s.category = c
		if s.next == (next{}) {
			s.next = then
		}
		if s.exit == "" {
			s.exit = exit
		}
	}
	return stories
}

// accountStories are about the login and what is left of its traffic: no
// attempt is burnt, and the proxy is paused.
func accountStories() []wired {
	wrong := func(w *wire) { w.proxy.Password = "wrong" }
	twice := func(status int, header http.Header) func(*wire) {
		return func(w *wire) {
			w.gateway.Fault = func(gateway.Request) gateway.Fault { return gatewaySays(status, header) }
		}
	}
	return slices.Concat(
		ends(storage.CategoryProxyAuth, jobHandedBack(freshTries), anyExit,
			wired{name: "407", ways: proxyWays, set: twice(407, nil), gateway: 407},
			wired{name: "401", ways: proxyWays, set: twice(401, oneHeader("Proxy-Authenticate", "Basic")), gateway: 401},
			wired{name: "wrong password", ways: proxyWays, set: wrong, gateway: 407},
			wired{name: "wrong password", ways: socksWays, set: wrong, phase: fetch.PhaseConnect},
		),
		ends(storage.CategoryProxyQuota, jobHandedBack(1), anyExit,
			wired{name: "402", ways: proxyWays, fault: gatewaySays(402, nil), gateway: 402},
		),
	)
}

// gatewayStories are about the gateway itself.
func gatewayStories(t *testing.T) []wired {
	limited := jobRetried(5 * time.Second)
	nobody := func(w *wire) { w.proxy.URL = deadAddr(t) }
	return slices.Concat(
		ends(storage.CategoryProxyLimited, limited, anyExit,
			wired{name: "429", ways: proxyWays, fault: gatewaySays(429, oneHeader("X-Brd-Err-Code", "client_10110")), gateway: 429, code: "client_10110"},
			wired{name: "429 with Retry-After", ways: []way{viaTunnel}, fault: gatewaySays(429, oneHeader("Retry-After", "40")), gateway: 429, next: limited.notBefore(40 * time.Second)},
		),
		ends(storage.CategoryProxyDenied, jobFailed, anyExit,
			wired{name: "403", ways: proxyWays, fault: gatewaySays(403, oneHeader("X-Brd-Err-Code", "policy_20050")), gateway: 403, code: "policy_20050"},
			wired{name: "reply 2", ways: socksWays, fault: gatewaySays(2, nil), phase: fetch.PhaseConnect},
		),
		ends(storage.CategoryProxyUnreachable, jobRetried(time.Second), anyExit,
			wired{name: "dropped", ways: []way{viaTunnel, viaSOCKS, viaSOCKSTLS}, fault: gateway.Fault{Kind: gateway.Drop}, phase: fetch.PhaseConnect},
			wired{name: "its answer is cut", ways: []way{viaTunnel, viaSOCKS, viaSOCKSTLS}, fault: gateway.Fault{Kind: gateway.Cut}, phase: fetch.PhaseConnect},
			wired{name: "nobody listens", ways: slices.Concat(proxyWays, socksWays), set: nobody, last: true, phase: fetch.PhaseDial, next: jobHandedBack(3)},
			wired{name: "reply 7", ways: socksWays, fault: gatewaySays(7, nil), phase: fetch.PhaseConnect},
			wired{name: "reply 8", ways: socksWays, fault: gatewaySays(8, nil), phase: fetch.PhaseConnect},
		),
	)
}

// exitStories are about the way from the gateway to the site: another exit may
// do better.
func exitStories() []wired {
	proxyStatus := oneHeader("Proxy-Status", `gw; error=destination_unavailable; details="peer_1: no"`)
	return slices.Concat(
		ends(storage.CategoryExitUnavailable, jobRetried(10*time.Second).free(), freshExit,
			wired{name: "490", ways: proxyWays, fault: gatewaySays(490, nil), gateway: 490},
			wired{name: "525", ways: proxyWays, fault: gatewaySays(525, nil), gateway: 525},
			wired{name: "none in the country", ways: proxyWays, set: emptyCountry, last: true, gateway: 490},
			wired{name: "none in the country", ways: socksWays, set: emptyCountry, last: true, phase: fetch.PhaseConnect},
			wired{name: "reply 1", ways: socksWays, fault: gatewaySays(1, nil), phase: fetch.PhaseConnect},
			wired{name: "reply 6", ways: socksWays, fault: gatewaySays(6, nil), phase: fetch.PhaseConnect},
		),
		ends(storage.CategorySessionLost, jobRetried(time.Second), freshExit,
			wired{name: "502", ways: proxyWays, warm: true, fault: gatewaySays(502, oneHeader("X-Error-Description", "Session failed")), gateway: 502, code: "Session failed"},
			wired{name: "its exit is gone", ways: proxyWays, warm: true, set: deadExit, last: true, gateway: 502, code: "Session failed, start a new session"},
			wired{name: "reset in the tunnel", ways: []way{viaTunnel, viaSOCKS, viaSOCKSTLS}, warm: true, set: dyingExit, phase: fetch.PhaseHeaders},
			wired{name: "reply 4", ways: socksWays, warm: true, fault: gatewaySays(4, nil), phase: fetch.PhaseConnect},
		),
		ends(storage.CategoryExitConnect, jobRetried(2*time.Second), freshExit,
			wired{name: "502", ways: proxyWays, fault: gatewaySays(502, proxyStatus), gateway: 502, code: "peer_1"},
			wired{name: "503", ways: proxyWays, fault: gatewaySays(503, oneHeader("X-Squid-Error", "ERR_CONNECT_FAIL 111")), gateway: 503, code: "ERR_CONNECT_FAIL 111"},
			wired{name: "504", ways: []way{viaTunnel}, fault: gatewaySays(504, nil), gateway: 504},
			wired{name: "522", ways: proxyWays, fault: gatewaySays(522, nil), gateway: 522},
			wired{name: "499", ways: proxyWays, fault: gatewaySays(499, nil), gateway: 499},
			wired{name: "200 with an error's mark", ways: proxyWays, fault: gatewaySays(200, oneHeader("X-Brd-Err-Code", "client_99999")), gateway: 200, code: "client_99999"},
			wired{name: "a space in a header's name", ways: []way{viaTunnel}, fault: gatewaySays(502, http.Header{"Proxy Connection": {"close"}}), gateway: 502},
			wired{name: "reply 3", ways: socksWays, fault: gatewaySays(3, nil), phase: fetch.PhaseConnect},
			wired{name: "reply 4", ways: socksWays, fault: gatewaySays(4, nil), phase: fetch.PhaseConnect},
			wired{name: "reply 5", ways: socksWays, fault: gatewaySays(5, nil), phase: fetch.PhaseConnect},
		),
	)
}

// emptyCountry is a provider that says so with a status of its own.
func emptyCountry(w *wire) {
	w.gateway.Provider, w.gateway.Countries = "netnut", []string{"DE"}
	w.proxy.UsernameTemplate = "{username}-res-us[-sid-{session}]"
}

// deadExit takes the session's exit away between its two jobs.
func deadExit(w *wire) {
	w.gateway.Fault = func(r gateway.Request) gateway.Fault {
		w.running.KillExit(r.Login.Session) // the next request's
		return gateway.Fault{}
	}
}

// dyingExit takes it away while an answer is awaited.
func dyingExit(w *wire) {
	var session atomic.Value
	w.gateway.Fault = func(r gateway.Request) gateway.Fault {
		session.Store(r.Login.Session)
		return gateway.Fault{}
	}
	w.story.answer = func(_ http.ResponseWriter, r *http.Request) {
		w.running.KillExit(session.Load().(string))
		<-r.Context().Done()
	}
}

// transportStories are about connections, whoever they are with.
func transportStories() []wired {
	through := slices.Concat(proxyWays, socksWays)
	closed := func(w *wire) { w.site.Listener.Close() }
	distrust := func(w *wire) { w.trust = false }
	stalled := func(after int) gateway.Fault { return gateway.Fault{Kind: gateway.Stall, After: after} }
	return slices.Concat(
		ends(storage.CategoryDNS, jobRetried(time.Minute), anyExit,
			wired{name: "a name that is none", ways: []way{directHTTP}, set: badName, last: true, phase: fetch.PhaseDial},
		),
		ends(storage.CategoryConnectTimeout, jobRetried(2*time.Second), freshExit,
			wired{name: "refused", ways: []way{directHTTP, directTLS}, set: closed, last: true, phase: fetch.PhaseDial},
			wired{name: "no tunnel", ways: []way{viaTunnel, viaSOCKS, viaSOCKSTLS}, fault: gateway.Fault{Kind: gateway.Hang}, set: hastyConnect, phase: fetch.PhaseConnect},
		),
		ends(storage.CategoryTLS, jobRetried(5*time.Second), freshExit,
			wired{name: "nobody's certificate", ways: []way{directTLS, viaTunnel, viaSOCKSTLS}, set: distrust, last: true, phase: fetch.PhaseTLS},
			wired{name: "silence in the handshake", ways: []way{viaTunnel, viaSOCKSTLS}, fault: stalled(0), set: hastyTLS, phase: fetch.PhaseTLS},
		),
		ends(storage.CategoryReadTimeout, jobRetried(5*time.Second), freshExit,
			wired{name: "no answer", ways: everyWay, answer: noAnswer, set: hastyHeaders, phase: fetch.PhaseHeaders},
			wired{name: "silence in the body", ways: through, fault: stalled(20_000), answer: longPage, set: hastyIdle, status: 200, phase: fetch.PhaseBody},
		),
		ends(storage.CategoryBodyTruncated, jobRetried(time.Second), freshExit,
			wired{name: "cut", ways: everyWay, answer: cutPage, status: 200, phase: fetch.PhaseBody},
			wired{name: "reset", ways: through, fault: gateway.Fault{Kind: gateway.Reset, After: 20_000}, answer: longPage, status: 200, phase: fetch.PhaseBody},
			wired{name: "closed before the answer", ways: []way{directHTTP, directTLS, viaTunnel, viaSOCKS, viaSOCKSTLS}, answer: rawAnswer(""), phase: fetch.PhaseHeaders},
			wired{name: "dropped by the gateway", ways: []way{viaPlain}, fault: gateway.Fault{Kind: gateway.Drop}, phase: fetch.PhaseHeaders},
			wired{name: "cut by the gateway", ways: []way{viaPlain}, fault: gateway.Fault{Kind: gateway.Cut}, phase: fetch.PhaseHeaders},
		),
	)
}

// siteStories are about the site's own answers.
func siteStories() []wired {
	busy := jobRetried(30 * time.Second).gating()
	blocked := jobRetried(30 * time.Minute).notBefore(15 * time.Minute)
	hurry := func(w *wire) {
		w.src.Retry = map[storage.Category]RetryPolicy{storage.CategoryBlocked: {Max: 10 * time.Minute}}
	}
	return slices.Concat(
		ends(storage.CategoryThrottled, busy, sameExit,
			wired{name: "429", ways: everyWay, answer: statusPage(429), status: 429},
			wired{name: "429 with Retry-After", ways: everyWay, answer: statusPage(429, "Retry-After", "90"), status: 429, next: busy.notBefore(90 * time.Second)},
			wired{name: "503 with a date", ways: commonWays, answer: busyUntil(15 * time.Minute), status: 503, next: busy.notBefore(15 * time.Minute)},
		),
		ends(storage.CategoryBlocked, blocked, anyExit,
			wired{name: "403", ways: everyWay, answer: statusPage(403), status: 403},
			wired{name: "403 where jitter is short", ways: commonWays, answer: statusPage(403), set: hurry, status: 403, next: jobRetried(0).notBefore(15 * time.Minute)},
			wired{name: "401", ways: commonWays, answer: statusPage(401, "Www-Authenticate", "Basic"), status: 401},
			wired{name: "451", ways: commonWays, answer: statusPage(451), status: 451},
			wired{name: "challenge with 200", ways: commonWays, answer: statusPage(200, "Cf-Mitigated", "challenge"), status: 200},
			wired{name: "challenge with 202", ways: commonWays, answer: statusPage(202, "X-Amzn-Waf-Action", "challenge"), status: 202},
		),
		ends(storage.CategoryNotFound, jobFailed, anyExit,
			wired{name: "404", ways: everyWay, answer: statusPage(404), status: 404},
			wired{name: "410", ways: commonWays, answer: statusPage(410), status: 410},
		),
		ends(storage.CategoryClientError, jobFailed, anyExit,
			wired{name: "400", ways: everyWay, answer: statusPage(400), status: 400},
			wired{name: "407 of a site", ways: []way{directHTTP, viaTunnel, viaSOCKS}, answer: statusPage(407), status: 407},
		),
		ends(storage.CategoryServerError, jobRetried(10*time.Second), sameExit,
			wired{name: "500", ways: everyWay, answer: statusPage(500), status: 500},
			wired{name: "502", ways: everyWay, answer: statusPage(502), status: 502},
			wired{name: "a gateway's mark from a site", ways: []way{viaTunnel, viaSOCKSTLS}, answer: statusPage(502, "X-Brd-Err-Code", "client_10000"), status: 502},
		),
		ends(storage.CategoryRedirectLoop, jobFailed, anyExit,
			wired{name: "in a circle", ways: everyWay, set: redirecting("/p/001"), status: 302, phase: fetch.PhaseBody},
			wired{name: "to another scheme", ways: commonWays, set: redirecting("ftp://127.0.0.1/"), status: 302, phase: fetch.PhaseStart},
		),
		ends(storage.CategoryInternal, jobRetried(10*time.Second), anyExit,
			wired{name: "101, which nobody asked for", ways: commonWays, answer: rawAnswer("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), status: 101},
		),
	)
}

func robotsStories() []wired {
	obey := func(w *wire) { w.opts.Robots = true }
	withoutPlain := slices.DeleteFunc(slices.Clone(everyWay), func(w way) bool { return w == viaPlain })
	return slices.Concat(
		ends(storage.CategoryRobotsDenied, jobFailed, anyExit,
			wired{name: "a path that is not for us", ways: everyWay, answer: page("text/plain", "User-agent: *\nDisallow: /p/\n"), set: obey, phase: fetch.PhaseStart},
		),
		ends(storage.CategoryRobotsUnavailable, jobRetried(10*time.Minute).gating(), anyExit,
			wired{name: "503", ways: withoutPlain, answer: statusPage(503), set: obey, phase: fetch.PhaseStart},
			wired{name: "503, or is it the gateway's", ways: []way{viaPlain}, answer: statusPage(503), set: obey, phase: fetch.PhaseStart, next: jobRetried(10 * time.Second)},
		),
	)
}

// pageStories are about what a page holds, and about our own limits.
func pageStories(t *testing.T) []wired {
	jsonRules := parser.Spec{Version: 1, Fields: []parser.Field{{Name: "a", Rule: parser.Rule{JSON: ".a"}}}}
	rowRules := parser.Spec{Version: 1, Key: "{id}", Rows: &parser.Rule{CSS: "li"}, Fields: []parser.Field{
		{Name: "id", Rule: parser.Rule{CSS: ":scope"}, Attr: "data-id"}, {Name: "b", Rule: parser.Rule{CSS: "b"}},
	}}
	local := func(w *wire) { w.opts.AllowPrivate = false }
	body := func(limit int64) func(*wire) { return func(w *wire) { w.opts.MaxBodyBytes = limit } }
	bytes := func(limit int64) func(*wire) { return func(w *wire) { w.src.Limits.Bytes = limit } }
	return slices.Concat(
		ends(storage.CategoryConfig, jobFailed, anyExit,
			wired{name: "a private address", ways: everyWay, set: local, phase: fetch.PhaseStart},
		),
		ends(storage.CategoryTooLarge, jobFailed, anyExit,
			wired{name: "over max_body", ways: everyWay, answer: longPage, set: body(1000), status: 200, phase: fetch.PhaseBody},
		),
		ends(storage.CategoryBudgetExhausted, jobFailed, anyExit,
			wired{name: "over limits.bytes", ways: everyWay, answer: longPage, set: bytes(25_000), status: 200, phase: fetch.PhaseBody},
		),
		ends(storage.CategoryContentType, jobRetried(5*time.Minute), freshExit,
			wired{name: "an image", ways: commonWays, answer: page("image/png", "\x89PNG"), status: 200},
			wired{name: "nothing", ways: commonWays, answer: page("text/html", ""), status: 200},
		),
		ends(storage.CategoryParseError, jobFailed, anyExit,
			wired{name: "broken JSON", ways: commonWays, answer: page("application/json", `{"a":`), set: compiled(t, jsonRules), status: 200},
		),
		ends(storage.CategoryValidation, jobFailed, anyExit,
			wired{name: "no heading", ways: commonWays, answer: page("text/html", "<p>none</p>"), status: 200},
		),
		ends(storage.CategoryDuplicateKey, jobFailed, anyExit,
			wired{name: "two rows of one key", ways: commonWays, answer: page("text/html", "<li data-id=1><b>a</b><li data-id=1><b>b</b>"), set: compiled(t, rowRules), status: 200},
		),
	)
}

func compiled(t *testing.T, spec parser.Spec) func(*wire) {
	rules, err := parser.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return func(w *wire) { w.src.Rules = rules }
}

// statusPage answers with one, and headers in pairs.
func statusPage(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<html><body>no</body></html>")
	}
}

func page(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, text)
	}
}

// noAnswer answers nothing until the client has gone.
func noAnswer(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// cutPage announces more than it sends.
func cutPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, "<html>")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// rawAnswer writes bytes in place of an answer, and closes.
func rawAnswer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, text)
	}
}

func oneHeader(name, value string) http.Header { return http.Header{name: {value}} }

// gatewaySays is a gateway's own answer.
func gatewaySays(status int, header http.Header) gateway.Fault {
	return gateway.Fault{Kind: gateway.Status, Status: status, Header: header}
}

// longPage is much more than is read together with the headers.
var longPage = page("text/html", strings.Repeat("<p>long</p>", 4000))

// impatience is how long a silence is borne where the story is about one.
const impatience = 50 * time.Millisecond

func hastyConnect(w *wire) { w.opts.Timeouts.Connect = impatience }
func hastyTLS(w *wire)     { w.opts.Timeouts.TLS = impatience }
func hastyHeaders(w *wire) { w.opts.Timeouts.Headers = impatience }
func hastyIdle(w *wire)    { w.opts.Timeouts.Idle = impatience }

// deadAddr is a port that nobody listens on.
func deadAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// badName is one that no resolver is asked for: a label over 63 bytes.
func badName(w *wire) { w.src.URL = mustTemplate("http://" + strings.Repeat("a", 64) + ".test/p/{id}") }

func mustTemplate(text string) intake.Template {
	tmpl, err := intake.ParseTemplate(text)
	if err != nil {
		panic(err)
	}
	return tmpl
}

// busyUntil answers 503 with a date.
func busyUntil(wait time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		now := time.Now().UTC()
		w.Header().Set("Date", now.Format(http.TimeFormat))
		statusPage(http.StatusServiceUnavailable, "Retry-After", now.Add(wait).Format(http.TimeFormat))(w, r)
	}
}

// redirecting answers every page with a redirect.
func redirecting(to string) func(*wire) {
	return func(w *wire) { w.site.Config.Handler = http.RedirectHandler(to, http.StatusFound) }
}
