package api

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"semel/storage"
)

// table writes observations as CSV. A column is a member of the export's line,
// or, with a dot, a member of an object in it.
type table struct {
	columns  []string
	dataOnly bool
	names    map[string]bool // of the members that have columns
	lost     map[string]bool // members of rows that have none
	out      *csv.Writer
	raw      io.Writer // of out
	line     []byte    // of the row at hand
}

// metaColumns show all of _meta.
var metaColumns = []string{
	"_meta.source", "_meta.key", "_meta.job", "_meta.window", "_meta.country", "_meta.url", "_meta.parser_version",
	"_meta.revision", "_meta.fingerprint", "_meta.observed_at", "_meta.missing", "_meta.gone",
}

// newTable begins a table with its header; w is memory.
func newTable(columns []string, dataOnly bool, w io.Writer) (*table, error) {
	if !dataOnly {
		columns = slices.Concat(columns, metaColumns)
	}
	t := &table{columns: columns, dataOnly: dataOnly, names: map[string]bool{}, lost: map[string]bool{}, out: csv.NewWriter(w), raw: w}
	for _, c := range columns {
		name, _, _ := strings.Cut(c, ".")
		t.names[name] = true
	}
	return t, t.out.Write(columns)
}

// row writes one row, and notes what it had that is in no column.
func (t *table) row(o *storage.Observation) error {
	t.line = o.AppendLine(t.line[:0], t.dataOnly)
	var members map[string]json.RawMessage
	if err := json.Unmarshal(t.line, &members); err != nil {
		return fmt.Errorf("reading observation %s: %w", o.Key, err)
	}
	for name := range members {
		if !t.names[name] {
			t.lost[name] = true
		}
	}
	return t.write(t.cells(members))
}

func (t *table) cells(members map[string]json.RawMessage) []string {
	cells := make([]string, len(t.columns))
	var of string // the member that object is
	var object map[string]json.RawMessage
	for i, c := range t.columns {
		name, part, nested := strings.Cut(c, ".")
		v := members[name]
		if !nested {
			cells[i] = cellText(v)
			continue
		}
		if name != of {
			of, object = name, nil
			if err := json.Unmarshal(v, &object); err != nil && len(v) > 0 {
				t.lost[name] = true // rules of another version made something else of it
			}
		}
		cells[i] = cellText(object[part])
	}
	return cells
}

// cellText is the text of a JSON value: of a text its own, of null none, of
// others their JSON.
func cellText(v json.RawMessage) string {
	var text string
	if len(v) == 0 || json.Unmarshal(v, &text) == nil {
		return text // "" for null
	}
	return string(v)
}

// write writes a row. One empty cell alone has to be quoted: an empty line is
// no row for most readers.
func (t *table) write(cells []string) error {
	if len(cells) > 1 || cells[0] != "" {
		return t.out.Write(cells)
	}
	if err := t.flush(); err != nil {
		return err
	}
	_, err := io.WriteString(t.raw, "\"\"\n")
	return err
}

// flush completes what was written; a nil table has nothing.
func (t *table) flush() error {
	if t == nil {
		return nil
	}
	t.out.Flush()
	return t.out.Error()
}

// leftOut are the members of rows that the table has no column for; a nil table
// left out nothing.
func (t *table) leftOut() []string {
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.lost))
}

// columns are the fields of the source's rules as they are now. Where the config
// does not know the source any more they are those of its first row with data.
func (l *Local) columns(source string) (names []string, err error) {
	if s := l.Config.Source(source); s != nil {
		return s.Rules.Columns(), nil
	}
	for after, more := []byte(nil), true; more && err == nil && names == nil; more = after != nil {
		err = l.Store.View(func(tx *storage.Tx) (err error) {
			after, err = tx.Observations(source, after, 1, func(o *storage.Observation) error {
				if names == nil && !o.Gone {
					names, err = memberNames(o.Data)
				}
				return err
			})
			return err
		})
	}
	return names, err
}

// memberNames are the names in a JSON object, in its order.
func memberNames(object []byte) (names []string, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	for _, err = d.Token(); err == nil && d.More(); {
		name, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return nil, err
		}
		names = append(names, fmt.Sprint(name))
	}
	return names, err
}
