package config

import (
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// positions tells where each key of a TOML document stands. The toml package
// gives lines for syntax errors only, hence this second, shallow reading.
type positions struct {
	line  map[string]int // by path, such as `host."*".interval` or `targets[0].sku`; from 1
	order map[string]int // by path: a key that stands earlier has the smaller number
}

// scan finds the keys of a document that the toml package has accepted. On any
// other text it ends too, with positions of no meaning.
func scan(text string) positions {
	s := scanner{src: text, line: 1, tables: map[string]int{}, found: positions{map[string]int{}, map[string]int{}}}
	s.document()
	return s.found
}

type scanner struct {
	src    string
	pos    int
	line   int
	tables map[string]int // arrays of tables: how many elements so far
	found  positions
}

// member is the path of a key in a table.
func member(table, key string) string {
	key = toml.Key{key}.String()
	if table == "" {
		return key
	}
	return table + "." + key
}

// element is the path of an element of a list.
func element(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

func (s *scanner) document() {
	table := ""
	for s.blank(); s.pos < len(s.src); s.blank() {
		start := s.pos
		if s.peek() == '[' {
			table = s.header()
		} else {
			s.assignment(table)
		}
		if s.pos == start {
			s.pos++ // not TOML: go on, whatever it is
		}
	}
}

// header reads [a.b] or [[a.b]] and gives the path of the table it opens.
func (s *scanner) header() string {
	line := s.line
	s.pos++
	array := s.peek() == '['
	if array {
		s.pos++
	}
	path := ""
	keys := s.keys()
	for i, key := range keys {
		path = member(path, key)
		s.mark(path)
		if i == len(keys)-1 && array {
			s.tables[path]++
		}
		if n := s.tables[path]; n > 0 {
			path = element(path, n-1)
			s.mark(path)
		}
	}
	s.found.line[path] = line // an implicit table gets its own line at last
	for s.peek() == ']' {
		s.pos++
	}
	return path
}

// assignment reads a.b = value within a table.
func (s *scanner) assignment(table string) {
	path := table
	for _, key := range s.keys() {
		path = member(path, key)
		s.mark(path)
	}
	if s.peek() == '=' {
		s.pos++
		s.spaces()
		s.value(path)
	}
}

// mark notes where a path was first seen.
func (s *scanner) mark(path string) {
	if _, ok := s.found.line[path]; !ok {
		s.found.line[path] = s.line
		s.found.order[path] = len(s.found.order)
	}
}

// keys reads a dotted key.
func (s *scanner) keys() []string {
	var keys []string
	for {
		s.spaces()
		start := s.pos
		switch s.peek() {
		case '"':
			s.text()
			keys = append(keys, unquote(s.src[start:s.pos]))
		case '\'':
			s.text()
			keys = append(keys, strings.Trim(s.src[start:s.pos], "'"))
		default:
			for s.pos < len(s.src) && !strings.ContainsRune(" \t\r\n.=]#", rune(s.src[s.pos])) {
				s.pos++
			}
			keys = append(keys, s.src[start:s.pos])
		}
		s.spaces()
		if s.peek() != '.' {
			return keys
		}
		s.pos++
	}
}

// unquote undoes the escapes of a quoted key.
func unquote(quoted string) string {
	var value struct{ Key string }
	if _, err := toml.Decode("key = "+quoted, &value); err != nil {
		return quoted
	}
	return value.Key
}

// value passes over a value, noting the keys in it.
func (s *scanner) value(path string) {
	switch s.peek() {
	case '"', '\'':
		s.text()
	case '[':
		s.list(path)
	case '{':
		s.inline(path)
	default:
		for s.pos < len(s.src) && !strings.ContainsRune(",]}#\r\n", rune(s.src[s.pos])) {
			s.pos++
		}
	}
}

func (s *scanner) list(path string) {
	s.pos++
	for i := 0; ; i++ {
		s.blank()
		if s.pos >= len(s.src) || s.peek() == ']' {
			break
		}
		s.mark(element(path, i))
		start := s.pos
		s.value(element(path, i))
		s.separator(start)
	}
	s.pos++
}

func (s *scanner) inline(path string) {
	s.pos++
	for {
		s.blank()
		if s.pos >= len(s.src) || s.peek() == '}' {
			break
		}
		start := s.pos
		s.assignment(path)
		s.separator(start)
	}
	s.pos++
}

// separator passes over a comma, or over one byte where nothing was read since
// start, so that reading always ends.
func (s *scanner) separator(start int) {
	s.blank()
	if s.peek() == ',' || s.pos == start {
		s.pos++
	}
}

// text passes over a string of any of the four kinds.
func (s *scanner) text() {
	quote := s.src[s.pos : s.pos+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s.src[s.pos:], triple) {
		quote = triple
	}
	s.pos += len(quote)
	for s.pos < len(s.src) && !strings.HasPrefix(s.src[s.pos:], quote) {
		if s.src[s.pos] == '\\' && quote[0] == '"' {
			s.pos++
		}
		if s.peek() == '\n' {
			s.line++
		}
		s.pos++
	}
	s.pos = min(s.pos+len(quote), len(s.src))
	for len(quote) == 3 && s.peek() == quote[0] {
		s.pos++ // up to two quotes may stand before the closing three
	}
}

// blank passes over white space, line ends and comments.
func (s *scanner) blank() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\t', '\r':
		case '\n':
			s.line++
		case '#':
			for s.pos+1 < len(s.src) && s.src[s.pos+1] != '\n' {
				s.pos++
			}
		default:
			return
		}
		s.pos++
	}
}

func (s *scanner) spaces() {
	for s.peek() == ' ' || s.peek() == '\t' {
		s.pos++
	}
}

// peek is the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.pos >= len(s.src) {
		return 0
	}
	return s.src[s.pos]
}
