package intake

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/engine/cron"
)

func TestWindowArg(t *testing.T) {
	berlin, err := cron.Zone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	noon, err := cron.Parse("0 12,18 * * *", berlin) // 10:00Z and 16:00Z in April
	if err != nil {
		t.Fatal(err)
	}
	weekly, err := cron.Parse("@weekly", time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		text     string
		schedule *cron.Schedule
		starts   string
		from, to string
	}{
		{"2026-04-23T15:00:00Z", nil, "2026-04-23T15:00:00Z", "2026-04-23T15:00:00Z", "2026-04-23T15:00:01Z"},
		{"2026-04-23T15:00:00.9+02:00", nil, "2026-04-23T13:00:00Z", "2026-04-23T13:00:00Z", "2026-04-23T13:00:01Z"},
		{"2026-04-23", nil, "2026-04-23T00:00:00Z", "2026-04-23T00:00:00Z", "2026-04-24T00:00:00Z"},
		{"2026-04-23..2026-04-25T06:00:00Z", nil, "2026-04-23T00:00:00Z", "2026-04-23T00:00:00Z", "2026-04-25T06:00:00Z"},
		{"2026-04-23T15:00:00Z", noon, "2026-04-23T10:00:00Z", "2026-04-23T10:00:00Z", "2026-04-23T10:00:01Z"},
		{"2026-04-23T10:00:00Z", noon, "2026-04-23T10:00:00Z", "2026-04-23T10:00:00Z", "2026-04-23T10:00:01Z"},
		{"2026-04-23T09:59:59Z", noon, "2026-04-22T16:00:00Z", "2026-04-22T16:00:00Z", "2026-04-22T16:00:01Z"},
		{"2026-04-23", noon, "2026-04-23T10:00:00Z 2026-04-23T16:00:00Z", "2026-04-23T00:00:00Z", "2026-04-24T00:00:00Z"},
		{"2026-04-22T16:00:00Z..2026-04-23T16:00:00Z", noon, "2026-04-22T16:00:00Z 2026-04-23T10:00:00Z", "2026-04-22T16:00:00Z", "2026-04-23T16:00:00Z"},
		{"2026-04-23", weekly, "", "2026-04-23T00:00:00Z", "2026-04-24T00:00:00Z"},
	} {
		w, err := ParseWindow(test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		times, err := w.Starts(test.schedule)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
		}
		starts := []string{}
		for _, start := range times {
			starts = append(starts, start.Format(time.RFC3339Nano))
		}
		from, to := w.Range(test.schedule)
		if diff := cmp.Diff(strings.Fields(test.starts), starts); diff != "" {
			t.Errorf("%s: %s", test.text, diff)
		}
		if got := from.Format(time.RFC3339Nano) + " " + to.Format(time.RFC3339Nano); got != test.from+" "+test.to {
			t.Errorf("%s selects %s, want %s %s", test.text, got, test.from, test.to)
		}
		if w.String() != test.text || w.IsZero() {
			t.Errorf("%s shows as %s, zero %v", test.text, w, w.IsZero())
		}
	}
	if !(WindowArg{}).IsZero() {
		t.Error("no window is not zero")
	}
}

func TestParseWindowFaults(t *testing.T) {
	const shape = "must be an instant such as 2026-04-23T15:00:00Z, a date such as 2026-04-23, or A..B of these"
	for text, want := range map[string]string{
		"":                       `window "": ` + shape,
		"yesterday":              `window "yesterday": ` + shape,
		"9999-12-31":             `window "9999-12-31": must be of the years 1 to 9998`,
		"0001-01-01":             `window "0001-01-01": must be of the years 1 to 9998`,
		"2026-04-31":             `window "2026-04-31": ` + shape,
		"2026-04-23T15:00":       `window "2026-04-23T15:00": ` + shape,
		"2026-04-23..":           `window "2026-04-23..": ` + shape,
		"..2026-04-23":           `window "..2026-04-23": ` + shape,
		"2026-04-23..2026-04-23": `window "2026-04-23..2026-04-23": the end must be later than the beginning`,
	} {
		if _, err := ParseWindow(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := ParseTime("2026-04-23..2026-04-24"); err == nil {
		t.Error("a range is taken for an instant")
	}
	for text, want := range map[string]time.Time{
		"2026-04-23":                time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC),
		"2026-04-23T15:00:00-01:00": time.Date(2026, 4, 23, 16, 0, 0, 0, time.UTC),
	} {
		if got, err := ParseTime(text); err != nil || !got.Equal(want) {
			t.Errorf("%s is %s, %v", text, got, err)
		}
	}
}

// A slip of the pen in a year makes no million windows.
func TestTooManyWindows(t *testing.T) {
	s, err := cron.Parse("* * * * *", time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	w, err := ParseWindow("2026-01-01..2062-01-01")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.Starts(s); !errors.Is(err, ErrTooManyWindows) || got != nil {
		t.Errorf("%d windows, %v", len(got), err)
	}
}
