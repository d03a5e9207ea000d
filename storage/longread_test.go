package storage_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"semel/storage"
)

const longReadWriters = 64

// held is a destination of a backup that does not take the first bytes until
// it is told to.
type held struct {
	bytes.Buffer
	begun, goOn chan struct{}
}

func (h *held) Write(p []byte) (int, error) {
	if h.Len() == 0 {
		close(h.begun)
		<-h.goOn
	}
	return h.Buffer.Write(p)
}

// TestBackupHoldsUpNobody: while a backup holds its snapshot, for however long,
// 64 writers commit, also where the file must grow for it; and the backup is of
// the moment at which it began.
func TestBackupHoldsUpNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	s, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	enqueue(t, s, target("before"))
	copied := &held{begun: make(chan struct{}), goOn: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- s.SnapshotTo(copied) }()
	<-copied.begun

	before := fileBytes(t, path)
	written := make(chan struct{})
	go func() {
		defer close(written)
		var writers sync.WaitGroup
		for w := range longReadWriters {
			writers.Go(func() {
				for i := range 10 {
					body := bytes.Repeat([]byte{'x'}, 20<<10)
					if err := s.Update(context.Background(), func(tx *storage.Tx) error {
						if _, err := tx.EnqueueJob(target(fmt.Sprint(w, " ", i))); err != nil {
							return err
						}
						return tx.PutRobots(fmt.Sprint("http://", w, ".", i), 200, body)
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
	}()
	select {
	case <-written:
	case <-time.After(time.Minute): // only a writer that waits for the backup takes for ever
		t.Error("the writers wait for the backup")
	}
	if grown := fileBytes(t, path) - before; grown == 0 {
		t.Error("the file did not grow: this test shows nothing")
	}
	close(copied.goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	<-written
	back := filepath.Join(t.TempDir(), "back.db")
	if err := os.WriteFile(back, copied.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := storage.Open(back, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if jobs := stories(t, b); len(jobs) != 1 {
		t.Errorf("the backup holds %d jobs, want the one from before it", len(jobs))
	}
}

func fileBytes(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// BenchmarkLongReads measures outcomes of 64 workers, each a commit with one
// observation of 500 bytes, while nothing is read, while everything is exported
// in pages again and again, while backups are written one after another, and
// while one snapshot is held all the time: how long a commit takes, and by how
// many bytes the used part of the file grows for each outcome. The records
// themselves are 1.3 KB.
func BenchmarkLongReads(b *testing.B) {
	q := newBenchQueue(b, 2*benchJobs)
	q.slice(b) // something to read
	readers := []struct {
		name string
		read func(stop <-chan struct{}) error
	}{
		{"alone", func(stop <-chan struct{}) error { <-stop; return nil }},
		{"export", func(stop <-chan struct{}) error { return q.exportUntil(stop) }},
		{"backup", func(stop <-chan struct{}) error { return q.backupUntil(stop, filepath.Join(b.TempDir(), "back.db")) }},
		{"held", func(stop <-chan struct{}) error {
			return q.store.View(func(*storage.Tx) error { <-stop; return nil })
		}},
	}
	took := make([][]time.Duration, len(readers))
	grown := make([]int64, len(readers))
	for b.Loop() {
		for i, r := range readers {
			q.fill(b, benchJobs)
			before := q.used(b)
			stop, done := make(chan struct{}), make(chan error, 1)
			go func() { done <- r.read(stop) }()
			took[i] = append(took[i], q.outcomes(b)...)
			close(stop)
			if err := <-done; err != nil {
				b.Fatal(err)
			}
			grown[i] += q.used(b) - before
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, r := range readers {
		slices.Sort(took[i])
		n := len(took[i])
		b.ReportMetric(float64(took[i][n/2].Microseconds())/1000, "p50_ms_"+r.name)
		b.ReportMetric(float64(took[i][n*99/100].Microseconds())/1000, "p99_ms_"+r.name)
		b.ReportMetric(float64(grown[i])/float64(n), "B/outcome_"+r.name)
	}
}

// outcomes works off benchJobs jobs with 64 workers, and gives how long each
// commit took.
func (q *benchQueue) outcomes(b *testing.B) []time.Duration {
	took := make([][]time.Duration, longReadWriters)
	var workers sync.WaitGroup
	for w := range longReadWriters {
		workers.Go(func() {
			for range benchJobs / longReadWriters {
				j := q.claim(b, nil, 1)[0]
				began := time.Now()
				q.complete(b, j)
				took[w] = append(took[w], time.Since(began))
			}
		})
	}
	workers.Wait()
	return slices.Concat(took...)
}

func (q *benchQueue) exportUntil(stop <-chan struct{}) error {
	var after, buf []byte
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		buf = buf[:0]
		if err := q.store.View(func(tx *storage.Tx) (err error) {
			after, err = tx.Observations("catalog", after, 1000, func(o *storage.Observation) error {
				buf = o.AppendLine(buf, false)
				return nil
			})
			return err
		}); err != nil {
			return err
		}
	}
}

func (q *benchQueue) backupUntil(stop <-chan struct{}, path string) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		if err := q.store.SnapshotTo(f); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
}

// used is how much of the file was ever used.
func (q *benchQueue) used(b *testing.B) int64 {
	var copied counter
	if err := q.store.SnapshotTo(&copied); err != nil {
		b.Fatal(err)
	}
	return int64(copied)
}

// counter is a writer that only counts.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
