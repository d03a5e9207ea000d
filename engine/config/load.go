package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"semel/storage"
)

// Default is the config of a file that sets nothing, read in the working
// folder. Each default's reason stands beside it in config.example.toml.
func Default() *Config {
	return &Config{
		Store: Store{
			Path:   "semel.db",
			Bodies: BodiesFailed,
			Retain: Retain{Attempts: 90 * day, Events: 30 * day, Bodies: 30 * day},
		},
		Engine: Engine{
			Workers:      64,
			Lease:        2 * time.Minute,
			UserAgent:    "semel (+https://example.com/bot)",
			Robots:       true,
			MaxBodyBytes: 10_000_000,
		},
		Hosts: []Host{{Name: anyHost, Concurrency: 4, Interval: 250 * time.Millisecond}},
	}
}

// defaultSource is a source that sets nothing.
func defaultSource() Source {
	return Source{
		Timeout: time.Minute,
		Gone:    GoneFail,
		CatchUp: CatchUpLatest,
		Write:   WriteUpsert,
		Limits:  Limits{Attempts: 6, Time: 6 * time.Hour, Bytes: 5_000_000, Rescues: 100},
		Drift:   storage.DriftPolicy{Fall: storage.Whole / 2, Min: 50, Jobs: 50, Failed: 25},
	}
}

// Load reads and checks a config file. getenv answers for "env:NAME" secrets;
// nil leaves all secrets and files of targets unread, for a process that sends
// nothing: looking at the store must not need the login of a proxy.
// Its error is an Errors for whatever is wrong in the file, and another error
// where the file itself cannot be read.
func Load(path string, getenv func(string) string) (*Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading config: %w", err)
	}
	return newLoader(path, getenv).load(string(content))
}

func (l *loader) load(text string) (*Config, error) {
	root, err := parse(l.file, text)
	if err != nil {
		if fault, ok := errors.AsType[*Error](err); ok {
			return nil, Errors{fault}
		}
		return nil, err
	}
	c := Default()
	c.File = l.file
	l.config(root, c)
	if len(l.errs) > 0 {
		l.errs.sort()
		return nil, l.errs
	}
	return c, nil
}

// config reads the whole file.
func (l *loader) config(root *node, c *Config) {
	t := l.open(root, "config")
	l.version(t)
	l.store(t.sub("store", "store"), &c.Store)
	l.engine(t.sub("engine", "engine"), &c.Engine)
	l.server(t.sub("server", "server"), &c.Server)
	l.hosts(t.sub("host", "hosts"), c)
	l.proxies(t.sub("proxy", "proxies"), c)
	l.nats(t.sub("nats", "nats"), c)
	l.sinks(t.sub("sink", "sinks"), c)
	l.sources(t.sub("source", "sources"), c)
	t.done()
}

// version holds the file to the one form there is.
func (l *loader) version(t *table) {
	n := t.get("version")
	switch {
	case n == nil:
		l.fault(nil, "version = 1 is missing").Key = "version"
	case n.scalar != int64(1):
		l.wrong(n, "must be 1: this semel reads no other form of config")
	}
}

func (l *loader) store(t *table, s *Store) {
	t.filled("path", &s.Path)
	s.Path = l.path(s.Path)
	t.oneOf("bodies", &s.Bodies, BodiesNone, BodiesFailed, BodiesAll)
	retain := t.sub("retain", "retain")
	retain.durationOrNone("attempts", &s.Retain.Attempts, time.Hour)
	retain.durationOrNone("events", &s.Retain.Events, time.Hour)
	retain.durationOrNone("bodies", &s.Retain.Bodies, time.Hour)
	retain.done()
	t.done()
}

func (l *loader) engine(t *table, e *Engine) {
	t.integer("workers", &e.Workers, 1, 10_000)
	t.duration("lease", &e.Lease, 10*time.Second)
	if t.filled("user_agent", &e.UserAgent) && !validHeaderValue(e.UserAgent) {
		l.wrong(t.get("user_agent"), "must hold printable ASCII only: it is sent as a header")
	}
	t.boolean("robots", &e.Robots)
	t.size("max_body", &e.MaxBodyBytes)
	t.boolean("allow_private", &e.AllowPrivate)
	t.done()
}

// nameText is what sources, proxies and sinks may be called: names stand in
// keys, file names and command lines.
var nameText = regexp.MustCompile(`^[a-z0-9_-]+$`)

// named gives the tables of a section such as [source.*] whose names are good.
func (t *table) named(kind string) []*table {
	if t.node == nil {
		t.l.open(nil, kind)
		return nil
	}
	var tables []*table
	for _, m := range t.node.members {
		if !nameText.MatchString(m.name) {
			t.l.fault(m, "a name may hold a-z, 0-9, _ and - only")
		}
		if m.table {
			tables = append(tables, t.l.open(m, kind))
		} else {
			t.l.wrong(m, "must be a table")
		}
	}
	return tables
}
