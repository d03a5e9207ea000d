package parser

import (
	"strings"
	"testing"
)

func TestReadAmount(t *testing.T) {
	for _, c := range []struct{ text, sep, code, want string }{
		{"$19.90", ".", "USD", "19.90"},
		{"US$ 19.90", ".", "USD", "19.90"},
		{"USD 1,019.90", ".", "USD", "1019.90"},
		{"usd 5", "", "USD", "5"},
		{"$19.90 USD", ".", "USD", "19.90"},
		{"-$5.00", ".", "USD", "-5.00"},
		{"$-5.00", ".", "USD", "-5.00"},
		{"−5 €", "", "EUR", "-5"},
		{"-0 €", "", "EUR", "0"},
		{"19,90 €", ",", "EUR", "19.90"},
		{"19,90€", ",", "EUR", "19.90"},
		{"1 600,- Kč", ",", "CZK", "1600"},
		{"19,–", ",", "EUR", "19"},
		{"$5", "", "CAD", "5"},
		{"Rs.500", "", "INR", "500"},
		{"¥ 1,200", ".", "CNY", "1200"},
		{"12 kr.", "", "SEK", "12"},
		{"CHF 12", "", "CHF", "12"},
		{"Fr. 12", "", "CHF", "12"},
		{"12 руб.", "", "RUB", "12"},
		{"£3", "", "GBP", "3"},
		{"₹3", "", "INR", "3"},
		{"R$ 3", "", "BRL", "3"},
		{"19.90", ".", "USD", "19.90"},
		{"€ 5", "", "USD", "!is in EUR, not in USD"},
		{"5 EUR", "", "USD", "!is in EUR, not in USD"},
		{"R$ 3", "", "USD", "!is in BRL, not in USD"},
		{"$5 EUR", "", "USD", "!is in EUR, not in USD"},
		{"$1,600", "", "USD", "!can be read as 1600 and as 1.600; set decimal (got \"$1,600\")"},
		{"5 - 7", "", "USD", `!is a range and can be read as 5 and as 7; set pick (got "5 - 7")`},
		{"$5 - $7", "", "USD", "!is a range and can be read as 5 and as 7; set pick"},
		{"$5 - 7 EUR", "", "USD", "!is a range"},
		{"$7–5", "", "USD", "!is a range from 7 down to 5"},
		{"1-2-3", "", "USD", "!is not a number"},
		{"19,- – 25,-", ",", "EUR", "!is a range and can be read as 19 and as 25"},
		{"from $5", "", "USD", `!has "from" beside the amount`},
		{"$5 incl. VAT", "", "USD", `!has "incl." beside the amount`},
		{"$5/kg", "", "USD", `!has "/kg" beside the amount`},
		{"$.99", ".", "USD", `!has "$." beside the amount`},
		{"5-", "", "USD", `!has "-" beside the amount`},
		{"free", "", "USD", "!is not an amount"},
		{"", "", "USD", "!is not an amount"},
	} {
		got, err := convertMoney(&field{decimal: c.sep, currency: c.code}, nil, text{s: c.text})
		check(t, c.text, got, err, c.want)
	}
}

