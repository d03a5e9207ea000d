package demo_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"semel/engine"
	"semel/engine/config"
	"semel/engine/demo"
	"semel/storage"
)

// failVariable makes a child fail.
const failVariable = "DEMO_TEST_FAIL"

// TestMain lets the test binary be the demo's child: it is then called as
// semel would be, `run --once -c FILE`.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == "run" {
		if os.Getenv(failVariable) != "" {
			fmt.Fprintln(os.Stderr, "told to fail")
			os.Exit(1)
		}
		if _, err := runOnce(context.Background(), os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// runOnce is what `run --once` does, without the command.
func runOnce(ctx context.Context, path string) (engine.Summary, error) {
	c, err := config.Load(path, os.Getenv)
	if err != nil {
		return engine.Summary{}, err
	}
	store, err := storage.Open(c.Store.Path, storage.Options{})
	if err != nil {
		return engine.Summary{}, err
	}
	defer store.Close() //nolint:errcheck // the test reads it again
	e, err := engine.New(options(c, store))
	if err != nil {
		return engine.Summary{}, err
	}
	defer e.Close()
	return e.RunOnce(ctx)
}

func options(c *config.Config, store *storage.Store) engine.Options {
	o := engine.Options{
		Store: store, Owner: fmt.Sprintf("test-%d", os.Getpid()), Log: slog.New(slog.DiscardHandler),
		Workers: c.Engine.Workers, Lease: c.Engine.Lease, UserAgent: c.Engine.UserAgent,
		Robots: c.Engine.Robots, MaxBodyBytes: c.Engine.MaxBodyBytes, AllowPrivate: c.Engine.AllowPrivate,
	}
	o.Pacing = func(hostname string) engine.Pacing {
		h := c.Host(hostname)
		return engine.Pacing{Concurrency: h.Concurrency, Interval: h.Interval}
	}
	for _, p := range c.Proxies {
		o.Proxies = append(o.Proxies, engine.Proxy{Proxy: p.Proxy, Name: p.Name, Session: p.Session})
	}
	for i := range c.Sources {
		o.Sources = append(o.Sources, source(&c.Sources[i]))
	}
	return o
}

func source(s *config.Source) engine.Source {
	out := engine.Source{
		Source: s.Source, Targets: s.Targets, Header: s.RequestHeader(), Timeout: s.Timeout,
		Write: storage.WriteMode(s.Write), Limits: engine.Limits(s.Limits), Rules: s.Rules, IdentityText: s.IdentityText,
		Retry: map[storage.Category]engine.RetryPolicy{},
	}
	for _, p := range s.Proxies {
		out.Proxies = append(out.Proxies, p.Name)
	}
	for category, policy := range s.Retry {
		out.Retry[category] = engine.RetryPolicy(policy)
	}
	return out
}

// export is what `export SOURCE -o FILE` does, in one look at the store.
func export(_ context.Context, configPath, source, outPath string) error {
	store, err := storage.Open(filepath.Join(filepath.Dir(configPath), "semel.db"), storage.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // nothing was written
	var b []byte
	err = store.View(func(tx *storage.Tx) error {
		_, err := tx.Observations(source, nil, 1<<20, func(o *storage.Observation) error {
			b = o.AppendLine(b, false)
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(outPath, b, 0o600)
}

// play is a demo with everything it needs, its two outputs, and how it is run.
type play struct {
	demo.Options
	stdout, stderr bytes.Buffer
}

func newPlay(t *testing.T, dir string) *play {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &play{}
	p.Options = demo.Options{
		Dir: dir, Pages: 50, Faults: 0.3, Stdout: &p.stdout, Stderr: &p.stderr,
		Executable: binary, RunOnce: runOnce, Export: export,
	}
	return p
}

func (p *play) run(t *testing.T) {
	t.Helper()
	if err := demo.Run(t.Context(), p.Options); err != nil {
		t.Fatalf("demo: %v\n%s%s", err, &p.stderr, &p.stdout)
	}
	t.Logf("\n%s%s", &p.stderr, &p.stdout)
}

// lines reads a file's lines.
func lines(t *testing.T, path string) []string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for s := bufio.NewScanner(bytes.NewReader(content)); s.Scan(); {
		list = append(list, s.Text())
	}
	return list
}
