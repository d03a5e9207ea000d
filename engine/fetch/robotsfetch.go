package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// ErrRobotsUnavailable: robots.txt could not be read, so nothing may be
// fetched until it can (RFC 9309 §2.3.1.4). The chain holds the reason, such as
// a *ConnectError or a *RobotsStatusError.
var ErrRobotsUnavailable = errors.New("robots.txt is not available")

// RobotsStatusError is an answer to a request for robots.txt that allows
// nothing and forbids nothing.
type RobotsStatusError struct {
	Status      int
	ProxyOrigin bool        // the gateway's answer, not the site's
	Unsure      bool        // plain http through a proxy: it may have been the gateway's, unmarked
	Reason      string      // as Page.Reason
	Header      http.Header // may hold a Retry-After
	Body        string      // of the gateway's answer, as received
}

func (e *RobotsStatusError) Error() string {
	who := "site"
	if e.ProxyOrigin {
		who = "proxy"
	}
	return fmt.Sprintf("the %s answered %d %s", who, e.Status, http.StatusText(e.Status))
}

// maxRobotsRedirects is RFC 9309 §2.3.1.2.
const maxRobotsRedirects = 5

// FetchRobots fetches the text of the robots.txt that governs u, for
// ParseRobots, through the session whose requests it governs. Of base it uses
// UserAgent, MaxBytes and Allow.
//
// A site without one (4xx), or whose redirects lead nowhere, allows
// everything: the text is empty. A 429, a 5xx, an answer of the proxy or a failed transfer is an
// ErrRobotsUnavailable; Trace.Header may hold a Retry-After.
func FetchRobots(ctx context.Context, s *Session, u *url.URL, base Request) ([]byte, Trace, error) {
	file := url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/robots.txt"}
	page, trace, err := s.Do(ctx, Request{
		URL:          file.String(),
		Header:       http.Header{"Accept": {"text/plain,*/*;q=0.5"}},
		UserAgent:    base.UserAgent,
		MaxBody:      RobotsLimit + 1, // one over, so that ParseRobots sees that it was cut
		MaxBytes:     base.MaxBytes,
		MaxRedirects: maxRobotsRedirects,
		Allow:        base.Allow,
		cutBody:      true,
	})
	switch {
	case errors.Is(err, ErrRedirect):
		return nil, trace, nil
	case err != nil:
		return nil, trace, fmt.Errorf("%w: %w", ErrRobotsUnavailable, err)
	case trace.ProxyOrigin:
		return nil, trace, s.robotsStatus(page, true)
	case page.Status >= 200 && page.Status < 300:
		return page.Body, trace, nil
	case page.Status >= 400 && page.Status < 500 && page.Status != http.StatusTooManyRequests:
		return nil, trace, nil
	}
	return nil, trace, s.robotsStatus(page, false)
}

func (s *Session) robotsStatus(p *Page, proxyOrigin bool) error {
	refusal := &RobotsStatusError{Status: p.Status, ProxyOrigin: proxyOrigin, Reason: p.Reason, Header: p.Header}
	refusal.Unsure = !proxyOrigin && s.httpProxy() && strings.HasPrefix(p.FinalURL, "http:")
	if proxyOrigin {
		refusal.Body = string(p.Body)
	}
	return fmt.Errorf("%w: %w", ErrRobotsUnavailable, refusal)
}
