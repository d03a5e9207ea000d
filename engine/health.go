package engine

import (
	"sync"
	"time"

	"semel/storage"
)

const (
	// proxyPause is how long a proxy is left alone after its login was
	// refused; then one request tries again.
	proxyPause = 5 * time.Minute
	// quotaPause is the same for an account whose traffic is used up.
	quotaPause = 30 * time.Minute
	// freshTries is how many refusals a login may meet before it has ever
	// worked: one can be a hiccup of the gateway.
	freshTries = 2
	// refusalsInRow is how many refusals in a row, without a success between
	// them, end the trust in a login that has worked.
	refusalsInRow = 5
)

// A gateway that cannot be dialled is out after three failures in a row. One
// that hangs up while it is asked for a tunnel may mean the target, so that
// takes more of them.
var (
	outagePolicy = breakerPolicy{threshold: 12, base: time.Second, max: time.Minute}
	limitPolicy  = breakerPolicy{threshold: 3, base: 5 * time.Second, max: 2 * time.Minute}
	exitPolicy   = breakerPolicy{threshold: 3, base: 10 * time.Second, max: 10 * time.Minute}
)

const (
	weightDial   = 4
	weightTunnel = 1
)

// health is what is known of each proxy: its account, whether its gateway can be
// reached, the countries in which it has exits, how much it takes at once, and
// what is left of its budget. A proxy starts with one request at a time until
// its login has worked. Direct has no health and is always well.
type health struct {
	workers int

	mu      sync.Mutex
	proxies map[string]*proxyHealth
	changed uint64 // counts how often room came where there was none
}

type proxyHealth struct {
	account   account
	reached   bool // its gateway has answered since the start
	outage    breaker
	silence   string // why it was last out of reach
	limits    breaker
	countries map[string]*countryHealth
	busy      time.Time // the gateway has asked for nothing before
	ceiling   ceiling
	budget    budget
	inFlight  int

	since time.Time // held as a whole since then; zero: it is not
	spans []span    // held as a whole before that, the latest last; at most spansKept
}

// account is what is known of a login.
type account struct {
	proven  bool // it has worked since the start or the last pause
	refused int  // refusals in a row
	pause   Pause
	last    time.Time // when it was last paused, or a probe failed
}

type countryHealth struct {
	breaker
	inFlight int
}

func newHealth(proxies []Proxy, workers int) *health {
	h := &health{workers: workers, proxies: map[string]*proxyHealth{}}
	for _, p := range proxies {
		h.proxies[p.Name] = &proxyHealth{
			outage:    breaker{breakerPolicy: outagePolicy},
			limits:    breaker{breakerPolicy: limitPolicy},
			countries: map[string]*countryHealth{},
			budget:    budget{daily: p.Budget},
		}
	}
	return h
}

// exit is a country at a proxy.
type exit struct{ proxy, country string }

// slots is how many attempts may start through an exit now.
func (h *health) slots(x exit, now time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.proxies[x.proxy]
	if p == nil {
		return unlimited
	}
	return p.slots(x.country, now)
}

func (p *proxyHealth) slots(country string, now time.Time) int {
	n := p.wholeSlots(now)
	if c := p.countries[country]; c != nil {
		n = min(n, c.slots(now, c.inFlight))
	}
	return max(0, n)
}

// wholeSlots is slots whatever the country; less than 1 is none.
func (p *proxyHealth) wholeSlots(now time.Time) int {
	if now.Before(p.account.pause.Until) || now.Before(p.busy) {
		return 0
	}
	n := min(p.ceiling.value()-p.inFlight, p.outage.slots(now, p.inFlight), p.limits.slots(now, p.inFlight), p.budget.slots(now, p.inFlight))
	if !p.account.proven {
		n = min(n, 1-p.inFlight)
	}
	return n
}

// begin and end bracket an attempt.
func (h *health) begin(x exit, now time.Time) { h.add(x, 1, now) }
func (h *health) end(x exit, now time.Time)   { h.add(x, -1, now) }

func (h *health) add(x exit, n int, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.proxies[x.proxy]
	if p == nil {
		return
	}
	defer h.watch(p, x.country, now)()
	p.inFlight += n
	p.country(x.country).inFlight += n
}

// watch notes where a proxy, or a country at it, that had no room has some
// afterwards: then who was parked for it is looked at again. Call what it gives
// after the change.
func (h *health) watch(p *proxyHealth, country string, now time.Time) func() {
	none, noneThere := p.wholeSlots(now) < 1, p.slots(country, now) < 1
	return func() {
		if none && p.wholeSlots(now) > 0 || noneThere && p.slots(country, now) > 0 {
			h.changed++
		}
	}
}

func (p *proxyHealth) country(name string) *countryHealth {
	c := p.countries[name]
	if c == nil {
		c = &countryHealth{breaker: breaker{breakerPolicy: exitPolicy}}
		p.countries[name] = c
	}
	return c
}

