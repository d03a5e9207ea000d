package storage

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"
)

// ImportKey is what makes an import this import: what was imported, and for
// which window.
type ImportKey struct {
	Source string
	Window time.Time // start, UTC, whole seconds; zero: none
	Name   string    // of what was imported, such as a file's
}

// String is source:window:name, written as a run's key.
func (k ImportKey) String() string { return RunKey{k.Source, k.Window, k.Name}.String() }

// Run is the key of the run that the import's jobs belong to.
func (k ImportKey) Run() RunKey {
	if k.Window.IsZero() {
		return RunKey{Source: k.Source, Import: k.Name}
	}
	return RunKey{Source: k.Source, Window: k.Window}
}

// Import is what the store remembers of a file that was imported.
type Import struct {
	Key    ImportKey
	SHA256 [sha256.Size]byte // of the file
	Jobs   [sha256.Size]byte // of the jobs that its rows become: another one for the same file after a change of the config
	Rows   uint64            // that can be jobs
	Bad    uint64            // that cannot
	Chunks uint32            // of it that have become jobs; 0 once it has ended
	Began  time.Time         // set by BeginImport
	Ended  time.Time         // set by EndImport; zero: it has not come to its end
}

// ImportChunk is a part of an import that has become jobs, whole.
type ImportChunk struct {
	Rows uint32            // at least 1
	Sum  [sha256.Size]byte // of the jobs that they became
}

const (
	importVersion      = 2 // the first is sealed
	importChunkVersion = 2 // the first is sealed
)

// chunkSlice is how many chunks' records one transaction drops: more would hold
// up the others (storage notes §5.2).
const chunkSlice = 2000

func (im *Import) encode() []byte {
	e := newEncoder(importVersion, 160)
	e.text(im.Key.Source)
	e.time(im.Key.Window)
	e.text(im.Key.Name)
	e.bytes(im.SHA256[:])
	e.bytes(im.Jobs[:])
	e.u64(im.Rows)
	e.u64(im.Bad)
	e.u32(im.Chunks)
	e.time(im.Began)
	e.time(im.Ended)
	return e.sealed()
}

func decodeImport(key, b []byte) (*Import, error) {
	d := newDecoder(importVersion, b)
	im := &Import{Key: ImportKey{Source: d.text(), Window: d.time(), Name: d.text()}}
	copy(im.SHA256[:], d.raw())
	copy(im.Jobs[:], d.raw())
	im.Rows, im.Bad, im.Chunks = d.u64(), d.u64(), d.u32()
	im.Began, im.Ended = d.time(), d.time()
	if err := d.done(); err != nil {
		return nil, &RecordError{bucketNames[bucketImport], bytes.Clone(key), err}
	}
	return im, nil
}

func (c ImportChunk) encode() []byte {
	e := newEncoder(importChunkVersion, 48)
	e.u32(c.Rows)
	e.bytes(c.Sum[:])
	return e.sealed()
}

func decodeImportChunk(key, b []byte) (c ImportChunk, err error) {
	d := newDecoder(importChunkVersion, b)
	c.Rows = d.u32()
	copy(c.Sum[:], d.raw())
	if err := d.done(); err != nil {
		return c, &RecordError{bucketNames[bucketImportChunk], bytes.Clone(key), err}
	}
	return c, nil
}

// importChunkKey is the place of a chunk; an import's key holds no zero byte.
func importChunkKey(key ImportKey, n uint32) []byte {
	return appendU32(append([]byte(key.String()), 0), n)
}

// Import reads an import. Error: ErrNotFound.
func (tx *Tx) Import(key ImportKey) (*Import, error) {
	text := []byte(key.String())
	v := tx.get(bucketImport, text)
	if v == nil {
		return nil, fmt.Errorf("import %s: %w", text, ErrNotFound)
	}
	return decodeImport(text, v)
}

// OpenImports are the imports of a run that have begun and have not come to their
// end, by name: they are under way, or were cut short.
func (tx *Tx) OpenImports(r *Run) ([]*Import, error) {
	run := r.Key.String()
	prefix := []byte(strings.TrimSuffix(run, "-")) // in the place of the name, where there is a window
	var open []*Import
	c := tx.bucket(bucketImport).Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		im, err := decodeImport(k, v)
		if err != nil {
			return nil, err
		}
		if im.Ended.IsZero() && im.Key.Run().String() == run {
			open = append(open, im)
		}
	}
	return open, nil
}

func (tx *Tx) saveImport(im *Import) error {
	return tx.put(bucketImport, []byte(im.Key.String()), im.encode())
}

// BeginImport notes that a file is being imported, and gives the run that its
// jobs belong to. What an earlier import under this key has made of its chunks
// stands where that one did not come to its end.
func (tx *Tx) BeginImport(im Import) (*Run, error) {
	switch was, err := tx.Import(im.Key); {
	case err == nil:
		im.Chunks = was.Chunks
	case !isNotFound(err):
		return nil, err
	}
	im.Began, im.Ended = tx.Now, noTime
	if err := tx.saveImport(&im); err != nil {
		return nil, err
	}
	r, err := tx.OpenRun(im.Key.Run(), RunImport)
	if err != nil {
		return nil, err
	}
	tx.BeginListing(r)
	return r, nil
}

// ImportChunk reads what was made of chunk n, counted from 0. Error:
// ErrNotFound.
func (tx *Tx) ImportChunk(key ImportKey, n uint32) (ImportChunk, error) {
	k := importChunkKey(key, n)
	v := tx.get(bucketImportChunk, k)
	if v == nil {
		return ImportChunk{}, fmt.Errorf("chunk %d of import %s: %w", n, key, ErrNotFound)
	}
	return decodeImportChunk(k, v)
}

// PutImportChunk notes what has become of chunk n, at most the number of those
// that were noted before. It belongs into the transaction that makes the jobs.
func (tx *Tx) PutImportChunk(key ImportKey, n uint32, c ImportChunk) error {
	im, err := tx.Import(key)
	switch {
	case err != nil:
		return err
	case n > im.Chunks:
		return fmt.Errorf("chunk %d of import %s: only %d stand before it", n, key, im.Chunks)
	case n == im.Chunks:
		im.Chunks++
		if err := tx.saveImport(im); err != nil {
			return err
		}
	}
	return tx.put(bucketImportChunk, importChunkKey(key, n), c.encode())
}

// EndImport notes that all rows of an import have become jobs, and drops the
// records of its chunks, which are of no more use. Where they are too many for
// one transaction it drops some, the last ones first, and gives false: call it
// again in another one. sinks are those of the source.
func (tx *Tx) EndImport(key ImportKey, sinks []Subscription) (ended bool, err error) {
	im, err := tx.Import(key)
	if err != nil {
		return false, err
	}
	for n := 0; im.Chunks > 0 && n < chunkSlice; n++ {
		im.Chunks--
		if err := tx.remove(bucketImportChunk, importChunkKey(key, im.Chunks)); err != nil {
			return false, err
		}
	}
	if im.Chunks > 0 {
		return false, tx.saveImport(im)
	}
	im.Ended = tx.Now
	if err := tx.saveImport(im); err != nil {
		return false, err
	}
	r, err := tx.RunByKey(key.Run())
	if err != nil {
		return false, err
	}
	return true, tx.EndListing(r, sinks)
}
