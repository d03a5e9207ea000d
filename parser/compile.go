package parser

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// compiler gathers the faults of a Spec.
type compiler struct {
	spec   *Spec
	faults []error
}

func (c *compiler) fault(path, value string, err error) {
	c.faults = append(c.faults, &SpecError{Path: path, Value: value, Err: err})
}

func (c *compiler) faultf(path, value, format string, args ...any) {
	c.fault(path, value, fmt.Errorf(format, args...))
}

// Compile checks a Spec and makes Rules of it. Its error joins one *SpecError
// per fault. The Spec is not kept.
func Compile(spec Spec) (*Rules, error) {
	c := &compiler{spec: &spec}
	r := &Rules{version: max(1, spec.Version)}
	if spec.Version < 0 {
		c.faultf("version", fmt.Sprint(spec.Version), "must be at least 1")
	}
	c.compileRows(r)
	names := make(map[string]bool, len(spec.Fields))
	for i := range spec.Fields {
		f := &spec.Fields[i]
		if names[f.Name] {
			c.faultf("fields."+f.Name, f.Name, "there is another field of this name")
		}
		names[f.Name] = true
		r.fields = append(r.fields, c.compileField(f))
		if f.Step != "" && !slices.Contains(r.steps, f.Step) {
			r.steps = append(r.steps, f.Step)
		}
	}
	c.compileLinks(r)
	if err := errors.Join(c.faults...); err != nil {
		return nil, err
	}
	r.fingerprint, r.parts = fingerprint(&spec), parts(&spec)
	return r, nil
}

// rowsChoice reports whether a setting of rows is what it may be beside "fail".
func (c *compiler) rowsChoice(path, is, other string) bool {
	switch {
	case is == "", is == "fail":
	case is != other:
		c.faultf(path, is, "must be fail or %s", other)
	case c.spec.Rows == nil:
		c.faultf(path, is, "needs rows")
	}
	return is == other
}

// compileRows compiles what makes records out of a page: rows, key, and what
// becomes of rows that are missing or bad.
func (c *compiler) compileRows(r *Rules) {
	rows := c.spec.Rows
	r.acceptEmpty = c.rowsChoice("empty", c.spec.Empty, "accept")
	r.badAside = c.rowsChoice("rows_bad", c.spec.RowsBad, "quarantine")
	var err error
	if r.key, err = compileKey(c.spec.Key, c.spec.Fields); err != nil {
		c.fault("key", c.spec.Key, err)
	}
	if rows == nil {
		return
	}
	if c.spec.Key == "" {
		c.faultf("key", "", "is needed where there are rows")
	}
	name, ok := c.selectorName("rows", rows)
	if !ok {
		return
	}
	if !slices.Contains([]string{"css", "xpath", "json", "jsonld", embedded}, name) {
		c.faultf("rows."+name, "", "cannot give rows; css, xpath, json and jsonld can")
		return
	}
	r.rows = c.compileSelector("rows", name, rows, selectorOptions{all: true})
	if x, ok := r.rows.(*xpathSelector); ok {
		r.rows = &elementSelector{x}
	}
}

// selectorNames are the keys of a Rule's selectors, in the order of its fields.
func (r *Rule) selectorNames() []string {
	var set []string
	for _, s := range []struct {
		name string
		set  bool
	}{
		{"css", r.CSS != ""}, {"xpath", r.XPath != ""}, {"json", r.JSON != ""}, {"jsonld", r.JSONLD != ""},
		{"microdata", r.Microdata != ""}, {"table", r.Table != ""}, {"meta", r.Meta != ""}, {"regex", r.Regex != ""}, {"const", r.Const != nil}, {"var", r.Var != ""},
	} {
		if s.set {
			set = append(set, s.name)
		}
	}
	return set
}

// embedded is the selector of a Rule that has JSON beside the place on the page
// where the JSON value stands.
const embedded = "json within the page"

// selector is the name of the one selector that r has, or embedded; "" where
// the rule is at fault.
func (r *Rule) selector() string {
	names := r.selectorNames()
	switch {
	case len(names) == 1:
		return names[0]
	case len(names) == 2 && r.JSON != "" && (r.CSS != "" || r.XPath != "" || r.Regex != ""):
		return embedded
	}
	return ""
}

// selectorName is r's selector, false after a fault.
func (c *compiler) selectorName(path string, r *Rule) (string, bool) {
	name := r.selector()
	if name == "" {
		names := r.selectorNames()
		if len(names) == 0 {
			c.faultf(path, "", "needs one of css, xpath, json, jsonld, microdata, table, meta, regex, const, var")
		} else {
			c.faultf(path, strings.Join(names, ", "), "must have one selector only, or json beside one of css, xpath and regex")
		}
	}
	return name, name != ""
}

