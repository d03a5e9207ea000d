package config

import (
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"semel/engine/intake"
	"semel/parser"
)

const (
	// maxSticky is the longest time that an exit can be counted on: PacketStream
	// keeps one for up to 60 minutes.
	maxSticky = time.Hour
	// defaultSticky is ten times the default timeout of an attempt, and what
	// Oxylabs keeps an exit for unless it is asked for more.
	defaultSticky = 10 * time.Minute
)

// methods are the requests that a step can be.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
}

// workflow reports whether the source has steps of its own.
func (s *Source) workflow() bool { return s.Sticky > 0 }

// RowVars are the variables that a target must bring, by name: those that the
// source's templates use and no step captures.
func (s *Source) RowVars() []string {
	names := slices.Concat(s.URL.Vars(), s.Key.Vars(), s.Country.Vars(), s.Scope.Vars())
	if s.URL.IsZero() {
		names = append(names, "url")
	}
	var captured []string
	for _, step := range s.Steps {
		for _, name := range slices.Concat(step.URL.Vars(), step.Body.Vars()) {
			if !slices.Contains(captured, name) {
				names = append(names, name)
			}
		}
		captured = append(captured, step.Captured...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// steps reads what a source sends: the steps of a workflow, or the one request
// of a source with a url.
func (l *loader) steps(t *table, s *Source, vars variables) {
	steps := t.each("step", "step")
	if len(steps) == 0 {
		step := Step{URL: s.URL}
		t.request(&step, vars)
		s.Steps = []Step{step}
		if n := t.get("sticky"); n != nil && n.scalar != "" {
			l.fault(n, "needs steps: a single request keeps no exit")
		}
		return
	}
	t.sticky(s)
	for _, name := range []string{"url", "method", "form", "json", "repeatable"} {
		if n := t.get(name); n != nil {
			l.fault(n, "belongs in the steps: a workflow has it there")
		}
	}
	for _, step := range steps {
		s.Steps = append(s.Steps, step.step(s.Steps, &vars))
	}
	s.URL = s.Steps[0].URL
}

// sticky reads how long a workflow's exit is wanted, which its proxies must be
// able to keep it for.
func (t *table) sticky(s *Source) {
	s.Sticky = defaultSticky
	n := t.get("sticky")
	if n == nil || n.scalar == "" || !t.duration("sticky", &s.Sticky, time.Second) {
		return
	}
	if s.Sticky > maxSticky {
		t.l.wrong(n, "must be at most 60m")
		return
	}
	for _, p := range s.Proxies {
		if p.Proxy != nil {
			t.l.keep(n, s.Sticky, p.Proxy)
		}
	}
}

// step reads one step of a workflow. What it captures is added to the
// variables.
func (t *table) step(before []Step, vars *variables) Step {
	var s Step
	t.stepName(&s, before)
	t.template("url", &s.URL)
	if t.get("url") == nil {
		t.l.fault(t.node, "url is missing")
	}
	t.request(&s, *vars)
	t.headers(&s.Headers)
	if len(before) > 0 { // the first one's URL is the targets', and checked with them
		t.l.checkVars(t.get("url"), s.URL.Vars(), *vars, true)
		if t.get("url") != nil {
			t.l.checkURLText(t.get("url"), s.URL)
		}
	}
	known := len(vars.names)
	s.Captures = t.captures(vars)
	s.Captured = vars.names[known:]
	if t.get("capture") != nil && s.Method == http.MethodHead {
		t.l.fault(t.get("capture"), "has nothing to read: HEAD brings no page")
	}
	t.done()
	return s
}

// stepName reads the name of a step, under which rules, records of attempts and
// marks in the store know it.
func (t *table) stepName(s *Step, before []Step) {
	n := t.get("name")
	switch {
	case n == nil:
		t.l.fault(t.node, "name is missing")
	case !t.filled("name", &s.Name):
	case !nameText.MatchString(s.Name):
		t.l.wrong(n, "a name may hold a-z, 0-9, _ and - only")
	case slices.ContainsFunc(before, func(b Step) bool { return b.Name == s.Name }):
		t.l.wrong(n, "another step has this name")
	}
}

// request reads how a request differs from a plain GET.
func (t *table) request(s *Step, vars variables) {
	s.Method = http.MethodGet
	t.oneOf("method", &s.Method, methods...)
	safe := s.Method == http.MethodGet || s.Method == http.MethodHead
	s.Repeatable = safe
	t.boolean("repeatable", &s.Repeatable)
	form, object := t.get("form"), t.get("json")
	for _, n := range []*node{form, object} {
		switch {
		case n == nil:
		case !n.table:
			t.l.wrong(n, "must be a table")
		case len(n.members) == 0: // off
		case t.faulty("method"): // whether it may have a body is not known
		case safe:
			t.l.fault(n, "has no place in a %s request: set method, such as %q", s.Method, http.MethodPost)
		case n == object && !s.Body.IsZero():
			t.l.fault(n, "excludes form: a request has one body")
		case n == form:
			s.Body = t.l.form(n, vars)
		default:
			s.Body = intake.NewBody(intake.JSONBody)
			t.l.json(n, vars, &s.Body)
		}
	}
}

// form reads the fields of a form, in the file's order; a list gives a field
// more than once.
func (l *loader) form(n *node, vars variables) intake.Body {
	body := intake.NewBody(intake.FormBody)
	separator := ""
	for _, m := range n.members {
		values := m.items
		if values == nil {
			values = []*node{m}
		}
		for _, value := range values {
			body.AddText(separator + url.QueryEscape(m.name) + "=")
			l.bodyText(value, vars, &body)
			separator = "&"
		}
	}
	return body
}

// json reads a JSON value, in the file's order; its texts may have variables.
func (l *loader) json(n *node, vars variables, to *intake.Body) {
	switch {
	case n.table:
		to.AddText("{")
		for i, m := range n.members {
			if i > 0 {
				to.AddText(",")
			}
			name, _ := json.Marshal(m.name) // a string always has a form
			to.AddText(string(name) + ":")
			l.json(m, vars, to)
		}
		to.AddText("}")
	case n.items != nil:
		to.AddText("[")
		for i, item := range n.items {
			if i > 0 {
				to.AddText(",")
			}
			l.json(item, vars, to)
		}
		to.AddText("]")
	default:
		l.jsonScalar(n, vars, to)
	}
}

func (l *loader) jsonScalar(n *node, vars variables, to *intake.Body) {
	switch v := n.scalar.(type) {
	case int64:
		to.AddText(strconv.FormatInt(v, 10))
	case bool:
		to.AddText(strconv.FormatBool(v))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			l.wrong(n, "is a number that JSON does not have")
			return
		}
		to.AddText(strconv.FormatFloat(v, 'g', -1, 64))
	default:
		l.bodyText(n, vars, to)
	}
}

// bodyText reads a text with variables, a reference to a secret, or what has one
// text only.
func (l *loader) bodyText(n *node, vars variables, to *intake.Body) {
	text, ok := l.oneText(n)
	if !ok {
		return
	}
	if isReference(text) {
		var secret Secret
		l.resolve(n, text, &secret)
		to.AddSecret(secret.Reveal)
		return
	}
	t, err := intake.ParseTemplate(text)
	if err != nil {
		l.wrong(n, "%v", err)
		return
	}
	l.checkVars(n, t.Vars(), vars, true)
	to.AddValue(t)
}

// captures reads what a step takes from its page for later ones.
func (t *table) captures(vars *variables) *parser.Rules {
	captures := t.sub("capture", "captures")
	spec := parser.Spec{Version: 1}
	for _, c := range captures.tables("capture") {
		f := c.capture()
		if slices.Contains(vars.names, f.Name) {
			t.l.fault(c.node, "there is a variable of this name already")
			continue
		}
		spec.Fields = append(spec.Fields, f)
	}
	vars.steps, vars.none = true, false
	for _, f := range spec.Fields {
		vars.names = append(slices.Clip(vars.names), f.Name)
	}
	if len(spec.Fields) == 0 {
		return nil
	}
	place := func(path string) string { return "capture." + strings.TrimPrefix(path, "fields.") }
	return t.l.compile(t.node, place, spec)
}

// capture reads one variable: a field that has one text.
func (t *table) capture() parser.Field {
	f := parser.Field{Name: t.node.name}
	t.rule(&f.Rule)
	t.filled("attr", &f.Attr)
	t.boolean("first", &f.First)
	t.boolean("last", &f.Last)
	t.text("join", &f.Join)
	t.oneOf("type", &f.Type, "text", "url")
	t.boolean("required", &f.Required)
	t.filled("pattern", &f.Pattern)
	if n := t.get("default"); n != nil {
		var text string
		if t.l.text(n, &text) {
			f.Default = text
		}
	}
	t.done()
	return f
}

// checkRuleSteps wants each field's step to be there.
func (l *loader) checkRuleSteps(t *table, spec parser.Spec, s *Source) {
	var names []string
	for _, step := range s.Steps {
		if step.Name != "" {
			names = append(names, step.Name)
		}
	}
	for _, f := range spec.Fields {
		if f.Step == "" {
			continue
		}
		at := t.node.member("fields").member(f.Name).member("step")
		switch {
		case !s.workflow():
			l.fault(at, "the source has no steps")
		case len(names) > 0: // else each step is at fault already
			l.among(at, f.Step, names)
		}
	}
}

// checkRead wants a page of each step that the parser reads.
func (l *loader) checkRead(t *table, s *Source) {
	if s.Rules == nil {
		return // at fault already
	}
	read := s.Rules.Steps()
	for i, step := range s.Steps {
		if step.Method != http.MethodHead || i < len(s.Steps)-1 && !slices.Contains(read, step.Name) {
			continue
		}
		at := t.get("method")
		if s.workflow() {
			at = t.get("step").items[i].member("method")
		}
		l.fault(at, "HEAD brings no page, and the parser reads this one")
	}
}

// checkKey refuses targets that would be one job for the lack of a key, though
// they send different things.
func (l *loader) checkKey(t *table, s *Source, vars variables) {
	if !s.Key.IsZero() || !s.manyTargets() {
		return
	}
	for _, step := range s.Steps {
		for _, name := range slices.Concat(step.URL.Vars(), step.Body.Vars()) {
			inURL := slices.Contains(s.URL.Vars(), name) || s.URL.IsZero() && name == "url"
			if slices.Contains(vars.names, name) && !inURL {
				l.fault(t.node, "key is missing: the url does not hold {%s}, and targets that differ in nothing else would be one job", name)
				return
			}
		}
	}
}
