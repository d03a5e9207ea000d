package api

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"semel/engine"
	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

// ImportRequest says what to import and how.
type ImportRequest struct {
	Source    string `json:"source"`
	Path      string `json:"path"`             // absolute; ends in .csv, .jsonl or .txt
	Window    string `json:"window,omitempty"` // as intake.ParseWindow reads it; "": none
	ChunkRows int    `json:"chunk_rows"`
	Strict    bool   `json:"strict"` // with a bad row nothing is written
}

// ImportNews is one thing that an import tells. One field is set.
type ImportNews struct {
	Bad      *BadRow         `json:"bad,omitempty"` // only the first 100 are told
	Changed  *ImportChanged  `json:"changed,omitempty"`
	Progress *ImportProgress `json:"progress,omitempty"`
}

// BadRow is a row that cannot be a job.
type BadRow struct {
	Line   int    `json:"line"` // first line of the row, from 1
	Reason string `json:"reason"`
}

// ImportChanged says that the file of this name was another one before.
type ImportChanged struct {
	Since   time.Time `json:"since"`    // when that one was imported, or its import begun
	Ended   bool      `json:"ended"`    // that import came to its end
	RowsWas int64     `json:"rows_was"` // of that one, bad ones included
	RowsNow int64     `json:"rows_now"`
}

// ImportProgress is how far an import is.
type ImportProgress struct {
	Making bool  `json:"making"` // jobs are made; else the rows are checked
	Rows   int64 `json:"rows"`   // that this is done with
	Of     int64 `json:"of"`     // in all; estimated while they are checked
}

// ImportResult says what an import did.
type ImportResult struct {
	Path          string     `json:"path"`
	SHA256        string     `json:"sha256"`  // of the file, hex
	Windows       int        `json:"windows"` // that jobs were made for; 0: jobs without a window
	Rows          int64      `json:"rows"`    // good and bad
	New           int64      `json:"new"`     // jobs made
	Known         int64      `json:"known"`   // jobs of good rows that were there before
	Bad           int64      `json:"bad"`
	Chunks        int64      `json:"chunks"`         // that were made
	ChunksSkipped int64      `json:"chunks_skipped"` // that an earlier import of this file had made
	Before        *time.Time `json:"before"`         // when the same file was imported, and nothing was left to do; null: it was not
	Refused       bool       `json:"refused"`        // strict, and there are bad rows: nothing was written
}

// Import implements Service.
func (l *Local) Import(ctx context.Context, r ImportRequest, fn func(ImportNews) error) (ImportResult, error) {
	s := l.Config.Source(r.Source)
	if s == nil {
		return ImportResult{}, fmt.Errorf("%w %q: its settings are needed", ErrUnknownSource, r.Source)
	}
	if err := r.check(); err != nil {
		return ImportResult{}, err
	}
	windows, err := r.windows(s)
	if err != nil {
		return ImportResult{}, err
	}
	name := importName{r.Source, filepath.Base(r.Path)}
	if _, busy := l.importing.LoadOrStore(name, nil); busy {
		return ImportResult{}, fmt.Errorf("importing %s into %s: %w", name.file, r.Source, ErrImporting)
	}
	defer l.importing.Delete(name)
	result := ImportResult{Path: r.Path}
	for i, window := range windows {
		if i > 0 {
			fn = onlyProgress(fn) // of the file itself all is told
		}
		done, err := l.importer(s, r, window, fn).Run(ctx)
		if l.Engine != nil && errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("the semel run that holds the store reads the file: %w", err)
		}
		if err != nil {
			return result, err
		}
		result.add(done, window)
		if result.Refused = r.Strict && done.Bad > 0; result.Refused {
			break
		}
	}
	return result, nil
}

// importName is what is under way once at a time.
type importName struct{ source, file string }

// imports reports whether an import is under way in this process.
func (l *Local) imports(key storage.ImportKey) bool {
	_, busy := l.importing.Load(importName{key.Source, key.Name})
	return busy
}

// windows are the starts of the windows to make jobs for; one zero time: none.
func (r *ImportRequest) windows(s *config.Source) ([]time.Time, error) {
	if r.Window == "" {
		return []time.Time{{}}, nil
	}
	w, err := intake.ParseWindow(r.Window)
	if err != nil {
		return nil, badRequest("%w", err)
	}
	starts, err := w.Starts(s.Schedule)
	if err != nil {
		return nil, err
	}
	if len(starts) == 0 {
		return nil, badRequest("the schedule of source %s has no window in %s", s.Name, r.Window)
	}
	return starts, nil
}

func onlyProgress(fn func(ImportNews) error) func(ImportNews) error {
	return func(n ImportNews) error {
		if n.Progress == nil {
			return nil
		}
		return fn(n)
	}
}

func (r *ImportRequest) check() error {
	switch _, ok := intake.KindOf(r.Path); {
	case !filepath.IsAbs(r.Path):
		return badRequest("an import needs an absolute path (got %q)", r.Path)
	case !ok:
		return badRequest("a file to import ends in .csv, .jsonl or .txt (got %q)", r.Path)
	case r.ChunkRows < 1 || r.ChunkRows > engine.MaxChunkRows:
		return badRequest("a chunk has 1 to %d rows (got %d)", engine.MaxChunkRows, r.ChunkRows)
	}
	return nil
}

func (l *Local) importer(s *config.Source, r ImportRequest, window time.Time, fn func(ImportNews) error) *engine.Importer {
	return &engine.Importer{
		Store: l.Store, Source: &s.Source, Vars: s.RowVars(),
		Record: stored(s), Sinks: s.Sinks,
		Path: r.Path, Window: window, ChunkRows: r.ChunkRows, Strict: r.Strict,
		Tell: func(n engine.ImportNews) error { return fn(newImportNews(n)) },
	}
}

func newImportNews(n engine.ImportNews) ImportNews {
	news := ImportNews{Changed: (*ImportChanged)(n.Changed), Progress: (*ImportProgress)(n.Progress)}
	if n.Bad != nil {
		news.Bad = &BadRow{n.Bad.Line, n.Bad.Reason}
	}
	return news
}

// add adds what was made of the file for one window.
func (r *ImportResult) add(done engine.Imported, window time.Time) {
	first := r.SHA256 == ""
	r.SHA256, r.Rows, r.Bad = hex.EncodeToString(done.SHA256[:]), done.Rows, done.Bad
	r.New += done.New
	r.Known += done.Known
	r.Chunks += done.Chunks
	r.ChunksSkipped += done.Passed
	if first || done.Before.IsZero() {
		r.Before = when(done.Before)
	}
	if !window.IsZero() {
		r.Windows++
	}
}
