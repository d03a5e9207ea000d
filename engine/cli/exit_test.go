package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"semel/engine"
	"semel/engine/api"
	"semel/engine/config"
	"semel/storage"
)

func TestClassify(t *testing.T) {
	opening := func(err error) error { return storeFault(fmt.Errorf("opening store semel.db: %w", err)) }
	for _, tt := range []struct {
		name string
		err  error
		code int
		hint string // a part of it
	}{
		{"any", errors.New("odd"), exitFailed, ""},
		{"usage", usage("do so", "wrong"), exitUsage, "do so"},
		{"wrapped fault", fmt.Errorf("outer: %w", usage("do so", "wrong")), exitUsage, "do so"},
		{"unknown source", fmt.Errorf("%w %q", api.ErrUnknownSource, "x"), exitUsage, "lists the sources"},
		{"bad request", fmt.Errorf("comparing: %w", api.ErrBadRequest), exitUsage, ""},
		{"config", config.Errors{{File: "semel.toml", Message: "bad"}}, exitConfig, ""},
		{"in use", opening(storage.ErrInUse), exitStore, "another semel"},
		{"in use, not on opening", fmt.Errorf("demo: %w", storage.ErrInUse), exitStore, "another semel"},
		{"silent owner", fmt.Errorf("opening store semel.db: %w within 5s", api.ErrSilent), exitStore, "kill -9"},
		{"owner gone", fmt.Errorf("%w: EOF", api.ErrCut), exitStore, "run the command again"},
		{"no store", opening(storage.ErrNotFound), exitStore, "run --once"},
		{"not permitted", opening(fs.ErrPermission), exitStore, "who owns"},
		{"no room", opening(syscall.ENOSPC), exitStore, "make room"},
		{"read-only", opening(syscall.EROFS), exitStore, "read-only"},
		{"no folder", opening(fs.ErrNotExist), exitStore, "make the folder"},
		{"other trouble", opening(syscall.EIO), exitStore, ""},
		{"unreadable", opening(storage.ErrUnreadable), exitUnreadable, "copy"},
		{"newer", opening(storage.ErrNewerSchema), exitUnreadable, "later one"},
		{"damaged record", fmt.Errorf("listing jobs: %w", &storage.RecordError{Bucket: "job", Err: errors.New("short")}), exitUnreadable, "damaged"},
		{"lost page", fmt.Errorf("%w: %w", storage.ErrPageLost, fs.ErrNotExist), exitFailed, "recollect"},
		{"collecting lost pages", &storage.RecordError{Bucket: "segment", Err: storage.ErrPageLost}, exitFailed, "recollect"},
		{"no such job", fmt.Errorf("job 9: %w", storage.ErrNotFound), exitFailed, "semel jobs"},
		{"nothing held", storage.ErrNotHeld, exitFailed, "semel runs"},
		{"wrong state", storage.ErrTransition, exitFailed, "only failed jobs"},
		{"stopped", storage.ErrStopped, exitFailed, "look at the disk"},
		{"not permitted elsewhere", fmt.Errorf("writing out: %w", fs.ErrPermission), exitFailed, ""},
		{"interrupted", errInterrupted, exitInterrupted, ""},
		{"context", context.Canceled, exitInterrupted, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := classify(tt.err)
			if f.code != tt.code {
				t.Errorf("code %d, want %d", f.code, tt.code)
			}
			if !strings.Contains(f.hint, tt.hint) || (tt.hint == "") != (f.hint == "") {
				t.Errorf("hint %q, want one with %q", f.hint, tt.hint)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	paused := map[string]engine.Pause{"home": {Kind: engine.PauseAccount, Reason: "the proxy answered 407"}}
	outage := map[string]engine.Pause{"home": {Kind: engine.PauseOutage, Reason: "the gateway cannot be reached"}}
	for _, tt := range []struct {
		name        string
		s           engine.Summary
		daemon      bool
		interrupted bool
		code        int
	}{
		{name: "done", code: exitDone},
		{name: "failed", s: engine.Summary{Failed: 1}, code: exitJobs},
		{name: "run held", s: engine.Summary{Held: 1}, code: exitJobs},
		{name: "bad rows", s: engine.Summary{BadRows: 1}, code: exitJobs},
		{name: "bad file", s: engine.Summary{BadFiles: 1, Failed: 1}, code: exitFailed},
		{name: "paused, jobs held", s: engine.Summary{Paused: paused, Open: 1, Failed: 1}, code: exitAccount},
		{name: "paused, nothing held", s: engine.Summary{Paused: paused}, code: exitDone},
		{name: "gateway out", s: engine.Summary{Paused: outage, Open: 1}, code: exitJobs},
		{name: "gateway out, account refused", s: engine.Summary{Paused: map[string]engine.Pause{"home": outage["home"], "spare": paused["home"]}, Open: 1}, code: exitAccount},
		{name: "gateway out, nothing held", s: engine.Summary{Paused: outage}, code: exitDone},
		{name: "held by a site", s: engine.Summary{Open: 1}, code: exitJobs},
		{name: "interrupted before it began", interrupted: true, code: exitInterrupted},
		{name: "interrupted", s: engine.Summary{Offered: true, Open: 1, Failed: 1, Paused: paused}, interrupted: true, code: exitInterrupted},
		{name: "interrupted, nothing left", s: engine.Summary{Offered: true}, interrupted: true, code: exitDone},
		{name: "interrupted, nothing left, failed", s: engine.Summary{Offered: true, Failed: 1}, interrupted: true, code: exitJobs},
		{name: "daemon", s: engine.Summary{Open: 1, Failed: 1, BadRows: 1}, daemon: true, interrupted: true, code: exitDone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code := exitDone
			if err := verdict(tt.s, engine.BodiesNone, !tt.daemon, tt.interrupted); err != nil {
				code = classify(err).code
			}
			if code != tt.code {
				t.Errorf("code %d, want %d", code, tt.code)
			}
		})
	}
}

// closedPipe is stdout whose reader has gone.
type closedPipe struct{ err error }

func (p closedPipe) Write([]byte) (int, error) { return 0, p.err }

func TestFinish(t *testing.T) {
	for _, tt := range []struct {
		name     string
		out, err error
		code     int
		stderr   string
	}{
		{"reader gone", syscall.EPIPE, nil, exitDone, ""},
		{"reader gone while writing", syscall.EPIPE, fmt.Errorf("exporting: %w", syscall.EPIPE), exitDone, ""},
		{"reader gone, and failed before", syscall.EPIPE, &fault{exitJobs, errors.New("1 job failed"), ""}, exitJobs, "semel: error: 1 job failed\n"},
		{"disk full", syscall.ENOSPC, nil, exitFailed, "semel: error: writing to stdout: no space left on device\n"},
		{"disk full, and failed before", syscall.ENOSPC, &fault{exitJobs, errors.New("1 job failed"), "look"}, exitJobs, "semel: error: 1 job failed\nsemel: hint: look\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stderr bytes.Buffer
			a := &app{stdout: bufio.NewWriter(closedPipe{tt.out}), stderr: &stderr, getenv: func(string) string { return "" }, started: true}
			a.printf("data")
			if code := a.finish(tt.err); code != tt.code {
				t.Errorf("code %d, want %d", code, tt.code)
			}
			if stderr.String() != tt.stderr {
				t.Errorf("stderr %q, want %q", stderr.String(), tt.stderr)
			}
		})
	}
}

func TestPanicIsAFault(t *testing.T) {
	a := &app{}
	cmd := a.command(&cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}, func(context.Context, []string) error { panic("oh no") })
	cmd.SetArgs(nil)
	f := classify(cmd.Execute())
	if f.code != exitFailed || !strings.Contains(f.Error(), "panic: oh no") || !strings.Contains(f.hint, "report it") {
		t.Errorf("a panic gave %d %v (%s)", f.code, f.err, f.hint)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"catalog", "prices", "not_found"}
	for word, want := range map[string]string{"catalgo": "catalog", "price": "prices", "not_fond": "not_found", "zebra": "", "": "catalog"} {
		if got := nearest(word, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
