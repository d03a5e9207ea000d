package storage_test

import (
	"path/filepath"
	"testing"
	"time"

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

// A run is not over while a list or an import still offers it targets, whichever
// ends first.
func TestImportBesideList(t *testing.T) {
	begin := func(name string, window time.Time) func(*storage.Tx) error {
		return func(tx *storage.Tx) error {
			_, err := tx.BeginImport(storage.Import{Key: storage.ImportKey{Source: "s", Window: window, Name: name}})
			return err
		}
	}
	end := func(name string) func(*storage.Tx) error {
		return func(tx *storage.Tx) error {
			_, err := tx.EndImport(storage.ImportKey{Source: "s", Window: modelWindows[2], Name: name}, runSinks)
			return err
		}
	}
	offerList := func(tx *storage.Tx) error {
		l, err := tx.OpenList("s", storage.RunTick)
		if err != nil {
			return err
		}
		_, err = tx.OfferWindow(l, modelWindows[2])
		return err
	}
	endList := func(tx *storage.Tx) error {
		r, err := tx.RunByKey(storage.RunKey{Source: "s", Window: modelWindows[2]})
		if err != nil {
			return err
		}
		lists, err := tx.Lists("s")
		if err != nil {
			return err
		}
		_, err = tx.ChunkMade(lists[0], r, runSinks)
		return err
	}
	window := modelWindows[2]
	for name, steps := range map[string][]func(*storage.Tx) error{
		"list first":     {offerList, begin("a", window), endList, end("a")},
		"import first":   {begin("a", window), offerList, end("a"), endList},
		"two imports":    {begin("a", window), begin("ab", window), end("ab"), end("a")},
		"another window": {begin("a", modelWindows[1]), begin("a", window), end("a")},
	} {
		t.Run(name, func(t *testing.T) {
			s := storagetest.Open(t)
			for i, step := range steps {
				if n := finishedEvents(t, s); n != 0 {
					t.Fatalf("it was over before step %d", i)
				}
				update(t, s, step)
				storagetest.Check(t, s)
			}
			if n := finishedEvents(t, s); n != 1 {
				t.Errorf("%d events at the end", n)
			}
		})
	}
}

// What is imported without a window is a run of its own.
func TestOpenImports(t *testing.T) {
	s := storagetest.Open(t)
	for _, name := range []string{"skus.csv", "skus.csv2", "-"} {
		update(t, s, func(tx *storage.Tx) error {
			_, err := tx.BeginImport(storage.Import{Key: storage.ImportKey{Source: "s", Name: name}})
			return err
		})
	}
	view(t, s, func(tx *storage.Tx) error {
		r, err := tx.RunByKey(importKey.Run())
		if err != nil {
			return err
		}
		open, err := tx.OpenImports(r)
		if len(open) != 1 || open[0].Key != importKey {
			t.Errorf("open imports %+v", open)
		}
		return err
	})
}
