package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"semel/engine/gateway"
)

func TestRobots(t *testing.T) {
	// The files of RFC 9309 §5.
	const simple = `User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
`
	const longest = "User-Agent: foobot\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif\n"
	all := func(rules ...string) string { return "User-agent: *\n" + strings.Join(rules, "\n") }

	tests := []struct {
		name   string
		robots string
		agent  string
		url    string
		want   bool
	}{
		{"RFC 5.1 others: gif", simple, "other", "/a.gif", false},
		{"RFC 5.1 others: gif in a folder", simple, "other", "/a/b.gif", false},
		{"RFC 5.1 others: not at the end", simple, "other", "/a.gif?x", true},
		{"RFC 5.1 others: example", simple, "other", "/example/x", false},
		{"RFC 5.1 others: publications", simple, "other", "/publications/x", true},
		{"RFC 5.1 others: not named", simple, "other", "/x", true},
		{"RFC 5.1 foobot: all", simple, "foobot", "/publications/", false},
		{"RFC 5.1 foobot: page", simple, "foobot", "/example/page.html", true},
		{"RFC 5.1 foobot: gif", simple, "foobot", "/example/allowed.gif", true},
		{"RFC 5.1 barbot", simple, "barbot", "/example/page.html", false},
		{"RFC 5.1 barbot: only its group", simple, "barbot", "/example/other", true},
		{"RFC 5.1 bazbot", simple, "bazbot", "/example/page.html", false},
		{"RFC 5.1 quxbot: empty group", simple, "quxbot", "/example/", true},
		{"RFC 5.2 allowed", longest, "foobot", "/example/page/", true},
		{"RFC 5.2 longest", longest, "foobot", "/example/page/disallowed.gif", false},
		{"RFC 5.2 nobody else", longest, "barbot", "/example/page/disallowed.gif", true},

		// §2.2.2, the table of paths.
		{"RFC 2.2.2 query", all("Disallow: /foo/bar?baz=quz"), "a", "/foo/bar?baz=quz", false},
		{"RFC 2.2.2 reserved in a query", all("Disallow: /foo/bar?baz=http://foo.bar"), "a", "/foo/bar?baz=http%3A%2F%2Ffoo.bar", false},
		{"RFC 2.2.2 the other way", all("Disallow: /foo/bar?baz=http%3A%2F%2Ffoo.bar"), "a", "/foo/bar?baz=http://foo.bar", false},
		{"RFC 2.2.2 raw letters in the rule", all("Disallow: /foo/bar/ツ"), "a", "/foo/bar/%E3%83%84", false},
		{"RFC 2.2.2 raw letters in the URL", all("Disallow: /foo/bar/%E3%83%84"), "a", "/foo/bar/ツ", false},
		{"RFC 2.2.2 letters encoded without need", all("Disallow: /foo/bar/%62%61%7A"), "a", "/foo/bar/baz", false},
		{"hex in either case", all("Disallow: /%e3%83%84"), "a", "/%E3%83%84", false},
		{"an encoded slash is no slash", all("Disallow: /a/b"), "a", "/a%2Fb", true},
		{"an encoded slash is itself", all("Disallow: /a%2fb"), "a", "/a%2Fb", false},
		{"a raw % is %25", all("Disallow: /100%"), "a", "/100%25", false},
		{"a query's & is not %26", all("Disallow: /?a&b"), "a", "/?a%26b", true},

		// §2.2.3, special characters.
		{"RFC 2.2.3 comment", all("Allow: /     # all", "Disallow: /x#y"), "a", "/x", false},
		{"RFC 2.2.3 end", all("Disallow: /this/path/exactly$"), "a", "/this/path/exactly", false},
		{"RFC 2.2.3 end only", all("Disallow: /this/path/exactly$"), "a", "/this/path/exactly/", true},
		{"RFC 2.2.3 star", all("Disallow: /this/*/exactly"), "a", "/this/path/is/exactly/x", false},
		{"RFC 2.2.3 verbatim star", all("Disallow: /path/file-with-a-%2A.html"), "a", "/path/file-with-a-*.html", false},
		{"RFC 2.2.3 verbatim star only", all("Disallow: /path/file-with-a-%2A.html"), "a", "/path/file-with-a-x.html", true},
		{"RFC 2.2.3 verbatim dollar", all("Disallow: /path/foo-%24"), "a", "/path/foo-$", false},
		{"a dollar inside is itself", all("Disallow: /a$b"), "a", "/a$b", false},
		{"star matches nothing too", all("Disallow: /a*b"), "a", "/ab", false},
		{"star at the end", all("Disallow: /a*"), "a", "/abc", false},
		{"star and end", all("Disallow: /*.php$"), "a", "/x/index.php", false},
		{"star and end, last one counts", all("Disallow: /*a$"), "a", "/aXa", false},
		{"star and end, no overlap", all("Disallow: /ab*b$"), "a", "/ab", true},
		{"many stars", all("Disallow: /*a*b*c"), "a", "/xxaxxbxx", true},
		{"star over the query", all("Disallow: /s*/x"), "a", "/s?q=a/x", false},
		{"star over an encoded query", all("Disallow: /s*/x"), "a", "/s?q=a%2Fx", false},
		{"only a star", all("Disallow: *"), "a", "/x", false},

		// §2.2.1, agents and groups.
		{"agent in any case", "USER-AGENT: SemelBot\nDISALLOW: /", "semelbot", "/", false},
		{"whole user agent", "User-agent: semel\nDisallow: /", "Semel/1.0 (+https://example.com)", "/", false},
		{"version in the file", "User-agent: semel/2\nDisallow: /", "semel", "/", false},
		{"not a prefix of the agent", "User-agent: sem\nDisallow: /", "semel", "/", true},
		{"agent is not a prefix", "User-agent: semel-news\nDisallow: /", "semel", "/", true},
		{"own group hides that of all", "User-agent: *\nDisallow: /\nUser-agent: semel\nDisallow: /x", "semel", "/y", true},
		{"groups of one agent add up", "User-agent: a\nDisallow: /x\n\nUser-agent: b\nDisallow: /\n\nUser-agent: a\nDisallow: /y", "a", "/y", false},
		{"and keep the first", "User-agent: a\nDisallow: /x\n\nUser-agent: b\nDisallow: /\n\nUser-agent: a\nDisallow: /y", "a", "/x", false},
		{"groups for all add up", "User-agent: *\nDisallow: /x\nUser-agent: b\nUser-agent: *\nDisallow: /y", "a", "/x", false},
		{"a sitemap ends no group", "User-agent: a\nSitemap: /s.xml\nDisallow: /", "a", "/", false},
		{"nor does it part agents", "User-agent: a\nSitemap: /s.xml\nUser-agent: b\nDisallow: /", "a", "/", false},
		{"an empty line ends no group", "User-agent: a\n\n\nDisallow: /", "a", "/", false},
		{"rules before any group", "Disallow: /\nUser-agent: *\nDisallow: /x", "a", "/y", true},
		{"a nameless agent is nobody", "User-agent:\nDisallow: /", "a", "/", true},
		{"agent in digits falls to all", "User-agent: *\nDisallow: /", "360", "/", false},

		// Which rule wins.
		{"allow wins a tie", all("Disallow: /page", "Allow: /page"), "a", "/page", true},
		{"in either order", all("Allow: /page", "Disallow: /page"), "a", "/page", true},
		{"longer disallow wins", all("Allow: /p", "Disallow: /page"), "a", "/page", false},
		{"longer allow wins", all("Disallow: /", "Allow: /page"), "a", "/page", true},
		{"$ is longer", all("Allow: /$", "Disallow: /"), "a", "/", true},
		{"$ is not reached", all("Allow: /$", "Disallow: /"), "a", "/x", false},
		{"a star counts", all("Allow: /page", "Disallow: /*.html"), "a", "/page.html", false},
		{"encoding does not lengthen", all("Allow: /aa", "Disallow: /%61"), "a", "/aa", true},

		// What is written badly.
		{"empty disallow", all("Disallow:"), "a", "/", true},
		{"empty allow", all("Disallow: /", "Allow:"), "a", "/", false},
		{"byte order mark", "\ufeffUser-agent: *\nDisallow: /", "a", "/", false},
		{"CR only", "User-agent: *\rDisallow: /x\r", "a", "/x", false},
		{"CRLF", "User-agent: *\r\nDisallow: /x\r\n", "a", "/x", false},
		{"spaces and tabs", " \tUser-agent \t:\t * \n\t Disallow :  /x \t", "a", "/x", false},
		{"no colon", "User-agent *\nDisallow /x", "a", "/x", false},
		{"unknown lines", all("Crawl-delay: abc", "Noindex: /y", "%%%", ":", "Disallow: /x"), "a", "/x", false},
		{"no slash matches nothing", all("Disallow: x"), "a", "/x", true},
		{"an HTML page", "<!DOCTYPE html><html><head><title>Not found</title></head>\n<a href='x'>User agents</a></html>", "a", "/", true},
		{"binary", "\x00\x01\xff\xfe\r\n\x00", "a", "/", true},
		{"empty", "", "a", "/", true},

		{"byte order mark and CRLF", "\ufeffUser-agent: *\r\n\r\nDisallow: /x\r\n", "a", "/x", false},
		{"a comment ends with its line", "User-agent: * # all\r# Disallow: /y\rDisallow: /x # here", "a", "/y", true},
		{"a comment before the value", all("Disallow: # /"), "a", "/", true},
		{"no groups for it and none for all", "User-agent: b\nDisallow: /", "a", "/", true},
		{"sitemap before any group", "Sitemap: https://example.com/s.xml\nUser-agent: *\nDisallow: /x", "a", "/x", false},
		{"a whole URL is no path", all("Disallow: https://example.com/x"), "a", "/x", true},

		// Percent-encoding, both ways.
		{"an encoded question mark is no query", all("Disallow: /a?b"), "a", "/a%3Fb", true},
		{"an encoded question mark is itself", all("Disallow: /a%3fb"), "a", "/a%3Fb", false},
		{"an encoded hash in the rule", all("Disallow: /a%23b"), "a", "/a%23b", false},
		{"an encoded space", all("Disallow: /a%20b"), "a", "/a%20b", false},
		{"a raw space in the rule", all("Disallow: /a b"), "a", "/a%20b", false},
		{"half an escape", all("Disallow: /a%2"), "a", "/a%252", false},
		{"encoded tilde", all("Disallow: /%7Euser"), "a", "/~user", false},
		{"letters cut in two octets", all("Disallow: /%E3%83"), "a", "/%E3%83%84", false},

		{"two stars are one", all("Disallow: /a**b"), "a", "/axb", false},
		{"any query", all("Disallow: /*?"), "a", "/a/b?c", false},
		{"any query but none", all("Disallow: /*?"), "a", "/a/b", true},
		{"allow wins a tie of stars", all("Disallow: /*a", "Allow: /*b"), "a", "/ab", true},

		{"robots.txt itself", all("Disallow: /"), "a", "/robots.txt", true},
		{"no path", all("Disallow: /"), "a", "", false},
		{"a fragment is not sent", all("Disallow: /x$"), "a", "/x#y", false},
		{"an empty query is one", all("Disallow: /x?$"), "a", "/x?", false},
		{"case of the path counts", all("Disallow: /Fish"), "a", "/fish", true},
	}
	if len(tests) < 60 {
		t.Errorf("only %d cases", len(tests))
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			u := mustParse(t, "https://example.com"+test.url)
			if got := ParseRobots([]byte(test.robots)).Allowed(test.agent, u); got != test.want {
				t.Errorf("Allowed(%q, %q) = %t", test.agent, test.url, got)
			}
		})
	}
}

