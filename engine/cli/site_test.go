package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// site is a small site of product pages on loopback.
//
//	/p/N       a product
//	/p/bare    one without a price
//	/p/broken  a page without a title, which rules require
//	/p/tagged  one with an ETag
//	/p/picture no text, whatever it says
//	/p/gone    404
//	/p/shelf   three items in a list; after change one of them is gone, one
//	           dearer and one new
//	/p/hold…   no answer until release
//	/list/N    a listing, of two products and the next page, up to the third
//	/sitemap   an index of one sitemap, which names three products
type site struct {
	*httptest.Server
	releaseOnce sync.Once
	released    chan struct{}
	changed     atomic.Bool

	mu       sync.Mutex
	requests int
	asked    map[string]chan struct{} // closed when the path was asked for
}

func newSite() *site {
	s := &site{released: make(chan struct{}), asked: map[string]chan struct{}{}}
	s.Server = httptest.NewServer(s)
	return s
}

func (s *site) close() {
	s.release()
	s.Close()
}

// release lets the pages that are held go.
func (s *site) release() { s.releaseOnce.Do(func() { close(s.released) }) }

// arrival is closed when the path has been asked for.
func (s *site) arrival(path string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[path] == nil {
		s.asked[path] = make(chan struct{})
	}
	return s.asked[path]
}

func (s *site) note(path string) {
	arrived := s.arrival(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	select {
	case <-arrived:
	default:
		close(arrived)
	}
}

func (s *site) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.note(r.URL.Path)
	name := strings.TrimPrefix(r.URL.Path, "/p/")
	if strings.HasPrefix(name, "hold") {
		select {
		case <-s.released:
		case <-r.Context().Done():
			return
		}
	}
	if text, ok := s.index(r.URL.Path); ok {
		fmt.Fprint(w, text)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	switch name {
	case "gone":
		http.NotFound(w, r)
	case "bare":
		fmt.Fprint(w, "<h1>Bare</h1>")
	case "shelf":
		items := "<li id=a>1</li><li id=b>2</li><li id=c>3</li>"
		if s.changed.Load() {
			items = "<li id=a>1</li><li id=b>2.20</li><li id=d>4</li>"
		}
		fmt.Fprintf(w, "<ul>%s</ul>", items)
	case "broken":
		fmt.Fprint(w, "<b class=price>1.00</b>")
	case "picture": // which says that it is HTML
		fmt.Fprint(w, "\x89PNG\r\n\x1a\n\xff\xd8")
	case "tagged":
		w.Header().Set("Etag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, "<h1>Tagged</h1>")
	default:
		fmt.Fprintf(w, "<h1>Product %s</h1><b class=price>%d.50</b>", name, len(name))
	}
}

// index is a page of the site that leads to others.
func (s *site) index(path string) (string, bool) {
	switch path {
	case "/sitemap":
		return "<sitemapindex><sitemap><loc>" + s.URL + "/sitemap/1</loc></sitemap></sitemapindex>", true
	case "/sitemap/1":
		return s.fill("<urlset><url><loc>$SITE/p/1</loc></url>\n<url><loc>$SITE/p/2</loc></url>\n<url><loc>p/3</loc></url></urlset>"), true
	case "/list/1", "/list/2", "/list/3":
		n := path[len("/list/"):][0] - '0'
		text := fmt.Sprintf(`<h1>List %d</h1><a class=product href="/p/%d0">a</a><a class=product href="/p/%d1">b</a>`, n, n, n)
		if n < 3 {
			text += fmt.Sprintf(`<a class=next href="%d">next</a>`, n+1)
		}
		return "<!doctype html>" + text, true
	}
	return "", false
}

// configText is the config of scripts that bring none.
const configText = `version = 1

[engine]
allow_private = true
robots = false

[host."*"]
interval = "0s"

[source.pages]
url = "$SITE/p/{n}"
targets = "targets.csv"
key = "{n}"

[source.pages.parser.fields]
n = { var = "n" }
title = { css = "h1", required = true }
price = { css = ".price", type = "decimal", decimal = "." }
`

// fill puts the site's address into a text.
func (s *site) fill(text string) string { return strings.ReplaceAll(text, "$SITE", s.URL) }

func startSite(t *testing.T) *site {
	s := newSite()
	t.Cleanup(s.close)
	return s
}
