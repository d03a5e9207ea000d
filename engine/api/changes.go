package api

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"semel/storage"
)

// changesBytes is about how many bytes a page of changes has at most: it is
// made in memory.
const changesBytes = 8 << 20

// changesRows is how many rows one look at the store adds to a page: by so many
// it may pass changesBytes.
const changesRows = 100

// followable refuses a source that is unknown, or out of which rows go: changes
// tell of rows that are there.
func (l *Local) followable(source string) error {
	if s := l.Config.Source(source); s != nil && s.Write == string(storage.WriteReplace) {
		return badRequest("rows leave source %s, whose write mode is replace, and changes do not tell of those: export it as a whole", source)
	}
	return l.known(source)
}

// Changes implements Service.
func (l *Local) Changes(ctx context.Context, r ChangesRequest) (page Changes, err error) {
	if err := l.followable(r.Source); err != nil {
		return page, err
	}
	if r.Limit < 1 || r.Limit > MaxChanges {
		return page, badRequest("limit is a number from 1 to %d (got %d)", MaxChanges, r.Limit)
	}
	var after storage.ChangeCursor
	err = l.Store.View(func(tx *storage.Tx) (err error) {
		after, err = tx.ParseChangeCursor(r.Source, r.Cursor)
		return err
	})
	if err != nil {
		return page, badRequest("cursor: %w", err)
	}
	for more := true; more && page.Rows < r.Limit && len(page.Lines) < changesBytes; {
		if err := ctx.Err(); err != nil {
			return page, err
		}
		err := l.Store.View(func(tx *storage.Tx) (err error) {
			after, more, err = tx.Changes(r.Source, after, min(changesRows, r.Limit-page.Rows), func(o *storage.Observation) error {
				page.addLine(o, r.DataOnly)
				return nil
			})
			return err
		})
		if err != nil {
			return page, fmt.Errorf("reading changes of %s: %w", r.Source, err)
		}
	}
	page.Cursor = after.Text(r.Source)
	return page, nil
}

func (p *Changes) addLine(o *storage.Observation, dataOnly bool) {
	before := len(p.Lines)
	if p.Lines = o.AppendLine(p.Lines, dataOnly); len(p.Lines) > before {
		p.add(o.Window)
	}
}

// FileCursor implements Service.
func (l *Local) FileCursor(_ context.Context, source, path string) (f *FileCursor, err error) {
	if err := l.followable(source); err != nil {
		return nil, err
	}
	err = l.Store.View(func(tx *storage.Tx) error {
		stored, err := tx.FileCursor(source, path)
		if stored != nil {
			f = newFileCursor(source, stored)
		}
		return err
	})
	return f, err
}

// MoveFileCursor implements Service.
func (l *Local) MoveFileCursor(ctx context.Context, source string, m FileMove) error {
	if err := l.followable(source); err != nil {
		return err
	}
	if !filepath.IsAbs(m.Path) {
		return badRequest("path must be absolute (got %q)", m.Path)
	}
	return l.Store.Update(ctx, func(tx *storage.Tx) error {
		to, err := m.To.stored(tx, source)
		if err != nil {
			return err
		}
		var from *storage.FileCursor
		if m.From != nil {
			if from, err = m.From.stored(tx, source); err != nil {
				return err
			}
		}
		return tx.MoveFileCursor(source, m.Path, from, to)
	})
}

func newFileCursor(source string, f *storage.FileCursor) *FileCursor {
	return &FileCursor{
		Cursor: f.After.Text(source), Bytes: f.Bytes, Rows: f.Rows,
		FirstWindow: when(f.FirstWindow), LastWindow: when(f.LastWindow),
		Sum: f.Sum, Tail: f.Tail, DataOnly: f.DataOnly,
	}
}

// stored is the cursor as the store has it. Error: ErrBadRequest.
func (f *FileCursor) stored(tx *storage.Tx, source string) (*storage.FileCursor, error) {
	after, err := tx.ParseChangeCursor(source, f.Cursor)
	if err != nil {
		return nil, badRequest("cursor: %w", err)
	}
	return &storage.FileCursor{
		After: after, Bytes: f.Bytes, Rows: f.Rows,
		FirstWindow: timeOf(f.FirstWindow), LastWindow: timeOf(f.LastWindow),
		Sum: f.Sum, Tail: f.Tail, DataOnly: f.DataOnly,
	}, nil
}

// timeOf reverses when.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
