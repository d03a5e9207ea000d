package storage_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"semel/storage"
)

// smallDisk mounts a file system of some bytes, which needs a right that not
// everybody has.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("semel", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no file system can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves some bytes of a disk free.
func fill(t *testing.T, path string, free int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int64(0)
	for chunk := make([]byte, 4096); err == nil; {
		var n int
		n, err = f.Write(chunk)
		size += int64(n)
	}
	if err := f.Truncate(size - free); err != nil {
		t.Fatal(err)
	}
}

// TestCompactWithoutRoom: a copy that the disk has no room for is an error that
// says so, and changes nothing.
func TestCompactWithoutRoom(t *testing.T) {
	dir := smallDisk(t, "8m")
	path, ballast := filepath.Join(dir, "semel.db"), filepath.Join(dir, "ballast")
	holed(t, path)
	s, err := storage.Open(path, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		enqueue(t, s, target(fmt.Sprint("more ", i)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := contents(t, path)
	fill(t, ballast, 64<<10)
	_, err = storage.Compact(path)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "writing the copy: ") {
		t.Errorf("error %v", err)
	}
	if left := files(t, dir); !slices.Equal(left, []string{"ballast", "semel.db"}) {
		t.Errorf("the folder holds %q", left)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, path); got != want {
		t.Errorf("the store changed:\n%s\nwant:\n%s", got, want)
	}
	if _, err := storage.Compact(path); err != nil {
		t.Errorf("with room: %v", err)
	}
}
