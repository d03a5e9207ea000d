package delivery

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// reasonBytes is how long a reason gets: it is kept with each event.
	reasonBytes = 240
	// minHidden is the length from which a part of a URL or a header may be a
	// secret: shorter ones are words that reasons are full of.
	minHidden = 6
)

// hider takes the path and the query of a URL, which may be all that keeps others
// from writing there, and the values of headers out of texts: consumers like to
// say in an error what they were asked.
func hider(u *url.URL, h http.Header) *strings.Replacer {
	texts := append(strings.Split(u.Path, "/"), strings.Split(u.EscapedPath(), "/")...)
	texts = append(texts, u.RequestURI(), u.Path, u.EscapedPath(), u.RawQuery)
	for _, values := range u.Query() {
		texts = append(texts, values...)
	}
	texts = append(texts, strings.FieldsFunc(u.RawQuery, func(r rune) bool { return r == '&' || r == '=' })...)
	for _, values := range h {
		for _, value := range values {
			texts = append(append(texts, value), strings.Fields(value)...)
		}
	}
	// Of two that begin alike the longer one goes first.
	slices.SortFunc(texts, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, text := range texts {
		if len(text) >= minHidden {
			pairs = append(pairs, text, "[hidden]")
		}
	}
	return strings.NewReplacer(pairs...)
}

// signingSecret is what a secret of Standard Webhooks looks like. Whose it is does
// not matter: none is fit to be kept.
var signingSecret = regexp.MustCompile(secretPrefix + `[A-Za-z0-9+/=_-]+`)

// clean makes a text of somebody else's fit to be kept and shown: on one line,
// short, and without what only the consumer may see.
func (w *Webhook) clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, signingSecret.ReplaceAllLiteralString(w.hide.Replace(text), "[hidden]"))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > reasonBytes {
		text = strings.ToValidUTF8(text[:reasonBytes], "") + "…"
	}
	return text
}
