package parser

import (
	"strings"
	"testing"
)

// check compares a result with what a table wants; a want that begins with "!"
// is the beginning of an error's reason.
func check(t *testing.T, input, got string, err error, want string) {
	t.Helper()
	if reason, ok := strings.CutPrefix(want, "!"); ok {
		if err == nil {
			t.Errorf("%q gives %q, want the error %q", input, got, reason)
		} else if text := err.Error(); !strings.HasPrefix(text, reason) {
			t.Errorf("%q gives the error %q, want %q", input, text, reason)
		}
		return
	}
	if err != nil || got != want {
		t.Errorf("%q gives %q, %v, want %q", input, got, err, want)
	}
}

func TestReadNumber(t *testing.T) {
	for _, c := range []struct{ text, sep, want string }{
		// No separator is set: one reading only.
		{"1600", "", "1600"},
		{"1,600", "", "!can be read as 1600 and as 1.600; set decimal"},
		{"1.600", "", "!can be read as 1.600 and as 1600; set decimal"},
		{"-12.345", "", "!can be read as -12.345 and as -12345"},
		{"19.90", "", "19.90"},
		{"19,90", "", "19.90"},
		{"0,500", "", "0.500"},
		{"1600.500", "", "1600.500"},
		{"1,600.50", "", "1600.50"},
		{"1.600,50", "", "1600.50"},
		{"1,600,000", "", "1600000"},
		{"1 600", "", "1600"},
		{"1'600.5", "", "1600.5"},
		{"1’600", "", "1600"},
		{"1 600,123", "", "1600.123"},
		// A separator is set: the other one groups.
		{"1,600", ".", "1600"},
		{"1,600", ",", "1.600"},
		{"1.600", ",", "1600"},
		{"12.345.678,9", ",", "12345678.9"},
		{"19,90", ".", `!is not a number with decimal "."`},
		{"1,6000", ".", `!is not a number`},
		{"1,60,000", ".", `!is not a number`},
		{"0,500", ".", `!is not a number`},
		{"1,600 000", ".", `!is not a number`},
		{"1.600.5", ".", `!is not a number`},
		{"1.2,3", ".", `!is not a number`},
		// Normal form.
		{"-0", "", "0"},
		{"-0.00", "", "0.00"},
		{"+5", "", "5"},
		{"−5", "", "-5"},
		{"007", "", "7"},
		{"00", "", "0"},
		{".5", "", "0.5"},
		{"019.90", "", "19.90"},
		{"\u200f19.90\u200e", "", "19.90"},
		{"123456789012345678901234567890.10", "", "123456789012345678901234567890.10"},
		// Not numbers.
		{"", "", "!is not a number"},
		{"-", "", "!is not a number"},
		{"5.", "", "!is not a number"},
		{".", "", "!is not a number"},
		{"--5", "", "!is not a number"},
		{"5-", "", "!is not a number"},
		{"1e5", "", "!is not a number"},
		{"0x10", "", "!is not a number"},
		{"5 - 7", "", "!is not a number"},
		{"5 kg", "", "!is not a number"},
		{"5%", "", "!is not a number"},
		{"٣", "", "!is not a number"},
		{"NaN", "", "!is not a number"},
		{strings.Repeat("9", maxNumberBytes+1), "", "!is too long for a number"},
	} {
		got, err := readNumber(c.text, c.sep)
		check(t, c.text, got, err, c.want)
	}
}

func TestReadLiteral(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"1600", "1600"},
		{"1.600", "1.600"},
		{"-0.0", "0.0"},
		{"1.5e3", "1500"},
		{"15e-1", "1.5"},
		{"9007199254740993", "9007199254740993"},
		{"1e1000000000", "!is not a number, or too long for one"},
		{"1e-1000000000", "!is not a number"},
		{"1e401", "!is not a number"},
		{"1e-401", "!is not a number"},
		{strings.Repeat("1", maxNumberBytes+1), "!is not a number"},
		{"true", "!is not a number"},
	} {
		got, err := readLiteral(c.text)
		check(t, c.text, got, err, c.want)
	}
}

// FuzzReadNumber holds the number reader to its promises: a result is in
// normal form, reading it again as a literal changes nothing, and where no
// separator is set the result does not depend on which is assumed.
func FuzzReadNumber(f *testing.F) {
	for _, s := range []string{"1,600.50", "-0", "1.600", "5 - 7", "1e5", "\u200f5", "’", "1'2", ".5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := readNumber(s, "")
		if err != nil {
			return
		}
		if again, err := readLiteral(got); err != nil || again != got {
			t.Fatalf("%q gives %q, which reads as %q, %v", s, got, again, err)
		}
		for _, sep := range []string{".", ","} {
			if with, err := readNumber(s, sep); err == nil && with != got {
				t.Fatalf("%q gives %q, but %q with decimal %q", s, got, with, sep)
			}
		}
		if _, err := splitAmount(s, ""); err != nil && allDigits(s[:1]) {
			t.Fatalf("%q is the number %q but no amount: %v", s, got, err)
		}
	})
}
