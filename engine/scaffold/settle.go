package scaffold

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"semel/parser"
)

// settle leaves of a Spec what the page can be read by: a field that fails is
// read as text, and goes where that fails as well. It is false where the rows or
// their key are what fails.
func (p *page) settle(spec parser.Spec) (parser.Spec, []parser.Record, bool) {
	spec.Fields = slices.Clone(spec.Fields)
	for {
		records, err := read(spec, p.in)
		if err == nil {
			return spec, records, true
		}
		i := slices.IndexFunc(spec.Fields, func(f parser.Field) bool { return f.Name == faultyField(err) })
		if i < 0 {
			return spec, nil, false
		}
		if f := &spec.Fields[i]; f.Type != "" {
			*f = parser.Field{Name: f.Name, Rule: f.Rule, Attr: f.Attr, Required: f.Required}
		} else {
			spec.Fields = slices.Delete(spec.Fields, i, i+1)
		}
	}
}

func read(spec parser.Spec, in parser.Input) ([]parser.Record, error) {
	rules, err := parser.Compile(spec)
	if err != nil {
		return nil, err
	}
	out, err := rules.Parse(in)
	return out.Records, err
}

// faultyField names the field that does not compile or parse, "" for none.
func faultyField(err error) string {
	if bad, ok := errors.AsType[*parser.SpecError](err); ok {
		name, ok := strings.CutPrefix(bad.Path, "fields.")
		name, _, _ = strings.Cut(name, ".")
		if !ok {
			return ""
		}
		return name
	}
	if bad, ok := errors.AsType[*parser.Error](err); ok {
		return bad.Field
	}
	return ""
}

// filledShare of the records must have a field's value.
const filledShare = 0.5

// complete settles a Spec for good: fields of which too few records have a value
// are gone. It is false where no field is left. doubts are those of choose.
func (p *page) complete(spec parser.Spec, doubts map[string]string) (proposed, bool) {
	spec, records, ok := p.settle(spec)
	if !ok {
		return proposed{}, false
	}
	out := proposed{spec: spec, records: len(records), doubts: doubts}
	out.spec.Fields = nil
	for _, f := range spec.Fields {
		v := valueOf(f.Name, records)
		keyed := spec.Key == "{"+f.Name+"}"
		if !keyed && (v.JSON == nil || float64(v.Rows) < filledShare*float64(len(records))) {
			continue
		}
		if spec.Rows == nil {
			v.Rows = 0
		}
		out.spec.Fields, out.values = append(out.spec.Fields, f), append(out.values, v)
	}
	return out, len(out.spec.Fields) > 0
}

// valueOf is a field's value in the first record that has one, and how many do.
func valueOf(name string, records []parser.Record) Value {
	values := valuesOf(name, records)
	if len(values) == 0 {
		return Value{}
	}
	return Value{JSON: values[0], Rows: len(values)}
}

// valuesOf are a field's values in the records that have one.
func valuesOf(name string, records []parser.Record) []json.RawMessage {
	var values []json.RawMessage
	for _, r := range records {
		var data map[string]json.RawMessage
		if err := json.Unmarshal(r.Data, &data); err != nil {
			continue // the parser writes nothing else than objects
		}
		switch string(data[name]) {
		case "null", `""`, "[]":
			continue
		}
		values = append(values, data[name])
	}
	return values
}

// texts reads candidates as text: of the page, or, where spec has rows, of all rows
// that have one, each text once. Those that cannot be read have none. It is false where
// the rows or their key cannot be read.
func (p *page) texts(list []candidate, spec parser.Spec) ([][]string, bool) {
	for i, c := range list {
		spec.Fields = append(spec.Fields, parser.Field{Name: probeName(i), Rule: c.rule, Attr: c.attr})
	}
	_, records, ok := p.settle(spec)
	texts := make([][]string, len(list))
	for i, c := range list {
		texts[i] = textsOf(probeName(i), records)
		if c.saysCurrency() && len(texts[i]) > 1 {
			texts[i] = nil // a field's amounts are in one
		}
	}
	return texts, ok
}

// textsOf are the texts that a field has in records, each once.
func textsOf(name string, records []parser.Record) []string {
	var texts []string
	seen := map[string]bool{}
	for _, value := range valuesOf(name, records) {
		var text string
		if err := json.Unmarshal(value, &text); err == nil && !seen[text] {
			seen[text] = true
			texts = append(texts, text)
		}
	}
	return texts
}

// probeName is the field that the candidate at i is while it is tried.
func probeName(i int) string { return fmt.Sprintf("c%d", i) }
