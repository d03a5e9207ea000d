package cli

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
	"semel/storage"
)

const exportHelp = `Write a source's observations as JSON Lines, in the byte order of (record key,
country, window, version): the record, then _meta. With -o the file is replaced
as a whole or not at all, and FILE.manifest.json says count, sha256 and range; it
is never there beside another file than the one it describes.

With --append only what was created or got new content since the last time is
added to FILE, in the order in which that happened; the first time all there is.
Each revision that stood at one of the times is in it once. The store knows how
far FILE has come: what a command that was killed has left behind is cut off and
written again, and a FILE that is not what it was is an error. It needs a FILE of
its own, and goes with --data-only alone.

--window W takes only rows whose window begins in W: an instant, a date (that day
in UTC), or A..B (A is in it, B is not). --latest takes the newest of rows that
differ only in window and version.

--format csv writes a table with a header: the fields of the source's rules in
their order, an amount of money as NAME.amount and NAME.currency, then _meta. Lists
and objects are JSON. null and "" are both an empty cell. Text stays as it is:
what a spreadsheet would take for a formula is not rewritten. What rows of other
rules have besides is left out and told.

`

func (a *app) exportCommand() *cobra.Command {
	var r api.ExportRequest
	var path string
	var appends bool
	cmd := a.command(&cobra.Command{
		Use:               "export SOURCE [-o FILE [--append]] [--window W] [--latest] [--data-only] [--format jsonl|csv]",
		Short:             "Write a source's observations as JSON Lines or CSV",
		Long:              exportHelp + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		ValidArgsFunction: a.completeSource,
		Example: `  semel export catalog | head
  semel export catalog -o catalog.jsonl
  semel export catalog -o catalog.csv --format csv --data-only
  semel export catalog --window 2026-04-01..2026-05-01 --latest
  semel export catalog -o news.jsonl --append`,
		Args: exactArgs("SOURCE"),
	}, func(ctx context.Context, args []string) error {
		r.Source = args[0]
		switch {
		case appends:
			if err := checkAppend(r, path); err != nil {
				return err
			}
			return a.writing(ctx, a.appendFile(ctx, r, path))
		case path == "", path == "-":
			return a.reading(ctx, a.exportOut(ctx, r))
		}
		return a.reading(ctx, a.exportFile(ctx, r, path))
	})
	cmd.Flags().StringVarP(&path, "output", "o", "", "write to this `FILE`, with a manifest beside it; - is stdout")
	cmd.Flags().BoolVar(&appends, "append", false, "add to FILE what is new since the last time")
	cmd.Flags().StringVar(&r.Window, "window", "", "only rows whose window begins in `W`: an instant, a date or A..B")
	cmd.Flags().BoolVar(&r.Latest, "latest", false, "only the newest of rows that differ in window and version")
	cmd.Flags().BoolVar(&r.DataOnly, "data-only", false, "leave out _meta, and observations marked gone")
	cmd.Flags().StringVar((*string)(&r.Format), "format", string(api.FormatJSONL), "jsonl or csv")
	return cmd
}

func (a *app) exportOut(ctx context.Context, r api.ExportRequest) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		result, err := export(ctx, c, service, r, a.stdout)
		if err == nil {
			a.tellLost(result)
		}
		return err
	}
}

// tellLost says which fields a table has left out.
func (a *app) tellLost(result api.ExportResult) {
	if len(result.LeftOut) > 0 {
		a.notef("left out, for the source's rules have no such field now: %s", strings.Join(result.LeftOut, ", "))
	}
}

func (a *app) exportFile(ctx context.Context, r api.ExportRequest, path string) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		if err := refuseOwnFiles(c, path, path+manifestSuffix); err != nil {
			return err
		}
		m, result, err := writeExport(ctx, c, service, r, path)
		if err != nil {
			return err
		}
		a.tellLost(result)
		if a.json {
			return a.line(m)
		}
		a.notef("wrote %s to %s", count(m.Count, "line"), path)
		return nil
	}
}

