package config

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"semel/storage"
)

// loader is one Load: where it reads, and what it found wrong.
type loader struct {
	file   string
	dir    string // relative paths start here
	getenv func(string) string
	errs   Errors

	followed []followed // to be linked once all sources are read

	// known collects, by kind of table, the keys that were asked for: the
	// schema. seen are the file's tables of that kind.
	known map[string][]string
	seen  map[string][]*node
}

// fault notes one fault. A nil node is the file as a whole.
func (l *loader) fault(at *node, format string, args ...any) *Error {
	e := &Error{File: l.file, Message: fmt.Sprintf(format, args...)}
	if at != nil {
		e.Key, e.Line = at.path, at.line
	}
	l.errs = append(l.errs, e)
	return e
}

// wrong is a fault of a value, which is shown.
func (l *loader) wrong(at *node, format string, args ...any) *Error {
	e := l.fault(at, format, args...)
	e.Value = at.text()
	return e
}

// value is where a value stands, for what may be found wrong with it later.
func (l *loader) value(at *node) Error {
	return Error{File: l.file, Line: at.line, Key: at.path, Value: at.text()}
}

func newLoader(file string, getenv func(string) string) *loader {
	return &loader{file: file, dir: filepath.Dir(file), getenv: getenv, known: map[string][]string{}, seen: map[string][]*node{}}
}

