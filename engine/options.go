package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"semel/engine/broker"
	"semel/engine/delivery"
	"semel/engine/fetch"
	"semel/engine/intake"
	"semel/engine/proxy"
	"semel/parser"
	"semel/storage"
)

// Gather is what to open an engine's store with (storage.Options.Gather).
// Workers go on while outcomes wait to be committed, so a few milliseconds cost
// nothing but a little more work done again after a crash. Measured on 2 cores
// with 20 KB pages: every fsync keeps a core from the parser, and with 5 ms
// between them the whole path gained a tenth.
const Gather = 5 * time.Millisecond

// Options of an Engine. Config files become Options in package cli.
type Options struct {
	Store *storage.Store // nil: only Try and TryPage work
	Owner string         // whose leases they are: unique among processes
	Log   *slog.Logger   // never nil

	Workers      int           // attempts in flight at once, at least 1
	Lease        time.Duration // of a claim; renewed at a third of it
	Grace        time.Duration // how long a stop waits for attempts before it hands their jobs back
	UserAgent    string
	Robots       bool  // ask and obey robots.txt
	MaxBodyBytes int64 // decompressed; over it the attempt fails
	AllowPrivate bool  // let requests reach loopback and private addresses
	Bodies       Bodies

	Retention storage.Retention // applied while Run works

	Pacing  func(hostname string) Pacing // of a host, without port
	Proxies []Proxy
	Sources []Source
	Sinks   []delivery.Sink // that events are delivered to while Run works
	NATS    broker.Server   // of sources whose targets are in queues

	// What is due: the windows that this names, and nothing else before Run's first
	// tick; zero: what the schedules say, and each target of a source without one.
	Window intake.WindowArg
	At     time.Time // the time that schedules see; zero: that of the clock

	Now       func() time.Time  // the clock; nil: time.Now. Tests let it jump
	Timeouts  fetch.Timeouts    // zero fields: fetch's defaults
	Transport http.RoundTripper // replaces the network, for tests; nil: the network
}

// Bodies says of which attempts the pages are kept for reading them again.
type Bodies int

// Whose pages are kept.
const (
	BodiesNone Bodies = iota
	BodiesFailed
	BodiesAll
)

// Pacing is how fast a host may be asked.
type Pacing struct {
	Concurrency int           // attempts at once, at least 1
	Interval    time.Duration // between the starts of two attempts
}

// Proxy is a proxy that sources may name.
type Proxy struct {
	*proxy.Proxy
	Name    string
	Session time.Duration // how long an exit is kept; 0: one for each attempt
	Budget  int64         // bytes a day (UTC), both ways; 0: no bound
}

// Source is a configured source, ready to work.
type Source struct {
	intake.Source

	Targets intake.Spec
	CatchUp CatchUp     // "": CatchUpLatest
	Proxies []string    // names among Options.Proxies, the next where one is held back; none: direct
	Header  http.Header // sent with each request; not changed
	Timeout time.Duration
	Sticky  time.Duration // how long a workflow's exit is wanted; 0: no workflow, one request
	Steps   []Step        // in order; none: one plain GET of the job's URL
	Gone    bool          // a 404 or 410 is an observation
	Write   storage.WriteMode
	Limits  Limits
	Retry   map[storage.Category]RetryPolicy // fields that are zero take the default
	Blocked BlockRules
	Rules   *parser.Rules
	Follow  []intake.Follow // one for each of the rules' links (parser.Spec.Links), in their order
	Sinks   []storage.Subscription
	Drift   storage.DriftPolicy // zero: pages are not counted for it

	IdentityText string // says in canonical words what makes its job keys
}

// through are the proxies to choose from, direct being "".
func (s *Source) through() []string {
	if len(s.Proxies) == 0 {
		return []string{""}
	}
	return s.Proxies
}

// Limits bound a job over all its attempts.
type Limits struct {
	Attempts int           // that count
	Time     time.Duration // from the first claim, the time under paused proxies left out
	Bytes    int64         // on the wire, both ways
	Rescues  int           // deaths in a row
}

// check finds what New must refuse: mistakes of the program, not of a user.
func (o *Options) check() error {
	var faults []error
	fault := func(bad bool, text string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(text, args...))
		}
	}
	fault(o.Store != nil && o.Owner == "", "owner is empty")
	fault(o.Pacing == nil, "pacing is missing")
	fault(o.Log == nil, "log is missing")
	fault(o.Workers < 1, "workers: must be at least 1 (got %d)", o.Workers)
	fault(o.Lease < time.Second, "lease: must be at least 1s (got %s)", o.Lease)
	known := map[string]bool{}
	for _, p := range o.Proxies {
		known[p.Name] = true
	}
	for _, s := range o.Sinks {
		fault(s.Transport == nil, "sink %s: transport is missing", s.Name)
		fault(s.InFlight < 1 || s.Batch < 1, "sink %s: in flight and batch must be at least 1 (got %d and %d)", s.Name, s.InFlight, s.Batch)
		fault(s.Timeout <= 0, "sink %s: timeout must be positive (got %s)", s.Name, s.Timeout)
	}
	for _, s := range o.Sources {
		fault(s.Rules == nil, "source %s: rules are missing", s.Name)
		fault(s.Rules != nil && s.Rules.Links() != len(s.Follow), "source %s: the rules find links in %d ways and %d are followed", s.Name, s.Rules.Links(), len(s.Follow))
		for _, name := range s.Proxies {
			fault(!known[name], "source %s: there is no proxy %q", s.Name, name)
		}
		fault(s.Sticky > 0 && len(s.Steps) == 0, "source %s: a workflow has no steps", s.Name)
		fault(s.Drift.Fall > 0 && (s.Drift.Jobs < 1 || s.Drift.Jobs > storage.MaxDriftPages), "source %s: drift: jobs must be 1 to %d (got %d)", s.Name, storage.MaxDriftPages, s.Drift.Jobs)
		fault(s.Timeout <= 0, "source %s: timeout must be positive (got %s)", s.Name, s.Timeout)
	}
	return errors.Join(faults...)
}

// pacing is that of a host as a lane names it, perhaps with a port.
func (o *Options) pacing(host string) Pacing {
	u := url.URL{Host: host}
	return o.Pacing(u.Hostname())
}
