//go:build unix

package delivery

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"semel/storage"
)

// script is a Command that runs a shell script of the test, in the folder it
// gives, and the log of what it prints.
func script(t *testing.T, text string) (c *Command, dir string, log *bytes.Buffer) {
	t.Helper()
	dir, log = t.TempDir(), new(bytes.Buffer)
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c = NewCommand(dir, []string{"./script", "a b", "$HOME"})
	c.setLog(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, dir, log
}

// TestCommandGets: what a command is given, and that of Semel's own environment
// it is not given what may be secret.
func TestCommandGets(t *testing.T) {
	t.Setenv("PROXY_PASS", "hunter2")
	t.Setenv("LC_ALL", "C.UTF-8")
	c, dir, _ := script(t, `cat > stdin; env > environment; printf '%s|' "$@" > args; pwd -P > folder`)
	deliver(t, c, numbered(3, 4), storage.OutcomeDelivered)
	wantFile(t, filepath.Join(dir, "stdin"), linesOf(3, 4))
	wantFile(t, filepath.Join(dir, "args"), "a b|$HOME|")
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, filepath.Join(dir, "folder"), real+"\n")
	environment, err := os.ReadFile(filepath.Join(dir, "environment"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("SEMEL_EVENT_ID=evt_%032x\n", 3), "SEMEL_EVENT_KEY=shop:3:-\n", "SEMEL_EVENT_TYPE=observation.created\n",
		"PATH=" + os.Getenv("PATH") + "\n", "LC_ALL=C.UTF-8\n",
	} {
		if !strings.Contains("\n"+string(environment), "\n"+want) {
			t.Errorf("it has not %s:\n%s", want, environment)
		}
	}
	if strings.Contains(string(environment), "hunter2") {
		t.Errorf("it has a secret:\n%s", environment)
	}
}

// TestCommandHoldsNothing: a command has none of the files that the process has
// open.
func TestCommandHoldsNothing(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("there is no /proc/self/fd")
	}
	c, dir, _ := script(t, `ls -l /proc/$$/fd > held`)
	store, err := storage.Open(filepath.Join(dir, "semel.db"), storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	file, _ := openFile(t, filepath.Join(dir, "news.jsonl"), 0)
	deliver(t, file, numbered(0, 1), storage.OutcomeDelivered)
	deliver(t, c, numbered(0, 1), storage.OutcomeDelivered)
	held, err := os.ReadFile(filepath.Join(dir, "held"))
	if err != nil || strings.Contains(string(held), "semel.db") || strings.Contains(string(held), "news.jsonl") || strings.Contains(string(held), "socket:") {
		t.Errorf("it holds (%v)\n%s", err, held)
	}
}

func TestCommandEnds(t *testing.T) {
	for _, test := range []struct {
		script string
		want   storage.DeliveryOutcome
		reason string
	}{
		{"exit 0", storage.OutcomeDelivered, ""},
		{"echo no >&2; echo because >&2; echo; echo >&2; exit 3", storage.OutcomeAgain, "exit status 3: because"},
		{"exit 75", storage.OutcomeAgain, "exit status 75, try again"},
		{"kill -9 $$", storage.OutcomeAmbiguous, "signal: killed"},
		{"exec 0<&-; exit 0", storage.OutcomeDelivered, ""},
		{"exec 0<&-; exit 1", storage.OutcomeAgain, "exit status 1"},
		{"printf 'a\\033[2Jb' >&2; exit 1", storage.OutcomeAgain, "exit status 1: a\uFFFD[2Jb"},
	} {
		c, _, _ := script(t, test.script)
		events := numbered(0, 1)
		events[0].Data = fmt.Appendf(nil, `{"n":%q}`, strings.Repeat("x", 1<<20)) // more than a pipe holds
		if reason := deliver(t, c, events, test.want); reason != test.reason {
			t.Errorf("%s: %q, want %q", test.script, reason, test.reason)
		}
	}
	for code, passing := range map[int]bool{1: false, exitTryAgain: true} {
		c, _, _ := script(t, fmt.Sprint("exit ", code))
		if r := c.Deliver(t.Context(), numbered(0, 1))[0]; r.Passing != passing {
			t.Errorf("exit %d: %+v", code, r)
		}
	}
	for _, program := range []string{"./none", "semel-none", "./folder"} {
		c := NewCommand(t.TempDir(), []string{program})
		if reason := deliver(t, c, numbered(0, 1), storage.OutcomeAgain); !strings.HasPrefix(reason, "starting the command: ") {
			t.Errorf("%s: %q", program, reason)
		}
	}
}

// TestCommandTooLong: a command whose time is over is killed with all it has
// started, and may have done its work.
func TestCommandTooLong(t *testing.T) {
	for _, test := range []struct {
		err    error
		reason string
	}{
		{context.DeadlineExceeded, "the command took too long and was killed: begun"},
		{context.Canceled, "the command was killed, since semel stops: begun"},
	} {
		c, dir, _ := script(t, `echo begun >&2; sh -c 'echo $$ > child; : > begun; exec sleep 1000'; exit 0`)
		begun := filepath.Join(dir, "begun")
		if err := syscall.Mkfifo(begun, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx := newEndable(test.err)
		go func() {
			_, _ = os.ReadFile(begun) // waits for the one who opens it
			ctx.end()
		}()
		r := c.Deliver(ctx, numbered(0, 1))[0]
		if r.Outcome != storage.OutcomeAmbiguous || r.Reason != test.reason {
			t.Errorf("%+v, want %q", r, test.reason)
		}
		text, err := os.ReadFile(filepath.Join(dir, "child"))
		var pid int
		if _, scanErr := fmt.Sscan(string(text), &pid); err != nil || scanErr != nil {
			t.Fatal(err, scanErr)
		}
		awaitDeath(t, pid)
	}
}

// endable is a context that ends when it is told to, with an error of the test.
type endable struct {
	context.Context
	over chan struct{}
	err  error
}

func newEndable(err error) *endable {
	return &endable{context.Background(), make(chan struct{}), err}
}

func (e *endable) end()                  { close(e.over) }
func (e *endable) Done() <-chan struct{} { return e.over }
func (e *endable) Err() error {
	select {
	case <-e.over:
		return e.err
	default:
		return nil
	}
}

// awaitDeath waits until a process is gone, or is a zombie that nobody has
// looked at.
func awaitDeath(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if syscall.Kill(pid, 0) != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d lives", pid)
		}
	}
}

