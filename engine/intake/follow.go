package intake

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	// DefaultMaxDepth is how many links from its source's target a followed job
	// may be: the pages of a long listing, and not a whole site by mistake.
	DefaultMaxDepth = 50
	// MostDepth is the largest depth that the store can count.
	MostDepth = 1<<16 - 1
)

// Follow says which links of a source's pages become jobs, and of which source.
// It is not changed once made.
type Follow struct {
	To       *Source
	Match    *regexp.Regexp // of the whole link's text; its named groups are variables; nil: any link
	MaxDepth int            // links from the source's own target, from 1 to MostDepth
	Hosts    []string       // names besides the page's own host; "*.example.com" is every host below that one
}

// Groups are the variables that Match gives, in order.
func (f *Follow) Groups() []string {
	if f.Match == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.Match.SubexpNames()), func(name string) bool { return name == "" })
}

// Expands reports whether the other source's template makes the URL of a job
// from the variables of Match; else the link is the URL.
func (f *Follow) Expands() bool { return len(f.Groups()) > 0 && !f.To.URL.IsZero() }

// Target is what a link becomes that stands on a page (its final URL) of a
// target with some variables; false where it is not followed. Its variables are
// those of Match, the link as url, and the page's own where these have no such
// name.
func (f *Follow) Target(link string, page *url.URL, vars Vars) (Target, bool) {
	u, err := url.Parse(link)
	if err != nil || !f.allows(u, page) {
		return Target{}, false
	}
	found := Vars{}
	if f.Match != nil {
		at := f.Match.FindStringSubmatchIndex(link)
		if at == nil {
			return Target{}, false
		}
		found = f.captured(link, at)
	}
	if _, named := found.Get("url"); !named {
		found = append(found, Var{"url", link})
	}
	t := Target{Vars: found.over(vars)}
	if !f.Expands() {
		t.URL = link
	}
	return t, true
}

// allows reports whether a link leads to a host that may be followed to.
func (f *Follow) allows(link, page *url.URL) bool {
	if HostOf(link) == HostOf(page) {
		return true
	}
	name := (&url.URL{Host: HostOf(link)}).Hostname()
	return slices.ContainsFunc(f.Hosts, func(host string) bool {
		below, wild := strings.CutPrefix(host, "*")
		return host == name || wild && strings.HasSuffix(name, below)
	})
}

// captured are the named groups of a match, decoded from how they stand in the
// URL. A group that took no part in the match is empty.
func (f *Follow) captured(link string, at []int) Vars {
	query := strings.IndexByte(link, '?')
	vars := Vars{}
	for i, name := range f.Match.SubexpNames() {
		if name == "" {
			continue
		}
		text := ""
		if from := at[2*i]; from >= 0 {
			text = decoded(link[from:at[2*i+1]], query >= 0 && from > query)
		}
		vars = append(vars, Var{name, text})
	}
	return vars
}

// decoded undoes the percent-encoding of a part of a URL; one that is cut in the
// middle of it stays.
func decoded(text string, query bool) string {
	undo := url.PathUnescape
	if query {
		undo = url.QueryUnescape
	}
	if plain, err := undo(text); err == nil {
		return plain
	}
	return text
}

// over are the variables v, and of others those of no such name.
func (v Vars) over(others Vars) Vars {
	for _, o := range others {
		if _, ok := v.Get(o.Name); !ok {
			v = append(v, o)
		}
	}
	return v
}
