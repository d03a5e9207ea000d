package config

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"semel/engine/intake"
	"semel/storage"
)

// sources reads [source.*].
func (l *loader) sources(t *table, c *Config) {
	for _, s := range t.named("source") {
		c.Sources = append(c.Sources, l.source(s, c))
	}
	l.link(t.node, c)
}

// source reads one [source.NAME].
func (l *loader) source(t *table, c *Config) Source {
	s := defaultSource()
	s.Name = t.node.name
	t.template("url", &s.URL)
	t.template("key", &s.Key)
	t.template("country", &s.Country)
	t.template("scope", &s.Scope)
	t.identity(&s.Identity)
	t.proxies(&s, c)
	t.headers(&s.Headers)
	t.duration("timeout", &s.Timeout, 1)
	t.oneOf("gone", &s.Gone, GoneFail, GoneRecord)
	t.priority(&s.Priority)
	t.schedule(&s)
	t.write(&s)
	l.limits(t.sub("limits", "limits"), &s.Limits)
	l.retries(t.sub("retry", "retries"), &s)
	l.blocked(t.sub("blocked", "blocked"), &s.Blocked)
	l.drift(t.sub("drift", "drift"), &s.Drift)
	vars := l.targets(t, &s)
	l.steps(t, &s, vars)
	l.parser(t, &s, vars)
	t.subscriptions(c, &s.Sinks)
	t.done()
	l.checkCountry(t, &s)
	l.checkTemplates(t, &s, vars)
	l.checkRead(t, &s)
	s.IdentityText = identityText(&s)
	return s
}

// template reads a text with variables.
func (t *table) template(name string, to *intake.Template) {
	var text string
	if !t.filled(name, &text) {
		return
	}
	parsed, err := intake.ParseTemplate(text)
	if err != nil {
		t.l.wrong(t.get(name), "%v", err)
		return
	}
	*to = parsed
}

func (t *table) priority(to *int8) {
	n := int(*to)
	t.integer("priority", &n, -100, 100)
	*to = int8(n)
}

// identityParts are what an identity can name.
var identityParts = []string{"target", "country", "window", "scope", "parser"}

// identity reads which parts count in a job's key.
func (t *table) identity(to *intake.Identity) {
	parts := []string{"target", "country", "window"}
	n := t.get("identity")
	if t.texts("identity", &parts) {
		for i, part := range parts {
			if t.l.among(n.items[i], part, identityParts) && slices.Contains(parts[:i], part) {
				t.l.wrong(n.items[i], "is there twice")
			}
		}
		if !slices.Contains(parts, "target") {
			t.l.fault(n, `must name "target": without it all targets are one job`)
		}
	}
	*to = intake.Identity{
		Country: slices.Contains(parts, "country"),
		Window:  slices.Contains(parts, "window"),
		Scope:   slices.Contains(parts, "scope"),
		Parser:  slices.Contains(parts, "parser"),
	}
}

// identityText says what makes two jobs of a source the same: which parts, and
// what names the target. The parts' order does not matter, nor do their values,
// which stand in the keys themselves. A write mode whose rows have the window in their
// keys counts as well.
func identityText(s *Source) string {
	parts := []string{"target"}
	for _, p := range []struct {
		name   string
		counts bool
	}{{"country", s.Identity.Country}, {"window", s.Identity.Window}, {"scope", s.Identity.Scope}, {"parser", s.Identity.Parser}} {
		if p.counts {
			parts = append(parts, p.name)
		}
	}
	key := "the normalised URL"
	if !s.Key.IsZero() {
		key = fmt.Sprintf("%q", s.Key.String())
	}
	text := fmt.Sprintf("identity: %s; key: %s", strings.Join(parts, ", "), key)
	if s.ownWindows() {
		text += "; write: " + s.Write
	}
	return text
}

// proxies finds the source's proxy, or several in order of preference.
func (t *table) proxies(s *Source, c *Config) {
	n := t.get("proxy")
	switch {
	case n == nil || n.scalar == "":
	case n.items == nil:
		t.proxy(n, s, c)
	default:
		for _, item := range n.items {
			t.proxy(item, s, c)
		}
	}
}

func (t *table) proxy(n *node, s *Source, c *Config) {
	var name string
	if !t.l.text(n, &name) {
		return
	}
	var names []string
	for i := range c.Proxies {
		names = append(names, c.Proxies[i].Name)
	}
	i := slices.Index(names, name)
	switch {
	case i < 0:
		t.l.wrong(n, "there is no [proxy.%s]", name).Hint = nearest(name, names)
	case slices.Contains(s.Proxies, &c.Proxies[i]):
		t.l.wrong(n, "is there twice")
	default:
		s.Proxies = append(s.Proxies, &c.Proxies[i])
	}
}

