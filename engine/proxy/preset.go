package proxy

import (
	"slices"
	"strings"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"
)

// preset is one provider's syntax.
type preset struct {
	name     string
	url      string // the gateway unless the config names another
	username string // template
	password string // template
	country  countryForm

	sessionAlphabet string
	sessionLength   int

	doc string // where the syntax was read, and whether it was tried against the gateway
}

// countryForm is how a provider spells a country.
type countryForm int

const (
	countryISO2 countryForm = iota // US
	countryName                    // UnitedStates: English name without spaces
)

// Session ids of lower-case letters and digits, eight long, fit every provider
// whose rule is known and that takes letters.
const (
	lowerAlnum    = "abcdefghijklmnopqrstuvwxyz0123456789"
	sessionLength = 8
)

// presets are the known providers, by name.
var presets = []preset{
	{
		name:            "packetstream",
		url:             "http://proxy.packetstream.io:31112",
		username:        "{username}",
		password:        "{password}[_country-{country}][_session-{session}]",
		country:         countryName,
		sessionAlphabet: lowerAlnum,
		sessionLength:   sessionLength,
		doc: "not verified; ports: github.com/packetstream/packetstream-examples; " +
			"suffixes on the password: public code of third parties that agrees",
	},
}

// custom is the syntax of a gateway of the user's own.
var custom = preset{
	username:        "{username}",
	password:        "{password}",
	country:         countryISO2,
	sessionAlphabet: lowerAlnum,
	sessionLength:   sessionLength,
}

// Providers returns the names of the known providers, sorted.
func Providers() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.name
	}
	slices.Sort(names)
	return names
}

func findPreset(name string) (preset, bool) {
	if name == "" {
		return custom, true
	}
	i := slices.IndexFunc(presets, func(p preset) bool { return p.name == name })
	if i < 0 {
		return preset{}, false
	}
	return presets[i], true
}

// parseCountry returns the upper-case ISO 3166 two-letter code, or false if
// there is no such country.
func parseCountry(code string) (string, bool) {
	code = strings.ToUpper(code)
	if len(code) != 2 {
		return "", false
	}
	region, err := language.ParseRegion(code)
	if err != nil || !region.IsCountry() || region.Canonicalize() != region {
		return "", false
	}
	return code, true
}

// spell writes a parsed country in the form f. It is false where that form is
// not known for certain: a name that a gateway does not know may give an exit
// in any country.
func (f countryForm) spell(code string) (string, bool) {
	if code == "" || f == countryISO2 {
		return code, true
	}
	name := display.English.Regions().Name(language.MustParseRegion(code))
	name = strings.TrimSuffix(name, " SAR China")
	name = strings.ReplaceAll(name, " ", "")
	foreign := func(r rune) bool { return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') }
	return name, name != "" && !strings.ContainsFunc(name, foreign)
}
