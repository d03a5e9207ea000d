package engine

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/parser"
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

// onlyRun reads the only run of a store.
func onlyRun(t *testing.T, s *storage.Store) (r *storage.Run) {
	t.Helper()
	if err := s.View(func(tx *storage.Tx) (err error) { r, err = tx.Run(1); return err }); err != nil {
		t.Fatal(err)
	}
	return r
}

func discardRun(t *testing.T, s *storage.Store) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx *storage.Tx) error { _, err := tx.DiscardRun(1); return err }); err != nil {
		t.Fatal(err)
	}
}

func recollect(t *testing.T, opts Options, jobs ...uint64) {
	t.Helper()
	err := opts.Store.Update(t.Context(), func(tx *storage.Tx) error {
		for _, id := range jobs {
			if _, err := tx.RecollectJob(id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	runOnce(t, opts)
}

// inTurn are options under which pages are collected one at a time, and kept.
func inTurn(s *storage.Store, web http.RoundTripper, src Source) Options {
	opts := options(s, web, src)
	opts.Bodies, opts.Workers = BodiesAll, 1
	return opts
}

// What a reparse holds since a page of the window could not be read stays held, whatever
// looks at the run next.
func TestHoldOfReparseStays(t *testing.T) {
	for name, next := range map[string]func(*testing.T, *storage.Store){
		"offered again": func(t *testing.T, s *storage.Store) {
			src := offersOf(t, 6, 2, storage.WriteReplace, "li")
			offerWindow(t, s, &src, anyDay)
		},
		"reparsed again": func(t *testing.T, s *storage.Store) {
			reparse(t, idle(t, s, offersOf(t, 6, 2, storage.WriteReplace, "li:not(.more), li.p001 b, li.p002 b")), false)
		},
		"one of two pages released": func(t *testing.T, s *storage.Store) {
			e := idle(t, s, offersOf(t, 6, 3, storage.WriteReplace, "li:not(.more), li.p002 b"))
			if left, err := e.Release(t.Context(), "shop", 1); err != nil || len(left) > 0 {
				t.Fatal(left, err)
			}
		},
		"a job collected again": func(t *testing.T, s *storage.Store) {
			recollect(t, inTurn(s, newSite(offers), offersOf(t, 6, 2, storage.WriteReplace, "li:not(.more), li.p001 b, li.p002 b")), 6)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := collectedWindow(t, offersOf(t, 6, 1, storage.WriteReplace, "li"))
				done, _ := reparse(t, idle(t, s, offersOf(t, 6, 2, storage.WriteReplace, "li:not(.more), li.p001 b, li.p002 b")), false)
				before := rows(t, s)
				if done.Unfit != 2 || done.Held != 1 {
					t.Fatalf("%+v", done)
				}
				next(t, s)
				if r, after := onlyRun(t, s), rows(t, s); r.Held == "" || !slices.Equal(before, after) {
					t.Errorf("held %q, rows %q, before %q", r.Held, after, before)
				}
				reparse(t, idle(t, s, offersOf(t, 6, 4, storage.WriteReplace, "li")), false)
				if r := onlyRun(t, s); r.Held != "" {
					t.Errorf("all pages fit, and the run is held: %s", r.Held)
				}
			})
		})
	}
}

// A page that does not fit holds a run that is worked on meanwhile once it is over.
func TestReparseOfOpenWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := collectedWindow(t, offersOf(t, 6, 1, storage.WriteReplace, "li"))
		before := rows(t, s)
		if err := s.Update(t.Context(), func(tx *storage.Tx) error { _, err := tx.RecollectJob(6); return err }); err != nil {
			t.Fatal(err)
		}
		mended := offersOf(t, 6, 2, storage.WriteReplace, "li:not(.more), li.p001 b")
		if done, _ := reparse(t, idle(t, s, mended), false); done.Unfit != 1 || done.Held != 0 {
			t.Fatalf("%+v", done)
		}
		runOnce(t, inTurn(s, newSite(offers), mended))
		if r, after := onlyRun(t, s), rows(t, s); r.Held == "" || !slices.Equal(before, after) {
			t.Errorf("held %q, rows %q, before %q", r.Held, after, before)
		}
	})
}

