package engine

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/fetch"
	"semel/parser"
	"semel/storage"
)

func blockRules(t *testing.T) BlockRules {
	t.Helper()
	css, err := parser.CompileSelector("#challenge, form.check")
	if err != nil {
		t.Fatal(err)
	}
	return BlockRules{Status: []int{406, 200 + 99}, Text: []*regexp.Regexp{regexp.MustCompile(`(?i)unusual traffic`), regexp.MustCompile(`(?i)прОВЕРКА`)}, CSS: css}
}

// A source's own signs tell a block page whatever its status, and before
// anything else that could be said of it.
func TestBlockRules(t *testing.T) {
	const challenge = `<p>fine</p><div id="challenge"></div>`
	long := strings.Repeat("<p>filler</p>", 100_000)
	for _, test := range []struct {
		name   string
		status int
		kind   string
		body   string
		want   storage.Category
		reason string // part of it
	}{
		{"status", 406, "text/html", "<p>x</p>", storage.CategoryBlocked, "blocked.status has 406"},
		{"status of a success", 299, "text/html", "<h1>x</h1>", storage.CategoryBlocked, "blocked.status has 299"},
		{"another status", 405, "text/html", "<p>x</p>", storage.CategoryClientError, "405"},
		{"text", 200, "text/html", "<h1>We saw Unusual TRAFFIC here</h1>", storage.CategoryBlocked, `blocked.text has "Unusual TRAFFIC"`},
		{"text in another alphabet", 200, "text/html", "<h1>Проверка</h1>", storage.CategoryBlocked, `blocked.text has "Проверка"`},
		{"text of JSON", 200, "application/json", `{"error":"unusual traffic"}`, storage.CategoryBlocked, "blocked.text"},
		{"text of a 404", 404, "text/html", "unusual traffic", storage.CategoryBlocked, "blocked.text"},
		{"text of a 500", 500, "text/html", "unusual traffic", storage.CategoryBlocked, "blocked.text"},
		{"text at the end of a large page", 200, "text/html", long + "unusual traffic", storage.CategoryBlocked, "blocked.text"},
		{"css", 200, "text/html", challenge, storage.CategoryBlocked, `blocked.css "#challenge, form.check" matches`},
		{"css without a type", 200, "", challenge, storage.CategoryBlocked, "blocked.css"},
		{"css at the end of a large page", 503, "application/xhtml+xml", long + challenge, storage.CategoryBlocked, "blocked.css"},
		{"css is not looked for in JSON", 200, "application/json", challenge, "", ""},
		{"fine", 200, "text/html", "<h1>traffic, unusual</h1>", "", ""},
		{"an ordinary 404", 404, "text/html", "<p>nothing here</p>", storage.CategoryNotFound, "404"},
	} {
		t.Run(test.name, func(t *testing.T) {
			src := source(t, 0)
			src.Blocked = blockRules(t)
			a := &attempt{engine: &Engine{parsing: make(slots, 1)}, src: &src}
			page := &fetch.Page{Status: test.status, ContentType: test.kind, Body: []byte(test.body), Header: http.Header{}}
			f := judge(exchange{page: page, sign: a.blockSign(t.Context(), page)}, time.Now())
			if (f == nil) != (test.want == "") {
				t.Fatalf("got %+v, want %q", f, test.want)
			}
			if f != nil && (f.category != test.want || !strings.Contains(f.reason, test.reason)) {
				t.Errorf("got %s, %q", f.category, f.reason)
			}
			if len(a.engine.parsing) != 0 {
				t.Error("the place to parse is not given back")
			}
		})
	}
}

// A block page is never an observation, is tried once more after a long wait,
// and a gateway's own answer stays the gateway's.
func TestBlockedPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, nth int) (*http.Response, error) {
			switch {
			case req.URL.Path == "/p/001":
				return respond(404, "<h1>unusual traffic</h1>"), nil
			case req.URL.Path == "/p/002" && nth == 1:
				return respond(200, `<h1>x</h1><form class="check"></form>`), nil
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 3)
		src.Blocked, src.Gone = blockRules(t), true
		sum := runOnce(t, options(s, web, src))
		if sum.Completed != 2 || sum.Failed != 1 || web.count("/p/001") != 2 || web.count("/p/003") != 1 {
			t.Errorf("%+v", sum)
		}
		for path, times := range web.requests {
			if len(times) == 2 && times[1].Sub(times[0]) < 15*time.Minute {
				t.Errorf("%s was asked again after %s", path, times[1].Sub(times[0]))
			}
		}
		j, _ := job(t, s, "001")
		if j.Category != storage.CategoryBlocked || !strings.Contains(j.Reason, "404 Not Found with a block page: blocked.text") {
			t.Errorf("%s: %s", j.Category, j.Reason)
		}
		if got := export(t, s, "shop"); strings.Contains(got, `"x"`) || strings.Count(got, "\n") != 2 {
			t.Errorf("exported %s", got)
		}
	})
	page := &fetch.Page{Status: 503, Header: http.Header{}, Body: []byte("unusual traffic")}
	f := judge(exchange{page: page, proxied: true, trace: fetch.Trace{ProxyOrigin: true}, sign: "blocked.text"}, time.Now())
	if f.category != storage.CategoryExitConnect {
		t.Errorf("the gateway's own page is %s", f.category)
	}
}

// A page read from a file is judged by the same signs.
func TestBlockRulesOfTrial(t *testing.T) {
	src := source(t, 1)
	src.Blocked = blockRules(t)
	e, err := New(options(nil, nil, src))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	trial, err := e.TryPage(t.Context(), "shop", src.Targets.Targets[0], fetch.FilePage([]byte("<h1>unusual traffic</h1>"), "text/html"))
	if err != nil || trial.Category != storage.CategoryBlocked || len(trial.Records) > 0 {
		t.Errorf("%+v (%v)", trial, err)
	}
}