// spend takes in what a proxy moved today before this process began.
func (h *health) spend(name string, bytes int64, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := &h.proxies[name].budget
	b.day, b.bytes = dayOf(now), bytes
}

// spent is how much went through a proxy today.
func (h *health) spent(name string, now time.Time) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := &h.proxies[name].budget
	if !dayOf(now).Equal(b.day) {
		return 0
	}
	return b.bytes
}

// charge counts bytes that somebody else sent through a proxy; "" is none.
func (h *health) charge(name string, bytes int64, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.proxies[name]; p != nil {
		p.budget.spend(bytes, now)
	}
}

// experience is what an attempt showed of its exit.
type experience struct {
	began, ended time.Time
	failure      *failure // nil: there was none
	loginOK      bool     // the gateway took the login
	answered     bool     // the gateway said something
	dialed       bool     // the gateway could be dialled
	bytes        int64
}

// learn takes in what an attempt showed. Where the trouble is not the job's, it
// says so in the failure: a refused login that had worked before is that
// session's fault, and what meets an open breaker is handed back unburnt. It
// gives the pause that the proxy is under now, and whether that is news.
func (h *health) learn(x exit, e experience) (pause Pause, news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.proxies[x.proxy]
	if p == nil {
		return Pause{}, false
	}
	defer h.watch(p, x.country, e.ended)()
	c, was := p.country(x.country), p.pause(e.ended)
	wasOpen := c.opened > 0
	p.budget.spend(e.bytes, e.ended)
	if e.loginOK {
		p.account.accepted(e.began)
	}
	if e.answered {
		p.reached = true
		p.outage.worked(e.began)
	}
	if e.failure == nil || !p.fail(c, e) && e.loginOK { // what failed is behind the exit
		c.worked(e.began)
		p.limits.worked(e.began)
		p.ceiling.raise(h.workers)
	}
	p.keepTime(e.ended)
	pause = p.pause(e.ended)
	if pause == (Pause{}) && c.opened > 0 {
		return noExit([]string{x.country}, c.until), !wasOpen
	}
	return pause, wasOpen && c.opened == 0 || pause.Kind != was.Kind || pause.Kind == PauseAccount && pause != was
}

// fail takes in a failure, and reports whether the proxy had a part in it.
func (p *proxyHealth) fail(c *countryHealth, e experience) bool {
	f := e.failure
	switch f.category {
	case storage.CategoryProxyQuota:
		p.account.stop(f.reason, e.ended, quotaPause)
	case storage.CategoryProxyAuth:
		if !p.account.refuse(f.reason, e.ended) {
			f.category = storage.CategoryProxyLimited
		}
	case storage.CategoryProxyUnreachable:
		weight := weightTunnel
		if !e.dialed {
			weight = weightDial
		}
		p.outage.failed(weight, e.began, e.ended)
		p.silence = f.reason
		f.unburnt = !e.dialed || p.outage.opened > 0
	case storage.CategoryExitUnavailable:
		c.failed(1, e.began, e.ended)
		f.unburnt = c.opened > 0
	case storage.CategoryProxyLimited:
		p.ceiling.lower(p.inFlight, e.began, e.ended)
		p.limits.failed(1, e.began, e.ended)
		f.unburnt = p.limits.opened > 0
		if until := e.ended.Add(f.retryAfter); until.After(p.busy) {
			p.busy = until
		}
	default:
		return false
	}
	return true
}

// accepted notes that the gateway took the login of an attempt that began at a
// time. One from before the last pause proves nothing any more.
func (a *account) accepted(began time.Time) {
	if began.Before(a.last) {
		return
	}
	a.refused, a.proven, a.pause = 0, true, Pause{}
}

// refuse notes that the gateway refused the login, and reports whether that is
// the account's fault; else it is that session's.
func (a *account) refuse(reason string, now time.Time) bool {
	a.refused++
	if a.proven && a.refused < refusalsInRow {
		return false
	}
	if a.proven || a.refused >= freshTries || a.paused() {
		a.stop(reason, now, proxyPause)
	}
	return true
}

func (a *account) paused() bool { return !a.pause.Until.IsZero() }

func (a *account) stop(reason string, now time.Time, d time.Duration) {
	a.proven, a.last = false, now
	a.pause = Pause{Kind: PauseAccount, Reason: reason, Until: now.Add(d)}
}

// nextProbe is the first time to come at which slots may say more than before,
// apart from attempts that end; zero: there is none.
func (h *health) nextProbe(now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	var first time.Time
	consider := func(t time.Time) {
		if t.After(now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for _, p := range h.proxies {
		consider(p.account.pause.Until)
		consider(p.outage.until)
		consider(p.limits.until)
		consider(p.busy)
		for _, c := range p.countries {
			consider(c.until)
		}
		if p.budget.spent(now) {
			consider(nextDay(now))
		}
	}
	return first
}

// version changes whenever slots says some after it has said none, time aside.
func (h *health) version() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}
