package delivery

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"semel/storage"
	"semel/storage/storagetest"
)

// BenchmarkDeliver brings 10,000 events to a webhook on loopback, 16 at a time,
// from a store that is synced as a run opens it.
func BenchmarkDeliver(b *testing.B) {
	const events = 10_000
	for b.Loop() {
		b.StopTimer()
		var got atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			got.Add(1)
			w.WriteHeader(http.StatusNoContent)
		}))
		s := storagetest.OpenAt(b, b.TempDir()+"/semel.db", storage.Options{Gather: 5 * time.Millisecond})
		for i := range events / 500 {
			emit(b, s, []string{"a"}, rows(fmt.Sprintf("k%d-", i), 500)...)
		}
		to := hook(b, server.URL, func(o *WebhookOptions) { o.InFlight = 16 })
		d := New(Options{
			Store: s, Update: s.Update, Sinks: []Sink{sink("a", 16, to)},
			Log: slog.New(slog.DiscardHandler), Now: time.Now, Grace: time.Second,
		})
		done := make(chan struct{})
		close(done)
		b.StartTimer()
		if err := d.Run(context.Background(), done); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		server.Close()
		if got.Load() != events {
			b.Fatalf("%d events arrived", got.Load())
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
}
