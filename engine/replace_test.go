package engine

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"semel/storage"
)

// offerWindow makes the run of a window of a source.
func offerWindow(t *testing.T, s *storage.Store, src *Source, window time.Time) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *storage.Tx) error {
		r, err := tx.OpenRun(storage.RunKey{Source: src.Name, Window: window}, storage.RunWindow)
		if err != nil {
			return err
		}
		tx.BeginListing(r)
		for _, target := range src.Targets.Targets {
			n, err := src.NewJob(target, window)
			if err != nil {
				return err
			}
			if _, err := tx.EnqueueJob(n); err != nil {
				return err
			}
		}
		if r, err = tx.Run(r.ID); err != nil {
			return err
		}
		return tx.EndListing(r, src.Sinks)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A window's rows stand when all of its jobs are complete, and not before; the
// run in which they came to be held says so, and no later one. Without a window
// there is nothing to replace.
func TestReplaceWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		broken := true
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if broken && req.URL.Path == "/p/002" {
				return respond(404, "no such thing"), nil
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 3)
		src.Write, src.Windowed = storage.WriteReplace, true
		opts := options(s, web, src)
		opts.Bodies = BodiesAll
		if sum := runOnce(t, opts); sum.New != 0 || sum.BadRows != 0 || web.total() != 0 {
			t.Errorf("without a window: %+v", sum)
		}
		offerWindow(t, s, &src, time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC))
		for i, held := range []int{1, 0} {
			sum := runOnce(t, opts)
			if sum.Held != held || len(shopRows(t, s)) != 0 {
				t.Errorf("run %d: %d held, %d rows", i, sum.Held, len(shopRows(t, s)))
			}
			time.Sleep(time.Second)
		}
		if got := replayed(t, opts); got.Missing != 2 || got.Rows != 0 || len(got.Unlike) != 0 {
			t.Errorf("replay of a run that is held: %+v", got)
		}
		broken = false
		if err := s.Update(t.Context(), func(tx *storage.Tx) error { _, err := tx.RequeueJob(2); return err }); err != nil {
			t.Fatal(err)
		}
		if sum := runOnce(t, opts); sum.Held != 0 || sum.Completed != 1 || len(shopRows(t, s)) != 3 {
			t.Errorf("after the retry: %+v, %d rows", sum, len(shopRows(t, s)))
		}
		if got := replayed(t, opts); got.Missing != 0 || got.Rows != 3 || len(got.Unlike) != 0 {
			t.Errorf("replay: %+v", got)
		}
	})
}

// Each window of an append source has its own rows, also when they are read again.
func TestAppendWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		src := source(t, 2)
		src.Write = storage.WriteAppend
		opts := options(s, newSite(products), src)
		opts.Bodies = BodiesAll
		for day := range 2 {
			offerWindow(t, s, &src, time.Date(2026, 4, 23+day, 0, 0, 0, 0, time.UTC))
		}
		runOnce(t, opts) // makes those without a window, too
		if n := len(shopRows(t, s)); n != 6 {
			t.Errorf("%d rows, want 6", n)
		}
		if got := replayed(t, opts); got.Rows != 6 || len(got.Unlike) != 0 {
			t.Errorf("replay: %+v", got)
		}
	})
}

func shopRows(t *testing.T, s *storage.Store) (rows []*storage.Observation) {
	t.Helper()
	err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Observations("shop", nil, 100, func(o *storage.Observation) error {
			rows = append(rows, o)
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
