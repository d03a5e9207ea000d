package fetch

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// However many bodies grow at once, they hold no more than the budget and one
// whole body, and all of them get what they need.
func TestBudgetBoundsAllBodies(t *testing.T) {
	const budget, body = 2 << 20, 1 << 20
	b := NewBudget(budget)
	var held, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 0))
			s := b.Share()
			defer s.Free()
			size := int64(1 << 10)
			for ; size < body; size *= 2 {
				if err := s.grow(t.Context(), size, func() {}); err != nil {
					t.Error(err)
				}
				now := held.Add(size / 2)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				for range r.IntN(20) {
					runtime.Gosched()
				}
			}
			held.Add(-(size/2 - 1<<9))
		})
	}
	wg.Wait()
	if m := most.Load(); m > budget+body {
		t.Errorf("bodies held %d bytes at once, the bound is %d", m, budget+body)
	}
	if !b.left.TryAcquire(budget) {
		t.Error("a freed share kept something")
	}
}

// A body that waits for its share is not taken for a silent site, and waits no
// longer than its attempt.
func TestShareWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1)
		first, alive := b.Share(), 0
		if err := first.grow(t.Context(), 1, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		err := b.Share().grow(ctx, 1, func() { alive++ })
		if !errors.Is(err, errNoShare) || !errors.Is(err, context.DeadlineExceeded) || alive != 10 {
			t.Errorf("got %v after %d signs of life", err, alive)
		}
		first.Free()
		if err := b.Share().grow(t.Context(), 1, nil); err != nil {
			t.Error(err)
		}
	})
}

// Pages of all sizes come whole through a budget smaller than they are.
func TestPagesThroughASmallBudget(t *testing.T) {
	page := bytes.Repeat([]byte("0123456789abcdef"), 200<<10/16*16)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
	defer site.Close()
	b := NewBudget(300 << 10)
	s := NewSession(Options{AllowPrivate: true})
	defer s.Close()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			share := b.Share()
			defer share.Free()
			p, _, err := s.Do(t.Context(), Request{URL: site.URL, Share: share})
			if err != nil || !bytes.Equal(p.Body, page) {
				t.Errorf("the page did not come whole: %v", err)
			}
		})
	}
	wg.Wait()
}

// A body that is announced as larger than what the byte limit leaves is not
// begun.
func TestAnnouncedBodyOverTheByteLimit(t *testing.T) {
	page := bytes.Repeat([]byte("x"), 2<<20)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(page)))
		_, _ = w.Write(page)
	}))
	defer site.Close()
	s := NewSession(Options{AllowPrivate: true})
	defer s.Close()
	_, trace, err := s.Do(t.Context(), Request{URL: site.URL, MaxBytes: 1 << 20})
	if !errors.Is(err, ErrMaxBytes) || trace.BytesDown > 256<<10 {
		t.Errorf("got %v after %d bytes", err, trace.BytesDown)
	}
}

// Bodies that are held while the next one comes count beside it, and are given
// back with it.
func TestShareKeeps(t *testing.T) {
	const budget = 4 * budgetStep
	b := NewBudget(budget)
	s := b.Share()
	for n := range 4 {
		if err := s.grow(t.Context(), budgetStep, nil); err != nil || s.taken != int64(n+1)*budgetStep {
			t.Fatalf("body %d: %d bytes are taken (%v)", n+1, s.taken, err)
		}
		s.Keep()
	}
	if b.left.TryAcquire(1) {
		t.Error("more than the budget is left")
	}
	s.Free()
	if err := s.grow(t.Context(), budgetStep, nil); err != nil || s.taken != budgetStep {
		t.Errorf("a freed share takes %d bytes (%v)", s.taken, err)
	}
	s.Free()
	if !b.left.TryAcquire(budget) {
		t.Error("a freed share kept something")
	}
}
