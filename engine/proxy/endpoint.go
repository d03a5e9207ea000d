package proxy

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
)

// shortestSecret is the length under which a login's part is not taken out of
// text: it would take letters out of words.
const shortestSecret = 3

// Endpoint is one login at one gateway: country and session are chosen. It is
// immutable. It prints as "home (http://gateway.example:8080 country=US)".
type Endpoint struct{ *login }

type login struct {
	proxy    *Proxy
	country  string // upper-case ISO 3166, "" for any
	session  string
	username secret // filled in
	password secret
}

// preset is the provider's; the zero Endpoint, of no proxy, has that of none.
func (e Endpoint) preset() preset {
	if e.login == nil {
		return custom
	}
	return e.proxy.preset
}

// URL is the gateway with the login in it: a secret. Give it to the transport
// and to nothing else.
func (e Endpoint) URL() *url.URL {
	u := e.proxy.gateway
	if e.HasLogin() {
		u.User = url.UserPassword(e.username(), e.password())
	}
	return &u
}

// Name is the proxy's name in the config.
func (e Endpoint) Name() string { return e.proxy.Name() }

// Scheme is http, https, socks5 or socks5h.
func (e Endpoint) Scheme() string { return e.proxy.gateway.Scheme }

// Addr is the gateway's host:port.
func (e Endpoint) Addr() string { return e.proxy.gateway.Host }

// Country is the ISO 3166 code that was asked for, upper case, "" for any.
func (e Endpoint) Country() string { return e.country }

// SessionHash names the session in records: twelve hex digits of the SHA-256
// of its id; "" without a session.
func (e Endpoint) SessionHash() string {
	if e.session == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(e.session))
	return hex.EncodeToString(sum[:6])
}

// HasLogin reports whether the gateway is given a user name or a password.
func (e Endpoint) HasLogin() bool { return e.username() != "" || e.password() != "" }

// Redact takes the login out of a text that somebody else wrote, such as an
// error page of the gateway: user name, password, both with their suffixes,
// and their base64.
func (e Endpoint) Redact(text string) string {
	if e.login == nil {
		return text
	}
	for _, secret := range e.secrets() {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	return text
}

// secrets are the texts to take out, longest first, so that no shorter one
// cuts a longer one in two.
func (e Endpoint) secrets() []string {
	user, pass := e.username(), e.password()
	all := []string{user, pass, e.proxy.username(), e.proxy.password()}
	for _, s := range slices.Clone(all) {
		all = append(all, url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s)))
	}
	all = append(all, base64.StdEncoding.EncodeToString([]byte(user+":"+pass)))
	all = slices.DeleteFunc(all, func(s string) bool { return len(s) < shortestSecret })
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all
}

// String shows name, gateway and country.
func (e Endpoint) String() string {
	if e.login == nil {
		return "no endpoint"
	}
	country := ""
	if e.country != "" {
		country = " country=" + e.country
	}
	return fmt.Sprintf("%s (%s://%s%s)", e.Name(), e.Scheme(), e.Addr(), country)
}

// Format writes String under every verb.
func (e Endpoint) Format(s fmt.State, _ rune) { io.WriteString(s, e.String()) }

// LogValue gives slog String.
func (e Endpoint) LogValue() slog.Value { return slog.StringValue(e.String()) }

// MarshalText gives encoders, JSON's among them, String.
func (e Endpoint) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// String shows name and gateway.
func (p *Proxy) String() string {
	return fmt.Sprintf("%s (%s://%s)", p.name, p.gateway.Scheme, p.gateway.Host)
}

// Format writes String under every verb.
func (p *Proxy) Format(s fmt.State, _ rune) { io.WriteString(s, p.String()) }

// LogValue gives slog String.
func (p *Proxy) LogValue() slog.Value { return slog.StringValue(p.String()) }

// MarshalText gives encoders, JSON's among them, String.
func (p *Proxy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String shows the name: a Spec is not checked yet, so its URL may hold a
// login. Unlike a Proxy, a Spec is not safe in an unexported field of a struct
// that is printed: make a Proxy of it at once.
func (s Spec) String() string { return "proxy " + s.Name }

// Format writes String under every verb.
func (s Spec) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue gives slog String.
func (s Spec) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText gives encoders, JSON's among them, String.
func (s Spec) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
