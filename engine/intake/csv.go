package intake

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// table iterates a CSV file.
type table struct {
	in    *csv.Reader
	gauge *gauge
	path  string
	names []string
}

// startCSV reads the header row.
func (r *Reader) startCSV(in io.Reader) error {
	t := &table{gauge: &gauge{in: in}, path: r.path}
	t.in = csv.NewReader(t.gauge)
	t.in.FieldsPerRecord = -1 // a row of another width is one bad row, told with its width
	t.in.ReuseRecord = true
	header, err := t.read()
	switch {
	case err == io.EOF:
		return errors.New("there is no header row")
	case err != nil:
		return fmt.Errorf("header row: %w", err)
	}
	if t.names, err = columns(header); err != nil {
		return fmt.Errorf("header row: %w", err)
	}
	r.names = t.names
	r.next = t.next
	return nil
}

// columns checks a header row.
func columns(header []string) ([]string, error) {
	var names []string
	for i, name := range header {
		name = strings.TrimSpace(name)
		switch {
		case !utf8.ValidString(name):
			return nil, fmt.Errorf("column %d is not UTF-8", i+1)
		case name == "":
			return nil, fmt.Errorf("column %d has no name", i+1)
		case len(header) == 1 && strings.ContainsAny(name, ";\t|"):
			return nil, fmt.Errorf("%q is one column: columns are separated by commas", name)
		case slices.Contains(names, name):
			return nil, fmt.Errorf("column %q is there twice", name)
		}
		names = append(names, name)
	}
	return names, nil
}

func (t *table) next() (Target, error) {
	record, err := t.read()
	if err != nil {
		if syntax, ok := errors.AsType[*csv.ParseError](err); ok {
			reason := syntax.Err.Error()
			if syntax.Line > syntax.StartLine {
				reason = fmt.Sprintf("a quote is not closed: what follows it, up to line %d, was not read", syntax.Line)
			}
			return Target{}, &RowError{t.path, syntax.StartLine, reason}
		}
		return Target{}, err
	}
	line, _ := t.in.FieldPos(0)
	if len(record) != len(t.names) {
		return Target{}, &RowError{t.path, line, fmt.Sprintf("has %d fields, the header %d", len(record), len(t.names))}
	}
	vars := make(Vars, len(record))
	for i, value := range record {
		if !utf8.ValidString(value) {
			return Target{}, &RowError{t.path, line, fmt.Sprintf("column %q is not UTF-8", t.names[i])}
		}
		vars[i] = Var{t.names[i], value}
	}
	return Target{Vars: vars, File: t.path, Line: line}, nil
}

// read gives the next record, of bounded size.
func (t *table) read() ([]string, error) {
	t.gauge.left = maxRowBytes
	return t.in.Read()
}

// gauge is a reader that ends when more than left bytes are asked of it: that
// is how a row that never ends is noticed, since csv.Reader has no such bound.
type gauge struct {
	in   io.Reader
	left int
}

func (g *gauge) Read(p []byte) (int, error) {
	if g.left <= 0 {
		return 0, fmt.Errorf("%w: is a quote not closed?", errRowTooLong)
	}
	n, err := g.in.Read(p)
	g.left -= n
	return n, err
}