// What a person has discarded of a reparse is read again by the next one, and held again
// where it must be.
func TestReparseAfterDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := offersOf(t, 6, 1, storage.WriteReplace, "li")
		s := collectedWindow(t, first)
		recollected(t, s, first, 1) // its page is not kept
		mended := offersOf(t, 6, 2, storage.WriteReplace, "li:not(.more)")
		for range 2 {
			if done, _ := reparse(t, idle(t, s, mended), false); done != (Reparsing{Jobs: 6, Changed: 5, Missing: 1, Held: 1}) {
				t.Errorf("%+v", done)
			}
			discardRun(t, s)
		}
		recollect(t, inTurn(s, newSite(offers), mended), 1) // all pages can be read now
		if done, _ := reparse(t, idle(t, s, mended), false); done != (Reparsing{Jobs: 6, Same: 1, Changed: 5}) {
			t.Errorf("%+v", done)
		}
		for _, o := range shopRows(t, s) {
			if o.Version != 2 {
				t.Errorf("row %s is of version %d", o.Data, o.Version)
			}
		}
	})
}

// A job's page is not held against rows that a person has discarded, whether they came of
// a reparse or of collecting again.
func TestReplayAfterDiscard(t *testing.T) {
	src := offersOf(t, 6, 1, storage.WriteReplace, "li")
	for name, again := range map[string]func(*testing.T, *storage.Store) Options{
		"reparsed": func(t *testing.T, s *storage.Store) Options {
			mended := offersOf(t, 6, 2, storage.WriteReplace, "li.p001") // fewer than half: held
			reparse(t, idle(t, s, mended), false)
			return inTurn(s, newSite(offers), mended)
		},
		"collected": func(t *testing.T, s *storage.Store) Options {
			none := func(*http.Request, int) (*http.Response, error) { return respond(200, "<p>none"), nil }
			opts := inTurn(s, newSite(none), src)
			recollect(t, opts, 1, 2, 3, 4, 5, 6)
			return opts
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := collectedWindow(t, src)
				opts := again(t, s)
				discardRun(t, s)
				if got := replayed(t, opts); got.Missing != 6 || len(got.Unlike) != 0 {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// sharing answers with a row of its own and one that all pages share.
func sharing(req *http.Request, _ int) (*http.Response, error) {
	id := strings.TrimPrefix(req.URL.Path, "/p/")
	return respond(200, "<li class=p"+id+"><b>shared</b><li><b>own-"+id+"</b>"), nil
}

// A row that two pages of a window give stays when that of which it is no longer gives
// it, also where the rules have read the other one before; where that one's page is not
// kept, nobody knows, and a person decides.
func TestReparseKeepsSharedRow(t *testing.T) {
	for _, kept := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			first, second := offersOf(t, 2, 1, storage.WriteReplace, "li"), offersOf(t, 2, 2, storage.WriteReplace, "li:not(.p001)")
			s := openStore(t)
			offerWindow(t, s, &first, anyDay)
			runOnce(t, inTurn(s, newSite(sharing), first))
			opts := inTurn(s, newSite(sharing), second)
			if !kept {
				opts.Bodies = BodiesNone
			}
			recollect(t, opts, 2)
			before := rows(t, s)
			done, _ := reparse(t, idle(t, s, second), false)
			if after := rows(t, s); !slices.Equal(after, before) || len(after) != 3 || onlyRun(t, s).Held == "" != kept {
				t.Errorf("kept %v: %+v, held %q, rows %q, before %q", kept, done, onlyRun(t, s).Held, after, before)
			}
			if again, _ := reparse(t, idle(t, s, second), false); again != (Reparsing{Jobs: 2, Current: 2}) {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

// Where none of the pages that are left to read fits, the others' rows stand as they do.
func TestReparseOfNoFittingPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := collectedWindow(t, offersOf(t, 2, 1, storage.WriteReplace, "li"))
		second := offersOf(t, 2, 2, storage.WriteReplace, "li, li.p001 b")
		recollect(t, inTurn(s, newSite(offers), second), 2)
		done, _ := reparse(t, idle(t, s, second), false)
		if held := onlyRun(t, s).Held; done != (Reparsing{Jobs: 2, Current: 1, Unfit: 1}) || held != "" {
			t.Errorf("%+v, held %q", done, held)
		}
	})
}

// Rows that two pages give are duplicates, and what stands unchanged is counted, once.
func TestReparseCountsDuplicatesOnce(t *testing.T) {
	for _, mode := range []storage.WriteMode{storage.WriteReplace, storage.WriteUpsert} {
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			first := offersOf(t, 3, 1, mode, "li")
			offerWindow(t, s, &first, anyDay)
			runOnce(t, inTurn(s, newSite(sharing), first))
			before := countersOf(t, s, "shop")
			reparse(t, idle(t, s, offersOf(t, 3, 2, mode, "li")), false)
			after := countersOf(t, s, "shop")
			for _, metric := range []string{storage.MetricDuplicates, storage.MetricUnchanged} {
				if before[metric] != after[metric] {
					t.Errorf("%s: %d %s, after the reparse %d", mode, before[metric], metric, after[metric])
				}
			}
			if before[storage.MetricDuplicates] != 2 {
				t.Errorf("%s: %d duplicates", mode, before[storage.MetricDuplicates])
			}
		})
	}
}

// A window of which a page did not fit the rules that its job's key names is complete once
// the page is read by newer ones; where another page does not fit these, it is held.
func TestReparseOfVersionsUnderReplace(t *testing.T) {
	versioned := func(version int, title string) Source {
		src := versionOf(t, 10, version)
		src.Write, src.Windowed, src.Identity.Parser = storage.WriteReplace, true, true
		src.Rules = compileSpec(t, parser.Spec{Version: version, Fields: []parser.Field{{Name: "title", Rule: parser.Rule{CSS: title}, Required: true}}})
		return src
	}
	for title, held := range map[string]string{
		"h1, h2": "",
		"h2":     "the pages of 9 of its 11 jobs were not read by version 2 of the rules, as the others were",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			first := versioned(1, "h1")
			offerWindow(t, s, &first, anyDay)
			runOnce(t, inTurn(s, newSite(someUnfit), first)) // 010 does not fit
			reparse(t, idle(t, s, versioned(2, title)), false)
			if r := onlyRun(t, s); r.Held != held {
				t.Errorf("%s: held %q", title, r.Held)
			}
		})
	}
}

