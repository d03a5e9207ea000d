package storage

import (
	"testing"
	"testing/synctest"
)

// TestOpenWaitsForCompact: who has waited for the store while it was compacted
// works on the file that has its name, and not on the one that lost it.
func TestOpenWaitsForCompact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openTest(t, Options{NoSync: true})
		opened := make(chan *Store)
		go func() {
			late, err := Open(s.Path(), Options{NoSync: true})
			if err != nil {
				t.Error(err)
			}
			opened <- late
		}()
		synctest.Wait() // it has opened the file and waits for the lock
		if _, err := s.compact(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		late := <-opened
		if late == nil {
			return
		}
		if err := late.Update(t.Context(), func(tx *Tx) error { _, err := tx.EnqueueJob(newJob("a")); return err }); err != nil {
			t.Error(err)
		}
		if err := late.Close(); err != nil {
			t.Error(err)
		}
		again, err := Open(s.Path(), Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if err := again.View(func(tx *Tx) error { _, err := tx.JobByKey(newJob("a").Key); return err }); err != nil {
			t.Errorf("what it wrote is lost: %v", err)
		}
	})
}
