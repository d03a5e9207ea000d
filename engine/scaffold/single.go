package scaffold

import (
	"regexp"
	"slices"
	"strings"

	"semel/parser"
)

// about is what a page says that it is about.
type about struct {
	jsonld    string // type of schema.org of its JSON-LD, "": none of those that are known
	microdata string // the same of its microdata
	item      bool   // it is about one thing
}

// single proposes the fields of a page that is one record.
func (p *page) single(in sight) proposed {
	about := p.about()
	list := p.candidates(about, in)
	texts, _ := p.texts(list, parser.Spec{})
	fields, doubts := p.choose(list, texts)
	out, _ := p.complete(parser.Spec{Version: 1, Fields: fields}, doubts)
	out.item = about.item
	return out
}

// about finds out what the page is about.
func (p *page) about() about {
	types := slices.Concat(itemTypes, pageTypes)
	list := []candidate{{rule: parser.Rule{Meta: "og:type"}}}
	for _, t := range types {
		list = append(list, candidate{rule: parser.Rule{JSONLD: "@type", Schema: t}})
	}
	texts, _ := p.texts(list, parser.Spec{})
	var a about
	counts := p.jsonldCounts()
	for i, t := range types {
		if len(texts[i+1]) > 0 && counts[t] < minRows {
			a.jsonld = t
			break
		}
	}
	a.microdata = p.microdataType(types)
	a.item = slices.Contains(itemTypes, a.jsonld) || slices.Contains(itemTypes, a.microdata) || slices.ContainsFunc(texts[0], isItem)
	return a
}

// isItem reports whether an og:type is that of a page about one thing.
func isItem(ogType string) bool {
	kind, _, _ := strings.Cut(strings.ToLower(ogType), ".")
	return slices.Contains([]string{"article", "product", "video", "book", "music", "profile", "event", "recipe"}, kind)
}

// microdataType is the type of the page's microdata, "" where there is none of
// types, or so many items that the page is a listing of them.
func (p *page) microdataType(types []string) string {
	counts := map[string]int{}
	for n := range elements(p.root) {
		counts[typeOf(attr(n, "itemtype"))]++
	}
	for _, t := range types {
		if n := counts[t]; n > 0 && n < minRows {
			return t
		}
	}
	return ""
}

// typeOf is the first of the types in an itemtype, without the address of its
// vocabulary.
func typeOf(itemtype string) string {
	for word := range strings.FieldsSeq(itemtype) {
		return word[strings.LastIndexByte(word, '/')+1:]
	}
	return ""
}

// candidates are the places to look at, those of one field behind each other,
// the stable ones first.
func (p *page) candidates(about about, in sight) []candidate {
	state := p.state(in)
	var list []candidate
	add := func(concepts []concept) {
		for _, c := range concepts {
			list = append(list, c.structured(about)...)
			list = append(list, state[c.name]...)
			if p.root == nil {
				continue
			}
			for _, f := range c.places {
				list = append(list, candidate{name: c.name, kind: c.kind, rule: f.Rule, attr: f.Attr})
			}
			found := c.worded(p.root)
			list = slices.Concat(list, found[byID], found[byData], found[byClass])
		}
	}
	add(vocabulary)
	list = append(list, p.headed()...)
	add(framework)
	for i, c := range list {
		list[i].required = c.name == titleField && c.rule.CSS != "title" // which block pages have as well
	}
	return list
}

// structured are the places of a concept in what a page says for machines.
func (c concept) structured(about about) []candidate {
	var list []candidate
	if about.jsonld != "" {
		for _, path := range c.schema {
			list = append(list, c.written(parser.Rule{JSONLD: path, Schema: about.jsonld}))
		}
	}
	if about.microdata != "" {
		list = append(list, c.microdata(about.microdata)...)
	}
	for _, name := range c.meta {
		list = append(list, c.written(parser.Rule{Meta: name}))
	}
	return list
}

// microdata are the places of a concept in an item of a type.
func (c concept) microdata(schema string) []candidate {
	var list []candidate
	for _, path := range c.schema {
		list = append(list, c.written(parser.Rule{Microdata: path, Schema: schema}))
	}
	return list
}

func (c concept) written(rule parser.Rule) candidate {
	return candidate{name: c.name, kind: c.kind, rule: rule, written: true}
}

// currencyCode is the form of a currency's code.
var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

// choose makes fields of the best candidate of each name, and tells of those that are
// left as text since they can be read in two ways.
func (p *page) choose(list []candidate, texts [][]string) (fields []parser.Field, doubts map[string]string) {
	r := reading{lang: p.lang}
	for i, c := range list {
		if c.saysCurrency() && r.currency == "" && len(texts[i]) > 0 && currencyCode.MatchString(texts[i][0]) {
			r.currency = texts[i][0]
		}
	}
	doubts = map[string]string{}
	for len(list) > 0 && len(fields) < maxFields {
		n := 1
		for n < len(list) && list[n].name == list[0].name {
			n++
		}
		if f, doubt, ok := r.best(list[:n], texts[:n]); ok && !list[0].saysCurrency() {
			fields, doubts[f.Name] = append(fields, f), doubt
		}
		list, texts = list[n:], texts[n:]
	}
	return fields, doubts
}

// best makes a field of the first candidate that can be read as its kind, else
// of the first in structured data, or that is an amount of who knows what. It is
// false where there is none. doubt is that of fit.
func (r reading) best(list []candidate, texts [][]string) (f parser.Field, doubt string, ok bool) {
	for i, c := range list {
		r.written = c.written
		if len(texts[i]) == 0 {
			continue
		}
		if f, doubt, ok = r.fit(c.kind, texts[i]); ok {
			return c.field(f), doubt, true
		}
	}
	for i, c := range list {
		if len(texts[i]) == 0 {
			continue
		}
		priced := c.kind == amount && (looksMoney.MatchString(texts[i][0]) || looksNumber.MatchString(texts[i][0]))
		if c.written && c.kind != link || priced {
			r.written = c.written
			f, doubt = r.loosely(c.kind, texts[i])
			return c.field(f), doubt, true
		}
	}
	return parser.Field{}, "", false
}

// field completes a way to read with where the value stands.
func (c candidate) field(f parser.Field) parser.Field {
	f.Name, f.Rule, f.Attr, f.Required = c.name, c.rule, c.attr, c.required
	return f
}
