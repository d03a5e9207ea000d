package fetch

import (
	"bytes"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// RobotsLimit is how much of a robots.txt is read (RFC 9309 §2.5).
const RobotsLimit = 500 << 10

// maxCrawlDelay bounds a Crawl-delay: more says "never", which Disallow does
// better.
const maxCrawlDelay = 24 * time.Hour

// Robots are the rules of one robots.txt (RFC 9309). The zero value and nil
// allow everything. It is immutable.
type Robots struct {
	groups []robotsGroup
	delays map[string]time.Duration // by product token
}

// robotsGroup is a run of user-agent lines and the rules below.
type robotsGroup struct {
	agents []string // product tokens in lower case, or "*"
	rules  []robotsRule
}

// robotsRule is one allow or disallow. The pieces of its pattern stand between
// its *.
type robotsRule struct {
	allow  bool
	pieces []string
	end    bool // the pattern ended in $
	length int  // octets, for the most specific match
}

// ParseRobots reads a robots.txt. Lines that it does not know are ignored, so
// any text gives rules, perhaps none.
func ParseRobots(body []byte) *Robots {
	p := robotsParser{Robots: Robots{delays: make(map[string]time.Duration)}, inRules: true}
	for _, line := range robotsLines(body) {
		p.line(robotsLine(line))
	}
	return &p.Robots
}

// robotsParser reads line by line. A Crawl-delay is not of the RFC, and so
// does not end a run of user-agent lines: rules below are for all of them. But
// the delay is meant for those above it, since the last delay or rule.
type robotsParser struct {
	Robots
	inRules bool     // a user-agent line now begins a group
	named   []string // whom a Crawl-delay now is for
	told    bool     // and whether they got a line of their own since
}

func (p *robotsParser) line(key, value string) {
	switch key {
	case "user-agent":
		p.agent(productToken(value))
	case "allow", "disallow":
		p.inRules, p.told = true, true
		if len(p.groups) > 0 && value != "" {
			last := &p.groups[len(p.groups)-1]
			last.rules = append(last.rules, newRobotsRule(key == "allow", value))
		}
	case "crawl-delay":
		p.told = true
		for _, token := range p.named {
			p.delays[token] = max(p.delays[token], parseCrawlDelay(value))
		}
	}
}

func (p *robotsParser) agent(token string) {
	if p.inRules {
		p.groups = append(p.groups, robotsGroup{})
		p.inRules = false
	}
	if p.told {
		p.named, p.told = nil, false
	}
	if token == "" {
		return
	}
	last := &p.groups[len(p.groups)-1]
	last.agents = append(last.agents, token)
	p.named = append(p.named, token)
}

// robotsLines splits at every kind of line end. Of a file over the limit the
// last line is left out: cut in two it could forbid the whole site.
func robotsLines(body []byte) []string {
	if len(body) > RobotsLimit {
		body = body[:RobotsLimit]
		body = body[:bytes.LastIndexAny(body, "\r\n")+1]
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	return strings.FieldsFunc(string(body), func(r rune) bool { return r == '\r' || r == '\n' })
}

// robotsLine splits a line into its key, in lower case, and its value. A space
// in the colon's place is a common mistake that crawlers forgive.
func robotsLine(line string) (key, value string) {
	line, _, _ = strings.Cut(line, "#")
	line = strings.TrimSpace(line)
	key, value, ok := strings.Cut(line, ":")
	if !ok {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return "", ""
		}
		key, value = fields[0], fields[1]
	}
	return strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)
}

// productToken is the leading name of a user agent, in lower case: "semel" of
// "Semel/1.0 (+https://example.com)". "*" stands for all.
func productToken(agent string) string {
	if agent == "*" || strings.HasPrefix(agent, "* ") {
		return "*"
	}
	end := strings.IndexFunc(agent, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r == '-' || r == '_')
	})
	if end >= 0 {
		agent = agent[:end]
	}
	return strings.ToLower(agent)
}

func parseCrawlDelay(value string) time.Duration {
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(seconds) || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, maxCrawlDelay.Seconds()) * float64(time.Second))
}

