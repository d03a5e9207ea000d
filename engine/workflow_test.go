package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/intake"
	"semel/parser"
	"semel/storage"
)

// quotes is a site with a workflow: a form page that begins a session with a
// cookie and a token, a check, and a result for whoever shows both. Every answer
// names the session that it belongs to.
type quotes struct {
	*site
	mu    sync.Mutex
	steps []string // what was asked for, in order: path and session
	began int      // sessions

	// before answers a request in the site's place, or gives nil.
	before func(req *http.Request, session string) (*http.Response, error)
}

func newQuotes() *quotes {
	q := &quotes{}
	q.site = newSite(q.answer)
	return q
}

func (q *quotes) answer(req *http.Request, _ int) (*http.Response, error) {
	session := "none"
	if c, err := req.Cookie("session"); err == nil {
		session = c.Value
	}
	q.mu.Lock()
	if req.URL.Path == "/form" && session == "none" {
		q.began++
		session = fmt.Sprint(q.began)
	}
	q.steps = append(q.steps, req.URL.Path+" "+session)
	q.mu.Unlock()
	if q.before != nil {
		if resp, err := q.before(req, session); resp != nil || err != nil {
			return resp, err
		}
	}
	body, err := bodyOf(req)
	if err != nil {
		return nil, err
	}
	switch {
	case req.URL.Path == "/form":
		return respond(200, "<h1>Form "+session+"</h1><input name=token value='t&"+session+"'>", "Set-Cookie", "session="+session), nil
	case req.URL.Path == "/check" && req.URL.Query().Get("token") == "t&"+session:
		return respond(204, ""), nil
	case req.Method == "POST" && req.URL.Path == "/result" && body == "zip=001&token=t%26"+session:
		return respond(200, "<h2>Result "+session+"</h2>"), nil
	}
	return respond(400, "not of session "+session+": "+body), nil
}

func bodyOf(req *http.Request) (string, error) {
	if req.Body == nil {
		return "", nil
	}
	b, err := io.ReadAll(req.Body)
	return string(b), err
}

func (q *quotes) seen() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return strings.Join(q.steps, ", ")
}

// posts is how often the result was asked for.
func (q *quotes) posts() int { return q.count("/result") }

func compile(t testing.TB, fields ...parser.Field) *parser.Rules {
	t.Helper()
	rules, err := parser.Compile(parser.Spec{Version: 1, Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// quote is a workflow of three steps over one target of the site.
func quote(t testing.TB) Source {
	t.Helper()
	form := intake.NewBody(intake.FormBody)
	form.AddText("zip=")
	form.AddValue(template(t, "{id}"))
	form.AddText("&token=")
	form.AddValue(template(t, "{token}"))
	src := source(t, 1)
	src.URL, src.Sticky = template(t, "http://quote.test/form"), 20*time.Minute
	src.Steps = []Step{
		{Name: "form", URL: src.URL, Captures: compile(t, parser.Field{Name: "token", Rule: parser.Rule{CSS: "input[name=token]"}, Attr: "value", Required: true})},
		{Name: "check", URL: template(t, "http://quote.test/check?token={token}")},
		{Name: "result", URL: template(t, "http://quote.test/result"), Method: "POST", Body: form},
	}
	src.Rules = compile(t,
		parser.Field{Name: "form", Rule: parser.Rule{CSS: "h1"}, Step: "form", Required: true},
		parser.Field{Name: "result", Rule: parser.Rule{CSS: "h2"}, Required: true},
	)
	return src
}

const (
	firstQuote  = `{"form":"Form 1","result":"Result 1"}` + "\n"
	secondQuote = `{"form":"Form 2","result":"Result 2"}` + "\n"
)

// The steps follow one another within one session; their pages are one record.
func TestWorkflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, web := openStore(t), newQuotes()
		src := quote(t)
		src.Header = http.Header{"X-All": {"source"}, "X-Own": {"source"}}
		src.Steps[2].Header = http.Header{"X-Own": {"step"}}
		web.before = func(req *http.Request, _ string) (*http.Response, error) {
			own := "source"
			if req.URL.Path == "/result" {
				own = "step"
			}
			if req.Header.Get("X-All") != "source" || req.Header.Get("X-Own") != own {
				t.Errorf("%s has the header %v", req.URL.Path, req.Header)
			}
			return nil, nil
		}
		opts := options(s, web, src)
		opts.Proxies = []Proxy{testProxy(t, "home")}
		opts.Sources[0].Proxies = []string{"home"}
		runOnce(t, opts)
		if got := export(t, s, "shop"); got != firstQuote {
			t.Errorf("export %q", got)
		}
		if got := web.seen(); got != "/form 1, /check 1, /result 1" {
			t.Errorf("the site saw %s", got)
		}
		j, attempts := job(t, s, "001")
		if len(attempts) != 1 || attempts[0].Step != "result" || attempts[0].Session == "" || j.State != storage.StateComplete {
			t.Errorf("job %+v, attempts %+v", j, attempts)
		}
	})
}

