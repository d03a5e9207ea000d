package scaffold

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"semel/parser"
)

const (
	maxStateDepth   = 12      // of the objects that are looked at: real state has some six
	maxStateObjects = 20_000  // the same, their number
	minStateHits    = 2       // concepts beside the title that an object must have to be what the page is about
	maxAssignments  = 20      // in one script that are looked at
	maxStateTitle   = 1 << 10 // bytes of the text that a title is looked for in
)

// sight says which objects of a page's own JSON may be what the page is about.
type sight struct {
	shown  []string // texts that hold a title which a reader sees; nil: any title will do
	hidden bool     // no reader sees one, as where a script fills the page: the object itself must tell
}

// isThing reports whether an object that has these is something that a page can
// be about.
func (in sight) isThing(paths map[string]string) bool {
	if paths[titleField] == "" || len(paths) <= minStateHits {
		return false
	}
	tells := func(name string) bool { return !slices.Contains(common, name) }
	return !in.hidden || slices.ContainsFunc(slices.Collect(maps.Keys(paths)), tells)
}

// common are fields that the site, or whoever looks at it, has as well.
var common = []string{titleField, currencyField, "sku", "image"}

// leads reports whether what stands at a key stands there on the next page, too. Where
// readers see the title it may be at any.
func (in sight) leads(key string) bool { return !in.hidden || plainKey.MatchString(key) }

func (in sight) shows(text string) bool {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	return in.shown == nil || slices.ContainsFunc(in.shown, func(shown string) bool { return strings.Contains(shown, text) })
}

// state finds values in the page's own JSON, by the field they are for: of the
// object that has most of what the vocabulary knows.
func (p *page) state(in sight) map[string][]candidate {
	var best thing
	for _, doc := range p.documents() {
		s := search{sight: in, doc: doc}
		s.look(doc.value, ".", 0)
		if len(s.best.paths) > len(best.paths) {
			best = s.best
		}
	}
	list := map[string][]candidate{}
	for _, c := range slices.Concat(vocabulary, framework) {
		if path, ok := best.paths[c.name]; ok {
			rule := best.place
			rule.JSON = path
			list[c.name] = []candidate{{name: c.name, kind: c.kind, rule: rule, written: true}}
		}
	}
	return list
}

// document is a JSON value of the page, and where it stands.
type document struct {
	place parser.Rule // lacks its JSON
	value any
}

// thing is an object that may be what the page is about.
type thing struct {
	place parser.Rule
	paths map[string]string // by field, as jq expressions
}

// search looks for the best thing in one document.
type search struct {
	sight
	doc     document
	objects int
	best    thing
}

// look goes through objects, not lists: what stands at a place in a list stands
// elsewhere on the next page.
func (s *search) look(v any, path string, depth int) {
	object, ok := v.(map[string]any)
	if s.objects++; !ok || depth > maxStateDepth || s.objects > maxStateObjects {
		return
	}
	if paths := conceptPaths(path, object, s.shows); s.isThing(paths) && len(paths) > len(s.best.paths) {
		s.best = thing{s.doc.place, paths}
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if s.leads(key) {
			s.look(object[key], join(path, key), depth+1)
		}
	}
}

// conceptPaths are where an object has what the vocabulary knows, by field, as
// jq expressions. Its title is one that isTitle says is one.
func conceptPaths(path string, object map[string]any, isTitle func(text string) bool) map[string]string {
	paths := map[string]string{}
	for _, c := range slices.Concat(vocabulary, framework) {
		for _, key := range c.keys {
			if text, ok := scalar(object, key); ok && (c.name != titleField || isTitle(text)) {
				paths[c.name] = join(path, strings.Split(key, ".")...)
				break
			}
		}
	}
	return paths
}

// scalar is the text of a single value in an object, at a path of keys.
func scalar(object map[string]any, path string) (string, bool) {
	key, rest, deeper := strings.Cut(path, ".")
	switch v := object[key].(type) {
	case map[string]any:
		if deeper {
			return scalar(v, rest)
		}
	case string:
		return v, !deeper && strings.TrimSpace(v) != ""
	case json.Number:
		return v.String(), !deeper
	case bool:
		return "", !deeper
	}
	return "", false
}

// plainKey is a key that jq takes without quotes.
var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// join adds keys to a jq path.
func join(path string, keys ...string) string {
	for _, key := range keys {
		if !plainKey.MatchString(key) {
			quoted, err := json.Marshal(key)
			if err != nil {
				continue // of a string there is no error
			}
			key = string(quoted)
		}
		path = strings.TrimSuffix(path, ".") + "." + key
	}
	return path
}

// shownTitles are the texts in which a reader of the page sees its title, nil
// for a page of JSON alone.
func (p *page) shownTitles() []string {
	if p.root == nil {
		return nil
	}
	shown := []string{}
	for n := range elements(p.root) {
		if n.Data == "title" || n.Data == "h1" || n.Data == "h2" {
			shown = append(shown, strings.ToLower(textOf(n, maxStateTitle)))
		}
	}
	return shown
}

// documents are the JSON values of the page: itself, those of scripts, and those
// that scripts assign.
func (p *page) documents() []document {
	if p.root == nil {
		if v, ok := decode(string(p.in.Body)); ok {
			return []document{{value: v}}
		}
		return nil
	}
	var list []document
	for n := range elements(p.root) {
		if n.Data != "script" || n.FirstChild == nil {
			continue
		}
		kind, id := strings.ToLower(attr(n, "type")), attr(n, "id")
		switch v, ok := decode(n.FirstChild.Data); {
		case strings.Contains(kind, "ld+json"):
		case ok && identifier.MatchString(id):
			list = append(list, document{parser.Rule{CSS: "script#" + id}, v})
		case !ok:
			list = append(list, assigned(n)...)
		}
	}
	return list
}

// decode reads the JSON value that a text begins with.
func decode(text string) (any, bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err == nil
}

// assignment finds where a script gives an object a name. What it matches ends
// before the object.
var assignment = regexp.MustCompile(`(?:(?:window|self|globalThis)\.|(?:var|let|const) +)[A-Za-z_$][A-Za-z0-9_$.]* *= *\{`)

// assigned are the objects that a script gives a name.
func assigned(script *html.Node) []document {
	var list []document
	text := script.FirstChild.Data
	for _, at := range assignment.FindAllStringIndex(text, maxAssignments) {
		v, ok := decode(text[at[1]-1:])
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(text[at[0]:at[1]], "=")
		list = append(list, document{parser.Rule{Regex: regexp.QuoteMeta(strings.TrimSpace(name)) + `\s*=\s*`}, v})
	}
	return list
}
