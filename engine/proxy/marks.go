package proxy

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// commonMarks are headers in which gateways that anybody can run give an
// error's code.
var commonMarks = []string{"X-Squid-Error"}

// proxyStatus finds the details and error of RFC 9209's Proxy-Status. Without
// an error it is a note of any cache on the way.
var (
	proxyStatusDetails = regexp.MustCompile(`(?i)\bdetails="([^":]{1,64})`)
	proxyStatusError   = regexp.MustCompile(`(?i)\berror="?([a-z0-9_]{1,64})`)
)

// shownLimit is the longest text that is kept of a gateway's header, in bytes.
const shownLimit = 100

// Code reads the gateway's own error code from the header of an answer to
// CONNECT or to a request over plain http; "" where none marks it as the
// gateway's own error. Inside a tunnel a header is the site's and says nothing
// of the gateway. No code holds the login.
func (e Endpoint) Code(h http.Header) string {
	for _, name := range slices.Concat(e.preset().marks, commonMarks) {
		if value := h.Get(name); strings.TrimSpace(value) != "" {
			return shorten(e.Redact(value)) // in this order: half a login is none that Redact finds
		}
	}
	if status := h.Values("Proxy-Status"); len(status) > 0 {
		return proxyStatusCode(e.Redact(strings.Join(status, ", ")))
	}
	return ""
}

// proxyStatusCode reads a Proxy-Status: what stands before the colon in its
// details, else its error.
func proxyStatusCode(text string) string {
	failed := proxyStatusError.FindStringSubmatch(text)
	if failed == nil {
		return ""
	}
	if details := proxyStatusDetails.FindStringSubmatch(text); details != nil {
		return details[1]
	}
	return failed[1]
}

// Owns reports whether an answer over plain http is the gateway's own rather
// than the site's. There is no structural way to tell: these are the statuses
// that only gateways use, and marks that only gateways set.
func (e Endpoint) Owns(status int, h http.Header) bool {
	if e.Code(h) != "" {
		return true
	}
	switch status {
	case http.StatusPaymentRequired, http.StatusProxyAuthRequired, 490, 499:
		return true
	case 522, 525:
		return h.Get("Cf-Ray") == "" // Cloudflare's own statuses
	}
	if status < http.StatusBadRequest {
		return false
	}
	return len(h.Values("Proxy-Authenticate")) > 0 || strings.HasPrefix(h.Get("Server"), "tinyproxy/")
}

// ExitIP is what the gateway shows of the exit that it used: its address, or a
// text in its place that changes with it; "" where the provider shows none.
// The header must be one as for Code.
func (e Endpoint) ExitIP(h http.Header) string { return shorten(h.Get(e.preset().exitHeader)) }

// shorten makes a header's text fit to be kept.
func shorten(text string) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "?")
	if len(text) > shownLimit {
		text = strings.ToValidUTF8(text[:shownLimit], "")
	}
	return text
}