// Whichever step fails, and however: the next attempt begins again from the
// first, through a new session without cookies, and what is published is of one
// session alone.
func TestWorkflowIsReplayedAsAUnit(t *testing.T) {
	reset := errors.New("connection reset by peer")
	for name, c := range map[string]struct {
		path     string
		resp     *http.Response
		err      error
		category storage.Category
		step     string
	}{
		"the first step's status":        {"/form", respond(500, "x"), nil, storage.CategoryServerError, "form"},
		"a step's status":                {"/check", respond(500, "x"), nil, storage.CategoryServerError, "check"},
		"the exit is gone":               {"/check", nil, refused(502), storage.CategorySessionLost, "check"},
		"the connection is gone":         {"/result", nil, reset, storage.CategorySessionLost, "result"},
		"no exit to begin with":          {"/form", nil, refused(502), storage.CategoryExitConnect, "form"},
		"the last step asks to wait":     {"/result", respond(503, "", "Retry-After", "7"), nil, storage.CategoryThrottled, "result"},
		"the last step's page is no fit": {"/result", respond(200, "<b>sorry</b>"), nil, storage.CategoryValidation, "result"},
		"a captured value is not there":  {"/form", respond(200, "<h1>Form</h1>", "Set-Cookie", "session=9"), nil, storage.CategoryValidation, "form"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, web := openStore(t), newQuotes()
				failed := false
				web.before = func(req *http.Request, _ string) (*http.Response, error) {
					if req.URL.Path != c.path || failed {
						return nil, nil
					}
					failed = true
					return c.resp, c.err
				}
				src := quote(t)
				src.Proxies = []string{"home"}
				src.Retry = map[storage.Category]RetryPolicy{storage.CategoryValidation: {Attempts: 2}}
				opts := options(s, web, src)
				opts.Proxies = []Proxy{testProxy(t, "home")}
				opts.Proxies[0].Session = time.Hour // which is for single requests
				runOnce(t, opts)
				if got := export(t, s, "shop"); got != secondQuote {
					t.Errorf("export %q", got)
				}
				if got := web.seen(); !strings.HasSuffix(got, "/form 2, /check 2, /result 2") {
					t.Errorf("the site saw %s", got)
				}
				_, attempts := job(t, s, "001")
				if len(attempts) != 2 || attempts[0].Category != c.category || attempts[0].Step != c.step {
					t.Fatalf("attempts %+v", attempts)
				}
				if c.category != storage.CategoryValidation && !strings.HasPrefix(attempts[0].Reason, "step "+c.step+": ") {
					t.Errorf("reason %s", attempts[0].Reason)
				}
				if attempts[0].Session == attempts[1].Session {
					t.Error("both attempts went through one session")
				}
			})
		})
	}
}

// A lost session restarts the steps three times at most.
func TestLostSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, web := openStore(t), newQuotes()
		web.before = func(req *http.Request, _ string) (*http.Response, error) {
			if req.URL.Path == "/check" {
				return nil, refused(502)
			}
			return nil, nil
		}
		src := quote(t)
		src.Proxies = []string{"home"}
		opts := options(s, web, src)
		opts.Proxies = []Proxy{testProxy(t, "home")}
		runOnce(t, opts)
		j, attempts := job(t, s, "001")
		if len(attempts) != 4 || j.Category != storage.CategorySessionLost || web.count("/form") != 4 || export(t, s, "shop") != "" {
			t.Errorf("%d attempts, %d forms, job %+v", len(attempts), web.count("/form"), j)
		}
	})
}

