// Package storagetest opens temporary stores for tests of other packages, and
// checks every invariant of each when its test ends.
package storagetest

import (
	"path/filepath"
	"testing"

	"semel/storage"
)

// The compressor of kept pages is made when it is first used and holds
// channels: made inside of one test's bubble it could not be used in another's.
func init() { storage.KeepPage([]byte("<p>warm</p>")) }

// Open opens a fresh store in a folder of the test's own. When the test ends,
// the store is checked and closed.
func Open(t testing.TB) *storage.Store {
	t.Helper()
	return OpenAt(t, filepath.Join(t.TempDir(), "semel.db"), storage.Options{})
}

// OpenAt is Open for a given file, which may exist.
func OpenAt(t testing.TB, path string, opts storage.Options) *storage.Store {
	t.Helper()
	s, err := storage.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.Err() == nil {
			Check(t, s)
		}
		if err := s.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return s
}

// Check fails the test for every breach in the store.
func Check(t testing.TB, s *storage.Store) {
	t.Helper()
	breaches, err := s.Check()
	if err != nil {
		t.Errorf("checking the store: %v", err)
	}
	for _, b := range breaches {
		t.Errorf("breach: %s", b)
	}
}
