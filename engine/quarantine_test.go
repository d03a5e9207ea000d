package engine

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

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
