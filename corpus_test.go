package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/PuerkitoBio/goquery"
	"golang.org/x/net/html/charset"
)

// corpusModule holds more than 1,000 saved public pages in its test-files.
const corpusModule = "github.com/markusmobius/go-trafilatura@v1.12.2"

// Facts about the corpus as these rules read it. A change of one of them is a
// change of what users get, so it wants a look before it is written here.
//
// Of the 30 validation failures 29 are dates without an offset, or in a form of
// the page's own ("10.12.2022, 07:00:03"), which a timestamp without layout
// refuses to guess, and 1 is an author.name that is an object. The page without
// a kind is an empty file.
var corpusFacts = struct {
	pages, complete int
	failures        map[string]int
	present         map[string]int // records with a text in the field
}{
	pages:    1098,
	complete: 1067,
	failures: map[string]int{"validation": 30, "content_type": 1},
	present: map[string]int{
		"title": 1024, "heading": 927, "og_title": 850, "headline": 344, "author": 251,
		"canonical": 859, "published": 397, "modified": 409,
	},
}

// corpusConfig never pauses for drift: the pages are of a thousand sites, sorted
// by kind, and those in simple/ do lack what the others have.
func corpusConfig(proxy string) string {
	return fmt.Sprintf(`version = 1
[engine]
allow_private = true
[host."*"]
interval = "0s"
concurrency = 16
[proxy.real]
url = %q
username = "env:GW_USER"
password = "env:GW_PASS"
[source.corpus]
targets = "targets.txt"
proxy = "real"
[source.corpus.retry.content_type]
attempts = 1
[source.corpus.drift]
failed = 0
[source.corpus.parser]
version = 1
[source.corpus.parser.fields]
title     = { css = "title" }
heading   = { css = "h1" }
og_title  = { meta = "og:title" }
headline  = { jsonld = "headline" }
author    = { jsonld = "author.name" }
canonical = { css = "link[rel=canonical]", attr = "href", type = "url" }
published = { meta = "article:published_time", type = "timestamp" }
modified  = { jsonld = "dateModified" }
`, proxy)
}

// corpusFiles are the pages, by the path that nginx serves them under.
func corpusFiles(t *testing.T) (root string, files []string) {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", corpusModule).Output()
	if err != nil {
		t.Fatalf("downloading the corpus: %v\n%s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	root = filepath.Join(module.Dir, "test-files")
	for _, kind := range []string{"comparison", "mock", "simple"} {
		entries, err := os.ReadDir(filepath.Join(root, kind))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			files = append(files, kind+"/"+e.Name())
		}
	}
	return root, files
}

// TestCorpus collects every saved page through a real proxy and compares the
// titles with an independent reading.
func TestCorpus(t *testing.T) {
	real(t, "nginx", "tinyproxy")
	root, files := corpusFiles(t)
	web, targets := startNginx(t, root), ""
	for _, file := range files {
		u := url.URL{Path: "/" + file}
		targets += web.HTTP + u.EscapedPath() + "\n"
	}
	f := newFolder(t, corpusConfig(startTinyproxy(t)), "GW_USER="+partUser, "GW_PASS="+partPassword)
	f.write("targets.txt", targets)
	_, stderr, code := f.semel("run", "--once")
	if code != 0 && code != 3 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	if strings.Contains(stderr, "panic") {
		t.Errorf("a page made something panic:\n%s", stderr)
	}
	got := statusOf(t, f, "corpus")
	t.Logf("%d pages: %d complete, failures %v", len(files), got.Complete, got.Failures)
	if len(files) != corpusFacts.pages || got.Complete != corpusFacts.complete || !maps.Equal(got.Failures, corpusFacts.failures) {
		t.Errorf("the facts say %d pages, %d complete, failures %v", corpusFacts.pages, corpusFacts.complete, corpusFacts.failures)
	}
	titles := readCorpus(t, f.ok("export", "corpus"))
	compareTitles(t, root, files, titles)
}

// readCorpus compares how many records have each field, and gives the titles
// by file.
func readCorpus(t *testing.T, export string) map[string]string {
	t.Helper()
	titles, present := map[string]string{}, map[string]int{}
	for line := range strings.Lines(export) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		for field := range corpusFacts.present {
			if text, _ := record[field].(string); text != "" {
				present[field]++
			}
		}
		address, _ := record["_meta"].(map[string]any)["url"].(string)
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		titles[strings.TrimPrefix(u.Path, "/")], _ = record["title"].(string)
	}
	if !maps.Equal(present, corpusFacts.present) {
		t.Errorf("fields present: %v, the facts say %v", present, corpusFacts.present)
	}
	return titles
}

// compareTitles wants our titles to be those that goquery finds.
func compareTitles(t *testing.T, root string, files []string, ours map[string]string) {
	t.Helper()
	with, equal := 0, 0
	for _, file := range files {
		theirs := independentTitle(t, filepath.Join(root, file))
		title, there := ours[file]
		if theirs == "" || !there {
			continue
		}
		with++
		if title == theirs {
			equal++
		} else {
			t.Logf("%s: ours %q, goquery %q", file, title, theirs)
		}
	}
	t.Logf("titles equal on %d of %d pages", equal, with)
	if 100*equal < 98*with || with < 900 {
		t.Errorf("titles equal on %d of %d pages that have one", equal, with)
	}
}

// independentTitle reads a page's title without any of our code.
func independentTitle(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var text io.Reader = bytes.NewReader(raw)
	if !utf8.Valid(raw) { // what charset.NewReader reads of it is too little to see a <meta> that comes late
		encoding, _, _ := charset.DetermineEncoding(raw[:min(len(raw), 64<<10)], "text/html")
		text = encoding.NewDecoder().Reader(text)
	}
	doc, err := goquery.NewDocumentFromReader(text)
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(doc.Find("title").First().Text()), " ")
}
