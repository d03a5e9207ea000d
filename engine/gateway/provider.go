package gateway

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// provider is how the gateway of one provider reads a login, and what it
// answers where it has no exit. It is written from the providers' own
// documents, and shares nothing with package proxy, which writes logins: where
// the two agree, it is not because one copied the other.
type provider struct {
	prefix     string // of every user name; the account's may have it already
	inPassword bool   // parameters follow the password, else the user name
	read       func(l *Login, parameters string) bool

	noExit   Fault // no exit in the country
	lostExit Fault // the exit of a strict session is gone
}

// providers by name.
var providers = map[string]provider{
	"packetstream": {
		inPassword: true,
		read:       packetstream,
	},
	"brightdata": {
		prefix:   "brd-customer-",
		read:     brightdata,
		noExit:   Fault{Status: http.StatusBadGateway, Header: http.Header{"X-Brd-Err-Code": {"peer_30030"}}},
		lostExit: Fault{Header: http.Header{"X-Brd-Err-Msg": {"server_error Failed to establish connection with peer"}}},
	},
	"oxylabs": {
		prefix: "customer-",
		read: sequence("-", parameters{
			"cc": country(isoEither), "st": place, "city": place, "zip": place, "asn": place,
			"sessid": session(alnum), "sessid_oneip": strictly(session(alnum)), "sesstime": units(time.Minute, 1440),
		}),
		noExit:   Fault{Status: http.StatusBadGateway, Header: http.Header{"X-Error-Description": {"Exit node not found"}}},
		lostExit: Fault{Header: http.Header{"X-Error-Description": {"Session failed, start a new session"}}},
	},
	"decodo": {
		prefix: "user-",
		read: sequence("-", parameters{
			"country": country(isoLower), "state": place, "city": place, "zip": place, "asn": place,
			"session": session(alnum), "session_iplock": strictly(session(alnum)), "sessionduration": units(time.Minute, 1440),
		}),
	},
	"iproyal": {
		inPassword: true,
		read: pairs("_", "-", parameters{
			"country": country(isoLower), "state": place, "city": place,
			"session": session(eightAlnum), "lifetime": lifetime("smhd", 7*24*time.Hour),
		}),
	},
	"soax": {
		prefix: "package-",
		read: sequence("-", parameters{
			"country": country(isoLower), "region": place, "city": place, "isp": place,
			"sessionid": session(alnum), "sessionlength": units(time.Second, 86400), "bindttl": place, "idlettl": place,
		}),
	},
	"netnut": {
		read:   netnut,
		noExit: Fault{Status: 490},
	},
	"webshare": {
		read: webshare,
	},
	"infatica": {
		read: sequence("_", parameters{
			"c": country(isoUpper), "sd": place, "city": place, "zip": place, "asn": place, "isp": place,
			"s": session(alnum), "ttl": lifetime("smh", 240*time.Hour), "rotm": rotation,
		}),
	},
	"rayobyte": {
		inPassword: true,
		read: sequence("-", parameters{
			"country": country(isoUpper), "region": place, "city": place, "session": session(alnum),
		}),
	},
	"proxyrack": {
		read: pairs(";", "=", parameters{
			"country": country(isoUpper), "city": place, "isp": place, "osName": place, "proxyIp": place,
			"session": session(uuid), "refreshMinutes": units(time.Minute, 60),
		}),
	},
	"evomi": {
		inPassword: true,
		read:       evomi,
	},
	"dataimpulse": {
		read:   dataimpulse,
		noExit: Fault{Body: "NO_RAY"},
	},
}

// Providers are the names that Options.Provider takes, sorted.
func Providers() []string { return slices.Sorted(maps.Keys(providers)) }

// decode reads a login of an account.
func (p provider) decode(account, key, username, password string) (Login, bool) {
	name := p.prefix + strings.TrimPrefix(account, p.prefix)
	var rest string
	var ok bool
	switch {
	case p.inPassword && username == name:
		rest, ok = strings.CutPrefix(password, key)
	case !p.inPassword && password == key:
		rest, ok = strings.CutPrefix(username, name)
	}
	var l Login
	ok = ok && (rest == "" || p.read(&l, rest))
	return l, ok
}

// A parameter takes a value into a login, or refuses it.
type parameter func(l *Login, value string) bool

type parameters map[string]parameter

// pairs reads parameters such as "_country-us_session-x": before stands before
// each, within between its name and its value.
func pairs(before, within string, known parameters) func(*Login, string) bool {
	return func(l *Login, text string) bool {
		text, ok := strings.CutPrefix(text, before)
		if !ok {
			return false
		}
		for pair := range strings.SplitSeq(text, before) {
			name, value, _ := strings.Cut(pair, within)
			if set := known[name]; set == nil || !set(l, value) {
				return false
			}
		}
		return true
	}
}

// sequence reads parameters such as "-country-us-session-x": one sign stands
// before names and values alike.
func sequence(sign string, known parameters) func(*Login, string) bool {
	return func(l *Login, text string) bool {
		tokens := strings.Split(text, sign)
		if tokens[0] != "" || len(tokens)%2 == 0 {
			return false
		}
		for pair := range slices.Chunk(tokens[1:], 2) {
			if set := known[pair[0]]; set == nil || !set(l, pair[1]) {
				return false
			}
		}
		return true
	}
}

