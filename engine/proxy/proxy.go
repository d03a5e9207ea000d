package proxy

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrCountry: the country is unknown, or the proxy's templates cannot
	// express it, or they need one and none was given.
	ErrCountry = errors.New("country not possible")
	// ErrSession: the proxy's templates cannot express a session, or need one
	// and none was given, or its provider keeps no exit for so long.
	ErrSession = errors.New("session not possible")
)

// socksLimit is the longest user name or password of RFC 1929, in bytes.
const socksLimit = 255

// longestKeep is how long an exit may be wanted where its provider sets no
// limit, for the check of lengths.
const longestKeep = 365 * 24 * time.Hour

// Spec is one [proxy.NAME] of the config, secrets already read.
type Spec struct {
	Name             string
	Provider         string // preset name; "" for a URL of the user's own
	URL              string // scheme http, https, socks5 or socks5h; overrides the preset's
	Username         string
	Password         string
	UsernameTemplate string // "" : the preset's, else "{username}"
	PasswordTemplate string // "" : the preset's, else "{password}"
}

// Exit is what a login asks for. The zero Exit is any, and at most gateways a
// new one for each connection.
type Exit struct {
	Country string        // ISO 3166, two letters in either case; "" for any
	Session string        // an id as NewSessionID makes them; "" for none
	Keep    time.Duration // how long the session's exit is wanted; 0: the gateway's own time

	// Strict: the session had better fail than go on from another exit. Where
	// the provider has no such form, the ordinary one is used.
	Strict bool
}

// Proxy is a checked Spec. It is immutable and safe for concurrent use.
type Proxy struct{ *config }

type config struct {
	name     string
	preset   preset
	gateway  url.URL // scheme and host:port only
	ordinary form
	strict   form
	username secret
	password secret
}

// form is the templates of one kind of login.
type form struct{ username, password template }

// secret is a text that fmt and encoders cannot reach, under no verb and in no
// field, exported or not: they print a function as its address.
type secret func() string

func keep(text string) secret { return func() string { return text } }

// New checks a Spec. All faults are reported at once, joined, each as
// "setting: what is wrong", and none holds a secret.
func New(spec Spec) (*Proxy, error) {
	set, known := findPreset(spec.Provider)
	if !known {
		return nil, fmt.Errorf("provider: %q is not known; known are %s", spec.Provider, strings.Join(Providers(), ", "))
	}
	c := &config{name: spec.Name, preset: set, username: keep(spec.Username), password: keep(spec.Password)}
	var faults [5]error
	faults[0] = c.setGateway(cmp.Or(spec.URL, set.url))
	c.ordinary.username, c.strict.username, faults[1] = readTemplate("username_template", spec.UsernameTemplate, set.username, set.strictUsername)
	c.ordinary.password, c.strict.password, faults[2] = readTemplate("password_template", spec.PasswordTemplate, set.password, set.strictPassword)
	if spec.Provider != "" {
		faults[3] = needed("username", spec.Username)
		faults[4] = needed("password", spec.Password)
	}
	if err := errors.Join(faults[:]...); err != nil {
		return nil, err
	}
	if err := c.checkWhole(); err != nil {
		return nil, err
	}
	return &Proxy{c}, nil
}

func needed(setting, value string) error {
	if value == "" {
		return fmt.Errorf("%s: missing", setting)
	}
	return nil
}

// readTemplate parses the user's own template, which stands for both forms,
// else the preset's two.
func readTemplate(setting, own, usualText, strictText string) (ordinary, strict template, err error) {
	ordinary, err = parseTemplate(cmp.Or(own, usualText))
	if err == nil {
		strict, err = parseTemplate(cmp.Or(own, strictText, usualText))
	}
	if _, required := ordinary.uses(varTTL); required {
		err = errors.New(`{ttl} must stand in brackets: there is none with session = "attempt"`)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", setting, err)
	}
	return ordinary, strict, nil
}

// setGateway reads the gateway's URL. Errors of url.Parse print the URL with
// its password, so they are replaced and never wrapped.
func (c *config) setGateway(text string) error {
	if text == "" {
		return errors.New("url: missing (or name a provider)")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("url: not a URL such as http://gateway.example:8080")
	case u.User != nil:
		return errors.New("url: the login belongs in username and password")
	case u.Hostname() == "" || u.Opaque != "":
		return errors.New("url: no host; it should look like http://gateway.example:8080")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("url: only scheme, host and port belong there")
	}
	port, err := defaultPort(u.Scheme)
	if err != nil {
		return err
	}
	port = cmp.Or(u.Port(), port)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("url: the port must be from 1 to 65535")
	}
	c.gateway = url.URL{Scheme: u.Scheme, Host: net.JoinHostPort(u.Hostname(), port)}
	return nil
}

func defaultPort(scheme string) (string, error) {
	switch scheme {
	case "http":
		return "80", nil
	case "https":
		return "443", nil
	case "socks5", "socks5h":
		return "1080", nil
	}
	return "", errors.New("url: the scheme must be http, https, socks5 or socks5h")
}

func (c *config) socks() bool { return strings.HasPrefix(c.gateway.Scheme, "socks5") }

// checkWhole checks what no template shows alone, with the longest login that
// can come up.
func (c *config) checkWhole() error {
	if timed, _ := c.uses(varTTL); timed && !c.takesSession() {
		return errors.New("username_template, password_template: {ttl} is a session's, and there is no {session}")
	}
	country := "US"
	if c.preset.country == countryName {
		country = "BritishIndianOceanTerritory" // the longest that englishName gives
	}
	v := values{
		username: c.username(), password: c.password(),
		country: country, session: c.newSessionID(), ttl: c.preset.spellTTL(cmp.Or(c.preset.maxKeep, longestKeep)),
	}
	return cmp.Or(c.checkLogin(c.ordinary.fill(v)), c.checkLogin(c.strict.fill(v)))
}

