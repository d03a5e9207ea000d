package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"semel/storage"
)

// exitTryAgain is the exit code by which a command says that it was not able to
// for now: EX_TEMPFAIL of sysexits.h.
const exitTryAgain = 75

// outputWait is how long the output of a command that has ended is waited for: a
// process that it left behind may hold it open for ever.
const outputWait = time.Second

// Command is a Transport that runs a program for each event, without a shell: the
// event comes on its stdin, as one line of JSON, its id, key and type in the
// variables SEMEL_EVENT_ID, SEMEL_EVENT_KEY and SEMEL_EVENT_TYPE. Of Semel's own
// environment it gets no more than inherited names. Exit code 0 is delivered, each
// other is a failure; of one that is killed, as those are whose time is over, nobody
// knows. What it prints is logged, line by line.
//
// The program is in a process group of its own: a Ctrl-C in Semel's terminal does
// not reach it, and where its time is over all that it has started is killed. On
// Windows that is the program alone.
type Command struct {
	args []string
	dir  string
	log  *slog.Logger
}

// NewCommand is a Command of a program and its arguments, that works in a folder.
// A program without a path is looked for in PATH, and a relative one starts at
// that folder.
func NewCommand(dir string, args []string) *Command {
	return &Command{args: args, dir: dir, log: slog.New(slog.DiscardHandler)}
}

func (c *Command) setLog(log *slog.Logger) { c.log = log }

// Ready says why the program could not be started now; nil: it could.
func (c *Command) Ready() error {
	program := c.args[0]
	if filepath.Base(program) != program && !filepath.IsAbs(program) {
		path, err := filepath.Abs(filepath.Join(c.dir, program)) // without a folder it would be looked for in PATH
		if err != nil {
			return err
		}
		program = path
	}
	_, err := exec.LookPath(program)
	if fault, ok := errors.AsType[*exec.Error](err); ok {
		return fmt.Errorf("the program cannot be started (%w): put it there with the right to be executed, or name its path", fault.Err)
	}
	return err
}

// Close has nothing to close.
func (c *Command) Close() error { return nil }

// Deliver runs the program for each event, one after the other.
func (c *Command) Deliver(ctx context.Context, events []*storage.Event) []Result {
	results := make([]Result, len(events))
	for i, e := range events {
		results[i] = c.run(ctx, e)
	}
	return results
}

func (c *Command) run(ctx context.Context, e *storage.Event) Result {
	log := c.log.With("event", e.ID)
	stdout := &outputLog{print: func(line string) { log.Info("the command says", "stdout", line) }}
	stderr := &outputLog{print: func(line string) { log.Info("the command says", "stderr", line) }}
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Dir, cmd.Env = c.dir, commandEnv(e)
	cmd.Stdin = strings.NewReader(string(AppendJSON(nil, e)) + "\n")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = outputWait
	ownGroup(cmd)
	err := cmd.Run()
	stdout.end()
	stderr.end()
	return commandResult(ctx, cmd.ProcessState, err, stderr.last)
}

// commandResult says what became of an event by how its program ended; a nil
// state: it was not started.
func commandResult(ctx context.Context, state *os.ProcessState, err error, said string) Result {
	if state == nil {
		return Result{Outcome: storage.OutcomeAgain, Reason: fmt.Sprintf("starting the command: %v", err)}
	}
	if state.Success() {
		return Result{Outcome: storage.OutcomeDelivered}
	}
	r := Result{Outcome: storage.OutcomeAgain, Reason: state.String()}
	switch {
	case ctx.Err() != nil:
		r.Outcome, r.Reason = storage.OutcomeAmbiguous, "the command took too long and was killed"
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			r.Reason = "the command was killed, since semel stops"
		}
	case !state.Exited():
		r.Outcome = storage.OutcomeAmbiguous
	case state.ExitCode() == exitTryAgain:
		r.Reason, r.Passing = r.Reason+", try again", true
	}
	if said != "" {
		r.Reason += ": " + said
	}
	return r
}

// inherited are the variables of Semel's own environment that a command gets:
// what programs need to find themselves, their user and their language. All
// others may be logins of proxies or of other sinks.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
	// Windows
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES",
}

// commandEnv is the environment of an event's command.
func commandEnv(e *storage.Event) []string {
	var env []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if runtime.GOOS == "windows" {
			name = strings.ToUpper(name)
		}
		if slices.Contains(inherited, name) || strings.HasPrefix(name, "LC_") {
			env = append(env, variable)
		}
	}
	return append(env, "SEMEL_EVENT_ID="+e.ID, "SEMEL_EVENT_KEY="+e.Key, "SEMEL_EVENT_TYPE="+e.Type)
}
