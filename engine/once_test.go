package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/gateway"
	"semel/engine/intake"
	"semel/engine/proxy"
	"semel/storage"
)

// order is a workflow whose second step must not be repeated.
func order(t testing.TB) Source {
	t.Helper()
	src := quote(t)
	src.Steps[1], src.Steps[2] = src.Steps[2], Step{Name: "receipt", URL: template(t, "http://quote.test/receipt")}
	src.Steps[1].Once = true
	src.Rules = titleRules(t)
	return src
}

// single is a source whose one request must not be repeated.
func single(t testing.TB) Source {
	t.Helper()
	src := source(t, 1)
	src.URL = template(t, "http://quote.test/result")
	src.Steps = []Step{{URL: src.URL, Method: "POST", Body: intake.NewBody(intake.FormBody), Once: true}}
	return src
}

// newOrders is the site of order and single.
func newOrders(result, receipt func(*http.Request) (*http.Response, error)) *quotes {
	q := newQuotes()
	q.before = func(req *http.Request, _ string) (*http.Response, error) {
		switch req.URL.Path {
		case "/result":
			return result(req)
		case "/receipt":
			return receipt(req)
		}
		return nil, nil
	}
	return q
}

func answer(resp *http.Response, err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return resp, err }
}

// hang answers nothing while the attempt lasts.
func hang(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// retry does what semel retry does.
func retry(t *testing.T, s *storage.Store, j *storage.Job) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx *storage.Tx) error { _, err := tx.RequeueJob(j.ID); return err }); err != nil {
		t.Fatal(err)
	}
}

// Whatever fails once a step may have been sent that must not be repeated, in it
// or after it, it is not sent again by itself; a person may.
func TestOnceIsNotRepeated(t *testing.T) {
	done := answer(respond(200, "<h1>Done</h1>"), nil)
	for name, c := range map[string]struct {
		src             func(testing.TB) Source
		result, receipt func(*http.Request) (*http.Response, error)
		category        storage.Category // of the attempt
		reason          string           // of the job, before the way out
	}{
		"an error of the site": {order, answer(respond(503, "", "Retry-After", "5"), nil), done, storage.CategoryThrottled,
			"step result must not be repeated and was sent (answered with 503 Service Unavailable): step result: the site answered 503 Service Unavailable"},
		"no answer": {order, answer(nil, errors.New("reset")), done, storage.CategoryBodyTruncated,
			"step result must not be repeated and was sent (no answer came): step result: waiting for the answer: no valid answer: reset"},
		"no answer in time": {order, hang, done, storage.CategoryReadTimeout,
			"step result must not be repeated and was sent (no answer came): step result: waiting for the answer: "},
		"a redirect that sends it again": {order, answer(respond(307, "", "Location", "/there"), nil), done, storage.CategoryRedirectLoop,
			"step result must not be repeated and was sent (no answer came): step result: reading the body: redirect not followed: it would send the POST again"},
		"a later step": {order, answer(respond(200, "ok"), nil), answer(respond(500, "x"), nil), storage.CategoryServerError,
			"step result must not be repeated and was sent (answered with 200 OK): step receipt: the site answered 500 Internal Server Error"},
		"a later step's page": {order, answer(respond(200, "ok"), nil), answer(respond(200, "<b>x</b>"), nil), storage.CategoryValidation,
			"step result must not be repeated and was sent (answered with 200 OK): field title: is required and missing"},
		"a single request": {single, answer(respond(500, "x"), nil), done, storage.CategoryServerError,
			"the request must not be repeated and was sent (answered with 500 Internal Server Error): the site answered 500 Internal Server Error"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, web := openStore(t), newOrders(c.result, c.receipt)
				opts := options(s, web, c.src(t))
				runOnce(t, opts)
				runOnce(t, opts)
				j, attempts := job(t, s, "001")
				if web.posts() != 1 || len(attempts) != 1 || attempts[0].Category != c.category {
					t.Fatalf("%d POSTs, attempts %+v", web.posts(), attempts)
				}
				before, way, _ := strings.Cut(j.Reason, "; ")
				if j.State != storage.StateFailed || j.Category != storage.CategoryUnsafeToRepeat || !strings.HasPrefix(before, c.reason) || way != fmt.Sprintf("semel retry %d sends it again", j.ID) {
					t.Errorf("job %s, %s: %s", j.State, j.Category, j.Reason)
				}
				if sent := c.src(t).Steps[min(1, len(c.src(t).Steps)-1)]; j.Sent != sent.mark() {
					t.Errorf("the store has %q as sent", j.Sent)
				}
				web.before = newOrders(answer(respond(200, "<h1>Done</h1>"), nil), answer(respond(200, "<h1>Done</h1>"), nil)).before
				retry(t, s, j)
				runOnce(t, opts)
				if j, _ := job(t, s, "001"); j.State != storage.StateComplete || j.Sent != "" || web.posts() != 2 {
					t.Errorf("after a retry: job %+v, %d POSTs", j, web.posts())
				}
			})
		})
	}
}

