package storage_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"semel/storage"
)

// compactStore names the store in the environment of a child process that
// compacts it again and again.
const compactStore = "SEMEL_TEST_COMPACT"

// holed makes a store most of whose records were deleted again, and gives what
// is left of it.
func holed(t testing.TB, path string) string {
	t.Helper()
	s, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		for i := range 60 {
			collect(t, s, onDay(fmt.Sprint(i), n), page(fmt.Sprint(i), fmt.Sprint(n), storage.Subscription{Sink: "a"}))
		}
	}
	update(t, s, func(tx *storage.Tx) error {
		seqs := make([]uint64, 600)
		for i := range seqs {
			seqs[i] = uint64(i + 1)
		}
		return tx.Deliver("a", seqs)
	})
	enqueue(t, s, target("pending")) // an index entry, whose value is empty
	if _, err := s.Prune(t.Context(), time.Now().Add(time.Second), storage.Retention{Attempts: 1, Events: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return contents(t, path)
}

// contents is everything in a store that a caller can see, after a check.
func contents(t testing.TB, path string) string {
	t.Helper()
	s, err := storage.Open(path, storage.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	breaches, err := s.Check()
	if err != nil || len(breaches) > 0 {
		t.Fatalf("check: %v, %v", breaches, err)
	}
	text := fmt.Sprintln(stories(t, s), counters(t, s, "s"), counters(t, s, ""), pending(t, s, "a"))
	for _, o := range observations(t, s, "s") {
		text += string(o.AppendLine(nil, false))
	}
	return text
}

// usedBytes is how much of a store's file was ever used.
func usedBytes(t testing.TB, path string) int64 {
	t.Helper()
	s, err := storage.Open(path, storage.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	copied, err := s.Backup(filepath.Join(t.TempDir(), "copy.db"))
	if err != nil {
		t.Fatal(err)
	}
	return copied.Bytes
}

func files(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestCompact: the same store in a smaller file, which can be worked on.
func TestCompact(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "semel.db")
	want := holed(t, path)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link} {
		size, err := storage.Compact(name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if used := usedBytes(t, path); info.Size() != size.After || size.After != used || used > 200_000 || name == path && size.Before < 1_000_000 {
			t.Errorf("%+v, the file has %d bytes and uses %d", size, info.Size(), used)
		}
		if info.Mode() != 0o640 {
			t.Errorf("mode %s", info.Mode())
		}
		if got := contents(t, path); got != want {
			t.Errorf("the store changed:\n%s\nwant:\n%s", got, want)
		}
		if left := files(t, dir); !slices.Equal(left, []string{"semel.db"}) {
			t.Errorf("the folder holds %q", left)
		}
	}
	s, err := storage.Open(path, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if e := enqueue(t, s, target("more"), target("pending")); !e[0].New || e[1].New {
		t.Errorf("enqueued %+v", e)
	}
}

// TestCompactRefuses: a store that is not there, in use or damaged stays as it is.
func TestCompactRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "semel.db")
	_, err := storage.Compact(path)
	wantError(t, err, storage.ErrNotFound)
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("it made %q", left)
	}

	holed(t, path)
	for _, readOnly := range []bool{true, false} {
		s, err := storage.Open(path, storage.Options{ReadOnly: readOnly})
		if err != nil {
			t.Fatal(err)
		}
		_, err = storage.Compact(path)
		wantError(t, err, storage.ErrInUse)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}

	damaged, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(damaged, make([]byte, 8192))
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = storage.Compact(path)
	wantError(t, err, storage.ErrUnreadable)
	if after, err := os.ReadFile(path); err != nil || !slices.Equal(after, damaged) {
		t.Error("the file changed")
	}
	if left := files(t, dir); !slices.Equal(left, []string{"semel.db"}) {
		t.Errorf("the folder holds %q", left)
	}
}

// compactChild compacts a store until it is killed.
func compactChild(path string) {
	for {
		if _, err := storage.Compact(path); err != nil {
			fmt.Println("compacting:", err)
			os.Exit(1)
		}
		fmt.Println("compacted")
	}
}

// TestCompactKilled kills compacting processes at random moments: the store is
// always whole and the same, beside it lies at most one copy, and the next Open
// removes that.
func TestCompactKilled(t *testing.T) {
	kills := 25
	if testing.Short() {
		kills = 5
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	path := filepath.Join(dir, "semel.db")
	want := holed(t, path)
	copies := 0
	for range kills {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), compactStore+"="+path)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 64)
		n, err := out.Read(line) // it has compacted once
		if text := string(line[:n]); err != nil || text[:10] != "compacted\n" {
			t.Fatalf("the child says %q, %v", text, err)
		}
		time.Sleep(time.Duration(random.IntN(20_000)) * time.Microsecond)
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()

		if left := files(t, dir); len(left) > 1 {
			copies++
			if !slices.Equal(left, []string{".semel.db.compact", "semel.db"}) {
				t.Fatalf("the folder holds %q", left)
			}
		}
		if got := contents(t, path); got != want {
			t.Fatalf("the store changed:\n%s\nwant:\n%s", got, want)
		}
	}
	t.Logf("%d of %d kills left a copy", copies, kills)
	s, err := storage.Open(path, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if left := files(t, dir); !slices.Equal(left, []string{"semel.db"}) {
		t.Errorf("after opening, the folder holds %q", left)
	}
}
