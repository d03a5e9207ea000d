package engine

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/parser"
	"semel/storage"
)

// versionedOf is versionOf where the job's key names the rules.
func versionedOf(t *testing.T, n, version int) Source {
	src := versionOf(t, n, version)
	src.Identity.Parser = true
	return src
}

// accept takes a source as it is.
func accept(t *testing.T, s *storage.Store, src Source) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx *storage.Tx) error { _, err := Accept(tx, src.stored()); return err }); err != nil {
		t.Fatal(err)
	}
}

// newJob is the first job of a source.
func newJob(t *testing.T, src Source) storage.NewJob {
	t.Helper()
	n, err := src.NewJob(src.Targets.Targets[0], time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A job of newer rules that is about to have a page of its own is left alone, its
// address too.
func TestReparseLeavesWaitingJobAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		collected(t, s, versionedOf(t, 1, 1))
		moved := versionedOf(t, 1, 2)
		moved.URL = template(t, "http://new.test/item/{id}")
		n := newJob(t, moved)
		err := s.Update(t.Context(), func(tx *storage.Tx) error {
			if _, err := tx.EnqueueJob(n); err != nil {
				return err
			}
			claimed, err := tx.ClaimJobs("me", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
			if err != nil {
				return err
			}
			return tx.RetryJob(claimed[0][0].Lease(), storage.Attempt{Category: storage.CategoryServerError}, tx.Now.Add(time.Hour))
		})
		if err != nil {
			t.Fatal(err)
		}
		if done, _ := reparse(t, idle(t, s, moved), false); done.Moved != 1 {
			t.Errorf("%+v", done)
		}
		if j := jobByKey(t, s, n.Key); j.State != storage.StateRetryable || j.URL != n.URL {
			t.Errorf("%+v", j)
		}
	})
}

func jobByKey(t *testing.T, s *storage.Store, key storage.JobKey) (j *storage.Job) {
	t.Helper()
	if err := s.View(func(tx *storage.Tx) (err error) { j, err = tx.JobByKey(key); return err }); err != nil {
		t.Fatal(err)
	}
	return j
}

// A job of newer rules that a person has canceled stays so.
func TestReparseLeavesCanceledJobAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		collected(t, s, versionedOf(t, 1, 1))
		newer := versionedOf(t, 1, 2)
		n := newJob(t, newer)
		err := s.Update(t.Context(), func(tx *storage.Tx) error {
			made, err := tx.EnqueueJob(n)
			if err == nil {
				_, err = tx.CancelJob(made.ID, nil)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		reparse(t, idle(t, s, newer), false)
		if j := jobByKey(t, s, n.Key); j.State != storage.StateFailed || j.Category != storage.CategoryCanceled {
			t.Errorf("%+v", j)
		}
	})
}

// A version that was lowered, and accepted, has its own jobs beside those of the higher
// one: there is nothing to read.
func TestReparseOfALoweredVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		collected(t, s, versionedOf(t, 6, 1))
		reparse(t, idle(t, s, versionedOf(t, 6, 2)), false)
		lower := versionedOf(t, 6, 1)
		accept(t, s, lower)
		for range 2 {
			if done, _ := reparse(t, idle(t, s, lower), false); done != (Reparsing{Jobs: 12, Current: 12}) {
				t.Errorf("%+v", done)
			}
		}
	})
}

// A row that goes to newer rules, back and forth again is told under as many ids.
func TestReparseThereAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		collected(t, s, versionOf(t, 1, 1))
		for _, version := range []int{2, 1, 2} {
			src := versionOf(t, 1, version)
			accept(t, s, src)
			if done, _ := reparse(t, idle(t, s, src), false); done.Changed != 1 {
				t.Fatalf("%+v", done)
			}
		}
		said := map[string]string{}
		err := s.View(func(tx *storage.Tx) error {
			pending, err := tx.PendingEvents("all", 0, 1000)
			for _, e := range pending {
				if was, again := said[e.ID]; again && was != string(e.Data) {
					t.Errorf("%s is the id of %s and of %s", e.ID, was, e.Data)
				}
				said[e.ID] = string(e.Data)
			}
			return err
		})
		if err != nil || len(said) < 4 {
			t.Errorf("%d events, %v", len(said), err)
		}
	})
}

// A job that was complete and failed when it was collected again has a row of older
// rules, and is named.
func TestReparseOfAFailedRecollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		collected(t, s, versionOf(t, 2, 1))
		if err := s.Update(t.Context(), func(tx *storage.Tx) error { _, err := tx.RecollectJob(1); return err }); err != nil {
			t.Fatal(err)
		}
		away := newSite(func(*http.Request, int) (*http.Response, error) { return respond(404, "away for an hour"), nil })
		opts := options(s, away, versionOf(t, 2, 1))
		opts.Bodies = BodiesAll
		runOnce(t, opts)
		if done, told := reparse(t, idle(t, s, versionOf(t, 2, 2)), false); done != (Reparsing{Jobs: 2, Changed: 1, Missing: 1}) || !told[0].Missing && !told[1].Missing {
			t.Errorf("%+v, %+v", done, told)
		}
	})
}