// refuseOwnFiles keeps a command from replacing what it is made from by the
// files that it writes.
func refuseOwnFiles(c *config.Config, written ...string) error {
	own := []string{c.File, c.Store.Path}
	for i := range c.Sources {
		own = append(own, c.Sources[i].Targets.Path)
	}
	for i := range c.Sinks {
		own = append(own, c.Sinks[i].Path)
	}
	for _, out := range written {
		for _, file := range own {
			if sameFile(out, file) {
				return usage("give another file", "%s would replace %s", out, file)
			}
		}
	}
	return nil
}

// sameFile reports whether two names are of one file that exists.
func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func export(ctx context.Context, c *config.Config, service api.Service, r api.ExportRequest, w io.Writer) (api.ExportResult, error) {
	result, err := service.Export(ctx, r, w)
	return result, exportFault(c, r.Source, err)
}

// exportFault is the fault of a source that there is not, or of a request that
// is wrong; another error, or nil, stays.
func exportFault(c *config.Config, source string, err error) error {
	switch {
	case errors.Is(err, api.ErrUnknownSource):
		return sourceFault(c, source)
	case errors.Is(err, api.ErrBadRequest):
		return usage("see semel export --help", "%w", err)
	}
	return err
}

const manifestSuffix = ".manifest.json"

// manifest describes an exported file, so that whoever gets it can check it.
type manifest struct {
	Source   string       `json:"source"`
	Count    int          `json:"count"`  // rows: lines of JSON, or those of a table but its header
	SHA256   string       `json:"sha256"` // of the file's bytes, hex
	Range    *windowRange `json:"range"`  // null: no line has a window
	DataOnly bool         `json:"data_only"`
	Window   string       `json:"window,omitempty"` // as it was asked for
	Latest   bool         `json:"latest,omitempty"`
	Format   api.Format   `json:"format,omitempty"` // "": JSON Lines
}

// windowRange are the starts of the first and the last window.
type windowRange struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

func newManifest(r api.ExportRequest, result api.ExportResult, sum []byte) manifest {
	m := manifest{Source: r.Source, Count: result.Rows, SHA256: hex.EncodeToString(sum), DataOnly: r.DataOnly, Window: r.Window, Latest: r.Latest}
	if r.Format != api.FormatJSONL {
		m.Format = r.Format
	}
	if result.FirstWindow != nil {
		m.Range = &windowRange{*result.FirstWindow, *result.LastWindow}
	}
	return m
}

// writeExport replaces the file at path and its manifest: both are whole on the
// disk before either takes its name.
func writeExport(ctx context.Context, c *config.Config, service api.Service, r api.ExportRequest, path string) (m manifest, result api.ExportResult, err error) {
	path = followed(path)
	var files replacement
	defer func() { err = errors.Join(err, files.discard()) }()
	data, err := files.create(path)
	if err != nil {
		return m, result, err
	}
	hash := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(data, hash), 256<<10)
	if result, err = export(ctx, c, service, r, buffered); err != nil {
		return m, result, err
	}
	if err := buffered.Flush(); err != nil {
		return m, result, fmt.Errorf("writing %s: %w", path, err)
	}
	m = newManifest(r, result, hash.Sum(nil))
	if err := m.create(&files, path); err != nil {
		return m, result, err
	}
	return m, result, files.commit()
}

// create writes the manifest of the file at path among the files that get their
// names together.
func (m manifest) create(files *replacement, path string) error {
	about, err := files.create(path + manifestSuffix)
	if err != nil {
		return err
	}
	if _, err := about.Write(m.text()); err != nil {
		return fmt.Errorf("writing the manifest of %s: %w", path, err)
	}
	return nil
}

func (m manifest) text() []byte {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		panic(err) // it is made of text, numbers and times
	}
	return append(text, '\n')
}

// exportConfigFile is export -o of a config file, for demo.
func (a *app) exportConfigFile(ctx context.Context, configPath, source, path string) error {
	c, err := loadConfigFile(configPath, nil)
	if err != nil {
		return err
	}
	return a.withService(ctx, c, false, storage.Options{ReadOnly: true}, func(c *config.Config, service api.Service) error {
		_, _, err := writeExport(ctx, c, service, api.ExportRequest{Source: source}, path)
		return err
	})
}
