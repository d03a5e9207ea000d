package storage_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"semel/storage"
)

// The benchmarks write with real fsyncs. A shared disk varies by the minute, so
// what is compared runs in turns, a slice each, in one run: read the ratios.
const (
	inFlight  = 256
	benchJobs = 8_000 // jobs and puts in a slice
)

// benchSink asks for one event of some 200 bytes for each job.
var benchSink = []storage.Subscription{{Sink: "bench", Events: []string{storage.EventJobComplete}}}

// BenchmarkClaimComplete measures claim and commit with one observation of 500
// bytes, one attempt and one event, 256 in flight, claimed as an engine does:
// one call for all free workers. ratio is jobs to raw puts; ratio_1M_to_10k is
// the speed at a million queued jobs to that at ten thousand.
func BenchmarkClaimComplete(b *testing.B) {
	few, many := newBenchQueue(b, 10_000), newBenchQueue(b, benchMany(b))
	raw := newRawStore(b)
	var fewTime, manyTime, rawTime time.Duration
	n := 0
	for b.Loop() {
		n++
		rawTime += raw.slice(b)
		fewTime += few.slice(b)
		manyTime += many.slice(b)
		b.StopTimer()
		few.fill(b, benchJobs)
		many.fill(b, benchJobs)
		b.StartTimer()
	}
	rate := func(d time.Duration) float64 { return float64(n*benchJobs) / d.Seconds() }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rate(fewTime), "jobs/s")
	b.ReportMetric(rate(manyTime), "jobs/s_1M")
	b.ReportMetric(rate(rawTime), "puts/s")
	b.ReportMetric(rate(fewTime)/rate(rawTime), "ratio")
	b.ReportMetric(rate(manyTime)/rate(fewTime), "ratio_1M_to_10k")
}

func benchMany(b *testing.B) int {
	if testing.Short() {
		return 50_000
	}
	return 1_000_000
}

// benchQueue is a store that is kept at a number of queued jobs.
type benchQueue struct {
	store *storage.Store
	sinks []storage.Subscription
	made  int
	data  []byte
}