// TestCommandOutput: what a command prints is logged by lines, up to a bound,
// and does not hold it up.
func TestCommandOutput(t *testing.T) {
	c, _, log := script(t, `echo out; echo; echo '  err' >&2; printf 'half\t' >&2`)
	deliver(t, c, numbered(0, 1), storage.OutcomeDelivered)
	lines := log.String()
	for _, want := range []string{
		`level=INFO msg="the command says" event=evt_00000000000000000000000000000000 stdout=out`,
		`level=INFO msg="the command says" event=evt_00000000000000000000000000000000 stderr="  err"`, `stderr=half`,
	} {
		if !strings.Contains(lines, want+"\n") {
			t.Errorf("no %s in\n%s", want, lines)
		}
	}
	if n := strings.Count(lines, "\n"); n != 3 {
		t.Errorf("%d lines:\n%s", n, lines)
	}
	c, _, log = script(t, `head -c 5000 /dev/zero | tr '\0' y >&2`)
	deliver(t, c, numbered(0, 1), storage.OutcomeDelivered)
	if want := "stderr=" + strings.Repeat("y", maxOutputLine) + "\n"; !strings.HasSuffix(log.String(), want) {
		t.Errorf("a long line is %s", log)
	}
	c, _, log = script(t, `yes abcdefghijklmno | head -n 100000 >&2; echo last >&2; exit 1`)
	if reason := deliver(t, c, numbered(0, 1), storage.OutcomeAgain); reason != "exit status 1: last" {
		t.Errorf("reason %q", reason)
	}
	printed := len(regexp.MustCompile(`stderr=abcdefghijklmno`).FindAllString(log.String(), -1))
	if printed != maxOutput/15 || !strings.Contains(log.String(), fmt.Sprintf(`stderr="… and %d lines more"`, 100000+1-printed)) {
		t.Errorf("%d lines are printed, and in the end %.300s", printed, log.String()[log.Len()-300:])
	}
}

// TestCommandLeavesOne: a process that a command leaves behind does not hold up
// the delivery.
func TestCommandLeavesOne(t *testing.T) {
	c, dir, _ := script(t, `sleep 1000 & echo $! > child`)
	deliver(t, c, numbered(0, 1), storage.OutcomeDelivered)
	var pid int
	text, err := os.ReadFile(filepath.Join(dir, "child"))
	if _, scanErr := fmt.Sscan(string(text), &pid); err != nil || scanErr != nil {
		t.Fatal(err, scanErr)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("it is gone: %v", err)
	}
}
