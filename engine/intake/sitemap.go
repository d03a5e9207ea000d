package intake

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"golang.org/x/net/html/charset"
)

const (
	// MaxSitemapBytes is how large one sitemap may be, decompressed. This and the
	// number of sitemaps are the protocol's own bounds (sitemaps.org).
	MaxSitemapBytes = 50 << 20
	maxSitemaps     = 50_000
	// maxSitemapDepth is how deep indexes may name indexes. The protocol allows
	// none, and large sites have one.
	maxSitemapDepth = 5
	// maxElements is how deep elements may nest: an entry with all its images has
	// four levels.
	maxElements = 32
)

var errSitemapTooLarge = fmt.Errorf("more than %d bytes, which is more than a sitemap may have", MaxSitemapBytes)

// OpenSitemap opens the URLs that a sitemap names, and the sitemaps that it names
// if it is an index, as targets with the variable url. A sitemap is XML or a text
// of one URL a line, and may be compressed by gzip, whatever its name. Close the
// Reader.
//
// get fetches one sitemap; its error is fs.ErrNotExist where the site says that
// there is none. A sitemap of an index that is not there is a *RowError, and one
// that cannot be read as well; in the second case Next ends with an error, not
// with io.EOF, since targets are lacking.
func OpenSitemap(url string, get func(url string) (io.ReadCloser, error)) *Reader {
	s := &sitemaps{get: get, todo: []sitemap{{url: url}}, seen: map[string]bool{url: true}}
	return &Reader{path: url, names: []string{"url"}, next: s.next, file: s}
}

// sitemaps iterates the URLs of a sitemap and of all that it names. Memory holds
// the names of sitemaps, at most maxSitemaps, and one entry.
type sitemaps struct {
	get    func(url string) (io.ReadCloser, error)
	todo   []sitemap
	seen   map[string]bool
	file   *sitemapFile // nil: none is open
	unread int          // that could not be read to the end
}

// sitemap is one that waits to be read.
type sitemap struct {
	url   string
	depth int
}

func (s *sitemaps) next() (Target, error) {
	for {
		if s.file == nil {
			if err := s.open(); err != nil {
				return Target{}, err
			}
		}
		entry, err := s.file.next()
		if err == nil && entry.index {
			err = s.add(entry)
		}
		_, bad := errors.AsType[*RowError](err)
		switch {
		case err == io.EOF:
			_ = s.Close()
		case err != nil && !bad:
			failed := s.file.sitemap
			_ = s.Close()
			return Target{}, s.fail(failed, err)
		case err != nil:
			return Target{}, err
		case !entry.index:
			return Target{Vars: Vars{{"url", entry.loc}}, File: s.file.url, Line: entry.line}, nil
		}
	}
}

// open opens the next sitemap. Its error is io.EOF where there is none.
func (s *sitemaps) open() error {
	if len(s.todo) == 0 {
		if s.unread > 0 {
			return fmt.Errorf("%d of %d sitemaps could not be read", s.unread, len(s.seen))
		}
		return io.EOF
	}
	m := s.todo[0]
	s.todo = s.todo[1:]
	body, err := s.get(m.url)
	if err != nil {
		return s.fail(m, err)
	}
	if s.file, err = openSitemap(m, body); err != nil {
		_ = body.Close()
		return s.fail(m, err)
	}
	return nil
}

// fail is what it means that a sitemap could not be read: for the first one that
// is the end.
func (s *sitemaps) fail(m sitemap, err error) error {
	if m.depth == 0 {
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		s.unread++
	}
	return &RowError{File: m.url, Reason: "the sitemap could not be read: " + err.Error()}
}

// add notes a sitemap that an index names.
func (s *sitemaps) add(e sitemapEntry) error {
	depth := s.file.depth + 1
	switch err := CheckURL(e.loc); {
	case err != nil:
		return &RowError{s.file.url, e.line, "sitemap: " + err.Error()}
	case s.seen[e.loc]:
		return nil
	case depth > maxSitemapDepth:
		s.unread++
		return &RowError{s.file.url, e.line, fmt.Sprintf("sitemap: it is named by an index in an index, %d deep", maxSitemapDepth)}
	case len(s.seen) == maxSitemaps:
		return fmt.Errorf("more than %d sitemaps are named", maxSitemaps)
	}
	s.seen[e.loc] = true
	s.todo = append(s.todo, sitemap{e.loc, depth})
	return nil
}

// Close closes the sitemap that is open.
func (s *sitemaps) Close() error {
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	return file.body.Close()
}

// sitemapFile is one sitemap that is being read.
type sitemapFile struct {
	sitemap
	body io.Closer
	next func() (sitemapEntry, error)
}

// sitemapEntry is one URL that a sitemap names.
type sitemapEntry struct {
	loc   string
	line  int
	index bool // it is of a sitemap
}

