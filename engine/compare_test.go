package engine

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/storage"
	"semel/storage/storagetest"
)

var pastWindow = time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)

// offer makes the jobs of a source for a window.
func offer(t *testing.T, s *storage.Store, src Source, window time.Time) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx *storage.Tx) error {
		for _, target := range src.Targets.Targets {
			n, err := src.NewJob(target, window)
			if err != nil {
				return err
			}
			if _, err := tx.EnqueueJob(n); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func compared(t *testing.T, e *Engine, past Past) (done Comparison, differences []string) {
	t.Helper()
	scratch := storagetest.OpenAt(t, filepath.Join(t.TempDir(), "scratch.db"), storage.Options{NoSync: true})
	done, err := e.Compare(t.Context(), past, scratch, func(d Difference) error {
		text := ""
		for _, o := range []*storage.Observation{d.Was, d.Now} {
			if o == nil {
				text += "nothing "
			} else {
				text += fmt.Sprintf("%s %s ", o.Key.Target, o.Data)
			}
		}
		differences = append(differences, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(differences)
	return done, differences
}

// A past window is collected again and compared row by row; the store stays as
// it is.
func TestCompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		now := map[string]func(nth int) (*http.Response, error){}
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			if answer := now[req.URL.Path]; answer != nil {
				return answer(nth)
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 8)
		src.Gone = true
		now["/p/008"] = func(int) (*http.Response, error) { return respond(404, ""), nil }
		offer(t, s, src, pastWindow)
		opts := options(s, web, src)
		opts.Sources[0].Targets.Targets = nil
		opts.Bodies = BodiesAll
		runOnce(t, opts)
		one := source(t, 1) // of which a later window's row stands now
		offer(t, s, one, pastWindow.Add(24*time.Hour))
		runOnce(t, opts)
		before := export(t, s, "shop")

		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		past := Past{Source: "shop", From: pastWindow, To: pastWindow.Add(time.Second)}
		done, differences := compared(t, e, past)
		if want := (Comparison{Jobs: 8, Same: 7, Elsewhere: 1}); done != want || len(differences) > 0 {
			t.Errorf("the same site: %+v, want %+v; %q", done, want, differences)
		}

		now["/p/002"] = func(int) (*http.Response, error) { return respond(200, "<h1>Two</h1>"), nil }
		now["/p/003"] = func(int) (*http.Response, error) { return respond(404, ""), nil }
		now["/p/004"] = func(int) (*http.Response, error) { return respond(200, "nothing"), nil }
		now["/p/005"] = func(nth int) (*http.Response, error) {
			if nth < 4 {
				return respond(503, ""), nil
			}
			return product("/p/005"), nil
		}
		delete(now, "/p/008")
		done, differences = compared(t, e, past)
		if want := (Comparison{Jobs: 8, Failed: 1, Same: 3, New: 1, Changed: 1, Gone: 1, Elsewhere: 1, NotCompared: 1}); done != want {
			t.Errorf("a changed site: %+v, want %+v", done, want)
		}
		if want := []string{
			`002 {"title":"Thing /p/002"} 002 {"title":"Two"} `,
			`003 {"title":"Thing /p/003"} nothing `,
			`nothing 008 {"title":"Thing /p/008"} `,
		}; !slices.Equal(differences, want) {
			t.Errorf("differences %q, want %q", differences, want)
		}
		if got := export(t, s, "shop"); got != before {
			t.Errorf("the store has\n%s, had\n%s", got, before)
		}
		if _, err := e.Compare(t.Context(), Past{Source: "shop"}, s, nil); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("without such jobs: %v", err)
		}
	})
}

// A comparison beside a run keeps to the run's pace: a host is asked no more
// often, and no more at once, than by one of them.
func TestCompareIsAGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		var mu sync.Mutex
		var starts []time.Time
		asking, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			if asking += n; n > 0 {
				starts = append(starts, time.Now())
			}
			most = max(most, asking)
		}
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			count(1)
			defer count(-1)
			time.Sleep(300 * time.Millisecond)
			return product(req.URL.Path), nil
		})
		src := source(t, 20)
		offer(t, s, src, pastWindow)
		opts := options(s, web, src)
		opts.Sources[0].Targets.Targets = nil
		opts.Pacing = pacing(1, time.Second)
		runOnce(t, opts)
		starts, most = nil, 0
		offer(t, s, src, pastWindow.Add(24*time.Hour))
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ended := make(chan error, 1)
		go func() {
			_, err := e.RunOnce(t.Context())
			ended <- err
		}()
		done, differences := compared(t, e, Past{Source: "shop", From: pastWindow, To: pastWindow.Add(time.Second)})
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if done.Jobs != 20 || done.Failed != 0 || len(differences) > 0 {
			t.Errorf("%+v, %q", done, differences)
		}
		if len(starts) != 40 || most > 1 {
			t.Errorf("%d requests, %d at once", len(starts), most)
		}
		for i := 1; i < len(starts); i++ {
			if gap := starts[i].Sub(starts[i-1]); gap < time.Second {
				t.Errorf("request %d came %s after the one before", i, gap)
			}
		}
	})
}

