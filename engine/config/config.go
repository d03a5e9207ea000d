// Package config reads the config file: strictly, all faults at once, each with
// its file, line and key.
//
// It answers for the file's syntax, types, ranges, defaults, secrets and
// combinations, and hands on checked values that need no second look: compiled
// rules, parsed templates, proxies whose login works out. It leaves acting on
// them to the packages that get them, and never opens the store or the network.
//
// Invariants: a setting that nothing acts on yet is refused, never ignored; no
// value of a secret is in an error, and none can be printed by accident.
package config

import (
	"net/http"
	"regexp"
	"slices"
	"time"

	"semel/engine/broker"
	"semel/engine/intake"
	"semel/engine/proxy"
	"semel/parser"
	"semel/storage"
)

// Config is a whole checked config file. It is not changed after Load.
type Config struct {
	File    string // as it was given to Load; messages name it so
	Store   Store
	Engine  Engine
	Server  Server
	NATS    broker.Server // of queues and of sinks of type "nats"
	Hosts   []Host        // in the file's order; one of them is named "*"
	Proxies []Proxy       // in the file's order
	Sinks   []Sink        // in the file's order
	Sources []Source      // in the file's order
}

// Store is [store].
type Store struct {
	Path   string // the store file; a relative path is joined to the config file's folder
	Bodies string // which responses are kept: BodiesNone, BodiesFailed or BodiesAll
	Retain Retain
}

// Which responses are kept to be parsed again.
const (
	BodiesNone   = "none"
	BodiesFailed = "failed"
	BodiesAll    = "all"
)

// Retain is [store.retain]: how long history is kept, 0 for ever.
type Retain struct {
	Attempts time.Duration // attempts, and jobs of past windows, after the job has ended
	Events   time.Duration // events that no sink waits for
	Bodies   time.Duration // kept responses
}

// Engine is [engine].
type Engine struct {
	Workers      int           // attempts in flight at once
	Lease        time.Duration // a claim's time to live; renewed at a third of it
	UserAgent    string        // sent with each request, and matched against robots.txt
	Robots       bool          // whether robots.txt is asked and obeyed
	MaxBodyBytes int64         // decompressed bytes of one page; over it the attempt fails
	AllowPrivate bool          // whether requests may reach loopback and private addresses
}

// Host is one [host.NAME]: the pacing of a site.
type Host struct {
	Name        string        // a host name, lower case, or "*" for all that have no section of their own
	Concurrency int           // attempts on one host at once
	Interval    time.Duration // between the starts of two attempts on one host; 0 for none
}

// Proxy is one [proxy.NAME], secrets read.
type Proxy struct {
	Name    string
	Session time.Duration // how long one exit is kept; 0: a fresh one for each attempt
	Budget  int64         // bytes a day (UTC), up and down; 0: no bound
	Price   Price         // for cost figures only
	Proxy   *proxy.Proxy
}

// Write modes.
const (
	WriteInsert  = "insert"  // the lowest window stays
	WriteUpsert  = "upsert"  // the later window wins
	WriteReplace = "replace" // the rows of a window change together; each window has its own
	WriteAppend  = "append"  // each window has its own
)

// What a 404 or 410 means.
const (
	GoneFail   = "fail"   // the job fails as not_found
	GoneRecord = "record" // an observation marked gone is committed
)

// Source is one [source.NAME].
type Source struct {
	intake.Source // name, templates, identity: how targets become jobs

	Targets intake.Spec // where the targets come from

	// TargetsErr is why the file of targets could not be read while the config
	// was loaded, else nil. It is no fault of the config: a finished source's
	// file may be gone.
	TargetsErr error

	Sticky time.Duration // how long a workflow's exit is wanted, at most an hour; 0: no workflow
	Steps  []Step        // what is sent, in order; without a workflow one step without a name

	Proxies []*Proxy      // among Config.Proxies, in order of preference; none: direct
	Headers []Header      // of every request, in the file's order
	Timeout time.Duration // one attempt, all in; may be longer than the lease
	Gone    string        // GoneFail or GoneRecord
	CatchUp string        // CatchUpNone, CatchUpLatest or CatchUpAll
	Write   string        // one of the write modes
	Limits  Limits
	Retry   map[storage.Category]RetryPolicy // only what the file states
	Blocked Blocked
	Rules   *parser.Rules
	Follow  []intake.Follow // one for each of the rules' links, in the file's order
	Drift   storage.DriftPolicy
	Sinks   []storage.Subscription

	// IdentityText says in canonical words what makes two jobs of this source
	// the same, for noticing that it changed and for telling people what did.
	IdentityText string
}

// Step is one request: a [[source.NAME.step]], or that of a source with a url.
type Step struct {
	Name       string          // unique; "" where there is no workflow
	URL        intake.Template // of the first step the Source's own
	Method     string
	Headers    []Header      // besides the Source's, in whose place they stand
	Body       intake.Body   // of form or json
	Captures   *parser.Rules // whose one record has the variables of later steps; nil: none
	Captured   []string      // their names
	Repeatable bool          // false: never sent again by itself once it may have been sent
}

// Blocked are a source's own signs of a block page: a page with one of them is
// a failure, whatever else it holds.
type Blocked struct {
	Status []int            // HTTP status codes
	Text   []*regexp.Regexp // of the texts, in upper or lower case
	CSS    *parser.Selector // nil: none
}

// Header is one request header. Its value may come from a secret.
type Header struct {
	Name  string // canonical form
	Value Secret
}

// Limits bound a job over all its attempts.
type Limits struct {
	Attempts int           // executions that count
	Time     time.Duration // from the first claim
	Bytes    int64         // on the wire, up and down
	Rescues  int           // deaths in a row
}

// RetryPolicy overrides how a category is retried. A zero field leaves the
// engine's default.
type RetryPolicy struct {
	Attempts int           // attempts that may end in this category
	Base     time.Duration // first upper bound of the back-off
	Max      time.Duration // cap of the back-off
}

// RequestHeader makes the source's headers anew, secrets revealed. The caller
// owns the result and must not print it.
func (s *Source) RequestHeader() http.Header {
	return requestHeader(s.Headers)
}

// Repeatable reports whether all that the source sends may be sent again.
func (s *Source) Repeatable() bool {
	return !slices.ContainsFunc(s.Steps, func(step Step) bool { return !step.Repeatable })
}

// RequestHeader is that of the Source, of the step's own headers.
func (s *Step) RequestHeader() http.Header { return requestHeader(s.Headers) }

func requestHeader(headers []Header) http.Header {
	h := make(http.Header, len(headers))
	for _, header := range headers {
		h.Add(header.Name, header.Value.Reveal())
	}
	return h
}

// Proxy finds a proxy by name, nil if there is none.
func (c *Config) Proxy(name string) *Proxy {
	for i := range c.Proxies {
		if c.Proxies[i].Name == name {
			return &c.Proxies[i]
		}
	}
	return nil
}

// Source finds a source by name, nil if there is none.
func (c *Config) Source(name string) *Source {
	for i := range c.Sources {
		if c.Sources[i].Name == name {
			return &c.Sources[i]
		}
	}
	return nil
}
