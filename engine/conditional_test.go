package engine

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"semel/engine/fetch"
	"semel/engine/intake"
	"semel/parser"
	"semel/storage"
	"semel/storage/storagetest"
)

// pageBytes is far more than the headers of any answer here.
const pageBytes = 50_000

// shopSite serves one page and answers conditional requests for it.
type shopSite struct {
	*httptest.Server

	mu     sync.Mutex
	title  string
	header http.Header          // of the page
	move   string               // where /p/ redirects to; "": it is the page
	asked  map[string][]request // by path
}

type request struct{ ifNoneMatch, ifModifiedSince string }

func newShop(t *testing.T, header ...string) *shopSite {
	s := &shopSite{title: "first", header: http.Header{}, asked: map[string][]request{}}
	for i := 0; i+1 < len(header); i += 2 {
		s.header.Set(header[i], header[i+1])
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *shopSite) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *shopSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.URL.Path] = append(s.asked[r.URL.Path], request{r.Header.Get("If-None-Match"), r.Header.Get("If-Modified-Since")})
	if s.move != "" && strings.HasPrefix(r.URL.Path, "/p/") {
		http.Redirect(w, r, s.move, http.StatusFound)
		return
	}
	for name := range s.header {
		w.Header().Set(name, s.header.Get(name))
	}
	w.Header().Set("Content-Type", "text/html")
	page := fmt.Sprintf("<html><title>%s page</title><h1>%s</h1>%s</html>", s.title, s.title, strings.Repeat("x", pageBytes))
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(page)) // answers If-None-Match
}

// window is the nth window of a source.
func window(n int) time.Time { return time.Date(2026, 4, 1, n, 0, 0, 0, time.UTC) }

