package parser

import (
	"fmt"
	"maps"
	"slices"
)

// Spec is one source's parsing rules as the config states them, before they
// are compiled. The zero Spec makes one record per page with no fields.
type Spec struct {
	Version int     // raised by people when the rules change; 0 counts as 1
	Rows    *Rule   // one record per match; nil: one record per page
	Key     string  // template over field and target variables; "": the target
	Empty   string  // what no rows means: "fail" (default, also "") or "accept"
	RowsBad string  // what a row that does not fit means: "fail" (default, also "") of the page, or "quarantine": it is left out, unless no row fits
	Fields  []Field // in the config's order, which is the order of the output

	// Links are CSS selectors of elements whose href leads to other pages. They
	// change no record, so the fingerprint leaves them out.
	Links []string
}

// Rule says where a value stands. Exactly one of its selectors is set, or JSON
// beside one of CSS, XPath and Regex, which then says where on the page the
// JSON value stands: it is the whole text of the element or attribute, or
// begins behind what Regex matches and ends where it ends itself.
//
// In a record of Rows, CSS, XPath, Microdata, Table and Regex look inside the
// row's element and JSON inside the row's value; JSONLD does where Rows is JSONLD too, and else
// is of the whole page like Meta, Const and Var.
type Rule struct {
	CSS    string // CSS selector over descendants; ":scope" alone is the row's own element
	XPath  string // XPath 1.0 expression: elements, attributes, or a text, number or boolean
	JSON   string // jq expression over a JSON page; null is no match
	JSONLD string // dotted path into the page's JSON-LD; arrays give their first element, with Many all; null is no match

	// Microdata is a dotted path of itemprops, such as "offers.price". A value is
	// what stands in content, else what HTML says: the link of a link, the time
	// of a time, the text of most.
	Microdata string

	// Schema is the type that JSONLD and Microdata start from: "Product", or with
	// its address where it is not of schema.org; "": of JSON-LD any node, of
	// microdata any item that is no property of another.
	Schema string

	// Table is the text of a table's header in any case, with or without a colon:
	// of a column (its cells), of a row (the cells behind it), or a term of a <dl>
	// (its descriptions). Headers are <th>, the cells of <thead>, and <dt>.
	Table string

	Meta  string // name, property, itemprop or http-equiv of a <meta> element with content, in any case
	Regex string // Go regular expression over the source text; the first group, or the whole match
	Const any    // string, bool, int64 or float64; nil: not set
	Var   string // a variable of the target, or url, final_url, country, window
}

// Field is one named value of a record: where it stands, what it is made into,
// what it must hold.
//
// Of several matches the first counts, as First says, unless Last, Many or Join
// is set, one of them at most. Map, Enum and Pattern see
// the folded text that stands on the page, before the type is applied; Min and
// Max see the value.
type Field struct {
	Name string // letters, digits, "_" and "-"; starts with a letter
	Rule
	Attr     string            // attribute instead of text (css, xpath); an element without it is no match
	First    bool              // the first match, as without it
	Last     bool              // the last match
	Many     bool              // all matches, as an array
	Join     string            // all matches in one text, with this between them; for text
	Type     string            // see Types; "": text
	Required bool              // missing or empty fails the page
	Default  any               // used where nothing matches, as text of the type or as its JSON value; nil: none
	Map      map[string]string // text to text, before the type is applied; a value not in it is an error
	Pattern  string            // the whole text must match
	Min, Max string            // bounds: numbers, amounts, dates and timestamps; exact text
	Enum     []string          // the text must be one of these
	Step     string            // workflow step whose whole page is read, also where there are rows; "": the last
	Currency string            // ISO 4217 code, for money; "": the page's, by its sign or code beside the amount
	Locale   string            // language and region such as "en-US", for money without Currency: what a sign of several currencies means
	Pick     string            // "min" or "max" of a range, for decimal, money and integer; "": a range is an error
	Decimal  string            // "." or ",", for decimal, money and integer
	Layout   string            // Go time layout, for date and timestamp
	Language string            // such as "de": what the layout's names of months and days are in; "": English, long or short as in the layout
	Timezone string            // IANA name for a layout without offset; "": UTC
}

// Types are the values Field.Type may take.
//
// What they give: text a string in NFC, white space folded; html the inner
// HTML as a string; integer a JSON number; decimal a string in normal form
// with the digits as written ("019.90" is "19.90", "-0" is "0"); money
// {"amount":decimal,"currency":code}; boolean true or false; date
// "2006-01-02", read without a layout only from that form; timestamp RFC 3339
// in UTC, read without a layout from ISO 8601 with an offset; url an absolute http or https URL,
// any other is an error; object the JSON value, keys sorted. An empty text is
// "" for text, html and url, and an error for the others.
var Types = []string{"text", "html", "integer", "decimal", "money", "boolean", "date", "timestamp", "url", "object"}

// Rules are compiled, immutable and safe for concurrent use.
type Rules struct {
	version     int
	fingerprint string
	parts       map[string]string
	rows        selector // nil: one record per page
	acceptEmpty bool
	badAside    bool // rows that do not fit are left out
	key         keyTemplate
	fields      []field
	steps       []string // see Steps
	links       []selector
}

// Version is the Spec's version.
func (r *Rules) Version() int { return r.version }

// Fingerprint is a hex SHA-256 over everything in the Spec that can change a
// record, in a canonical form; not over Version.
func (r *Rules) Fingerprint() string { return r.fingerprint }

// FieldNames are the fields' names, in their order.
func (r *Rules) FieldNames() []string {
	names := make([]string, len(r.fields))
	for i := range r.fields {
		names[i] = r.fields[i].name
	}
	return names
}

// Required reports whether the field at a place in FieldNames must have a value.
func (r *Rules) Required(place int) bool { return r.fields[place].required }

// Columns are the fields as a flat table has them, in their order: an amount of
// money is the two columns NAME.amount and NAME.currency, any other field one.
// No field has a dot in its name.
func (r *Rules) Columns() []string {
	var columns []string
	for i := range r.fields {
		f := &r.fields[i]
		if f.money && !f.many {
			columns = append(columns, f.name+".amount", f.name+".currency")
		} else {
			columns = append(columns, f.name)
		}
	}
	return columns
}

// Parts are short fingerprints of the parts that Fingerprint is over, by their
// keys below [source.x.parser], such as "rows" and "fields.price": for telling
// which of two Rules' parts differ. The order of the fields is in none of them.
func (r *Rules) Parts() map[string]string { return maps.Clone(r.parts) }

// Steps are the names of the workflow's steps that fields name, each once, in
// the fields' order.
func (r *Rules) Steps() []string { return slices.Clone(r.steps) }

// Links is how many lists Output.Links has.
func (r *Rules) Links() int { return len(r.links) }

// SpecError is one fault in a Spec.
type SpecError struct {
	Path  string // such as "fields.price.css", "rows", "key": the config key below [source.x.parser]
	Value string // the text at fault
	Err   error
}

// Error is one line: the setting, what it must be, and what it is.
func (e *SpecError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("%s: %v (got %q)", e.Path, e.Err, e.Value)
}

// Unwrap gives the fault itself.
func (e *SpecError) Unwrap() error { return e.Err }
