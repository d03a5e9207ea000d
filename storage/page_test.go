package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"semel/failpoint"
	"semel/storage"
	"semel/storage/storagetest"
)

// pageOf is a page that hardly compresses, so that segments grow.
func pageOf(seed uint64, size int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	page := make([]byte, size)
	for i := range page {
		page[i] = byte(r.Uint32())
	}
	return page
}

// keep completes a new job with a page and gives the page's hash.
func keep(t testing.TB, s *storage.Store, target string, page []byte) storage.PageHash {
	t.Helper()
	enqueue(t, s, storage.NewJob{Key: storage.JobKey{Source: "s", Target: target}, URL: "http://h/" + target, Host: "h"})
	j := claimOne(t, s)
	k := storage.KeepPage(page)
	s.ProbePage(k)
	update(t, s, func(tx *storage.Tx) error {
		_, err := tx.CompleteJob(j.Lease(), storage.Completion{
			Attempt: storage.Attempt{Kept: k, ContentType: "text/html", FinalURL: j.URL},
			Mode:    storage.WriteUpsert,
			Records: []storage.NewObservation{{Key: target, Data: []byte(`{}`)}},
		})
		return err
	})
	return k.Hash
}

func wantPage(t testing.TB, s *storage.Store, h storage.PageHash, want []byte) {
	t.Helper()
	got, err := s.ReadPage(h)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("page %s: %d bytes (%v), want %d", h, len(got), err, len(want))
	}
}

func segmentFiles(t testing.TB, path string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(path+storage.PagesSuffix, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestPagesAreKeptOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	s := storagetest.OpenAt(t, path, storage.Options{NoSync: true})
	page := []byte(strings.Repeat("<p>the same on every page</p>", 1000))
	h := keep(t, s, "a", page)
	size := func() (n int64) {
		for _, name := range segmentFiles(t, path) {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			n += info.Size()
		}
		return n
	}
	first := size()
	if first == 0 || first > int64(len(page)/10) {
		t.Errorf("a page of %d bytes that repeats itself takes %d", len(page), first)
	}
	if again := keep(t, s, "b", page); again != h || size() != first {
		t.Errorf("the same page again takes %d bytes more", size()-first)
	}
	wantPage(t, s, h, page)
	if _, err := s.ReadPage(storage.PageHash{1}); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a page that was never kept: %v", err)
	}
}