func TestRobotsLimit(t *testing.T) {
	line := "Disallow: /filler\n"
	head := "User-agent: *\n" + strings.Repeat(line, (RobotsLimit-100)/len(line))
	pad := RobotsLimit - len(head) - len("Disallow: /")
	head += strings.Repeat("#", pad-1) + "\n"
	// The limit falls right after "Disallow: /" of the last line.
	robots := ParseRobots([]byte(head + "Disallow: /only-this\nDisallow: /late\n"))
	for path, want := range map[string]bool{"/filler": false, "/other": true, "/only-this": true, "/late": true} {
		if got := robots.Allowed("a", mustParse(t, "http://h"+path)); got != want {
			t.Errorf("Allowed(%s) = %t", path, got)
		}
	}
	var none *Robots
	if !none.Allowed("a", mustParse(t, "http://h/x")) || none.CrawlDelay("a") != 0 {
		t.Error("nil does not allow")
	}
}

func TestCrawlDelay(t *testing.T) {
	const file = `User-agent: a
Crawl-delay: 2.5
Disallow: /x

User-agent: bingbot
User-agent: bongbot
Crawl-delay: 30

User-agent: *
Crawl-delay: 10

User-agent: A/2
Crawl-delay: 1
User-agent: b
Crawl-delay: -3
Disallow: /
Crawl-delay: 4
User-agent: c
Crawl-delay: 1e99
Disallow: /
User-agent: d
Disallow: /
`
	robots := ParseRobots([]byte(file))
	for agent, want := range map[string]time.Duration{
		"a": 2500 * time.Millisecond, "other": 10 * time.Second, "bingbot": 30 * time.Second, "bongbot": 30 * time.Second,
		"b": 4 * time.Second, "c": 24 * time.Hour, "d": 0,
	} {
		if got := robots.CrawlDelay(agent); got != want {
			t.Errorf("%s waits %s, want %s", agent, got, want)
		}
	}
	if robots.Allowed("bingbot", mustParse(t, "http://h/")) {
		t.Error("a Crawl-delay ended bingbot's group")
	}
	for _, bad := range []string{"", "x", "-1", "NaN", "1s"} {
		if got := parseCrawlDelay(bad); got != 0 {
			t.Errorf("%q is %s", bad, got)
		}
	}
}

