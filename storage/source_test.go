package storage_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

// TestPutSource: a source is as old as its identity and rules, whatever else is
// noted of it.
func TestPutSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		put := func(src storage.Source) (got storage.Source) {
			t.Helper()
			update(t, s, func(tx *storage.Tx) error { return tx.PutSource(src) })
			view(t, s, func(tx *storage.Tx) (err error) { got, err = tx.Source(src.Name); return err })
			time.Sleep(time.Hour)
			return got
		}
		src := storage.Source{Name: "s", Identity: "i", Rules: "r", Version: 1}
		first := put(src)
		src.IdentityText, src.Parts = "identity: target", map[string]string{"fields.a": "1"}
		second := put(src)
		want := src
		want.Since = first.Since
		if diff := cmp.Diff(want, second); diff != "" || first.Since.IsZero() {
			t.Errorf("with its details (-want +got):\n%s", diff)
		}
		for _, change := range []func(*storage.Source){
			func(s *storage.Source) { s.Identity = "j" },
			func(s *storage.Source) { s.Rules = "q" },
			func(s *storage.Source) { s.Version = 2 },
		} {
			change(&src)
			if got := put(src); !got.Since.After(second.Since) {
				t.Errorf("%+v is as old as before", got)
			} else {
				second = got
			}
		}
		if want := map[int]string{1: "q"}; !maps.Equal(second.Past, want) {
			t.Errorf("other versions had the rules %v, want %v", second.Past, want)
		}
		src.Version, src.Rules = 1, "p"
		if got, want := put(src).Past, map[int]string{2: "q"}; !maps.Equal(got, want) {
			t.Errorf("back at version 1, others had the rules %v, want %v", got, want)
		}
	})
}
