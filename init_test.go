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

// TestInitCorpus writes a config for each of 50 saved pages, which check must
// accept, whose title must be the page's own, and by which try must read the
// page to the values that stand in it.
func TestInitCorpus(t *testing.T) {
	real(t)
	root, files := corpusFiles(t)
	f := newFolder(t, "")
	titled, rows, fields := 0, 0, 0
	for _, file := range firstByHash(files) {
		page := filepath.Join(root, file)
		var proposal struct {
			Source, Config string
			Rows           bool
			Fields         []string
		}
		if err := json.Unmarshal([]byte(f.ok("init", "--file", page, "--json")), &proposal); err != nil {
			t.Fatal(err)
		}
		f.write("semel.toml", proposal.Config)
		f.ok("check")
		var tried struct {
			Records []struct{ Data map[string]any }
		}
		if err := json.Unmarshal([]byte(f.ok("try", proposal.Source, "--file", page, "--json")), &tried); err != nil {
			t.Fatal(err)
		}
		fields += len(proposal.Fields)
		title := tried.Records[0].Data["title"]
		if proposal.Rows {
			rows++
			title = tried.Records[0].Data["page_title"]
		}
		if want := saidTitles(t, page); len(want) > 0 {
			titled++
			if text, _ := title.(string); !slices.Contains(want, text) {
				t.Errorf("%s: the title is %q, the page says %q", file, title, want)
			}
		}
		for _, field := range proposal.Fields {
			if v := tried.Records[0].Data[field]; !proposal.Rows && (v == nil || v == "") {
				t.Errorf("%s: field %s has no value", file, field)
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
