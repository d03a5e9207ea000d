package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
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
