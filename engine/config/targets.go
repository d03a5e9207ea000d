package config

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"semel/engine/intake"
)

// variables are what is known of a source's targets while the config loads.
type variables struct {
	names []string
	some  bool // names is what a target must have: a template's other variables are unknown
	all   bool // names is all that any target has
	none  bool // the config names no targets, so there is one without variables
	steps bool // names also has what earlier steps of a workflow capture
}

// targets reads where a source's targets come from.
func (l *loader) targets(t *table, s *Source) variables {
	n := t.get("targets")
	switch {
	case n == nil:
		s.Targets.Targets = []intake.Target{{File: l.file, Line: t.node.line}}
		return variables{some: true, all: true, none: true}
	case n.items != nil:
		return l.targetList(n, s)
	}
	var text string
	if !l.text(n, &text) {
		return variables{}
	}
	if url, ok := strings.CutPrefix(text, "sitemap:"); ok {
		return l.sitemap(n, url, s)
	}
	if stream, ok := strings.CutPrefix(text, "nats:"); ok {
		l.queue(t, stream, s)
		return variables{}
	}
	kind, ok := intake.KindOf(text)
	if !ok {
		l.wrong(n, "must be a file that ends in .csv, .jsonl or .txt, sitemap:URL, nats:STREAM, or a list")
		return variables{}
	}
	s.Targets = intake.Spec{Kind: kind, Path: l.path(text)}
	return l.targetFile(n, s)
}

// sitemap reads the address of a sitemap. It is not shown, since it may hold a
// login.
func (l *loader) sitemap(n *node, url string, s *Source) variables {
	if err := intake.CheckURL(url); err != nil {
		l.fault(n, "sitemap: %v", err)
		return variables{}
	}
	s.Targets = intake.Spec{Kind: intake.Sitemap, Path: url}
	return variables{names: []string{"url"}, some: true, all: true}
}

// queue reads which stream a source's targets are in. Their variables are known
// when they come.
func (l *loader) queue(t *table, stream string, s *Source) {
	s.Targets = intake.Spec{Kind: intake.Queue, Path: stream}
	l.streamName(t.get("targets"), stream)
	if n := t.get("schedule"); n != nil {
		l.fault(n, "targets in a queue are collected when they come: no schedule")
	}
	if s.Windowed {
		l.fault(t.get("write"), "%q needs windows, which targets in a queue do not have", s.Write)
	}
}

// targetFile looks into a file for the variables it has. A file that is not
// there is no fault: what was collected from it can still be exported.
func (l *loader) targetFile(n *node, s *Source) variables {
	if l.getenv == nil {
		return variables{} // who only looks at a store needs no targets
	}
	reader, err := intake.Open(s.Targets)
	if err != nil {
		if _, missing := errors.AsType[*fs.PathError](err); missing {
			s.TargetsErr = err
		} else {
			l.fault(n, "%v", err)
		}
		return variables{}
	}
	defer reader.Close() //nolint:errcheck // nothing was written
	if names := reader.Vars(); names != nil {
		return variables{names: names, some: true, all: true}
	}
	first, err := reader.Next()
	if err != nil {
		if _, bad := errors.AsType[*intake.RowError](err); !bad && err != io.EOF {
			s.TargetsErr = err
		}
		return variables{}
	}
	return variables{names: varNames(nil, first.Vars), some: true}
}

// targetList reads targets that stand in the config: URLs, or tables of
// variables.
func (l *loader) targetList(n *node, s *Source) variables {
	var names []string
	for _, item := range n.items {
		target := intake.Target{File: l.file, Line: item.line}
		switch {
		case item.table != n.items[0].table:
			l.wrong(item, "must be like the first one: a list has URLs or tables, not both")
			return variables{}
		case item.table:
			target.Vars = l.targetVars(item)
		default:
			var url string
			if !l.text(item, &url) {
				return variables{}
			}
			target.Vars = intake.Vars{{Name: "url", Value: url}}
		}
		names = varNames(names, target.Vars)
		s.Targets.Targets = append(s.Targets.Targets, target)
	}
	known := len(n.items) > 0
	return variables{names: names, some: known, all: known}
}

// targetVars reads one table of variables, in the file's order.
func (l *loader) targetVars(n *node) intake.Vars {
	vars := intake.Vars{}
	for _, m := range n.members {
		text, _ := l.oneText(m)
		vars = append(vars, intake.Var{Name: m.name, Value: text})
	}
	return vars
}

// oneText reads a value that has one text only.
func (l *loader) oneText(n *node) (string, bool) {
	switch v := n.scalar.(type) {
	case string:
		return v, true
	case int64:
		return strconv.FormatInt(v, 10), true
	case bool:
		return strconv.FormatBool(v), true
	case float64, time.Time:
		l.wrong(n, "must stand in quotes: it has more than one text")
	default:
		l.wrong(n, "must be text, a whole number, true or false")
	}
	return "", false
}

// varNames adds the names of variables that are not there yet.
func varNames(names []string, vars intake.Vars) []string {
	for _, v := range vars {
		if !slices.Contains(names, v.Name) {
			names = append(names, v.Name)
		}
	}
	return names
}