func FuzzRobots(f *testing.F) {
	f.Add("User-agent: *\nDisallow: /*a$\nCrawl-delay: 1", "/x%2fy?z=*")
	f.Add("user-agent: semel\r\rallow: %%%$$**", "/%")
	f.Fuzz(func(t *testing.T, file, path string) {
		u := &url.URL{Scheme: "http", Host: "h", Path: path}
		robots := ParseRobots([]byte(file))
		if robots.Allowed("semel", u) != robots.Allowed("SEMEL/2", u) {
			t.Error("the agent's case or version matters")
		}
		if robots.CrawlDelay("semel") < 0 {
			t.Error("negative delay")
		}
	})
}

func TestFetchRobots(t *testing.T) {
	const file = "User-agent: *\nDisallow: /private"
	const private = "/private"
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var n int
		host := r.Host // the scenario is the host's first label
		scenario, _, _ := strings.Cut(host, ".")
		switch {
		case r.URL.Path == "/end":
			fmt.Fprint(w, file)
		case scan(scenario, "status%d", &n):
			w.Header().Set("Retry-After", "9")
			w.WriteHeader(n)
			fmt.Fprint(w, file)
		case scan(scenario, "redirects%d", &n):
			i := 0
			_, _ = fmt.Sscanf(r.URL.Path, "/hop/%d", &i)
			if i+1 == n {
				http.Redirect(w, r, "/end", http.StatusFound)
				return
			}
			http.Redirect(w, r, fmt.Sprintf("/hop/%d", i+1), http.StatusFound)
		case scenario == "html":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html><body>Disallow: /private</body></html>")
		case scenario == "big":
			fmt.Fprintln(w, file)
			for range 2 * RobotsLimit / 10 {
				fmt.Fprintln(w, "#########")
			}
		case scenario == "cut":
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, file)
		}
	})
	g := startGateway(t, gateway.Options{Dial: dialTo(site), Fault: func(r gateway.Request) gateway.Fault {
		switch {
		case strings.HasPrefix(r.URL, "http://squid."):
			return gateway.Fault{Kind: gateway.Status, Status: 404, Header: http.Header{"X-Squid-Error": {"ERR_DNS"}}, Body: file}
		case strings.HasPrefix(r.URL, "http://refused."):
			return gateway.Fault{Kind: gateway.Status, Status: 407}
		}
		return gateway.Fault{}
	}})
	tests := []struct {
		scenario string
		status   int  // of the RobotsStatusError, 0 if there is another error
		fails    bool // as ErrRobotsUnavailable
		allowed  bool // may /private be fetched?
	}{
		{"status200", 0, false, false},
		{"status203", 0, false, false},
		{"status401", 0, false, true},
		{"status403", 0, false, true},
		{"status404", 0, false, true},
		{"status410", 0, false, true},
		{"status429", 429, true, false},
		{"status500", 500, true, false},
		{"status503", 503, true, false},
		{"status304", 304, true, false},
		{"redirects5", 0, false, false},
		{"redirects6", 0, false, true},
		{"html", 0, false, true},
		{"big", 0, false, false},
		{"cut", 0, true, false},
		{"squid", 404, true, false},
		{"refused", 407, true, false},
	}
	s := open(t, Options{Endpoint: endpointOf(t, g.URL())})
	for _, test := range tests {
		t.Run(test.scenario, func(t *testing.T) {
			u := mustParse(t, "http://"+test.scenario+".example/some/page?x")
			text, trace, err := FetchRobots(t.Context(), s, u, Request{UserAgent: "semel"})
			if errors.Is(err, ErrRobotsUnavailable) != test.fails || test.fails && text != nil {
				t.Fatalf("got %q, %v", text, err)
			}
			robots := ParseRobots(text)
			var status *RobotsStatusError
			if errors.As(err, &status) != (test.status != 0) || status != nil && status.Status != test.status {
				t.Errorf("got %v", err)
			}
			if !test.fails && !robots.Allowed("semel", u) {
				t.Error("another path is forbidden")
			}
			if !test.fails && robots.Allowed("semel", mustParse(t, "http://h"+private)) != test.allowed {
				t.Error("wrong rules")
			}
			if test.scenario == "status503" && trace.Header.Get("Retry-After") != "9" {
				t.Error("Retry-After is lost")
			}
		})
	}
}

func TestFetchRobotsWithoutNetwork(t *testing.T) {
	site := serveConn(t, func(c net.Conn) { _, _ = io.ReadFull(c, make([]byte, 1)) })
	var asked []string
	_, trace, err := FetchRobots(t.Context(), open(t, Options{}), mustParse(t, site+"x"), Request{
		MaxBytes: 1 << 20,
		Allow: func(_ context.Context, u *url.URL) error {
			asked = append(asked, u.Path)
			return nil
		},
	})
	wantError(t, err, ErrRobotsUnavailable)
	wantError(t, err, ErrNoAnswer)
	if !slices.Equal(asked, []string{"/robots.txt"}) || trace.BytesUp == 0 {
		t.Errorf("asked %q, %+v", asked, trace)
	}
}
