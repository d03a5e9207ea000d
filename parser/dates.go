package parser

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // zones must be the same on a machine that has none
)

// isoDate is how dates are written in records and may stand on a page without
// a layout.
const isoDate = "2006-01-02"

// readDate gives the day that text names, as it stands there: no zone moves it.
func readDate(text, layout string) (string, error) {
	t, err := time.Parse(cmp.Or(layout, isoDate), text)
	switch {
	case err == nil:
		return formatYear(t, isoDate, text)
	case layout == "":
		return "", withoutLayout(text)
	}
	return "", invalid(text, "is not a date like %s", layout)
}

// withoutLayout says why a text that is no ISO date needs a layout.
func withoutLayout(text string) error {
	numbers := strings.NewReplacer(".", "/", "-", "/").Replace(text)
	monthFirst, err1 := time.Parse("1/2/2006", numbers)
	dayFirst, err2 := time.Parse("2/1/2006", numbers)
	if err1 == nil && err2 == nil && !monthFirst.Equal(dayFirst) {
		return invalid(text, "can be read as %s and as %s; set layout", monthFirst.Format(isoDate), dayFirst.Format(isoDate))
	}
	return invalid(text, "is not a date like %s; set layout", isoDate)
}

// readTimestamp gives the instant that text names, in UTC.
func readTimestamp(text, layout string, zone *time.Location) (string, error) {
	if layout == "" {
		// Forms of ISO 8601 with an offset have one reading. RFC 3339 lets a space
		// stand for the T, and so do many pages.
		iso := text
		if len(text) > 10 && text[10] == ' ' {
			iso = text[:10] + "T" + text[11:]
		}
		for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04Z0700"} {
			if t, err := time.Parse(form, iso); err == nil {
				return formatYear(t.UTC(), time.RFC3339Nano, text)
			}
		}
		return "", invalid(text, "is not an RFC 3339 timestamp with offset; set layout")
	}
	t, err := parseIn(layout, text, zone)
	if err != nil {
		return "", invalid(text, "%v", err)
	}
	return formatYear(t.UTC(), time.RFC3339Nano, text)
}

// formatYear refuses years that the format has no room for, so that dates in
// records order as text.
func formatYear(t time.Time, layout, text string) (string, error) {
	if t.Year() < 1 || t.Year() > 9999 {
		return "", invalid(text, "is outside of the years 1 to 9999")
	}
	return t.Format(layout), nil
}

// parseIn is time.ParseInLocation without the instants that package time makes
// up: of a zone abbreviation it does not know, and of a wall time that the
// zone's clocks skip or show twice.
func parseIn(layout, text string, zone *time.Location) (time.Time, error) {
	t, err := time.ParseInLocation(layout, text, zone)
	if err != nil {
		return t, fmt.Errorf("is not a timestamp like %s", layout)
	}
	if strings.Contains(layout, "MST") && t.Location() != zone {
		if name, _ := t.Zone(); name != "UTC" && !strings.HasPrefix(name, "GMT") {
			return t, errors.New("has a zone abbreviation that timezone does not know")
		}
	}
	if hasOffset(layout) {
		return t, nil
	}
	wall, _ := time.Parse(layout, text) // t keeps no wall time that is skipped
	before, after := reading(wall, -1, zone), reading(wall, +1, zone)
	switch {
	case before.IsZero() && after.IsZero():
		return t, errors.New("is a time that the clocks of timezone skip")
	case !before.IsZero() && !after.IsZero() && !before.Equal(after):
		return t, errors.New("is a time that the clocks of timezone show twice")
	}
	return t, nil
}

// reading is the instant at which zone shows wall under the offset that holds
// a day earlier or later, zero where that offset does not hold then.
func reading(wall time.Time, days int, zone *time.Location) time.Time {
	_, offset := wall.AddDate(0, 0, days).In(zone).Zone()
	t := wall.Add(-time.Duration(offset) * time.Second).In(zone)
	if _, o := t.Zone(); o != offset {
		return time.Time{}
	}
	return t
}

// hasOffset is true where the text itself says how far from UTC it is.
func hasOffset(layout string) bool {
	return strings.Contains(layout, "Z07") || strings.Contains(layout, "-07") || strings.Contains(layout, "MST")
}

// checkLayout refuses a layout that does not say which day a time is on.
func checkLayout(layout string) error {
	day := time.Date(2019, time.November, 23, 0, 0, 0, 0, time.UTC)
	t, err := time.Parse(layout, day.Format(layout))
	if err != nil || t.Year() != 2019 || t.YearDay() != day.YearDay() {
		return errors.New("must hold year, month and day of Go's reference time 2006-01-02 15:04:05")
	}
	return nil
}

// compareTimes orders two RFC 3339 timestamps.
func compareTimes(a, b string) int {
	ta, _ := time.Parse(time.RFC3339, a)
	tb, _ := time.Parse(time.RFC3339, b)
	return ta.Compare(tb)
}