// selectorOptions are what a field says about its selector.
type selectorOptions struct {
	attr string
	all  bool // every match counts
	keep bool // an array is a value
}

// compileSelector compiles the selector of r called name; nil after a fault.
func (c *compiler) compileSelector(path, name string, r *Rule, o selectorOptions) selector {
	if r.Schema != "" && name != "jsonld" && name != "microdata" {
		c.faultf(path+".schema", r.Schema, "fits jsonld and microdata only")
	}
	var sel selector
	var err error
	var source string
	switch name {
	case "css":
		source = r.CSS
		sel, err = compileCSS(source, o.attr)
	case "xpath":
		source = r.XPath
		sel, err = compileXPath(source, o.attr)
	case embedded:
		return c.compileEmbedded(path, r, o)
	case "json":
		source = r.JSON
		sel, err = compileJQ(source)
	case "jsonld":
		source = r.JSONLD
		sel, err = compileJSONLD(source, r.Schema, o)
	case "microdata":
		source = r.Microdata
		sel, err = compileMicrodata(source, r.Schema)
	case "table":
		source = r.Table
		sel, err = compileTable(source)
	case "meta":
		sel = &metaSelector{strings.TrimSpace(r.Meta)}
	case "regex":
		source = r.Regex
		sel, err = compileRegex(source)
	case "const":
		source = fmt.Sprint(r.Const)
		sel, err = compileConst(r.Const)
	case "var":
		sel = &varSelector{r.Var}
	}
	if err != nil {
		c.fault(path+"."+name, source, err)
		return nil
	}
	return sel
}

// compileEmbedded compiles a JSON beside the place where its value stands.
func (c *compiler) compileEmbedded(path string, r *Rule, o selectorOptions) selector {
	jq, err := compileJQ(r.JSON)
	if err != nil {
		c.fault(path+".json", r.JSON, err)
	}
	if r.Regex != "" {
		re, err := compileRegex(r.Regex)
		switch {
		case err != nil:
			c.fault(path+".regex", r.Regex, err)
		case re.re.NumSubexp() > 0:
			c.faultf(path+".regex", r.Regex, "has no use for a group beside json: the JSON value begins behind the whole match; write (?: for (")
		}
		return &assignedJSON{re, jq}
	}
	place := Rule{CSS: r.CSS, XPath: r.XPath}
	sel := c.compileSelector(path, place.selectorNames()[0], &place, selectorOptions{attr: o.attr})
	return &elementJSON{sel, jq}
}

func compileConst(v any) (selector, error) {
	switch v.(type) {
	case string, bool, int64, float64:
	default:
		return nil, errors.New("must be a string, a boolean or a number")
	}
	plain, err := plainJSON(v)
	if err != nil {
		return nil, err
	}
	return &constSelector{match{value: plain, json: true}}, nil
}

// fieldName is what a field may be called. Compiling it takes longer than all
// else of a field.
var fieldName = regexp.MustCompile(`^\p{L}[\p{L}\p{M}\p{N}_-]*$`)

func validName(name string) bool { return fieldName.MatchString(name) }

// compileField compiles f; the result is of use only if there was no fault.
func (c *compiler) compileField(f *Field) field {
	path := "fields." + f.Name
	if !validName(f.Name) {
		c.faultf(path, f.Name, "a field's name has letters, digits, _ and - and starts with a letter")
	}
	out := field{
		name: f.Name, label: append(appendString(nil, f.Name), ':'),
		last: f.Last, many: f.Many, join: f.Join, required: f.Required, step: f.Step,
		decimal: f.Decimal, pick: f.Pick, money: f.Type == "money", currency: f.Currency, layout: f.Layout, zone: time.UTC,
	}
	typ, ok := typeOf(f.Type)
	if !ok {
		c.faultf(path+".type", f.Type, "must be one of %s", strings.Join(Types, ", "))
	}
	out.typ = typ
	name, one := c.selectorName(path, &f.Rule)
	if one {
		c.checkPlace(path, name, f)
		out.sel = c.compileSelector(path, name, &f.Rule, selectorOptions{f.Attr, f.Many || f.Last || f.Join != "", f.Type == "object" && !f.Many})
		out.ownURL = c.ownURL(name, f)
	}
	c.compileMatches(path, f)
	if ok {
		before := len(c.faults)
		c.compileOptions(path, f, &out)
		c.compileChecks(path, f, &out)
		if len(c.faults) == before {
			c.compileDefault(path, f, &out)
		}
	}
	return out
}