// The mark is durable before the request leaves: the site is asked by nobody
// whose store does not say so. It is not there while robots.txt is asked, where
// a death is harmless.
func TestOnceIsMarkedBeforeItIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newOrders(func(*http.Request) (*http.Response, error) {
			if j, _ := job(t, s, "001"); j.Sent != "result" || j.State != storage.StateRunning {
				t.Errorf("at the site's, the job is %+v", j)
			}
			return respond(200, "ok"), nil
		}, answer(respond(200, "<h1>Done</h1>"), nil))
		rest := web.before
		web.before = func(req *http.Request, session string) (*http.Response, error) {
			if req.URL.Path != "/robots.txt" {
				return rest(req, session)
			}
			if j, _ := job(t, s, "001"); j.Sent != "" {
				t.Errorf("while the robots.txt of %s is asked, the job is %+v", req.URL.Host, j)
			}
			return respond(404, ""), nil
		}
		src := order(t)
		src.Steps[1].URL = template(t, "http://till.test/result")
		opts := options(s, web, src)
		opts.Robots = true
		runOnce(t, opts)
		if j, _ := job(t, s, "001"); j.State != storage.StateComplete || j.Sent != "" || web.count("/robots.txt") != 2 {
			t.Errorf("job %+v, the site saw %s", j, web.seen())
		}
	})
}

// A stop, a lost lease and a death leave the mark, and the next claim fails the
// job before it asks for anything. Before the mark they are as harmless as ever.
func TestOnceIsNotSentAfterADeath(t *testing.T) {
	stopped := func(t *testing.T, s *storage.Store, web *quotes, src Source) {
		e, err := New(options(s, web, src))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if _, err := e.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	silent := func(t *testing.T, s *storage.Store, web *quotes, src Source) {
		e, err := New(options(s, web, src))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		run(t, e, 10*time.Minute) // its lease is over, and so is the next claim
	}
	dead := func(t *testing.T, s *storage.Store, web *quotes, src Source) {
		claimMarked(t, s, web, src)
	}
	for name, c := range map[string]struct {
		die  func(*testing.T, *storage.Store, *quotes, Source)
		want int // POSTs
	}{"a stop": {stopped, 1}, "a worker that fell silent": {silent, 1}, "a death": {dead, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				web := newOrders(func(*http.Request) (*http.Response, error) {
					time.Sleep(6 * time.Minute) // deaf to its context
					return nil, errors.New("late")
				}, answer(respond(200, "<h1>Done</h1>"), nil))
				c.die(t, s, web, order(t))
				forms := web.count("/form")
				runOnce(t, options(s, web, order(t)))
				j, attempts := job(t, s, "001")
				if j.State != storage.StateFailed || j.Category != storage.CategoryUnsafeToRepeat || j.Sent != "result" {
					t.Errorf("job %+v, attempts %+v", j, attempts)
				}
				if web.posts() != c.want || web.count("/form") != forms {
					t.Errorf("the site saw %s", web.seen())
				}
				if n := len(attempts); n == 2 && j.Reason != fmt.Sprintf("step result must not be repeated and may have been sent: the outcome of an earlier attempt is not known; semel retry %d sends it again", j.ID) {
					t.Errorf("reason %s", j.Reason)
				}
			})
		})
	}
}

// claimMarked leaves a job as a process does that died right after the mark.
func claimMarked(t *testing.T, s *storage.Store, web *quotes, src Source) {
	t.Helper()
	e, err := New(options(s, web, src))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.enqueueAll(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), func(tx *storage.Tx) error {
		claimed, err := tx.ClaimJobs("the dead one", time.Hour, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
		if err != nil {
			return err
		}
		return tx.MarkSent(claimed[0][0].Lease(), "result")
	}); err != nil {
		t.Fatal(err)
	}
}