// checkTemplates holds a source's templates against its targets.
func (l *loader) checkTemplates(t *table, s *Source, vars variables) {
	before := len(l.errs)
	l.checkVars(t.urlNode(), s.URL.Vars(), vars, true)
	l.checkVars(t.get("key"), s.Key.Vars(), vars, true)
	l.checkVars(t.get("country"), s.Country.Vars(), vars, false)
	l.checkVars(t.get("scope"), s.Scope.Vars(), vars, false)
	l.checkURL(t, s)
	l.checkDistinct(t, s)
	l.checkKey(t, s, vars)
	if len(l.errs) == before && !t.faulty("url", "key", "country", "scope", "targets", "step") {
		l.checkList(t, s)
	}
}

// checkList makes the jobs of targets that stand in the config, since each of
// them has a line to be told of.
func (l *loader) checkList(t *table, s *Source) {
	for i, target := range s.Targets.Targets {
		_, err := s.Job(target, time.Time{})
		bad, ok := errors.AsType[*intake.RowError](err)
		if !ok {
			continue
		}
		if n := t.get("targets"); n != nil {
			l.fault(n.items[i], "%s", bad.Reason)
		} else {
			l.fault(t.node, "%s", bad.Reason)
		}
	}
}

// checkVars finds variables that no target has. Every target must have those of
// required templates.
func (l *loader) checkVars(n *node, names []string, vars variables, required bool) {
	if n == nil || !vars.all && !(vars.some && required) {
		return
	}
	for _, name := range names {
		switch {
		case slices.Contains(vars.names, name):
		case vars.steps:
			l.fault(n, "neither the targets nor an earlier step have a variable %q", name).Hint = nearest(name, vars.names)
		case vars.none:
			l.fault(n, "variable %q has no value: say with targets where it comes from (targets = [] for jobs that are submitted or followed)", name)
		default:
			l.fault(n, "the targets have no variable %q", name).Hint = nearest(name, vars.names)
		}
	}
}

// urlNode is where the URL of a source's targets stands; nil where they bring
// it.
func (t *table) urlNode() *node {
	if steps := t.get("step"); steps != nil && len(steps.items) > 0 {
		return steps.items[0].member("url")
	}
	return t.get("url")
}

// checkURL wants a source to have a URL, and it to be one.
func (l *loader) checkURL(t *table, s *Source) {
	n := t.urlNode()
	if n == nil {
		if !s.workflow() && !bringsURLs(t.get("targets"), s) {
			l.fault(t.node, "url is missing: only a .txt file, a sitemap or a list of URLs does without")
		}
		return
	}
	l.checkURLText(n, s.URL)
}

// checkURLText holds a URL template against what can be requested.
func (l *loader) checkURLText(n *node, template intake.Template) {
	if template.IsZero() || strings.HasPrefix(template.String(), "{") && !strings.HasPrefix(template.String(), "{{") {
		return // at fault already, or a variable brings the whole URL
	}
	var sample intake.Vars
	for _, name := range template.Vars() {
		sample = append(sample, intake.Var{Name: name, Value: "1"}) // fits a host, a port and a path
	}
	raw, err := template.Expand(sample, intake.URL)
	if err == nil {
		err = intake.CheckURL(raw)
	}
	if err != nil {
		l.fault(n, "%v", err)
	}
}

// bringsURLs reports whether a source's targets are URLs. Targets that are at
// fault themselves get the benefit of the doubt.
func bringsURLs(targets *node, s *Source) bool {
	if targets == nil || targets.items == nil {
		return targets != nil && (slices.Contains([]intake.Kind{intake.TXT, intake.Sitemap, intake.Queue}, s.Targets.Kind) || s.Targets.Path == "")
	}
	return len(targets.items) == 0 || !targets.items[0].table
}

// checkDistinct refuses targets that would all be one job.
func (l *loader) checkDistinct(t *table, s *Source) {
	n, template := t.get("key"), s.Key
	if template.IsZero() {
		n, template = t.urlNode(), s.URL
	}
	if s.manyTargets() && !template.IsZero() && len(template.Vars()) == 0 {
		l.fault(n, "has no variable, so that all targets would be one job")
	}
}

func (s *Source) manyTargets() bool {
	return s.Targets.Kind != intake.Inline || len(s.Targets.Targets) > 1
}

// checkCountry holds a source's country against what its proxies can do.
func (l *loader) checkCountry(t *table, s *Source) {
	n := t.get("country")
	fixed := len(s.Country.Vars()) == 0
	country := strings.ToUpper(s.Country.String())
	if fixed && country != "" && !intake.ValidCountry(country) {
		l.wrong(n, `must be a two-letter country code such as "US", or a template`)
		return
	}
	for _, p := range s.Proxies {
		if p.Proxy == nil {
			continue // it has faults of its own
		}
		switch {
		case n == nil && p.Proxy.NeedsCountry():
			l.fault(t.get("proxy"), "proxy %s needs a country: set the source's country", p.Name)
		case !fixed && !p.Proxy.TakesCountry():
			l.fault(n, "proxy %s cannot choose a country: its templates have no {country}", p.Name)
		case fixed && country != "":
			if err := p.Proxy.CheckCountry(country); err != nil {
				l.wrong(n, "%v", err)
			}
		}
	}
}
