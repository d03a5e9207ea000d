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

// ReparseNews is what a reparse tells while it works: one of these is set.
type ReparseNews struct {
	Job      *Reparsed        `json:"job,omitempty"`
	Held     *ReparseHeld     `json:"held,omitempty"`
	Progress *ReparseProgress `json:"progress,omitempty"`
}

// ReparseProgress is how far a reparse is.
type ReparseProgress struct {
	Jobs int `json:"jobs"` // of the source that it has come to, whatever became of them
	Of   int `json:"of"`
}

// ReparseHeld is a run whose rows wait for a person, or would after the run that follows
// a dry one: what was told of its jobs is what its release changes.
type ReparseHeld struct {
	Run  string `json:"run"`
	Held string `json:"held"` // why
}

// Reparsed is what today's rules make of a job's page, where that is not what
// stands, or there is no page.
type Reparsed struct {
	Job      string       `json:"job"`
	Rows     []Difference `json:"rows,omitempty"`
	Problems []Problem    `json:"problems,omitempty"` // where the page does not fit
	Missing  bool         `json:"missing,omitempty"`  // no page is kept that can be read again
}

// ReparseResult counts what was read.
type ReparseResult struct {
	Jobs      int                    `json:"jobs"`    // that are complete or were, or have a page in quarantine
	Current   int                    `json:"current"` // of these: passed over, since rules of this version have read them before
	Same      int                    `json:"same"`
	Changed   int                    `json:"changed"`
	Unfit     int                    `json:"unfit"`     // whose pages do not fit these rules: what they gave stays
	Missing   int                    `json:"missing"`   // of which no page is kept that can be read again
	Moved     int                    `json:"moved"`     // that were worked on meanwhile
	SetAside  int                    `json:"set_aside"` // of those that are the same or changed: with rows that do not fit
	Held      int                    `json:"held"`      // runs whose rows wait for a person: their jobs are counted as if they were released
	Contested int                    `json:"contested"` // of a dry run: rows that more than one page gives, for which its counts may be too high
	Rows      int                    `json:"rows"`      // new ones
	Gone      int                    `json:"gone"`      // that leave their window (write = "replace")
	Fields    map[string]FieldCounts `json:"fields"`    // by name; "": of no single field
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
func (l *Local) Reparse(ctx context.Context, r ReparseRequest, fn func(ReparseNews) error) (ReparseResult, error) {
	result := ReparseResult{Fields: map[string]FieldCounts{}}
	if err := r.Rules.check(l, r.Source); err != nil {
		return result, err
	}
	past := engine.Past{Source: r.Source, From: r.From, To: r.To}
	done, err := l.Reread(ctx, past, r.DryRun, func(n engine.ReparseNews) error {
		switch {
		case n.Progress != nil:
			return fn(ReparseNews{Progress: (*ReparseProgress)(n.Progress)})
		case n.Held != nil:
			return fn(ReparseNews{Held: &ReparseHeld{n.Held.Run.String(), n.Held.Why}})
		}
		out, err := newReparsed(n.Job)
		if err != nil {
			return err
		}
		result.add(out)
		return fn(ReparseNews{Job: out})
	})
	result.Jobs, result.Current, result.Same, result.Changed = done.Jobs, done.Current, done.Same, done.Changed
	result.Unfit, result.Missing, result.Moved = done.Unfit, done.Missing, done.Moved
	result.SetAside, result.Held, result.Contested = done.SetAside, done.Held, done.Contested
	if err != nil {
		return result, fmt.Errorf("reading the pages of %s again: %w", r.Source, err)
	}
	return result, nil
}

func newReparsed(of *engine.Reparsed) (*Reparsed, error) {
	out := &Reparsed{Job: of.Job.String(), Problems: NewProblems(of.Unfit), Missing: of.Missing}
	for _, d := range of.Changes {
		row, err := newDifference(d)
		if err != nil {
			return nil, err
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}

// add counts a page by its fields.
func (r *ReparseResult) add(of *Reparsed) {
	for _, row := range of.Rows {
		switch row.Kind {
		case DifferenceNew:
			r.Rows++
		case DifferenceGone:
			r.Gone++
		}
		for _, f := range row.Fields {
			n := r.Fields[f.Name]
			switch {
			case empty(f.Was) && empty(f.Now): // null, and not there
				continue
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
