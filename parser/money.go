package parser

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"golang.org/x/text/currency"
	"golang.org/x/text/language"
)

// amount is a number with the words that stand beside it: signs and codes of
// its currency, if it is one.
type amount struct {
	number string
	words  []string
}

// splitAmount reads text as a number and what stands beside it.
func splitAmount(text, sep string) (amount, error) {
	s := strings.Map(dropFormat, text)
	from, to := strings.IndexAny(s, "0123456789"), strings.LastIndexAny(s, "0123456789")+1
	if from < 0 {
		return amount{}, invalid(text, "is not an amount")
	}
	before, minus := cutMinus(s[:from])
	number, err := readNumber(s[from:to], sep)
	if err != nil {
		return amount{}, locateValue(err, text)
	}
	if minus && strings.Trim(number, "0.") != "" {
		number = "-" + number
	}
	return amount{number, append(strings.Fields(before), strings.Fields(trimNoCents(s[to:]))...)}, nil
}

// splitRange is splitAmount for a text that may be a range, of which pick says
// the end that counts.
func splitRange(text, sep, pick string) (amount, error) {
	from, to, ok := cutRange(text)
	if !ok {
		return splitAmount(text, sep)
	}
	low, err1 := splitAmount(from, sep)
	high, err2 := splitAmount(to, sep)
	if err := cmp.Or(err1, err2); err != nil {
		return amount{}, locateValue(err, text)
	}
	number, err := picked(text, low.number, high.number, pick)
	return amount{number, append(low.words, high.words...)}, err
}

// checkCurrency says whether the words beside an amount can stand for the
// currency code.
func checkCurrency(words []string, text, code string) error {
	for _, word := range words {
		of := currenciesOf(word)
		switch {
		case strings.EqualFold(word, code) || slices.Contains(of, code):
		case of == nil:
			return invalid(text, "has %q beside the amount", word)
		default:
			return invalid(text, "is in %s, not in %s", strings.Join(of, " "), code)
		}
	}
	return nil
}

// findCurrency gives the currency that the words beside an amount stand for: the
// only one that all of them can, or that of region, "" for none, among those.
func findCurrency(words []string, text string, region currency.Unit) (string, error) {
	var all []string
	for _, word := range words {
		of := currenciesOf(word)
		if of == nil {
			return "", invalid(text, "has %q beside the amount", word)
		}
		if all == nil {
			all = of
			continue
		}
		both := slices.DeleteFunc(slices.Clone(all), func(code string) bool { return !slices.Contains(of, code) })
		if len(both) == 0 {
			return "", invalid(text, "can be read in %s and in %s; set currency", all[0], of[0])
		}
		all = both
	}
	switch {
	case len(all) == 0:
		return "", invalid(text, "names no currency; set currency")
	case len(all) == 1:
		return all[0], nil
	case slices.Contains(all, region.String()):
		return region.String(), nil
	}
	return "", invalid(text, "can be read in %s and in %s; set currency or locale", all[0], all[1])
}

// currenciesOf gives the codes that a sign or code beside an amount can mean,
// nil for none.
func currenciesOf(word string) []string {
	if of := strings.Fields(signOf(word)); len(of) > 0 {
		return of
	}
	if unit, err := currency.ParseISO(word); err == nil && unit.String() == word {
		return []string{word} // "top" is a word, TOP the money of Tonga
	}
	return nil
}

// regionCurrency is the currency of a locale's region, such as CAD for "en-CA".
func regionCurrency(locale string) (currency.Unit, error) {
	tag, err := language.Parse(locale)
	if err != nil {
		return currency.Unit{}, errors.New("must be a language and a region such as en-US")
	}
	region, sure := tag.Region()
	if sure != language.Exact {
		return currency.Unit{}, errors.New("must name a region, as in en-US: the language alone has no currency")
	}
	unit, ok := currency.FromRegion(region)
	if !ok {
		return currency.Unit{}, errors.New("is of a region without a currency")
	}
	return unit, nil
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
