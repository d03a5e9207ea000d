package storage

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// JobKey is the stable identity of a job: one expected observation. A zero
// part is absent: the source's identity leaves it out. Attempt numbers and
// delivery ids are never part of it.
type JobKey struct {
	Source  string
	Target  string
	Country string
	Window  time.Time // start of the window, UTC, whole seconds; zero: none
	Scope   string
	Version int // parser version; 0: not part of the identity
}

// String is the key as people and other systems see it:
// source:target:country:window:scope:vN, each part percent-escaped, "-" where
// absent. ParseJobKey reverses it.
func (k JobKey) String() string {
	window, version := "", ""
	if !k.Window.IsZero() {
		window = k.Window.UTC().Format(time.RFC3339)
	}
	if k.Version != 0 {
		version = "v" + strconv.Itoa(k.Version)
	}
	b := make([]byte, 0, 64)
	for i, part := range [...]string{k.Source, k.Target, k.Country, window, k.Scope, version} {
		if i > 0 {
			b = append(b, ':')
		}
		b = appendPart(b, part)
	}
	return string(b)
}

// ParseJobKey reads the text that JobKey.String makes.
func ParseJobKey(text string) (JobKey, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 6 {
		return JobKey{}, fmt.Errorf("job key %q: want 6 parts between colons, got %d", text, len(parts))
	}
	for i, part := range parts {
		plain, err := unescapePart(part)
		if err != nil {
			return JobKey{}, fmt.Errorf("job key %q: %w", text, err)
		}
		parts[i] = plain
	}
	key := JobKey{Source: parts[0], Target: parts[1], Country: parts[2], Scope: parts[4]}
	var err error
	if parts[3] != "" {
		if key.Window, err = time.Parse(time.RFC3339, parts[3]); err != nil {
			return JobKey{}, fmt.Errorf("job key %q: window: %w", text, err)
		}
		key.Window = key.Window.UTC().Truncate(time.Second)
		if !key.Window.After(noTime) || key.Window.Year() > 9999 {
			return JobKey{}, fmt.Errorf("job key %q: window: no time of the years 1 to 9999", text)
		}
	}
	if parts[5] != "" {
		if key.Version, err = strconv.Atoi(strings.TrimPrefix(parts[5], "v")); err != nil || key.Version < 1 {
			return JobKey{}, fmt.Errorf("job key %q: version %q is not v1, v2, …", text, parts[5])
		}
	}
	return key, nil
}

// appendPart percent-escapes what would break the key apart: the colon, the
// percent sign, controls, and the lone "-" that stands for an absent part.
func appendPart(b []byte, part string) []byte {
	const digits = "0123456789ABCDEF"
	switch part {
	case "":
		return append(b, '-')
	case "-":
		return append(b, "%2D"...)
	}
	for i := 0; i < len(part); i++ {
		if c := part[i]; c == '%' || c == ':' || c < 0x20 || c == 0x7f {
			b = append(b, '%', digits[c>>4], digits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

func unescapePart(part string) (string, error) {
	if part == "-" {
		return "", nil
	}
	if !strings.Contains(part, "%") {
		return part, nil
	}
	var b strings.Builder
	for i := 0; i < len(part); i++ {
		if part[i] != '%' {
			b.WriteByte(part[i])
			continue
		}
		if i+2 >= len(part) {
			return "", fmt.Errorf("cut escape in %q", part)
		}
		c, err := strconv.ParseUint(part[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("bad escape in %q", part)
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), nil
}