// compileMatches checks what a field takes of several matches.
func (c *compiler) compileMatches(path string, f *Field) {
	var set []string
	for _, option := range []struct {
		name string
		set  bool
	}{{"first", f.First}, {"last", f.Last}, {"many", f.Many}, {"join", f.Join != ""}} {
		if option.set {
			set = append(set, option.name)
		}
	}
	if len(set) > 1 {
		c.faultf(path, strings.Join(set, ", "), "must say one way only to take several matches")
	}
	c.fits(path+".join", f.Join, cmp.Or(f.Type, "text"), "text")
}

// ownURL reports whether a link that the selector called name finds is of no
// HTML page.
func (c *compiler) ownURL(name string, f *Field) bool {
	switch name {
	case "const", "var":
		return true
	case "json":
		return c.rowsName() != embedded || f.Step != ""
	}
	return c.rowsName() == "json" && f.Step == ""
}

// rowsName is the selector of the rows, "" where there are none.
func (c *compiler) rowsName() string {
	if c.spec.Rows == nil {
		return ""
	}
	return c.spec.Rows.selector()
}

// elementSelectors are the selectors of r that look in elements.
func (r *Rule) elementSelectors() map[string]string {
	return map[string]string{"css": r.CSS, "xpath": r.XPath, "microdata": r.Microdata, "table": r.Table}
}

// checkPlace refuses selectors that have nothing to look in.
func (c *compiler) checkPlace(path, name string, f *Field) {
	if f.Attr != "" && f.CSS == "" && f.XPath == "" {
		c.faultf(path+".attr", f.Attr, "fits css and xpath only")
	}
	if f.Type == "object" && name != "json" && name != embedded && name != "jsonld" && name != "const" {
		c.faultf(path+".type", f.Type, "fits json, jsonld and const only")
	}
	rows := c.rowsName()
	if rows == "" || f.Step != "" { // a step's page has no rows
		return
	}
	html := rows == "css" || rows == "xpath"
	if html && name == "json" {
		c.faultf(path+".json", f.JSON, "rows are elements, which have no JSON value")
	}
	for name, text := range f.elementSelectors() {
		if text != "" && !html {
			c.faultf(path+"."+name, text, "rows are JSON values, which have no elements")
		}
	}
}

// compileOptions compiles the options that belong to some types.
func (c *compiler) compileOptions(path string, f *Field, out *field) {
	c.fits(path+".currency", f.Currency, f.Type, "money")
	c.fits(path+".decimal", f.Decimal, f.Type, "integer", "decimal", "money")
	c.fits(path+".locale", f.Locale, f.Type, "money")
	c.fits(path+".layout", f.Layout, f.Type, "date", "timestamp")
	c.fits(path+".timezone", f.Timezone, f.Type, "timestamp")
	c.fits(path+".pick", f.Pick, f.Type, "integer", "decimal", "money")
	if f.Pick != "" && f.Pick != "min" && f.Pick != "max" {
		c.faultf(path+".pick", f.Pick, "must be min or max")
	}
	if f.Type == "money" {
		c.compileCurrency(path, f, out)
	}
	if f.Decimal != "" && f.Decimal != "." && f.Decimal != "," {
		c.faultf(path+".decimal", f.Decimal, `must be "." or ","`)
	}
	if f.Layout != "" {
		if err := checkLayout(f.Layout); err != nil {
			c.fault(path+".layout", f.Layout, err)
		}
	}
	c.compileLanguage(path, f, out)
	if f.Timezone == "" {
		return
	}
	zone, err := time.LoadLocation(f.Timezone)
	if err != nil || f.Timezone == "Local" {
		c.faultf(path+".timezone", f.Timezone, "must be an IANA name such as Europe/Berlin")
	}
	if f.Layout == "" {
		c.faultf(path+".timezone", f.Timezone, "needs a layout")
	}
	out.zone = zone
}

// compileLanguage compiles the layout of a language's names.
func (c *compiler) compileLanguage(path string, f *Field, out *field) {
	c.fits(path+".language", f.Language, f.Type, "date", "timestamp")
	if f.Language == "" || f.Type != "date" && f.Type != "timestamp" {
		return
	}
	var known bool
	out.written = fmt.Sprintf("%s in %s", f.Layout, f.Language)
	if out.calendar, known = calendarOf(f.Language); !known {
		c.faultf(path+".language", f.Language, "must be one of %s", strings.Join(calendarLanguages(), ", "))
	}
	if out.layout, out.names = inEnglish(f.Layout); out.names == nil {
		c.faultf(path+".language", f.Language, "needs a layout with the name of a month or day, such as %q", "2. January 2006")
	}
}

