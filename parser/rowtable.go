package parser

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
)

// rowTable gathers the records of a page's rows.
type rowTable struct {
	out  Output
	size int             // of the records, in bytes
	at   map[string]int  // key to index in out.Records
	rows []int           // numbers of the rows that out.Records are of
	torn map[string]bool // keys of rows that contradict each other; each is left out
}

func newRowTable(rows int) *rowTable {
	return &rowTable{at: make(map[string]int, rows), torn: map[string]bool{}}
}

// addRow adds the record of a row. Where rules say so, what is wrong with the row
// alone leaves it out; its error is what fails the page.
func (t *rowTable) addRow(r *Rules, s *scope, row int) error {
	rec, err := r.record(s, row)
	if err == nil {
		t.size += len(rec.Data)
		if err := s.page.checkRecords(t.size); err != nil {
			return locate(err, "", row)
		}
		err = t.add(rec, row)
	}
	var bad *Error
	if !r.badAside || !errors.As(err, &bad) || bad.Kind == KindSyntax {
		return err
	}
	t.out.Bad = append(t.out.Bad, bad)
	if first, there := t.at[rec.Key]; bad.Kind == KindDuplicateKey && there && !t.torn[rec.Key] {
		t.torn[rec.Key] = true
		t.out.Bad = append(t.out.Bad, twice(rec.Key, t.rows[first]))
	}
	return nil
}

// add puts a record under its key.
func (t *rowTable) add(rec Record, row int) error {
	first, there := t.at[rec.Key]
	switch {
	case !there:
		t.at[rec.Key] = len(t.out.Records)
		t.out.Records, t.rows = append(t.out.Records, rec), append(t.rows, row)
		return nil
	case bytes.Equal(t.out.Records[first].Data, rec.Data) && !t.torn[rec.Key]:
		t.out.Duplicates++
		return nil
	}
	return twice(rec.Key, row)
}

func twice(key string, row int) *Error {
	return &Error{Kind: KindDuplicateKey, Row: row, Value: shorten(key), Reason: "another row of this key holds other values"}
}

// output is what the page gave: an error where no row is left.
func (t *rowTable) output() (Output, error) {
	if len(t.out.Bad) == 0 {
		return t.out, nil
	}
	t.out.Records = slices.DeleteFunc(t.out.Records, func(rec Record) bool { return t.torn[rec.Key] })
	slices.SortStableFunc(t.out.Bad, func(a, b *Error) int { return cmp.Compare(a.Row, b.Row) })
	if len(t.out.Records) == 0 {
		return Output{}, t.out.Bad[0]
	}
	return t.out, nil
}
