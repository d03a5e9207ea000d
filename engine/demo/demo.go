package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"semel/engine"
	"semel/engine/gateway"
)

// What the command does unless told otherwise, and what it may be told.
const (
	DefaultDir    = "semel-demo"
	DefaultPages  = 200
	DefaultFaults = 0.1
	MaxPages      = 100_000
	MaxFaults     = 0.9 // over it a page needs more attempts than the demo allows
)

// ErrUsage: the options are out of their bounds.
var ErrUsage = errors.New("wrong use of demo")

// Options of Run.
type Options struct {
	Dir    string  // made if missing; must be empty or the demo's own
	Pages  int     // 1 to MaxPages
	Faults float64 // probability that a request meets a fault, 0 to MaxFaults
	Kill   bool    // work in a child process that is killed on the way

	Stdout io.Writer // the report
	Stderr io.Writer // progress, a line now and then; where RunOnce writes there too, it must bear that

	Executable string // run as `Executable run --once -c FILE` where Kill is set

	// RunOnce does `run --once` in this process where Kill is not set. It reads
	// secrets from the environment, prints nothing to Stdout, and returns when
	// nothing is left to do or ctx ends.
	RunOnce func(ctx context.Context, configPath string) (engine.Summary, error)

	// Export does `export SOURCE -o FILE`.
	Export func(ctx context.Context, configPath, source, outPath string) error
}

func (o *Options) check() error {
	switch {
	case o.Dir == "":
		return fmt.Errorf("%w: the folder has no name", ErrUsage)
	case o.Pages < 1 || o.Pages > MaxPages:
		return fmt.Errorf("%w: pages must be 1 to %d (got %d)", ErrUsage, MaxPages, o.Pages)
	case !(o.Faults >= 0 && o.Faults <= MaxFaults): // so written that NaN is refused
		return fmt.Errorf("%w: faults must be 0 to %g (got %g)", ErrUsage, MaxFaults, o.Faults)
	}
	return nil
}

// run is one demo under way.
type run struct {
	Options
	folder  folder
	before  state // the store as it was found
	shop    *shop
	faults  *faults
	site    *http.Server
	serving sync.WaitGroup
	gateway *gateway.Gateway
	login   [2]string // what the two variables hold while the demo runs
	kills   []kill

	telling sync.Mutex // one line at a time to Stderr
}

// Run is the demo. It sets two variables of this process's environment while it
// runs, so one runs at a time. Errors: ErrUsage, ErrForeignFolder, those of
// storage.Open, the end of ctx, those of RunOnce and Export, and one that says
// what did not come out as promised.
func Run(ctx context.Context, opts Options) error {
	if err := opts.check(); err != nil {
		return err
	}
	r := &run{Options: opts, folder: folder(opts.Dir), faults: newFaults(opts.Faults), login: [2]string{rand.Text(), rand.Text()}}
	if err := r.folder.check(); err != nil {
		return err
	}
	var err error
	if r.before, err = readState(r.folder.store()); err != nil {
		return err
	}
	if r.before.openUpTo > r.Pages { // their pages would be missing from a smaller site
		return fmt.Errorf("%w: a demo of %d pages was interrupted in %s: finish it with --pages %[2]d, or take another folder", ErrUsage, r.before.openUpTo, r.Dir)
	}
	if err := r.open(); err != nil {
		return err
	}
	defer r.close()
	return r.loggedIn(func() error { return r.run(ctx) })
}

// open starts site and gateway.
func (r *run) open() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("starting the demo's site: %w", err)
	}
	r.shop = newShop(r.Pages, r.before.complete)
	r.site = &http.Server{Handler: r.shop, ReadHeaderTimeout: 10 * time.Second}
	r.serving.Go(func() { _ = r.site.Serve(listener) }) // ends with Close, which is no fault
	address := listener.Addr().String()
	r.gateway, err = gateway.Start(gateway.Options{
		Provider: provider, Username: r.login[0], Password: r.login[1],
		Fault: r.faults.next,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	})
	if err != nil {
		r.closeSite()
	}
	return err
}

func (r *run) close() {
	r.gateway.Close()
	r.closeSite()
}

func (r *run) closeSite() {
	_ = r.site.Close()
	r.serving.Wait()
}

// loggedIn calls fn with the gateway's login where the config looks for it: in
// the environment, which children inherit and no disk holds.
func (r *run) loggedIn(fn func() error) error {
	for i, name := range [...]string{userVariable, passwordVariable} {
		was, set := os.LookupEnv(name)
		if err := os.Setenv(name, r.login[i]); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
		defer func() {
			if set {
				_ = os.Setenv(name, was)
			} else {
				_ = os.Unsetenv(name)
			}
		}()
	}
	return fn()
}

func (r *run) run(ctx context.Context) error {
	if err := r.folder.write(configText(r.gateway.Addr()), r.Pages); err != nil {
		return err
	}
	began := time.Now()
	if err := r.work(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	if err := r.Export(ctx, r.folder.config(), source, r.folder.records()); err != nil {
		return err
	}
	return r.conclude(took)
}

// work collects the pages, in this process or in children.
func (r *run) work(ctx context.Context) error {
	stop := r.tellProgress()
	defer stop()
	if r.Kill {
		return r.workKilled(ctx)
	}
	if _, err := r.RunOnce(ctx, r.folder.config()); err != nil {
		return err
	}
	return context.Cause(ctx) // a clean stop is no error of RunOnce
}

// tellProgress prints a line each second until stop is called.
func (r *run) tellProgress() (stop func()) {
	open := r.before.open(r.Pages)
	var running sync.WaitGroup
	ended := make(chan struct{})
	running.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				served, _ := r.shop.counts()
				r.tell("%d of %d pages served", served, open)
			}
		}
	})
	return func() { close(ended); running.Wait() }
}

// tell prints a line of progress. One that cannot be printed is no fault.
func (r *run) tell(format string, args ...any) {
	r.telling.Lock()
	defer r.telling.Unlock()
	fmt.Fprintf(r.Stderr, "demo: "+format+"\n", args...)
}
