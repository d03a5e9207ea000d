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
)

var (
	// ErrCountry: the country is unknown, or the proxy's templates cannot
	// express it, or they need one and none was given.
	ErrCountry = errors.New("country not possible")
	// ErrSession: the proxy's templates cannot express a session, or need one
	// and none was given.
	ErrSession = errors.New("session not possible")
)

// socksLimit is the longest user name or password of RFC 1929, in bytes.
const socksLimit = 255

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

// Proxy is a checked Spec. It is immutable and safe for concurrent use.
type Proxy struct{ *config }

type config struct {
	name      string
	preset    preset
	gateway   url.URL // scheme and host:port only
	templates struct{ username, password template }
	username  secret
	password  secret
}

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
	faults := []error{
		c.setGateway(cmp.Or(spec.URL, set.url)),
		setTemplate(&c.templates.username, "username_template", cmp.Or(spec.UsernameTemplate, set.username)),
		setTemplate(&c.templates.password, "password_template", cmp.Or(spec.PasswordTemplate, set.password)),
	}
	if spec.Provider != "" && spec.Username == "" {
		faults = append(faults, errors.New("username: missing"))
	}
	if spec.Provider != "" && spec.Password == "" {
		faults = append(faults, errors.New("password: missing"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if err := c.checkLogin(values{spec.Username, spec.Password, c.longestCountry(), c.newSessionID()}); err != nil {
		return nil, err
	}
	return &Proxy{c}, nil
}

func setTemplate(t *template, setting, text string) error {
	parsed, err := parseTemplate(text)
	if err != nil {
		return fmt.Errorf("%s: %w", setting, err)
	}
	*t = parsed
	return nil
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
		return errors.New("url: the login belongs into username and password")
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

// checkLogin holds what the protocol to the gateway can carry.
func (c *config) checkLogin(v values) error {
	user, pass := c.templates.username.fill(v), c.templates.password.fill(v)
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

// longestCountry is a country whose spelling is among the longest, for the
// check of lengths.
func (c *config) longestCountry() string {
	if c.preset.country == countryName {
		return "UnitedArabEmirates"
	}
	return "US"
}

func (c *config) uses(variable string) (anywhere, required bool) {
	a1, r1 := c.templates.username.uses(variable)
	a2, r2 := c.templates.password.uses(variable)
	return a1 || a2, r1 || r2
}

// Name is the proxy's name in the config.
func (p *Proxy) Name() string { return p.name }

// TakesCountry reports whether the login can ask for a country.
func (p *Proxy) TakesCountry() bool { anywhere, _ := p.uses(varCountry); return anywhere }

// NeedsCountry reports whether there is no login without a country.
func (p *Proxy) NeedsCountry() bool { _, required := p.uses(varCountry); return required }

// TakesSession reports whether the login can ask for a session.
func (p *Proxy) TakesSession() bool { anywhere, _ := p.uses(varSession); return anywhere }

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
	spelled, certain := p.preset.country.spell(code)
	if !certain {
		return "", fmt.Errorf("%w: the name of %s that provider %s takes is not known", ErrCountry, code, p.preset.name)
	}
	return spelled, nil
}

// Endpoint makes the login for a country (ISO 3166, two letters in either
// case, "" for any) and a session id ("" for none). Its errors are ErrCountry
// and ErrSession.
func (p *Proxy) Endpoint(country, session string) (Endpoint, error) {
	spelled, err := p.spellCountry(country)
	if err != nil {
		return Endpoint{}, err
	}
	if err := p.checkSession(session); err != nil {
		return Endpoint{}, err
	}
	v := values{p.username(), p.password(), spelled, session}
	if err := p.checkLogin(v); err != nil {
		return Endpoint{}, fmt.Errorf("proxy %s: %w", p.name, err)
	}
	return Endpoint{&login{
		proxy:    p,
		country:  strings.ToUpper(country),
		session:  session,
		username: keep(p.templates.username.fill(v)),
		password: keep(p.templates.password.fill(v)),
	}}, nil
}

func (p *Proxy) checkSession(session string) error {
	anywhere, required := p.uses(varSession)
	switch {
	case session == "" && required:
		return fmt.Errorf("%w: the templates of proxy %s need one", ErrSession, p.name)
	case session != "" && !anywhere:
		return fmt.Errorf("%w: the templates of proxy %s have no {session}", ErrSession, p.name)
	}
	outside := func(r rune) bool { return !strings.ContainsRune(p.preset.sessionAlphabet, r) }
	if strings.ContainsFunc(session, outside) {
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
