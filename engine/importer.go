package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"semel/engine/intake"
	"semel/storage"
)

// An import's chunk is this many rows, unless it is told otherwise; with more
// than MaxChunkRows the outcomes of running attempts would wait behind it for too
// long (storage notes §2.6: 5,000 rows keep their 99th percentile near 80 ms).
const (
	DefaultChunkRows = enqueueChunk
	MaxChunkRows     = 5000
)

const (
	// maxTold is how many bad rows are told one by one: a file of the wrong form
	// has a million of them.
	maxTold = 100
	// surveyStep is after how many rows the first pass tells how far it is.
	surveyStep = 10_000
)

// Importer makes jobs of the rows of a file.
//
// It reads the file twice. The first pass writes nothing: it holds each row
// against the source, and takes checksums. The second makes the jobs chunk by
// chunk; each chunk's jobs, its number of rows and its checksum commit together.
// A chunk that is there with the checksum of the rows as they are now is passed
// over, so an import that was killed goes on where it was. An import that has
// come to its end is remembered by the checksums of the whole; the same file
// again is then over after the first pass.
//
// A file is known by its base name: it is the same one in another folder, on
// another mount, or under a path as a daemon sees it. That two files have one
// name costs a notice that the file has changed, and nothing else.
type Importer struct {
	Store  *storage.Store
	Source *intake.Source
	Vars   []string               // that each row must have for what the source sends
	Record storage.Source         // of the source, as Register takes it
	Sinks  []storage.Subscription // of the source

	Path      string
	Window    time.Time // of the jobs; zero: none
	ChunkRows int       // from 1 to MaxChunkRows
	Strict    bool      // with a bad row nothing is written

	Tell func(ImportNews) error // called as the import goes on; its error ends it
}

// ImportNews is one thing that an import tells. One field is set.
type ImportNews struct {
	Bad      *intake.RowError // a row that cannot be a job; only the first 100 are told
	Changed  *ImportChanged
	Progress *ImportProgress
}

// ImportChanged says that the file of this name was another one before.
type ImportChanged struct {
	Since   time.Time // when that one was imported, or its import begun
	Ended   bool      // that import came to its end
	RowsWas int64     // rows of that one, bad ones included
	RowsNow int64
}

// ImportProgress is how far an import is.
type ImportProgress struct {
	Making bool  // jobs are made; else the rows are checked
	Rows   int64 // that this is done with
	Of     int64 // rows in all; estimated by the file's size while they are checked
}

// Imported says what an import did.
type Imported struct {
	SHA256 [sha256.Size]byte // of the file
	Rows   int64             // good and bad
	Bad    int64
	New    int64     // jobs made
	Known  int64     // good rows whose job was there before
	Chunks int64     // that were made
	Passed int64     // that stood already
	Before time.Time // the same file was imported then, and nothing was left to do; zero: it was not
}

