package proxy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"
)

// preset is one provider's syntax and its gateway's language. Its zero fields
// say "no such thing", or what their comments say.
type preset struct {
	name     string
	url      string // the gateway unless the config names another
	username string // template
	password string // template

	// The templates of a session that fails with its exit, where they differ
	// from the others.
	strictUsername string
	strictPassword string

	country    countryForm
	exceptions map[string]string // countries that the provider spells in a way of its own, by ISO code

	sessionAlphabet string
	sessionLength   int

	ttlUnit   time.Duration // what {ttl} counts, rounded up; 0: minutes
	ttlSuffix string        // stands after the number
	maxKeep   time.Duration // longest that an exit can be kept; 0: not known

	marks      []string // headers in which its gateway alone gives an error's code; the first present counts
	rules      []rule   // what its gateway's errors mean, before commonRules
	exitHeader string   // shows the exit's address in the gateway's answers

	deadExit string // what becomes of a session whose exit dies; for people
	doc      string // where all this was read, and whether it was tried against the gateway; for people
}

// countryForm is how a provider spells a country.
type countryForm int

const (
	countryUpper countryForm = iota // US
	countryLower                    // us
	countryName                     // UnitedStates: English name without spaces
)

// Session ids of lower-case letters and digits, eight long, fit every provider
// whose rule is known and that takes letters; eight digits fit the others.
const (
	lowerAlnum    = "abcdefghijklmnopqrstuvwxyz0123456789"
	digits        = "123456789" // without the one that no number begins with
	sessionLength = 8
)

// custom is the syntax of a gateway of the user's own. It may be that of any
// provider, so the marks and signs of all count.
var custom = preset{
	username:        "{username}",
	password:        "{password}",
	sessionAlphabet: lowerAlnum,
	sessionLength:   sessionLength,
	marks:           slices.Concat(brightdataMarks, oxylabsMarks),
	rules:           slices.Concat(brightdataRules, dataimpulseRules, oxylabsRules),
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

// spellCountry writes a parsed country as the provider wants it. It is false
// where that is not known for certain: a name that a gateway does not know may
// give an exit in any country.
func (p preset) spellCountry(code string) (string, bool) {
	if own, exception := p.exceptions[code]; exception {
		return own, true
	}
	switch p.country {
	case countryLower:
		return strings.ToLower(code), true
	case countryName:
		return englishName(code)
	}
	return code, true
}

// englishName is false for names that are not plain words.
func englishName(code string) (string, bool) {
	name := display.English.Regions().Name(language.MustParseRegion(code))
	name = strings.TrimSuffix(name, " SAR China")
	name = strings.ReplaceAll(name, " ", "")
	foreign := func(r rune) bool { return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') }
	return name, name != "" && !strings.ContainsFunc(name, foreign)
}

// spellTTL writes how long an exit is to be kept, "" for 0.
func (p preset) spellTTL(keep time.Duration) string {
	if keep <= 0 {
		return ""
	}
	unit := cmp.Or(p.ttlUnit, time.Minute)
	return strconv.FormatInt(int64((keep+unit-1)/unit), 10) + p.ttlSuffix
}