// checkLogin holds a login against what the protocol to the gateway can carry.
func (c *config) checkLogin(user, pass string) error {
	switch {
	case c.socks() && (len(user) > socksLimit || len(pass) > socksLimit):
		return fmt.Errorf("username, password: with their suffixes each must be at most %d bytes for SOCKS5", socksLimit)
	case c.socks() && pass != "" && user == "":
		return errors.New("username: SOCKS5 takes no password without one")
	case !c.socks() && strings.Contains(user, ":"):
		return errors.New("username: an HTTP proxy takes none with a colon")
	}
	return nil
}

func (f form) fill(v values) (username, password string) {
	return f.username.fill(v), f.password.fill(v)
}

func (c *config) uses(variable string) (anywhere, required bool) {
	a1, r1 := c.ordinary.username.uses(variable)
	a2, r2 := c.ordinary.password.uses(variable)
	return a1 || a2, r1 || r2
}

func (c *config) takesSession() bool { anywhere, _ := c.uses(varSession); return anywhere }

// Name is the proxy's name in the config.
func (p *Proxy) Name() string { return p.name }

// TakesCountry reports whether the login can ask for a country.
func (p *Proxy) TakesCountry() bool { anywhere, _ := p.uses(varCountry); return anywhere }

// NeedsCountry reports whether there is no login without a country.
func (p *Proxy) NeedsCountry() bool { _, required := p.uses(varCountry); return required }

// TakesSession reports whether the login can ask for a session.
func (p *Proxy) TakesSession() bool { return p.takesSession() }

// MaxKeep is the longest that the provider keeps a session's exit, 0 where no
// limit is known.
func (p *Proxy) MaxKeep() time.Duration { return p.preset.maxKeep }

// CheckCountry reports, as an ErrCountry, why Endpoint would refuse the
// country; "" is any.
func (p *Proxy) CheckCountry(country string) error {
	_, err := p.spellCountry(country)
	return err
}

// spellCountry writes a country as the provider wants it.
func (p *Proxy) spellCountry(country string) (string, error) {
	if country == "" {
		if p.NeedsCountry() {
			return "", fmt.Errorf("%w: the templates of proxy %s need one", ErrCountry, p.name)
		}
		return "", nil
	}
	code, known := parseCountry(country)
	if !known {
		return "", fmt.Errorf("%w: %q is not a country's two-letter code", ErrCountry, country)
	}
	if !p.TakesCountry() {
		return "", fmt.Errorf("%w: the templates of proxy %s have no {country}", ErrCountry, p.name)
	}
	spelled, certain := p.preset.spellCountry(code)
	if !certain {
		return "", fmt.Errorf("%w: the name of %s that provider %s takes is not known", ErrCountry, code, p.preset.name)
	}
	return spelled, nil
}

// Endpoint makes the login for an exit. Its errors are ErrCountry and
// ErrSession.
func (p *Proxy) Endpoint(x Exit) (Endpoint, error) {
	country, err := p.spellCountry(x.Country)
	if err != nil {
		return Endpoint{}, err
	}
	if err := p.checkSession(x); err != nil {
		return Endpoint{}, err
	}
	v := values{username: p.username(), password: p.password(), country: country, session: x.Session}
	if x.Session != "" {
		v.ttl = p.preset.spellTTL(x.Keep)
	}
	form := p.ordinary
	if x.Strict {
		form = p.strict
	}
	user, pass := form.fill(v)
	if err := p.checkLogin(user, pass); err != nil {
		return Endpoint{}, fmt.Errorf("proxy %s: %w", p.name, err)
	}
	return Endpoint{&login{
		proxy:    p,
		country:  strings.ToUpper(x.Country),
		session:  x.Session,
		username: keep(user),
		password: keep(pass),
	}}, nil
}

func (p *Proxy) checkSession(x Exit) error {
	_, required := p.uses(varSession)
	switch {
	case x.Session == "" && required:
		return fmt.Errorf("%w: the templates of proxy %s need one", ErrSession, p.name)
	case x.Session != "" && !p.takesSession():
		return fmt.Errorf("%w: the templates of proxy %s have no {session}", ErrSession, p.name)
	case p.MaxKeep() > 0 && x.Keep > p.MaxKeep():
		return fmt.Errorf("%w: provider %s keeps an exit for at most %s, not %s", ErrSession, p.preset.name, p.MaxKeep(), x.Keep)
	}
	outside := func(r rune) bool { return !strings.ContainsRune(p.preset.sessionAlphabet, r) }
	if strings.ContainsFunc(x.Session, outside) {
		return fmt.Errorf("%w: an id of proxy %s may hold only %s", ErrSession, p.name, p.preset.sessionAlphabet)
	}
	return nil
}

// NewSessionID makes a fresh random session id in the alphabet and length that
// the proxy's provider takes; "" if its login takes no session. It is no
// secret, but two equal ones would share an exit.
func (p *Proxy) NewSessionID() string {
	if !p.TakesSession() {
		return ""
	}
	return p.newSessionID()
}

func (c *config) newSessionID() string {
	alphabet := c.preset.sessionAlphabet
	id := make([]byte, c.preset.sessionLength)
	for i := range id {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(alphabet))))
		if err != nil { // crypto/rand ends the program rather than fail
			panic(err)
		}
		id[i] = alphabet[n.Int64()]
	}
	return string(id)
}
