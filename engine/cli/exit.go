package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"semel/engine"
	"semel/engine/api"
	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

// Exit codes. Other programs branch on them: a meaning never changes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitJobs        = 3   // it ran, but jobs failed, are held or could not be made
	exitConfig      = 4   // the config is invalid, or a guard holds
	exitStore       = 5   // the store is in use, missing, not permitted or read-only
	exitUnreadable  = 6   // the store is damaged, or newer than this binary
	exitAccount     = 7   // the proxy's account was refused
	exitInterrupted = 130 // a signal, with work left
)

// exits is the paragraph of a command's help that names its exit codes.
func exits(codes ...int) string {
	meaning := map[int]string{
		exitDone:        "done",
		exitFailed:      "failed",
		exitUsage:       "wrong usage",
		exitJobs:        "ran, but in this call jobs failed, pages or rows did not fit the rules, jobs are held by a budget, an outage or drift, runs are held for review, events were not delivered, or targets were bad",
		exitConfig:      "the config is invalid, or has changed what a guard keeps",
		exitStore:       "the store is in use, missing, not permitted or read-only",
		exitUnreadable:  "the store is unreadable or newer than this binary",
		exitAccount:     "the proxy's account was refused (login or quota)",
		exitInterrupted: "interrupted with work left",
	}
	var b strings.Builder
	b.WriteString("Exit codes:")
	for _, code := range codes {
		fmt.Fprintf(&b, "\n  %-4d %s", code, meaning[code])
	}
	return b.String()
}

// ofLostPages is the hint where only kept pages are missing or damaged.
const ofLostPages = "kept pages that are lost are stored anew when semel retry --recollect collects them again, and let go by a shorter store.retain.bodies and a run"

