package cli

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	"semel/engine"
	"semel/engine/api"
	"semel/engine/config"
	"semel/engine/delivery"
	"semel/storage"
)

// grace is how long a stop waits for attempts under way: most end within it,
// and a service manager's patience is longer (systemd: 90 s, Docker: 10 s).
const grace = 8 * time.Second

// engineOptions makes the options of an engine for some of a config's sources.
// Store and Owner are the caller's, and Sinks: only a run delivers.
func engineOptions(c *config.Config, sources []*config.Source, log *slog.Logger) engine.Options {
	opts := engine.Options{
		Log:          log,
		Workers:      c.Engine.Workers,
		Lease:        c.Engine.Lease,
		Grace:        grace,
		UserAgent:    c.Engine.UserAgent,
		Robots:       c.Engine.Robots,
		MaxBodyBytes: c.Engine.MaxBodyBytes,
		AllowPrivate: c.Engine.AllowPrivate,
		Retention:    storage.Retention{Attempts: c.Store.Retain.Attempts, Events: c.Store.Retain.Events, Pages: c.Store.Retain.Bodies},
		Bodies:       api.Bodies(c),
		NATS:         c.NATS,
		Pacing: func(hostname string) engine.Pacing {
			h := c.Host(hostname)
			return engine.Pacing{Concurrency: h.Concurrency, Interval: h.Interval}
		},
	}
	for _, p := range c.Proxies {
		opts.Proxies = append(opts.Proxies, engine.Proxy{Proxy: p.Proxy, Name: p.Name, Session: p.Session, Budget: p.Budget})
	}
	for _, s := range sources {
		opts.Sources = append(opts.Sources, engineSource(s))
	}
	return opts
}

// deliverySinks are all sinks of a config, whatever sources are run.
func deliverySinks(c *config.Config) []delivery.Sink {
	sinks := make([]delivery.Sink, len(c.Sinks))
	for i := range c.Sinks {
		sinks[i] = c.Sinks[i].Sink
	}
	return sinks
}

func engineSource(s *config.Source) engine.Source {
	out := engine.Source{
		Source:       s.Source,
		Targets:      s.Targets,
		CatchUp:      engine.CatchUp(s.CatchUp),
		Header:       s.RequestHeader(),
		Timeout:      s.Timeout,
		Sticky:       s.Sticky,
		Steps:        engineSteps(s),
		Gone:         s.Gone == config.GoneRecord,
		Write:        storage.WriteMode(s.Write),
		Limits:       engine.Limits(s.Limits),
		Retry:        make(map[storage.Category]engine.RetryPolicy, len(s.Retry)),
		Blocked:      engine.BlockRules(s.Blocked),
		Rules:        s.Rules,
		IdentityText: s.IdentityText,
		Follow:       s.Follow,
		Sinks:        s.Sinks,
		Drift:        s.Drift,
	}
	for _, p := range s.Proxies {
		out.Proxies = append(out.Proxies, p.Name)
	}
	for category, policy := range s.Retry {
		out.Retry[category] = engine.RetryPolicy(policy)
	}
	return out
}

// engineSteps are what a source sends. One plain GET of the job's URL needs no
// steps, and can only without them be asked whether its page has changed.
func engineSteps(s *config.Source) []engine.Step {
	if first := s.Steps[0]; s.Sticky == 0 && first.Method == http.MethodGet && first.Repeatable {
		return nil
	}
	steps := make([]engine.Step, len(s.Steps))
	for i, step := range s.Steps {
		steps[i] = engine.Step{
			Name: step.Name, URL: step.URL, Method: step.Method, Header: step.RequestHeader(),
			Body: step.Body, Captures: step.Captures, Once: !step.Repeatable,
		}
	}
	return steps
}

// ownerName names this process among all that ever held a lease.
func ownerName(now time.Time) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), strconv.FormatInt(now.UnixMilli(), 36))
}

// allSources are the sources of a config that names select: all where there
// are no names.
func allSources(c *config.Config, names []string) ([]*config.Source, error) {
	var sources []*config.Source
	if len(names) == 0 {
		for i := range c.Sources {
			sources = append(sources, &c.Sources[i])
		}
		return sources, nil
	}
	seen := map[string]bool{}
	for _, name := range names {
		s, err := findSource(c, name)
		if err != nil {
			return nil, err
		}
		if !seen[name] {
			seen[name] = true
			sources = append(sources, s)
		}
	}
	return sources, nil
}
