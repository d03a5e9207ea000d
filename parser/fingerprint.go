package parser

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// fingerprint hashes a Spec in a canonical form: settings that are off are
// left out, so that rules keep their fingerprint when a later version of Semel
// knows more settings, and a default counts as if it were written.
func fingerprint(spec *Spec) string {
	fields := make([]any, len(spec.Fields))
	for i := range spec.Fields {
		fields[i] = canonicalField(&spec.Fields[i])
	}
	form := map[string]any{"fields": fields}
	if spec.Rows != nil {
		form["rows"] = canonicalRule(spec.Rows)
	}
	setText(form, "key", spec.Key)
	setText(form, "empty", cmp.Or(spec.Empty, "fail"))
	if spec.RowsBad != "fail" {
		setText(form, "rows_bad", spec.RowsBad)
	}
	sum := sha256.Sum256(mustJSON(form))
	return hex.EncodeToString(sum[:])
}

// parts fingerprints each part of a Spec that fingerprint takes in, by its key
// in the config.
func parts(spec *Spec) map[string]string {
	forms := map[string]any{"empty": cmp.Or(spec.Empty, "fail")}
	if spec.Rows != nil {
		forms["rows"] = canonicalRule(spec.Rows)
	}
	setText(forms, "key", spec.Key)
	if spec.RowsBad != "fail" {
		setText(forms, "rows_bad", spec.RowsBad)
	}
	for i := range spec.Fields {
		forms["fields."+spec.Fields[i].Name] = canonicalField(&spec.Fields[i])
	}
	prints := make(map[string]string, len(forms))
	for name, form := range forms {
		sum := sha256.Sum256(mustJSON(form))
		prints[name] = hex.EncodeToString(sum[:8])
	}
	return prints
}

func canonicalRule(r *Rule) map[string]any {
	form := map[string]any{}
	setText(form, "css", r.CSS)
	setText(form, "xpath", r.XPath)
	setText(form, "json", r.JSON)
	setText(form, "jsonld", r.JSONLD)
	setText(form, "microdata", r.Microdata)
	setText(form, "schema", schemaType(r.Schema))
	setText(form, "table", headerText(r.Table))
	setText(form, "meta", strings.TrimSpace(r.Meta))
	setText(form, "regex", r.Regex)
	setText(form, "var", r.Var)
	if r.Const != nil {
		form["const"] = r.Const
	}
	return form
}

func canonicalField(f *Field) map[string]any {
	form := canonicalRule(&f.Rule)
	setText(form, "name", f.Name)
	setText(form, "attr", f.Attr)
	setText(form, "type", cmp.Or(f.Type, "text"))
	setText(form, "pattern", f.Pattern)
	setText(form, "min", f.Min)
	setText(form, "max", f.Max)
	setText(form, "step", f.Step)
	setText(form, "currency", f.Currency)
	setText(form, "locale", f.Locale)
	setText(form, "pick", f.Pick)
	setText(form, "decimal", f.Decimal)
	setText(form, "layout", f.Layout)
	setText(form, "language", f.Language)
	if f.Timezone != "UTC" {
		setText(form, "timezone", f.Timezone)
	}
	if f.Many {
		form["many"] = true
	}
	if f.Last {
		form["last"] = true
	}
	setText(form, "join", f.Join)
	if f.Required {
		form["required"] = true
	}
	if f.Default != nil {
		form["default"] = f.Default
	}
	if len(f.Map) > 0 {
		form["map"] = f.Map
	}
	if len(f.Enum) > 0 {
		form["enum"] = f.Enum
	}
	return form
}

func setText(form map[string]any, key, value string) {
	if value != "" {
		form[key] = value
	}
}

// mustJSON writes values that Compile has found good.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v) // map keys come sorted
	if err != nil {
		panic(err)
	}
	return b
}
