package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"

	"semel/storage"
	"semel/storage/storagetest"
)

// realStore is the file of a store with some work in it, as a clean or an
// unclean exit leaves it.
func realStore(t *testing.T, clean bool) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "semel.db")
	s, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 40 {
		enqueue(t, s, target(fmt.Sprint("a", i)), target(fmt.Sprint("b", i)))
		j := claimOne(t, s)
		update(t, s, func(tx *storage.Tx) error {
			_, err := tx.CompleteJob(j.Lease(), record(storage.WriteUpsert, 1, j.Key.Target, "x"))
			return err
		})
	}
	if clean {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// write makes a file with the given content.
func write(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "semel.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenRefuses(t *testing.T) {
	junk := bytes.Repeat([]byte("not a store "), 4_000)
	halfMeta := realStore(t, true)
	for i := range 8192 {
		halfMeta[i] ^= 0x55
	}
	for name, c := range map[string]struct {
		path string
		want error
	}{
		"empty":       {write(t, nil), storage.ErrUnreadable},
		"short":       {write(t, []byte("x")), storage.ErrUnreadable},
		"zeros":       {write(t, make([]byte, 1<<16)), storage.ErrUnreadable},
		"junk":        {write(t, junk), storage.ErrUnreadable},
		"meta pages":  {write(t, halfMeta), storage.ErrUnreadable},
		"folder":      {t.TempDir(), storage.ErrUnreadable},
		"no folder":   {filepath.Join(t.TempDir(), "none", "semel.db"), fs.ErrNotExist},
		"foreign":     {boltFile(t, "theirs", nil), storage.ErrUnreadable},
		"no schema":   {boltFile(t, "meta", nil), storage.ErrUnreadable},
		"newer":       {boltFile(t, "meta", []byte{0, 0, 0, storage.Schema + 1}), storage.ErrNewerSchema},
		"no buckets":  {boltFile(t, "meta", []byte{0, 0, 0, storage.Schema}), storage.ErrUnreadable},
		"odd version": {boltFile(t, "meta", []byte{1}), storage.ErrUnreadable},
	} {
		for _, readOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, read only %v", name, readOnly), func(t *testing.T) {
				before, _ := os.ReadFile(c.path)
				s, err := storage.Open(c.path, storage.Options{ReadOnly: readOnly})
				if err == nil {
					s.Close()
				}
				if want := c.want; !errors.Is(err, want) && !(readOnly && want == fs.ErrNotExist && errors.Is(err, storage.ErrNotFound)) {
					t.Errorf("error %v, want %v", err, want)
				}
				if after, _ := os.ReadFile(c.path); !bytes.Equal(before, after) {
					t.Error("the file has changed")
				}
			})
		}
	}
}

// boltFile is a bbolt file with one bucket, and in it a schema version.
func boltFile(t *testing.T, bucket string, schema []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "semel.db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte(bucket))
		if err == nil && schema != nil {
			err = b.Put([]byte("schema"), schema)
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	_, err := storage.Open(path, storage.Options{ReadOnly: true})
	wantError(t, err, storage.ErrNotFound)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening for reading left a file: %v", err)
	}
	s := storagetest.OpenAt(t, path, storage.Options{})
	if s.Path() != path {
		t.Errorf("path %s, want %s", s.Path(), path)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Fatalf("creating left %v (%v)", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
}

// TestOpenCut: a store cut at any page is refused or opens; it never crashes
// the program, and what is refused stays as it is.
func TestOpenCut(t *testing.T) {
	for _, clean := range []bool{true, false} {
		whole := realStore(t, clean)
		used := len(bytes.TrimRight(whole, "\x00")) // the file grows ahead of its pages
		whole = whole[:(used/4096+2)*4096]
		opened := 0
		for size := 0; size <= len(whole); size += 4096 {
			path := write(t, whole[:size])
			s, err := storage.Open(path, storage.Options{NoSync: true})
			switch {
			case err == nil:
				opened++
				storagetest.Check(t, s)
				if err := s.Close(); err != nil {
					t.Errorf("closing a store cut at %d: %v", size, err)
				}
			case !errors.Is(err, storage.ErrUnreadable):
				t.Errorf("cut at %d: %v", size, err)
			}
		}
		if opened == 0 {
			t.Error("not even the whole file opens")
		}
	}
}

// TestOpenTornMeta: one broken meta page is what a crash may leave; the other
// one is the store.
func TestOpenTornMeta(t *testing.T) {
	for page := range 2 {
		content := realStore(t, false)
		content[page*4096+40] ^= 1
		storagetest.OpenAt(t, write(t, content), storage.Options{NoSync: true})
	}
}

// TestOpenAfterUncleanExit: without its list of free pages a store opens with
// all that was committed, and goes on.
func TestOpenAfterUncleanExit(t *testing.T) {
	s := storagetest.OpenAt(t, write(t, realStore(t, false)), storage.Options{})
	if c := counters(t, s, "s"); c.State(storage.StateComplete) != 40 || c.State(storage.StatePending) != 40 {
		t.Errorf("counters %v", c)
	}
	if e := enqueue(t, s, target("next")); e[0].ID != 81 {
		t.Errorf("next id %d, want 81", e[0].ID)
	}
}

func TestOpenInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the wait for the lock passes at once
		path := filepath.Join(t.TempDir(), "semel.db")
		s := storagetest.OpenAt(t, path, storage.Options{NoSync: true})
		enqueue(t, s, target("a"))
		for _, readOnly := range []bool{false, true} {
			began := time.Now()
			_, err := storage.Open(path, storage.Options{ReadOnly: readOnly})
			wantError(t, err, storage.ErrInUse)
			if waited := time.Since(began); waited > 2*time.Second {
				t.Errorf("it waited %s", waited)
			}
		}
	})
}

func TestOpenReadOnly(t *testing.T) {
	path := write(t, realStore(t, true))
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	one, err := storage.Open(path, storage.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	two, err := storage.Open(path, storage.Options{ReadOnly: true})
	if err != nil {
		t.Fatal("a second reader: ", err)
	}
	storagetest.Check(t, one)
	wantError(t, one.Update(context.Background(), func(*storage.Tx) error { return nil }), fs.ErrPermission)
	if n := len(observations(t, two, "s")); n != 40 {
		t.Errorf("%d observations, want 40", n)
	}
	if err := errors.Join(one.Close(), two.Close()); err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("reading has changed the file (%v)", err)
	}
}

// TestConcurrentCreators: of many that create at once one has the store, the
// others find it in use, and nothing else is left in the folder.
func TestConcurrentCreators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "semel.db")
		const creators = 8
		stores, errs := make(chan *storage.Store, creators), make(chan error, creators)
		for range creators {
			go func() {
				s, err := storage.Open(path, storage.Options{NoSync: true})
				if err != nil {
					errs <- err
					return
				}
				stores <- s
			}()
		}
		for range creators - 1 {
			wantError(t, <-errs, storage.ErrInUse)
		}
		s := <-stores
		enqueue(t, s, target("a"))
		storagetest.Check(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
			t.Errorf("the folder holds %v (%v)", entries, err)
		}
	})
}