// A store has one folder of pages, whatever name it is opened by, and a name
// that leads to nothing yet is no exception.
func TestPagesThroughALink(t *testing.T) {
	path, link := filepath.Join(t.TempDir(), "semel.db"), filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	hashes := map[storage.PageHash]uint64{}
	for i, name := range []string{link, path, link} {
		s, err := storage.Open(name, storage.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		hashes[keep(t, s, fmt.Sprint(i), pageOf(uint64(i), 3000))] = uint64(i)
		for h, seed := range hashes {
			wantPage(t, s, h, pageOf(seed, 3000))
		}
		storagetest.Check(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if beside := segmentFiles(t, link); len(segmentFiles(t, path)) != 3 || len(beside) > 0 {
		t.Errorf("beside the link: %v", beside)
	}
}

// A lost lease keeps nothing, and an update that fails gives its place back.
func TestPagesOfFailedUpdates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	s := storagetest.OpenAt(t, path, storage.Options{NoSync: true})
	enqueue(t, s, target("a"))
	j := claimOne(t, s)
	k := storage.KeepPage(pageOf(1, 1000))
	fail := errors.New("no")
	err := s.Update(t.Context(), func(tx *storage.Tx) error {
		if err := tx.RetryJob(j.Lease(), storage.Attempt{Kept: k, Category: storage.CategoryValidation}, tx.Now); err != nil {
			return err
		}
		return fail
	})
	if !errors.Is(err, fail) {
		t.Fatal(err)
	}
	lost := j.Lease()
	lost.Generation++
	update(t, s, func(tx *storage.Tx) error {
		if _, err := tx.CompleteJob(lost, storage.Completion{Attempt: storage.Attempt{Kept: k}}); !errors.Is(err, storage.ErrLeaseLost) {
			t.Errorf("%v", err)
		}
		return nil
	})
	if _, err := s.ReadPage(k.Hash); !errors.Is(err, storage.ErrNotFound) || len(segmentFiles(t, path)) != 0 {
		t.Errorf("%v, %v", err, segmentFiles(t, path))
	}
	other := keep(t, s, "b", pageOf(2, 1000))
	wantPage(t, s, other, pageOf(2, 1000))
}

// A disk that is full while a page is appended fails the outcome whole, and its
// place is used again; one that fails a sync stops the store. A page that a
// death left behind in a segment is nobody's.
func TestPagesOnABadDisk(t *testing.T) {
	for _, c := range []struct {
		point failpoint.Point
		err   error
		want  error
	}{
		{failpoint.AppendPages, &os.PathError{Op: "write", Err: syscall.ENOSPC}, storage.ErrFull},
		{failpoint.AppendPages, &os.PathError{Op: "write", Err: syscall.EIO}, storage.ErrStopped},
		{failpoint.SyncPages, &os.PathError{Op: "sync", Err: syscall.ENOSPC}, storage.ErrStopped},
		{failpoint.BeforeCommit, &os.PathError{Op: "write", Err: syscall.ENOSPC}, storage.ErrFull},
		{failpoint.BeforeCommit, syscall.EIO, storage.ErrStopped},
	} {
		t.Run(fmt.Sprint(c.point, c.err), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "semel.db")
			s, err := storage.Open(path, storage.Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			first := keep(t, s, "a", pageOf(1, 5000))
			enqueue(t, s, target("b"))
			j := claimOne(t, s)
			lost := storage.KeepPage(pageOf(2, 7000))
			t.Cleanup(func() { failpoint.Set(nil) })
			failpoint.Set(func(p failpoint.Point, _ string) error {
				if p == c.point {
					return c.err
				}
				return nil
			})
			err = s.Update(t.Context(), func(tx *storage.Tx) error {
				return tx.RetryJob(j.Lease(), storage.Attempt{Kept: lost, Category: storage.CategoryValidation}, tx.Now)
			})
			failpoint.Set(nil)
			if !errors.Is(err, c.want) {
				t.Fatalf("%v", err)
			}
			if errors.Is(c.want, storage.ErrStopped) {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = storagetest.OpenAt(t, path, storage.Options{NoSync: true})
			} else {
				defer func() {
					storagetest.Check(t, s)
					s.Close()
				}()
			}
			next := keep(t, s, "c", pageOf(3, 6000))
			wantPage(t, s, first, pageOf(1, 5000))
			wantPage(t, s, next, pageOf(3, 6000))
			if _, err := s.ReadPage(lost.Hash); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("the lost page: %v", err)
			}
		})
	}
}

// TestBackup: while writers work, a copy is taken that is a store with all its
// pages; it replaces an older one whole.
func TestBackup(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "semel.db"), filepath.Join(dir, "backup.db")
	s := storagetest.OpenAt(t, path, storage.Options{NoSync: true})
	want := map[storage.PageHash][]byte{}
	for i := range uint64(5) {
		page := pageOf(i, 3000)
		want[keep(t, s, fmt.Sprint("early", i), page)] = page
	}
	if _, err := s.Backup(backup); err != nil {
		t.Fatal(err)
	}
	page := pageOf(77, 3000)
	want[keep(t, s, "second backup", page)] = page

	ctx, stop := context.WithCancel(t.Context())
	written := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			keep(t, s, fmt.Sprint("busy", n), pageOf(uint64(100+n), 3000))
		}
		written <- n
	}()
	done, err := s.Backup(backup)
	stop()
	n := <-written
	if err != nil || done.Segments != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	t.Logf("%d jobs were written meanwhile", n)
	if names := segmentFiles(t, backup); len(names) != 1 {
		t.Errorf("segments of the backup: %v", names)
	}
	// Restoring is putting both in place.
	restored := filepath.Join(t.TempDir(), "semel.db")
	for _, suffix := range []string{"", storage.PagesSuffix} {
		if err := os.Rename(backup+suffix, restored+suffix); err != nil {
			t.Fatal(err)
		}
	}
	again := storagetest.OpenAt(t, restored, storage.Options{NoSync: true})
	for h, page := range want {
		wantPage(t, again, h, page)
	}
	keep(t, again, "after the restore", pageOf(99, 3000))
}

