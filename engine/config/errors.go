package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one fault in a config file.
type Error struct {
	File    string
	Line    int    // from 1; 0 where the fault is that something is not there at all
	Key     string // dotted, as TOML writes it; "" for the file as a whole
	Value   string // the value at fault as TOML text; "" where it says nothing or must not be shown
	Message string
	Hint    string // the key or value that was meant; "" where nothing is near
}

// Error is one line: where, which key, what is wrong, what was meant.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Key != "" {
		b.WriteString(": " + e.Key)
	}
	b.WriteString(": " + e.Message)
	if e.Value != "" {
		fmt.Fprintf(&b, " (got %s)", e.Value)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, " (did you mean %q?)", e.Hint)
	}
	return b.String()
}

// Errors are all faults of a file, in the order of their lines.
type Errors []*Error

// Error is one line for each fault.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, fault := range e {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the single faults.
func (e Errors) Unwrap() []error {
	faults := make([]error, len(e))
	for i, fault := range e {
		faults[i] = fault
	}
	return faults
}

// sort puts the faults in the order of their lines; those of one line stay in
// the order they were found in.
func (e Errors) sort() {
	slices.SortStableFunc(e, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
}

// nearest finds the known word that was probably meant, "" if none is near: at
// most one edit in three characters.
func nearest(word string, known []string) string {
	best, meant := max(1, len(word)/3)+1, ""
	for _, k := range known {
		if d := distance(word, k); d < best {
			best, meant = d, k
		}
	}
	return meant
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours between two words.
func distance(a, b string) int {
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
