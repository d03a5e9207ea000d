package storage_test

import (
	"path/filepath"
	"testing"

	"semel/storage"
	"semel/storage/storagetest"
)

var importKey = storage.ImportKey{Source: "s", Name: "skus.csv"}

func getImport(t testing.TB, s *storage.Store) (im *storage.Import) {
	t.Helper()
	view(t, s, func(tx *storage.Tx) (err error) {
		im, err = tx.Import(importKey)
		return err
	})
	return im
}

// An import's chunks stand until it ends, also where it is begun again; its run
// is over when it has ended and its jobs are done, once.
func TestImport(t *testing.T) {
	s := storagetest.Open(t)
	begin := func() (run uint64) {
		update(t, s, func(tx *storage.Tx) error {
			r, err := tx.BeginImport(storage.Import{Key: importKey, Rows: 1})
			run = r.ID
			return err
		})
		return run
	}
	run := begin()
	n := target("a")
	n.Run = run
	enqueue(t, s, n)
	chunk := storage.ImportChunk{Rows: 1, Sum: [32]byte{1}}
	update(t, s, func(tx *storage.Tx) error { return tx.PutImportChunk(importKey, 0, chunk) })
	completeNext(t, s)
	if again := begin(); again != run || getImport(t, s).Chunks != 1 {
		t.Errorf("begun again: run %d after %d, %+v", again, run, getImport(t, s))
	}
	view(t, s, func(tx *storage.Tx) error {
		if c, err := tx.ImportChunk(importKey, 0); err != nil || c != chunk {
			t.Errorf("chunk %+v, %v", c, err)
		}
		_, err := tx.ImportChunk(importKey, 1)
		wantError(t, err, storage.ErrNotFound)
		return nil
	})
	if n := finishedEvents(t, s); n != 0 {
		t.Errorf("%d events before it ended", n)
	}
	update(t, s, func(tx *storage.Tx) error {
		ended, err := tx.EndImport(importKey, runSinks)
		if !ended {
			t.Error("it did not end")
		}
		return err
	})
	if im := getImport(t, s); im.Ended.IsZero() || im.Chunks != 0 || finishedEvents(t, s) != 1 {
		t.Errorf("%d events, %+v", finishedEvents(t, s), im)
	}
	if r := getRun(t, s, run); r.Jobs != 1 || r.Key != importKey.Run() || r.Kind != storage.RunImport {
		t.Errorf("run %+v", r)
	}
}

// Records of more chunks than one transaction should drop go in several.
func TestEndImportInSlices(t *testing.T) {
	const chunks = 4001
	s := storagetest.OpenAt(t, filepath.Join(t.TempDir(), "semel.db"), storage.Options{NoSync: true})
	update(t, s, func(tx *storage.Tx) error {
		_, err := tx.BeginImport(storage.Import{Key: importKey, Rows: chunks})
		for n := range uint32(chunks) {
			if err == nil {
				err = tx.PutImportChunk(importKey, n, storage.ImportChunk{Rows: 1})
			}
		}
		return err
	})
	for _, want := range []bool{false, false, true} {
		update(t, s, func(tx *storage.Tx) error {
			ended, err := tx.EndImport(importKey, nil)
			if ended != want {
				t.Errorf("ended: %v, want %v", ended, want)
			}
			return err
		})
		storagetest.Check(t, s)
	}
}

func TestPutImportChunkInOrder(t *testing.T) {
	s := storagetest.Open(t)
	put := func(n uint32) error {
		return s.Update(t.Context(), func(tx *storage.Tx) error { return tx.PutImportChunk(importKey, n, storage.ImportChunk{Rows: 1}) })
	}
	wantError(t, put(0), storage.ErrNotFound)
	update(t, s, func(tx *storage.Tx) error { _, err := tx.BeginImport(storage.Import{Key: importKey}); return err })
	if err := put(1); err == nil {
		t.Error("a chunk was put before the one before it")
	}
	if err := put(0); err != nil {
		t.Error(err)
	}
}