// collect works the one target of a source for a window, and gives the attempts
// that took.
func collect(t *testing.T, s *storage.Store, src Source, n int, change func(*Options)) []storage.Attempt {
	t.Helper()
	src.Identity.Window = true
	j, err := src.NewJob(src.Targets.Targets[0], window(n))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), func(tx *storage.Tx) error {
		_, err := tx.EnqueueJob(j)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	src.Targets = intake.Spec{}
	opts := options(s, nil, src)
	opts.Bodies = BodiesAll
	if change != nil {
		change(&opts)
	}
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	var attempts []storage.Attempt
	if err := s.View(func(tx *storage.Tx) error {
		made, err := tx.JobByKey(j.Key)
		if err == nil {
			attempts, err = tx.Attempts(made.ID)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return attempts
}

// wantAttempt compares a single attempt that completed.
func wantAttempt(t *testing.T, attempts []storage.Attempt, status int, conditional bool) {
	t.Helper()
	if len(attempts) != 1 || attempts[0].Outcome != storage.OutcomeComplete || attempts[0].Status != status {
		t.Fatalf("%+v", attempts)
	}
	a := attempts[0]
	if headersOnly := a.BytesDown < 1000; headersOnly != (status == http.StatusNotModified) {
		t.Errorf("status %d took %d bytes", a.Status, a.BytesDown)
	}
	if a.Page.IsZero() || a.ContentType != "text/html" {
		t.Errorf("it names page %s of type %q", a.Page, a.ContentType)
	}
	if conditional != strings.Contains(a.Reason, "parsed from the kept page of attempt ") {
		t.Errorf("it says %q", a.Reason)
	}
}

func shopSource(t *testing.T, site *shopSite) Source {
	src := source(t, 1)
	src.URL = template(t, site.URL+"/p/{id}")
	return src
}

// The next window of a page that did not change costs headers, and gives the
// same record; one that did costs the page.
func TestUnchangedPageCostsHeaders(t *testing.T) {
	long := "Thu, 23 Apr 2015 15:00:00 GMT"
	for name, header := range map[string][]string{
		"strong": {"Etag", `"1"`}, "weak": {"Etag", `W/"1"`}, "both": {"Etag", `"1"`, "Last-Modified", long},
	} {
		t.Run(name, func(t *testing.T) {
			s, site := openStore(t), newShop(t, header...)
			src := shopSource(t, site)
			first := collect(t, s, src, 1, nil)
			wantAttempt(t, first, 200, false)
			data := export(t, s, "shop")
			for n := 2; n <= 3; n++ { // the third by what the second named
				again := collect(t, s, src, n, nil)
				wantAttempt(t, again, 304, true)
				if again[0].Page != first[0].Page || again[0].FinalURL != first[0].FinalURL || export(t, s, "shop") != data {
					t.Errorf("window %d gave %s", n, export(t, s, "shop"))
				}
			}
			asked := site.asked["/p/001"]
			if want := site.header.Get("Etag"); asked[0] != (request{}) || asked[1].ifNoneMatch != want || asked[2] != asked[1] {
				t.Errorf("asked %+v", asked)
			}
			if asked[1].ifModifiedSince != site.header.Get("Last-Modified") {
				t.Errorf("asked %+v", asked[1])
			}
			site.set(func() { site.title = "second"; site.header.Set("Etag", `"2"`) })
			wantAttempt(t, collect(t, s, src, 4, nil), 200, false)
			if got := export(t, s, "shop"); !strings.Contains(got, "second") {
				t.Errorf("the changed page gave %s", got)
			}
			storagetest.Check(t, s)
		})
	}
}

// A kept page is parsed by the rules of today.
func TestKeptPageIsParsedAnew(t *testing.T) {
	s, site := openStore(t), newShop(t, "Etag", `"1"`)
	src := shopSource(t, site)
	collect(t, s, src, 1, nil)
	rules, err := parser.Compile(parser.Spec{Version: 2, Fields: []parser.Field{{Name: "title", Rule: parser.Rule{CSS: "title"}}}})
	if err != nil {
		t.Fatal(err)
	}
	src.Rules, src.ParserVersion = rules, 2
	again := collect(t, s, src, 2, nil)
	wantAttempt(t, again, 304, true)
	if got := export(t, s, "shop"); got != `{"title":"first page"}`+"\n" || again[0].ParserVersion != 2 {
		t.Errorf("version %d gave %s", again[0].ParserVersion, got)
	}
}

// Where the kept page cannot be read the page is fetched whole, by the same
// attempt, and stored anew.
func TestKeptPageIsDamaged(t *testing.T) {
	for name, damage := range map[string]func(file string) error{
		"missing": os.Remove,
		"other bytes": func(file string) error {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			return os.WriteFile(file, bytes.Repeat([]byte{'x'}, len(text)), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "semel.db")
			s, err := storage.Open(path, storage.Options{NoSync: true}) // not checked: it is damaged
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			site := newShop(t, "Etag", `"1"`)
			src := shopSource(t, site)
			collect(t, s, src, 1, nil)
			files, _ := filepath.Glob(path + storage.PagesSuffix + "/*")
			if len(files) != 1 {
				t.Fatal(files)
			}
			if err := damage(files[0]); err != nil {
				t.Fatal(err)
			}
			wantAttempt(t, collect(t, s, src, 2, nil), 200, false)
			if asked := site.asked["/p/001"]; len(asked) != 3 || asked[1].ifNoneMatch == "" || asked[2] != (request{}) {
				t.Errorf("asked %+v", asked)
			}
			wantAttempt(t, collect(t, s, src, 3, nil), 304, true)
			storagetest.Check(t, s)
		})
	}
}

// A condition goes to the URL whose page it is of, and to no other.
func TestConditionStaysWithItsURL(t *testing.T) {
	s, site, other := openStore(t), newShop(t, "Etag", `"1"`), newShop(t, "Etag", `"1"`)
	src := shopSource(t, site)
	site.move = "/moved"
	wantAttempt(t, collect(t, s, src, 1, nil), 200, false)
	wantAttempt(t, collect(t, s, src, 2, nil), 304, true)
	if asked := append(site.asked["/p/001"], site.asked["/moved"][0]); asked[0] != (request{}) || asked[1] != (request{}) || asked[2] != (request{}) {
		t.Errorf("asked %+v", asked)
	}
	site.set(func() { site.move = other.URL + "/moved" })
	other.title = "other"
	wantAttempt(t, collect(t, s, src, 3, nil), 200, false)
	if asked := other.asked["/moved"]; len(asked) != 1 || asked[0] != (request{}) {
		t.Errorf("another site was asked %+v", asked)
	}
	if got := export(t, s, "shop"); !strings.Contains(got, "other") {
		t.Errorf("it gave %s", got)
	}
	site.set(func() { site.move = "" })
	src.URL = template(t, site.URL+"/q/{id}")
	wantAttempt(t, collect(t, s, src, 4, nil), 200, false)
	if asked := site.asked["/q/001"]; len(asked) != 1 || asked[0] != (request{}) {
		t.Errorf("another URL was asked %+v", asked)
	}
}

// Where pages are not kept nothing is asked for, and a 304 that nobody asked for
// is a failure.
func TestUnaskedNotModified(t *testing.T) {
	s, site := openStore(t), newShop(t, "Etag", `"1"`)
	src := shopSource(t, site)
	collect(t, s, src, 1, nil)
	collect(t, s, src, 2, func(o *Options) { o.Bodies = BodiesFailed })
	collect(t, s, src, 3, nil) // the second kept none
	for _, asked := range site.asked["/p/001"] {
		if asked != (request{}) {
			t.Errorf("asked %+v", asked)
		}
	}
	rude := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }))
	defer rude.Close()
	src.URL = template(t, rude.URL+"/p/{id}")
	src.Retry = map[storage.Category]RetryPolicy{storage.CategoryContentType: {Attempts: 1}}
	before := export(t, s, "shop")
	attempts := collect(t, s, src, 4, nil)
	if len(attempts) != 1 || attempts[0].Category != storage.CategoryContentType || attempts[0].Outcome != storage.OutcomeFail {
		t.Errorf("%+v", attempts)
	}
	if export(t, s, "shop") != before {
		t.Errorf("it gave %s", export(t, s, "shop"))
	}
}