// Where no connection was made, nothing was sent: the mark is taken back and the
// job tried again by its policy. So it is where the gateway refused the login.
func TestOnceThatNeverLeft(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	posts := 0
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			posts++
		}
		fmt.Fprint(w, "<h1>Page</h1>")
	}))
	defer site.Close()
	refusing := startGateway(t, gateway.Options{Decode: func(string, string) (gateway.Login, bool) { return gateway.Login{}, false }})
	for name, c := range map[string]struct {
		url, gateway string
		category     storage.Category
		state        storage.JobState
	}{
		"nobody listens":           {"http://" + closed.Addr().String(), "", storage.CategoryConnectTimeout, storage.StateFailed},
		"the gateway is not there": {site.URL, "http://" + closed.Addr().String(), storage.CategoryProxyUnreachable, storage.StateFailed},
		"no TLS there":             {strings.Replace(site.URL, "http:", "https:", 1), "", storage.CategoryTLS, storage.StateFailed},
		"the login is refused":     {site.URL, refusing.URL(), storage.CategoryProxyAuth, storage.StatePending},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			src := single(t)
			src.URL = template(t, c.url)
			src.Retry = map[storage.Category]RetryPolicy{c.category: {Attempts: 2, Base: time.Millisecond}}
			opts := options(s, nil, src)
			if c.gateway != "" {
				opts.Proxies, opts.Sources[0].Proxies = []Proxy{gatewayProxy(t, c.gateway)}, []string{"home"}
			}
			runOnce(t, opts)
			j, attempts := job(t, s, "001")
			if len(attempts) != 2 || attempts[1].Category != c.category || j.State != c.state || j.Sent != "" || posts != 0 {
				t.Errorf("job %+v, attempts %+v, %d POSTs", j, attempts, posts)
			}
		})
	}
}

// A first step that was sent stays sent where a second one never left.
func TestTwoOnceSteps(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<h1>Page</h1>") }))
	defer site.Close()
	s := openStore(t)
	src := single(t)
	src.Sticky, src.URL = time.Minute, template(t, site.URL)
	src.Steps = []Step{
		{Name: "pay", Method: "POST", Once: true},
		{Name: "confirm", URL: template(t, strings.Replace(site.URL, "http:", "https:", 1)), Method: "POST", Once: true},
	}
	runOnce(t, options(s, nil, src))
	j, attempts := job(t, s, "001")
	if j.Sent != "pay" || j.Category != storage.CategoryUnsafeToRepeat || !strings.HasPrefix(j.Reason, "step pay must not be repeated and was sent (answered with 200 OK): step confirm: ") {
		t.Errorf("job %+v", j)
	}
	if len(attempts) != 1 || attempts[0].Step != "confirm" || attempts[0].Category != storage.CategoryTLS {
		t.Errorf("attempts %+v", attempts)
	}
}

// gatewayProxy is a proxy whose login names its session.
func gatewayProxy(t *testing.T, url string) Proxy {
	t.Helper()
	p, err := proxy.New(proxy.Spec{Name: "home", URL: url, Username: "user", Password: "pass", UsernameTemplate: "{username}-sid-{session}"})
	if err != nil {
		t.Fatal(err)
	}
	return Proxy{Proxy: p, Name: "home", Session: time.Hour}
}

// Over a real gateway: all steps of one execution go through one session over
// kept connections, the next execution through another, and the bytes of all
// steps are the attempt's.
func TestWorkflowThroughAGateway(t *testing.T) {
	var mu sync.Mutex
	var sessions, cookies []string
	failing := true
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		c := r.Header.Get("Cookie")
		cookies = append(cookies, r.URL.Path+" "+c)
		switch {
		case c == "":
			http.SetCookie(w, &http.Cookie{Name: "n", Value: fmt.Sprint(len(cookies))})
		case r.URL.Path == "/c" && failing:
			failing = false
			w.WriteHeader(500)
			return
		}
		fmt.Fprintf(w, "<h1>Page %s</h1>%s", c, strings.Repeat("x", 10_000))
	}))
	defer site.Close()
	gw := startGateway(t, gateway.Options{Decode: func(user, _ string) (gateway.Login, bool) {
		_, session, ok := strings.Cut(user, "-sid-")
		mu.Lock()
		defer mu.Unlock()
		sessions = append(sessions, session)
		return gateway.Login{Session: session}, ok
	}})
	var j *storage.Job
	keeping(t, func(t *testing.T) {
		s := openStore(t)
		src := source(t, 1)
		src.Proxies, src.Sticky, src.URL = []string{"home"}, time.Minute, template(t, site.URL+"/a")
		for _, name := range []string{"a", "b", "c"} {
			src.Steps = append(src.Steps, Step{Name: name, URL: template(t, site.URL+"/"+name)})
		}
		src.Retry = map[storage.Category]RetryPolicy{storage.CategoryServerError: {Base: time.Millisecond}}
		opts := options(s, nil, src)
		opts.Proxies = []Proxy{gatewayProxy(t, gw.URL())}
		runOnce(t, opts)
		j, _ = job(t, s, "001")
	})
	if got := strings.Join(cookies, ", "); got != "/a , /b n=1, /c n=1, /a , /b n=4, /c n=4" {
		t.Errorf("cookies %s", got)
	}
	if len(sessions) != 6 || sessions[0] != sessions[2] || sessions[3] != sessions[5] || sessions[0] == sessions[3] {
		t.Errorf("sessions %q", sessions)
	}
	stats := gw.Stats()
	if len(stats.Conns) != 2 {
		t.Errorf("%d connections for two executions", len(stats.Conns))
	}
	if j.State != storage.StateComplete || j.BytesUp+j.BytesDown != stats.Up+stats.Down || j.BytesDown < 50_000 {
		t.Errorf("the job counts %d and %d bytes, the gateway %d and %d", j.BytesUp, j.BytesDown, stats.Up, stats.Down)
	}
}

