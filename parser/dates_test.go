package parser

import (
	"testing"
	"time"
)

func TestReadDate(t *testing.T) {
	for _, c := range []struct{ text, layout, want string }{
		{"2026-04-23", "", "2026-04-23"},
		{"23.4.2026", "2.1.2006", "2026-04-23"},
		{"April 3, 2026", "January 2, 2006", "2026-04-03"},
		{"2026-04-23T23:30:00-05:00", time.RFC3339, "2026-04-23"},
		{"23.4.2026", "", "!is not a date like 2006-01-02; set layout"},
		{"03/04/2025", "", `!can be read as 2025-03-04 and as 2025-04-03; set layout (got "03/04/2025")`},
		{"3.4.2025", "", "!can be read as 2025-03-04 and as 2025-04-03; set layout"},
		{"04-04-2025", "", "!is not a date like 2006-01-02; set layout"},
		{"03/04/2025", "2/1/2006", "2025-04-03"},
		{"2026-02-30", "", "!is not a date"},
		{"0000-01-01", "", "!is outside of the years 1 to 9999"},
	} {
		got, err := readDate(c.text, c.layout)
		check(t, c.text, got, err, c.want)
	}
}

func TestReadTimestamp(t *testing.T) {
	const minute = "2006-01-02 15:04"
	for _, c := range []struct{ text, layout, zone, want string }{
		{"2026-04-23T15:04:05Z", "", "UTC", "2026-04-23T15:04:05Z"},
		{"2026-04-23T15:04:05.120+02:00", "", "UTC", "2026-04-23T13:04:05.12Z"},
		{"2026-04-23T15:04:05+0200", "", "UTC", "2026-04-23T13:04:05Z"},
		{"2026-04-23T15:04Z", "", "UTC", "2026-04-23T15:04:00Z"},
		{"2026-04-23T15:04+0200", "", "UTC", "2026-04-23T13:04:00Z"},
		{"2026-04-23 15:04:05+0200", "", "UTC", "2026-04-23T13:04:05Z"},
		{"2026-04-23 15:04", "", "UTC", "!is not an RFC 3339 timestamp"},
		{"2026-04-23T15:04:05", "", "UTC", "!is not an RFC 3339 timestamp with offset; set layout"},
		{"2026-04-23", "", "UTC", "!is not an RFC 3339 timestamp"},
		{"2026-04-23 15:04", minute, "UTC", "2026-04-23T15:04:00Z"},
		{"2026-04-23 15:04", minute, "America/New_York", "2026-04-23T19:04:00Z"},
		{"yesterday", minute, "UTC", "!is not a timestamp like 2006-01-02 15:04"},
		// The clocks skip 02:30 in March and show 01:30 twice in November.
		{"2026-03-08 02:30", minute, "America/New_York", "!is a time that the clocks of timezone skip"},
		{"2026-03-08 01:59", minute, "America/New_York", "2026-03-08T06:59:00Z"},
		{"2026-03-08 03:00", minute, "America/New_York", "2026-03-08T07:00:00Z"},
		{"2026-11-01 01:30", minute, "America/New_York", "!is a time that the clocks of timezone show twice"},
		{"2026-11-01 02:00", minute, "America/New_York", "2026-11-01T07:00:00Z"},
		{"2026-11-01 01:30 -0500", minute + " -0700", "America/New_York", "2026-11-01T06:30:00Z"},
		{"2026-11-01 01:30 EST", minute + " MST", "America/New_York", "2026-11-01T06:30:00Z"},
		{"2026-11-01 01:30 CET", minute + " MST", "America/New_York", "!has a zone abbreviation that timezone does not know"},
		{"2026-11-01 01:30 GMT", minute + " MST", "UTC", "2026-11-01T01:30:00Z"},
		{"0001-01-01 00:30 +0100", minute + " -0700", "UTC", "!is outside of the years 1 to 9999"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readTimestamp(c.text, c.layout, zone)
		check(t, c.text, got, err, c.want)
	}
}

func TestCompareTimes(t *testing.T) {
	// As text "00.5Z" comes before "00Z".
	if compareTimes("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z") >= 0 {
		t.Error("half a second later does not order later")
	}
}
