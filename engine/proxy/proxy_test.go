package proxy

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const (
	testUser = "login77"
	testPass = "p@ss:w/1%"
)

func mustNew(t *testing.T, spec Spec) *Proxy {
	t.Helper()
	if spec.Name == "" {
		spec.Name = "home"
	}
	if spec.Username == "" {
		spec.Username, spec.Password = testUser, testPass
	}
	p, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustEndpoint(t *testing.T, p *Proxy, x Exit) Endpoint {
	t.Helper()
	e, err := p.Endpoint(x)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestTemplates(t *testing.T) {
	full := values{"u", "p", "US", "s1", "30"}
	tests := []struct {
		template string
		values   values
		want     string
	}{
		{"", full, ""},
		{"{username}", full, "u"},
		{"{username}-cc-{country}[_session-{session}]", full, "u-cc-US_session-s1"},
		{"{username}-cc-{country}[_session-{session}]", values{username: "u", country: "US"}, "u-cc-US"},
		{"[{username}]{password}", values{password: "p"}, "p"},
		{"{password}[_country-{country}][_session-{session}]", full, "p_country-US_session-s1"},
		{"{password}[_country-{country}][_session-{session}]", values{password: "p", session: "s1"}, "p_session-s1"},
		{"[a{country}b{session}c]d", values{country: "US"}, "d"},
		{"[a{country}b{session}c]d", full, "aUSbs1cd"},
		{"{username}[-{country}-{session}|-{country}|-any]", full, "u-US-s1"},
		{"{username}[-{country}-{session}|-{country}|-any]", values{username: "u", country: "US"}, "u-US"},
		{"{username}[-{country}-{session}|-{country}|-any]", values{username: "u", session: "s1"}, "u-any"},
		{"[a{session}|]{username}", values{username: "u"}, "u"},
		{"{username}|x[_session-{session}][_lifetime-{ttl}m]", full, "u|x_session-s1_lifetime-30m"},
		{"{username};country={country};x=%.+", full, "u;country=US;x=%.+"},
		{"{username}", values{username: "a{password}[b]", password: "secret"}, "a{password}[b]"},
	}
	for _, test := range tests {
		parsed, err := parseTemplate(test.template)
		if err != nil {
			t.Errorf("%s: %v", test.template, err)
			continue
		}
		if got := parsed.fill(test.values); got != test.want {
			t.Errorf("%s gives %q, want %q", test.template, got, test.want)
		}
	}
}

func TestBadTemplates(t *testing.T) {
	for template, want := range map[string]string{
		"{user}":                   "unknown variable {user}: there are {username}, {password}, {country}, {session}, {ttl}",
		"{}":                       "unknown variable {}",
		"{username":                "a { is not closed",
		"username}":                "a } without its {",
		"[_session-{session}":      "a [ is not closed",
		"_session-{session}]":      "a ] without its [",
		"[a[{session}]]":           "a [ within another",
		"[{country}[_{session}]":   "a [ within another",
		"{username}[_rotate]":      "[_rotate] holds no variable",
		"{username}[]":             "[] holds no variable",
		"[rotate|{session}]":       `[rotate|{session}]: what stands after "rotate" is never taken`,
		"[{session}||x]":           `[{session}||x]: what stands after "" is never taken`,
		"[{session}|{count}]":      "unknown variable {count}",
		"{username}-{ttl}":         `{ttl} must stand in brackets: there is none with session = "attempt"`,
		"[{session]}":              "a { is not closed",
		"{username}[{sess}{count}": "a [ is not closed",
	} {
		_, err := New(Spec{Name: "p", URL: "http://h", UsernameTemplate: template})
		if err == nil || !strings.Contains(err.Error(), "username_template: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", template, err, want)
		}
	}
}

func TestTemplateNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("[]{}|a{username}{session}{ttl}-")), 0, 40, -1).Draw(t, "template")
		parsed, err := parseTemplate(text)
		if err == nil {
			_ = parsed.fill(values{"u", "p", "", "", ""})
		}
	})
}

