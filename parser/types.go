package parser

import (
	"cmp"
	"strings"
)

// fieldType is what a type does with a match: read gives the text that stands
// there, convert makes the canonical text of it, encode writes that as JSON.
type fieldType struct {
	read    func(match) (text, error)
	convert func(*field, *scope, text) (string, error)
	encode  func([]byte, *field, string) []byte
	// expected says what an empty text should have been; "" where it is a value.
	expected string
	// empty is the canonical text that a required field may not have.
	empty string
	// bound reads Min and Max, compare orders canonical texts; nil where the
	// type has no order.
	bound   func(string) (string, error)
	compare func(a, b string) int
}

// text is a value as it stands on the page, ready for Map, Enum and Pattern.
type text struct {
	s       string
	literal bool // a JSON number, which has one reading only
}

// typeOf gives the behaviour of one of Types; false for another name.
func typeOf(name string) (fieldType, bool) {
	switch name {
	case "", "text":
		return fieldType{read: readText, convert: convertText, encode: quote}, true
	case "html":
		return fieldType{read: readHTML, convert: convertText, encode: quote}, true
	case "integer":
		return fieldType{readText, convertInteger, verbatim, "an integer", "", boundInteger, compareNumbers}, true
	case "decimal":
		return fieldType{readText, convertDecimal, quote, "a number", "", readLiteral, compareNumbers}, true
	case "money":
		return fieldType{readText, convertMoney, encodeMoney, "an amount", "", readLiteral, compareNumbers}, true
	case "boolean":
		return fieldType{read: readText, convert: convertBoolean, encode: verbatim, expected: "true or false"}, true
	case "date":
		return fieldType{readText, convertDate, quote, "a date", "", boundDate, strings.Compare}, true
	case "timestamp":
		return fieldType{readText, convertTimestamp, quote, "a timestamp", "", boundTimestamp, compareTimes}, true
	case "url":
		return fieldType{read: readURL, convert: convertURL, encode: quote}, true
	case "object":
		return fieldType{read: readObject, convert: convertText, encode: verbatim, empty: `""`}, true
	}
	return fieldType{}, false
}

func readText(m match) (text, error) {
	t, err := readRaw(m)
	t.s = fold(t.s)
	return t, err
}

// readRaw gives a match's text without folding it.
func readRaw(m match) (text, error) {
	switch {
	case m.node != nil:
		return text{s: nodeText(m.node)}, nil
	case m.json:
		s, number, err := jsonText(m.value)
		return text{s, number}, err
	}
	return text{s: m.text}, nil
}

func readHTML(m match) (text, error) {
	if m.node != nil {
		s, err := innerHTML(m.node)
		return text{s: s}, err
	}
	t, err := readRaw(m)
	t.s = strings.ToValidUTF8(t.s, "\uFFFD")
	return t, err
}

// readURL drops line breaks inside a link, where folding would put spaces.
func readURL(m match) (text, error) {
	t, err := readRaw(m)
	t.s = fold(strings.NewReplacer("\n", "", "\r", "", "\t", "").Replace(t.s))
	return t, err
}

func readObject(m match) (text, error) {
	s, err := compactJSON(m.value)
	return text{s: s}, err
}

func convertText(_ *field, _ *scope, t text) (string, error) { return t.s, nil }

func convertInteger(f *field, _ *scope, t text) (string, error) {
	n, err := f.number(t)
	if err != nil {
		return "", err
	}
	whole, fraction, hasFraction := strings.Cut(n, ".")
	if hasFraction && (!t.literal || strings.Trim(fraction, "0") != "") {
		return "", invalid(t.s, "is not an integer")
	}
	return whole, nil
}

func convertDecimal(f *field, _ *scope, t text) (string, error) { return f.number(t) }

func (f *field) number(t text) (string, error) {
	if t.literal {
		return readLiteral(t.s)
	}
	low, high, ok := cutRange(t.s)
	if !ok {
		return readNumber(t.s, f.decimal)
	}
	from, err1 := readNumber(low, f.decimal)
	to, err2 := readNumber(high, f.decimal)
	if err := cmp.Or(err1, err2); err != nil {
		return "", locateValue(err, t.s)
	}
	return picked(t.s, from, to, f.pick)
}

// convertMoney gives the amount, with the currency behind it where that is the
// page's to say.
func convertMoney(f *field, _ *scope, t text) (string, error) {
	if t.literal {
		number, err := readLiteral(t.s)
		return f.inCurrency(amount{number: number}, t.s, err)
	}
	a, err := splitRange(t.s, f.decimal, f.pick)
	return f.inCurrency(a, t.s, err)
}

func (f *field) inCurrency(a amount, text string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	if f.currency != "" {
		return a.number, checkCurrency(a.words, text, f.currency)
	}
	code, err := findCurrency(a.words, text, f.region)
	return a.number + " " + code, err
}

func convertBoolean(_ *field, _ *scope, t text) (string, error) {
	switch strings.ToLower(t.s) {
	case "true", "yes", "1":
		return "true", nil
	case "false", "no", "0":
		return "false", nil
	}
	return "", invalid(t.s, "is not one of true, false, yes, no, 1, 0")
}

func convertDate(f *field, _ *scope, t text) (string, error) {
	return f.dated(t.s, func(text string) (string, error) { return readDate(text, f.layout) })
}

func convertTimestamp(f *field, _ *scope, t text) (string, error) {
	return f.dated(t.s, func(text string) (string, error) { return readTimestamp(text, f.layout, f.zone) })
}

// dated reads a text with the names of its language in English.
func (f *field) dated(text string, read func(string) (string, error)) (string, error) {
	if f.calendar == nil {
		return read(text)
	}
	value, err := read(f.calendar.english(text, f.names))
	if err != nil {
		e := *err.(*Error)
		e.Value, e.Reason = shorten(text), strings.ReplaceAll(e.Reason, f.layout, f.written)
		return "", &e
	}
	return value, nil
}

// convertURL keeps an empty link empty: it names no page.
func convertURL(f *field, s *scope, t text) (string, error) {
	if t.s == "" {
		return "", nil
	}
	base, err := f.linkBase(s)
	if err != nil {
		return "", err
	}
	u, err := resolve(base, t.s)
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

func boundInteger(s string) (string, error) { return convertInteger(nil, nil, text{s, true}) }

func boundDate(s string) (string, error) { return readDate(s, isoDate) }

func boundTimestamp(s string) (string, error) { return readTimestamp(s, "", nil) }

func quote(dst []byte, _ *field, s string) []byte { return appendString(dst, s) }

func verbatim(dst []byte, _ *field, s string) []byte { return append(dst, s...) }

func encodeMoney(dst []byte, f *field, s string) []byte {
	number, code, ok := strings.Cut(s, " ")
	if !ok {
		code = f.currency
	}
	dst = append(dst, `{"amount":"`...)
	dst = append(dst, number...)
	dst = append(dst, `","currency":"`...)
	dst = append(dst, code...)
	return append(dst, `"}`...)
}
