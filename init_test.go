package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"
)

// initPages is how many pages of the corpus init is tried on.
const initPages = 50

// firstByHash are the files whose names have the smallest SHA-256.
func firstByHash(files []string) []string {
	sum := func(file string) []byte {
		s := sha256.Sum256([]byte(path.Base(file)))
		return s[:]
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(bytes.Compare(sum(a), sum(b)), strings.Compare(a, b)) })
	return files[:initPages]
}

// started is what init says of a config that it writes, and what try reads of
// the page by it.
type started struct {
	Source, Config string
	Rows           bool
	Fields         []string
	records        []map[string]any
}

// initPage writes a config for a saved page, which check must accept, and tries
// it on the page: every value that the config shows must be there.
func initPage(t *testing.T, f *folder, page string) started {
	t.Helper()
	var s started
	if err := json.Unmarshal([]byte(f.ok("init", "--file", page, "--json")), &s); err != nil {
		t.Fatal(err)
	}
	f.write("semel.toml", s.Config)
	f.ok("check")
	var tried struct {
		Records []struct{ Data map[string]any }
	}
	if err := json.Unmarshal([]byte(f.ok("try", s.Source, "--file", page, "--json")), &tried); err != nil {
		t.Fatal(err)
	}
	for _, r := range tried.Records {
		s.records = append(s.records, r.Data)
	}
	for _, field := range s.Fields {
		has := func(r map[string]any) bool { return r[field] != nil && r[field] != "" }
		if !slices.ContainsFunc(s.records, has) {
			t.Errorf("%s: field %s has no value", page, field)
		}
	}
	return s
}

// title is what a page calls itself by its config.
func (s started) title() any {
	if s.Rows {
		return s.records[0]["page_title"]
	}
	return s.records[0]["title"]
}

// TestInitPages is TestInitCorpus with pages of our own.
func TestInitPages(t *testing.T) {
	const ld = `<meta property="og:title" content="Kettles"><script type="application/ld+json">`
	for name, c := range map[string]struct {
		page, title string
		records     int
	}{
		"item": {ld + `{"@type":"Product","name":"Kettle","offers":{"price":"9.50","priceCurrency":"EUR"}}</script>`, "Kettle", 1},
		"list": {ld + `{"@type":"ItemList","itemListElement":[{"name":"a","url":"/a"},{"name":"b","url":"/b"},{"name":"c","url":"/c"},` +
			`{"name":"d","url":"/d"},{"name":"e","url":"/e"}]}</script>`, "Kettles", 5},
		"plain": {`<h1>A 'plain' "page"</h1>`, `A 'plain' "page"`, 1},
	} {
		f := newFolder(t, "")
		f.write("page.html", c.page)
		s := initPage(t, f, "page.html")
		if len(s.records) != c.records || s.title() != c.title {
			t.Errorf("%s: %d records, titled %q", name, len(s.records), s.title())
		}
	}
}

// TestInitCorpus writes a config for each of 50 saved pages, which check must
// accept, whose title must be the page's own, and by which try must read the
// page to the values that stand in it. It takes half a minute.
func TestInitCorpus(t *testing.T) {
	real(t)
	root, files := corpusFiles(t)
	f := newFolder(t, "")
	titled, rows, fields := 0, 0, 0
	for _, file := range firstByHash(files) {
		page := filepath.Join(root, file)
		s := initPage(t, f, page)
		fields += len(s.Fields)
		if s.Rows {
			rows++
		}
		if want := saidTitles(t, page); len(want) > 0 {
			titled++
			if text, _ := s.title().(string); !slices.Contains(want, text) {
				t.Errorf("%s: the title is %q, the page says %q", file, text, want)
			}
		}
	}
	t.Logf("%d pages, %d of them lists; %d fields; %d say their title", initPages, rows, fields, titled)
}

// saidTitles are the titles that a page gives for machines, read without any of
// our code: og:title, and name and headline of its JSON-LD.
func saidTitles(t *testing.T, page string) []string {
	t.Helper()
	body, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := goquery.NewDocumentFromReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	var titles []string
	add := func(text string) {
		if text = strings.Join(strings.Fields(text), " "); text != "" {
			titles = append(titles, text)
		}
	}
	add(doc.Find(`meta[property="og:title"]`).First().AttrOr("content", ""))
	doc.Find(`script[type="application/ld+json"]`).Each(func(_ int, s *goquery.Selection) {
		var block any
		if json.Unmarshal([]byte(s.Text()), &block) == nil {
			eachThing(block, func(thing map[string]any) {
				for _, key := range []string{"headline", "name"} {
					text, _ := thing[key].(string)
					add(text)
				}
			})
		}
	})
	return titles
}

// eachThing calls fn for the objects of a JSON-LD block that a page can be
// about, in lists and @graph.
func eachThing(v any, fn func(map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			eachThing(e, fn)
		}
	case map[string]any:
		switch v["@type"] {
		case "Organization", "NewsMediaOrganization", "WebSite", "Person", "ImageObject", "BreadcrumbList", "ListItem":
		default:
			fn(v)
		}
		eachThing(v["@graph"], fn)
	}
}
