package storage_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

// TestHostGates: a gate only moves on, outlives the process, and is forgotten
// when it is over.
func TestHostGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "semel.db")
		s, err := storage.Open(path, storage.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().UTC()
		gate := func(host string, in time.Duration) {
			update(t, s, func(tx *storage.Tx) error { return tx.GateHost(host, now.Add(in)) })
		}
		gate("a", time.Minute)
		gate("a", time.Second) // earlier: changes nothing
		gate("b", time.Second)
		gate("b", time.Hour)
		gate("c", time.Second)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = storagetest.OpenAt(t, path, storage.Options{NoSync: true})
		want := func(want map[string]time.Time) {
			t.Helper()
			update(t, s, func(tx *storage.Tx) error {
				got, err := tx.HostGates()
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("gates (-want +got):\n%s", diff)
				}
				return err
			})
		}
		want(map[string]time.Time{"a": now.Add(time.Minute), "b": now.Add(time.Hour), "c": now.Add(time.Second)})
		time.Sleep(time.Second)
		want(map[string]time.Time{"a": now.Add(time.Minute), "b": now.Add(time.Hour)})
		time.Sleep(time.Hour)
		want(map[string]time.Time{})
	})
}