// What a step does not bring is named, and its page kept.
func TestCapturesAndPagesOfFailures(t *testing.T) {
	for name, c := range map[string]struct {
		required bool
		want     string
	}{
		"required":     {true, "step form: capture token: is required and missing"},
		"not required": {false, `step check: url: variable "token" is missing`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, web := openStore(t), newQuotes()
				web.before = func(req *http.Request, _ string) (*http.Response, error) {
					return respond(200, "<h1>No form today</h1>"), nil
				}
				src := quote(t)
				src.Steps[0].Captures = compile(t, parser.Field{Name: "token", Rule: parser.Rule{CSS: "input"}, Attr: "value", Required: c.required})
				opts := options(s, web, src)
				opts.Bodies = BodiesFailed
				runOnce(t, opts)
				j, attempts := job(t, s, "001")
				if j.Category != storage.CategoryValidation || j.Reason != c.want || len(attempts) != 1 {
					t.Fatalf("job %+v", j)
				}
				wantKept(t, s, attempts[0], c.required, "<h1>No form today</h1>")
				if web.total() != 1 {
					t.Errorf("the site saw %s", web.seen())
				}
				if q := quarantined(t, s, j.ID); (q != nil) != c.required || q != nil && (q.Version != 1 || q.Problems[0].Field != "token") {
					t.Errorf("in quarantine %+v", q)
				}
				if _, err := idle(t, s, src).Release(t.Context(), "shop", j.ID); c.required && !errors.Is(err, ErrNoPage) {
					t.Errorf("released: %v", err)
				}
			})
		})
	}
}

// A captured URL is followed where it leads, and one that is none is a fault of
// the page.
func TestCapturedURL(t *testing.T) {
	for link, want := range map[string]string{
		"/next?a=b":               "",
		"https://other.test/next": "",
		"http://u:p@quote.test/":  "step next: url: holds a user name or password",
		"javascript:alert(1)":     `step form: capture link: is not an http or https URL (got "javascript:alert(1)")`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
				if req.URL.Path == "/form" {
					return respond(200, "<a href='"+link+"'>"), nil
				}
				return respond(200, "<h1>"+req.URL.String()+"</h1>"), nil
			})
			src := quote(t)
			src.Rules = titleRules(t)
			src.Steps = []Step{
				{Name: "form", URL: src.URL, Captures: compile(t, parser.Field{Name: "link", Rule: parser.Rule{CSS: "a"}, Attr: "href", Type: "url"})},
				{Name: "next", URL: template(t, "{link}")},
			}
			runOnce(t, options(s, web, src))
			j, _ := job(t, s, "001")
			if j.Reason != want || (want == "") != (j.State == storage.StateComplete) {
				t.Errorf("%s: job is %s, %s: %s", link, j.State, j.Category, j.Reason)
			}
		})
	}
}

// The timeout is over all steps together, and no workflow outlasts its session.
func TestWorkflowTimeout(t *testing.T) {
	for _, c := range []struct{ timeout, sticky, want time.Duration }{
		{time.Minute, 20 * time.Minute, time.Minute},
		{time.Hour, 50 * time.Second, 50 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, web := openStore(t), newQuotes()
			web.before = func(req *http.Request, _ string) (*http.Response, error) {
				select {
				case <-time.After(25 * time.Second):
					return nil, nil
				case <-req.Context().Done():
					return nil, req.Context().Err()
				}
			}
			src := quote(t)
			src.Timeout, src.Sticky, src.Limits.Attempts = c.timeout, c.sticky, 1
			begin := time.Now()
			runOnce(t, options(s, web, src))
			j, attempts := job(t, s, "001")
			if took := attempts[0].End.Sub(begin); j.Category != storage.CategoryReadTimeout || took < c.want || took > c.want+time.Second {
				t.Errorf("job %+v after %s, want %s", j, took, c.want)
			}
			if attempts[0].Step != "result" {
				t.Errorf("it ended in step %s", attempts[0].Step)
			}
		})
	}
}

// Each step waits for its host's turn and obeys its robots.txt, on whichever
// host it is.
func TestStepsHaveManners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, web := openStore(t), newQuotes()
		opts := options(s, web, quote(t))
		opts.Pacing = pacing(4, 5*time.Second)
		runOnce(t, opts)
		last := web.requests["/form"][0]
		for _, path := range []string{"/check", "/result"} {
			at := web.requests[path][0]
			if d := at.Sub(last); d < 5*time.Second {
				t.Errorf("%s came %s after the step before", path, d)
			}
			last = at
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, web := openStore(t), newQuotes()
		web.before = func(req *http.Request, _ string) (*http.Response, error) {
			if req.URL.Path == "/robots.txt" {
				return respond(200, "User-agent: *\nDisallow: /result\n", "Content-Type", "text/plain"), nil
			}
			return nil, nil
		}
		opts := options(s, web, quote(t))
		opts.Robots = true
		runOnce(t, opts)
		j, attempts := job(t, s, "001")
		if j.Category != storage.CategoryRobotsDenied || attempts[0].Step != "result" || web.posts() != 0 {
			t.Errorf("job %+v, the site saw %s", j, web.seen())
		}
	})
}

