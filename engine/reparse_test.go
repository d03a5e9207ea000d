package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/parser"
	"semel/storage"
	"semel/storage/storagetest"
)

// someUnfit answers with a title and a price; every tenth page has no title, and
// every seventh two prices.
func someUnfit(req *http.Request, _ int) (*http.Response, error) {
	id := strings.TrimPrefix(req.URL.Path, "/p/")
	page := "<h1>Thing " + id + "</h1><b>" + id + "</b>"
	switch {
	case strings.HasSuffix(id, "0"):
		page = "<h2>Thing " + id + "</h2>"
	case strings.HasSuffix(id, "7"):
		page += "<i>sold</i>"
	}
	return respond(200, page), nil
}

// mendedRules are version 1, which wants the title that not every page has, and
// what mends it: 2 reads the other title too, and does not stand a sold thing.
func mendedRules(t testing.TB, version int) *parser.Rules {
	title := parser.Field{Name: "title", Rule: parser.Rule{CSS: "h1"}, Required: true}
	fields := []parser.Field{title}
	if version > 1 {
		fields[0].CSS = "h1, h2"
		fields = append(fields, parser.Field{Name: "state", Rule: parser.Rule{CSS: "i"}, Enum: []string{"new"}})
	}
	return compileSpec(t, parser.Spec{Version: version, Fields: fields})
}

// versionOf is a source of n targets under a version of its rules.
func versionOf(t testing.TB, n, version int) Source {
	src := source(t, n)
	src.Rules, src.ParserVersion = mendedRules(t, version), version
	src.Sinks = []storage.Subscription{{Sink: "all", Events: storage.EventTypes}}
	return src
}

func collected(t *testing.T, s *storage.Store, src Source) Options {
	t.Helper()
	opts := options(s, newSite(someUnfit), src)
	opts.Bodies = BodiesAll
	runOnce(t, opts)
	return opts
}

// idle is an engine of a source that runs nothing, and would get no page.
func idle(t *testing.T, s *storage.Store, src Source) *Engine {
	t.Helper()
	e, err := New(options(s, newSite(func(req *http.Request, _ int) (*http.Response, error) {
		t.Errorf("asked for %s", req.URL)
		return nil, errors.New("no network")
	}), src))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func reparse(t *testing.T, e *Engine, dry bool) (done Reparsing, told []Reparsed) {
	t.Helper()
	var last ReparseProgress
	done, err := e.Reparse(t.Context(), Past{Source: "shop"}, dry, func(n ReparseNews) error {
		if n.Job != nil {
			told = append(told, *n.Job)
		} else if n.Progress != nil {
			last = *n.Progress
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if last.Jobs != last.Of || last.Of < done.Jobs {
		t.Errorf("it ended when it was at %d of %d jobs", last.Jobs, last.Of)
	}
	storagetest.Check(t, e.opts.Store)
	return done, told
}

// state is all that a store holds of jobs, rows, events and pages set aside, but
// for times.
func state(t *testing.T, s *storage.Store) string {
	t.Helper()
	var b strings.Builder
	err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, 1<<30, func(j *storage.Job) bool {
			fmt.Fprintln(&b, j.Key, j.State, j.Generation, j.Attempts, j.Version, j.Category)
			if q, err := tx.Quarantine(j.ID); err == nil {
				fmt.Fprintln(&b, "  aside:", q.Generation, q.Version, q.Problems)
			}
			attempts, err := tx.Attempts(j.ID)
			for _, a := range attempts {
				fmt.Fprintln(&b, " ", a.Kind, a.Outcome, a.ParserVersion, a.Page)
			}
			events, err2 := tx.JobEvents(j.ID)
			for _, e := range events {
				fmt.Fprintln(&b, "  event:", e.Type, e.ID)
			}
			return err == nil && err2 == nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(&b, strings.Join(rows(t, s), "\n"))
	return b.String()
}

// Pages that did not fit are released once the rules are mended, and give what
// collecting by the mended rules gives; those that still do not stay.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fresh, mended := openStore(t), openStore(t)
		collected(t, fresh, versionOf(t, 10, 2))
		collected(t, mended, versionOf(t, 10, 1))
		j, _ := job(t, mended, "010")
		if q := quarantined(t, mended, j.ID); j.State != storage.StateFailed || q == nil || q.Version != 1 {
			t.Fatalf("job %+v with %+v", j, q)
		}
		same := idle(t, mended, versionOf(t, 10, 1))
		if left, err := same.Release(t.Context(), "shop", j.ID); err != nil || len(left) != 1 || left[0].Field != "title" {
			t.Errorf("released by the same rules: %+v, %v", left, err)
		}
		e := idle(t, mended, versionOf(t, 10, 2))
		if left, err := e.Release(t.Context(), "shop", j.ID); err != nil || left != nil {
			t.Fatalf("released: %+v, %v", left, err)
		}
		want, got := rows(t, fresh), rows(t, mended)
		if !slices.Contains(want, `{"title":"Thing 010","state":null}`) || !slices.Contains(got, `{"title":"Thing 010","state":null}`) {
			t.Errorf("rows %q, collected by the mended rules %q", got, want)
		}
		if j, attempts := job(t, mended, "010"); j.State != storage.StateComplete || j.Attempts != 1 || len(attempts) != 2 || quarantined(t, mended, j.ID) != nil {
			t.Errorf("job %+v, attempts %+v", j, attempts)
		}
		if _, err := e.Release(t.Context(), "shop", j.ID); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("released twice: %v", err)
		}
	})
}

// A dry run tells what the real one then does and changes nothing; the same again
// does nothing; all rows are those of the new rules, or stay with a page set aside.
func TestReparse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		collected(t, s, versionOf(t, 120, 1))
		before := state(t, s)
		e := idle(t, s, versionOf(t, 120, 2))
		dry, sample := reparse(t, e, true)
		if state(t, s) != before {
			t.Error("a dry run has changed the store")
		}
		real, told := reparse(t, e, false)
		want := Reparsing{Jobs: 120, Changed: 108, Unfit: 12}
		if dry != want || real != want || len(sample) != 120 || len(told) != 120 {
			t.Errorf("dry %+v (%d), real %+v (%d), want %+v", dry, len(sample), real, len(told), want)
		}
		after := state(t, s)
		if again, told := reparse(t, e, false); again != (Reparsing{Jobs: 120, Current: 120}) || len(told) > 0 || state(t, s) != after {
			t.Errorf("again: %+v, told %d", again, len(told))
		}
		for _, row := range rows(t, s) {
			if sold := strings.HasSuffix(row, `7"}`); sold == strings.Contains(row, "state") {
				t.Errorf("row %s", row)
			}
		}
		j, _ := job(t, s, "007")
		if q := quarantined(t, s, j.ID); j.State != storage.StateComplete || j.Version != 1 || q == nil || q.Version != 2 {
			t.Errorf("job whose page no longer fits: %+v with %+v", j, q)
		}
	})
}

