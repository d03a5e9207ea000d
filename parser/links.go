package parser

import (
	"fmt"
	"net/url"
	"strings"
)

const (
	// MaxLinks is how many links one page may have, all lists of Output.Links
	// together. Real listings have some hundreds; all of them are written in one
	// transaction.
	MaxLinks = 10_000
	// longestLink is the longest link that is one, in bytes. Servers take
	// request lines of some 8 KB.
	longestLink = 8192
)

// compileLinks compiles what selects links.
func (c *compiler) compileLinks(r *Rules) {
	for i, css := range c.spec.Links {
		sel, err := compileCSS(css, "href")
		if err != nil {
			c.fault(fmt.Sprintf("links[%d]", i), css, err)
		}
		r.links = append(r.links, sel)
	}
}

// readLinks adds the page's links to out.
func (r *Rules) readLinks(p *page, out *Output) error {
	if len(r.links) == 0 {
		return nil
	}
	base, err := p.linkBase()
	if err != nil {
		return locate(err, "", -1)
	}
	if len(base.String()) > longestLink { // joined to each link it would cost its square
		return locate(invalid("", "the URL that links are relative to is longer than %d bytes", longestLink), "", -1)
	}
	out.Links = make([][]string, len(r.links))
	left := MaxLinks
	for i, sel := range r.links {
		l := linkList{base: base, left: left, seen: map[string]bool{}}
		if err := l.read(sel, p); err != nil {
			return locate(err, "", -1)
		}
		out.Links[i], left = l.urls, l.left
		out.BadLinks += l.bad
	}
	return nil
}

// linkList gathers the links of one selector.
type linkList struct {
	base *url.URL
	left int // how many more there may be
	urls []string
	seen map[string]bool
	bad  int
}

func (l *linkList) read(sel selector, p *page) (err error) {
	defer recovered(&err)
	err = sel.find(&scope{page: p}, func(m match) bool {
		l.add(m.text)
		return l.left >= 0
	})
	if err == nil && l.left < 0 {
		err = invalid("", "the page has more than %d links to follow", MaxLinks)
	}
	return err
}

// add takes in what stands in an element's href. A link to a place on the page
// itself leads nowhere, and one of another scheme to no page: they are passed
// over.
func (l *linkList) add(href string) {
	href = strings.TrimSpace(href)
	if href == "" || href[0] == '#' || otherScheme(href) {
		return
	}
	link := ""
	if len(href) <= longestLink {
		if u, err := resolve(l.base, href); err == nil && u.User == nil {
			u.Fragment, u.RawFragment = "", ""
			link = u.String()
		}
	}
	switch {
	case link == "" || len(link) > longestLink:
		l.bad++
	case !l.seen[link]:
		l.seen[link] = true
		l.urls = append(l.urls, link)
		l.left--
	}
}

// otherScheme reports whether a link names a scheme that leads to no page, such
// as mailto:.
func otherScheme(href string) bool {
	scheme, _, found := strings.Cut(href, ":")
	if !found || strings.ContainsAny(scheme, "/?#") || scheme == "" {
		return false // the colon stands in a path
	}
	scheme = strings.ToLower(strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(scheme))
	return scheme != "http" && scheme != "https"
}