// TestCurrencyOfThePage: a sign of one currency, a code, or what both together
// can be; a sign of several only where a locale says which.
func TestCurrencyOfThePage(t *testing.T) {
	for _, c := range []struct{ text, locale, want string }{
		{"19,90 €", "", `{"amount":"19.90","currency":"EUR"}`},
		{"19,90 €", "en-US", `{"amount":"19.90","currency":"EUR"}`},
		{"CHF 5", "", `{"amount":"5","currency":"CHF"}`},
		{"$5 CAD", "", `{"amount":"5","currency":"CAD"}`},
		{"AU$ 5", "", `{"amount":"5","currency":"AUD"}`},
		{"$5", "en-US", `{"amount":"5","currency":"USD"}`},
		{"$5", "fr-CA", `{"amount":"5","currency":"CAD"}`},
		{"5 kr", "sv-SE", `{"amount":"5","currency":"SEK"}`},
		{"£5", "en-GB", `{"amount":"5","currency":"GBP"}`},
		{"€ 10 – 20", "", `!is a range and can be read as 10 and as 20; set pick (got "€ 10 – 20")`},
		{"$5", "", `!can be read in USD and in CAD; set currency or locale (got "$5")`},
		{"$5", "de-DE", `!can be read in USD and in CAD; set currency or locale (got "$5")`},
		{"kr 5", "", `!can be read in SEK and in NOK; set currency or locale (got "kr 5")`},
		{"€5 USD", "", `!can be read in EUR and in USD; set currency (got "€5 USD")`},
		{"5", "en-US", `!names no currency; set currency (got "5")`},
		{"top 5", "", `!has "top" beside the amount (got "top 5")`},
		{"", "", `!is "", expected an amount`},
	} {
		got := parseField(t, Input{Target: "1"}, Field{Rule: Rule{Const: c.text}, Type: "money", Locale: c.locale})
		if got = strings.Replace(got, "validation: field x: ", "", 1); got != c.want {
			t.Errorf("%q in %q gives %s, want %s", c.text, c.locale, got, c.want)
		}
	}
	rules := mustCompile(t, Spec{Key: "{p}", Fields: []Field{{Name: "p", Type: "money", Rule: Rule{CSS: "p"}}}})
	if got := strings.Join(rules.Columns(), " "); got != "p.amount p.currency" {
		t.Errorf("the columns are %s", got)
	}
	if out, err := rules.Parse(Input{Body: []byte("<p>5 €")}); err != nil || out.Records[0].Key != "5 EUR" {
		t.Errorf("the key is %+v, %v", out, err)
	}
}

// TestPick: a range has the end that pick names.
func TestPick(t *testing.T) {
	for _, c := range []struct {
		text  string
		field Field
		want  string
	}{
		{"10–20 €", Field{Type: "money", Currency: "EUR", Pick: "min"}, `{"amount":"10","currency":"EUR"}`},
		{"10 € bis 20 €", Field{Type: "money", Currency: "EUR", Pick: "min"}, "!is not a number"},
		{"€10 - €20", Field{Type: "money", Pick: "max"}, `{"amount":"20","currency":"EUR"}`},
		{"€10 - $20", Field{Type: "money", Pick: "max"}, "!can be read in EUR and in USD"},
		{"19,- – 25,-", Field{Type: "money", Currency: "EUR", Decimal: ",", Pick: "max"}, `{"amount":"25","currency":"EUR"}`},
		{"15 €", Field{Type: "money", Pick: "max"}, `{"amount":"15","currency":"EUR"}`},
		{"-5 - -3", Field{Type: "integer", Pick: "min"}, "-5"},
		{"1 600 — 2 000", Field{Type: "integer", Pick: "max"}, "2000"},
		{"1.5-2.5", Field{Type: "decimal", Pick: "max"}, `"2.5"`},
		{"1,600-2,000", Field{Type: "decimal", Pick: "max"}, `!can be read as 1600 and as 1.600; set decimal (got "1,600-2,000")`},
		{"3-1", Field{Type: "decimal", Pick: "max"}, `!is a range from 3 down to 1 (got "3-1")`},
		{"1-2", Field{Type: "decimal"}, `!is a range and can be read as 1 and as 2; set pick (got "1-2")`},
		{"1-2-3", Field{Type: "decimal", Pick: "max"}, "!is not a number"},
		{"10–20", Field{Type: "integer", Pick: "min", Min: "11"}, "!is below min 11"},
	} {
		c.field.Rule = Rule{Const: c.text}
		got := strings.Replace(parseField(t, Input{Target: "1"}, c.field), "validation: field x: ", "", 1)
		if got != c.want && !(c.want[0] == '!' && strings.HasPrefix(got, c.want)) {
			t.Errorf("%q gives %s, want %s", c.text, got, c.want)
		}
	}
}