// A page whose copy is damaged is missing, for a reparse and for a release; the others
// are read.
func TestReparseBesideDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "semel.db")
		s, err := storage.Open(path, storage.Options{NoSync: true}) // not checked: it is damaged
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		collected(t, s, versionOf(t, 20, 1))
		files, _ := filepath.Glob(path + storage.PagesSuffix + "/*")
		if len(files) != 1 {
			t.Fatal(files)
		}
		segment, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		_, unfit := job(t, s, "010")
		lost := bytes.Index(segment, unfit[0].Page[:])
		segment[lost+len(unfit[0].Page)] ^= 0xff // where what is compressed begins
		if err := os.WriteFile(files[0], segment, 0o600); err != nil {
			t.Fatal(err)
		}
		e := idle(t, s, versionOf(t, 20, 2))
		if _, err := e.Release(t.Context(), "shop", unfit[0].Job); !errors.Is(err, ErrNoPage) || !errors.Is(err, storage.ErrPageLost) {
			t.Errorf("released: %v", err)
		}
		var missing []string
		done, err := e.Reparse(t.Context(), Past{Source: "shop"}, false, func(n ReparseNews) error {
			if n.Job != nil && n.Job.Missing {
				missing = append(missing, n.Job.Job.Target)
			}
			return nil
		})
		want := Reparsing{Jobs: 20, Changed: 17, Unfit: 2, Missing: 1}
		if err != nil || done != want || !slices.Equal(missing, []string{"010"}) {
			t.Errorf("%+v, missing %v (%v), want %+v", done, missing, err, want)
		}
	})
}

// What could be written only once there was room is counted and told once.
func TestReparseOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		collected(t, s, versionOf(t, 60, 1))
		full := fullDisk(t)
		said := map[storage.JobKey]int{}
		done, err := idle(t, s, versionOf(t, 60, 2)).Reparse(t.Context(), Past{Source: "shop"}, false, func(n ReparseNews) error {
			if n.Job != nil {
				said[n.Job.Job] += len(n.Job.Changes) + len(n.Job.Unfit)
			} else if n.Progress != nil && n.Progress.Jobs < n.Progress.Of {
				full.Store(true)
				time.AfterFunc(time.Minute, func() { full.Store(false) })
			}
			return nil
		})
		if want := (Reparsing{Jobs: 60, Changed: 54, Unfit: 6}); err != nil || done != want || len(said) != 60 {
			t.Errorf("%+v, %d jobs told, %v, want %+v", done, len(said), err, want)
		}
		for job, n := range said {
			if n != 1 {
				t.Errorf("job %s is told with %d changes", job, n)
			}
		}
	})
}

