package intake

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
)

// tmpl parses a template that has to be good.
func tmpl(t *testing.T, text string) Template {
	t.Helper()
	parsed, err := ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestParseTemplate(t *testing.T) {
	for _, test := range []struct {
		text, vars, fault string
	}{
		{"", "", ""},
		{"plain", "", ""},
		{"{a}", "a", ""},
		{"{a}/{b}?{a}", "a b", ""},
		{"{{a}}", "", ""},
		{"{{{a}}}", "a", ""},
		{"{größe_1.x-y}", "größe_1.x-y", ""},
		{"{", "", `lone "{": a brace itself is written twice`},
		{"}", "", `lone "}": a brace itself is written twice`},
		{"{a{b}", "", `lone "{": a brace itself is written twice`},
		{"a}b", "", `lone "}": a brace itself is written twice`},
		{"{}", "", `"" is not a variable's name`},
		{"{1a}", "", `"1a" is not a variable's name`},
		{"{a b}", "", `"a b" is not a variable's name`},
		{`{"a": 1}`, "", `"\"a\": 1" is not a variable's name`},
	} {
		got, err := ParseTemplate(test.text)
		fault := ""
		if err != nil {
			fault = err.Error()
		}
		if vars := strings.Join(got.Vars(), " "); vars != test.vars || fault != test.fault {
			t.Errorf("ParseTemplate(%q) has variables %q, fault %q; want %q, %q", test.text, vars, fault, test.vars, test.fault)
		}
		if err == nil && (got.String() != test.text || got.IsZero() != (test.text == "")) {
			t.Errorf("ParseTemplate(%q) is not its text: %q", test.text, got)
		}
	}
}

func TestExpand(t *testing.T) {
	vars := Vars{
		{"sku", "a b/c?d&e=f#g%é+"}, {"dots", ".."}, {"host", "shop-1.example.com"}, {"evil", "evil.com/x"}, {"login", "u@evil.com"},
		{"url", "https://example.com/a?b=1 2"}, {"base", "https://example.com/p?x="}, {"empty", ""},
	}
	for _, test := range []struct {
		text  string
		mode  Mode
		want  string
		fault string
	}{
		{"{sku}-{{x}}", Plain, "a b/c?d&e=f#g%é+-{x}", ""},
		{"https://example.com/p/{sku}", URL, "https://example.com/p/a%20b%2Fc%3Fd&e=f%23g%25%C3%A9+", ""},
		{"https://example.com/p?q={sku}&r=1", URL, "https://example.com/p?q=a%20b%2Fc%3Fd%26e%3Df%23g%25%C3%A9%2B&r=1", ""},
		{"https://example.com/#/{sku}", URL, "https://example.com/#/a%20b%2Fc%3Fd%26e%3Df%23g%25%C3%A9%2B", ""},
		{"https://{host}/x", URL, "https://shop-1.example.com/x", ""},
		{"https://{host}:{empty}8080/", URL, "https://shop-1.example.com:8080/", ""},
		{"{url}", URL, "https://example.com/a?b=1 2", ""},
		{"{base}{sku}", URL, "https://example.com/p?x=a%20b%2Fc%3Fd%26e%3Df%23g%25%C3%A9%2B", ""},
		{"https://{evil}/", URL, "", `variable "evil": "evil.com/x" cannot stand in a host name`},
		{"https://{login}/", URL, "", `variable "login": "u@evil.com" cannot stand in a host name`},
		{"https://example.com/{dots}/x", URL, "", `variable "dots": ".." would change the path`},
		{"https://example.com/?p={dots}", URL, "https://example.com/?p=..", ""},
		{"{nope}", Plain, "", `variable "nope" is missing`},
	} {
		got, err := tmpl(t, test.text).Expand(vars, test.mode)
		fault := ""
		if err != nil {
			fault = err.Error()
		}
		if got != test.want || fault != test.fault {
			t.Errorf("Expand(%q) = %q, fault %q; want %q, %q", test.text, got, fault, test.want, test.fault)
		}
	}
}

func catalog(t *testing.T) Source {
	return Source{
		Name: "catalog", URL: tmpl(t, "https://example.com/p/{sku}"), Key: tmpl(t, "{sku}"), Country: tmpl(t, "{country}"), Scope: tmpl(t, "acme"),
		Identity: Identity{Country: true, Window: true, Scope: true, Parser: true}, ParserVersion: 3,
	}
}

// TestHostOf: all spellings of a host are one host, as net/http asks for it.
func TestHostOf(t *testing.T) {
	for text, want := range map[string]string{
		"http://Shop.Example/":               "shop.example",
		"http://shop.example:80/":            "shop.example",
		"https://shop.example:80/":           "shop.example:80",
		"http://[::1]:8080/":                 "[::1]:8080",
		"http://bücher.example/":             "xn--bcher-kva.example",
		"http://BÜCHER.example:80/":          "xn--bcher-kva.example",
		"http://b%C3%BCcher.example:8080/":   "xn--bcher-kva.example:8080",
		"http://bu\u0308cher.example/":       "xn--bcher-kva.example", // u and its dots
		"https://XN--bcher-kva.example:443/": "xn--bcher-kva.example",
		"http://ｓｈｏｐ。example/":               "shop.example",
		"http://straße.example/":             "xn--strae-oqa.example",  // not strasse: IDNA 2008
		"http://" + strings.Repeat("ü", 127): strings.Repeat("ü", 127), // no name, so it stays
		"http://a_b.example/":                "a_b.example",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := HostOf(u); got != want {
			t.Errorf("%s has the host %s, want %s", text, got, want)
		}
	}
}

// TestFollowHosts: a host that links may lead to is meant in all its spellings.
func TestFollowHosts(t *testing.T) {
	page, err := url.Parse("http://shop.example/")
	if err != nil {
		t.Fatal(err)
	}
	f := Follow{Hosts: []string{"xn--bcher-kva.example", "*.other.example"}}
	for text, want := range map[string]bool{
		"http://SHOP.example:80/x": true, "http://Bücher.example:8080/": true, "http://xn--bcher-kva.example/": true,
		"http://Www.Other.example/": true, "http://other.example/": false, "http://bucher.example/": false,
	} {
		link, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.allows(link, page); got != want {
			t.Errorf("a link to %s: %v, want %v", text, got, want)
		}
	}
}

func TestJob(t *testing.T) {
	s := catalog(t)
	window := time.Date(2026, 4, 23, 17, 0, 0, 5, time.FixedZone("", 7200))
	vars := Vars{{"sku", "sku 42"}, {"country", "us"}}
	got, err := s.Job(Target{Vars: vars, Line: 7}, window)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)
	want := Job{
		Key: storage.JobKey{Source: "catalog", Target: "sku 42", Country: "US", Window: start, Scope: "acme", Version: 3},
		URL: "https://example.com/p/sku%2042", Country: "US", Host: "example.com", Window: start, Scope: "acme", Vars: vars,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	s.Identity = Identity{}
	got, err = s.Job(Target{Vars: vars}, window)
	if err != nil {
		t.Fatal(err)
	}
	want.Key = storage.JobKey{Source: "catalog", Target: "sku 42"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts that do not count: %s", diff)
	}
}

// TestJobByURL: without a key the normalised URL names the target, and the URL
// that is sent stays as it was given.
func TestJobByURL(t *testing.T) {
	s := Source{Name: "s", ParserVersion: 1}
	const raw = "HTTPS://Example.com:443/a?b=1#top"
	first, err := s.Job(Target{Vars: Vars{{"url", raw}}}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if first.URL != raw || first.Key.Target != "https://example.com/a?b=1" {
		t.Errorf("URL %q has key %q", first.URL, first.Key.Target)
	}
	byHand := catalog(t)
	byHand.Key, byHand.Country = Template{}, Template{}
	second, err := byHand.Job(Target{URL: raw}, time.Time{})
	if err != nil || second.URL != raw || second.Key.Target != first.Key.Target {
		t.Errorf("by hand: %+v, %v", second, err)
	}
}

// A target named by hand: a URL that the source has no template for is its
// variable, a country goes before the source's.
func TestByHand(t *testing.T) {
	urls := Source{Name: "s", Key: tmpl(t, "{url}"), ParserVersion: 1, Identity: Identity{Country: true}}
	shop := catalog(t)
	for _, test := range []struct {
		source Source
		target Target
		want   string
	}{
		{urls, urls.ByHand("https://example.com/a", nil), "s:https%3A//example.com/a:-:-:-:-"},
		{shop, shop.ByHand("https://example.com/other", Vars{{"sku", "1"}, {"country", "us"}}), "catalog:1:US:-:acme:v3"},
		{shop, Target{Vars: Vars{{"sku", "1"}, {"country", "us"}}, Country: " de"}, "catalog:1:DE:-:acme:v3"},
		{shop, Target{Vars: Vars{{"sku", "1"}}, Country: "{x}"}, `country: "{X}" is not a two-letter country code`},
	} {
		job, err := test.source.Job(test.target, time.Time{})
		got := job.Key.String()
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: %s, want %s", test.target, got, test.want)
		}
	}
}

func TestJobFaults(t *testing.T) {
	long := strings.Repeat("x", MaxKeyBytes)
	for _, test := range []struct {
		name, url, key string
		vars           Vars
		want           string
	}{
		{"missing", "https://example.com/{sku}", "", nil, `url: variable "sku" is missing`},
		{"empty in url", "https://example.com/{sku}", "k", Vars{{"sku", " "}}, `url: variable "sku" is empty`},
		{"empty in key", "https://example.com/", "{sku}", Vars{{"sku", ""}}, `key: variable "sku" is empty`},
		{"no url", "", "k", Vars{{"sku", "1"}}, `url: variable "url" is missing`},
		{"empty url", "", "k", Vars{{"url", ""}}, `url: is not absolute: it must start with http:// or https://`},
		{"relative", "", "", Vars{{"url", "/a"}}, "url: is not absolute: it must start with http:// or https://"},
		{"scheme", "", "", Vars{{"url", "file:///etc/passwd"}}, `url: scheme "file" is neither http nor https`},
		{"no host", "", "", Vars{{"url", "http:///a"}}, "url: has no host"},
		{"endless host", "", "", Vars{{"url", "http://" + strings.Repeat("a", 300) + "/"}}, "url: host of 300 bytes, a name has at most 253"},
		{"opaque", "", "", Vars{{"url", "http:a"}}, "url: has no host"},
		{"login", "", "", Vars{{"url", "http://u:hunter2@example.com/"}}, "url: holds a user name or password"},
		{"bad login", "", "", Vars{{"url", "http://u:hun%ter2@example.com/"}}, "url: is not a URL"},
		{"space", "", "", Vars{{"url", "http://example.com/a b"}}, "url: holds a space or a control character"},
		{"control", "", "", Vars{{"url", "http://example.com/\x00"}}, "url: holds a space or a control character"},
		{"port", "", "", Vars{{"url", "http://example.com:70000/"}}, "url: port 70000 is not between 1 and 65535"},
		{"utf-8", "https://example.com/", "k", Vars{{"sku", "\xff"}}, `variable "sku" is not UTF-8`},
		{"country", "https://example.com/", "k", Vars{{"country", "USA"}}, `country: "USA" is not a two-letter country code`},
		{"long", "https://example.com/", "{sku}", Vars{{"sku", long}, {"country", ""}}, "the key has 8202 bytes, more than 8192"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := Source{Name: "s", URL: tmpl(t, test.url), Key: tmpl(t, test.key), ParserVersion: 1}
			if _, ok := test.vars.Get("country"); ok {
				s.Country = tmpl(t, "{country}")
			}
			_, err := s.Job(Target{Vars: test.vars, File: "f.csv", Line: 3}, time.Time{})
			bad, ok := errors.AsType[*RowError](err)
			if !ok {
				t.Fatalf("Job = %v, want a *RowError", err)
			}
			if bad.Reason != test.want || bad.File != "f.csv" || bad.Line != 3 {
				t.Errorf("Job = %v\nwant %s", bad, test.want)
			}
		})
	}
}

