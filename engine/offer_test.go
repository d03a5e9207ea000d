package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"semel/engine/intake"
	"semel/storage"
	"semel/storage/storagetest"
)

var listedWindow = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// fromFile lets a source take its targets from a file with some ids.
func fromFile(t testing.TB, src Source, ids ...string) (Source, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "targets.csv")
	writeTargets(t, path, ids...)
	src.Targets = intake.Spec{Kind: intake.CSV, Path: path}
	return src, path
}

func writeTargets(t testing.TB, path string, ids ...string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("id\n"+strings.Join(ids, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func targetsOf(t rapid.TB, s *storage.Store) (list []string) {
	t.Helper()
	err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, 1e6, func(j *storage.Job) bool {
			list = append(list, j.Window.Format("15")+" "+j.Key.Target)
			return true
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// cutShort is an engine that opens windows for its one source, and what is done
// before it is killed.
func cutShort(t *testing.T, s *storage.Store, src Source, do func(f *feed, l *storage.List) error) {
	t.Helper()
	e, err := New(options(s, shop(), src))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx := t.Context()
	if err := e.takeOver(ctx); err != nil {
		t.Fatal(err)
	}
	if err := e.openWindows(ctx, &e.opts.Sources[0], storage.RunTick, []time.Time{listedWindow, listedWindow.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	var lists []*storage.List
	if err := s.View(func(tx *storage.Tx) (err error) {
		lists, err = tx.Lists(src.Name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := do(e.feeds[src.Name], lists[0]); err != nil {
		t.Fatal(err)
	}
	storagetest.Check(t, s)
}

// Killed in whichever phase, the next run goes on: with the list that was read,
// though the file is another by now; what was read by half is read again.
func TestListCutShort(t *testing.T) {
	ids := make([]string, enqueueChunk+10)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	edited := []string{"new"}
	for _, test := range []struct {
		name string
		want []string // targets of each window
		do   func(f *feed, l *storage.List) error
	}{
		{"before it is read", edited, func(*feed, *storage.List) error { return nil }},
		{"while it is read", edited, func(f *feed, l *storage.List) error {
			part := storage.PackTargets([]storage.ListTarget{{Vars: []storage.Var{{Name: "id", Value: "half"}}}})
			return f.change(context.Background(), l, func(tx *storage.Tx) error { return tx.AddChunk(l, part) })
		}},
		{"after it was read", ids, func(f *feed, l *storage.List) error {
			return f.read(context.Background(), l, listedWindow, f.e.tally(f.src))
		}},
		{"while it is made", ids, func(f *feed, l *storage.List) error {
			err := f.read(context.Background(), l, listedWindow, f.e.tally(f.src))
			r, err2 := f.nextRun(l)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return f.makeChunk(context.Background(), l, r, f.e.tally(f.src))
		}},
		{"after one window", ids, func(f *feed, l *storage.List) error {
			err := f.read(context.Background(), l, listedWindow, f.e.tally(f.src))
			for range l.Chunks {
				r, err2 := f.nextRun(l)
				if err = errors.Join(err, err2); err == nil {
					err = f.makeChunk(context.Background(), l, r, f.e.tally(f.src))
				}
			}
			return err
		}},
		{"while it is dropped", ids, func(f *feed, l *storage.List) error {
			err := f.read(context.Background(), l, listedWindow, f.e.tally(f.src))
			for range 2 * l.Chunks {
				r, err2 := f.nextRun(l)
				if err = errors.Join(err, err2); err == nil {
					err = f.makeChunk(context.Background(), l, r, f.e.tally(f.src))
				}
			}
			return errors.Join(err, f.change(context.Background(), l, func(tx *storage.Tx) error {
				_, err := tx.DropChunks(l, 1)
				return err
			}))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := openStore(t)
			src, path := fromFile(t, source(t, 0), ids...)
			cutShort(t, s, src, test.do)
			writeTargets(t, path, edited...)
			e, err := New(options(s, shop(), src))
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if err := e.feeds[src.Name].work(t.Context()); err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, id := range test.want {
				want = append(want, "00 "+id, "01 "+id)
			}
			slices.Sort(want)
			if got := targetsOf(t, s); !slices.Equal(got, want) {
				t.Errorf("%d jobs %v…, want %d", len(got), got[:min(3, len(got))], len(want))
			}
			wantOffered(t, s, 2, len(test.want))
		})
	}
}

// wantOffered wants all runs to have been offered a list of so many targets, and
// no list to be left.
func wantOffered(t *testing.T, s *storage.Store, runs, targets int) {
	t.Helper()
	err := s.View(func(tx *storage.Tx) error {
		n := 0
		err := tx.Runs(0, func(r *storage.Run) bool {
			n++
			if !r.Offered || r.Listing || r.List != 0 || r.Targets != uint64(targets) || r.Sum == [sha256.Size]byte{} {
				t.Errorf("run %s: %+v", r.Key, r)
			}
			return true
		})
		if n != runs {
			t.Errorf("%d runs, want %d", n, runs)
		}
		lists, err2 := tx.Lists("shop")
		if len(lists) > 0 {
			t.Errorf("lists left: %+v", lists[0])
		}
		return errors.Join(err, err2)
	})
	if err != nil {
		t.Error(err)
	}
}

// A tick whose targets cannot be read is told, and made when they can be: by the
// next run, or by the same one if that goes on.
func TestUnreadableAtTick(t *testing.T) {
	s := openStore(t)
	src, path := fromFile(t, scheduled(t, 0, "@daily", "", CatchUpLatest), "1")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if sum := onceAt(t, s, src, "2000-01-01T15:00:00"); sum.BadFiles != 1 || sum.New != 0 {
		t.Errorf("without its file: %+v", sum)
	}
	writeTargets(t, path, "1", "2")
	if sum := onceAt(t, s, src, "2000-01-01T15:00:01"); sum.BadFiles != 0 || sum.New != 2 {
		t.Errorf("with its file: %+v", sum)
	}
	wantOffered(t, s, 1, 2)
}

func TestUnreadableAtTickOfDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		src, path := fromFile(t, scheduled(t, 0, "@daily", "", CatchUpLatest), "1")
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		stop := startDaemon(t, options(s, shop(), src))
		time.Sleep(firstRetry + 2*firstRetry + 4*firstRetry - time.Second)
		wantWindows(t, s)
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		stop()
		wantWindows(t, s, "01T00:00 1")
	})
}

// A window that is asked for is collected, whether or not the source has a
// schedule, and nothing else is.
func TestRunWindow(t *testing.T) {
	window, err := intake.ParseWindow("2000-01-05")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		src  Source
		want []string
	}{
		"no schedule": {source(t, 2), []string{"05T00:00 2"}},
		"schedule":    {scheduled(t, 2, "0 6,18 * * *", "", CatchUpAll), []string{"05T06:00 2", "05T18:00 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			opts := options(s, shop(), test.src)
			opts.Window = window
			for range 2 {
				runOnce(t, opts)
				wantWindows(t, s, test.want...)
			}
			kinds := map[storage.RunKind]int{}
			if err := s.View(func(tx *storage.Tx) error {
				return tx.Runs(0, func(r *storage.Run) bool { kinds[r.Kind]++; return !r.Finished.IsZero() })
			}); err != nil || kinds[storage.RunWindow] != len(test.want) {
				t.Errorf("runs by kind: %v, %v", kinds, err)
			}
		})
	}
}

// backfillShop backfills [from, to), hours of 2000-01-01, and checks the store.
func backfillShop(t rapid.TB, s *storage.Store, src Source, from, to int) (b Backfilled, bad []string) {
	t.Helper()
	e, err := New(options(s, shop(), src))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	b, err = e.Backfill(context.Background(), "shop", listedWindow.Add(time.Duration(from)*time.Hour), listedWindow.Add(time.Duration(to)*time.Hour),
		func(row *intake.RowError) { bad = append(bad, row.Error()) })
	if err != nil {
		t.Fatal(err)
	}
	return b, bad
}

// A backfill makes the schedule's windows of its range, counts what is there, and
// makes nothing the second time.
func TestBackfill(t *testing.T) {
	s := openStore(t)
	src, path := fromFile(t, scheduled(t, 0, "@hourly", "", CatchUpNone), "1", "2", "3,3")
	onceAt(t, s, src, "2000-01-01T00:30:00") // sees the schedule first, and passes the window over
	onceAt(t, s, src, "2000-01-01T02:00:00")
	wantWindows(t, s, "01T02:00 2")
	b, bad := backfillShop(t, s, src, 1, 4)
	if b != (Backfilled{Windows: 3, New: 4, Known: 2, BadRows: 1}) || len(bad) != 1 || !strings.HasPrefix(bad[0], path+":4: ") {
		t.Errorf("the first time: %+v, %v", b, bad)
	}
	if b, _ := backfillShop(t, s, src, 1, 4); b != (Backfilled{Windows: 3, Known: 6, BadRows: 1}) {
		t.Errorf("the second time: %+v", b)
	}
	wantWindows(t, s, "01T01:00 2", "01T02:00 2", "01T03:00 2")
	storagetest.Check(t, s)
}

// A backfill makes no window that is yet to begin: its tick will.
func TestBackfillEndsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		time.Sleep(2 * time.Hour)
		if b, _ := backfillShop(t, s, scheduled(t, 1, "@hourly", "", CatchUpNone), 1, 9); b.Windows != 2 {
			t.Errorf("%+v", b)
		}
		wantWindows(t, s, "01T01:00 1", "01T02:00 1")
	})
}

// Without a schedule there are no windows to go back to.
func TestBackfillWithoutSchedule(t *testing.T) {
	e, err := New(options(openStore(t), shop(), source(t, 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Backfill(t.Context(), "shop", listedWindow, listedWindow.AddDate(0, 0, 1), nil); !errors.Is(err, ErrNoSchedule) {
		t.Errorf("backfill: %v", err)
	}
}

// Jobs of a backfill wait until nothing else of their site is ready.
func TestBackfillBehindCurrentWork(t *testing.T) {
	s := openStore(t)
	src := scheduled(t, 2, "@hourly", "", CatchUpLatest)
	src.Priority = -100
	backfillShop(t, s, src, 0, 5)
	tickShop(t, s, src, 5)
	opts := options(s, shop(), src)
	opts.Workers, opts.At = 1, listedWindow.Add(5*time.Hour)
	runOnce(t, opts)
	last := time.Time{}
	if err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, 99, func(j *storage.Job) bool {
			if j.Window.Hour() == 5 && j.FirstClaim.After(last) {
				last = j.FirstClaim
			}
			return true
		})
		if err != nil {
			return err
		}
		_, err = tx.Jobs(0, 99, func(j *storage.Job) bool {
			if j.Window.Hour() < 5 && j.FirstClaim.Before(last) {
				t.Errorf("job %s was claimed before the last of the current window", j.Key)
			}
			return true
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A backfill beside a daemon hands its jobs to it.
func TestBackfillBesideDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		time.Sleep(5*time.Hour + time.Minute)
		e, err := New(options(s, shop(), scheduled(t, 2, "@hourly", "", CatchUpLatest)))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := e.Run(ctx)
			ended <- err
		}()
		time.Sleep(time.Minute)
		b, err := e.Backfill(t.Context(), "shop", listedWindow, listedWindow.Add(5*time.Hour), nil)
		if err != nil || b.New != 10 {
			t.Errorf("backfill: %+v, %v", b, err)
		}
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := counters(t, s).State(storage.StateComplete); n != 12 {
			t.Errorf("%d jobs complete, want 12", n)
		}
	})
}

// Whatever asks for windows, in whichever order and cut short where it may be, the
// jobs are those of the windows that were asked for, each once.
func TestWaysInAgree(t *testing.T) {
	src := scheduled(t, 3, "0 * * * *", "", CatchUpAll)
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "semel-ways-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s, err := storage.Open(filepath.Join(dir, "semel.db"), storage.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		want, now := map[int]bool{}, 0
		for range rapid.IntRange(1, 5).Draw(t, "ways") {
			from := rapid.IntRange(0, 6).Draw(t, "from")
			to := from + rapid.IntRange(1, 3).Draw(t, "hours")
			if rapid.Bool().Draw(t, "backfill") {
				cutBackfill(t, s, src, from, rapid.IntRange(0, 8).Draw(t, "killed after"))
				backfillShop(t, s, src, from, to)
				for h := from; h < to; h++ {
					want[h] = true
				}
				want[from] = true
				continue
			}
			if first := now == 0; first || to > now {
				for h := now + 1; h <= to && !first; h++ {
					want[h] = true
				}
				want[to], now = true, to
			}
			tickShop(t, s, src, to)
		}
		var list []string
		for h := range want {
			for i := range 3 {
				list = append(list, fmt.Sprintf("%02d %03d", h, i+1))
			}
		}
		slices.Sort(list)
		if got := targetsOf(t, s); !slices.Equal(got, list) {
			t.Fatalf("jobs %v, want %v", got, list)
		}
		if breaches, err := s.Check(); err != nil || len(breaches) > 0 {
			t.Fatalf("check: %v, %v", breaches, err)
		}
	})
}

// cutBackfill backfills an hour, and is cut short after some steps.
func cutBackfill(t rapid.TB, s *storage.Store, src Source, hour, steps int) {
	e, err := New(options(s, shop(), src))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	from := listedWindow.Add(time.Duration(hour) * time.Hour)
	_, err = e.Backfill(&stepContext{Context: context.Background(), left: steps}, "shop", from, from.Add(time.Hour), nil)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// stepContext ends after it was looked at some times.
type stepContext struct {
	context.Context
	left int
}

func (c *stepContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// tickShop opens and makes what is due at an hour.
func tickShop(t rapid.TB, s *storage.Store, src Source, hour int) {
	opts := options(s, shop(), src)
	opts.At = listedWindow.Add(time.Duration(hour) * time.Hour)
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.takeOver(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := e.enqueueAll(context.Background(), true); err != nil {
		t.Fatal(err)
	}
}