// Backups that go to one name at once do not disturb each other.
func TestBackupsAtOnce(t *testing.T) {
	dir := t.TempDir()
	s := storagetest.OpenAt(t, filepath.Join(dir, "semel.db"), storage.Options{NoSync: true})
	for i := range uint64(20) {
		keep(t, s, fmt.Sprint(i), pageOf(i, 3000))
	}
	var backups sync.WaitGroup
	for range 4 {
		backups.Go(func() {
			for range 5 {
				if _, err := s.Backup(filepath.Join(dir, "backup.db")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	backups.Wait()
}

func TestBackupRefusesTheStoreItself(t *testing.T) {
	// A backup has this name on the way to semel.db.
	path := filepath.Join(t.TempDir(), "semel.db.new")
	s := storagetest.OpenAt(t, path, storage.Options{NoSync: true})
	for _, to := range []string{path, strings.TrimSuffix(path, ".new"), filepath.Dir(path), filepath.Join(filepath.Dir(path), "no", "such", "folder")} {
		if _, err := s.Backup(to); err == nil {
			t.Errorf("a backup to %s", to)
		}
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("left behind: %v (%v)", names, err)
	}
}

// What old attempts kept goes with them or before them, and its room comes
// back: pages still named move to another segment, and the file goes. A backup
// that is under way keeps the files it needs.
func TestPagesAreCollected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	open := func() *storage.Store {
		s, err := storage.Open(path, storage.Options{NoSync: true, Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	shared := []byte("<p>old and new name it</p>")
	keep(t, s, "old shared", shared)
	for i := range uint64(20) {
		keep(t, s, fmt.Sprint("old", i), pageOf(i, 4000))
	}
	now = now.Add(48 * time.Hour)
	sharedHash := keep(t, s, "new shared", shared)
	fresh := keep(t, s, "new", pageOf(50, 4000))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open() // which begins another segment
	defer s.Close()
	third := keep(t, s, "third", pageOf(51, 4000))
	first := segmentFiles(t, path)
	if len(first) != 2 {
		t.Fatalf("segments %v", first)
	}

	retention := storage.Retention{Pages: 24 * time.Hour}
	pruned, err := s.Prune(t.Context(), now, retention)
	if err != nil || pruned.Pages != 21 {
		t.Errorf("%+v, %v", pruned, err)
	}
	storagetest.Check(t, s)
	if err := s.CollectPages(t.Context()); err != nil {
		t.Fatal(err)
	}
	storagetest.Check(t, s)
	if left := segmentFiles(t, path); len(left) != 1 || left[0] == first[0] {
		t.Errorf("segments %v, before %v", left, first)
	}
	wantPage(t, s, sharedHash, shared)
	wantPage(t, s, fresh, pageOf(50, 4000))
	wantPage(t, s, third, pageOf(51, 4000))
	if pruned, err = s.Prune(t.Context(), now, retention); err != nil || pruned.Pages != 0 {
		t.Errorf("again: %+v, %v", pruned, err)
	}

	// Attempts that go take their pages along.
	now = now.Add(48 * time.Hour)
	if _, err := s.Prune(t.Context(), now, storage.Retention{Attempts: time.Hour}); err != nil {
		t.Fatal(err)
	}
	storagetest.Check(t, s)
	if _, err := s.ReadPage(fresh); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a page whose attempt is gone: %v", err)
	}
}

// A segment that is missing keeps no other from being collected, is told each
// time, and goes when nothing in it is named any more.
func TestCollectBesideDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	var s *storage.Store
	for i := range 3 { // each opening begins a segment
		var err error
		if s, err = storage.Open(path, storage.Options{NoSync: true, Now: func() time.Time { return now }}); err != nil {
			t.Fatal(err)
		}
		keep(t, s, fmt.Sprint("old", i), pageOf(uint64(i), 4000))
		now = now.Add(48 * time.Hour)
		keep(t, s, fmt.Sprint("new", i), pageOf(uint64(10+i), 2000))
		now = now.Add(-48 * time.Hour)
		if i < 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	defer s.Close()
	now = now.Add(48 * time.Hour)
	if _, err := s.Prune(t.Context(), now, storage.Retention{Pages: time.Hour}); err != nil {
		t.Fatal(err)
	}
	first := segmentFiles(t, path)[0]
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := s.CollectPages(t.Context())
		if _, damaged := errors.AsType[*storage.RecordError](err); !damaged || !strings.Contains(err.Error(), filepath.Base(first)) {
			t.Errorf("%v", err)
		}
		if left := segmentFiles(t, path); len(left) != 1 {
			t.Errorf("segments %v", left)
		}
	}
	wantPage(t, s, storage.KeepPage(pageOf(11, 2000)).Hash, pageOf(11, 2000))
	if _, err := s.Prune(t.Context(), now.Add(2*time.Hour), storage.Retention{Pages: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := s.CollectPages(t.Context()); err != nil {
		t.Error(err)
	}
	storagetest.Check(t, s)
}

// A page whose copy is missing or damaged says so, and is stored anew when it is
// collected again; what stood there is then missed by nobody. New pages are never
// appended to a file that was removed.
func TestLostPageIsStoredAnew(t *testing.T) {
	for name, lose := range map[string]func(file string) error{
		"missing":     func(file string) error { return os.RemoveAll(filepath.Dir(file)) },
		"cut short":   func(file string) error { return os.Truncate(file, 1000) },
		"other bytes": func(file string) error { return overwrite(file, 2000) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "semel.db")
			s := storagetest.OpenAt(t, path, storage.Options{NoSync: true})
			page := pageOf(1, 3000)
			h := keep(t, s, "a", page)
			if err := lose(segmentFiles(t, path)[0]); err != nil {
				t.Fatal(err)
			}
			if _, err := s.ReadPage(h); !errors.Is(err, storage.ErrPageLost) {
				t.Errorf("reading it gave %v", err)
			}
			for _, target := range []string{"b", "c"} {
				keep(t, s, target, page)
				wantPage(t, s, h, page)
			}
			wantPage(t, s, keep(t, s, "d", pageOf(2, 3000)), pageOf(2, 3000))
			storagetest.Check(t, s)
			if _, err := s.Backup(filepath.Join(t.TempDir(), "backup.db")); err != nil {
				t.Error(err)
			}
		})
	}
}

// overwrite damages 15 bytes of a file.
func overwrite(file string, at int64) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, 15), at)
	return errors.Join(err, f.Close())
}

// Compact gives back the room of pages, and removes files that a death left.
func TestCompactTidiesPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	s, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	h := keep(t, s, "a", pageOf(1, 3000))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	orphan := filepath.Join(path+storage.PagesSuffix, "00000007-0123456789ab.seg")
	theirs := filepath.Join(path+storage.PagesSuffix, "notes.txt")
	for _, name := range []string{orphan, theirs} {
		if err := os.WriteFile(name, make([]byte, 500), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done, err := storage.Compact(path)
	if err != nil || done.PagesBefore != done.PagesAfter+500 {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := os.Stat(orphan); err == nil {
		t.Error("the orphan is there still")
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Error("somebody else's file is gone")
	}
	s = storagetest.OpenAt(t, path, storage.Options{})
	wantPage(t, s, h, pageOf(1, 3000))
}

// Many short runs leave many small segments: they are put together.
func TestSmallSegmentsAreCollected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	want := map[storage.PageHash][]byte{}
	for i := range uint64(40) {
		s, err := storage.Open(path, storage.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		page := pageOf(i, 2000)
		want[keep(t, s, fmt.Sprint(i), page)] = page
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := storagetest.OpenAt(t, path, storage.Options{NoSync: true})
	if err := s.CollectPages(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := segmentFiles(t, path); len(left) > 34 {
		t.Errorf("%d segments", len(left))
	}
	for h, page := range want {
		wantPage(t, s, h, page)
	}
}