// A reparse that is cut short and made again leaves what an undisturbed one leaves.
func TestReparseCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole, cut := openStore(t), openStore(t)
		for _, s := range []*storage.Store{whole, cut} {
			collectInTurn(t, s, versionOf(t, 120, 1))
		}
		reparse(t, idle(t, whole, versionOf(t, 120, 2)), false)
		for n := 0; ; n++ {
			if n == 10 {
				t.Fatal("it does not get on")
			}
			ctx, stop := context.WithCancel(t.Context())
			_, err := idle(t, cut, versionOf(t, 120, 2)).Reparse(ctx, Past{Source: "shop"}, false, func(ReparseNews) error {
				stop()
				return nil
			})
			stop()
			if err == nil {
				if n < 2 {
					t.Errorf("it was cut short %d times only", n)
				}
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			storagetest.Check(t, cut)
		}
		if got, want := state(t, cut), state(t, whole); got != want {
			t.Errorf("cut short:\n%s\nundisturbed:\n%s", got, want)
		}
	})
}

// collectInTurn collects one page at a time, so that two stores are alike.
func collectInTurn(t *testing.T, s *storage.Store, src Source) {
	t.Helper()
	opts := options(s, newSite(someUnfit), src)
	opts.Bodies, opts.Workers = BodiesAll, 1
	runOnce(t, opts)
}

// Where the key names the rules, rows of both versions stand side by side.
func TestReparseCoexists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		versioned := func(version int) Source {
			src := versionOf(t, 6, version)
			src.Identity.Parser = true
			return src
		}
		collected(t, s, versioned(1))
		e := idle(t, s, versioned(2))
		dry, _ := reparse(t, e, true)
		real, _ := reparse(t, e, false)
		if want := (Reparsing{Jobs: 6, Changed: 6}); dry != want || real != want {
			t.Errorf("dry %+v, real %+v", dry, real)
		}
		if got := rows(t, s); len(got) != 12 {
			t.Errorf("rows %q", got)
		}
		if again, _ := reparse(t, e, false); again != (Reparsing{Jobs: 12, Current: 12}) {
			t.Errorf("again: %+v", again)
		}
	})
}

// Pages that are not kept are counted, and rules that changed under their version
// are refused.
func TestReparseRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		opts := options(s, newSite(someUnfit), versionOf(t, 10, 1))
		opts.Bodies = BodiesFailed
		runOnce(t, opts)
		if done, _ := reparse(t, idle(t, s, versionOf(t, 10, 2)), true); done != (Reparsing{Jobs: 10, Missing: 9, Changed: 1}) {
			t.Errorf("%+v", done)
		}
		changed := versionOf(t, 10, 1)
		changed.Rules = compileSpec(t, parser.Spec{Version: 1})
		var guard *GuardError
		for _, dry := range []bool{true, false} {
			_, err := idle(t, s, changed).Reparse(t.Context(), Past{Source: "shop"}, dry, nil)
			if !errors.As(err, &guard) {
				t.Errorf("other rules under the same version: %v", err)
			}
		}
		_, err := idle(t, s, changed).Reparse(t.Context(), Past{Source: "none"}, true, nil)
		if !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("of no source: %v", err)
		}
		done, err := idle(t, s, versionOf(t, 10, 2)).Reparse(t.Context(), Past{Source: "shop", From: time.Unix(0, 0), To: time.Unix(9, 0)}, true, func(ReparseNews) error { return nil })
		if err != nil || done.Jobs != 0 {
			t.Errorf("of other windows: %+v, %v", done, err)
		}
	})
}

// offers answers with a list of rows: each page has two, and by the first rules both
// are given.
func offers(req *http.Request, _ int) (*http.Response, error) {
	id := strings.TrimPrefix(req.URL.Path, "/p/")
	return respond(200, fmt.Sprintf("<li class=%[1]s><b>%[1]s-a</b><li class=more><b>%[1]s-b</b>", "p"+id)), nil
}

// offersOf is a source of n pages of offers, of which rows says which are given.
func offersOf(t *testing.T, n, version int, mode storage.WriteMode, rows string) Source {
	src := source(t, n)
	src.Write, src.Windowed, src.ParserVersion = mode, true, version
	src.Rules = compileSpec(t, parser.Spec{
		Version: version, Rows: &parser.Rule{CSS: rows}, Key: "{name}", Empty: "accept",
		Fields: []parser.Field{{Name: "name", Rule: parser.Rule{CSS: "b"}, Required: true}},
	})
	return src
}

var anyDay = time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)

// collectedWindow collects the pages of a window, each kept.
func collectedWindow(t *testing.T, src Source) *storage.Store {
	t.Helper()
	s := openStore(t)
	offerWindow(t, s, &src, anyDay)
	opts := options(s, newSite(offers), src)
	opts.Bodies, opts.Workers = BodiesAll, 1
	runOnce(t, opts)
	return s
}

