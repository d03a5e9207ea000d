package proxy

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// goldenExits are the kinds of exit that testdata/golden.txt names. {session}
// stands for an id.
var goldenExits = map[string]Exit{
	"any":     {},
	"country": {Country: "US"},
	"session": {Country: "us", Session: "{session}"},
	"kept":    {Country: "US", Session: "{session}", Keep: 30 * time.Minute},
	"strict":  {Country: "US", Session: "{session}", Keep: 30 * time.Minute, Strict: true},
	"british": {Country: "GB"},
}

// golden is one provider of testdata/golden.txt.
type golden struct {
	username, password string            // as the user gives them
	exits              map[string]string // gateway, user name and password by kind of exit
}

func readGolden(t *testing.T) map[string]*golden {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*golden{}
	var current *golden
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case line[0] != ' ' && len(fields) == 3:
			current = &golden{fields[1], fields[2], map[string]string{}}
			all[fields[0]] = current
		case line[0] == ' ' && len(fields) == 4:
			current.exits[fields[0]] = strings.Join(fields[1:], " ")
		default:
			t.Fatalf("golden.txt: what is %q?", line)
		}
	}
	return all
}

func TestGoldenLogins(t *testing.T) {
	all := readGolden(t)
	if names := slices.Sorted(maps.Keys(all)); !slices.Equal(names, Providers()) {
		t.Fatalf("golden.txt has %v, the table %v", names, Providers())
	}
	for provider, g := range all {
		p := mustNew(t, Spec{Provider: provider, Username: g.username, Password: g.password})
		if len(g.exits) != len(goldenExits) {
			t.Errorf("%s: golden.txt has %d exits, want %d", provider, len(g.exits), len(goldenExits))
		}
		for kind, exit := range goldenExits {
			if exit.Session != "" {
				exit.Session = "abcd1234"
				if p.preset.sessionAlphabet == digits {
					exit.Session = "12345678"
				}
			}
			u := mustEndpoint(t, p, exit).URL()
			pass, _ := u.User.Password()
			got := fmt.Sprintf("%s://%s %s %s", u.Scheme, u.Host, u.User.Username(), pass)
			if got != g.exits[kind] {
				t.Errorf("%s, %s:\n got %s\nwant %s", provider, kind, got, g.exits[kind])
			}
		}
	}
}

// What the golden file does not show: a session without a country, and a strict
// one without a time.
func TestPartialLogins(t *testing.T) {
	for _, test := range []struct {
		provider string
		exit     Exit
		want     string // user name and password
	}{
		{"packetstream", Exit{Session: "abcd1234"}, "U P_session-abcd1234"},
		{"dataimpulse", Exit{Session: "abcd1234"}, "U__sessid.abcd1234 P"},
		{"netnut", Exit{Session: "12345678"}, "U-res-any-sid-12345678 P"},
		{"webshare", Exit{Session: "12345678"}, "U-12345678 P"},
		{"infatica", Exit{Session: "abcd1234", Strict: true}, "U_s_abcd1234_rotm_2 P"},
		{"infatica", Exit{Strict: true}, "U P"},
		{"oxylabs", Exit{Session: "abcd1234", Strict: true}, "customer-U-sessid_oneip-abcd1234 P"},
		{"oxylabs", Exit{Keep: time.Hour}, "customer-U P"},
		{"brightdata", Exit{Country: "de", Strict: true}, "U-country-de P"},
	} {
		e := mustEndpoint(t, mustNew(t, Spec{Provider: test.provider, Username: "U", Password: "P"}), test.exit)
		pass, _ := e.URL().User.Password()
		if got := e.URL().User.Username() + " " + pass; got != test.want {
			t.Errorf("%s, %+v: got %s, want %s", test.provider, test.exit, got, test.want)
		}
	}
}

func TestTTLUnits(t *testing.T) {
	for _, test := range []struct {
		provider string
		keep     time.Duration
		want     string
	}{
		{"oxylabs", 0, ""}, {"oxylabs", time.Second, "1"}, {"oxylabs", 60 * time.Second, "1"},
		{"oxylabs", 61 * time.Second, "2"}, {"oxylabs", 24 * time.Hour, "1440"},
		{"iproyal", 90 * time.Second, "2m"}, {"iproyal", 7 * 24 * time.Hour, "10080m"},
		{"soax", 1500 * time.Millisecond, "2"}, {"soax", time.Hour, "3600"},
		{"", 10 * time.Minute, "10"},
	} {
		p, _ := findPreset(test.provider)
		if got := p.spellTTL(test.keep); got != test.want {
			t.Errorf("%q, %s: got %q, want %q", test.provider, test.keep, got, test.want)
		}
	}
}