// A host that asks for time is held back, also where it is only a step's.
func TestStepGatesItsHost(t *testing.T) {
	for name, robots := range map[string]bool{"by status": false, "by robots.txt": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, web := openStore(t), newQuotes()
				busy := respond(503, "", "Retry-After", "3600")
				web.before = func(req *http.Request, _ string) (*http.Response, error) {
					switch {
					case req.URL.Host == "other.test" && (req.URL.Path == "/robots.txt") == robots:
						return busy, nil
					case req.URL.Path == "/robots.txt":
						return respond(404, ""), nil
					}
					return nil, nil
				}
				src := quote(t)
				src.Steps[1].URL = template(t, "http://other.test/check?token={token}")
				src.Limits.Attempts = 1
				opts := options(s, web, src)
				opts.Robots = robots
				runOnce(t, opts)
				var gates map[string]time.Time
				if err := s.View(func(tx *storage.Tx) (err error) { gates, err = tx.HostGates(); return err }); err != nil {
					t.Fatal(err)
				}
				if len(gates) != 1 || gates["other.test"].Before(time.Now().Add(59*time.Minute)) {
					t.Errorf("gates %v", gates)
				}
			})
		})
	}
}

// A stop between two steps hands the job back as it was; the next run does all
// steps again.
func TestStopBetweenSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, web := openStore(t), newQuotes()
		ctx, stop := context.WithCancel(t.Context())
		web.before = func(req *http.Request, session string) (*http.Response, error) {
			if req.URL.Path != "/result" || session != "1" {
				return nil, nil
			}
			stop()
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		opts := options(s, web, quote(t))
		opts.Bodies = BodiesAll
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if sum, err := e.RunOnce(ctx); err != nil || sum.Released != 1 {
			t.Fatalf("%+v, %v", sum, err)
		}
		j, attempts := job(t, s, "001")
		if j.State != storage.StatePending || j.Attempts != 0 || !attempts[0].Page.IsZero() || export(t, s, "shop") != "" {
			t.Errorf("job %+v, attempts %+v", j, attempts)
		}
		runOnce(t, opts)
		if got := export(t, s, "shop"); got != secondQuote {
			t.Errorf("export %q", got)
		}
	})
}

// A worker that loses its lease between two steps publishes nothing, though it
// goes on to the end; the other does all steps itself.
func TestLeaseLostBetweenSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, web := openStore(t), newQuotes()
		release := make(chan struct{})
		web.before = func(req *http.Request, session string) (*http.Response, error) {
			if req.URL.Path == "/check" && session == "1" {
				<-release // deaf to its context
			}
			return nil, nil
		}
		e, err := New(options(s, web, quote(t)))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan Summary, 1)
		go func() {
			sum, err := e.Run(ctx)
			if err != nil {
				t.Error(err)
			}
			done <- sum
		}()
		time.Sleep(10 * time.Minute)
		close(release)
		synctest.Wait()
		stop()
		if sum := <-done; sum.Stale != 1 || sum.Completed != 1 || sum.Rescued != 1 {
			t.Errorf("%+v", sum)
		}
		if got := export(t, s, "shop"); got != secondQuote {
			t.Errorf("export %q; the site saw %s", got, web.seen())
		}
	})
}

// A page that nobody reads may be empty; one that is read may not.
func TestUnreadPages(t *testing.T) {
	for n, want := range map[int]storage.Category{0: storage.CategoryContentType, 1: "", 2: storage.CategoryContentType} {
		synctest.Test(t, func(t *testing.T) {
			s, web := openStore(t), newQuotes()
			src := quote(t)
			web.before = func(req *http.Request, _ string) (*http.Response, error) {
				if strings.HasPrefix(src.Steps[n].URL.String(), "http://quote.test"+req.URL.Path) {
					return respond(200, ""), nil
				}
				return nil, nil
			}
			src.Limits.Attempts = 1
			runOnce(t, options(s, web, src))
			if j, _ := job(t, s, "001"); j.Category != want {
				t.Errorf("an empty page of step %d: job %+v", n, j)
			}
		})
	}
}

// A target that is gone may be an observation, whichever step says so.
func TestGoneInAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, web := openStore(t), newQuotes()
		web.before = func(req *http.Request, _ string) (*http.Response, error) {
			if req.URL.Path == "/check" {
				return respond(404, "no such place"), nil
			}
			return nil, nil
		}
		src := quote(t)
		src.Gone = true
		runOnce(t, options(s, web, src))
		j, attempts := job(t, s, "001")
		if j.State != storage.StateComplete || attempts[0].Step != "check" || !attempts[0].Gone() || web.posts() != 0 {
			t.Errorf("job %+v, attempts %+v", j, attempts)
		}
	})
}
