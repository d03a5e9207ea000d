package fetch

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// drainLimit is how much of a redirect's body is read so that its connection
// can be kept; a longer one costs less as a new connection.
const drainLimit = 16 << 10

// isRedirect reports whether net/http follows the status.
func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// checkLocation refuses what net/http would pass as an ordinary page, or
// refuse with an error that says no more than its text.
func checkLocation(req *http.Request, resp *http.Response) error {
	location := resp.Header.Get("Location")
	if location == "" {
		return fmt.Errorf("%w: %d without a Location", ErrRedirect, resp.StatusCode)
	}
	u, err := req.URL.Parse(location)
	if err == nil {
		err = checkLength(u)
	}
	if err != nil {
		return fmt.Errorf("%w: %d with a Location that is not a URL: %w", ErrRedirect, resp.StatusCode, parseFault(err))
	}
	return nil
}

func drain(body io.Reader) { _, _ = io.CopyN(io.Discard, body, drainLimit) }

// redirect is asked before each redirect is followed. req has its method and
// headers as net/http chose them (RFC 9110 §15.4), but not yet its cookies.
func (a *attempt) redirect(req *http.Request, via []*http.Request) error {
	limit := a.req.MaxRedirects
	if limit == 0 {
		limit = DefaultMaxRedirects
	}
	if limit < 0 {
		return http.ErrUseLastResponse
	}
	if len(via) > limit {
		return fmt.Errorf("%w: more than %d of them", ErrRedirect, limit)
	}
	if a.req.Once && req.Method != http.MethodGet && req.Method != http.MethodHead {
		return fmt.Errorf("%w: it would send the %s again", ErrRedirect, req.Method)
	}
	makeSendable(req.URL)
	if a.seen == nil {
		a.seen = map[string]bool{hopKey(via[0].Method, via[0].URL, nil): true}
	}
	key := hopKey(req.Method, req.URL, a.jar.Cookies(req.URL))
	if a.seen[key] {
		return fmt.Errorf("%w: a loop", ErrRedirect)
	}
	a.seen[key] = true
	if crossesOrigin(req, via) {
		if req.Body != nil {
			return fmt.Errorf("%w: it would send the request's body to another origin", ErrRedirect)
		}
		keepHarmless(req.Header)
	}
	return nil
}

// hopKey tells one request from another: sites redirect to the same URL once
// they have set a cookie.
func hopKey(method string, u *url.URL, cookies []*http.Cookie) string {
	var b strings.Builder
	b.WriteString(method + " " + u.String())
	for _, c := range cookies {
		b.WriteString("\n" + c.Name + "=" + c.Value)
	}
	return b.String()
}

// crossesOrigin reports whether the request, or any before it, went to another
// origin than the first. net/http copies the first request's headers anew at
// each hop, so one that has left does not get them back.
func crossesOrigin(req *http.Request, via []*http.Request) bool {
	first := origin(via[0].URL)
	if origin(req.URL) != first {
		return true
	}
	for _, r := range via[1:] {
		if origin(r.URL) != first {
			return true
		}
	}
	return false
}

// origin is scheme, host and port (RFC 6454).
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" && u.Scheme == "http" {
		port = "80"
	}
	if port == "" && u.Scheme == "https" {
		port = "443"
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// keepHarmless drops every header that could identify someone to another
// origin: logins and cookies under any name, since an API key's header is
// anyone's choice, and the Referer, whose query may hold a token. Cookies that
// the origin set itself are added later, by the jar.
func keepHarmless(h http.Header) {
	for name := range h {
		switch name {
		case "Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Type",
			"Pragma", "Upgrade-Insecure-Requests", "User-Agent":
		default:
			if !strings.HasPrefix(name, "Sec-") {
				delete(h, name)
			}
		}
	}
}
