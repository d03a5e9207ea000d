package storage

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"semel/failpoint"
)

// failOnce makes the next commit meet err at a point.
func failOnce(t *testing.T, point failpoint.Point, err error) {
	t.Helper()
	t.Cleanup(func() { failpoint.Set(nil) })
	failpoint.Set(func(p failpoint.Point, _ string) error {
		if p != point {
			return nil
		}
		failpoint.Set(nil)
		return err
	})
}

// TestDiskErrors: a write that finds no room fails its transaction whole and
// alone. After any other error, and after a sync that says so, nothing is
// trusted until the store is opened again.
func TestDiskErrors(t *testing.T) {
	write := func(err error) error { return &fs.PathError{Op: "write", Path: "semel.db", Err: err} }
	for name, c := range map[string]struct {
		point  failpoint.Point
		err    error
		full   bool
		stands bool // what was written is there after reopening
	}{
		"no room":               {failpoint.BeforeCommit, write(syscall.ENOSPC), true, false},
		"over quota":            {failpoint.BeforeCommit, write(syscall.EDQUOT), true, false},
		"no room to grow":       {failpoint.BeforeCommit, errors.New("file resize error: truncate semel.db: no space left on device"), true, false},
		"broken disk":           {failpoint.BeforeCommit, write(syscall.EIO), false, false},
		"no room in a sync":     {failpoint.BeforeCommit, syscall.ENOSPC, false, false},
		"no room while growing": {failpoint.BeforeCommit, errors.New("file sync error: sync semel.db: no space left on device"), false, false},
		"failed sync":           {failpoint.AfterCommit, syscall.EIO, false, true},
		"full after all":        {failpoint.AfterCommit, write(syscall.ENOSPC), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "semel.db")
			s, err := Open(path, Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			enqueue := func(target string) error {
				return s.Update(t.Context(), func(tx *Tx) error { _, err := tx.EnqueueJob(newJob(target)); return err })
			}
			if err := enqueue("a"); err != nil {
				t.Fatal(err)
			}
			failOnce(t, c.point, c.err)
			if err := enqueue("b"); errors.Is(err, ErrFull) != c.full || errors.Is(err, ErrStopped) == c.full {
				t.Fatalf("%v", err)
			}
			if err := enqueue("c"); (err == nil) != c.full {
				t.Errorf("the update after it: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s, err = Open(path, Options{NoSync: true}); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for target, want := range map[string]bool{"a": true, "b": c.stands, "c": c.full} {
				err := s.View(func(tx *Tx) error { _, err := tx.JobByKey(newJob(target).Key); return err })
				if (err == nil) != want || err != nil && !isNotFound(err) {
					t.Errorf("job %s after reopening: %v", target, err)
				}
			}
			if breaches, err := s.Check(); err != nil || len(breaches) > 0 {
				t.Errorf("%v, %v", breaches, err)
			}
		})
	}
}
