package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	bolt "go.etcd.io/bbolt"

	"semel/failpoint"
)

// compactTx is how many bytes of records one transaction of the copy holds in
// memory. The copy is synced once, at its end.
const compactTx = 16 << 20

// Compacted is the size of a store's file, and of its kept pages, before and
// after Compact, in bytes.
type Compacted struct{ Before, After, PagesBefore, PagesAfter int64 }

// Compact writes the store at path anew without the room that deleted records
// left behind: that room is used again, but never given back by itself. It needs
// the store for itself, and room for the copy beside it. The copy takes the
// store's name when it is whole, durable and compared with the store record by
// record; until then the store is the old one, whatever happens. A copy that a
// kill leaves behind is removed by the next Open or Compact. Before it the room
// of kept pages that nobody names is given back, and files among them that the
// store does not know, left by a death, are removed.
// Errors: those of Open, and ErrNotFound where there is no store.
func Compact(path string) (Compacted, error) {
	file, err := filepath.EvalSymlinks(path) // the copy must take the place of the file, not of a link to it
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	if err != nil {
		return Compacted{}, fmt.Errorf("compacting store %s: %w", path, err)
	}
	s, err := Open(file, Options{})
	if err != nil {
		return Compacted{}, err
	}
	c, err := s.compact()
	if err = errors.Join(err, s.Close()); err != nil {
		return Compacted{}, fmt.Errorf("compacting store %s: %w", path, err)
	}
	return c, nil
}

// compactName is where the copy of a store is written.
func compactName(path string) string {
	file := realPath(path)
	return filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".compact")
}

func (s *Store) compact() (Compacted, error) {
	before, err := os.Stat(s.path)
	if err != nil {
		return Compacted{}, err
	}
	pagesBefore := s.segments.bytes()
	if err := s.CollectPages(context.Background()); err != nil {
		return Compacted{}, err
	}
	copied := compactName(s.path)
	defer os.Remove(copied) // once renamed it is not there
	if err := s.copyTo(copied); err != nil {
		return Compacted{}, err
	}
	if err := s.compareWith(copied); err != nil {
		return Compacted{}, fmt.Errorf("checking the copy: %w", err)
	}
	after, err := os.Stat(copied)
	if err == nil {
		err = os.Chmod(copied, before.Mode().Perm()) // who may open it stays as it was
	}
	if err == nil {
		err = failpoint.At(failpoint.NameCompact, s.path)
	}
	if err == nil {
		err = s.tidySegments()
	}
	if err == nil {
		err = s.replaceBy(copied)
	}
	if err != nil {
		return Compacted{}, err
	}
	return Compacted{before.Size(), after.Size(), pagesBefore, s.segments.bytes()}, nil
}

// tidySegments removes the files that no segment of the store has.
func (s *Store) tidySegments() error {
	var kept map[string]int64
	err := s.snapshot(func(b *bolt.Tx) (err error) {
		kept, err = newTx(b, noTime).segmentSizes()
		return err
	})
	if err != nil {
		return err
	}
	return removeOtherSegments(s.segments.dir, kept)
}

// copyTo writes the store's records into a new file, in order and with full
// pages, and makes that durable.
func (s *Store) copyTo(name string) error {
	dst, err := bolt.Open(name, 0o600, &bolt.Options{
		Timeout: lockWait, PageSize: pageSize, FreelistType: bolt.FreelistMapType, NoSync: true,
	})
	if err != nil {
		return fmt.Errorf("making the copy: %w", err)
	}
	used := int64(0)
	err = guard(func() error {
		if err := bolt.Compact(dst, s.db, compactTx); err != nil {
			return err
		}
		return dst.View(func(b *bolt.Tx) error {
			used = b.Size()
			return nil
		})
	})
	if err = errors.Join(err, failpoint.At(failpoint.CopyCompact, s.path), dst.Close()); err != nil {
		return fmt.Errorf("writing the copy: %w", err)
	}
	return settle(name, used)
}

// settle cuts off what bbolt has set aside for more, and syncs.
func settle(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Sync(), f.Close())
}

// compareWith wants every page of a copy right, and the store's records in it.
func (s *Store) compareWith(name string) error {
	c, err := Open(name, Options{ReadOnly: true})
	if err != nil {
		return err
	}
	found, err := c.checkPages()
	if len(found) > 0 {
		err = fmt.Errorf("%w: %s", ErrUnreadable, found[0])
	}
	if err == nil {
		err = s.snapshot(func(a *bolt.Tx) error {
			return c.snapshot(func(b *bolt.Tx) error { return sameRecords(a, b) })
		})
	}
	return errors.Join(err, c.Close())
}

func sameRecords(a, b *bolt.Tx) error {
	return a.ForEach(func(name []byte, bucket *bolt.Bucket) error {
		other := b.Bucket(name)
		if other == nil {
			return fmt.Errorf("bucket %s is missing", name)
		}
		x, y := bucket.Cursor(), other.Cursor()
		k, v := x.First()
		l, w := y.First()
		for k != nil || l != nil {
			if !bytes.Equal(k, l) || !bytes.Equal(v, w) {
				return fmt.Errorf("bucket %s differs at key %q", name, k)
			}
			k, v = x.Next()
			l, w = y.Next()
		}
		return nil
	})
}

// replaceBy gives the store's name to its copy. The lock is held meanwhile, so
// that nobody writes to a file that is about to lose its name; who waits for it
// finds out in openFile. Windows renames over no open file: there the lock is
// let go first, and a program that opens the store in the same moment makes the
// rename fail.
func (s *Store) replaceBy(name string) error {
	if runtime.GOOS == "windows" {
		if err := s.Close(); err != nil {
			return err
		}
	}
	if err := os.Rename(name, s.path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(s.path))
}