func newRobotsRule(allow bool, pattern string) robotsRule {
	rule := robotsRule{allow: allow}
	pattern, rule.end = strings.CutSuffix(pattern, "$")
	inQuery := false
	for piece := range strings.SplitSeq(pattern, "*") {
		canonical := ""
		canonical, inQuery = canonicalPath(piece, inQuery)
		rule.pieces = append(rule.pieces, canonical)
		rule.length += len(canonical) + 1 // and the * before it, or the $
	}
	if !rule.end {
		rule.length--
	}
	return rule
}

// matches reports whether the pattern matches a canonical path from its start.
func (r robotsRule) matches(path string) bool {
	rest, ok := strings.CutPrefix(path, r.pieces[0])
	if !ok {
		return false
	}
	if len(r.pieces) == 1 {
		return !r.end || rest == ""
	}
	middle, last := r.pieces[1:len(r.pieces)-1], r.pieces[len(r.pieces)-1]
	for _, piece := range middle {
		i := strings.Index(rest, piece)
		if i < 0 {
			return false
		}
		rest = rest[i+len(piece):]
	}
	if r.end {
		return strings.HasSuffix(rest, last)
	}
	return strings.Contains(rest, last)
}

// Allowed reports whether the agent, a product token or a whole User-Agent,
// may fetch u: by the most specific rule of its groups, allow winning a tie.
func (r *Robots) Allowed(agent string, u *url.URL) bool {
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	if path == "/robots.txt" {
		return true
	}
	if u.RawQuery != "" || u.ForceQuery {
		path += "?" + u.RawQuery
	}
	path = strings.NewReplacer("*", "%2A", "$", "%24").Replace(path)
	path, _ = canonicalPath(path, false)
	allowed, longest := true, -1
	for _, g := range r.groupsOf(agent) {
		for _, rule := range g.rules {
			if rule.length < longest || rule.length == longest && allowed || !rule.matches(path) {
				continue
			}
			allowed, longest = rule.allow, rule.length
		}
	}
	return allowed
}

// CrawlDelay is the pause between requests that the agent is asked for, 0 for
// none; where several are named, the longest.
func (r *Robots) CrawlDelay(agent string) time.Duration {
	if r == nil {
		return 0
	}
	token := productToken(agent)
	if len(r.groupsFor(token)) == 0 {
		token = "*"
	}
	return r.delays[token]
}

// groupsOf are the groups that name the agent, else those for all.
func (r *Robots) groupsOf(agent string) []robotsGroup {
	if r == nil {
		return nil
	}
	if own := r.groupsFor(productToken(agent)); len(own) > 0 {
		return own
	}
	return r.groupsFor("*")
}

func (r *Robots) groupsFor(token string) []robotsGroup {
	var found []robotsGroup
	for _, g := range r.groups {
		for _, agent := range g.agents {
			if agent == token {
				found = append(found, g)
				break
			}
		}
	}
	return found
}

// canonicalPath writes a path, or a piece of one that may begin inside the
// query, so that equal octets are equal text (RFC 9309 §2.2.2): what is
// unreserved is not percent-encoded, all else is, in upper case. In the query
// reserved characters that separate nothing there are the same in both forms,
// so they are written plainly. It reports whether the query has begun.
func canonicalPath(s string, inQuery bool) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		octet, encoded := unescape(s[i:])
		if encoded {
			i += 2
			c = octet
		}
		switch {
		case isUnreserved(c),
			inQuery && strings.IndexByte(":/?@!'(),;[]", c) >= 0,
			!encoded && strings.IndexByte(":/?@!'(),;[]&=+", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
		inQuery = inQuery || c == '?' && !encoded
	}
	return b.String(), inQuery
}

const upperHex = "0123456789ABCDEF"

// unescape reads a percent-encoded octet at the beginning of s.
func unescape(s string) (byte, bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	n, err := strconv.ParseUint(s[1:3], 16, 8)
	return byte(n), err == nil
}

// isUnreserved is RFC 3986 §2.3.
func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
