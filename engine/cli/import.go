package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"semel/engine"
	"semel/engine/api"
	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

func (a *app) importCommand() *cobra.Command {
	var r api.ImportRequest
	cmd := a.command(&cobra.Command{
		Use:   "import SOURCE FILE [--window W] [--chunk N] [--strict]",
		Short: "Make jobs of the rows of a file",
		Long: `Make a job of each row of a .csv, .jsonl or .txt file, as if the file were the
source's targets. First the whole file is read and each row held against the
source, and nothing is written; each bad row is told with its line and left out,
and with --strict nothing is written where there is one. Then the jobs are made
chunk by chunk, each whole or not at all.

Killed or interrupted, run it again: chunks that were made are skipped. The same
file again changes nothing, and a file that has changed since under its name is
told: jobs that there are stay as they are, and those that there are not are made.
With --window the jobs are for that window of the source, or for each in it.
A file is known by its name, without the folder. While semel run holds the
store it reads the file, and works the jobs at once.

` + exits(exitDone, exitFailed, exitUsage, exitJobs, exitConfig, exitStore, exitUnreadable, exitInterrupted),
		ValidArgsFunction: a.completeSource,
		Example:           "  semel import catalog skus.csv\n  semel import pages urls.txt --strict\n  semel import catalog skus.jsonl --window 2026-04-23",
		Args:              exactArgs("SOURCE", "FILE"),
	}, func(ctx context.Context, args []string) error {
		r.Source = args[0]
		return a.importFile(ctx, r, args[1])
	})
	cmd.Flags().StringVar(&r.Window, "window", "", "make the jobs for this window `W`: an instant, a date or A..B")
	cmd.Flags().IntVar(&r.ChunkRows, "chunk", engine.DefaultChunkRows, fmt.Sprintf("rows that become jobs in one step, up to `N` = %d: more are faster, and make outcomes of a run wait", engine.MaxChunkRows))
	cmd.Flags().BoolVar(&r.Strict, "strict", false, "write nothing where a row is bad")
	return cmd
}

func (a *app) importFile(ctx context.Context, r api.ImportRequest, path string) (err error) {
	if r.ChunkRows < 1 || r.ChunkRows > engine.MaxChunkRows {
		return usage("", "--chunk must be between 1 and %d (got %d)", engine.MaxChunkRows, r.ChunkRows)
	}
	if _, ok := intake.KindOf(path); !ok {
		return usage("a .csv file has a header row of variables, a .jsonl file an object a line, a .txt file a URL a line", "%s ends in none of .csv, .jsonl and .txt", path)
	}
	window, err := intake.ParseWindow(r.Window)
	if r.Window != "" && err != nil {
		return usage("", "--%w", err)
	}
	if r.Path, err = filepath.Abs(path); err != nil {
		return err
	}
	if _, err := os.Stat(r.Path); err != nil {
		return fmt.Errorf("opening %s: %w", path, errors.Unwrap(err))
	}
	c, err := a.loadConfigWithoutSecrets()
	if err != nil {
		return err
	}
	src, err := findSource(c, r.Source)
	if err != nil {
		return err
	}
	if err := checkWindow([]*config.Source{src}, window); err != nil {
		return err
	}
	tuneRuntime(a.getenv)
	return a.withService(ctx, c, true, storage.Options{}, func(c *config.Config, service api.Service) error {
		v := &importView{app: a, path: path, out: newConsole(a.stderr)}
		v.out.unit = "rows"
		result, err := service.Import(ctx, r, v.tell)
		v.out.finish()
		switch {
		case errors.Is(err, api.ErrUnknownSource):
			return sourceFault(c, r.Source)
		case err != nil:
			return v.fault(err)
		}
		return v.result(result)
	})
}

// importView shows an import.
type importView struct {
	*app
	path string // as the user gave it
	out  *console
	told int64              // bad rows
	last api.ImportProgress // that was told
}

// tell shows one thing.
func (v *importView) tell(n api.ImportNews) error {
	switch {
	case n.Progress != nil:
		v.progress(*n.Progress)
		return nil
	case n.Bad != nil:
		v.told++
		fmt.Fprintf(v.out, "semel: %s:%d: %s\n", v.path, n.Bad.Line, plain(n.Bad.Reason))
	case n.Changed != nil:
		fmt.Fprintf(v.out, "semel: %s\n", changedText(v.path, n.Changed))
	}
	if v.json {
		return v.line(n)
	}
	return nil
}

func changedText(path string, c *api.ImportChanged) string {
	was := "its import was begun"
	if c.Ended {
		was = "it was imported"
	}
	return fmt.Sprintf("%s has changed since %s on %s: %s then, %d now; it is imported as it is now",
		path, was, c.Since.UTC().Format(time.DateTime)+" UTC", count(c.RowsWas, "row"), c.RowsNow)
}

func (v *importView) progress(p api.ImportProgress) {
	if p.Making != v.last.Making {
		v.out.finish() // the rate is that of this half
	}
	v.last = p
	if !v.out.terminal {
		return
	}
	text := "checking rows"
	if p.Making {
		text = "making jobs"
	}
	v.out.draw(p.Rows, p.Of, text)
}

// fault says of an import that was interrupted how to go on.
func (v *importView) fault(err error) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, errInterrupted) {
		return err
	}
	text := "interrupted while the rows were checked: nothing was written"
	if v.last.Making {
		text = fmt.Sprintf("interrupted when %d of %s were made", v.last.Rows, count(v.last.Of, "job"))
	}
	return &fault{exitInterrupted, errors.New(text), "run it again to go on: chunks that were made are skipped"}
}

// result shows what an import did, and gives the fault of bad rows.
func (v *importView) result(r api.ImportResult) error {
	if more := r.Bad - v.told; more > 0 {
		v.notef("%d more of its rows are bad", more)
	}
	if v.json {
		if err := v.line(r); err != nil {
			return err
		}
	} else if !r.Refused {
		v.printf("%s: %s\n", v.path, importText(r))
	}
	switch {
	case r.Refused:
		return &fault{exitFailed, fmt.Errorf("%s of %s: nothing was written", count(r.Bad, "bad row"), v.path), "without --strict bad rows are skipped"}
	case r.Bad > 0:
		return &fault{exitJobs, fmt.Errorf("%s of %s could not become jobs", count(r.Bad, "row"), v.path), "mend them and import the file again: the others are known"}
	}
	return nil
}

func importText(r api.ImportResult) string {
	if r.Before != nil {
		return fmt.Sprintf("%s, imported before on %s UTC: nothing to do", count(r.Rows, "row"), r.Before.UTC().Format(time.DateTime))
	}
	text := count(r.Rows, "row")
	if r.Windows > 1 {
		text += fmt.Sprintf(" for %d windows", r.Windows)
	}
	text += fmt.Sprintf(": %d new, %d known, %d bad", r.New, r.Known, r.Bad)
	if r.ChunksSkipped > 0 {
		text += fmt.Sprintf("; %s skipped that had been made before", count(r.ChunksSkipped, "chunk"))
	}
	return text
}