func TestValidatorOf(t *testing.T) {
	const date, older, same = "Thu, 23 Apr 2026 15:00:00 GMT", "Thu, 23 Apr 2026 14:59:59 GMT", "Thu, 23 Apr 2026 15:00:00 GMT"
	tag := storage.Validator{ETag: `"1"`}
	for name, test := range map[string]struct {
		status int
		header []string
		want   storage.Validator
	}{
		"etag":                       {200, []string{"Etag", `"1"`}, tag},
		"last modified":              {200, []string{"Last-Modified", older, "Date", date}, storage.Validator{LastModified: older}},
		"modified this second":       {200, []string{"Last-Modified", same, "Date", date}, storage.Validator{}},
		"modified who knows when":    {200, []string{"Last-Modified", older}, storage.Validator{}},
		"modified at no time":        {200, []string{"Last-Modified", "yesterday", "Date", date, "Etag", `"1"`}, tag},
		"nothing":                    {200, nil, storage.Validator{}},
		"not a page":                 {206, []string{"Etag", `"1"`}, storage.Validator{}},
		"gone":                       {410, []string{"Etag", `"1"`}, storage.Validator{}},
		"not to be stored":           {200, []string{"Etag", `"1"`, "Cache-Control", "private, No-Store"}, storage.Validator{}},
		"to be asked for each time":  {200, []string{"Etag", `"1"`, "Cache-Control", "no-cache, max-age=0"}, tag},
		"varies by compression":      {200, []string{"Etag", `"1"`, "Vary", "Accept-Encoding"}, tag},
		"varies by language as well": {200, []string{"Etag", `"1"`, "Vary", "Accept-Encoding, Accept-Language"}, storage.Validator{}},
		"varies by everything":       {200, []string{"Etag", `"1"`, "Vary", "*"}, storage.Validator{}},
		"an endless etag":            {200, []string{"Etag", strings.Repeat("x", maxValidator+1)}, storage.Validator{}},
	} {
		h := http.Header{}
		for i := 0; i+1 < len(test.header); i += 2 {
			h.Set(test.header[i], test.header[i+1])
		}
		if got := validatorOf(&fetch.Page{Status: test.status, Header: h}); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