// Of a run that is held, a reparse tells why and what its release would change, also when
// it is a dry one.
func TestReparseTellsOfHeldRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := collectedWindow(t, offersOf(t, 6, 1, storage.WriteReplace, "li"))
		e := idle(t, s, offersOf(t, 6, 2, storage.WriteReplace, "li.p001"))
		for _, dry := range []bool{true, false} {
			var held []ReparseHeld
			gone := 0
			done, err := e.Reparse(t.Context(), Past{Source: "shop"}, dry, func(n ReparseNews) error {
				switch {
				case n.Held != nil:
					held = append(held, *n.Held)
				case n.Job != nil:
					gone += len(n.Job.Changes)
				}
				return nil
			})
			want := []ReparseHeld{{storage.RunKey{Source: "shop", Window: anyDay}, "the window would have 1 rows, and has 12"}}
			if err != nil || done.Changed != 6 || done.Held != 1 || gone != 11 || !slices.Equal(held, want) {
				t.Errorf("dry %v: %+v (%v), %d rows gone, held %+v", dry, done, err, gone, held)
			}
		}
		if err := s.Update(t.Context(), func(tx *storage.Tx) error { _, err := tx.ReleaseRun(1, nil); return err }); err != nil {
			t.Fatal(err)
		}
		if left := rows(t, s); len(left) != 1 {
			t.Errorf("rows %q", left)
		}
	})
}
