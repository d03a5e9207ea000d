package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"semel/failpoint"
)

// orders is a site that takes an order: a form that begins a session, the order
// itself, and a receipt. It counts what it was asked for, and tells when.
type orders struct {
	*httptest.Server
	mu       sync.Mutex
	asked    map[string]int
	sessions int
	arrived  map[string]chan struct{} // by path: closed when it is asked for, and then not answered
}

func newOrders(t *testing.T) *orders {
	s := &orders{asked: map[string]int{}, arrived: map[string]chan struct{}{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *orders) serve(w http.ResponseWriter, r *http.Request) {
	token := r.PostFormValue("token") // reads the body: only then the server sees its client die
	s.mu.Lock()
	s.asked[r.URL.Path]++
	arrived := s.arrived[r.URL.Path]
	delete(s.arrived, r.URL.Path)
	session, err := r.Cookie("session")
	if r.URL.Path == "/form" && err != nil {
		s.sessions++
		session = &http.Cookie{Name: "session", Value: fmt.Sprint(s.sessions)}
		http.SetCookie(w, session)
	}
	s.mu.Unlock()
	if arrived != nil {
		close(arrived)
		<-r.Context().Done()
		return
	}
	switch {
	case session == nil || r.URL.Path == "/order" && token != session.Value:
		http.Error(w, "of no session", http.StatusBadRequest)
	case r.URL.Path == "/form":
		fmt.Fprintf(w, "<h1>Form %s</h1><input name=token value=%[1]s>", session.Value)
	default:
		fmt.Fprintf(w, "<h2>Receipt %s</h2>", session.Value)
	}
}

func (s *orders) arrival(path string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived[path] = make(chan struct{})
	return s.arrived[path]
}

func (s *orders) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

func ordersConfig(site string) string {
	return fmt.Sprintf(`version = 1
[engine]
allow_private = true
robots = false
[host."*"]
interval = "0s"
[source.order]
[[source.order.step]]
name = "form"
url = "%[1]s/form"
capture = { token = { css = "input", attr = "value", required = true } }
[[source.order.step]]
name = "order"
url = "%[1]s/order"
method = "POST"
form = { token = "{token}" }
[[source.order.step]]
name = "receipt"
url = "%[1]s/receipt"
[source.order.parser.fields]
form = { css = "h1", step = "form", required = true }
receipt = { css = "h2", required = true }
`, site)
}

// wantOrder runs until nothing is left to do and wants the order to be complete
// and sent once, or failed for a person to decide; then the person does. It
// reports whether it had failed.
func wantOrder(t *testing.T, f *folder, site *orders) (failed bool) {
	t.Helper()
	_, stderr, code := f.semel("run", "--once")
	posts := site.count("/order")
	story := f.ok("show", "1", "--json")
	switch failed = strings.Contains(story, `"state":"failed"`); {
	case failed:
		if code != 3 || posts > 1 || !strings.Contains(story, `"category":"unsafe_to_repeat"`) || !strings.Contains(story, "semel retry 1 sends it again") {
			t.Errorf("exit %d after %d orders, %s\n%s", code, posts, story, stderr)
		}
		if got := f.ok("export", "order"); got != "" {
			t.Errorf("a failed order is published: %s", got)
		}
		f.ok("retry", "1")
		f.ok("run", "--once")
		if n := site.count("/order") - posts; n != 1 {
			t.Errorf("a person's retry sent it %d times", n)
		}
	case code != 0 || posts != 1:
		t.Errorf("exit %d after %d orders\n%s", code, posts, stderr)
	}
	var form, receipt int
	line := f.ok("export", "order", "--data-only")
	if _, err := fmt.Sscanf(line, `{"form":"Form %d","receipt":"Receipt %d"}`, &form, &receipt); err != nil || form != receipt {
		t.Errorf("the record %q is not of one session (%v)", line, err)
	}
	f.ok("verify")
	return failed
}

// TestKillInAWorkflow kills the program while the site has a step and does not
// answer, and before and after each commit. Whatever was sent already: an order
// is never sent a second time by itself, and records are of one session.
func TestKillInAWorkflow(t *testing.T) {
	for path, wantFailed := range map[string]bool{"/form": false, "/order": true, "/receipt": true} {
		site := newOrders(t)
		f := newFolder(t, ordersConfig(site.URL))
		if !killed(t, f.command("run", "--once"), site.arrival(path)) {
			t.Fatalf("%s: it was not killed", path)
		}
		if failed := wantOrder(t, f, site); failed != wantFailed {
			t.Errorf("killed in %s: failed %v", path, failed)
		}
	}
	for _, point := range []failpoint.Point{failpoint.BeforeCommit, failpoint.AfterCommit} {
		outcomes := map[bool]int{}
		for n := 1; n <= 12; n++ { // some commits of a run come together, so runs have more or fewer
			site := newOrders(t)
			f := newFolder(t, ordersConfig(site.URL))
			cmd := f.command("run", "--once")
			cmd.Env = append(cmd.Env, trap{Point: point, Hit: n}.env())
			died := killed(t, cmd, nil)
			if failed := wantOrder(t, f, site); died {
				outcomes[failed]++
			}
		}
		t.Logf("%s: complete after %d kills, for a person to decide after %d", point, outcomes[false], outcomes[true])
		if n := outcomes[false] + outcomes[true]; n < 3 {
			t.Errorf("%s: only %d kills", point, n)
		}
	}
}
