package engine

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/delivery"
	"semel/storage"
)

// inbox is a transport that keeps the keys of what it is sent.
type inbox struct {
	answer func(ctx context.Context) delivery.Result // nil: all arrives

	mu     sync.Mutex
	got    []string
	closed int
}

func (b *inbox) Deliver(ctx context.Context, events []*storage.Event) []delivery.Result {
	results := make([]delivery.Result, len(events))
	for i, e := range events {
		results[i] = delivery.Result{Outcome: storage.OutcomeDelivered}
		if b.answer != nil {
			results[i] = b.answer(ctx)
		}
		b.mu.Lock()
		b.got = append(b.got, e.Key)
		b.mu.Unlock()
	}
	return results
}

func (b *inbox) Close() error {
	b.closed++
	return nil
}

func (b *inbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

// delivering are options whose source has its events sent to alerts.
func delivering(s *storage.Store, web *site, src Source, to delivery.Transport) Options {
	src.Sinks = []storage.Subscription{{Sink: "alerts"}}
	opts := options(s, web, src)
	opts.Sinks = []delivery.Sink{{
		Name: "alerts", Transport: to, InFlight: 4, Batch: 1, Timeout: 10 * time.Second,
		Limits: delivery.Limits{Attempts: 15, Time: time.Hour},
	}}
	return opts
}

func down(context.Context) delivery.Result {
	return delivery.Result{Outcome: storage.OutcomeAgain, Reason: "503"}
}

func TestRunOnceDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		b := &inbox{}
		opts := delivering(s, newSite(products), source(t, 20), b)
		sum := runOnce(t, opts)
		if sum.Completed != 20 || sum.Delivered != 20 || sum.Undelivered != 0 || sum.Dead != 0 || b.count() != 20 || b.closed != 1 {
			t.Errorf("%+v, %d events, closed %d times", sum, b.count(), b.closed)
		}
		if sum = runOnce(t, opts); sum.Delivered != 0 || b.count() != 20 {
			t.Errorf("again: %+v, %d events", sum, b.count())
		}
	})
}

// A sink that is down holds back no job, and what is left goes with the next run,
// even if that has no other work and other sources.
func TestRunOnceDeliversWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		b := &inbox{answer: down}
		opts := delivering(s, newSite(products), source(t, 20), b)
		began := time.Now()
		sum := runOnce(t, opts)
		if want := map[string]string{"alerts": "it is paused: 503"}; sum.Completed != 20 || sum.Undelivered != 20 || !maps.Equal(sum.Waiting, want) {
			t.Errorf("%+v", sum)
		}
		if d := time.Since(began); d > time.Minute {
			t.Errorf("it took %s", d)
		}
		b.answer, opts.Sources = nil, nil
		time.Sleep(time.Minute)
		if sum = runOnce(t, opts); sum.Delivered != 20 || sum.Undelivered != 0 {
			t.Errorf("again: %+v", sum)
		}
	})
}

func TestRunDeliversAsItGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		b := &inbox{}
		opts := delivering(s, newSite(products), source(t, 20), b)
		opts.Pacing = pacing(1, time.Minute)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
		defer stop()
		sum, err := e.Run(ctx)
		if err != nil || sum.Delivered != sum.Completed || sum.Delivered < 10 {
			t.Errorf("%+v, %v", sum, err)
		}
	})
}

// Attempts and deliveries have one grace between them.
func TestStopWhileDelivering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		b := &inbox{answer: func(ctx context.Context) delivery.Result {
			<-ctx.Done()
			return delivery.Result{Outcome: storage.OutcomeAmbiguous, Reason: "cut"}
		}}
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if req.URL.Path != "/p/001" {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return product(req.URL.Path), nil
		})
		opts := delivering(s, web, source(t, 3), b)
		opts.Sinks[0].Timeout = time.Hour
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		began := time.Now()
		sum, err := e.Run(ctx)
		if err != nil || sum.Released != 2 || sum.Undelivered != 1 {
			t.Errorf("%+v, %v", sum, err)
		}
		if d := time.Since(began); d != 5*time.Second+opts.Grace {
			t.Errorf("the stop took until %s", d)
		}
		if c := sinkCounts(t, s); c.Ambiguous != 1 {
			t.Errorf("%+v", c)
		}
	})
}

func sinkCounts(t *testing.T, s *storage.Store) (c storage.SinkCounts) {
	t.Helper()
	if err := s.View(func(tx *storage.Tx) error {
		c = tx.SinkCounts()["alerts"]
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return c
}

// Also when all jobs are done and only events are left, a store that has lost its
// file ends the run.
func TestLostStoreEndsDelivering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		b := &inbox{answer: func(ctx context.Context) delivery.Result {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			return delivery.Result{Outcome: storage.OutcomeDelivered}
		}}
		opts := delivering(s, newSite(products), source(t, 100), b)
		opts.Sinks[0].Timeout = time.Hour
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		time.AfterFunc(3*time.Minute, func() {
			if err := os.Rename(s.Path(), s.Path()+".away"); err != nil {
				t.Error(err)
			}
		})
		if sum, err := e.RunOnce(t.Context()); !errors.Is(err, storage.ErrMoved) || sum.Completed != 100 {
			t.Errorf("%+v, %v", sum, err)
		}
		if err := os.Rename(s.Path()+".away", s.Path()); err != nil {
			t.Error(err)
		}
	})
}

func TestCompareDeliversNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		b := &inbox{answer: down}
		opts := delivering(s, newSite(products), source(t, 5), b)
		runOnce(t, opts)
		sent := b.count()
		b.answer = nil
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if done, _ := compared(t, e, Past{Source: "shop"}); done.Same != 5 {
			t.Errorf("%+v", done)
		}
		if b.count() != sent || b.closed != 1 {
			t.Errorf("%d events were sent", b.count()-sent)
		}
	})
}

func TestDeliveringWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		b := &inbox{answer: down}
		opts := delivering(s, newSite(products), source(t, 20), b)
		runOnce(t, opts)
		time.Sleep(time.Minute)
		b.answer = nil
		sent := b.count()
		full := fullDisk(t)
		full.Store(true)
		time.AfterFunc(time.Hour, func() {
			if b.count() != sent {
				t.Errorf("%d events were sent that nobody could note", b.count()-sent)
			}
			full.Store(false)
		})
		if sum := runOnce(t, opts); sum.Delivered != 20 || sum.Undelivered != 0 {
			t.Errorf("%+v", sum)
		}
	})
}