func TestKeyLimit(t *testing.T) {
	s := Source{Name: "s", URL: tmpl(t, "https://example.com/"), Key: tmpl(t, "{k}"), ParserVersion: 1}
	for n, ok := range map[int]bool{MaxKeyBytes - len("s::-:-:-:-"): true, MaxKeyBytes - len("s::-:-:-:-") + 1: false} {
		job, err := s.Job(Target{Vars: Vars{{"k", strings.Repeat("x", n)}}}, time.Time{})
		if (err == nil) != ok {
			t.Errorf("%d bytes of target, %d of key: %v", n, len(job.Key.String()), err)
		}
	}
}

func TestRowErrorText(t *testing.T) {
	for want, err := range map[string]RowError{
		"a.csv:3: x": {"a.csv", 3, "x"}, "a.csv: x": {"a.csv", 0, "x"}, "line 3: x": {"", 3, "x"}, "x": {"", 0, "x"},
	} {
		if err.Error() != want {
			t.Errorf("%+v reads %q", err, err.Error())
		}
	}
}

func TestKeyParts(t *testing.T) {
	s := catalog(t)
	s.Identity = Identity{Country: true}
	job, err := s.Job(Target{Vars: Vars{{"sku", "42"}, {"country", "US"}}}, time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	want := []KeyPart{
		{"source", "catalog", "[source.catalog]", true},
		{"target", "42", `key = "{sku}"`, true},
		{"country", "US", `country = "{country}"`, true},
		{"window", "2026-04-23T15:00:00Z", "none: the source has no schedule", false},
		{"scope", "acme", `scope = "acme"`, false},
		{"parser", "v3", "parser.version = 3", false},
	}
	if diff := cmp.Diff(want, s.KeyParts(job)); diff != "" {
		t.Error(diff)
	}
	plain := Source{Name: "s", ParserVersion: 1}
	parts := plain.KeyParts(Job{})
	if parts[1].Setting != "the normalised URL, since there is no key" || parts[2].Setting != "country (not set)" || parts[3].Value != "" {
		t.Errorf("parts without settings: %+v", parts)
	}
}