// touched reports whether a fault stands at a key already, or below it.
func (l *loader) touched(key string) bool {
	return slices.ContainsFunc(l.errs, func(e *Error) bool {
		rest, ok := strings.CutPrefix(e.Key, key)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// table reads one table of the file by asking for its keys, each with its type;
// what was never asked for is unknown. That makes the code that reads a table
// its schema. Getters leave their target alone where the key is absent or at
// fault, and report whether they set it.
type table struct {
	l    *loader
	node *node  // nil: the table is absent
	kind string // "source", "rule", …: tables of one kind have the same keys
}

// open starts reading a table; what is none is a fault and reads as absent.
func (l *loader) open(n *node, kind string) *table {
	if n != nil && !n.table {
		l.wrong(n, "must be a table")
		n = nil
	}
	if n != nil {
		l.seen[kind] = append(l.seen[kind], n)
	}
	return &table{l: l, node: n, kind: kind}
}

// get asks for a key.
func (t *table) get(name string) *node {
	if !slices.Contains(t.l.known[t.kind], name) {
		t.l.known[t.kind] = append(t.l.known[t.kind], name)
	}
	return t.node.member(name)
}

// faulty reports whether a fault stands at one of the keys, or below it.
func (t *table) faulty(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return t.l.touched(member(t.node.path, name)) })
}

// each opens the tables of a list such as [[step]]. An empty list is off.
func (t *table) each(name, kind string) []*table {
	n := t.get(name)
	if n != nil && n.items == nil {
		t.l.wrong(n, "must be a list of tables: [[%s]]", strings.Trim(n.path, "."))
		n = nil
	}
	if n == nil {
		t.l.open(nil, kind)
		return nil
	}
	var tables []*table
	for _, item := range n.items {
		if opened := t.l.open(item, kind); opened.node != nil {
			tables = append(tables, opened)
		}
	}
	return tables
}

// done ends the reading: keys that nobody asked for are faults. Their values are
// not shown, since a mistyped key may hold a secret.
func (t *table) done() {
	if t.node != nil {
		t.l.unknown(t.node, t.l.known[t.kind])
	}
}

// unknown finds the keys of a table that are not among those known.
func (l *loader) unknown(n *node, known []string) {
	for _, m := range n.members {
		if !slices.Contains(known, m.name) {
			l.fault(m, "unknown key").Hint = nearest(m.name, known)
		}
	}
}

// sub opens a table within the table.
func (t *table) sub(name, kind string) *table { return t.l.open(t.get(name), kind) }

// text reads a string.
func (t *table) text(name string, to *string) bool { return t.l.text(t.get(name), to) }

func (l *loader) text(n *node, to *string) bool {
	if n == nil {
		return false
	}
	text, ok := n.scalar.(string)
	if !ok {
		l.wrong(n, "must be text in quotes")
		return false
	}
	*to = text
	return true
}

// filled reads a string that must not be blank.
func (t *table) filled(name string, to *string) bool {
	var text string
	if !t.text(name, &text) {
		return false
	}
	if strings.TrimSpace(text) == "" {
		t.l.fault(t.get(name), "must not be empty")
		return false
	}
	*to = text
	return true
}

// oneOf reads one of some words.
func (t *table) oneOf(name string, to *string, words ...string) bool {
	var text string
	if !t.text(name, &text) {
		return false
	}
	return t.l.among(t.get(name), text, words) && assign(to, text)
}

// among checks that a text is one of some words.
func (l *loader) among(n *node, text string, words []string) bool {
	if slices.Contains(words, text) {
		return true
	}
	l.wrong(n, "must be %s", orList(words)).Hint = nearest(text, words)
	return false
}

// boolean reads true or false.
func (t *table) boolean(name string, to *bool) bool {
	n := t.get(name)
	if n == nil {
		return false
	}
	value, ok := n.scalar.(bool)
	if !ok {
		t.l.wrong(n, "must be true or false")
		return false
	}
	return assign(to, value)
}

// integer reads a whole number from low to high.
func (t *table) integer(name string, to *int, low, high int) bool {
	n := t.get(name)
	if n == nil {
		return false
	}
	value, ok := n.scalar.(int64)
	switch {
	case !ok:
		t.l.wrong(n, "must be a whole number")
	case value < int64(low) || value > int64(high):
		t.l.wrong(n, "must be from %d to %d", low, high)
	default:
		return assign(to, int(value))
	}
	return false
}

// share reads a part of a whole, a number from 0 to 1.
func (t *table) share(name string, to *storage.Share) bool {
	n := t.get(name)
	if n == nil {
		return false
	}
	value, ok := n.scalar.(float64)
	if whole, isWhole := n.scalar.(int64); isWhole {
		value, ok = float64(whole), true
	}
	if !ok || !(value >= 0 && value <= 1) { // NaN is neither
		t.l.wrong(n, "must be a number from 0 to 1")
		return false
	}
	return assign(to, storage.Share(math.Round(value*float64(storage.Whole))))
}

// duration reads a duration of at least low.
func (t *table) duration(name string, to *time.Duration, low time.Duration) bool {
	var text string
	if n := t.get(name); n != nil && n.scalar != nil {
		if _, ok := n.scalar.(string); !ok {
			t.l.wrong(n, `must be a duration in quotes, such as "90s", "6h" or "30d"`)
			return false
		}
	}
	if !t.text(name, &text) {
		return false
	}
	d, err := parseDuration(text)
	switch {
	case err != nil:
		t.l.wrong(t.get(name), `must be a duration such as "90s", "6h" or "30d"`)
	case d < low && low == 1:
		t.l.wrong(t.get(name), "must be longer than 0s")
	case d < low:
		t.l.wrong(t.get(name), "must be at least %s", shortDuration(low))
	default:
		return assign(to, d)
	}
	return false
}

// durationOrNone is duration, where "" stands for 0.
func (t *table) durationOrNone(name string, to *time.Duration, low time.Duration) bool {
	if n := t.get(name); n != nil && n.scalar == "" {
		return assign(to, 0)
	}
	return t.duration(name, to, low)
}

// size reads a number of bytes, at least one.
func (t *table) size(name string, to *int64) bool {
	n := t.get(name)
	if n == nil {
		return false
	}
	text, _ := n.scalar.(string)
	size, err := parseSize(text)
	switch {
	case err != nil:
		t.l.wrong(n, `must be a size in quotes, such as "500kB", "5MB" or "1GiB"`)
	case size < 1 || size == math.MaxInt64:
		t.l.wrong(n, "must be at least 1B")
	default:
		return assign(to, size)
	}
	return false
}

// texts reads a list of strings.
func (t *table) texts(name string, to *[]string) bool {
	n := t.get(name)
	if n == nil {
		return false
	}
	if n.items == nil {
		t.l.wrong(n, "must be a list of texts")
		return false
	}
	list := make([]string, len(n.items))
	for i, item := range n.items {
		if !t.l.text(item, &list[i]) {
			return false
		}
	}
	return assign(to, list)
}

func assign[T any](to *T, value T) bool {
	*to = value
	return true
}

// orList writes words as a choice: `"a", "b" or "c"`.
func orList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	last := len(quoted) - 1
	if last == 0 {
		return quoted[0]
	}
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// shortDuration writes a duration without its zero units: "10s", "2m", "1h".
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
