package api

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"semel/storage"
	"semel/storage/storagetest"
)

// busyReader is a reader of an export that lets 64 writers rewrite all they
// hold whenever it gets a page.
type busyReader struct {
	t       *testing.T
	store   *storage.Store
	leases  []storage.Lease
	rewrite int // how often for each page
	pages   int
}

func (r *busyReader) Write(p []byte) (int, error) {
	r.pages++
	const writers = 64
	var wg sync.WaitGroup
	share := len(r.leases) / writers
	for w := range writers {
		wg.Go(func() {
			for range r.rewrite {
				if err := r.store.Update(context.Background(), func(tx *storage.Tx) error {
					lost, err := tx.RenewLeases(r.leases[w*share:(w+1)*share], time.Hour)
					if len(lost) > 0 {
						r.t.Errorf("%d leases are lost", len(lost))
					}
					return err
				}); err != nil {
					r.t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return len(p), nil
}

// used is how much of a store's file was ever used.
func used(t *testing.T, s *storage.Store) int64 {
	t.Helper()
	copied, err := s.Backup(filepath.Join(t.TempDir(), "copy.db"))
	if err != nil {
		t.Fatal(err)
	}
	return copied.Bytes
}

// TestExportBesideWriters: an export that is read slowly holds no snapshot
// between its pages, so that the room of what is rewritten meanwhile is used
// again, however often that is.
func TestExportBesideWriters(t *testing.T) {
	l := local(t)
	l.Store = storagetest.OpenAt(t, filepath.Join(t.TempDir(), "busy.db"), storage.Options{NoSync: true})
	const rows, held = 5 * pageRows, 64 * 50
	enqueue(t, l, "shop", 0, rows)
	work(t, l, rows, func(tx *storage.Tx, j *storage.Job) error {
		_, err := tx.CompleteJob(j.Lease(), storage.Completion{
			Mode: storage.WriteUpsert, Records: []storage.NewObservation{{Key: j.Key.Target, Data: []byte(`{}`)}},
		})
		return err
	})
	reader := &busyReader{t: t, store: l.Store, rewrite: 4}
	enqueue(t, l, "shop", rows, rows+held)
	work(t, l, held, func(_ *storage.Tx, j *storage.Job) error {
		reader.leases = append(reader.leases, j.Lease())
		return nil
	})
	if _, err := reader.Write(nil); err != nil { // from here on the room is used again
		t.Fatal(err)
	}
	before := used(t, l.Store)
	result, err := l.Export(t.Context(), ExportRequest{Source: "shop"}, reader)
	if err != nil || result.Rows != rows || reader.pages < 6 {
		t.Fatalf("%+v in %d pages, %v", result, reader.pages, err)
	}
	after := used(t, l.Store)
	t.Logf("%d bytes before, %d after %d pages", before, after, reader.pages-1)
	if after > before+before/4 {
		t.Errorf("the file grew from %d to %d bytes beside an export", before, after)
	}
}
