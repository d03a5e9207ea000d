package parser

import (
	"strings"
	"unicode"

	"github.com/shopspring/decimal"
	"golang.org/x/text/currency"
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

// readAmount gives the amount in text, which may have signs or codes of the
// currency code before and after the number, and nothing else.
func readAmount(text, sep, code string) (string, error) {
	s := strings.Map(dropFormat, text)
	from, to := strings.IndexAny(s, "0123456789"), strings.LastIndexAny(s, "0123456789")+1
	if from < 0 {
		return "", invalid(text, "is not an amount")
	}
	before, minus := cutMinus(s[:from])
	for _, word := range append(strings.Fields(before), strings.Fields(trimNoCents(s[to:]))...) {
		if err := checkCurrency(word, text, code); err != nil {
			return "", err
		}
	}
	amount, err := readNumber(s[from:to], sep)
	if err != nil {
		return "", locateValue(err, text)
	}
	if minus && strings.Trim(amount, "0.") != "" {
		amount = "-" + amount
	}
	return amount, nil
}

// locateValue makes the whole text the value of an error about part of it.
func locateValue(err error, text string) error {
	e := *err.(*Error)
	e.Value = shorten(text)
	return &e
}

// cutMinus takes one minus out of what stands before the digits: first or last.
func cutMinus(s string) (rest string, minus bool) {
	s = strings.TrimSpace(s)
	for _, mark := range []string{"-", "−"} {
		if rest, ok := strings.CutPrefix(s, mark); ok {
			return rest, true
		}
		if rest, ok := strings.CutSuffix(s, mark); ok {
			return rest, true
		}
	}
	return s, false
}

// trimNoCents drops the dash that stands for no cents, as in "19,-".
func trimNoCents(s string) string {
	for _, mark := range []string{",-", ".-", ",–", ".–", ",—", ".—"} {
		if rest, ok := strings.CutPrefix(s, mark); ok {
			return rest
		}
	}
	return s
}

// checkCurrency says whether word can stand for the currency code.
func checkCurrency(word, text, code string) error {
	if strings.EqualFold(word, code) {
		return nil
	}
	of := signOf(word)
	if of == "" {
		if _, err := currency.ParseISO(word); err == nil && len(word) == 3 {
			of = word
		}
	}
	switch {
	case of == "":
		return invalid(text, "has %q beside the amount", word)
	case !strings.Contains(of, code):
		return invalid(text, "is in %s, not in %s", of, code)
	}
	return nil
}

// signOf gives the codes of the currencies that a sign is used for in shops,
// "" for an unknown sign.
func signOf(sign string) string {
	switch sign {
	case "$":
		return "USD CAD AUD NZD SGD HKD TWD MXN ARS CLP COP UYU BBD BSD BZD BMD KYD FJD GYD JMD LRD NAD SBD SRD TTD XCD"
	case "€":
		return "EUR"
	case "£":
		return "GBP EGP FKP GIP SHP LBP SYP"
	case "¥", "￥":
		return "JPY CNY"
	case "₹":
		return "INR"
	case "Rs", "Rs.":
		return "INR PKR LKR NPR MUR SCR"
	case "₽", "руб", "руб.":
		return "RUB"
	case "kr", "kr.", "Kr", "Kr.":
		return "SEK NOK DKK ISK"
	case "Fr", "Fr.", "SFr.":
		return "CHF"
	}
	return localSign(sign)
}

// localSign gives the code of a sign that one currency has for itself.
func localSign(sign string) string {
	signs := []string{
		"US$ USD", "C$ CAD", "CA$ CAD", "A$ AUD", "AU$ AUD", "NZ$ NZD", "S$ SGD", "HK$ HKD", "NT$ TWD", "MX$ MXN", "R$ BRL",
		"zł PLN", "Kč CZK", "Ft HUF", "lei RON", "лв BGN", "лв. BGN", "₴ UAH", "₺ TRY", "₪ ILS", "₩ KRW", "원 KRW", "円 JPY",
		"元 CNY", "₫ VND", "฿ THB", "₱ PHP", "₦ NGN", "₵ GHS", "₡ CRC", "₲ PYG", "₸ KZT", "₾ GEL", "₼ AZN", "֏ AMD", "৳ BDT",
		"₮ MNT", "RM MYR", "Rp IDR", "R ZAR",
	}
	for _, s := range signs {
		if own, code, _ := strings.Cut(s, " "); own == sign {
			return code
		}
	}
	return ""
}