// openSitemap finds out in which form a sitemap comes.
func openSitemap(m sitemap, body io.ReadCloser) (*sitemapFile, error) {
	in := bufio.NewReaderSize(body, 64<<10)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		plain, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(plain, 64<<10)
	}
	in = bufio.NewReader(&capped{in: in, left: MaxSitemapBytes})
	if mark, _ := in.Peek(3); bytes.Equal(mark, []byte("\xEF\xBB\xBF")) {
		_, _ = in.Discard(3)
	}
	file := &sitemapFile{sitemap: m, body: body}
	start, err := in.Peek(1024) // some begin with blank lines
	switch start = bytes.TrimSpace(start); {
	case err != nil && err != io.EOF:
		return nil, err
	case len(start) == 0:
		return nil, errors.New("it is empty")
	case start[0] == '<':
		file.next = newSitemapXML(m.url, in).next
	default:
		list := &lines{in: in, path: m.url, parse: parseURLLine}
		file.next = func() (sitemapEntry, error) {
			target, err := list.next()
			loc, _ := target.Vars.Get("url")
			return sitemapEntry{loc: loc, line: target.Line}, err
		}
	}
	return file, nil
}

// capped is a reader that fails where there is more than left bytes.
type capped struct {
	in   io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	if int64(len(p)) > c.left+1 {
		p = p[:c.left+1]
	}
	n, err := c.in.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, errSitemapTooLarge
	}
	return n, err
}

// sitemapXML iterates the entries of an XML sitemap. It is as lenient as the
// readers that sites were written for: names in any case, any namespace, bare
// ampersands.
type sitemapXML struct {
	in    *xml.Decoder
	gauge *gauge
	path  string

	open  []xml.Name // elements around, names in lower case
	index bool       // its root is a sitemapindex
	line  int        // of the entry under way
	locs  int        // in it
	text  []byte     // of its loc
}

func newSitemapXML(path string, in io.Reader) *sitemapXML {
	x := &sitemapXML{path: path, gauge: &gauge{in: in}}
	x.in = xml.NewDecoder(x.gauge)
	x.in.Strict = false
	x.in.Entity = xml.HTMLEntity
	x.in.CharsetReader = charset.NewReaderLabel
	return x
}

func (x *sitemapXML) next() (sitemapEntry, error) {
	for {
		x.gauge.left = maxRowBytes
		token, err := x.in.Token()
		switch {
		case err == io.EOF && x.line == 0:
			return sitemapEntry{}, errors.New("it has no element")
		case errors.Is(err, errRowTooLong):
			return sitemapEntry{}, fmt.Errorf("a piece of more than %d bytes", maxRowBytes)
		case err != nil:
			return sitemapEntry{}, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			if err := x.begin(t.Name); err != nil {
				return sitemapEntry{}, err
			}
		case xml.CharData:
			if x.inLoc() && len(x.text) <= MaxKeyBytes {
				x.text = append(x.text, t...)
			}
		case xml.EndElement:
			if entry, ok := x.end(); ok {
				return x.entry(entry)
			}
		}
	}
}

// begin takes in the start of an element.
func (x *sitemapXML) begin(name xml.Name) error {
	name.Local = strings.ToLower(name.Local)
	x.open = append(x.open, name)
	switch len(x.open) {
	case 1:
		x.index = name.Local == "sitemapindex"
		x.line, _ = x.in.InputPos()
		if !x.index && name.Local != "urlset" {
			return fmt.Errorf("it is no sitemap: its element is %q, not urlset or sitemapindex", shortName(name.Local))
		}
	case 2:
		x.line, _ = x.in.InputPos()
		x.locs, x.text = 0, x.text[:0]
	case 3:
		if x.inLoc() {
			x.locs++
		}
	case maxElements:
		return fmt.Errorf("its elements are nested %d deep", maxElements)
	}
	return nil
}

// inLoc reports whether the innermost element is the loc of an entry. A loc of
// another namespace is that of an image or a video.
func (x *sitemapXML) inLoc() bool {
	if len(x.open) != 3 {
		return false
	}
	entry, loc := x.open[1], x.open[2]
	return loc.Local == "loc" && loc.Space == entry.Space && x.isEntry(entry)
}

func (x *sitemapXML) isEntry(name xml.Name) bool {
	if x.index {
		return name.Local == "sitemap"
	}
	return name.Local == "url"
}

// end takes in the end of an element, and reports whether it was an entry.
func (x *sitemapXML) end() (sitemapEntry, bool) {
	last := len(x.open) - 1
	name := x.open[last]
	x.open = x.open[:last]
	return sitemapEntry{loc: string(bytes.TrimSpace(x.text)), line: x.line, index: x.index}, last == 1 && x.isEntry(name)
}

// entry is what an entry says, if that is one URL.
func (x *sitemapXML) entry(e sitemapEntry) (sitemapEntry, error) {
	reason := ""
	switch {
	case x.locs == 0 || e.loc == "":
		reason = "the entry has no loc"
	case x.locs > 1:
		reason = "the entry has more than one loc"
	case len(x.text) > MaxKeyBytes:
		reason = fmt.Sprintf("loc of more than %d bytes", MaxKeyBytes)
	default:
		return e, nil
	}
	return sitemapEntry{}, &RowError{x.path, e.line, reason}
}

// shortName bounds what a site's own text brings into a message.
func shortName(name string) string {
	const most = 40
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}
