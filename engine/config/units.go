package config

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// parseDuration reads what time.ParseDuration does, and days before it: "90s",
// "30d", "1d12h".
func parseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 16) // 65,535 days are far from overflow
	if err != nil {
		return 0, err
	}
	total := time.Duration(n) * day
	if rest == "" {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err == nil && (d < 0 || d > math.MaxInt64-total) {
		err = errors.New("out of range")
	}
	return total + d, err
}

var sizeText = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)$`)

// unitBytes are decimal units, and binary ones where they say so.
var unitBytes = map[string]float64{
	"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// parseSize reads a number of bytes: "5MB", "1.5GiB".
func parseSize(text string) (int64, error) {
	m := sizeText.FindStringSubmatch(text)
	if m == nil {
		return 0, errors.New("not a size")
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, err
	}
	bytes := n * unitBytes[m[2]]
	if bytes > 1<<53 { // beyond it a float64 is not exact, and no disk is that large
		return 0, errors.New("out of range")
	}
	return int64(math.Round(bytes)), nil
}
