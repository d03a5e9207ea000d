package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app is one call of the program.
type app struct {
	stdin  io.Reader
	stdout *bufio.Writer // flushed when the command has ended
	stderr io.Writer
	getenv func(string) string

	config  string // --config, "" if not given
	json    bool   // --json
	started bool   // the command line was right: errors are the command's own
}

// Main runs one command and gives its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, release := signalContext()
	defer release()
	a := &app{stdin: stdin, stdout: bufio.NewWriterSize(stdout, 64<<10), stderr: stderr, getenv: os.Getenv}
	return a.finish(a.execute(ctx, args))
}

// execute parses the command line and runs the command.
func (a *app) execute(ctx context.Context, args []string) error {
	root := a.root()
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err != nil && !a.started {
		var known *fault
		if errors.As(err, &known) {
			return err
		}
		return usage("see "+command.CommandPath()+" --help", "%w", flagError(err))
	}
	return err
}

// flagError says of a flag that is no number what is wanted.
func flagError(err error) error {
	var value *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &value) || !errors.As(err, &number) {
		return err
	}
	kind := "whole number"
	if number.Func == "ParseFloat" {
		kind = "number"
	}
	return fmt.Errorf("--%s must be a %s (got %q)", value.GetFlag().Name, kind, value.GetValue())
}

// finish flushes what the command printed, tells its error and gives its exit
// code.
func (a *app) finish(err error) int {
	flushErr := a.stdout.Flush()
	switch {
	case flushErr == nil:
	case errors.Is(flushErr, syscall.EPIPE):
		// Whoever read the output has had enough, as head(1) has: no news.
		if !a.started || errors.Is(err, syscall.EPIPE) {
			err = nil
		}
	case err == nil || !a.started:
		err = fmt.Errorf("writing to stdout: %w", flushErr)
	}
	if err == nil {
		return exitDone
	}
	f := classify(err)
	a.tell(f)
	return f.code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "semel",
		Short: "Collect public web pages so that each observation exists once",
		Long: `Semel collects public web pages through residential proxies, as often as it
takes, so that each logical observation exists once: whatever is killed,
retried, rescheduled or submitted twice.

One binary, one config file (semel.toml), one store file (semel.db).

` + exits(exitDone, exitFailed, exitUsage, exitJobs, exitConfig, exitStore, exitUnreadable, exitAccount, exitInterrupted),
		Example: `  semel demo                  see the main job done, nothing else needed
  semel init URL              a config from a page's own data
  semel check                 validate semel.toml
  semel try catalog           fetch and parse one target, store nothing
  semel run --once            collect what is due
  semel export catalog        the observations as JSON Lines`,
		Version:       versionOf().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          a.noCommand,
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		return usage("see semel --help", "a command is missing")
	}
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	flags := root.PersistentFlags()
	flags.StringVarP(&a.config, "config", "c", "", "config `FILE` (default semel.toml, then $SEMEL_CONFIG)")
	flags.BoolVar(&a.json, "json", false, "print JSON Lines instead of text")
	root.AddCommand(
		a.initCommand(), a.checkCommand(), a.tryCommand(), a.runCommand(), a.statusCommand(), a.jobsCommand(),
		a.showCommand(), a.keyCommand(), a.exportCommand(), a.retryCommand(), a.cancelCommand(),
		a.submitCommand(), a.acceptCommand(), a.compareCommand(), a.importCommand(), a.backfillCommand(), a.runsCommand(), a.quarantineCommand(), a.reparseCommand(), a.outboxCommand(), a.verifyCommand(), a.backupCommand(), a.compactCommand(), a.demoCommand(), a.versionCommand(), a.completionCommand(root),
	)
	return root
}

// noCommand refuses a word that is no command, and names the one that was
// meant.
func (a *app) noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see semel --help"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("did you mean %q?", near[0])
	}
	return usage(hint, "unknown command %q", args[0])
}

// command completes a subcommand: whatever fails before run begins is wrong
// usage, and a panic is an error like any other.
func (a *app) command(c *cobra.Command, run func(ctx context.Context, args []string) error) *cobra.Command {
	c.DisableFlagsInUseLine = true
	c.RunE = func(cmd *cobra.Command, args []string) (err error) {
		a.started = true
		defer recovered(&err)
		return run(cmd.Context(), args)
	}
	return c
}

// recovered makes an error of a panic, with its exit code: Go's own would pass
// for wrong usage.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = &fault{
			code: exitFailed, err: fmt.Errorf("panic: %v\n%s", p, debug.Stack()),
			hint: "this is a fault of semel: please report it with the lines above",
		}
	}
}

// exactArgs wants one argument for each name.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing", names[len(args)])
		case len(args) > len(names):
			return fmt.Errorf("argument %q is too much", args[len(names)])
		}
		return nil
	}
}

// printf writes text for people to stdout. Errors are found when it is flushed.
func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.stdout, format, args...) }

// notef writes a line to stderr, after what was printed before it.
func (a *app) notef(format string, args ...any) {
	_ = a.stdout.Flush() // the error stays there for finish
	fmt.Fprintf(a.stderr, "semel: "+format+"\n", args...)
}

// log is for what goes wrong on the way of a command.
func (a *app) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// line writes one JSON line to stdout.
func (a *app) line(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
