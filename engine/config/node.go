package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// node is one value of the file, with its place. Exactly one of scalar, items
// and members is set.
type node struct {
	path    string
	line    int
	scalar  any // string, int64, float64, bool or time.Time
	items   []*node
	members []*node // in the file's order
	name    string  // within its table
	table   bool
}

// parse reads a TOML document into a tree. Its error is an *Error.
func parse(file, text string) (*node, error) {
	var content map[string]any
	if _, err := toml.Decode(text, &content); err != nil {
		return nil, syntaxError(file, text, err)
	}
	return build("", "", 1, content, scan(text)), nil
}

// syntaxError tells what the toml package found. It shows nothing of a secret
// that somebody wrote without quotes.
func syntaxError(file, text string, err error) *Error {
	fault := &Error{File: file, Message: err.Error()}
	at, ok := errors.AsType[toml.ParseError](err)
	if !ok {
		return fault
	}
	// Position.Line is one too high where the fault is a line end.
	before := text[:min(max(at.Position.Start, 0), len(text))]
	fault.Line = 1 + strings.Count(before, "\n")
	fault.Message = strings.TrimSuffix(at.Message, ".")
	if !strings.HasPrefix(at.Message, "Key ") { // a key's fault is told at the end of its line
		fault.Message = fmt.Sprintf("column %d: %s", len(before)-strings.LastIndexByte(before, '\n'), fault.Message)
	}
	if isSecretKey(at.LastKey) {
		fault.Key, fault.Message = at.LastKey, literalSecret
	}
	return fault
}

// build makes the tree under one value. Where the scan has no line for a path,
// the line around it serves.
func build(path, name string, line int, value any, at positions) *node {
	if own, ok := at.line[path]; ok {
		line = own
	}
	n := &node{path: path, name: name, line: line}
	switch v := value.(type) {
	case map[string]any:
		n.table = true
		for key, x := range v {
			n.members = append(n.members, build(member(path, key), key, line, x, at))
		}
		slices.SortFunc(n.members, func(a, b *node) int {
			return cmp.Or(cmp.Compare(at.order[a.path], at.order[b.path]), cmp.Compare(a.path, b.path))
		})
	case []map[string]any: // [[name]]
		n.items = []*node{}
		for i, x := range v {
			n.items = append(n.items, build(element(path, i), "", line, x, at))
		}
	case []any:
		n.items = []*node{}
		for i, x := range v {
			n.items = append(n.items, build(element(path, i), "", line, x, at))
		}
	default:
		n.scalar = v
	}
	return n
}

// member finds a value by name; nil if there is none, or n is no table.
func (n *node) member(name string) *node {
	if n == nil {
		return nil
	}
	for _, m := range n.members {
		if m.name == name {
			return m
		}
	}
	return nil
}

// find follows a dotted path as far as there are values, and gives the last one
// and the whole path's key.
func (n *node) find(path string) (*node, string) {
	key, last := n.path, n
	for name := range strings.SplitSeq(path, ".") {
		key = member(key, name)
		if n = n.member(name); n != nil {
			last = n
		}
	}
	return last, key
}

// text is a value as an error shows it: one line, and not a long one.
func (n *node) text() string {
	switch v := n.scalar.(type) {
	case nil:
		if n.table {
			return "a table"
		}
		return "a list"
	case string:
		if runes := []rune(v); len(runes) > 80 {
			v = string(runes[:80]) + "…"
		}
		return strconv.Quote(v)
	case time.Time:
		return v.Format(time.RFC3339)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}
