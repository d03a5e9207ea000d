package engine

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"semel/parser"
	"semel/storage"
	"semel/storage/storagetest"
)

// quarantined reads what a job has in quarantine; nil: nothing.
func quarantined(t *testing.T, s *storage.Store, job uint64) (q *storage.Quarantine) {
	t.Helper()
	_ = s.View(func(tx *storage.Tx) (err error) {
		q, err = tx.Quarantine(job)
		return err
	})
	return q
}

// compileSpec are rules of fields and, where it is not "", rows.
func compileSpec(t testing.TB, spec parser.Spec) *parser.Rules {
	t.Helper()
	rules, err := parser.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func priceRules(t testing.TB, version int, bad string) *parser.Rules {
	return compileSpec(t, parser.Spec{
		Version: version, Rows: &parser.Rule{CSS: "li"}, Key: "{name}", RowsBad: bad,
		Fields: []parser.Field{
			{Name: "name", Rule: parser.Rule{CSS: "b"}, Required: true},
			{Name: "price", Rule: parser.Rule{CSS: "i"}, Type: "decimal", Required: true},
		},
	})
}

const priceList = "<ul><li><b>a</b><i>1.50</i><li><b>b</b><i>soon</i><li><b>c</b><i>2.50</i></ul>"

// A page with one row that does not fit fails, or gives the other rows, as the
// rules say. Either way it is set aside with what is wrong.
func TestRowsThatDoNotFit(t *testing.T) {
	for bad, want := range map[string]struct {
		state storage.JobState
		rows  int
	}{"": {storage.StateFailed, 0}, "fail": {storage.StateFailed, 0}, "quarantine": {storage.StateComplete, 2}} {
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			web := newSite(func(*http.Request, int) (*http.Response, error) { return respond(200, priceList), nil })
			src := source(t, 1)
			src.Rules = priceRules(t, 1, bad)
			opts := options(s, web, src)
			opts.Bodies = BodiesFailed
			runOnce(t, opts)
			j, attempts := job(t, s, "001")
			if got := rows(t, s); j.State != want.state || len(got) != want.rows {
				t.Errorf("%q: job is %s, rows %q", bad, j.State, got)
			}
			wantKept(t, s, attempts[0], true, priceList)
			q := quarantined(t, s, j.ID)
			if q == nil || len(q.Problems) != 1 || q.Rows != want.rows {
				t.Fatalf("%q: in quarantine %+v", bad, q)
			}
			if p := q.Problems[0]; p.Row != 1 || p.Field != "price" || p.Value != "soon" || p.Reason == "" {
				t.Errorf("%q: problem %+v", bad, p)
			}
		})
	}
}

// rows are the data of all observations of shop.
func rows(t *testing.T, s *storage.Store) (data []string) {
	t.Helper()
	err := eachObservation(context.Background(), s, "shop", func(o *storage.Observation) error {
		data = append(data, string(o.Data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	storagetest.Check(t, s)
	return data
}

// countReleasable is how many pages of shop are said to fit rules that have not read
// them, as they may.
func countReleasable(t *testing.T, s *storage.Store, src Source) (n int) {
	t.Helper()
	err := s.View(func(tx *storage.Tx) error {
		pages, err := Releasable(tx, []Source{src})
		n = pages["shop"]
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Only pages that a release can read are said to be releasable. Where versions stand side
// by side, the page of an older one is none once the newer has collected the target.
func TestReleasable(t *testing.T) {
	sideBySide := func(version int) Source {
		src := versionOf(t, 10, version)
		src.Identity.Parser = true
		return src
	}
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		collected(t, s, sideBySide(1)) // 010 does not fit
		newer := sideBySide(2)
		if same, n := countReleasable(t, s, sideBySide(1)), countReleasable(t, s, newer); same != 0 || n != 1 {
			t.Errorf("%d pages for the version that has read them, %d for a newer one", same, n)
		}
		if n := countReleasable(t, s, Source{}); n != 0 {
			t.Errorf("%d pages of a source that is not there", n)
		}
		collected(t, s, newer)
		if n := countReleasable(t, s, newer); n != 0 {
			t.Errorf("%d pages whose targets the newer version has collected itself", n)
		}
	})
}

// The page of an earlier step than the last is none that rules read again.
func TestReleasableOfSteps(t *testing.T) {
	for step, want := range map[string]int{"form": 0, "result": 1} {
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			src := versionOf(t, 1, 2)
			src.Steps = []Step{{Name: "form"}, {Name: "result"}}
			n, err := src.NewJob(src.Targets.Targets[0], time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			err = s.Update(t.Context(), func(tx *storage.Tx) error {
				if _, err := tx.EnqueueJob(n); err != nil {
					return err
				}
				claimed, err := tx.ClaimJobs("me", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
				if err != nil {
					return err
				}
				a := storage.Attempt{Category: storage.CategoryValidation, ParserVersion: 1, Step: step, Kept: storage.KeepPage([]byte("<p>"))}
				return tx.FailJob(claimed[0][0].Lease(), a, storage.Failure{Category: a.Category, Problems: []storage.Problem{{Row: -1, Reason: "no token"}}})
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := countReleasable(t, s, src); got != want {
				t.Errorf("step %s: %d pages, want %d", step, got, want)
			}
		})
	}
}