// Limits as their providers state them, or the longest for which there is
// evidence (proxies.md §1.1).
func TestMaxKeep(t *testing.T) {
	const day = 24 * time.Hour
	want := map[string]time.Duration{
		"brightdata": 0, "dataimpulse": 30 * time.Minute, "decodo": day, "evomi": 2 * time.Hour, "infatica": 10 * day,
		"iproyal": 7 * day, "netnut": 0, "oxylabs": day, "packetstream": time.Hour, "proxyrack": time.Hour,
		"rayobyte": 0, "soax": time.Hour, "webshare": 0,
	}
	for _, name := range Providers() {
		p := mustNew(t, Spec{Provider: name})
		if p.MaxKeep() != want[name] {
			t.Errorf("%s: %s, want %s", name, p.MaxKeep(), want[name])
		}
		if p.MaxKeep() == 0 {
			continue
		}
		id := p.NewSessionID()
		mustEndpoint(t, p, Exit{Session: id, Keep: p.MaxKeep()})
		if _, err := p.Endpoint(Exit{Session: id, Keep: p.MaxKeep() + 1}); !errors.Is(err, ErrSession) {
			t.Errorf("%s: longer than its limit gives %v", name, err)
		}
	}
}

func TestPresets(t *testing.T) {
	strict := map[string]bool{"brightdata": true, "decodo": true, "evomi": true, "infatica": true, "oxylabs": true}
	for _, p := range presets {
		if !strings.HasPrefix(p.doc, "verified") && !strings.HasPrefix(p.doc, "not verified") || p.deadExit == "" {
			t.Errorf("%s does not say whether it was verified, or what becomes of a dead exit", p.name)
		}
		made := mustNew(t, Spec{Provider: p.name})
		if !made.TakesCountry() || made.NeedsCountry() || !made.TakesSession() {
			t.Errorf("%s: the templates lack a variable, or need one", p.name)
		}
		a, b := made.NewSessionID(), made.NewSessionID()
		if len(a) != p.sessionLength || len(a) < 6 || strings.Trim(a, p.sessionAlphabet) != "" || a == b {
			t.Errorf("%s: session ids %q and %q", p.name, a, b)
		}
		usual := mustEndpoint(t, made, Exit{Session: a})
		firm := mustEndpoint(t, made, Exit{Session: a, Strict: true})
		if differ := usual.URL().String() != firm.URL().String(); differ != strict[p.name] {
			t.Errorf("%s: strict differs: %t", p.name, differ)
		}
	}
}

func TestOwnTemplates(t *testing.T) {
	own := Spec{Provider: "brightdata", UsernameTemplate: "{username}[-s-{session}[-t-{ttl}]"}
	if _, err := New(own); err == nil {
		t.Error("a nested bracket was taken")
	}
	own.UsernameTemplate = "{username}[-s-{session}][-t-{ttl}]"
	p := mustNew(t, own)
	e := mustEndpoint(t, p, Exit{Session: "abcd1234", Keep: 90 * time.Second, Strict: true})
	if got := e.URL().User.Username(); got != "login77-s-abcd1234-t-2" {
		t.Errorf("got %s", got)
	}
}

// Any login goes through a URL and back unchanged.
func TestAnyLoginSurvives(t *testing.T) {
	characters := rapid.StringOfN(rapid.OneOf(rapid.RuneFrom([]rune("@:/;.+%&?#[]{}|=_- \"\\")), rapid.Rune()), 1, 20, -1)
	rapid.Check(t, func(t *rapid.T) {
		provider := rapid.SampledFrom(append(Providers(), "")).Draw(t, "provider")
		user := strings.ReplaceAll(characters.Draw(t, "user"), ":", "")
		pass := characters.Draw(t, "pass")
		if user == "" {
			user = "U"
		}
		spec := Spec{Name: "home", Provider: provider, Username: user, Password: pass}
		if provider == "" {
			spec.URL, spec.PasswordTemplate = "http://gw.example", "{password}[_session-{session}]"
		}
		p, err := New(spec)
		if err != nil {
			t.Fatal(err)
		}
		e, err := p.Endpoint(Exit{Session: p.NewSessionID(), Keep: time.Minute, Strict: rapid.Bool().Draw(t, "strict")})
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(e.URL().String())
		if err != nil {
			t.Fatal(err)
		}
		got, _ := u.User.Password()
		if u.User.Username() != e.username() || got != e.password() || u.Host != e.Addr() {
			t.Errorf("%q %q came back as %q %q at %s", e.username(), e.password(), u.User.Username(), got, u.Host)
		}
		if !strings.Contains(u.User.Username(), user) || !strings.HasPrefix(got, pass) {
			t.Errorf("%q %q became %q %q", user, pass, u.User.Username(), got)
		}
		req := http.Request{Header: http.Header{}}
		req.SetBasicAuth(u.User.Username(), got)
		if sent, secret, ok := req.BasicAuth(); !ok || sent != e.username() || secret != e.password() {
			t.Errorf("as a header %q %q came back as %q %q", e.username(), e.password(), sent, secret)
		}
	})
}

func TestExitIP(t *testing.T) {
	h := http.Header{"X-Brd-Ip": {" 203.0.113.7 "}}
	shows := mustEndpoint(t, mustNew(t, Spec{Provider: "brightdata"}), Exit{})
	hides := mustEndpoint(t, mustNew(t, Spec{Provider: "oxylabs"}), Exit{})
	if got := shows.ExitIP(h); got != "203.0.113.7" {
		t.Errorf("got %q", got)
	}
	if got := shows.ExitIP(nil) + hides.ExitIP(h) + (Endpoint{}).ExitIP(h); got != "" {
		t.Errorf("got %q", got)
	}
}