// Where the gateway shows its exits, a step through another one than the first
// is a lost session, whatever the site makes of it; only its wish to be left
// alone counts.
func TestExitChangesBetweenSteps(t *testing.T) {
	for name, c := range map[string]struct {
		exits    [3]string
		status   int // of the second step
		category storage.Category
	}{
		"it stays":                  {[3]string{"203.0.113.7", "203.0.113.7", "203.0.113.7"}, 200, ""},
		"it is not always shown":    {[3]string{"", "203.0.113.7", ""}, 200, ""},
		"another page":              {[3]string{"203.0.113.7", "203.0.113.8", "203.0.113.8"}, 200, storage.CategorySessionLost},
		"the site knows no session": {[3]string{"203.0.113.7", "203.0.113.8", "203.0.113.8"}, 400, storage.CategorySessionLost},
		"the site wants to wait":    {[3]string{"203.0.113.7", "203.0.113.8", "203.0.113.8"}, 429, storage.CategoryThrottled},
	} {
		t.Run(name, func(t *testing.T) {
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := int(r.URL.Path[1] - 'a')
				w.Header().Set("X-Brd-Ip", c.exits[n])
				if n == 1 {
					w.WriteHeader(c.status)
				}
				fmt.Fprint(w, "<h1>Page</h1>")
			}))
			defer site.Close()
			gw := startGateway(t, gateway.Options{Decode: func(string, string) (gateway.Login, bool) { return gateway.Login{}, true }})
			p, err := proxy.New(proxy.Spec{Name: "home", Provider: "brightdata", URL: gw.URL(), Username: "user", Password: "pass"})
			if err != nil {
				t.Fatal(err)
			}
			s := openStore(t)
			src := source(t, 1)
			src.Proxies, src.Sticky, src.URL, src.Limits.Attempts = []string{"home"}, time.Minute, template(t, site.URL+"/a"), 1
			for _, name := range []string{"a", "b", "c"} {
				src.Steps = append(src.Steps, Step{Name: name, URL: template(t, site.URL+"/"+name)})
			}
			opts := options(s, nil, src)
			opts.Proxies = []Proxy{{Proxy: p, Name: "home"}}
			runOnce(t, opts)
			j, attempts := job(t, s, "001")
			if len(attempts) != 1 || j.Category != c.category || c.category != "" && attempts[0].Step != "b" {
				t.Errorf("job %+v, attempts %+v", j, attempts)
			}
		})
	}
}

// The job's limit of bytes is over all steps together.
func TestWorkflowBytes(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "<h1>Page</h1>%s", strings.Repeat("x", 40_000))
	}))
	defer site.Close()
	s := openStore(t)
	src := source(t, 1)
	src.Sticky, src.URL, src.Limits.Bytes = time.Minute, template(t, site.URL+"/a"), 100_000
	for _, name := range []string{"a", "b", "c", "d"} {
		src.Steps = append(src.Steps, Step{Name: name, URL: template(t, site.URL+"/"+name)})
	}
	runOnce(t, options(s, nil, src))
	j, attempts := job(t, s, "001")
	if j.Category != storage.CategoryBudgetExhausted || attempts[0].Step != "c" || j.Spent < 80_000 || j.Spent > 101_000 {
		t.Errorf("job %+v, attempts %+v", j, attempts)
	}
}
