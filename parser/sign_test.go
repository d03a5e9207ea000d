package parser

import "testing"

func TestSelectorMatches(t *testing.T) {
	s, err := CompileSelector("#challenge, form.check > input")
	if err != nil {
		t.Fatal(err)
	}
	if s.String() != "#challenge, form.check > input" {
		t.Errorf("it is written %q", s)
	}
	for page, want := range map[string]bool{
		`<p><i id="challenge">`:                true,
		`<form class="a check"><input></form>`: true,
		`<form class="a check"></form>`:        false,
		`#challenge`:                           false,
		``:                                     false,
		"\xff\x00<":                            false,
	} {
		if got := s.Matches([]byte(page)); got != want {
			t.Errorf("%q matches: %t", page, got)
		}
	}
	if _, err := CompileSelector("#x["); err == nil {
		t.Error("a bad selector compiles")
	}
}
