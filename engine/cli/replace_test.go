package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(content)
	}
	return files
}

func TestReplacement(t *testing.T) {
	setup := func(t *testing.T) (string, *replacement) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a"), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		var r replacement
		for _, name := range []string{"a", "b"} {
			f, err := r.create(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprint(f, "new "+name); err != nil {
				t.Fatal(err)
			}
		}
		return dir, &r
	}
	t.Run("commit", func(t *testing.T) {
		dir, r := setup(t)
		if err := r.commit(); err != nil {
			t.Fatal(err)
		}
		if err := r.discard(); err != nil {
			t.Errorf("discard after commit: %v", err)
		}
		if got := readAll(t, dir); len(got) != 2 || got["a"] != "new a" || got["b"] != "new b" {
			t.Errorf("the folder holds %q", got)
		}
	})
	t.Run("discard", func(t *testing.T) {
		dir, r := setup(t)
		if err := r.discard(); err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, dir); len(got) != 1 || got["a"] != "old" {
			t.Errorf("the folder holds %q, want only the old file", got)
		}
	})
	t.Run("failed commit", func(t *testing.T) {
		dir, r := setup(t)
		if err := os.MkdirAll(filepath.Join(dir, "b", "full"), 0o700); err != nil { // came in between
			t.Fatal(err)
		}
		if err := r.commit(); err == nil {
			t.Fatal("a file took the place of a folder")
		}
		if err := r.discard(); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 {
			t.Errorf("the folder holds %v (%v), want a and b", entries, err)
		}
		if a, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(a) != "old" {
			t.Errorf("a holds %q (%v), though b could not be replaced", a, err)
		}
	})
	t.Run("abandoned", func(t *testing.T) {
		dir := t.TempDir()
		old := time.Now().Add(-2 * abandoned)
		for name, at := range map[string]time.Time{".a.12345678.tmp": old, ".a.87654321.tmp": time.Now(), ".b.12345678.tmp": old, "a.tmp": old} {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, at, at)); err != nil {
				t.Fatal(err)
			}
		}
		var r replacement
		if _, err := r.create(filepath.Join(dir, "a")); err != nil {
			t.Fatal(err)
		}
		if err := r.discard(); err != nil {
			t.Fatal(err)
		}
		want := []string{".a.87654321.tmp", ".b.12345678.tmp", "a.tmp"}
		if got := slices.Sorted(maps.Keys(readAll(t, dir))); !slices.Equal(got, want) {
			t.Errorf("the folder holds %q, want %q", got, want)
		}
	})
	t.Run("not a file", func(t *testing.T) {
		var r replacement
		for _, path := range []string{t.TempDir(), os.DevNull} {
			if _, err := r.create(path); err == nil {
				t.Errorf("create(%s) gave no error", path)
			}
		}
		if len(r.files) != 0 {
			t.Errorf("it keeps %v", r.files)
		}
	})
}
