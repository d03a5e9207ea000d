package intake

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Kind is a form that targets come in.
type Kind string

// Kinds of targets.
const (
	Inline Kind = ""      // Spec.Targets
	CSV    Kind = "csv"   // a header row names the variables
	JSONL  Kind = "jsonl" // one flat object a line
	TXT    Kind = "txt"   // one URL a line, as variable url; blank lines and "#" comments are skipped

	Sitemap Kind = "sitemap" // of a site, as variable url; it is fetched (OpenSitemap), so Open opens none
	Queue   Kind = "nats"    // the messages of a stream (Message); they are taken, so Open opens none
)

// KindOf tells the kind of a file by the end of its name; false where it is
// none that targets come in.
func KindOf(path string) (Kind, bool) {
	kind := Kind(strings.ToLower(strings.TrimPrefix(filepath.Ext(path), ".")))
	return kind, kind == CSV || kind == JSONL || kind == TXT
}

// maxRowBytes bounds a row, so that a lost line end or an unclosed quote does
// not read the whole file into memory.
const maxRowBytes = 1 << 20

var errRowTooLong = fmt.Errorf("row of more than %d bytes", maxRowBytes)

// Spec says where targets come from. The zero Spec has none.
type Spec struct {
	Kind    Kind
	Path    string   // of the file, URL of the sitemap, or name of the stream; "" for Inline
	Targets []Target // for Inline
}

// Reader reads targets one by one. It is for one goroutine.
type Reader struct {
	path  string
	names []string
	next  func() (Target, error)
	file  io.Closer // nil where there is nothing to close
}

// Open opens the targets of a Spec, and reads the header of a CSV file. Close
// the Reader.
func Open(spec Spec) (*Reader, error) {
	switch spec.Kind {
	case Inline:
		return &Reader{next: inline(spec.Targets)}, nil
	case Sitemap:
		return nil, fmt.Errorf("opening targets: %s is a sitemap, which only a run fetches", spec.Path)
	case Queue:
		return nil, fmt.Errorf("opening targets: %s is a stream, which has no list: only a run takes from it", spec.Path)
	}
	file, err := os.Open(spec.Path)
	if err != nil {
		return nil, fmt.Errorf("opening targets: %w", err)
	}
	r, err := NewReader(spec.Kind, spec.Path, file)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	r.file = file
	return r, nil
}

// NewReader reads targets of a kind from in, and first the header of a CSV
// file. path is what its rows are told by.
func NewReader(kind Kind, path string, in io.Reader) (*Reader, error) {
	r := &Reader{path: path}
	if err := r.start(kind, in); err != nil {
		return nil, fmt.Errorf("reading targets %s: %w", path, err)
	}
	return r, nil
}

// start sets up next for a file of the kind.
func (r *Reader) start(kind Kind, file io.Reader) error {
	in := bufio.NewReaderSize(file, 64<<10)
	if mark, _ := in.Peek(3); bytes.Equal(mark, []byte("\xEF\xBB\xBF")) {
		_, _ = in.Discard(3)
	} else if bytes.HasPrefix(mark, []byte("\xFF\xFE")) || bytes.HasPrefix(mark, []byte("\xFE\xFF")) {
		return errors.New("the file is UTF-16: save it as UTF-8")
	}
	switch kind {
	case CSV:
		return r.startCSV(in)
	case JSONL:
		r.next = (&lines{in: in, path: r.path, parse: ParseVars}).next
	case TXT:
		r.names = []string{"url"}
		r.next = (&lines{in: in, path: r.path, parse: parseURLLine}).next
	default:
		return fmt.Errorf("%q is no kind of targets", kind)
	}
	return nil
}

// Vars are the variables that every target has, in order, where they are known
// before the first one: the columns of a CSV file, url of a text file. nil:
// unknown.
func (r *Reader) Vars() []string { return r.names }

// Next gives the next target. A *RowError is one bad row, and Next may be called
// again; io.EOF is the end; any other error is the end, too.
func (r *Reader) Next() (Target, error) {
	target, err := r.next()
	if err == nil || err == io.EOF {
		return target, err
	}
	if bad, ok := errors.AsType[*RowError](err); ok {
		return Target{}, bad
	}
	return Target{}, fmt.Errorf("reading targets %s: %w", r.path, err)
}

// Close closes the file.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// inline iterates a list.
func inline(targets []Target) func() (Target, error) {
	return func() (Target, error) {
		if len(targets) == 0 {
			return Target{}, io.EOF
		}
		target := targets[0]
		targets = targets[1:]
		return target, nil
	}
}

// lines iterates a file with one target a line.
type lines struct {
	in    *bufio.Reader
	path  string
	line  int // the last one read
	buf   []byte
	parse func(line []byte) (Vars, error) // no Vars and no error: not a target
}

func (l *lines) next() (Target, error) {
	for {
		text, err := l.read()
		if err != nil {
			return Target{}, err
		}
		if !utf8.Valid(text) {
			return Target{}, &RowError{l.path, l.line, "is not UTF-8"}
		}
		vars, err := l.parse(bytes.TrimSpace(text))
		if err != nil {
			return Target{}, &RowError{l.path, l.line, err.Error()}
		}
		if vars != nil {
			return Target{Vars: vars, File: l.path, Line: l.line}, nil
		}
	}
}

// read gives the next line, valid until the next call. A line that is too long
// is passed over whole and told as a bad row.
func (l *lines) read() ([]byte, error) {
	l.buf = l.buf[:0]
	l.line++
	tooLong := false
	for {
		chunk, err := l.in.ReadSlice('\n')
		if tooLong = tooLong || len(l.buf)+len(chunk) > maxRowBytes; !tooLong {
			l.buf = append(l.buf, chunk...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err != nil && err != io.EOF:
			return nil, err
		case tooLong:
			return nil, &RowError{l.path, l.line, errRowTooLong.Error()}
		case err == io.EOF && len(l.buf) == 0:
			return nil, io.EOF
		}
		return l.buf, nil
	}
}

// parseURLLine reads a line of a text file.
func parseURLLine(line []byte) (Vars, error) {
	if len(line) == 0 || line[0] == '#' {
		return nil, nil
	}
	return Vars{{"url", string(line)}}, nil
}