// Rows that have the window in their keys are compared, too.
func TestCompareByWindow(t *testing.T) {
	for _, mode := range []storage.WriteMode{storage.WriteAppend, storage.WriteReplace} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				title := "One"
				web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
					if req.URL.Path == "/p/001" {
						return respond(200, "<h1>"+title+"</h1>"), nil
					}
					return product(req.URL.Path), nil
				})
				src := source(t, 3)
				src.Write = mode
				opts := options(s, web, src)
				opts.Sources[0].Targets.Targets = nil
				for day := range 2 {
					window := pastWindow.AddDate(0, 0, day)
					offer(t, s, src, window)
					if err := s.Update(t.Context(), func(tx *storage.Tx) error {
						r, err := tx.OpenRun(storage.RunKey{Source: "shop", Window: window}, storage.RunWindow)
						if err != nil {
							return err
						}
						return tx.EndListing(r, nil)
					}); err != nil {
						t.Fatal(err)
					}
					runOnce(t, opts)
				}
				title = "Uno"
				e, err := New(opts)
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				done, differences := compared(t, e, Past{Source: "shop", From: pastWindow, To: pastWindow.Add(time.Second)})
				if want := (Comparison{Jobs: 3, Same: 2, Changed: 1}); done != want {
					t.Errorf("%+v, want %+v; %q", done, want, differences)
				}
			})
		})
	}
}

// What a comparison sends counts against the day's budget of the engine beside
// it, and it begins with what that one has used up.
func TestGuestAndBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		opts := options(s, newSite(products), source(t, 1))
		home := testProxy(t, "home")
		home.Budget = 1000
		opts.Proxies = []Proxy{home}
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		scratch := openStore(t)
		opts.Store = scratch
		guest, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer guest.Close()
		guest.guestOf = e
		now := e.now()
		e.health.spend("home", 600, now)
		if err := guest.takeOver(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := guest.health.spent("home", now); got != 600 {
			t.Errorf("the guest begins with %d bytes", got)
		}
		guest.charge("home", 250, now)
		guest.charge("", 250, now)
		if got := e.health.spent("home", now); got != 850 {
			t.Errorf("%d bytes are counted beside it", got)
		}
		if got := e.health.spent("home", now.Add(24*time.Hour)); got != 0 {
			t.Errorf("%d bytes of tomorrow", got)
		}
	})
}

// Links lead a comparison nowhere: the jobs of the past are what is compared, also
// where the site has more pages by now.
func TestCompareFollowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		pages := 3
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) { return listing(pages)(req, nth) })
		src := follower(t, "/list/1", "a.next")
		opts := options(s, web, src)
		runOnce(t, opts)
		pages = 5
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		done, differences := compared(t, e, Past{Source: "shop"})
		if want := (Comparison{Jobs: 3, Same: 3}); done != want || len(differences) > 0 {
			t.Errorf("%+v, want %+v; %q", done, want, differences)
		}
	})
}
