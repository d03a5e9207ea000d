package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"semel/engine"
	"semel/storage"
)

// CompareRequest says what to collect again: the jobs whose windows start in
// [From, To), or those without a window where there are neither.
type CompareRequest struct {
	Source string    `json:"-"`
	From   time.Time `json:"from,omitzero"`
	To     time.Time `json:"to,omitzero"`
}

// Kinds of differences.
const (
	DifferenceNew     = "new"
	DifferenceChanged = "changed"
	DifferenceGone    = "gone"
)

// Difference is one row that is not what it was.
type Difference struct {
	Kind    string          `json:"kind"`
	Key     string          `json:"key"` // the record's own
	Window  *time.Time      `json:"window"`
	Country *string         `json:"country"`
	Fields  []FieldChange   `json:"fields,omitempty"` // of a changed row
	Record  json.RawMessage `json:"record,omitempty"` // of a new row, or of one that is gone
}

// FieldChange is one field of a row that is not what it was.
type FieldChange struct {
	Name string          `json:"name"`
	Was  json.RawMessage `json:"was,omitempty"` // absent: the row had no such field
	Now  json.RawMessage `json:"now,omitempty"`
}

// CompareResult counts what has been compared.
type CompareResult struct {
	Jobs        int `json:"jobs"`         // collected again
	Failed      int `json:"failed"`       // of these
	Same        int `json:"same"`         // rows
	New         int `json:"new"`          //
	Changed     int `json:"changed"`      //
	Gone        int `json:"gone"`         //
	Elsewhere   int `json:"elsewhere"`    // not compared, since a row of another window stands in their place
	NotCompared int `json:"not_compared"` // of jobs that failed now
}

// Compare implements Service.
func (l *Local) Compare(ctx context.Context, r CompareRequest, fn func(Difference) error) (result CompareResult, err error) {
	switch src := l.Config.Source(r.Source); {
	case src == nil:
		return result, fmt.Errorf("%w %q: it says what to send", ErrUnknownSource, r.Source)
	case !src.Repeatable():
		return result, badRequest("source %s has a request that must not be repeated (repeatable = false)", r.Source)
	}
	scratch, remove, err := openScratch()
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	done, err := l.CompareIn(ctx, engine.Past(r), scratch, func(d engine.Difference) error {
		difference, err := newDifference(d)
		if err != nil {
			return err
		}
		return fn(difference)
	})
	if err != nil {
		return result, fmt.Errorf("comparing %s: %w", r.Source, err)
	}
	return CompareResult(done), nil
}

func newDifference(d engine.Difference) (Difference, error) {
	row := d.Now
	if row == nil {
		row = d.Was
	}
	out := Difference{Key: row.Key.Target, Window: when(row.Window), Country: null(row.Country)}
	switch {
	case d.Was == nil || d.Was.Gone:
		out.Kind, out.Record = DifferenceNew, row.Data
	case d.Now == nil || d.Now.Gone:
		out.Kind, out.Record = DifferenceGone, d.Was.Data
	default:
		var err error
		out.Kind = DifferenceChanged
		out.Fields, err = fieldChanges(d.Was, d.Now)
		return out, err
	}
	return out, nil
}

// fieldChanges are the fields in which two records differ, by name.
func fieldChanges(was, now *storage.Observation) ([]FieldChange, error) {
	var before, after map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(was.Data, &before), json.Unmarshal(now.Data, &after)); err != nil {
		return nil, fmt.Errorf("reading both records of %s: %w", was.Key, err)
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	var changes []FieldChange
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !bytes.Equal(before[name], after[name]) {
			changes = append(changes, FieldChange{name, before[name], after[name]})
		}
	}
	return changes, nil
}