// compileCurrency compiles how the currency of money is known.
func (c *compiler) compileCurrency(path string, f *Field, out *field) {
	if f.Currency != "" {
		if !regexp.MustCompile(`^[A-Z]{3}$`).MatchString(f.Currency) {
			c.faultf(path+".currency", f.Currency, "must be an ISO 4217 code such as USD")
		}
		if f.Locale != "" {
			c.faultf(path+".locale", f.Locale, "has no use beside currency")
		}
		return
	}
	if f.Min != "" || f.Max != "" {
		c.faultf(path+".currency", "", "is needed for min and max: amounts of different currencies have no order")
	}
	if f.Locale == "" {
		return
	}
	var err error
	if out.region, err = regionCurrency(f.Locale); err != nil {
		c.fault(path+".locale", f.Locale, err)
	}
}

// fits refuses an option that typ has no use for.
func (c *compiler) fits(path, value, typ string, types ...string) {
	if value != "" && !slices.Contains(types, typ) {
		c.faultf(path, value, "fits %s only", strings.Join(types, ", "))
	}
}

// compileChecks compiles map, pattern, enum, min and max.
func (c *compiler) compileChecks(path string, f *Field, out *field) {
	if f.Type == "object" && (len(f.Map) > 0 || f.Pattern != "" || len(f.Enum) > 0) {
		c.faultf(path, "", "map, pattern and enum do not fit objects")
	}
	if len(f.Map) > 0 {
		out.mapped = maps.Clone(f.Map)
	}
	if len(f.Enum) > 0 {
		out.enum = slices.Clone(f.Enum)
	}
	if f.Pattern != "" {
		if _, err := regexp.Compile(f.Pattern); err != nil {
			c.faultf(path+".pattern", f.Pattern, "not a regular expression: %w", err)
		} else {
			out.pattern = regexp.MustCompile(`\A(?:` + f.Pattern + `)\z`)
		}
	}
	out.min = c.compileBound(path+".min", f.Min, out.typ)
	out.max = c.compileBound(path+".max", f.Max, out.typ)
	if out.min != "" && out.max != "" && out.typ.compare(out.min, out.max) > 0 {
		c.faultf(path+".max", f.Max, "is below min")
	}
}

func (c *compiler) compileBound(path, text string, typ fieldType) string {
	switch {
	case text == "":
		return ""
	case typ.bound == nil:
		c.faultf(path, text, "fits integer, decimal, money, date and timestamp only")
		return ""
	}
	bound, err := typ.bound(text)
	if err != nil {
		c.faultf(path, text, "%s", err.(*Error).Reason)
	}
	return bound
}

// compileDefault converts the default once. It is the value itself: map,
// pattern, enum and bounds are for what pages say.
func (c *compiler) compileDefault(path string, f *Field, out *field) {
	if f.Default == nil {
		return
	}
	path += ".default"
	value := fmt.Sprint(f.Default)
	if f.Required {
		c.faultf(path, value, "a required field has no use for it")
		return
	}
	plain, err := plainJSON(f.Default)
	if err != nil {
		c.fault(path, value, err)
		return
	}
	list := []any{plain}
	if f.Many {
		var ok bool
		if list, ok = plain.([]any); !ok {
			c.faultf(path, value, "must be an array, as the field is many")
			return
		}
	}
	out.fallback, err = out.convertDefault(list)
	if err != nil {
		c.faultf(path, value, "%s", err.(*Error).Reason)
	}
}

func (f *field) convertDefault(list []any) (*fallback, error) {
	d := &fallback{}
	absolute := *f
	absolute.ownURL = false
	nowhere := &scope{page: &page{base: &url.URL{}}} // so that a default link is absolute
	for i, v := range list {
		t, err := f.typ.read(match{value: v, json: true})
		if err != nil {
			return nil, err
		}
		if d.text, err = f.typ.convert(&absolute, nowhere, t); err != nil {
			return nil, err
		}
		if i > 0 {
			d.json = append(d.json, ',')
		}
		d.json = f.typ.encode(d.json, f, d.text)
	}
	if f.many {
		d.json = append(append([]byte{'['}, d.json...), ']')
	}
	return d, nil
}