// Run imports the file. When ctx ends it stops behind the chunk under way, with
// the cause. Errors: those of the file and the store.
func (im *Importer) Run(ctx context.Context) (Imported, error) {
	info, err := os.Stat(im.Path) // before it is opened: to open a pipe is to wait for its writer
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file: it is read twice", im.Path)
	}
	if err != nil {
		return Imported{}, fmt.Errorf("opening targets: %w", err)
	}
	file, err := os.Open(im.Path)
	if err != nil {
		return Imported{}, fmt.Errorf("opening targets: %w", err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	s, err := im.survey(ctx, file, info.Size())
	if err != nil {
		return Imported{}, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return Imported{}, fmt.Errorf("reading targets %s again: %w", im.Path, err)
	}
	result := Imported{SHA256: s.sha256, Rows: s.good + s.bad, Bad: s.bad}
	if im.Strict && s.bad > 0 {
		return result, nil
	}
	err = im.makeJobs(ctx, file, s, &result)
	return result, err
}

func (im *Importer) key() storage.ImportKey {
	return storage.ImportKey{Source: im.Source.Name, Window: im.Window, Name: filepath.Base(im.Path)}
}

// surveyed is what the first pass found.
type surveyed struct {
	good, bad    int64
	sha256, jobs [sha256.Size]byte // of the file, and of all jobs
}

// survey reads the file to its end, and writes nothing.
func (im *Importer) survey(ctx context.Context, file io.Reader, size int64) (s surveyed, err error) {
	jobs := sha256.New()
	var text []byte
	s.sha256, err = im.rows(ctx, file, func(r importRow) error {
		if r.bad == nil {
			s.good++
			text = appendJob(text[:0], &r.job)
			jobs.Write(text)
		} else if s.bad++; s.bad <= maxTold {
			if err := im.Tell(ImportNews{Bad: r.bad}); err != nil {
				return err
			}
		}
		if done := s.good + s.bad; done%surveyStep == 0 {
			return im.Tell(ImportNews{Progress: &ImportProgress{Rows: done, Of: done * size / max(1, r.read)}})
		}
		return nil
	})
	jobs.Sum(s.jobs[:0])
	return s, err
}

// makeJobs reads the file for the second time, and makes the jobs.
func (im *Importer) makeJobs(ctx context.Context, file io.Reader, s surveyed, result *Imported) error {
	run, err := im.begin(ctx, s, result)
	if err != nil || run == 0 {
		return err
	}
	if err := im.makeChunks(ctx, file, s, &jobMaker{Importer: im, run: run, of: s.good, result: result}); err != nil {
		return err
	}
	for ended := false; !ended; {
		err := im.Store.Update(ctx, func(tx *storage.Tx) (err error) {
			ended, err = tx.EndImport(im.key(), im.Sinks)
			return err
		})
		if err != nil {
			return fmt.Errorf("ending the import: %w", err)
		}
	}
	return nil
}

// makeChunks reads and looks up the next chunks while one commits, so that each is
// at hand for the writer's next transaction.
func (im *Importer) makeChunks(ctx context.Context, file io.Reader, s surveyed, m *jobMaker) error {
	chunks := make(chan *rowChunk, 1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(chunks)
		sum, err := im.chunks(ctx, file, func(c *rowChunk) error {
			if err := im.look(c); err != nil {
				return err
			}
			select {
			case chunks <- c:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		if err == nil && sum != s.sha256 {
			err = fmt.Errorf("%s has changed while it was imported: import it again", im.Path)
		}
		return err
	})
	group.Go(func() error {
		for c := range chunks {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := m.make(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// rowChunk is the jobs of some rows, none of which is bad.
type rowChunk struct {
	n    uint32 // its number, from 0
	jobs []storage.NewJob
	text []byte // what their checksum is of

	// Set by look.
	record storage.ImportChunk
	made   bool // it has been made before, whole; else jobs are those left to make
}

// chunks calls fn with the rows of the file, chunk by chunk, and gives the file's
// SHA-256.
func (im *Importer) chunks(ctx context.Context, file io.Reader, fn func(*rowChunk) error) (sum [sha256.Size]byte, err error) {
	c := &rowChunk{}
	flush := func() error {
		full := c
		c = &rowChunk{n: full.n + 1, jobs: make([]storage.NewJob, 0, len(full.jobs)), text: make([]byte, 0, len(full.text))}
		return fn(full)
	}
	sum, err = im.rows(ctx, file, func(r importRow) error {
		if r.bad != nil {
			return nil // it has been told
		}
		c.text = appendJob(c.text, &r.job)
		if c.jobs = append(c.jobs, r.job); len(c.jobs) < im.ChunkRows {
			return nil
		}
		return flush()
	})
	if err == nil && len(c.jobs) > 0 {
		err = flush()
	}
	return sum, err
}

// begin compares the file with what is known under its name, notes that it is
// being imported, and gives the run of its jobs; 0: nothing is left to do.
func (im *Importer) begin(ctx context.Context, s surveyed, result *Imported) (run uint64, err error) {
	var was *storage.Import
	err = im.Store.View(func(tx *storage.Tx) (err error) {
		was, err = tx.Import(im.key())
		return err
	})
	switch {
	case errors.Is(err, storage.ErrNotFound):
	case err != nil:
		return 0, fmt.Errorf("looking up earlier imports: %w", err)
	case was.SHA256 != s.sha256:
		if err := im.Tell(ImportNews{Changed: newImportChanged(was, s)}); err != nil {
			return 0, err
		}
	case was.Jobs == s.jobs && !was.Ended.IsZero():
		result.Before, result.Known = was.Ended, s.good
		return 0, nil
	}
	err = im.Store.Update(ctx, func(tx *storage.Tx) error {
		if err := Register(tx, im.Record); err != nil {
			return err
		}
		r, err := tx.BeginImport(storage.Import{Key: im.key(), SHA256: s.sha256, Jobs: s.jobs, Rows: uint64(s.good), Bad: uint64(s.bad)})
		if err == nil {
			run = r.ID
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("beginning the import: %w", err)
	}
	return run, nil
}

func newImportChanged(was *storage.Import, s surveyed) *ImportChanged {
	c := &ImportChanged{Since: was.Began, RowsWas: int64(was.Rows + was.Bad), RowsNow: s.good + s.bad}
	if !was.Ended.IsZero() {
		c.Since, c.Ended = was.Ended, true
	}
	return c
}

// look finds the jobs of a chunk that are not there as they should be, beside the
// writer.
func (im *Importer) look(c *rowChunk) error {
	c.record = storage.ImportChunk{Rows: uint32(len(c.jobs)), Sum: sha256.Sum256(c.text)}
	return im.Store.View(func(tx *storage.Tx) error {
		was, err := tx.ImportChunk(im.key(), c.n)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		if c.made = err == nil && was == c.record; c.made {
			return nil
		}
		c.jobs, err = unknownJobs(tx, c.jobs)
		return err
	})
}

// jobMaker makes jobs chunk by chunk.
type jobMaker struct {
	*Importer
	run    uint64
	of     int64 // good rows in all
	result *Imported
}

// make makes the jobs of a chunk, unless that was done before.
func (m *jobMaker) make(ctx context.Context, c *rowChunk) error {
	made := 0
	if c.made {
		m.result.Passed++
	} else {
		var err error
		if made, err = m.commit(ctx, c); err != nil {
			return fmt.Errorf("making jobs: %w", err)
		}
		m.result.Chunks++
	}
	m.result.New += int64(made)
	m.result.Known += int64(c.record.Rows) - int64(made)
	return m.Tell(ImportNews{Progress: &ImportProgress{Making: true, Rows: m.result.New + m.result.Known, Of: m.of}})
}

// commit makes jobs, and notes that their chunk is made, in one transaction.
func (m *jobMaker) commit(ctx context.Context, c *rowChunk) (made int, err error) {
	err = m.Store.Update(ctx, func(tx *storage.Tx) error {
		for i := range c.jobs {
			c.jobs[i].Run = m.run
		}
		if made, err = enqueueJobs(tx, c.jobs); err != nil {
			return err
		}
		return tx.PutImportChunk(m.key(), c.n, c.record)
	})
	return made, err
}

// importRow is one row of the file.
type importRow struct {
	job  storage.NewJob
	bad  *intake.RowError // why it can be no job; nil: job is that of the row
	read int64            // bytes of the file read by now
}

// rows calls fn with every row of the file, and gives the file's SHA-256.
func (im *Importer) rows(ctx context.Context, file io.Reader, fn func(importRow) error) (sum [sha256.Size]byte, err error) {
	kind, ok := intake.KindOf(im.Path)
	if !ok {
		return sum, fmt.Errorf("%s is no file of targets: its name ends in none of .csv, .jsonl and .txt", im.Path)
	}
	in := &summed{in: file, sum: sha256.New()}
	targets, err := intake.NewReader(kind, im.Path, in)
	if err != nil {
		return sum, err
	}
	if err := im.checkColumns(targets.Vars()); err != nil {
		return sum, err
	}
	for ctx.Err() == nil {
		target, err := targets.Next()
		if err == io.EOF {
			return [sha256.Size]byte(in.sum.Sum(nil)), nil
		}
		r := importRow{read: in.n}
		if err == nil {
			r.job, err = im.job(target)
		}
		if bad, ok := errors.AsType[*intake.RowError](err); ok {
			r.bad, err = bad, nil
		}
		if err == nil {
			err = fn(r)
		}
		if err != nil {
			return sum, err
		}
	}
	return sum, context.Cause(ctx)
}

// job makes the job of a row, which must have all that the source sends.
func (im *Importer) job(t intake.Target) (storage.NewJob, error) {
	for _, name := range im.Vars {
		if _, ok := t.Vars.Get(name); !ok {
			return storage.NewJob{}, &intake.RowError{File: t.File, Line: t.Line, Reason: fmt.Sprintf("variable %q is missing", name)}
		}
	}
	return im.Source.NewJob(t, im.Window)
}

// checkColumns refuses a file in which every row would be a bad one. nil:
// the columns are not known.
func (im *Importer) checkColumns(names []string) error {
	if names == nil {
		return nil
	}
	for _, name := range im.Vars {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%s has no column %q, which source %s needs (it has: %s)", im.Path, name, im.Source.Name, strings.Join(names, ", "))
		}
	}
	return nil
}

// summed is a reader that takes the SHA-256 of what is read through it.
type summed struct {
	in  io.Reader
	sum hash.Hash
	n   int64
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	s.sum.Write(p[:n])
	s.n += int64(n)
	return n, err
}

// appendJob appends all that makes a job this one and no other, for a checksum:
// another config makes other jobs of the same row.
func appendJob(b []byte, n *storage.NewJob) []byte {
	for _, text := range []string{n.Key.String(), n.URL, n.Host, n.Country, n.Scope} {
		b = appendText(b, text)
	}
	b = binary.AppendUvarint(b, uint64(n.Version))
	b = append(b, byte(n.Priority))
	b = binary.AppendUvarint(b, uint64(len(n.Vars)))
	for _, v := range n.Vars {
		b = appendText(appendText(b, v.Name), v.Value)
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}
