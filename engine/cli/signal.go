package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// signalContext ends with the first SIGINT or SIGTERM; the second ends the
// process at once. Until release, writing to a closed pipe is an error like
// any other instead of a death: the process may hold jobs.
func signalContext() (ctx context.Context, release func()) {
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	released := make(chan struct{})
	go func() {
		for range 2 {
			select {
			case <-released:
				return
			case <-signals:
			}
			if ctx.Err() != nil {
				os.Exit(exitInterrupted)
			}
			cancel(errInterrupted)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		signal.Reset(syscall.SIGPIPE)
		close(released)
		cancel(nil)
	}
}
