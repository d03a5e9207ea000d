package api

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"semel/engine"
)

// ReparseRequest says which pages to read again: those of jobs whose windows start
// in [From, To), or of all where there are neither.
type ReparseRequest struct {
	Source string    `json:"-"`
	From   time.Time `json:"from,omitzero"`
	To     time.Time `json:"to,omitzero"`
	DryRun bool      `json:"dry_run,omitempty"` // nothing is changed
	Rules  Rules     `json:"rules,omitempty"`
}

// Reparsed is what today's rules make of a job's page, where that is not what
// stands.
type Reparsed struct {
	Job      string       `json:"job"`
	Rows     []Difference `json:"rows,omitempty"`
	Problems []Problem    `json:"problems,omitempty"` // where the page does not fit
}

// ReparseResult counts what was read.
type ReparseResult struct {
	Jobs    int                    `json:"jobs"`    // that are complete, or have a page in quarantine
	Current int                    `json:"current"` // of these: read by these rules before
	Same    int                    `json:"same"`
	Changed int                    `json:"changed"`
	Unfit   int                    `json:"unfit"`   // whose pages do not fit these rules: what they gave stays
	Missing int                    `json:"missing"` // of which no page is kept that can be read again
	Moved   int                    `json:"moved"`   // that were worked on meanwhile
	Rows    int                    `json:"rows"`    // new ones
	Fields  map[string]FieldCounts `json:"fields"`  // by name; "": of no single field
}

// FieldCounts count how a field has changed: in rows that stood there before, and
// by problems of pages.
type FieldCounts struct {
	Added   int `json:"added"` // had no value, and has one
	Lost    int `json:"lost"`  // had one, and has none
	Changed int `json:"changed"`
	Failing int `json:"failing"` // problems
}

// Reparse implements Service.
func (l *Local) Reparse(ctx context.Context, r ReparseRequest, fn func(Reparsed) error) (ReparseResult, error) {
	result := ReparseResult{Fields: map[string]FieldCounts{}}
	if err := r.Rules.check(l, r.Source); err != nil {
		return result, err
	}
	past := engine.Past{Source: r.Source, From: r.From, To: r.To}
	done, err := l.Reread(ctx, past, r.DryRun, func(of engine.Reparsed) error {
		out := Reparsed{Job: of.Job.String(), Problems: newProblems(of.Unfit)}
		for _, d := range of.Changes {
			row, err := newDifference(d)
			if err != nil {
				return err
			}
			out.Rows = append(out.Rows, row)
		}
		result.add(&out)
		return fn(out)
	})
	result.Jobs, result.Current, result.Same, result.Changed = done.Jobs, done.Current, done.Same, done.Changed
	result.Unfit, result.Missing, result.Moved = done.Unfit, done.Missing, done.Moved
	if err != nil {
		return result, fmt.Errorf("reading the pages of %s again: %w", r.Source, err)
	}
	return result, nil
}

// add counts a page by its fields.
func (r *ReparseResult) add(of *Reparsed) {
	for _, row := range of.Rows {
		if row.Kind == DifferenceNew {
			r.Rows++
		}
		for _, f := range row.Fields {
			n := r.Fields[f.Name]
			switch {
			case empty(f.Was):
				n.Added++
			case empty(f.Now):
				n.Lost++
			default:
				n.Changed++
			}
			r.Fields[f.Name] = n
		}
	}
	for _, p := range of.Problems {
		n := r.Fields[p.Field]
		n.Failing++
		r.Fields[p.Field] = n
	}
}

// empty reports whether a row has no value in a field.
func empty(value []byte) bool { return value == nil || bytes.Equal(value, []byte("null")) }
