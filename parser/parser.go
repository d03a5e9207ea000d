// Package parser turns a saved page into records.
//
// It answers for everything between the bytes of a page and the finished JSON
// of its records: selectors, types, validation, the records' keys. It leaves
// to others where pages come from, what a failure leads to, and where records
// go.
//
// Invariants:
//   - Pure: the same bytes under the same rules give the same output, in any
//     process and from any number of goroutines. There is no clock, no
//     network, no environment and no randomness in here.
//   - Compile finds what is wrong with rules; Parse only what is wrong with a
//     page.
//   - A page is read into one tree and one JSON value at most, when the first
//     field asks for it.
//   - A value that has two readings is an error, never a guess, and a value
//     that is missing is not one that is empty.
//   - Whatever a page holds, Parse returns: a panic inside a library is an
//     *Error, and a jq program that does not end is stopped by its steps.
package parser

import (
	"errors"
	"fmt"
	"strings"
)

// Input is one page as it was received: of a workflow, the last step's.
type Input struct {
	Body        []byte            // text bodies are UTF-8 already
	ContentType string            // media type of the response, may be ""
	FinalURL    string            // absolute; relative links resolve against it and <base>
	Target      string            // the target's key, the record key where Spec.Key is ""
	Vars        map[string]string // the target's variables, and url, country, window
	Steps       map[string]Page   // pages of a workflow's steps, at least those of Rules.Steps
}

// Page is the page of one step, each part as in Input.
type Page struct {
	Body        []byte
	ContentType string
	FinalURL    string
}

// Record is one finished record.
type Record struct {
	Key      string   // the record's own key, never ""
	Data     []byte   // one compact JSON object, keys in the config's order, no HTML escaping
	Missing  []string // names of fields with no match, in the config's order
	Unfilled []int    // these fields, and those whose default stands in or whose matches have no text, by their place in Rules.FieldNames
}

// Output is what one page gave.
type Output struct {
	Records    []Record // in page order, unique by Key; empty only where Spec.Empty is "accept"
	Duplicates int      // equal rows that were folded into one
	Bad        []*Error // of rows that were left out, by their numbers; only where Spec.RowsBad is "quarantine"

	// Links are those that each of Spec.Links has found, in its order: absolute
	// http and https URLs without fragment, in page order, each once.
	Links    [][]string
	BadLinks int // that are no URL, hold a login or are longer than 8 KiB
}

// Kind says in which way a page did not fit the rules.
type Kind string

// The kinds, by the names that the failure categories have.
const (
	KindSyntax       Kind = "parse_error"   // the page is not what its rules need: broken JSON, a panic inside a parser library
	KindValidation   Kind = "validation"    // a value is missing, ambiguous or out of bounds
	KindEmpty        Kind = "empty"         // rows matched nothing and empty = "fail"
	KindDuplicateKey Kind = "duplicate_key" // two different rows of one key
)

// Error is why a page gave no records.
type Error struct {
	Kind   Kind
	Field  string // "" where no single field is at fault
	Row    int    // from 0; -1 where the page has no rows
	Value  string // the offending text, shortened to 200 bytes
	Reason string // a sentence part for people: what was expected
}

// Error says where the page does not fit and what stands there.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Row >= 0 {
		fmt.Fprintf(&b, "row %d: ", e.Row)
	}
	if e.Field != "" {
		fmt.Fprintf(&b, "field %s: ", e.Field)
	}
	b.WriteString(e.Reason)
	if e.Value != "" {
		fmt.Fprintf(&b, " (got %q)", e.Value)
	}
	return b.String()
}

// invalid makes an error of KindValidation; Parse adds field and row.
func invalid(value, reason string, args ...any) error {
	return &Error{Kind: KindValidation, Row: -1, Value: shorten(value), Reason: fmt.Sprintf(reason, args...)}
}

// unreadable makes an error of KindSyntax; Parse adds field and row.
func unreadable(reason string, args ...any) error {
	return &Error{Kind: KindSyntax, Row: -1, Reason: shorten(fmt.Sprintf(reason, args...))}
}

// locate says of an error where it was found.
func locate(err error, field string, row int) error {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Kind: KindSyntax, Reason: shorten(err.Error())}
	}
	e.Field, e.Row = field, row
	return e
}

// shorten cuts s to 200 bytes of valid UTF-8.
func shorten(s string) string {
	const limit = 200
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") // without the rune that was cut
	}
	return s
}

// recovered, deferred, makes an error of a panic inside a parser library.
func recovered(err *error) {
	switch v := recover().(type) {
	case nil:
	case *Error:
		*err = v // of navigator
	default:
		*err = unreadable("reading the page panicked: %v", v)
	}
}

// Parse makes records of a page. Its error is always an *Error.
func (r *Rules) Parse(in Input) (Output, error) {
	p := &page{in: in}
	if err := p.addSteps(r.steps); err != nil {
		return Output{}, locate(err, "", -1)
	}
	out, err := r.parseRecords(p)
	if err == nil {
		err = r.readLinks(p, &out)
	}
	if err != nil {
		return Output{}, err
	}
	return out, nil
}

func (r *Rules) parseRecords(p *page) (Output, error) {
	if r.rows != nil {
		return r.parseRows(p)
	}
	rec, err := r.record(&scope{page: p}, -1)
	if err != nil {
		return Output{}, err
	}
	return Output{Records: []Record{rec}}, nil
}

// parseRows makes one record of each row, and one of rows that are equal.
func (r *Rules) parseRows(p *page) (Output, error) {
	rows, err := findAll(r.rows, &scope{page: p})
	if err != nil {
		return Output{}, locate(err, "", -1)
	}
	if len(rows) == 0 && !r.acceptEmpty {
		return Output{}, &Error{Kind: KindEmpty, Row: -1, Reason: "rows matched nothing"}
	}
	t := newRowTable(len(rows))
	for i := range rows {
		if err := t.addRow(r, &scope{page: p, row: &rows[i]}, i); err != nil {
			return Output{}, err
		}
	}
	return t.output()
}

// record reads the fields of one row, or of the page where row is -1.
func (r *Rules) record(s *scope, row int) (Record, error) {
	rec := Record{Data: make([]byte, 0, 512)}
	var texts []cell
	if r.key.usesFields {
		texts = make([]cell, len(r.fields))
	}
	dst := append(rec.Data, '{')
	for i := range r.fields {
		f := &r.fields[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, f.label...)
		var c cell
		var err error
		if dst, c, err = f.append(dst, s.of(f.step)); err == nil {
			err = s.page.checkRecords(len(dst))
		}
		if err != nil {
			return Record{}, locate(err, f.name, row)
		}
		if c.missing {
			rec.Missing = append(rec.Missing, f.name)
		}
		if c.unfilled {
			rec.Unfilled = append(rec.Unfilled, i)
		}
		if texts != nil {
			texts[i] = c
		}
	}
	rec.Data = append(dst, '}')
	key, err := r.key.expand(s.page.in, texts)
	if err != nil {
		return Record{}, locate(err, "", row)
	}
	rec.Key = key
	return rec, nil
}
