package engine

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/engine/cron"
	"semel/storage"
)

// scheduled is source, with a schedule.
func scheduled(t testing.TB, n int, spec, zone string, catchUp CatchUp) Source {
	t.Helper()
	location, err := cron.Zone(zone)
	if err != nil {
		t.Fatal(err)
	}
	src := source(t, n)
	if src.Schedule, err = cron.Parse(spec, location); err != nil {
		t.Fatal(err)
	}
	src.CatchUp = catchUp
	return src
}

// shop answers every page.
func shop() *site {
	return newSite(func(req *http.Request, _ int) (*http.Response, error) { return product(req.URL.Path), nil })
}

// madeWindows are the starts of the windows that have jobs, with the number of
// those, such as "01T15:00 2".
func madeWindows(t testing.TB, s *storage.Store) (list []string) {
	t.Helper()
	jobs := map[string]int{}
	err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, 1e6, func(j *storage.Job) bool {
			jobs[j.Window.Format("02T15:04")]++
			return true
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for window, n := range jobs {
		list = append(list, fmt.Sprint(window, " ", n))
	}
	slices.Sort(list)
	return list
}

func wantWindows(t testing.TB, s *storage.Store, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, madeWindows(t, s)); diff != "" {
		t.Errorf("windows: %s", diff)
	}
}

// onceAt is RunOnce at a time that schedules see.
func onceAt(t *testing.T, s *storage.Store, src Source, text string) Summary {
	t.Helper()
	at, err := time.Parse("2006-01-02T15:04:05", text)
	if err != nil {
		t.Fatal(err)
	}
	opts := options(s, shop(), src)
	opts.At = at
	return runOnce(t, opts)
}

// Off while three ticks come, a run makes up for those that catch_up names. The
// window that a schedule is first seen in is due, unless nothing is made up for.
func TestCatchUp(t *testing.T) {
	for catchUp, want := range map[CatchUp][]string{
		CatchUpNone:   {"01T05:00 2"},
		CatchUpLatest: {"01T01:00 2", "01T04:00 2", "01T05:00 2"},
		CatchUpAll:    {"01T01:00 2", "01T02:00 2", "01T03:00 2", "01T04:00 2", "01T05:00 2"},
		"":            {"01T01:00 2", "01T04:00 2", "01T05:00 2"},
	} {
		t.Run(string(catchUp), func(t *testing.T) {
			s := openStore(t)
			src := scheduled(t, 2, "0 * * * *", "", catchUp)
			for _, now := range []string{"01:30:00", "01:59:59", "04:30:00", "04:30:01", "05:00:30", "04:10:00", "05:59:59"} {
				onceAt(t, s, src, "2000-01-01T"+now)
			}
			wantWindows(t, s, want...)
		})
	}
}

// Two runs at one tick, or a second look, make no second job, and read no list.
func TestSameTickAgain(t *testing.T) {
	s := openStore(t)
	src := scheduled(t, 3, "@daily", "", CatchUpLatest)
	if sum := onceAt(t, s, src, "2000-01-02T00:00:00"); sum.New != 3 || sum.Completed != 3 {
		t.Errorf("the first run: %+v", sum)
	}
	if sum := onceAt(t, s, src, "2000-01-02T00:00:00"); sum.New != 0 || sum.Known != 0 || sum.Completed != 0 {
		t.Errorf("the second run: %+v", sum)
	}
	if sum := onceAt(t, openStore(t), src, "2000-01-02T00:00:00"); sum.New != 3 {
		t.Errorf("on another box: %+v", sum)
	}
}

// Ticks that are past when a schedule or its zone is edited are none of the new
// one's; windows that exist stay.
func TestScheduleEdited(t *testing.T) {
	for _, edit := range []struct {
		name, spec, zone string
		want             []string
	}{
		{"schedule", "30 * * * *", "", []string{"01T01:00 1", "01T05:30 1"}},
		{"zone", "0 * * * *", "Asia/Kolkata", []string{"01T01:00 1", "01T05:30 1"}}, // half an hour off
		{"none, and the same again", "0 * * * *", "", []string{"01T01:00 1", "01T06:00 1"}},
	} {
		t.Run(edit.name, func(t *testing.T) {
			s := openStore(t)
			onceAt(t, s, scheduled(t, 1, "0 * * * *", "", CatchUpAll), "2000-01-01T01:10:00")
			if strings.HasPrefix(edit.name, "none") {
				src := source(t, 0)
				onceAt(t, s, src, "2000-01-01T03:10:00")
			}
			src := scheduled(t, 1, edit.spec, edit.zone, CatchUpAll)
			onceAt(t, s, src, "2000-01-01T05:10:00")
			wantWindows(t, s, "01T01:00 1")
			onceAt(t, s, src, "2000-01-01T06:10:00")
			wantWindows(t, s, edit.want...)
		})
	}
}

// A day that is an hour short has 23 windows of an hourly schedule, and one of a
// daily schedule, though its time is left out.
func TestShortDay(t *testing.T) {
	for spec, want := range map[string]int{"0 * * * *": 23, "30 2 * * *": 1} {
		s := openStore(t)
		src := scheduled(t, 1, spec, "America/New_York", CatchUpAll)
		onceAt(t, s, src, "2026-03-08T05:00:00") // midnight, whose window is due
		onceAt(t, s, src, "2026-03-09T03:59:59")
		got := slices.DeleteFunc(madeWindows(t, s), func(w string) bool { return strings.HasPrefix(w, "07") })
		if len(got) != want {
			t.Errorf("%s: %d windows: %v", spec, len(got), got)
		}
	}
}

// A daemon makes each tick as it comes. Its clock may jump over some, as a
// laptop's does that sleeps, and back.
func TestDaemonTicks(t *testing.T) {
	for catchUp, want := range map[CatchUp][]string{
		CatchUpNone:   {"01T01:00 2", "01T02:00 2", "01T06:00 2"},
		CatchUpLatest: {"01T00:00 2", "01T01:00 2", "01T02:00 2", "01T05:00 2", "01T06:00 2"},
		CatchUpAll:    {"01T00:00 2", "01T01:00 2", "01T02:00 2", "01T03:00 2", "01T04:00 2", "01T05:00 2", "01T06:00 2"},
	} {
		t.Run(string(catchUp), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				var jump atomic.Int64
				opts := options(s, shop(), scheduled(t, 2, "0 * * * *", "", catchUp))
				opts.Now = func() time.Time { return time.Now().Add(time.Duration(jump.Load())) }
				time.Sleep(30 * time.Minute)
				stop := startDaemon(t, opts)
				time.Sleep(2 * time.Hour) // 02:30
				jump.Add(int64(3 * time.Hour))
				time.Sleep(10 * time.Minute) // 05:40
				jump.Add(-int64(2 * time.Hour))
				time.Sleep(time.Hour)        // 04:40, for the second time
				jump.Add(int64(time.Hour))   // 05:40, for the second time
				time.Sleep(30 * time.Minute) // 06:10
				stop()
				wantWindows(t, s, want...)
			})
		})
	}
}

// startDaemon runs an engine until what it gives is called.
func startDaemon(t *testing.T, opts Options) (stop func()) {
	t.Helper()
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := e.Run(ctx)
		ended <- err
	}()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		e.Close()
	}
}
