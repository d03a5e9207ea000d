package api

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"semel/engine/config"
	"semel/engine/intake"
	"semel/failpoint"
	"semel/storage"
)

// Export implements Service.
func (l *Local) Export(ctx context.Context, r ExportRequest, w io.Writer) (ExportResult, error) {
	x, err := l.newExporter(r)
	if err != nil {
		return ExportResult{}, err
	}
	for after, more := []byte(nil), true; more; {
		if err := ctx.Err(); err != nil {
			return x.result, err
		}
		x.buf = x.buf[:0]
		err := l.Store.View(func(tx *storage.Tx) (err error) {
			after, err = tx.Observations(r.Source, after, pageRows, x.row)
			return err
		})
		if err == nil {
			err = x.endPage()
		}
		if err != nil {
			return x.result, fmt.Errorf("exporting %s: %w", r.Source, err)
		}
		if _, err = w.Write(x.buf); err == nil {
			err = failpoint.At(failpoint.InExport, l.Store.Path())
		}
		if err != nil {
			return x.result, fmt.Errorf("exporting %s: %w", r.Source, err)
		}
		more = after != nil
	}
	x.result.LeftOut = x.table.leftOut()
	return x.result, nil
}

// exporter makes what an export writes out of the rows of a source, page by
// page.
type exporter struct {
	ExportRequest
	from, to time.Time              // starts of windows, half open; where Window is set
	newest   []*storage.Observation // where Latest is set: of the key at hand, one for each scope
	table    *table                 // nil: JSON Lines
	buf      lineBuffer             // the lines of the page at hand
	result   ExportResult
}

// lineBuffer is an io.Writer that others append to.
type lineBuffer []byte

func (b *lineBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

func (l *Local) newExporter(r ExportRequest) (x *exporter, err error) {
	if err := l.known(r.Source); err != nil {
		return nil, err
	}
	x = &exporter{ExportRequest: r}
	if r.Window != "" {
		w, err := intake.ParseWindow(r.Window)
		if err != nil {
			return nil, badRequest("%w", err)
		}
		s := cmp.Or(l.Config.Source(r.Source), &config.Source{})
		x.from, x.to = w.Range(s.Schedule)
	}
	switch r.Format {
	case "", FormatJSONL:
	case FormatCSV:
		columns, err := l.columns(r.Source)
		if err != nil {
			return nil, err
		}
		if x.table, err = newTable(columns, r.DataOnly, &x.buf); err != nil {
			return nil, err
		}
	default:
		return nil, badRequest("there is no format %q", r.Format)
	}
	return x, nil
}

// row takes the next row of the source.
func (x *exporter) row(o *storage.Observation) error {
	if x.Window != "" && (o.Window.IsZero() || o.Window.Before(x.from) || !o.Window.Before(x.to)) {
		return nil
	}
	if !x.Latest {
		return x.write(o)
	}
	if len(x.newest) > 0 && (x.newest[0].Key.Target != o.Key.Target || x.newest[0].Key.Country != o.Key.Country) {
		if err := x.writeNewest(); err != nil {
			return err
		}
	}
	x.newest = slices.DeleteFunc(x.newest, func(older *storage.Observation) bool { return older.Key.Scope == o.Key.Scope })
	x.newest = append(x.newest, o)
	return nil
}

func (x *exporter) writeNewest() error {
	for _, o := range x.newest {
		if err := x.write(o); err != nil {
			return err
		}
	}
	x.newest = x.newest[:0]
	return nil
}

// endPage completes the page: rows of one key are never on two.
func (x *exporter) endPage() error {
	if err := x.writeNewest(); err != nil {
		return err
	}
	return x.table.flush()
}

func (x *exporter) write(o *storage.Observation) error {
	if x.DataOnly && o.Gone {
		return nil
	}
	x.result.add(o.Window)
	if x.table != nil {
		return x.table.row(o)
	}
	x.buf = o.AppendLine(x.buf, x.DataOnly)
	return nil
}

func (r *ExportResult) add(window time.Time) {
	r.Rows++
	if window.IsZero() {
		return
	}
	if r.FirstWindow == nil || window.Before(*r.FirstWindow) {
		r.FirstWindow = &window
	}
	if r.LastWindow == nil || window.After(*r.LastWindow) {
		r.LastWindow = &window
	}
}
