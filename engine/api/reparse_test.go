package api

import (
	"context"
	"maps"
	"testing"

	"semel/engine"
	"semel/storage"
)

// reread has a reparse tell of one row that was and is now.
func reread(l *Local, was, now *storage.Observation) {
	l.Reread = func(_ context.Context, _ engine.Past, _ bool, fn func(engine.ReparseNews) error) (engine.Reparsing, error) {
		return engine.Reparsing{}, fn(engine.ReparseNews{Job: &engine.Reparsed{Changes: []engine.Difference{{Was: was, Now: now}}}})
	}
}

// TestReparseCounts: a field that has no value is one, whether the row says so or does
// not name it, and a row that is marked gone is none.
func TestReparseCounts(t *testing.T) {
	gone := &storage.Observation{Gone: true}
	row := func(data string) *storage.Observation { return &storage.Observation{Data: []byte(data)} }
	for name, test := range map[string]struct {
		was, now  *storage.Observation
		rows, off int
		fields    map[string]FieldCounts
	}{
		"a field of another name": {
			was: row(`{"rating":5,"price":null}`), now: row(`{"rank":5}`),
			fields: map[string]FieldCounts{"rating": {Lost: 1}, "rank": {Added: 1}},
		},
		"nulls alone":            {was: row(`{"rating":null}`), now: row(`{"rank":null}`), fields: map[string]FieldCounts{}},
		"another value":          {was: row(`{"rank":4}`), now: row(`{"rank":5}`), fields: map[string]FieldCounts{"rank": {Changed: 1}}},
		"a new row":              {now: row(`{"rank":5}`), rows: 1, fields: map[string]FieldCounts{}},
		"one that was gone":      {was: gone, now: row(`{"rank":5}`), rows: 1, fields: map[string]FieldCounts{}},
		"one that is gone":       {was: row(`{"rank":5}`), now: gone, off: 1, fields: map[string]FieldCounts{}},
		"one that is not there":  {was: row(`{"rank":5}`), off: 1, fields: map[string]FieldCounts{}},
		"one that was empty {}.": {was: row(`{}`), now: row(`{"rank":5}`), fields: map[string]FieldCounts{"rank": {Added: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := quarantineOf(t)
			reread(l, test.was, test.now)
			got, err := l.Reparse(t.Context(), ReparseRequest{Source: "shop"}, func(ReparseNews) error { return nil })
			if err != nil || got.Rows != test.rows || got.Gone != test.off || !maps.Equal(got.Fields, test.fields) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
