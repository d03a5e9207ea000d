package scaffold

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/language"

	"semel/parser"
)

// kind is what the text of a field may be.
type kind int

const (
	plain   kind = iota // text
	link                // the address of something
	amount              // of money
	number              // with or without a fraction
	counted             // a whole number
	when                // a date or an instant
	unknown             // whatever it looks like
)

// candidate is one place where the value of a field may stand.
type candidate struct {
	name     string // of the field
	kind     kind
	rule     parser.Rule
	attr     string
	written  bool // by a standard, which has "." before a fraction
	required bool // of data that the page is made of: a page without it is another page
}

// saysCurrency reports whether a candidate is no field of its own, but what
// amounts are in. A column of a table that is called so is a field.
func (c candidate) saysCurrency() bool { return c.name == currencyField && c.kind != unknown }

// reading says how texts are read: what the page says of its language and money.
type reading struct {
	lang     string // as page.lang
	currency string // code; "": the text says it
	written  bool   // as candidate.written
}

// fit is the first way to read the texts of a candidate, of which the first tells their
// kind; false where it is none. Numbers of which nothing says how they are written are
// text where all can be read in two ways, and doubt says which.
func (r reading) fit(k kind, texts []string) (f parser.Field, doubt string, ok bool) {
	ways := r.ways(k, texts[0])
	i := slices.IndexFunc(ways, func(f parser.Field) bool { return reads(f, texts[0]) })
	if i < 0 {
		return parser.Field{}, "", false
	}
	f = ways[i]
	if r.written || r.lang != "" || !slices.Contains([]string{"integer", "decimal", "money"}, f.Type) {
		return f, "", true
	}
	all := slices.DeleteFunc(ways[i:], func(way parser.Field) bool {
		return way.Type != f.Type || slices.ContainsFunc(texts, func(text string) bool { return !reads(way, text) })
	})
	switch {
	case len(all) == 0:
		return f, "", true // of the first; what the others make of it is for settle
	case len(all) > 1 && all[0].Decimal != "":
		return parser.Field{}, doubtOf(f, texts), true
	}
	return all[0], "", true
}

// doubtOf is what the parser has against reading a number without its mark.
func doubtOf(f parser.Field, texts []string) string {
	f.Decimal = ""
	for _, text := range texts {
		_, err := readText(f, text)
		if bad, ok := errors.AsType[*parser.Error](err); ok {
			return fmt.Sprintf("with %s, %q %s", strings.Join(fieldSettings(f), ", "), cut(text), bad.Reason)
		}
	}
	return ""
}

// loosely is a way to read texts that are not of their kind: amounts without a
// currency are numbers, if they are; all else is text.
func (r reading) loosely(k kind, texts []string) (f parser.Field, doubt string) {
	if k == amount {
		f, doubt, _ = r.fit(number, texts)
	}
	return f, doubt
}

// reads reports whether a text has a value when it is read like f.
func reads(f parser.Field, text string) bool {
	v, err := readText(f, text)
	return err == nil && v.JSON != nil
}

func readText(f parser.Field, text string) (Value, error) {
	f.Name, f.Rule = "x", parser.Rule{Var: "x"}
	records, err := read(parser.Spec{Fields: []parser.Field{f}}, parser.Input{
		FinalURL: Placeholder, Target: "x", Vars: map[string]string{"x": text},
	})
	return valueOf("x", records), err
}

// ways are the ways to read a text of a kind, the first that fits being the
// best.
func (r reading) ways(k kind, text string) []parser.Field {
	switch k {
	case link:
		return []parser.Field{{Type: "url"}}
	case amount:
		return r.amounts()
	case number:
		return r.numbers("decimal")
	case counted:
		return append(r.numbers("integer"), r.numbers("decimal")...)
	case when:
		return append(instants(), r.days()...)
	case unknown:
		return r.looks(text)
	}
	return []parser.Field{{}}
}

// The forms by which a text of any kind is told for a number, an instant, money
// or a link. What begins with a zero is a code, not a number.
var (
	looksWhole  = regexp.MustCompile(`^(0|[1-9][0-9]{0,14})$`)
	looksNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,14})[.,][0-9]{1,6}$`)
	looksWhen   = regexp.MustCompile(`^.{0,30}[12][0-9]{3}.{0,30}$`)
	looksMoney  = regexp.MustCompile(`^(\p{Sc}|[A-Z]{2,3}\$?) ?[0-9][0-9., '’]*$|^[0-9][0-9., '’]* ?(\p{Sc}|[A-Z]{3})$`)
	looksLink   = regexp.MustCompile(`^https?://[^\s]+$`)
)

