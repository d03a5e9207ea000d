package parser

import (
	"errors"
	"slices"
	"testing"
)

// Rows that do not fit are left out where the rules say so, and rows that
// contradict each other are left out all.
func TestRowsBad(t *testing.T) {
	for _, test := range []struct {
		name, page string
		keys       []string
		bad        []int
		fails      Kind // of the page; "": it gives rows
	}{
		{"all fit", "<li><b>a</b>1<li><b>b</b>2", []string{"a", "b"}, nil, ""},
		{"one does not", "<li><b>a</b>1<li>2<li><b>c</b>3", []string{"a", "c"}, []int{1}, ""},
		{"none does", "<li>1<li>2", nil, nil, KindValidation},
		{"there is none", "<p>1", nil, nil, KindEmpty},
		{"two of one key", "<li><b>a</b>1<li><b>b</b>2<li><b>a</b>3", []string{"b"}, []int{0, 2}, ""},
		{"four of one key, two alike", "<li><b>a</b>1<li><b>a</b>1<li><b>a</b>2<li><b>a</b>1<li><b>b</b>1", []string{"b"}, []int{0, 2, 3}, ""},
		{"all of one key", "<li><b>a</b>1<li><b>a</b>2", nil, nil, KindDuplicateKey},
	} {
		t.Run(test.name, func(t *testing.T) {
			rules, err := Compile(Spec{
				Rows: &Rule{CSS: "li"}, Key: "{name}", RowsBad: "quarantine",
				Fields: []Field{{Name: "name", Rule: Rule{CSS: "b"}, Required: true}, {Name: "all", Rule: Rule{CSS: ":scope"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			out, err := rules.Parse(Input{Body: []byte(test.page), FinalURL: "http://h/"})
			var e *Error
			if errors.As(err, &e) != (test.fails != "") || e != nil && e.Kind != test.fails {
				t.Fatalf("error %v, want %q", err, test.fails)
			}
			var keys []string
			for _, r := range out.Records {
				keys = append(keys, r.Key)
			}
			var bad []int
			for _, e := range out.Bad {
				bad = append(bad, e.Row)
			}
			if !slices.Equal(keys, test.keys) || !slices.Equal(bad, test.bad) {
				t.Errorf("rows %q, left out %v", keys, bad)
			}
		})
	}
}
