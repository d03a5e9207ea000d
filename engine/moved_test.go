package engine

import (
	"errors"
	"net/http"
	"os"
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
