package scaffold

import (
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/text/language"

	"semel/engine/intake"
	"semel/parser"
)

// Placeholder stands for the address of a saved page that does not say its own.
const Placeholder = "https://www.example.com/"

// maxAddress is the longest canonical link that is taken for one. Browsers and
// servers stop at some 2,000 characters.
const maxAddress = 2000

// canonical is the address that a page gives as its own, Placeholder where that
// is none that can be asked for.
func canonical(root *html.Node) string {
	for n := range elements(root) {
		if n.Data != "link" || !hasWord(attr(n, "rel"), "canonical") {
			continue
		}
		address := strings.TrimSpace(attr(n, "href"))
		if _, err := parser.NormalizeURL(address); err == nil && intake.CheckURL(address) == nil && len(address) <= maxAddress {
			return address
		}
	}
	return Placeholder
}

// notOfNames is what a source's name cannot hold.
var notOfNames = regexp.MustCompile(`[^a-z0-9]+`)

// sourceName makes the name of a source of a page's host.
func sourceName(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "page"
	}
	host := strings.TrimPrefix(strings.ToLower(u.Hostname()), "www.")
	name := strings.Trim(notOfNames.ReplaceAllString(host, "_"), "_")
	if name == "" {
		return "page"
	}
	return name
}

// languageOf is the language that a page says it is in.
func languageOf(root *html.Node) string {
	for n := range elements(root) {
		if n.Data != "html" {
			continue
		}
		tag, err := language.Parse(strings.TrimSpace(attr(n, "lang")))
		if err != nil || tag == language.Und {
			return ""
		}
		return tag.String()
	}
	return ""
}

// numberedURL is an address that ends with a number, which is all of its path's
// last part or of a parameter called for it, and has no other number behind its
// host that could be the one.
var numberedURL = regexp.MustCompile(`^(https?://[^/?#{}]+/(?:[^0-9?#{}]*/|[^0-9#{}]*[?&](?:[a-z]*_?id|sku|item|product|p)=)?)([0-9]+)(/|\.[a-z]+|&[^0-9#{}]*)?$`)

// numbered is an address as a template over the number in it, and the number; ""
// where there is none.
func numbered(address string) (template, id string) {
	m := numberedURL.FindStringSubmatch(address)
	if m == nil {
		return "", ""
	}
	return m[1] + "{id}" + m[3], m[2]
}
