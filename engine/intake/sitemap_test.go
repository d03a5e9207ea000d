package intake

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pages is a site of sitemaps, by URL.
type pages map[string]string

func (p pages) get(url string) (io.ReadCloser, error) {
	text, ok := p[url]
	if !ok {
		return nil, fmt.Errorf("404: %w", fs.ErrNotExist)
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

// readSitemap reads all that a sitemap gives: URLs, and rows and ends that went
// wrong.
func readSitemap(get func(string) (io.ReadCloser, error), url string) (urls, faults []string) {
	r := OpenSitemap(url, get)
	defer r.Close()
	for {
		target, err := r.Next()
		switch {
		case err == io.EOF:
			return urls, faults
		case err == nil:
			loc, _ := target.Vars.Get("url")
			urls = append(urls, fmt.Sprintf("%d %s", target.Line, loc))
			continue
		}
		faults = append(faults, err.Error())
		if _, bad := errors.AsType[*RowError](err); !bad {
			return urls, faults
		}
	}
}

func gzipped(text string) string {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

const ns = ` xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"`

func TestSitemap(t *testing.T) {
	whole := "<urlset" + ns + ">\n<url><loc>https://a.test/1</loc><lastmod>2026-01-01</lastmod></url>\n<url>\n<loc>https://b.test/2</loc></url></urlset>"
	for _, test := range []struct {
		name, text string
		urls       []string
		faults     []string
	}{
		{"as the protocol has it", `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + whole, []string{"3 https://a.test/1", "4 https://b.test/2"}, nil},
		{"compressed, whatever its name", gzipped(whole), []string{"2 https://a.test/1", "3 https://b.test/2"}, nil},
		{"with a mark and blank lines", "\uFEFF\n\n" + whole, []string{"4 https://a.test/1", "5 https://b.test/2"}, nil},
		{"spaces, CDATA and entities", "<urlset><url><loc>\n https://a.test/1?a=1&amp;b=2 \n</loc></url><url><loc><![CDATA[https://a.test/2?a&b]]></loc></url></urlset>",
			[]string{"1 https://a.test/1?a=1&b=2", "3 https://a.test/2?a&b"}, nil},
		{"bare ampersands", "<urlset><url><loc>https://a.test/?a=1&b=2&copy=3</loc></url></urlset>", []string{"1 https://a.test/?a=1&b=2&copy=3"}, nil},
		{"any case and prefix", `<sm:URLSET xmlns:sm="x"><sm:Url><sm:Loc>https://a.test/1</sm:Loc></sm:Url></sm:URLSET>`, []string{"1 https://a.test/1"}, nil},
		{"images have locs of their own", `<urlset xmlns:image="i"><url><image:image><image:loc>https://i.test/1</image:loc></image:image><image:loc>https://i.test/2</image:loc><loc>https://a.test/1</loc></url></urlset>`,
			[]string{"1 https://a.test/1"}, nil},
		{"another charset", "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?><urlset><url><loc>https://a.test/\xe4</loc></url></urlset>", []string{"1 https://a.test/ä"}, nil},
		{"text", "https://a.test/1\r\n\n https://a.test/2 \n# no URL\nhttps://a.test/3", []string{"1 https://a.test/1", "3 https://a.test/2", "5 https://a.test/3"}, nil},
		{"entries that are none", "<urlset><url></url>\n<url><loc> </loc></url>\n<url><loc>a</loc><loc>b</loc></url><other><loc>x</loc></other>\n<url><loc>" + strings.Repeat("x", MaxKeyBytes+1) + "</loc></url></urlset>",
			nil, []string{"S:1: the entry has no loc", "S:2: the entry has no loc", "S:3: the entry has more than one loc", "S:4: loc of more than 8192 bytes"}},
		{"no sitemap", "<!doctype html><html><body>Not found</body></html>", nil, []string{"reading targets S: it is no sitemap: its element is \"html\", not urlset or sitemapindex"}},
		{"empty", " \n ", nil, []string{"reading targets S: it is empty"}},
		{"nothing but a comment", "<!-- x -->", nil, []string{"reading targets S: it has no element"}},
		{"broken off", "<urlset><url><loc>https://a.test/1</loc></url><url><loc>https://a.t", []string{"1 https://a.test/1"}, []string{"reading targets S: XML syntax error on line 1: unexpected EOF"}},
		{"broken compression", gzipped(whole)[:60], nil, []string{"reading targets S: unexpected EOF"}},
		{"nested without end", strings.Repeat("<urlset>", 100), nil, []string{"reading targets S: its elements are nested 32 deep"}},
		{"one huge piece", "<urlset><url><loc>" + strings.Repeat("x", 3<<20), nil, []string{"reading targets S: a piece of more than 1048576 bytes"}},
		{"no entries", "<urlset/>", nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			urls, faults := readSitemap(pages{"S": test.text}.get, "S")
			if diff := cmp.Diff(test.urls, urls); diff != "" {
				t.Errorf("URLs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.faults, faults); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSitemapIndex(t *testing.T) {
	index := func(urls ...string) string {
		return "<sitemapindex" + ns + "><sitemap><loc>" + strings.Join(urls, "</loc></sitemap>\n<sitemap><loc>") + "</loc></sitemap></sitemapindex>"
	}
	set := func(url string) string { return "<urlset><url><loc>" + url + "</loc></url></urlset>" }
	const root, a, b, c = "https://s.test/", "https://s.test/a", "https://s.test/b", "https://s.test/c"
	for _, test := range []struct {
		name         string
		site         pages
		urls, faults []string
	}{
		{"each once, in order", pages{root: index(b, a, b), a: set("1"), b: gzipped(set("2"))}, []string{"1 2", "1 1"}, nil},
		{"an index in an index, in a circle", pages{root: index(a), a: index(root, a, b), b: set("1")}, []string{"1 1"}, nil},
		{"one that is not there", pages{root: index(a, b), b: set("1")}, []string{"1 1"}, []string{a + ": the sitemap could not be read: 404: file does not exist"}},
		{"one that is broken", pages{root: index(a, b), a: "<urlset><url><loc>1</loc></url>", b: set("2")}, []string{"1 1", "1 2"},
			[]string{a + ": the sitemap could not be read: XML syntax error on line 1: unexpected EOF", "reading targets " + root + ": 1 of 3 sitemaps could not be read"}},
		{"one that is none", pages{root: index("ftp://s.test/", "/c", c), c: set("1")}, []string{"1 1"},
			[]string{root + ":1: sitemap: scheme \"ftp\" is neither http nor https", root + ":2: sitemap: is not absolute: it must start with http:// or https://"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			urls, faults := readSitemap(test.site.get, root)
			if diff := cmp.Diff(test.urls, urls); diff != "" {
				t.Errorf("URLs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.faults, faults); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// Indexes that name ever more indexes come to an end, and that is told.
func TestSitemapBounds(t *testing.T) {
	asked := 0
	endless := func(url string) (io.ReadCloser, error) {
		asked++
		text := fmt.Sprintf("<sitemapindex><sitemap><loc>%s/x</loc></sitemap></sitemapindex>", url)
		return io.NopCloser(strings.NewReader(text)), nil
	}
	_, faults := readSitemap(endless, "https://s.test")
	if asked != maxSitemapDepth+1 || len(faults) != 2 || !strings.Contains(faults[0], "an index in an index, 5 deep") || !strings.Contains(faults[1], "1 of 6 sitemaps could not be read") {
		t.Errorf("%d asked, %q", asked, faults)
	}
	var many strings.Builder
	many.WriteString("<sitemapindex>")
	for i := range maxSitemaps {
		fmt.Fprintf(&many, "<sitemap><loc>https://s.test/%d</loc></sitemap>", i)
	}
	many.WriteString("</sitemapindex>")
	_, faults = readSitemap(pages{"S": many.String()}.get, "S")
	if len(faults) != 1 || faults[0] != "reading targets S: more than 50000 sitemaps are named" {
		t.Errorf("%d faults, the last %q", len(faults), faults[len(faults)-1])
	}
}

// repeat is so much of a text as is asked for, after a head.
type repeat struct {
	head, text string
	at         int
	left       int // texts
}

func (r *repeat) Read(p []byte) (int, error) {
	if r.head != "" {
		n := copy(p, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	if r.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.text[r.at:])
	if r.at += n; r.at == len(r.text) {
		r.at = 0
		r.left--
	}
	return n, nil
}

// A sitemap of the largest size is read in the memory of a small one, and one
// that is larger fails, packed or not.
func TestLargeSitemap(t *testing.T) {
	const entry = "<url><loc>https://a.test/products/1234567890</loc></url>\n"
	large := func(entries int) func(string) (io.ReadCloser, error) {
		return func(string) (io.ReadCloser, error) {
			return io.NopCloser(&repeat{head: "<urlset>", text: entry, left: entries}), nil
		}
	}
	fits := (MaxSitemapBytes - 8) / len(entry)
	r := OpenSitemap("S", large(fits))
	defer r.Close()
	n, most := 0, uint64(0)
	for ; ; n++ {
		if _, err := r.Next(); err != nil {
			if !strings.Contains(err.Error(), "unexpected EOF") { // it has no end
				t.Error(err)
			}
			break
		}
		if n%200_000 == 0 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			if n == 0 {
				most = m.HeapAlloc + 1<<20
			} else if m.HeapAlloc > most {
				t.Errorf("after %d entries the heap has %d bytes, at most %d were expected", n, m.HeapAlloc, most)
			}
		}
	}
	if n != fits {
		t.Errorf("%d entries, want %d", n, fits)
	}
}

func TestSitemapOverTheBound(t *testing.T) {
	line := strings.Repeat("#", 1<<16-1) + "\n"
	for bytes, want := range map[int]int{MaxSitemapBytes: 0, MaxSitemapBytes + 1: 1} {
		text := "#" + strings.Repeat(line, MaxSitemapBytes/len(line)+1)[:bytes-1]
		for name, text := range map[string]string{"plain": text, "packed": gzipped(text)} {
			_, faults := readSitemap(pages{"S": text}.get, "S")
			if len(faults) != want || want == 1 && faults[0] != "reading targets S: more than 52428800 bytes, which is more than a sitemap may have" {
				t.Errorf("%s, %d bytes: %q", name, bytes, faults)
			}
		}
	}
}

func FuzzSitemap(f *testing.F) {
	for _, text := range []string{
		"<urlset><url><loc>https://a.test/1</loc></url></urlset>", "<sitemapindex><sitemap><loc>https://a.test/b</loc></sitemap></sitemapindex>",
		"https://a.test/1\nhttps://a.test/2", gzipped("<urlset/>"), "<urlset></url></loc>", "<?xml version='1.0' encoding='utf-16'?><urlset>", "<a><b></a></b>&#0;]]>",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		asked := 0
		get := func(string) (io.ReadCloser, error) {
			if asked++; asked > 10 { // the same text each time says nothing more
				return nil, fs.ErrNotExist
			}
			return io.NopCloser(bytes.NewReader(text)), nil
		}
		urls, faults := readSitemap(get, "https://s.test/")
		if n := len(urls) + len(faults); n > (len(text)+2)*(asked+1) {
			t.Errorf("%d entries of %d bytes, %d times", n, len(text), asked)
		}
	})
}