func newBenchQueue(b *testing.B, jobs int) *benchQueue {
	b.Helper()
	s, err := storage.Open(filepath.Join(b.TempDir(), "semel.db"), storage.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	q := &benchQueue{store: s, sinks: benchSink, data: jsonOf(500)}
	q.fill(b, jobs)
	return q
}

// jsonOf is a JSON object of a length.
func jsonOf(length int) []byte {
	data := []byte(`{"title":"`)
	for len(data) < length-2 {
		data = append(data, byte('a'+len(data)%26))
	}
	return append(data, `"}`...)
}

func (q *benchQueue) fill(b *testing.B, jobs int) {
	for end := q.made + jobs; q.made < end; {
		err := q.store.Update(context.Background(), func(tx *storage.Tx) error {
			for range min(5_000, end-q.made) {
				q.made++
				target := fmt.Sprintf("sku-%09d", q.made)
				_, err := tx.EnqueueJob(storage.NewJob{
					Key:     storage.JobKey{Source: "catalog", Target: target, Country: "US", Version: 3},
					Country: "US", Version: 3, Scope: "acme", Host: "example.com",
					URL:  "https://example.com/public-product/" + target,
					Vars: []storage.Var{{Name: "sku", Value: target}},
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// slice works off benchJobs jobs and gives how long that took.
func (q *benchQueue) slice(b *testing.B) time.Duration {
	jobs, free := make(chan *storage.Job), make(chan struct{}, inFlight)
	var workers sync.WaitGroup
	for range inFlight {
		free <- struct{}{}
		workers.Go(func() {
			for j := range jobs {
				q.complete(b, j)
				free <- struct{}{}
			}
		})
	}
	began := time.Now()
	for left := benchJobs; left > 0; {
		<-free
		claimed := q.claim(b, free, left)
		left -= len(claimed)
		for _, j := range claimed {
			jobs <- j
		}
	}
	close(jobs)
	workers.Wait()
	return time.Since(began)
}

// claim gives one job to the worker that is known to be free, and one to each
// that has become free by the time the writer comes to it.
func (q *benchQueue) claim(b *testing.B, free chan struct{}, limit int) (jobs []*storage.Job) {
	err := q.store.Update(context.Background(), func(tx *storage.Tx) error {
		n := 1
		for ; n < limit && len(free) > 0; n++ {
			<-free
		}
		groups, err := tx.ClaimJobs("bench", time.Minute, []storage.ClaimGroup{{Lanes: []storage.LaneID{1}, Max: n}})
		if err == nil {
			jobs = groups[0]
		}
		return err
	})
	if err != nil || len(jobs) == 0 {
		b.Fatalf("claimed %d jobs: %v", len(jobs), err)
	}
	return jobs
}

func (q *benchQueue) complete(b *testing.B, j *storage.Job) {
	c := storage.Completion{
		Attempt: storage.Attempt{
			Phase: "parsed", Status: 200, ConnectStatus: 200, BytesUp: 800, BytesDown: 21_000,
			FinalURL: j.URL, Endpoint: "http://gw.example:31112", Country: "US", Session: "b1946ac9", ParserVersion: 3, Records: 1,
		},
		Mode:    storage.WriteUpsert,
		Records: []storage.NewObservation{{Key: j.Key.Target, Data: q.data}},
		Sinks:   q.sinks,
	}
	err := q.store.Update(context.Background(), func(tx *storage.Tx) error {
		_, err := tx.CompleteJob(j.Lease(), c)
		return err
	})
	if err != nil {
		b.Error(err)
	}
}

// rawStore is the yardstick: one put of 300 bytes per operation under keys in
// order, through the same kind of group commit, on a bare bbolt file.
type rawStore struct {
	db    *bolt.DB
	queue chan chan error
	next  uint64
}

func newRawStore(b *testing.B) *rawStore {
	b.Helper()
	db, err := bolt.Open(filepath.Join(b.TempDir(), "raw.db"), 0o600, &bolt.Options{
		PageSize: 4096, NoFreelistSync: true, FreelistType: bolt.FreelistMapType, InitialMmapSize: 16 << 30,
	})
	if err != nil {
		b.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("raw"))
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	r := &rawStore{db: db, queue: make(chan chan error, 4*inFlight)}
	done := make(chan struct{})
	go func() { defer close(done); r.write() }()
	b.Cleanup(func() { close(r.queue); <-done; db.Close() })
	return r
}

func (r *rawStore) write() {
	for first := range r.queue {
		acks := []chan error{first}
		err := r.db.Update(func(tx *bolt.Tx) error {
			bucket := tx.Bucket([]byte("raw"))
			bucket.FillPercent = 0.9
			for {
				r.next++
				key := binary.BigEndian.AppendUint64(make([]byte, 8, 16), r.next)
				if err := bucket.Put(key, make([]byte, 300)); err != nil {
					return err
				}
				if len(acks) == inFlight {
					return nil
				}
				select {
				case ack, open := <-r.queue:
					if !open {
						return nil
					}
					acks = append(acks, ack)
				default:
					return nil
				}
			}
		})
		for _, ack := range acks {
			ack <- err
		}
	}
}

func (r *rawStore) slice(b *testing.B) time.Duration {
	began := time.Now()
	var callers sync.WaitGroup
	for range inFlight {
		callers.Go(func() {
			for range benchJobs / inFlight {
				ack := make(chan error, 1)
				r.queue <- ack
				if err := <-ack; err != nil {
					b.Error(err)
				}
			}
		})
	}
	callers.Wait()
	return time.Since(began) * benchJobs / (benchJobs / inFlight * inFlight)
}

// BenchmarkEmit measures what the outbox costs an outcome: claim and commit as in
// BenchmarkClaimComplete, with one event for one sink and without any. ratio is
// the speed with it to that without.
func BenchmarkEmit(b *testing.B) {
	with, without := newBenchQueue(b, 2*benchJobs), newBenchQueue(b, 2*benchJobs)
	without.sinks = nil
	var withTime, withoutTime time.Duration
	for b.Loop() {
		withTime += with.slice(b)
		withoutTime += without.slice(b)
		b.StopTimer()
		with.fill(b, benchJobs)
		without.fill(b, benchJobs)
		b.StartTimer()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(withoutTime.Seconds()/withTime.Seconds(), "ratio")
}

// BenchmarkDeliveries measures what a dispatcher asks of the store: the end of a
// batch and the taking of the next in one transaction, and reading it, for 10,000
// events.
func BenchmarkDeliveries(b *testing.B) {
	const events = 10_000
	for _, batch := range []int{16, 256} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			q := newBenchQueue(b, 0)
			q.emit(b, events)
			var took time.Duration
			n := 0
			for b.Loop() {
				n += events
				began := time.Now()
				if sent := deliverAll(b, q.store, batch); sent != events {
					b.Fatalf("delivered %d", sent)
				}
				took += time.Since(began)
				b.StopTimer()
				requeueAll(b, q.store, events)
				b.StartTimer()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(n)/took.Seconds(), "events/s")
		})
	}
}

// emit completes one job with a number of rows, each with an event.
func (q *benchQueue) emit(b *testing.B, events int) {
	q.fill(b, 1)
	c := storage.Completion{Mode: storage.WriteUpsert, Sinks: []storage.Subscription{{Sink: "bench"}}}
	for i := range events {
		c.Records = append(c.Records, storage.NewObservation{Key: fmt.Sprint(i), Data: q.data})
	}
	l := q.claim(b, nil, 1)[0].Lease()
	if err := q.store.Update(b.Context(), func(tx *storage.Tx) error {
		_, err := tx.CompleteJob(l, c)
		return err
	}); err != nil {
		b.Fatal(err)
	}
}

// deliverAll takes and ends all that waits for benchSink.
func deliverAll(b *testing.B, s *storage.Store, batch int) (sent int) {
	const sink = "bench"
	var under []storage.Delivery
	for after := uint64(0); ; {
		var seqs []uint64
		if err := s.View(func(tx *storage.Tx) error {
			events, err := tx.PendingEvents(sink, after, batch)
			for _, e := range events {
				seqs, after = append(seqs, e.Seq), e.Seq
			}
			return err
		}); err != nil {
			b.Fatal(err)
		}
		var taken []uint64
		if err := s.Update(b.Context(), func(tx *storage.Tx) (err error) {
			if err := tx.EndDeliveries(sink, under); err != nil {
				return err
			}
			taken, err = tx.TakeEvents(sink, seqs)
			return err
		}); err != nil {
			b.Fatal(err)
		}
		if sent += len(under); len(taken) == 0 {
			return sent
		}
		under = under[:0]
		for _, seq := range taken {
			under = append(under, storage.Delivery{Event: seq, Outcome: storage.OutcomeDelivered, Counts: true})
		}
	}
}

func requeueAll(b *testing.B, s *storage.Store, events int) {
	if err := s.Update(b.Context(), func(tx *storage.Tx) error {
		for seq := range events {
			if err := tx.RequeueEvent(uint64(seq+1), "bench"); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkExport measures JSON Lines out of the store, with _meta.
func BenchmarkExport(b *testing.B) {
	const rows = 50_000
	s, err := storage.Open(filepath.Join(b.TempDir(), "semel.db"), storage.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	q := &benchQueue{store: s, sinks: benchSink, data: jsonOf(500)}
	q.fill(b, rows)
	for range rows / benchJobs {
		q.slice(b)
	}
	var line []byte
	bytes := 0
	for b.Loop() {
		bytes = 0
		err := s.View(func(tx *storage.Tx) error {
			_, err := tx.Observations("catalog", nil, rows, func(o *storage.Observation) error {
				line = o.AppendLine(line[:0], false)
				bytes += len(line)
				return nil
			})
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(bytes))
	b.ReportMetric(float64(bytes)/float64(rows/benchJobs*benchJobs), "B/line")
}