// Retention that forgets jobs while their pages are read does not end the reparse.
func TestReparseBesideRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		windowed := func(version int) Source {
			src := versionOf(t, 3, version)
			src.Sinks, src.Windowed = nil, true
			return src
		}
		src := windowed(1)
		opts := options(s, newSite(someUnfit), src)
		opts.Bodies = BodiesAll
		for d := range 2 {
			offerWindow(t, s, &src, anyDay.AddDate(0, 0, d))
			runOnce(t, opts)
		}
		recollected(t, s, src, 1) // its page is not kept, which is told before the others are committed
		time.Sleep(100 * time.Hour)
		done, err := idle(t, s, windowed(2)).Reparse(t.Context(), Past{Source: "shop"}, false, func(n ReparseNews) error {
			if n.Job == nil || !n.Job.Missing {
				return nil
			}
			_, err := s.Prune(t.Context(), time.Now(), storage.Retention{Attempts: time.Hour})
			return err
		})
		if err != nil || done != (Reparsing{Jobs: 6, Missing: 1, Moved: 5}) {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

// However many rows pages have, a transaction has few pages of them.
func TestReparseTransactionsAreShort(t *testing.T) {
	const pages, perPage = 10, 500
	s := openStore(t)
	web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
		var b strings.Builder
		for i := range perPage {
			fmt.Fprintf(&b, "<li><b>%s-%d</b>", strings.TrimPrefix(req.URL.Path, "/p/"), i)
		}
		return respond(200, b.String()), nil
	})
	listing := func(version int) Source {
		src := offersOf(t, pages, version, storage.WriteUpsert, "li")
		src.Windowed = false
		spec := parser.Spec{
			Version: version, Rows: &parser.Rule{CSS: "li"}, Key: "{name}",
			Fields: []parser.Field{{Name: "name", Rule: parser.Rule{CSS: "b"}, Required: true}, {Name: "extra", Rule: parser.Rule{CSS: "b"}}},
		}
		spec.Fields = spec.Fields[:version]
		src.Rules = compileSpec(t, spec)
		return src
	}
	opts := options(s, web, listing(1))
	opts.Bodies = BodiesAll
	runOnce(t, opts)
	most, committed := 0, 0
	_, err := idle(t, s, listing(2)).Reparse(t.Context(), Past{Source: "shop"}, false, func(n ReparseNews) error {
		now := pages - int(countersOf(t, s, "shop").CompleteBefore(2))
		most, committed = max(most, now-committed), now
		return nil
	})
	if err != nil || committed != pages || most > 3 {
		t.Errorf("%d pages were committed, %d at once, %v", committed, most, err)
	}
}

// Of pages that are read again by newer rules those of the past count before those to
// come: rules that fit no better drift again.
func TestReparseCountsForDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if id := strings.TrimPrefix(req.URL.Path, "/p/"); id > "060" {
				return respond(200, "<h1>Thing</h1>"), nil
			}
			return respond(200, "<h1>Thing</h1><i>5</i>"), nil
		})
		rated := func(version int) Source {
			src := versionOf(t, 200, version)
			src.Drift = driftUsual
			src.Rules = compileSpec(t, parser.Spec{Version: version, Fields: []parser.Field{
				{Name: "title", Rule: parser.Rule{CSS: "h1"}}, {Name: "rating", Rule: parser.Rule{CSS: "i"}},
			}})
			return src
		}
		opts := options(s, web, rated(1))
		opts.Bodies = BodiesAll
		first := runOnce(t, opts)
		if first.Open == 0 || first.Drifted["shop"] == "" {
			t.Fatalf("%+v", first)
		}
		dry, _ := reparse(t, idle(t, s, rated(2)), true)
		if told := driftEvents(t, s); len(told) != 2 || dry.Same != first.Completed {
			t.Errorf("dry %+v, events %q", dry, told)
		}
		e := idle(t, s, rated(2))
		reparse(t, e, false)
		if e.pausesFor("shop") == "" {
			t.Error("the engine that read them again goes on")
		}
		told := driftEvents(t, s)
		if len(told) != 4 || !strings.Contains(told[3], `"parser_version":2`) || !strings.Contains(told[3], `"paused":true`) {
			t.Errorf("events %q", told)
		}
		opts.Sources = []Source{rated(2)}
		if again := runOnce(t, opts); again.Open != first.Open || again.Drifted["shop"] == "" {
			t.Errorf("%+v", again)
		}
	})
}

// A page counts once for a version, also where it is released from the quarantine.
func TestReleaseCountsNoPageAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		src := versionOf(t, 60, 1)
		src.Drift = driftUsual
		collected(t, s, src)
		before := driftPages(t, s, 1)
		mended := versionOf(t, 60, 1)
		mended.Drift = driftUsual
		mended.Rules = compileSpec(t, parser.Spec{Version: 1, Fields: []parser.Field{{Name: "title", Rule: parser.Rule{CSS: "h1, h2"}}}})
		if err := s.Update(t.Context(), func(tx *storage.Tx) error { return tx.PutSource(mended.stored()) }); err != nil {
			t.Fatal(err)
		}
		j, _ := job(t, s, "010")
		if left, err := idle(t, s, mended).Release(t.Context(), "shop", j.ID); err != nil || left != nil {
			t.Fatal(left, err)
		}
		if after := driftPages(t, s, 1); !slices.Equal(before, after) {
			t.Errorf("%d pages were counted, now %d", len(before), len(after))
		}
	})
}

// driftPages are the jobs whose pages were counted last for a version.
func driftPages(t *testing.T, s *storage.Store, version int) (jobs []uint64) {
	t.Helper()
	err := s.View(func(tx *storage.Tx) error {
		return tx.Drifts("shop", version, func(d *storage.Drift) bool {
			for _, p := range d.Pages {
				jobs = append(jobs, p.Job)
			}
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}
