package parser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"
)

// maxJSONDepth bounds recursion over values that a jq expression builds.
// encoding/json reads no deeper values than this.
const maxJSONDepth = 10_000

// appendString appends s as a JSON string. Only what JSON demands is escaped:
// encoding/json, even with HTML escaping off, escapes U+2028 and U+2029 too.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0 // of what is not yet appended
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

// compactJSON is v as JSON without white space and with sorted keys.
func compactJSON(v any) (string, error) {
	b, err := appendJSON(nil, v, 0)
	return string(b), err
}

// appendJSON appends a value as encoding/json decodes it with json.Number, or
// as gojq makes it.
func appendJSON(dst []byte, v any, depth int) ([]byte, error) {
	if depth > maxJSONDepth {
		return nil, invalid("", "is nested deeper than %d", maxJSONDepth)
	}
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case string:
		return appendString(dst, v), nil
	case json.Number:
		return append(dst, v...), nil
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case *big.Int:
		return v.Append(dst, 10), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, invalid(fmt.Sprint(v), "is no number that JSON can hold")
		}
		return strconv.AppendFloat(dst, v, 'f', -1, 64), nil
	case []any:
		return appendArray(dst, v, depth)
	case map[string]any:
		return appendObject(dst, v, depth)
	}
	return nil, invalid("", "is no JSON value but a %T", v)
}

func appendArray(dst []byte, list []any, depth int) (_ []byte, err error) {
	dst = append(dst, '[')
	for i, e := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendJSON(dst, e, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendObject(dst []byte, object map[string]any, depth int) (_ []byte, err error) {
	dst = append(dst, '{')
	for i, key := range slices.Sorted(maps.Keys(object)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, key), ':')
		if dst, err = appendJSON(dst, object[key], depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// plainJSON makes of a value from the config one that appendJSON knows.
func plainJSON(v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("cannot be written as JSON: %w", err)
	}
	return decodeJSON(bytes.TrimSpace(b))
}
