package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// echo is how long after the first signal another one is taken for its echo:
// some senders signal the process and its group.
const echo = 100 * time.Millisecond

// signalContext ends with the first SIGINT, SIGTERM or SIGHUP (a terminal that
// is gone); the second ends the process at once. Until release, writing to a closed pipe is an error like
// any other instead of a death: the process may hold jobs.
func signalContext() (ctx context.Context, release func()) {
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	released := make(chan struct{})
	go func() {
		var first time.Time
		for {
			select {
			case <-released:
				return
			case <-signals:
			}
			switch {
			case first.IsZero():
				first = time.Now()
				cancel(errInterrupted)
			case time.Since(first) > echo:
				os.Exit(exitInterrupted)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		signal.Reset(syscall.SIGPIPE)
		close(released)
		cancel(nil)
	}
}
