package storage_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

// changes pages through what changed after a cursor, a few at a time.
func changes(t testing.TB, s *storage.Store, source string, after storage.ChangeCursor) (keys []string, next storage.ChangeCursor) {
	t.Helper()
	for more := true; more; {
		view(t, s, func(tx *storage.Tx) (err error) {
			after, more, err = tx.Changes(source, after, 2, func(o *storage.Observation) error {
				keys = append(keys, o.Key.Target)
				return nil
			})
			return err
		})
	}
	return keys, after
}

func wantKeys(t testing.TB, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestChanges(t *testing.T) {
	s := storagetest.Open(t)
	write := func(key, value string, window time.Time) {
		t.Helper()
		collect(t, s, inWindow(key, window), record(storage.WriteUpsert, 1, key, value))
	}
	for _, key := range []string{"c", "a", "b"} {
		write(key, "1", aWindow)
	}
	other := target("o")
	other.Key.Source = "s2"
	collect(t, s, other, record(storage.WriteUpsert, 1, "o", "1"))
	all, end := changes(t, s, "s", storage.ChangeCursor{})
	wantKeys(t, all, "c", "a", "b")
	again, _ := changes(t, s, "s", end)
	wantKeys(t, again)

	write("a", "1", aWindow.Add(time.Hour)) // equal content
	write("b", "0", aWindow.Add(-time.Hour))
	again, end = changes(t, s, "s", end)
	wantKeys(t, again)

	write("c", "2", aWindow.Add(time.Hour))
	write("d", "1", aWindow)
	write("c", "3", aWindow.Add(2*time.Hour))
	news, _ := changes(t, s, "s", end)
	wantKeys(t, news, "d", "c")
	all, _ = changes(t, s, "s", storage.ChangeCursor{})
	wantKeys(t, all, "a", "b", "d", "c")
}

// TestChangesOfOlderSchema: what an older schema wrote comes first, in the order
// of keys, until it changes.
func TestChangesOfOlderSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	unzip(t, "testdata/schema3.db.gz", path)
	s := storagetest.OpenAt(t, path, storage.Options{})
	late := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	write := func(key, value string) {
		n := target(key)
		n.Key.Source, n.Window = "shop", late
		n.Key.Window, n.Country, n.Key.Country = late, "US", "US"
		enqueue(t, s, n)
		var lease storage.Lease
		for lease.Job == 0 {
			if j := claimOne(t, s); j.Key.Target == key {
				lease = j.Lease()
			}
		}
		update(t, s, func(tx *storage.Tx) error {
			_, err := tx.CompleteJob(lease, record(storage.WriteUpsert, 1, key, value))
			return err
		})
	}
	write("another", "1")
	all, end := changes(t, s, "shop", storage.ChangeCursor{})
	wantKeys(t, all, "complete", "another")
	write("complete", "new")
	news, _ := changes(t, s, "shop", end)
	wantKeys(t, news, "complete")
	all, _ = changes(t, s, "shop", storage.ChangeCursor{})
	wantKeys(t, all, "another", "complete")
}

func TestChangeCursorText(t *testing.T) {
	s := storagetest.Open(t)
	for _, key := range []string{"a", "b"} {
		collect(t, s, target(key), record(storage.WriteUpsert, 1, key, "1"))
	}
	_, end := changes(t, s, "s", storage.ChangeCursor{})
	text := end.Text("s")
	fresh := storagetest.Open(t)
	for name, c := range map[string]struct {
		store        *storage.Store
		source, text string
		good         bool
	}{
		"of the beginning":    {s, "s", "", true},
		"as given":            {s, "s", text, true},
		"of another source":   {s, "t", text, false},
		"of another store":    {fresh, "s", text, false},
		"garbage":             {s, "s", "garbage", false},
		"not base64":          {s, "s", "?", false},
		"cut":                 {s, "s", text[:len(text)-4], false},
		"with something more": {s, "s", text + "AAAA", false},
		"with another letter": {s, "s", text[:8] + "x" + text[9:], false},
	} {
		t.Run(name, func(t *testing.T) {
			view(t, c.store, func(tx *storage.Tx) error {
				got, err := tx.ParseChangeCursor(c.source, c.text)
				if !c.good {
					wantError(t, err, storage.ErrCursor)
				} else if err != nil || got.Text(c.source) == "" {
					t.Errorf("%v, %v", got, err)
				}
				return nil
			})
		})
	}
}

func TestFileCursor(t *testing.T) {
	s := storagetest.Open(t)
	begun := &storage.FileCursor{}
	moved := &storage.FileCursor{Bytes: 7, Rows: 1, FirstWindow: aWindow, LastWindow: aWindow, Sum: []byte("sum"), Tail: []byte("tail"), DataOnly: true}
	for _, c := range []struct {
		path     string
		from, to *storage.FileCursor
		want     error
	}{
		{"/f", begun, moved, storage.ErrCursorMoved},
		{"/f", nil, begun, nil},
		{"/f", nil, begun, storage.ErrCursorMoved},
		{"/f", begun, moved, nil},
		{"/f", begun, moved, storage.ErrCursorMoved},
		{"/g", nil, moved, nil},
	} {
		err := s.Update(t.Context(), func(tx *storage.Tx) error { return tx.MoveFileCursor("s", c.path, c.from, c.to) })
		wantError(t, err, c.want)
	}
	view(t, s, func(tx *storage.Tx) error {
		for _, path := range []string{"/f", "/g"} {
			if got, err := tx.FileCursor("s", path); err != nil || !cmp.Equal(got, moved, cmp.AllowUnexported(storage.ChangeCursor{})) {
				t.Errorf("%s: %+v, %v", path, got, err)
			}
		}
		if got, err := tx.FileCursor("s2", "/f"); err != nil || got != nil {
			t.Errorf("%+v, %v", got, err)
		}
		return nil
	})
}