// What new rules no longer give goes with the rest of its window under replace, and
// stays under other modes: as when the pages are collected again by these rules.
func TestReparseLosesRows(t *testing.T) {
	for mode, want := range map[storage.WriteMode]Reparsing{
		storage.WriteInsert:  {Jobs: 60, Same: 60},
		storage.WriteUpsert:  {Jobs: 60, Same: 60},
		storage.WriteAppend:  {Jobs: 60, Same: 60},
		storage.WriteReplace: {Jobs: 60, Changed: 60},
	} {
		synctest.Test(t, func(t *testing.T) {
			read, again := collectedWindow(t, offersOf(t, 60, 1, mode, "li")), collectedWindow(t, offersOf(t, 60, 1, mode, "li"))
			fewer := offersOf(t, 60, 2, mode, "li:not(.more)")
			e := idle(t, read, fewer)
			dry, _ := reparse(t, e, true)
			real, told := reparse(t, e, false)
			if dry != want || real != want {
				t.Errorf("%s: dry %+v, real %+v, want %+v", mode, dry, real, want)
			}
			for _, job := range told {
				if len(job.Changes) != 1 || job.Changes[0].Now != nil {
					t.Errorf("%s: %+v", mode, job)
				}
			}
			recollected(t, again, fewer, 60)
			if got, want := rows(t, read), rows(t, again); !slices.Equal(got, want) {
				t.Errorf("%s: rows %q, collected again %q", mode, got, want)
			}
		})
	}
}

// recollected collects the first pages of a store again, and keeps none.
func recollected(t *testing.T, s *storage.Store, src Source, pages uint64) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *storage.Tx) error {
		for id := range pages {
			if _, err := tx.RecollectJob(id + 1); err != nil {
				return err
			}
		}
		return Register(tx, src.stored())
	})
	if err != nil {
		t.Fatal(err)
	}
	runOnce(t, options(s, newSite(offers), src))
}

// The rows of a window change together, or wait for a person: where fewer than half
// would be left, and where a page does not fit or is not kept.
func TestReparseHoldsWindow(t *testing.T) {
	for name, c := range map[string]struct {
		rows string
		lost uint64 // pages that are not kept
		want Reparsing
	}{
		"few rows left": {"li.p001", 0, Reparsing{Jobs: 60, Changed: 60, Held: 1}},
		"a bad page":    {"li, b", 0, Reparsing{Jobs: 60, Unfit: 60}},
		"one bad page":  {"li.more, li.p001 b", 0, Reparsing{Jobs: 60, Changed: 59, Unfit: 1, Held: 1}},
		"a lost page":   {"li", 1, Reparsing{Jobs: 60, Same: 59, Missing: 1, Held: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := offersOf(t, 60, 1, storage.WriteReplace, "li")
				s := collectedWindow(t, first)
				recollected(t, s, first, c.lost)
				before := rows(t, s)
				e := idle(t, s, offersOf(t, 60, 2, storage.WriteReplace, c.rows))
				dry, _ := reparse(t, e, true)
				if real, _ := reparse(t, e, false); dry != c.want || real != c.want {
					t.Errorf("dry %+v, real %+v, want %+v", dry, real, c.want)
				}
				if after := rows(t, s); !slices.Equal(after, before) {
					t.Errorf("rows %q", after)
				}
			})
		})
	}
}

// Pages of several windows give the same rows: a later window's stand, whichever page
// is read first, and a dry run says of how many rows it cannot tell.
func TestReparseOfManyWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		src := versionOf(t, 5, 1)
		for day := range 20 {
			offerWindow(t, s, &src, anyDay.AddDate(0, 0, 20-day)) // the later ones first
		}
		src.Windowed = true
		opts := options(s, newSite(someUnfit), src)
		opts.Bodies, opts.Workers = BodiesAll, 1
		runOnce(t, opts)
		mended := versionOf(t, 5, 2)
		mended.Rules = compileSpec(t, parser.Spec{Version: 2, Key: "{name}", Fields: []parser.Field{{Name: "name", Rule: parser.Rule{CSS: "h1"}}}})
		e := idle(t, s, mended)
		dry, _ := reparse(t, e, true)
		real, _ := reparse(t, e, false)
		if dry.Contested != 5 || dry.Changed != 10 || real != (Reparsing{Jobs: 100, Changed: 5, Same: 95}) {
			t.Errorf("dry %+v, real %+v", dry, real)
		}
		for _, o := range shopRows(t, s) {
			if o.Version == 2 && !o.Window.Equal(anyDay.AddDate(0, 0, 20)) {
				t.Errorf("of %s: %s", o.Window, o.Data)
			}
		}
	})
}
