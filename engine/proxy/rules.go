package proxy

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"

	"semel/storage"
)

// Answer is what a gateway itself said, to CONNECT or in a site's place.
type Answer struct {
	SOCKS  bool        // Status is a reply as RFC 1928 §6 numbers them, or -1 for a refused login; else it is HTTP's
	Status int         // 2xx, too: an error's mark in the header makes it an error
	Reason string      // what the status line says beside the number
	Header http.Header // nil is none
	Body   string      // its explanation; the first 2 KiB count
	Worked bool        // the session had brought a site's answer before
}

// explanation is how much of a body is read for signs.
const explanation = 2 << 10

// rule is one kind of a gateway's answer. Its zero fields match all.
type rule struct {
	status   int            // the first or only one
	last     int            // of a range that begins with status; 0: there is none
	says     *regexp.Regexp // in the gateway's own code, else in the reason or the body
	worked   bool           // only in a session that had worked
	category storage.Category
}

// says is a rule for answers with a certain sign, whatever their status.
func says(sign string, category storage.Category) rule {
	return rule{says: regexp.MustCompile(sign), category: category}
}

// commonRules are the readings that most providers share, those of the public
// servers squid and tinyproxy among them. The last one matches all.
var commonRules = []rule{
	{status: 407, category: storage.CategoryProxyAuth},
	{status: 401, category: storage.CategoryProxyAuth}, // tinyproxy's answer to a wrong password
	{status: 402, category: storage.CategoryProxyQuota},
	{status: 429, category: storage.CategoryProxyLimited},
	{status: 490, category: storage.CategoryExitUnavailable},
	{status: 525, category: storage.CategoryExitUnavailable},
	says(`^ERR_DNS_FAIL\b`, storage.CategoryDNS), // squid, though it seldom says so
	{status: 502, worked: true, category: storage.CategorySessionLost},
	{status: 408, category: storage.CategoryExitConnect},
	{status: 499, category: storage.CategoryExitConnect},
	{status: 500, last: 599, category: storage.CategoryExitConnect},
	{status: 200, last: 299, category: storage.CategoryExitConnect}, // a mark that no rule knows
	{category: storage.CategoryProxyDenied},
}

// socksRules are the readings of SOCKS5 replies. The last one matches all.
var socksRules = []rule{
	{status: -1, category: storage.CategoryProxyAuth},
	{status: 1, category: storage.CategoryExitUnavailable}, // general failure
	{status: 2, category: storage.CategoryProxyDenied},     // not allowed by the ruleset
	{status: 6, category: storage.CategoryExitUnavailable}, // TTL expired
	{status: 3, last: 5, worked: true, category: storage.CategorySessionLost},
	{status: 3, last: 5, category: storage.CategoryExitConnect}, // network or host unreachable, refused
	{category: storage.CategoryProxyUnreachable},
}

// Classify is the one map from a gateway's own answer to a category. The
// provider's rules come first, then those that most share. The zero Endpoint
// reads an answer as that of a gateway of the user's own.
func (e Endpoint) Classify(a Answer) storage.Category {
	rules := socksRules
	if !a.SOCKS {
		rules = slices.Concat(e.preset().rules, commonRules)
	}
	signs := []string{e.Code(a.Header), a.Reason, a.Body[:min(len(a.Body), explanation)]}
	i := slices.IndexFunc(rules, func(r rule) bool { return r.matches(a, signs) })
	return rules[i].category
}

func (r rule) matches(a Answer, signs []string) bool {
	switch {
	case r.status != 0 && (a.Status < r.status || a.Status > cmp.Or(r.last, r.status)):
		return false
	case r.worked && !a.Worked:
		return false
	}
	return r.says == nil || slices.ContainsFunc(signs, r.says.MatchString)
}
