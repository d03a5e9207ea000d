package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"semel/storage"
)

const importWorkers = 16 // callers that commit outcomes beside the import

// BenchmarkImport measures the import of a CSV file of a million rows while 16
// workers claim and complete jobs of another source. p99_ms is the 99th
// percentile of their commits, ratio rows to raw puts of 300 bytes, as many in a
// transaction as a chunk has rows.
func BenchmarkImport(b *testing.B) {
	rows := 1_000_000
	if testing.Short() {
		rows = 50_000
	}
	path := filepath.Join(b.TempDir(), "skus.csv")
	writeSKUs(b, path, rows)
	var took, raw time.Duration
	var waits []time.Duration
	n := 0
	for b.Loop() {
		n++
		raw += rawPuts(b, rows/10)
		d, w := importBeside(b, path)
		took += d
		waits = append(waits, w...)
	}
	slices.Sort(waits)
	rate := float64(n*rows) / took.Seconds()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rate, "rows/s")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99_ms")
	b.ReportMetric(float64(len(waits))/took.Seconds(), "commits/s")
	b.ReportMetric(rate/(float64(n*rows/10)/raw.Seconds()), "ratio")
}

func writeSKUs(b *testing.B, path string, rows int) {
	b.Helper()
	text := []byte("id,name\n")
	for i := range rows {
		text = fmt.Appendf(text, "sku-%07d,Name of product %d\n", i, i)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		b.Fatal(err)
	}
}

// importBeside imports a file while workers commit, and gives how long it took and
// how long each commit waited.
func importBeside(b *testing.B, path string) (took time.Duration, waits []time.Duration) {
	store, err := storage.Open(filepath.Join(b.TempDir(), "semel.db"), storage.Options{Gather: Gather})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	ctx, stop := context.WithCancel(b.Context())
	each := make([][]time.Duration, importWorkers)
	var workers sync.WaitGroup
	for w := range each {
		workers.Go(func() { each[w] = commitJobs(ctx, b, store, w) })
	}
	src := source(b, 0)
	im := &Importer{
		Store: store, Source: &src.Source, Record: storage.Source{Name: "shop"}, Path: path, ChunkRows: DefaultChunkRows,
		Tell: func(ImportNews) error { return nil },
	}
	began := time.Now()
	if _, err := im.Run(b.Context()); err != nil {
		b.Error(err)
	}
	took = time.Since(began)
	stop()
	workers.Wait()
	return took, slices.Concat(each...)
}

// commitJobs makes, claims and completes jobs one by one until ctx ends.
func commitJobs(ctx context.Context, b *testing.B, store *storage.Store, w int) (waits []time.Duration) {
	name := fmt.Sprintf("w%02d", w)
	for i := 0; ctx.Err() == nil; i++ {
		target := fmt.Sprintf("%09d", i)
		began := time.Now()
		err := store.Update(context.Background(), func(tx *storage.Tx) error {
			made, err := tx.EnqueueJob(storage.NewJob{Key: storage.JobKey{Source: name, Target: target}, URL: "http://" + name + "/" + target, Host: name})
			if err != nil {
				return err
			}
			j, err := tx.Job(made.ID)
			if err != nil {
				return err
			}
			groups, err := tx.ClaimJobs(name, time.Minute, []storage.ClaimGroup{{Lanes: []storage.LaneID{j.Lane}, Max: 1}})
			if err != nil {
				return err
			}
			_, err = tx.CompleteJob(groups[0][0].Lease(), storage.Completion{
				Attempt: storage.Attempt{Status: 200, BytesUp: 800, BytesDown: 21_000, ParserVersion: 1}, Mode: storage.WriteUpsert,
				Records: []storage.NewObservation{{Key: target, Data: []byte(`{"title":"a title"}`)}},
			})
			return err
		})
		if err != nil {
			b.Error(err)
			return nil
		}
		waits = append(waits, time.Since(began))
	}
	return waits
}

// rawPuts is the yardstick: puts under keys in order on a bare bbolt file.
func rawPuts(b *testing.B, puts int) time.Duration {
	db, err := bolt.Open(filepath.Join(b.TempDir(), "raw.db"), 0o600, &bolt.Options{PageSize: 4096, NoFreelistSync: true, FreelistType: bolt.FreelistMapType, InitialMmapSize: 16 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	began := time.Now()
	for done := 0; done < puts; {
		err := db.Update(func(tx *bolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("raw"))
			if err != nil {
				return err
			}
			bucket.FillPercent = 0.9
			for range DefaultChunkRows {
				done++
				if err := bucket.Put(binary.BigEndian.AppendUint64(nil, uint64(done)), make([]byte, 300)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began)
}
