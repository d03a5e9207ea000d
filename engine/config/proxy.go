package config

import (
	"strings"
	"time"

	"semel/engine/proxy"
)

// proxies reads [proxy.*].
func (l *loader) proxies(t *table, c *Config) {
	for _, p := range t.named("proxy") {
		c.Proxies = append(c.Proxies, l.proxy(p))
	}
}

// proxy reads one [proxy.NAME]. Where it is at fault, its Proxy stays nil.
func (l *loader) proxy(t *table) Proxy {
	p := Proxy{Name: t.node.name}
	spec := proxy.Spec{Name: p.Name}
	before := len(l.errs)
	t.oneOf("provider", &spec.Provider, proxy.Providers()...)
	t.text("url", &spec.URL)
	var username, password Secret
	t.secret("username", &username)
	t.secret("password", &password)
	t.loginTemplate("username_template", "{username}", &spec.UsernameTemplate)
	t.loginTemplate("password_template", "{password}", &spec.PasswordTemplate)
	faulty := len(l.errs) > before
	t.session(&p.Session)
	t.budget(&p.Budget)
	t.price(&p.Price)
	t.done()
	if faulty {
		return p // what proxy.New would say follows from what was said
	}
	spec.Username, spec.Password = username.Reveal(), password.Reveal()
	made, err := proxy.New(spec)
	for _, fault := range faults(err) {
		l.proxyFault(t, fault)
	}
	p.Proxy = made
	if made != nil {
		l.keep(t.get("session"), p.Session, made)
	}
	return p
}

// keep checks that a proxy's provider keeps an exit for so long.
func (l *loader) keep(at *node, wanted time.Duration, p *proxy.Proxy) {
	if longest := p.MaxKeep(); longest > 0 && wanted > longest {
		l.wrong(at, "must be at most %s: the provider keeps no exit for longer", shortDuration(longest))
	}
}

// loginTemplate reads a template of a login, in which the secret is a variable:
// a template without it would be a login written into the file.
func (t *table) loginTemplate(name, variable string, to *string) {
	if t.text(name, to) && *to != "" && !strings.Contains(*to, variable) {
		t.l.fault(t.get(name), "must contain %s: a login itself never stands in the file", variable)
	}
}

// session reads how long an exit is kept.
func (t *table) session(to *time.Duration) {
	var text string
	n := t.get("session")
	if !t.text("session", &text) || text == "attempt" {
		return
	}
	d, err := parseDuration(text)
	if err != nil || d <= 0 {
		t.l.wrong(n, `must be "attempt", or a duration such as "10m"`).Hint = nearest(text, []string{"attempt"})
		return
	}
	*to = d
}

// proxyFault notes a fault that package proxy found, at the setting it names.
// The value is never shown: a URL may hold a login.
func (l *loader) proxyFault(t *table, err error) {
	setting, reason, _ := strings.Cut(err.Error(), ": ")
	if at := t.node.member(setting); at != nil {
		l.fault(at, "%s", reason)
		return
	}
	l.fault(t.node, "%v", err)
}

// faults takes joined errors apart.
func faults(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
