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
	"time"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
	"semel/storage"
)

func (a *app) exportCommand() *cobra.Command {
	var r api.ExportRequest
	var path string
	cmd := a.command(&cobra.Command{
		Use:   "export SOURCE [-o FILE] [--data-only]",
		Short: "Write a source's observations as JSON Lines",
		Long: `Write a source's observations as JSON Lines, in the byte order of (record key,
country, window, version): the record, then _meta. With -o the file is replaced
as a whole or not at all, and FILE.manifest.json says count, sha256 and range; it
is never there beside another file than the one it describes.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		ValidArgsFunction: a.completeSource,
		Example:           "  semel export catalog | head\n  semel export catalog -o catalog.jsonl\n  semel export catalog --data-only",
		Args:              exactArgs("SOURCE"),
	}, func(ctx context.Context, args []string) error {
		r.Source = args[0]
		if path == "" {
			return a.reading(ctx, a.exportOut(ctx, r))
		}
		return a.reading(ctx, a.exportFile(ctx, r, path))
	})
	cmd.Flags().StringVarP(&path, "output", "o", "", "write to this `FILE`, with a manifest beside it")
	cmd.Flags().BoolVar(&r.DataOnly, "data-only", false, "leave out _meta, and observations marked gone")
	return cmd
}

func (a *app) exportOut(ctx context.Context, r api.ExportRequest) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		_, err := export(ctx, c, service, r, a.stdout)
		return err
	}
}

func (a *app) exportFile(ctx context.Context, r api.ExportRequest, path string) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) error {
		if err := refuseOwnFiles(c, path, path+manifestSuffix); err != nil {
			return err
		}
		m, err := writeExport(ctx, c, service, r, path)
		if err != nil {
			return err
		}
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
	if errors.Is(err, api.ErrUnknownSource) {
		err = sourceFault(c, r.Source)
	}
	return result, err
}

const manifestSuffix = ".manifest.json"

// manifest describes an exported file, so that whoever gets it can check it.
type manifest struct {
	Source   string       `json:"source"`
	Count    int          `json:"count"`  // lines
	SHA256   string       `json:"sha256"` // of the file's bytes, hex
	Range    *windowRange `json:"range"`  // null: no line has a window
	DataOnly bool         `json:"data_only"`
}

// windowRange are the starts of the first and the last window.
type windowRange struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

func newManifest(r api.ExportRequest, result api.ExportResult, sum []byte) manifest {
	m := manifest{Source: r.Source, Count: result.Rows, SHA256: hex.EncodeToString(sum), DataOnly: r.DataOnly}
	if result.FirstWindow != nil {
		m.Range = &windowRange{*result.FirstWindow, *result.LastWindow}
	}
	return m
}

// writeExport replaces the file at path and its manifest: both are whole on the
// disk before either takes its name.
func writeExport(ctx context.Context, c *config.Config, service api.Service, r api.ExportRequest, path string) (m manifest, err error) {
	path = followed(path)
	var files replacement
	defer func() { err = errors.Join(err, files.discard()) }()
	data, err := files.create(path)
	if err != nil {
		return m, err
	}
	hash := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(data, hash), 256<<10)
	result, err := export(ctx, c, service, r, buffered)
	if err != nil {
		return m, err
	}
	if err := buffered.Flush(); err != nil {
		return m, fmt.Errorf("writing %s: %w", path, err)
	}
	m = newManifest(r, result, hash.Sum(nil))
	about, err := files.create(path + manifestSuffix)
	if err != nil {
		return m, err
	}
	enc := json.NewEncoder(about)
	enc.SetIndent("", "  ")
	if err := enc.Encode(m); err != nil {
		return m, fmt.Errorf("writing the manifest of %s: %w", path, err)
	}
	return m, files.commit()
}

// exportConfigFile is export -o of a config file, for demo.
func (a *app) exportConfigFile(ctx context.Context, configPath, source, path string) error {
	c, err := loadConfigFile(configPath, nil)
	if err != nil {
		return err
	}
	return withService(ctx, c, false, storage.Options{ReadOnly: true}, func(c *config.Config, service api.Service) error {
		_, err := writeExport(ctx, c, service, api.ExportRequest{Source: source}, path)
		return err
	})
}
