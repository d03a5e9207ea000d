package engine

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"semel/storage"
)

// An engine does not go on writing to a file that nobody will find.
func TestStoreFileIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := storage.Open(t.TempDir()+"/semel.db", storage.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			time.Sleep(time.Second)
			if req.URL.Path == "/p/005" {
				if err := os.Remove(s.Path()); err != nil {
					t.Error(err)
				}
			}
			return product(req.URL.Path), nil
		})
		opts := options(s, web, source(t, 50))
		opts.Pacing = pacing(1, 0)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if _, err := e.RunOnce(t.Context()); !errors.Is(err, storage.ErrMoved) {
			t.Errorf("it ended with %v", err)
		}
		if web.total() > 7 {
			t.Errorf("%d requests after the store was gone", web.total()-5)
		}
	})
}

// Nor to one whose pages are damaged, which the first look at old history meets.
func TestDamagedPagesEndTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/semel.db"
		s, err := storage.Open(path, storage.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		opts := options(s, newSite(products), source(t, 300))
		opts.Pacing = pacing(64, 0)
		runOnce(t, opts)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		damagePagesWith(t, path, "\x08complete\x00\x00\x04done", "/p/155") // attempts in the middle
		if s, err = storage.Open(path, storage.Options{NoSync: true}); err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		opts.Store, opts.Sources[0] = s, source(t, 310)
		opts.Retention = storage.Retention{Attempts: time.Hour, Events: time.Hour, Pages: time.Hour}
		time.Sleep(2 * time.Hour)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if _, err := e.RunOnce(t.Context()); !errors.Is(err, storage.ErrUnreadable) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// damagePagesWith clears the headers of all pages that hold some texts.
func damagePagesWith(t *testing.T, path string, texts ...string) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 2 * 4096; at+4096 <= len(file); at += 4096 {
		page := file[at : at+4096]
		if !slices.ContainsFunc(texts, func(text string) bool { return !bytes.Contains(page, []byte(text)) }) {
			clear(page[:16])
		}
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
}
