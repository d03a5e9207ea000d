package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"semel/engine/demo"
)

func (a *app) demoCommand() *cobra.Command {
	opts := demo.Options{Dir: demo.DefaultDir, Pages: demo.DefaultPages, Faults: demo.DefaultFaults}
	cmd := a.command(&cobra.Command{
		Use:   "demo [--dir DIR] [--pages N] [--faults F] [--kill]",
		Short: "See the main job done, nothing else needed",
		Long: `Collect a built-in site through a built-in gateway that fails as residential ones
do, and show what happened. It takes seconds, needs no network, and leaves
semel.toml, semel.db and records.jsonl in the folder. With --kill its working
process is killed on the way and started again.

` + exits(exitDone, exitFailed, exitUsage, exitInterrupted),
		Example: "  semel demo\n  semel demo --kill --faults 0.3",
		Args:    exactArgs(),
	}, func(ctx context.Context, _ []string) error { return a.demo(ctx, opts) })
	flags := cmd.Flags()
	flags.StringVar(&opts.Dir, "dir", opts.Dir, "the `DIR` to write to, empty or the demo's own")
	flags.IntVar(&opts.Pages, "pages", opts.Pages, "`N` pages on the site")
	flags.Float64Var(&opts.Faults, "faults", opts.Faults, "the fraction `F` of requests that fail")
	flags.BoolVar(&opts.Kill, "kill", false, "kill the working process on the way")
	return cmd
}

func (a *app) demo(ctx context.Context, opts demo.Options) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program's own file: %w", err)
	}
	opts.Stdout, opts.Stderr, opts.Executable = a.stdout, a.stderr, executable
	opts.RunOnce, opts.Export = a.runOnceFile, a.exportConfigFile
	err = demo.Run(ctx, opts)
	switch {
	case errors.Is(err, demo.ErrUsage):
		return usage("see semel demo --help", "%w", err)
	case errors.Is(err, demo.ErrForeignFolder):
		return usage("give an empty folder with --dir", "%w", err)
	}
	return err
}
