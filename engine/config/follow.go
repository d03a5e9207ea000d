package config

import (
	"regexp"
	"slices"
	"strings"

	"semel/engine/intake"
	"semel/parser"
)

// followed is a [[source.NAME.follow]] that still has to find its other source.
type followed struct {
	table *table
	from  string // name of the source whose pages have the links
	index int    // in its Follow
	to    string
	vars  variables // of the targets of from
}

// follows reads which links of a source's pages become jobs, and gives the
// selectors of these links.
func (t *table) follows(s *Source, vars variables) []string {
	var selectors []string
	for _, f := range t.each("follow", "follow") {
		if css, ok := f.selector(); ok {
			selectors = append(selectors, css)
		}
		to := s.Name
		f.filled("source", &to)
		rule := intake.Follow{MaxDepth: intake.DefaultMaxDepth}
		f.match(&rule)
		f.integer("max_depth", &rule.MaxDepth, 1, intake.MostDepth)
		f.followHosts(&rule)
		f.done()
		t.l.followed = append(t.l.followed, followed{f, s.Name, len(s.Follow), to, vars})
		s.Follow = append(s.Follow, rule)
	}
	return selectors
}

// selector reads which elements are links.
func (t *table) selector() (css string, ok bool) {
	if t.get("css") == nil {
		t.l.fault(t.node, "css is missing")
	}
	if !t.filled("css", &css) {
		return "", false
	}
	_, err := parser.CompileSelector(css)
	if err != nil {
		t.l.wrong(t.get("css"), "%v", err)
	}
	return css, err == nil
}

// match reads what a link must be like.
func (t *table) match(to *intake.Follow) {
	var text string
	if !t.text("match", &text) || text == "" {
		return
	}
	var err error
	if to.Match, err = regexp.Compile(text); err != nil {
		t.l.wrong(t.get("match"), "is not a regular expression: %v", err)
	}
}

// followHosts reads the names of hosts that links may lead to.
func (t *table) followHosts(to *intake.Follow) {
	if !t.texts("hosts", &to.Hosts) {
		return
	}
	for i, text := range to.Hosts {
		name, ok := hostName(text)
		if !ok {
			t.l.wrong(t.get("hosts").items[i], `is not a host name: without scheme, port and path, "*." only in front`)
		}
		to.Hosts[i] = name
	}
}

// link finds the source that each follow leads to, once all of them are read.
func (l *loader) link(sources *node, c *Config) {
	var names []string
	for i := range c.Sources {
		names = append(names, c.Sources[i].Name)
	}
	for _, f := range l.followed {
		to := c.Source(f.to)
		if to == nil {
			l.wrong(f.table.get("source"), "there is no [source.%s]", f.to).Hint = nearest(f.to, names)
			continue
		}
		rule := &c.Source(f.from).Follow[f.index]
		rule.To = &to.Source
		if to.Write == "replace" && f.to != f.from {
			l.fault(f.table.get("source"), "source %s replaces a window's rows when the run of its own targets is over, which does not wait for the links of %s", f.to, f.from)
		}
		if !f.table.faulty("match") {
			l.checkFollowVars(f, rule, to)
			l.checkGroups(f, rule, sources.member(f.to))
		}
	}
}

// checkFollowVars wants a link to bring each variable that makes the other
// source's job, and the job of each link to be another.
func (l *loader) checkFollowVars(f followed, rule *intake.Follow, to *Source) {
	own := append(rule.Groups(), "url")
	known := slices.Concat(own, f.vars.names)
	lacks := func(names []string, required bool) {
		if !f.vars.all && !(f.vars.some && required) {
			return
		}
		for _, name := range names {
			if !slices.Contains(known, name) {
				l.fault(f.table.node, "source %s needs the variable %q, which neither the targets of %s nor a group of match gives", f.to, name, f.from).Hint = nearest(name, known)
			}
		}
	}
	what, makes := "key", to.Key
	if rule.Expands() {
		lacks(to.URL.Vars(), true)
		if makes.IsZero() {
			what, makes = "url", to.URL
		}
	}
	lacks(to.Key.Vars(), true)
	lacks(to.Steps[0].Body.Vars(), true)
	lacks(to.Country.Vars(), false)
	lacks(to.Scope.Vars(), false)
	if !makes.IsZero() && !slices.ContainsFunc(makes.Vars(), func(name string) bool { return slices.Contains(own, name) }) {
		l.fault(f.table.node, "the %s of source %s holds neither {url} nor a group of match, so that all links of a page would be one job", what, f.to)
	}
}

// checkGroups wants the other source to have a use for each group of match,
// unless its own links hand them on.
func (l *loader) checkGroups(f followed, rule *intake.Follow, source *node) {
	if slices.ContainsFunc(l.followed, func(next followed) bool { return next.from == f.to && next.to != f.to }) {
		return
	}
	for _, group := range rule.Groups() {
		if !source.uses(group) {
			l.wrong(f.table.get("match"), "source %s has no variable %q", f.to, group)
		}
	}
}

// uses reports whether a variable is named at a value or below it: in a template,
// or as var of a field.
func (n *node) uses(name string) bool {
	text, _ := n.scalar.(string)
	if n.name == "var" && text == name || strings.Contains(text, "{"+name+"}") {
		return true
	}
	below := slices.Concat(n.items, n.members)
	return slices.ContainsFunc(below, func(m *node) bool { return m.name != "follow" && m.uses(name) })
}