// looks are the ways to read a text that nothing is known about.
func (r reading) looks(text string) []parser.Field {
	var ways []parser.Field
	switch {
	case looksWhole.MatchString(text):
		ways = []parser.Field{{Type: "integer"}}
	case looksNumber.MatchString(text):
		ways = r.numbers("decimal")
	case looksMoney.MatchString(text):
		ways = r.amounts()
	case looksLink.MatchString(text):
		ways = []parser.Field{{Type: "url"}}
	case looksWhen.MatchString(text):
		ways = append(instants(), r.days()...)
	case text == "true" || text == "false":
		ways = []parser.Field{{Type: "boolean"}}
	}
	return append(ways, parser.Field{})
}

// commas are languages that write a comma before a fraction, in all or most of
// the places where they are spoken.
var commas = strings.Fields("bg cs da de el es et fi fr hr hu id it lt lv nb nl nn no pl pt ro ru sk sl sr sv tr uk vi")

// marks are what may stand before a fraction, the likely one first. Where the
// page does not say its language, a text with one reading needs none.
func (r reading) marks() []string {
	base, region, _ := strings.Cut(r.lang, "-")
	switch {
	case r.written:
		return []string{".", "", ","}
	case base == "":
		return []string{"", ".", ","}
	case slices.Contains(commas, base) && !(base == "es" && region == "MX") && !(base == "de" && region == "CH"):
		return []string{",", ".", ""}
	}
	return []string{".", ",", ""}
}

func (r reading) numbers(typ string) []parser.Field {
	var ways []parser.Field
	for _, mark := range r.marks() {
		ways = append(ways, parser.Field{Type: typ, Decimal: mark})
	}
	return ways
}

// amounts read money in the page's currency, else in that of the text, of a
// sign by the region of the page's language.
func (r reading) amounts() []parser.Field {
	var ways []parser.Field
	for _, f := range r.numbers("money") {
		f.Currency = r.currency
		ways = append(ways, f)
	}
	tag, err := language.Parse(r.lang)
	if _, sure := tag.Region(); err != nil || sure != language.Exact || r.currency != "" {
		return ways
	}
	for _, f := range slices.Clone(ways) {
		f.Locale = r.lang
		ways = append(ways, f)
	}
	return ways
}

// instants are the forms in which programs write a time. One without an offset
// is read as UTC, which the config then says.
func instants() []parser.Field {
	ways := []parser.Field{{Type: "timestamp"}, {Type: "date"}}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006/01/02 15:04:05", "2006/01/02 15:04"} {
		ways = append(ways, parser.Field{Type: "timestamp", Layout: layout, Timezone: "UTC"})
	}
	for _, layout := range []string{"Mon, 2 Jan 2006 15:04:05 -0700", "Mon, 2 Jan 2006 15:04:05 MST"} {
		ways = append(ways, parser.Field{Type: "timestamp", Layout: layout})
	}
	for _, layout := range []string{"2006/01/02", "20060102", "2.1.2006"} {
		ways = append(ways, parser.Field{Type: "date", Layout: layout})
	}
	return ways
}

// days are the forms in which people write a day in the page's language. Digits
// with slashes have two readings, of which its region tells.
func (r reading) days() []parser.Field {
	base, region, _ := strings.Cut(r.lang, "-")
	var ways []parser.Field
	switch {
	case region == "US":
		ways = append(ways, parser.Field{Type: "date", Layout: "1/2/2006"})
	case base != "" && (base != "en" || region != ""):
		ways = append(ways, parser.Field{Type: "date", Layout: "2/1/2006"}, parser.Field{Type: "date", Layout: "2-1-2006"})
	}
	for _, day := range []string{"", "Monday, ", "Monday "} {
		for _, date := range []string{"January 2, 2006", "2 January 2006", "2. January 2006", "2 de January de 2006"} {
			ways = append(ways,
				parser.Field{Type: "date", Layout: day + date, Language: base},
				parser.Field{Type: "timestamp", Layout: day + date + " 15:04", Language: base, Timezone: "UTC"},
				parser.Field{Type: "timestamp", Layout: day + date + ", 15:04", Language: base, Timezone: "UTC"})
		}
	}
	return ways
}
