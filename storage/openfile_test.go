package storage

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestOpenWaitsForCompact: who has waited for the store while it was compacted
// has the file that has its name, and not the one that lost it: nobody else may
// write to it now.
func TestOpenWaitsForCompact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openTest(t, Options{NoSync: true})
		opened := make(chan *Store)
		go func() {
			late, err := Open(s.Path(), Options{ReadOnly: true})
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
		defer late.Close()
		if other, err := Open(s.Path(), Options{}); !errors.Is(err, ErrInUse) {
			t.Errorf("it holds the lock of another file: %v", err)
			_ = other.Close()
		}
	})
}