func TestNewRefuses(t *testing.T) {
	long := strings.Repeat("x", 256)
	tests := []struct {
		name string
		spec Spec
		want string
	}{
		{"nothing", Spec{}, "url: missing (or name a provider)"},
		{"unknown provider", Spec{Provider: "packetstram"}, `provider: "packetstram" is not known; known are ` + strings.Join(Providers(), ", ")},
		{"no scheme", Spec{URL: "gw.example:1080"}, "url: no host; it should look like http://gateway.example:8080"},
		{"no scheme, address", Spec{URL: "10.0.0.1:1080"}, "url: not a URL such as http://gateway.example:8080"},
		{"scheme", Spec{URL: "ftp://gw.example"}, "url: the scheme must be http, https, socks5 or socks5h"},
		{"socks4", Spec{URL: "socks4://gw.example:1080"}, "url: the scheme must be http, https, socks5 or socks5h"},
		{"no host", Spec{URL: "http://:8080"}, "url: no host; it should look like http://gateway.example:8080"},
		{"path", Spec{URL: "http://gw.example/x"}, "url: only scheme, host and port belong there"},
		{"query", Spec{URL: "http://gw.example?x"}, "url: only scheme, host and port belong there"},
		{"port 0", Spec{URL: "http://gw.example:0"}, "url: the port must be from 1 to 65535"},
		{"port", Spec{URL: "http://gw.example:65536"}, "url: the port must be from 1 to 65535"},
		{"login in the URL", Spec{URL: "http://login77:hunter2@gw.example"}, "url: the login belongs in username and password"},
		{"broken URL with a login", Spec{URL: "http://login77:hunter2@gw.exa mple"}, "url: not a URL such as http://gateway.example:8080"},
		{"port with a login", Spec{URL: "http://login77:hunter2@gw.example:x"}, "url: not a URL such as http://gateway.example:8080"},
		{"no login for a provider", Spec{Provider: "packetstream"}, "username: missing\npassword: missing"},
		{"several", Spec{URL: "http://gw.example/x", UsernameTemplate: "{x", PasswordTemplate: "]"},
			"url: only scheme, host and port belong there\nusername_template: a { is not closed\npassword_template: a ] without its [, or a [ within another"},
		{"time without session", Spec{URL: "http://gw.example", PasswordTemplate: "{password}[-{ttl}]"},
			"username_template, password_template: {ttl} is a session's, and there is no {session}"},
		{"colon", Spec{URL: "http://gw.example", Username: "a:hunter2"}, "username: an HTTP proxy takes none with a colon"},
		{"long for SOCKS5", Spec{URL: "socks5://gw.example", Username: "hunter2", Password: long}, "username, password: with their suffixes each must be at most 255 bytes for SOCKS5"},
		{"long for SOCKS5 with its suffix", Spec{URL: "socks5://gw.example", Username: long[:250], Password: "hunter2", UsernameTemplate: "{username}[-{session}]"},
			"username, password: with their suffixes each must be at most 255 bytes for SOCKS5"},
		{"long for SOCKS5 with the longest country", Spec{Provider: "packetstream", URL: "socks5://gw.example", Username: "hunter2", Password: long[:203]},
			"username, password: with their suffixes each must be at most 255 bytes for SOCKS5"},
		{"SOCKS5 password alone", Spec{URL: "socks5://gw.example", Password: "hunter2"}, "username: SOCKS5 takes no password without one"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.spec.Name = "home"
			_, err := New(test.spec)
			if err == nil || err.Error() != test.want {
				t.Fatalf("got %v\nwant %s", err, test.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

func TestGatewayAddress(t *testing.T) {
	for text, want := range map[string]string{
		"http://gw.example":          "http gw.example:80",
		"https://gw.example":         "https gw.example:443",
		"socks5://gw.example":        "socks5 gw.example:1080",
		"socks5h://gw.example/":      "socks5h gw.example:1080",
		"http://gw.example:31112":    "http gw.example:31112",
		"HTTP://127.0.0.1:8080":      "http 127.0.0.1:8080",
		"http://[2001:db8::1]:8080/": "http [2001:db8::1]:8080",
		"http://[2001:db8::1]":       "http [2001:db8::1]:80",
	} {
		e := mustEndpoint(t, mustNew(t, Spec{URL: text}), Exit{})
		if got := e.Scheme() + " " + e.Addr(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

func TestEndpointLogin(t *testing.T) {
	tests := []struct {
		name             string
		spec             Spec
		country, session string
		scheme, user     string
		pass, addr       string
	}{
		{"packetstream by SOCKS5", Spec{Provider: "packetstream", Username: "U", Password: "AUTHKEY", URL: "socks5h://proxy.packetstream.io:31113"}, "DE", "",
			"socks5h", "U", "AUTHKEY_country-Germany", "proxy.packetstream.io:31113"},
		{"own template", Spec{URL: "http://gw.example", UsernameTemplate: "customer-{username}-cc-{country}[-sessid-{session}]"}, "US", "abc12345",
			"http", "customer-login77-cc-US-sessid-abc12345", testPass, "gw.example:80"},
		{"awkward characters", Spec{URL: "http://gw.example", Username: "login__cr.au;sessid.123+x", Password: testPass}, "", "",
			"http", "login__cr.au;sessid.123+x", testPass, "gw.example:80"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := mustEndpoint(t, mustNew(t, test.spec), Exit{Country: test.country, Session: test.session})
			u, err := url.Parse(e.URL().String()) // what a string would carry
			if err != nil {
				t.Fatal(err)
			}
			pass, _ := u.User.Password()
			if e.Scheme() != test.scheme || u.User.Username() != test.user || pass != test.pass || e.Addr() != test.addr {
				t.Errorf("got %s %q %q %s", e.Scheme(), u.User.Username(), pass, e.Addr())
			}
			if e.Country() != strings.ToUpper(test.country) || !e.HasLogin() {
				t.Errorf("country is %q", e.Country())
			}
		})
	}
	p, err := New(Spec{Name: "open", URL: "http://gw.example"})
	if err != nil {
		t.Fatal(err)
	}
	if e := mustEndpoint(t, p, Exit{}); e.HasLogin() || e.URL().String() != "http://gw.example:80" {
		t.Errorf("an open proxy got a login: %s", e.URL())
	}
}

func TestCountryIsNeverWidened(t *testing.T) {
	none := mustNew(t, Spec{URL: "http://gw.example"})
	optional := mustNew(t, Spec{Provider: "packetstream"})
	required := mustNew(t, Spec{URL: "http://gw.example", UsernameTemplate: "{username}-cc-{country}"})
	tests := []struct {
		name    string
		proxy   *Proxy
		country string
		want    string // "" : fine
	}{
		{"any, none", none, "", ""},
		{"US, none", none, "US", "country not possible: the templates of proxy home have no {country}"},
		{"any, optional", optional, "", ""},
		{"us, optional", optional, "us", ""},
		{"any, required", required, "", "country not possible: the templates of proxy home need one"},
		{"US, required", required, "US", ""},
		{"a name", optional, "Germany", `country not possible: "Germany" is not a country's two-letter code`},
		{"no country", optional, "XX", `country not possible: "XX" is not a country's two-letter code`},
		{"an alias", required, "UK", `country not possible: "UK" is not a country's two-letter code`},
		{"a region", required, "EU", `country not possible: "EU" is not a country's two-letter code`},
		{"a template", required, "{country}", `country not possible: "{country}" is not a country's two-letter code`},
		{"an uncertain name", optional, "CI", "country not possible: the name of CI that provider packetstream takes is not known"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.proxy.Endpoint(Exit{Country: test.country})
			check := test.proxy.CheckCountry(test.country)
			if fmt.Sprint(err) != fmt.Sprint(check) {
				t.Errorf("CheckCountry says %v, Endpoint %v", check, err)
			}
			if test.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if !errors.Is(err, ErrCountry) || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	if none.TakesCountry() || !optional.TakesCountry() || !required.TakesCountry() {
		t.Error("TakesCountry is wrong")
	}
	if none.NeedsCountry() || optional.NeedsCountry() || !required.NeedsCountry() {
		t.Error("NeedsCountry is wrong")
	}
}

func TestCountryNames(t *testing.T) {
	// As public code passes them to PacketStream (proxies.md §1.1), and a few
	// whose English name is not one plain word.
	for code, want := range map[string]string{
		"US": "UnitedStates", "GB": "UnitedKingdom", "DE": "Germany", "EG": "Egypt", "FR": "France",
		"HK": "HongKong", "NZ": "NewZealand", "KR": "SouthKorea",
		"TR": "Turkey", "CI": "", "MM": "", "BA": "",
	} {
		got, certain := preset{country: countryName}.spellCountry(code)
		if certain != (want != "") || certain && got != want {
			t.Errorf("%s is %q (%t), want %q", code, got, certain, want)
		}
	}
}

func TestSessions(t *testing.T) {
	none := mustNew(t, Spec{URL: "http://gw.example"})
	required := mustNew(t, Spec{URL: "http://gw.example", PasswordTemplate: "{password}-{session}"})
	optional := mustNew(t, Spec{Provider: "packetstream"})
	if none.NewSessionID() != "" || none.TakesSession() || !optional.TakesSession() {
		t.Error("a proxy without {session} has sessions")
	}
	for _, test := range []struct {
		proxy   *Proxy
		session string
		fine    bool
	}{
		{none, "", true}, {none, "abcd1234", false},
		{optional, "", true}, {optional, "abcd1234", true},
		{required, "", false}, {required, "abcd1234", true},
		{optional, "abcd-123", false}, {optional, "a_country-DE", false}, {optional, "ABCD1234", false},
	} {
		_, err := test.proxy.Endpoint(Exit{Session: test.session})
		if (err == nil) != test.fine || err != nil && !errors.Is(err, ErrSession) {
			t.Errorf("session %q: got %v", test.session, err)
		}
	}
	seen := make(map[string]bool)
	for range 1000 {
		id := optional.NewSessionID()
		if len(id) != 8 || strings.Trim(id, lowerAlnum) != "" || seen[id] {
			t.Fatalf("bad or repeated id %q", id)
		}
		seen[id] = true
	}
}

func TestSessionHash(t *testing.T) {
	p := mustNew(t, Spec{Provider: "packetstream"})
	none, a, b := mustEndpoint(t, p, Exit{}), mustEndpoint(t, p, Exit{Country: "US", Session: "aaaaaaaa"}), mustEndpoint(t, p, Exit{Country: "US", Session: "bbbbbbbb"})
	if none.SessionHash() != "" || len(a.SessionHash()) != 12 || a.SessionHash() == b.SessionHash() {
		t.Errorf("got %q %q %q", none.SessionHash(), a.SessionHash(), b.SessionHash())
	}
	if a.SessionHash() != mustEndpoint(t, p, Exit{Country: "DE", Session: "aaaaaaaa"}).SessionHash() {
		t.Error("the hash is not the session's")
	}
}

// show prints a value in every way that a program prints things.
func show(t *testing.T, v any) string {
	t.Helper()
	var out bytes.Buffer
	holder := struct{ Public any }{v}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"} {
		fmt.Fprintf(&out, format+"\n"+format+"\n", v, holder)
	}
	fmt.Fprintf(&out, "%v\n", fmt.Errorf("using %v: %w", v, errors.New("x")))
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v, "holder", holder)
	encoded, err := json.Marshal(map[string]any{"v": v})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(encoded)
	return out.String()
}

func TestNothingPrintsTheLogin(t *testing.T) {
	spec := Spec{
		Name: "home", Username: testUser, Password: testPass,
		URL: "http://gw.example:8080", PasswordTemplate: "{password}[_country-{country}][_session-{session}]",
	}
	p := mustNew(t, spec)
	e := mustEndpoint(t, p, Exit{Country: "US", Session: "abcd1234"})
	withLogin := spec
	withLogin.URL = "http://" + testUser + ":" + url.QueryEscape(testPass) + "@gw.example"
	type unexported struct { // fmt calls no methods in here
		e  Endpoint
		p  Proxy
		ep *Endpoint
		pp *Proxy
		v  any
	}
	for name, v := range map[string]any{
		"Spec": spec, "*Spec": &spec, "Spec with a URL": withLogin, "Proxy": *p, "*Proxy": p,
		"Endpoint": e, "*Endpoint": &e, "slice": []Endpoint{e}, "in a struct": unexported{e, *p, &e, p, e},
	} {
		shown := show(t, v)
		for _, secret := range []string{testUser, testPass, "p%40ss", fmt.Sprintf("%x", testPass), base64.StdEncoding.EncodeToString([]byte(testPass))} {
			if strings.Contains(shown, secret) {
				t.Errorf("%s shows %q:\n%s", name, secret, shown)
			}
		}
	}
	if e.String() != "home (http://gw.example:8080 country=US)" || p.String() != "home (http://gw.example:8080)" {
		t.Errorf("got %s and %s", e, p)
	}
	if got := mustEndpoint(t, p, Exit{}).String(); got != "home (http://gw.example:8080)" {
		t.Errorf("got %s", got)
	}
	if got := fmt.Sprint(Endpoint{}); got != "no endpoint" {
		t.Errorf("zero prints %s", got)
	}
	encoded, err := json.Marshal(e)
	if err != nil || string(encoded) != `"home (http://gw.example:8080 country=US)"` {
		t.Errorf("JSON is %s, %v", encoded, err)
	}
}

func TestRedact(t *testing.T) {
	e := mustEndpoint(t, mustNew(t, Spec{Provider: "packetstream", Username: "login77", Password: "sekret99"}), Exit{Country: "US", Session: "abcd1234"})
	basic := base64.StdEncoding.EncodeToString([]byte("login77:sekret99_country-UnitedStates_session-abcd1234"))
	for text, want := range map[string]string{
		"":                              "",
		"bad user login77":              "bad user [redacted]",
		"http://login77:sekret99@h/":    "http://[redacted]:[redacted]@h/",
		"Basic " + basic:                "Basic [redacted]",
		"sekret99_country-UnitedStates": "[redacted]_country-UnitedStates",
		"sekret99_country-UnitedStates_session-abcd1234 x": "[redacted] x",
	} {
		if got := e.Redact(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	tiny := mustEndpoint(t, mustNew(t, Spec{URL: "http://h", Username: "a", Password: "b"}), Exit{})
	if got := tiny.Redact("a bad banana"); got != "a bad banana" {
		t.Errorf("letters were taken out: %q", got)
	}
}
