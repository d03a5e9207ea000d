package fetch

import (
	"net/http"
	"regexp"
	"strings"
)

// codeHeaders are headers in which a gateway gives its own error code, the
// first present one is taken (docs of Bright Data, Oxylabs and squid). Sites
// behind a tunnel cannot set them for a gateway: they are read only from
// answers to CONNECT and to plain http through the gateway.
var codeHeaders = []string{"X-Brd-Err-Code", "X-Brd-Error", "X-Brd-Err-Msg", "X-Error-Description", "X-Squid-Error"}

// proxyStatus finds the details and error of RFC 9209's Proxy-Status. Without
// an error it is a note of any cache on the way.
var (
	proxyStatusDetails = regexp.MustCompile(`(?i)\bdetails="([^":]{1,64})`)
	proxyStatusError   = regexp.MustCompile(`(?i)\berror="?([a-z0-9_]{1,64})`)
)

const codeLimit = 100

// gatewayCode reads a gateway's own error code from headers, and reports
// whether they mark the answer as the gateway's.
func gatewayCode(h http.Header) (code string, marked bool) {
	for _, name := range codeHeaders {
		if value := strings.TrimSpace(h.Get(name)); value != "" {
			return shorten(value), true
		}
	}
	status := strings.Join(h.Values("Proxy-Status"), ", ")
	if m := proxyStatusError.FindStringSubmatch(status); m != nil {
		if d := proxyStatusDetails.FindStringSubmatch(status); d != nil {
			return d[1], true
		}
		return m[1], true
	}
	return "", false
}

func shorten(value string) string {
	value = strings.ToValidUTF8(value, "")
	if len(value) > codeLimit {
		value = strings.ToValidUTF8(value[:codeLimit], "")
	}
	return value
}

// gatewayAnswer reports whether the answer to a plain http request is the
// gateway's own rather than the site's, and its code. There is no structural
// way to tell: these are the statuses that only gateways use, and marks that
// only gateways set.
func gatewayAnswer(resp *http.Response) (code string, origin bool) {
	code, marked := gatewayCode(resp.Header)
	if marked {
		return code, true
	}
	switch resp.StatusCode {
	case http.StatusPaymentRequired, http.StatusProxyAuthRequired, 490, 499:
		return "", true
	case 522, 525:
		return "", resp.Header.Get("Cf-Ray") == "" // Cloudflare's own statuses
	}
	if resp.StatusCode < http.StatusBadRequest {
		return "", false
	}
	if len(resp.Header.Values("Proxy-Authenticate")) > 0 {
		return "", true
	}
	return "", strings.HasPrefix(resp.Header.Get("Server"), "tinyproxy/")
}