var (
	isoLower   = regexp.MustCompile(`^[a-z]{2}$`)
	isoUpper   = regexp.MustCompile(`^[A-Z]{2}$`)
	isoEither  = regexp.MustCompile(`^([a-z]{2}|[A-Z]{2})$`)
	alnum      = regexp.MustCompile(`^[A-Za-z0-9]+$`)
	eightAlnum = regexp.MustCompile(`^[A-Za-z0-9]{8}$`)
	sixToTen   = regexp.MustCompile(`^[A-Za-z0-9]{6,10}$`)
	digits     = regexp.MustCompile(`^[0-9]+$`)
	uuid       = regexp.MustCompile(`^[A-Za-z0-9-]+$`)
)

func country(form *regexp.Regexp) parameter {
	return func(l *Login, value string) bool {
		l.Country = strings.ToUpper(value)
		return form.MatchString(value)
	}
}

func session(form *regexp.Regexp) parameter {
	return func(l *Login, value string) bool {
		l.Session = value
		return form.MatchString(value)
	}
}

// strictly is a parameter whose session fails rather than change its exit.
func strictly(set parameter) parameter {
	return func(l *Login, value string) bool {
		l.Strict = true
		return set(l, value)
	}
}

// units is a time as a bare number of units, from 1 to most.
func units(unit time.Duration, most int) parameter {
	return func(l *Login, value string) bool {
		n, err := strconv.Atoi(value)
		l.TTL = time.Duration(n) * unit
		return err == nil && 1 <= n && n <= most
	}
}

// lifetime is a time with one of the given unit letters behind it, to a limit.
func lifetime(letters string, most time.Duration) parameter {
	length := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	return func(l *Login, value string) bool {
		if value == "" || !strings.Contains(letters, value[len(value)-1:]) {
			return false
		}
		last := len(value) - 1
		unit := length[value[last]]
		return units(unit, int(most/unit))(l, value[:last])
	}
}

// place is a parameter that narrows the choice of exits: this gateway takes it
// and has the same exits everywhere.
func place(_ *Login, value string) bool { return value != "" }

// countryNames are the countries that are known by name, as they are seen in
// logins.
var countryNames = map[string]string{
	"UnitedStates": "US", "UnitedKingdom": "GB", "Germany": "DE", "France": "FR", "Egypt": "EG", "Italy": "IT",
	"Spain": "ES", "Canada": "CA", "Brazil": "BR", "India": "IN", "Japan": "JP", "SouthKorea": "KR",
	"Australia": "AU", "NewZealand": "NZ", "HongKong": "HK", "Turkey": "TR",
}

func countryName(l *Login, value string) bool {
	l.Country = countryNames[value]
	return l.Country != ""
}

// packetstream has no sessions but strict ones.
func packetstream(l *Login, text string) bool {
	return pairs("_", "-", parameters{"country": countryName, "session": strictly(session(eightAlnum))})(l, text)
}

// brightdata has a flag without a value at the end.
func brightdata(l *Login, text string) bool {
	text, l.Strict = strings.CutSuffix(text, "-const")
	read := sequence("-", parameters{
		"country": country(isoLower), "state": place, "city": place, "zip": place, "asn": place, "ip": place,
		"session": session(alnum),
	})
	return (text == "" || read(l, text)) && (l.Session != "" || !l.Strict)
}

// netnut wants a country in every login, where any is one too, and calls the
// United Kingdom uk.
func netnut(l *Login, text string) bool {
	res := func(l *Login, value string) bool {
		switch value {
		case "any":
			return true
		case "uk":
			value = "gb"
		case "gb":
			return false
		}
		return country(isoLower)(l, value)
	}
	city := func(l *Login, value string) bool {
		code, name, _ := strings.Cut(value, "_")
		return name != "" && res(l, code)
	}
	read := sequence("-", parameters{"res": res, "res_sc": city, "sid": session(alnum)})
	return strings.HasPrefix(text, "-res") && read(l, text)
}

// webshare goes by the order: countries, of which this gateway takes the
// first, a city, and at the end a session or the word rotate.
func webshare(l *Login, text string) bool {
	tokens := strings.Split(text, "-")
	if tokens[0] != "" {
		return false
	}
	for i, token := range tokens[1:] {
		last := i == len(tokens)-2
		switch {
		case isoLower.MatchString(token):
			if l.Country == "" {
				l.Country = strings.ToUpper(token)
			}
		case strings.HasPrefix(token, "city_") && l.Country != "":
		case last && token == "rotate":
		case last && digits.MatchString(token):
			l.Session = token
		default:
			return false
		}
	}
	return true
}

// rotation of the Infatica family: at once, after 5 s, or never.
func rotation(l *Login, value string) bool {
	l.Strict = value == "2"
	return value == "0" || value == "1" || value == "2"
}

// evomi takes some countries by name, and keeps a hard session for as long as
// it can: no lifetime goes with that.
func evomi(l *Login, text string) bool {
	byEither := func(l *Login, value string) bool { return country(isoUpper)(l, value) || countryName(l, value) }
	read := pairs("_", "-", parameters{
		"country": byEither, "region": place, "city": place, "mode": place,
		"session": session(sixToTen), "hardsession": session(sixToTen), "lifetime": units(time.Minute, 120),
	})
	return read(l, text) && (l.TTL == 0 || !strings.Contains(text, "_hardsession-"))
}

// dataimpulse begins its parameters with a sign of their own.
func dataimpulse(l *Login, text string) bool {
	text, ok := strings.CutPrefix(text, "__")
	return ok && pairs(";", ".", parameters{
		"cr": country(isoLower), "state": place, "city": place, "zip": place, "asn": place,
		"sessid": session(alnum), "sessttl": units(time.Minute, 120),
	})(l, ";"+text)
}
