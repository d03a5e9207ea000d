package parser

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// NormalizeURL gives the canonical text of an absolute http or https URL, for
// keys only: a request always keeps the URL it was given.
//
// Scheme and host are in lower case, the host in ASCII; the default port and
// the fragment are dropped; dot segments are resolved; an empty path is "/";
// percent-encoding stands in upper case and only where it must. The query
// keeps its order. Normalising twice changes nothing more. Errors do not quote
// the URL, which may hold a password.
func NormalizeURL(raw string) (string, error) {
	u, err := url.Parse(escapeLoose(strings.TrimSpace(raw)))
	switch {
	case err != nil:
		return "", fmt.Errorf("normalizing a URL: %w", withoutURL(err))
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("normalizing a URL: must begin with http:// or https://")
	case u.User != nil:
		return "", errors.New("normalizing a URL: must not hold a user name or password")
	}
	host, err := normalizeHost(u)
	if err != nil {
		return "", fmt.Errorf("normalizing a URL: %w", err)
	}
	path := removeDots(normalizePercent(u.EscapedPath()))
	s := u.Scheme + "://" + host + path
	if u.RawQuery != "" || u.ForceQuery {
		s += "?" + normalizePercent(u.RawQuery)
	}
	return s, nil
}

// withoutURL takes the text of the URL out of an error of net/url.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// normalizeHost gives host and port as keys have them.
func normalizeHost(u *url.URL) (string, error) {
	host, err := asciiHost(u.Hostname())
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		return host, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("the port must be at most 65535, not %s", port)
	}
	if u.Scheme == "http" && n == 80 || u.Scheme == "https" && n == 443 {
		return host, nil
	}
	return host + ":" + strconv.FormatUint(n, 10), nil
}

// longestHost is the longest host name in ASCII that DNS can ask for (RFC 1035
// §2.3.4), written without the last dot.
const longestHost = 253

var errLongHost = fmt.Errorf("the host is longer than the %d characters of a name", longestHost)

// asciiHost is a host name in lower-case ASCII, or an IP address in its usual
// form. Names with "_" exist and are let through.
func asciiHost(host string) (string, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return "", errors.New("the host must not have a zone")
		}
		if addr.Is6() {
			return "[" + addr.String() + "]", nil
		}
		return addr.String(), nil
	}
	if !utf8.ValidString(host) {
		return "", errors.New("the host is not UTF-8")
	}
	if len(host) > utf8.UTFMax*longestHost { // encoding costs the square of the length
		return "", errLongHost
	}
	profile := idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false))
	ascii, err := profile.ToASCII(host)
	if err != nil {
		return "", fmt.Errorf("the host is not a name: %w", err)
	}
	if len(strings.TrimSuffix(ascii, ".")) > longestHost {
		return "", errLongHost
	}
	if strings.Trim(ascii, ".") == "" || strings.ContainsAny(ascii, " /?#@:%[]\\<>\"^`{|}\x7f") {
		return "", errors.New("the host is empty or not a name")
	}
	return ascii, nil
}

// removeDots resolves the segments "." and ".." of an absolute path.
func removeDots(path string) string {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	kept := segments[:0]
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "..":
			if s == ".." && len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if last {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, s)
		}
	}
	return "/" + strings.Join(kept, "/")
}

// normalizePercent decodes what needs no encoding and writes the rest of the
// encoding in upper case.
func normalizePercent(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if !isEscape(s[i:]) {
			b = append(b, s[i])
			continue
		}
		c, _ := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if isUnreserved(byte(c)) {
			b = append(b, byte(c))
		} else {
			b = append(b, strings.ToUpper(s[i:i+3])...)
		}
		i += 2
	}
	return string(b)
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

func isEscape(s string) bool {
	if len(s) < 3 || s[0] != '%' {
		return false
	}
	_, err := strconv.ParseUint(s[1:3], 16, 8)
	return err == nil
}

// escapeLoose percent-encodes what pages leave bare in URLs: spaces and other
// bytes that no URL may hold, and a "%" that encodes nothing. Line breaks and
// tabs are dropped, as browsers do.
func escapeLoose(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\t' || c == '\n' || c == '\r':
		case c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0, c == '%' && !isEscape(s[i:]):
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// resolve makes a link absolute against base. Only links to pages have a
// meaning outside of the page; mailto:, javascript:, data: and their like are
// errors.
func resolve(base *url.URL, link string) (*url.URL, error) {
	ref, err := url.Parse(escapeLoose(strings.TrimSpace(link)))
	if err != nil {
		return nil, invalid(link, "is not a URL: %v", withoutURL(err))
	}
	u := base.ResolveReference(ref)
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, invalid(link, "is not an http or https URL")
	}
	host, err := normalizeHost(u)
	if err != nil {
		return nil, invalid(link, "is not a URL: %v", err)
	}
	u.Host = host
	if u.Path == "" {
		u.Path = "/"
	}
	return u, nil
}