// fault is an error with its exit code and what a person can do about it.
type fault struct {
	code int
	err  error
	hint string // "" where there is nothing to advise
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// usage is the fault of a wrong command line.
func usage(hint, format string, args ...any) error {
	return &fault{exitUsage, fmt.Errorf(format, args...), hint}
}

// classify finds the exit code and the hint of any error: the only such map.
func classify(err error) *fault {
	var (
		known   *fault
		invalid config.Errors
		record  *storage.RecordError
	)
	switch {
	case errors.As(err, &known):
		return &fault{known.code, err, known.hint}
	case errors.As(err, &invalid):
		return &fault{exitConfig, err, ""}
	case errors.Is(err, context.Canceled), errors.Is(err, errInterrupted):
		return &fault{exitInterrupted, errors.New("interrupted"), ""}
	case errors.Is(err, engine.ErrGuard):
		return &fault{exitConfig, err, "take it back, raise parser.version where rules have changed, or take it as it is now: semel accept SOURCE"}
	case errors.Is(err, api.ErrOtherConfig):
		return &fault{exitStore, err, "stop it, accept, and start it again: then it works with the config as it is now"}
	case errors.Is(err, api.ErrUnknownSource):
		return &fault{exitUsage, err, "semel status lists the sources"}
	case errors.Is(err, api.ErrBadRequest):
		return &fault{exitUsage, err, ""}
	case errors.Is(err, api.ErrImporting):
		return &fault{exitFailed, err, "wait until that import has ended: semel status shows its jobs; what it has made is known to a later one"}
	case errors.Is(err, engine.ErrNoSchedule):
		return &fault{exitUsage, err, "give it one in the config, or collect it for a window with semel run --once --window"}
	case errors.Is(err, intake.ErrTooManyWindows):
		return &fault{exitUsage, err, "check the times, or make it in parts"}
	case errors.Is(err, api.ErrSilent):
		return &fault{exitStore, err, "is it stopped or stuck? end it, with kill -9 if need be (nothing that was committed is lost), and start semel run again"}
	case errors.Is(err, api.ErrCut):
		return &fault{exitStore, err, "it was stopped or killed meanwhile: run the command again; semel show tells what became of a job"}
	case errors.Is(err, storage.ErrInUse), errors.Is(err, storage.ErrUnreadable), errors.Is(err, storage.ErrNewerSchema):
		return storeFault(err)
	case errors.Is(err, storage.ErrDamaged), errors.Is(err, storage.ErrPageLost):
		return &fault{exitFailed, err, "semel verify names each place; " + ofLostPages}
	case errors.As(err, &record):
		return &fault{exitUnreadable, err, "the store file is damaged at this record: go back to a copy of it"}
	case errors.Is(err, storage.ErrNotFound):
		return &fault{exitFailed, err, "semel jobs lists the jobs"}
	case errors.Is(err, storage.ErrKeyReused):
		return &fault{exitFailed, err, "nothing was changed: take a new key for another request; each is kept for 24 hours"}
	case errors.Is(err, storage.ErrNotHeld):
		return &fault{exitFailed, err, "semel runs lists the runs and which of them are held"}
	case errors.Is(err, storage.ErrTransition):
		return &fault{exitFailed, err, "only failed jobs can be retried, complete ones with --recollect, and only pending or retryable ones canceled"}
	case errors.Is(err, storage.ErrCursorMoved):
		return &fault{exitFailed, err, "another semel export --append works on the file: run this one again when that has ended"}
	case errors.Is(err, storage.ErrMoved):
		return &fault{exitStore, err, "what was committed is in the file that was moved; if that was removed, it is lost: go back to a backup"}
	case errors.Is(err, storage.ErrFull):
		return &fault{exitFailed, err, "make room there and run again: nothing that was committed is lost"}
	case errors.Is(err, storage.ErrStopped):
		return &fault{exitFailed, err, "its disk could not write: look at the disk first, then run again; nothing that was committed is lost"}
	}
	return &fault{exitFailed, err, ""}
}

// storeFault is the fault of a store that could not be opened.
func storeFault(err error) *fault {
	f := &fault{exitStore, err, ""}
	switch {
	case errors.Is(err, storage.ErrInUse):
		f.hint = "another semel works with it: try again when that has ended"
	case errors.Is(err, storage.ErrNotFound):
		f.hint = "nothing was collected yet: semel run --once makes the store"
	case errors.Is(err, storage.ErrNewerSchema):
		f.code, f.hint = exitUnreadable, "use the semel that wrote it, or a later one"
	case errors.Is(err, storage.ErrUnreadable):
		f.code, f.hint = exitUnreadable, "nothing was changed: go back to a copy of the file, or move it away to start anew"
	case errors.Is(err, syscall.ENOSPC):
		f.hint = "make room there, or set store.path to another place"
	case errors.Is(err, syscall.EROFS):
		f.hint = "the file system is read-only: set store.path to a place that can be written"
	case errors.Is(err, fs.ErrPermission):
		f.hint = "this user may not open it: check who owns the file and its folder"
	case errors.Is(err, fs.ErrNotExist):
		f.hint = "make the folder first, or change store.path"
	}
	return f
}

// sourceFault is the fault of a source that there is not.
func sourceFault(c *config.Config, name string) error {
	names := make([]string, len(c.Sources))
	for i := range c.Sources {
		names[i] = c.Sources[i].Name
	}
	hint := "the sources are " + strings.Join(names, ", ")
	if slices.Contains(names, name) {
		hint = "semel run was started before the config had it: start it again"
	} else if near := nearest(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	} else if len(names) == 0 {
		hint = c.File + " has no source"
	}
	return usage(hint, "unknown source %q", name)
}

// sinkFault is the fault of a sink that there is not.
func sinkFault(c *config.Config, name string) error {
	hint := "semel status lists the sinks"
	if near := nearest(name, sinkNames(c)); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return usage(hint, "unknown sink %q", name)
}

// nearest finds the known word that was probably meant, "" if none is near. It
// asks cobra, which does the same for commands.
func nearest(word string, known []string) string {
	book := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, k := range known {
		book.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	if near := book.SuggestionsFor(word); len(near) > 0 {
		return near[0]
	}
	return ""
}

// tell prints a fault for people.
func (a *app) tell(f *fault) {
	text := f.err.Error()
	var invalid config.Errors
	var guard *engine.GuardError
	switch {
	case errors.As(f.err, &invalid):
		for _, one := range invalid {
			fmt.Fprintln(a.stderr, one)
		}
		text = fmt.Sprintf("%s: %s", invalid[0].File, count(len(invalid), "fault"))
	case errors.As(f.err, &guard):
		for _, one := range guard.Guards {
			fmt.Fprintln(a.stderr, one)
		}
		text = fmt.Sprintf("%s: nothing was collected", engine.ErrGuard)
	}
	fmt.Fprintf(a.stderr, "semel: %s %s\n", a.paint("error:"), text)
	if f.hint != "" {
		fmt.Fprintf(a.stderr, "semel: hint: %s\n", f.hint)
	}
}

// paint makes a word red where stderr is a terminal that wants colours.
func (a *app) paint(word string) string {
	if a.getenv("NO_COLOR") != "" || a.getenv("TERM") == "dumb" || !isTerminal(a.stderr) {
		return word
	}
	return "\x1b[1;31m" + word + "\x1b[0m"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
