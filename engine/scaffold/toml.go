package scaffold

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"semel/parser"
)

// maxShown is how many letters of a value a comment has.
const maxShown = 60

// TOML is the text of the config. engine are settings of [engine] that the page
// was fetched with, as lines of TOML.
func (o *Proposal) TOML(engine ...string) string {
	var b strings.Builder
	b.WriteString("# Proposed from one page. What stands behind a field is what this page gave:\n")
	b.WriteString("# semel check and semel try " + o.Source + " show it; semel run --once collects it.\n")
	b.WriteString("version = 1\n\n")
	if len(engine) > 0 {
		fmt.Fprintf(&b, "[engine]\n%s\n\n", strings.Join(engine, "\n"))
	}
	fmt.Fprintf(&b, "[source.%s]\ntargets = [%s]     # more of them here; or a file, such as \"urls.txt\"; or \"sitemap:URL\"\n", o.Source, quote(o.URL))
	o.writeTemplate(&b)
	b.WriteString(hints)
	fmt.Fprintf(&b, "[source.%s.parser]\nversion = 1     # raise it when the rules change\n", o.Source)
	if o.Spec.Rows != nil {
		fmt.Fprintf(&b, "rows    = { %s }     # one record of each\n", strings.Join(ruleSettings(*o.Spec.Rows), ", "))
		fmt.Fprintf(&b, "key     = %s     # what tells one row from another\n", quote(o.Spec.Key))
	}
	fmt.Fprintf(&b, "\n[source.%s.parser.fields]\n", o.Source)
	o.writeFields(&b)
	if o.Next != "" {
		fmt.Fprintf(&b, "\n# [[source.%s.follow]]\n# css = %s     # the list's next page becomes a job, and so on\n", o.Source, quote(o.Next))
	}
	b.WriteString(sections)
	return b.String()
}

// writeTemplate says how targets are given by their ids.
func (o *Proposal) writeTemplate(b *strings.Builder) {
	template, id := numbered(o.URL)
	if template == "" || o.Spec.Rows != nil {
		return
	}
	fmt.Fprintf(b, "# or in its place, for targets by id:\n# url     = %s\n# targets = [{ id = %s }]     # or a file, such as \"ids.csv\"\n# key     = \"{id}\"\n",
		quote(template), quote(id))
}

// hints are settings of a source that most people come to want.
const hints = `# schedule = "0 6 * * *"     # when to collect again, as in cron; without it each target is collected once
# timezone = "UTC"           # that the schedule is in
# proxy    = "home"          # of [proxy.home] below; without it requests go directly
# sinks    = ["alerts"]      # of [sink.alerts] below

`

// sections are what the hints refer to.
const sections = `
# [proxy.home]
# url      = "http://gateway.example:8080"
# username = "env:PROXY_USER"     # the name of an environment variable, never the login itself
# password = "env:PROXY_PASSWORD"

# [sink.alerts]
# type = "file"
# path = "events.jsonl"
`

func (o *Proposal) writeFields(b *strings.Builder) {
	names := make([]string, len(o.Spec.Fields))
	width := 0
	for i, f := range o.Spec.Fields {
		names[i] = bareOrQuoted(f.Name)
		width = max(width, utf8.RuneCountInString(names[i]))
	}
	for i, f := range o.Spec.Fields {
		fmt.Fprintf(b, "%s%s = { %s }", names[i], strings.Repeat(" ", width-utf8.RuneCountInString(names[i])), strings.Join(fieldSettings(f), ", "))
		if v := o.Values[i]; v.JSON != nil {
			fmt.Fprintf(b, "     # %s", shown(v.JSON))
		}
		switch doubt := o.doubts[f.Name]; {
		case doubt != "":
			b.WriteString("; " + doubt)
		case f.Type == "" && f.Name == priceField:
			b.WriteString(`, which type = "money" reads if you add its currency`)
		}
		b.WriteByte('\n')
	}
}

// bareKey is a key of TOML that needs no quotes.
var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// bareOrQuoted is a key of TOML.
func bareOrQuoted(name string) string {
	if bareKey.MatchString(name) {
		return name
	}
	return quote(name)
}

// ruleSettings are the settings of a rule that this package makes use of, as
// "css = …".
func ruleSettings(r parser.Rule) []string {
	return textSettings([]setting{
		{"css", r.CSS}, {"regex", r.Regex}, {"json", r.JSON}, {"jsonld", r.JSONLD}, {"microdata", r.Microdata},
		{"schema", r.Schema}, {"table", r.Table}, {"meta", r.Meta},
	})
}

// fieldSettings are the same of a field.
func fieldSettings(f parser.Field) []string {
	settings := slices.Concat(ruleSettings(f.Rule), textSettings([]setting{
		{"attr", f.Attr}, {"type", f.Type}, {"currency", f.Currency}, {"locale", f.Locale}, {"decimal", f.Decimal},
		{"layout", f.Layout}, {"language", f.Language}, {"timezone", f.Timezone},
	}))
	if f.Required {
		settings = append(settings, "required = true")
	}
	return settings
}

// setting is a key with its text, "" where it is not set.
type setting struct{ key, text string }

func textSettings(list []setting) []string {
	var settings []string
	for _, s := range list {
		if s.text != "" {
			settings = append(settings, s.key+" = "+quote(s.text))
		}
	}
	return settings
}

// quote writes a text as TOML: as it stands between single quotes where that is
// easier to read, else with escapes.
func quote(text string) string {
	if strings.ContainsAny(text, `"\`) && !strings.ContainsFunc(text, func(r rune) bool { return r == '\'' || !unicode.IsPrint(r) }) {
		return "'" + text + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// shown is a value in a comment: cut, on one line, and with escapes for what a
// terminal or an editor would obey.
func shown(value json.RawMessage) string {
	var text string
	if err := json.Unmarshal(value, &text); err != nil { // a number, or an object of money
		return cut(string(value))
	}
	return strconv.Quote(cut(text))
}

func cut(text string) string {
	if runes := []rune(text); len(runes) > maxShown {
		return string(runes[:maxShown]) + "…"
	}
	return text
}
