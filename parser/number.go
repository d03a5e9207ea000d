package parser

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/shopspring/decimal"
)

// maxNumberBytes bounds a number as text, so that no exponent of a page can
// make a record of gigabytes. The largest float64 has 309 digits.
const maxNumberBytes = 400

// readNumber gives the exact normal form of a number as people write it:
// digits as they stand, "." before a fraction, no leading zeros, no plus and
// no minus before zero. Digits may be grouped in threes by one of . , ' ’ and
// the space. sep is the decimal separator, "" where the config names none:
// then the text must have one reading only.
func readNumber(text, sep string) (string, error) {
	s := strings.Map(dropFormat, text)
	if len(s) > maxNumberBytes {
		return "", invalid(text, "is too long for a number")
	}
	if sep != "" {
		if n, ok := readAs(s, sep); ok {
			return n, nil
		}
		return "", invalid(text, "is not a number with decimal %q", sep)
	}
	point, ok1 := readAs(s, ".")
	comma, ok2 := readAs(s, ",")
	switch {
	case ok1 && ok2 && point != comma:
		return "", invalid(text, "can be read as %s and as %s; set decimal", point, comma)
	case ok1:
		return point, nil
	case ok2:
		return comma, nil
	}
	return "", invalid(text, "is not a number")
}

// dropFormat drops the invisible marks of text direction that stand around
// numbers.
func dropFormat(r rune) rune {
	if unicode.Is(unicode.Cf, r) {
		return -1
	}
	return r
}

// readAs reads s with decimal separator sep.
func readAs(s, sep string) (string, bool) {
	negative, s := cutSign(s)
	whole, fraction, hasFraction := strings.Cut(s, sep)
	digits, ok := ungroup(whole, sep)
	if !ok || hasFraction && (fraction == "" || !allDigits(fraction)) || digits == "" && !hasFraction {
		return "", false
	}
	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		digits = "0"
	}
	if hasFraction {
		digits += "." + fraction
	}
	if negative && strings.Trim(digits, "0.") != "" {
		digits = "-" + digits
	}
	return digits, true
}

func cutSign(s string) (negative bool, rest string) {
	for _, minus := range []string{"-", "−"} {
		if rest, ok := strings.CutPrefix(s, minus); ok {
			return true, rest
		}
	}
	return false, strings.TrimPrefix(s, "+")
}

// ungroup takes the grouping out of whole digits: none, or one of the marks
// between groups of three after a first of one to three that is not zero.
func ungroup(s, sep string) (string, bool) {
	for _, mark := range []string{".", ",", " ", "'", "’"} {
		if mark == sep || !strings.Contains(s, mark) {
			continue
		}
		groups := strings.Split(s, mark)
		if len(groups[0]) < 1 || len(groups[0]) > 3 || groups[0][0] == '0' {
			return "", false
		}
		for _, g := range groups[1:] {
			if len(g) != 3 {
				return "", false
			}
		}
		s = strings.Join(groups, "")
		break
	}
	return s, allDigits(s)
}

func allDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// readLiteral gives the normal form of a JSON number, which has one reading
// and may have an exponent.
func readLiteral(text string) (string, error) {
	if len(text) > maxNumberBytes {
		return "", invalid(text, "is not a number, or too long for one")
	}
	if n, ok := readAs(text, "."); ok {
		return n, nil
	}
	d, err := decimal.NewFromString(text) // which refuses exponents over 10,000
	if err != nil || d.Exponent() > maxNumberBytes || d.Exponent() < -maxNumberBytes {
		return "", invalid(text, "is not a number, or too long for one")
	}
	return d.String(), nil
}

// compareNumbers orders two numbers in normal form.
func compareNumbers(a, b string) int {
	return decimal.RequireFromString(a).Compare(decimal.RequireFromString(b))
}

// locateValue makes the whole text the value of an error about part of it.
func locateValue(err error, text string) error {
	e := *err.(*Error)
	e.Value = shorten(text)
	return &e
}

// dashes are what stands between the ends of a range.
const dashes = "-‐‑‒–—"

// cutRange cuts a text such as "10–20 €" at the dash between its numbers; false
// where no dash, or more than one, can be that.
func cutRange(s string) (low, high string, ok bool) {
	before := rune(0) // the mark before, of other than space
	digit := false
	for i, r := range s {
		switch {
		case r == ' ':
			continue
		case !strings.ContainsRune(dashes, r):
			digit = digit || r >= '0' && r <= '9'
		case before == ',' || before == '.': // no cents, as in "19,-"
			r = '0'
		case !digit || strings.ContainsRune(dashes, before): // a minus
		case !strings.ContainsAny(s[i:], "0123456789"):
		case ok:
			return "", "", false
		default:
			low, high, ok = s[:i], s[i+utf8.RuneLen(r):], true
		}
		before = r
	}
	return strings.TrimSpace(low), strings.TrimSpace(high), ok
}

// picked gives the end of a range that pick names.
func picked(text, low, high, pick string) (string, error) {
	switch {
	case compareNumbers(low, high) > 0:
		return "", invalid(text, "is a range from %s down to %s", low, high)
	case pick == "min":
		return low, nil
	case pick == "max":
		return high, nil
	}
	return "", invalid(text, "is a range and can be read as %s and as %s; set pick", low, high)
}
