package config

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"semel/engine/intake"
	"semel/parser"
)

// parser reads a source's parser and compiles it.
func (l *loader) parser(source *table, s *Source, vars variables) {
	t := source.sub("parser", "parser")
	spec := parser.Spec{Version: 1}
	t.integer("version", &spec.Version, 1, 1_000_000)
	rows := t.sub("rows", "rows")
	if rows.node != nil {
		spec.Rows = &parser.Rule{}
		rows.rule(spec.Rows)
	} else {
		rows.rule(&parser.Rule{})
	}
	rows.done()
	t.filled("key", &spec.Key)
	t.oneOf("empty", &spec.Empty, "fail", "accept")
	t.oneOf("rows_bad", &spec.RowsBad, "fail", "quarantine")
	fields := t.sub("fields", "fields")
	for _, f := range fields.tables("field") {
		spec.Fields = append(spec.Fields, f.field())
	}
	t.done()
	spec.Links = source.follows(s, vars)
	s.ParserVersion = spec.Version
	l.checkRuleVars(t, spec, vars)
	l.checkRuleSteps(t, spec, s)
	s.Rules = l.compile(source.node, func(path string) string { return "parser." + path }, spec)
}

// tables opens all tables in a table.
func (t *table) tables(kind string) []*table {
	if t.node == nil {
		t.l.open(nil, kind)
		return nil
	}
	var tables []*table
	for _, m := range t.node.members {
		if opened := t.l.open(m, kind); opened.node != nil {
			tables = append(tables, opened)
		}
	}
	return tables
}

// rule reads where a value stands.
func (t *table) rule(r *parser.Rule) {
	t.filled("css", &r.CSS)
	t.filled("xpath", &r.XPath)
	t.filled("json", &r.JSON)
	t.filled("jsonld", &r.JSONLD)
	t.filled("microdata", &r.Microdata)
	t.filled("schema", &r.Schema)
	t.filled("table", &r.Table)
	t.filled("meta", &r.Meta)
	t.filled("regex", &r.Regex)
	t.filled("var", &r.Var)
	if n := t.get("const"); n != nil {
		r.Const = t.l.plain(n)
	}
}

// field reads one field.
func (t *table) field() parser.Field {
	f := parser.Field{Name: t.node.name}
	t.rule(&f.Rule)
	t.filled("attr", &f.Attr)
	t.boolean("first", &f.First)
	t.boolean("last", &f.Last)
	t.boolean("many", &f.Many)
	t.text("join", &f.Join)
	t.oneOf("type", &f.Type, parser.Types...)
	t.boolean("required", &f.Required)
	if n := t.get("default"); n != nil {
		f.Default = t.l.plainOrList(n)
	}
	t.mapping("map", &f.Map)
	t.filled("pattern", &f.Pattern)
	t.bound("min", &f.Min)
	t.bound("max", &f.Max)
	t.texts("enum", &f.Enum)
	t.text("step", &f.Step)
	t.filled("currency", &f.Currency)
	t.filled("locale", &f.Locale)
	t.oneOf("pick", &f.Pick, "min", "max")
	t.filled("decimal", &f.Decimal)
	t.filled("layout", &f.Layout)
	t.filled("language", &f.Language)
	t.filled("timezone", &f.Timezone)
	t.done()
	return f
}

// plain reads a value that JSON has too; nil where it is none.
func (l *loader) plain(n *node) any {
	switch n.scalar.(type) {
	case nil, time.Time:
		l.wrong(n, "must be text, a number, true or false")
		return nil
	}
	return n.scalar
}

// plainOrList reads a plain value, or a list of them.
func (l *loader) plainOrList(n *node) any {
	if n.items == nil {
		return l.plain(n)
	}
	list := make([]any, len(n.items))
	for i, item := range n.items {
		list[i] = l.plain(item)
	}
	return list
}

// mapping reads a table of texts.
func (t *table) mapping(name string, to *map[string]string) {
	n := t.get(name)
	if n == nil {
		return
	}
	if !n.table {
		t.l.wrong(n, "must be a table of texts")
		return
	}
	*to = make(map[string]string, len(n.members))
	for _, m := range n.members {
		var text string
		t.l.text(m, &text)
		(*to)[m.name] = text
	}
}

// bound reads a bound as exact text; numbers may stand without quotes.
func (t *table) bound(name string, to *string) {
	n := t.get(name)
	if n == nil {
		return
	}
	switch v := n.scalar.(type) {
	case string:
		*to = v
	case int64:
		*to = strconv.FormatInt(v, 10)
	case float64:
		*to = strconv.FormatFloat(v, 'f', -1, 64)
	default:
		t.l.wrong(n, "must be a number, or text in quotes")
	}
}

// pageVars are variables that rules have beside the target's.
var pageVars = []string{"url", "final_url", "country", "window"}

// checkRuleVars finds variables in rules that neither a target nor a field has.
func (l *loader) checkRuleVars(t *table, spec parser.Spec, vars variables) {
	if !vars.all {
		return
	}
	known := slices.Concat(vars.names, pageVars)
	for _, f := range spec.Fields {
		if f.Var != "" && !slices.Contains(known, f.Var) {
			l.fault(t.node.member("fields").member(f.Name).member("var"), "the targets have no variable %q", f.Var).Hint = nearest(f.Var, known)
		}
		known = append(known, f.Name)
	}
	key, err := intake.ParseTemplate(spec.Key)
	if err != nil {
		return // Compile tells
	}
	for _, name := range key.Vars() {
		if !slices.Contains(known, name) {
			l.fault(t.node.member("key"), "there is no field and no variable %q", name).Hint = nearest(name, known)
		}
	}
}

// compile makes rules, nil where they are at fault. What the parser finds is
// told at the key below top that place makes of the one it names, unless the
// loader found something wrong there already.
func (l *loader) compile(top *node, place func(string) string, spec parser.Spec) *parser.Rules {
	rules, err := parser.Compile(spec)
	touched := map[string]bool{}
	for _, e := range l.errs {
		touched[fieldOf(e.Key)] = true
	}
	for _, fault := range faults(err) {
		bad, ok := errors.AsType[*parser.SpecError](fault)
		if !ok {
			l.fault(top, "%v", fault)
			continue
		}
		at, key := top.find(place(bad.Path))
		if touched[fieldOf(key)] {
			continue
		}
		e := l.fault(at, "%v", bad.Err)
		e.Key = key
		if bad.Value != "" {
			e.Value = strconv.Quote(bad.Value)
		}
	}
	return rules
}

// fieldOf cuts a key within a field or a capture down to that, since one fault
// of it often is the cause of another.
func fieldOf(key string) string {
	for _, table := range []string{".parser.fields.", ".capture."} {
		if before, after, ok := strings.Cut(key, table); ok {
			name, _, _ := strings.Cut(after, ".")
			return before + table + name
		}
	}
	return key
}