// ownHeaders are set by whoever sends the request, with what to do instead.
var ownHeaders = map[string]string{
	"User-Agent":          "set [engine] user_agent, which robots.txt is asked for, too",
	"Accept-Encoding":     "compression is negotiated and undone by semel",
	"Host":                "it follows from the URL",
	"Connection":          "connections are kept by session",
	"Content-Length":      "it follows from the body",
	"Transfer-Encoding":   "it follows from the body",
	"Proxy-Authorization": "a login belongs in [proxy.*]; it is never sent to a site",
	"Proxy-Connection":    "connections are kept by session",
	"If-None-Match":       "semel asks so by itself where it kept the page",
	"If-Modified-Since":   "semel asks so by itself where it kept the page",
	"Range":               "a page is fetched whole",
}

// headers reads headers of requests.
func (t *table) headers(to *[]Header) {
	headers := t.l.open(t.get("headers"), "headers")
	if headers.node == nil {
		return
	}
	for _, m := range headers.node.members {
		name := http.CanonicalHeaderKey(m.name)
		instead, own := ownHeaders[name]
		switch {
		case !httpguts.ValidHeaderFieldName(m.name):
			t.l.fault(m, "is not a header's name")
		case own:
			t.l.fault(m, "cannot be set: %s", instead)
		case slices.ContainsFunc(*to, func(h Header) bool { return h.Name == name }):
			t.l.fault(m, "header %s is there twice", name)
		default:
			header := Header{Name: name}
			t.l.headerValue(m, &header.Value)
			*to = append(*to, header)
		}
	}
}

// headerValue reads a header's text, or the secret it refers to.
func (l *loader) headerValue(n *node, to *Secret) {
	var text string
	switch {
	case secretHeader.MatchString(n.name) && !isReference(fmt.Sprint(n.scalar)):
		l.fault(n, "%s", literalSecret)
	case !l.text(n, &text):
	case isReference(text):
		l.resolve(n, text, to)
	case !validHeaderValue(text):
		l.fault(n, "must hold printable ASCII only")
	default:
		*to = NewSecret(text)
	}
}

// write reads the write mode. Where each window has rows of its own, it has jobs
// of its own.
func (t *table) write(s *Source) {
	if !t.oneOf("write", &s.Write, WriteInsert, WriteUpsert, WriteReplace, WriteAppend) {
		return
	}
	if s.ownWindows() && !s.Identity.Window {
		t.l.fault(t.get("write"), `%q needs "window" in identity: without it the second window would make no jobs`, s.Write)
	}
	s.Windowed = s.Write == WriteReplace
}

// ownWindows reports whether a row of one window stands beside that of another.
func (s *Source) ownWindows() bool { return s.Write == WriteReplace || s.Write == WriteAppend }

func (l *loader) limits(t *table, to *Limits) {
	t.integer("attempts", &to.Attempts, 1, 1000)
	t.duration("time", &to.Time, 1)
	t.size("bytes", &to.Bytes)
	t.integer("rescues", &to.Rescues, 1, 10_000)
	t.done()
}

// drift reads when pages are taken to have changed. Whoever looks at fewer pages than by
// default and says no more pauses at half of them, too.
func (l *loader) drift(t *table, to *storage.DriftPolicy) {
	t.share("fall", &to.Fall)
	t.integer("min", &to.Min, 1, 1_000_000)
	if t.integer("jobs", &to.Jobs, storage.MinDriftPages, storage.MaxDriftPages) {
		to.Failed = (to.Jobs + 1) / 2
	}
	if t.integer("failed", &to.Failed, 0, storage.MaxDriftPages) && to.Failed > to.Jobs {
		l.wrong(t.get("failed"), "must be at most jobs (%d)", to.Jobs)
	}
	t.done()
}

// unretried are the categories in which no retry is decided: either the job goes
// back without an attempt burnt, or somebody ended it.
var unretried = []storage.Category{
	storage.CategoryProxyAuth, storage.CategoryProxyQuota, storage.CategoryReleased, storage.CategoryLeaseExpired,
	storage.CategoryCanceled, storage.CategoryBudgetExhausted, storage.CategoryUnsafeToRepeat,
}

// retries reads [source.NAME.retry.*].
func (l *loader) retries(t *table, s *Source) {
	var words []string
	for _, c := range storage.Categories {
		if !slices.Contains(unretried, c) {
			words = append(words, string(c))
		}
	}
	if t.node == nil {
		l.open(nil, "retry")
		return
	}
	s.Retry = map[storage.Category]RetryPolicy{}
	for _, m := range t.node.members {
		category := storage.Category(m.name)
		switch {
		case !category.Known():
			l.fault(m, "there is no category %q", m.name).Hint = nearest(m.name, words)
		case slices.Contains(unretried, category):
			l.fault(m, "%s has no retry policy: it burns no attempt, or ends the job", category)
		default:
			s.Retry[category] = l.retry(l.open(m, "retry"))
		}
	}
}

func (l *loader) retry(t *table) RetryPolicy {
	var p RetryPolicy
	t.integer("attempts", &p.Attempts, 1, 1000)
	t.duration("base", &p.Base, 1)
	if t.duration("max", &p.Max, 1) && p.Max < p.Base {
		l.wrong(t.get("max"), "must be at least base (%s)", shortDuration(p.Base))
	}
	t.done()
	return p
}
