package cron

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func parse(t rapid.TB, text, zone string) *Schedule {
	t.Helper()
	location, err := Zone(zone)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(text, location)
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	return s
}

func at(t rapid.TB, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

// shown are ticks as the zone's clocks show them.
func shown(t rapid.TB, s *Schedule, from, to string) []string {
	var list []string
	for tick := range s.Ticks(at(t, from), at(t, to)) {
		list = append(list, tick.In(s.zone).Format("02T15:04Z07:00"))
	}
	return list
}

func TestTicks(t *testing.T) {
	for _, test := range []struct {
		name, text, zone, from, to string
		want                       string
	}{
		{"utc", "0 15 * * *", "", "2026-04-22T15:00:00Z", "2026-04-24T15:00:00Z", "22T15:00Z 23T15:00Z"},
		{"a zone all year", "0 15 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z",
			"28T15:00+01:00 29T15:00+02:00 30T15:00+02:00"},
		{"weekdays", "0 9 * * mon-fri", "", "2026-04-24T00:00:00Z", "2026-04-28T00:00:00Z", "24T09:00Z 27T09:00Z"},
		{"weekly", "@weekly", "", "2026-04-20T00:00:00Z", "2026-05-04T00:00:00Z", "26T00:00Z 03T00:00Z"},
		{"leap day", "0 0 29 2 *", "", "2095-01-01T00:00:00Z", "2105-01-01T00:00:00Z", "29T00:00Z 29T00:00Z"},

		{"new york: in the gap", "30 2 * * *", "America/New_York", "2026-03-07T05:00:00Z", "2026-03-10T04:00:00Z",
			"07T02:30-05:00 08T03:00-04:00 09T02:30-04:00"},
		{"new york: in the gap with its end", "0 2,3 * * *", "America/New_York", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z", "08T03:00-04:00"},
		{"new york: all minutes of the gap", "*/10 2 * * *", "America/New_York", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z", "08T03:00-04:00"},
		{"new york: twice", "30 1 * * *", "America/New_York", "2026-10-31T04:00:00Z", "2026-11-03T05:00:00Z",
			"31T01:30-04:00 01T01:30-04:00 02T01:30-05:00"},
		{"new york: after the hour that comes twice", "0 1,2 * * *", "America/New_York", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z", "01T01:00-04:00 01T02:00-05:00"},
		{"new york: hourly, short day", "0 * * * *", "America/New_York", "2026-03-08T05:00:00Z", "2026-03-08T09:00:00Z",
			"08T00:00-05:00 08T01:00-05:00 08T03:00-04:00 08T04:00-04:00"},
		{"new york: hourly at the half, short day", "30 * * * *", "America/New_York", "2026-03-08T05:00:00Z", "2026-03-08T09:00:00Z",
			"08T00:30-05:00 08T01:30-05:00 08T03:30-04:00 08T04:30-04:00"},
		{"new york: hourly, long day", "0 * * * *", "America/New_York", "2026-11-01T04:00:00Z", "2026-11-01T08:00:00Z",
			"01T00:00-04:00 01T01:00-04:00 01T01:00-05:00 01T02:00-05:00"},
		{"new york: every other hour, short day", "0 */2 * * *", "America/New_York", "2026-03-08T05:00:00Z", "2026-03-08T11:00:00Z",
			"08T00:00-05:00 08T03:00-04:00 08T04:00-04:00 08T06:00-04:00"},

		{"berlin: in the gap", "0 2 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-30T22:00:00Z", "29T03:00+02:00 30T02:00+02:00"},
		{"berlin: twice", "59 2 * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-26T23:00:00Z", "25T02:59+02:00 26T02:59+01:00"},
		{"berlin: once a quarter, twice", "*/15 2-2/1 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z",
			"25T02:30+02:00 25T02:45+02:00 25T02:00+01:00 25T02:15+01:00"},

		{"lord howe: in the gap", "10 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-05T00:00:00Z",
			"04T02:30+11:00 05T02:10+11:00"},
		{"lord howe: twice", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-06T00:00:00Z",
			"05T01:45+11:00 06T01:45+10:30"},
		{"lord howe: behind the half hour", "0 2 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-05T00:00:00Z", "05T02:00+10:30"},
		{"lord howe: twice an hour, short day", "*/30 * * * *", "Australia/Lord_Howe", "2026-10-03T15:00:00Z", "2026-10-03T16:30:00Z",
			"04T01:30+10:30 04T02:30+11:00 04T03:00+11:00"},
		{"lord howe: hourly, short day", "0 * * * *", "Australia/Lord_Howe", "2026-10-03T14:00:00Z", "2026-10-03T17:30:00Z",
			"04T01:00+10:30 04T02:30+11:00 04T03:00+11:00 04T04:00+11:00"},
		{"lord howe: hourly at the half, long day", "30 * * * *", "Australia/Lord_Howe", "2026-04-04T13:30:00Z", "2026-04-04T16:30:00Z",
			"05T00:30+11:00 05T01:30+11:00 05T01:30+10:30 05T02:30+10:30"},

		{"sao paulo: midnight is left out", "@daily", "America/Sao_Paulo", "2018-11-03T00:00:00Z", "2018-11-06T00:00:00Z",
			"03T00:00-03:00 04T01:00-02:00 05T00:00-02:00"},
		{"sao paulo: the last hour comes twice", "30 23 * * *", "America/Sao_Paulo", "2018-02-17T00:00:00Z", "2018-02-19T12:00:00Z",
			"16T23:30-02:00 17T23:30-02:00 18T23:30-03:00"},
		{"sao paulo: four times a day", "0 */6 * * *", "America/Sao_Paulo", "2018-11-03T21:00:00Z", "2018-11-04T15:00:00Z",
			"03T18:00-03:00 04T01:00-02:00 04T06:00-02:00 04T12:00-02:00"},
		{"st john's: midnight comes twice", "0 0 * * *", "America/St_Johns", "2010-11-06T00:00:00Z", "2010-11-08T12:00:00Z",
			"06T00:00-02:30 07T00:00-02:30 08T00:00-03:30"},

		{"apia: no such day", "0 15 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", "2012-01-01T12:00:00Z",
			"28T15:00-10:00 29T15:00-10:00 31T00:00+14:00 31T15:00+14:00 01T15:00+14:00"},
		{"apia: no such day of the month", "0 15 30 * *", "Pacific/Apia", "2011-12-02T00:00:00Z", "2012-02-01T00:00:00Z",
			"31T00:00+14:00 30T15:00+14:00"},
		{"apia: four times a day", "0 */6 * * *", "Pacific/Apia", "2011-12-30T04:00:00Z", "2011-12-30T17:00:00Z",
			"29T18:00-10:00 31T00:00+14:00 31T06:00+14:00"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := parse(t, test.text, test.zone)
			if diff := cmp.Diff(strings.Fields(test.want), shown(t, s, test.from, test.to)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An hourly schedule ticks as often as a day has hours.
func TestHoursOfTheDay(t *testing.T) {
	for _, test := range []struct {
		zone, day string
		want      int
	}{
		{"America/New_York", "2026-03-07", 24},
		{"America/New_York", "2026-03-08", 23},
		{"America/New_York", "2026-11-01", 25},
		{"Europe/Berlin", "2026-03-29", 23},
		{"Europe/Berlin", "2026-10-25", 25},
		{"America/Sao_Paulo", "2018-11-04", 23},
		{"America/Sao_Paulo", "2018-02-17", 25},
		{"Pacific/Apia", "2011-12-29", 24},
		{"Pacific/Apia", "2011-12-30", 0},
		{"Pacific/Apia", "2011-12-31", 24},
	} {
		for _, text := range []string{"@hourly", "17 * * * *", "59 */1 * * *"} {
			s := parse(t, text, test.zone)
			noon := at(t, test.day+"T12:00:00Z")
			n := 0
			for tick := range s.Ticks(noon.AddDate(0, 0, -2), noon.AddDate(0, 0, 2)) {
				if tick.In(s.zone).Format(time.DateOnly) == test.day {
					n++
				}
			}
			if n != test.want {
				t.Errorf("%s in %s on %s: %d ticks, want %d", text, test.zone, test.day, n, test.want)
			}
		}
	}
}

func TestParseFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "empty spec string",
		"0 15 * *":                 "expected exactly 5 fields, found 4: [0 15 * *]",
		"0 0 15 * * *":             "expected exactly 5 fields, found 6: [0 0 15 * * *]",
		"0 25 * * *":               "end of range (25) above maximum (23): 25",
		"@often":                   "unrecognized descriptor: @often",
		"@every 90s":               `@every says how often, and not when: write five fields, such as "*/15 * * * *"`,
		"TZ=UTC":                   "the time zone has a setting of its own, timezone",
		"CRON_TZ=UTC 0 15 * * *":   "the time zone has a setting of its own, timezone",
		"0 0 31 2 *":               "it never ticks: no month that it names has the day that it names",
		"0 0 31 4,6,9,11 *":        "it never ticks: no month that it names has the day that it names",
		"0 , * * *":                "it never ticks: no month that it names has the day that it names",
		"0 0 30 feb *":             "it never ticks: no month that it names has the day that it names",
		"0 15 * * 7":               "end of range (7) above maximum (6): 7",
		"0 15 * * sonntag":         "failed to parse int from sonntag: strconv.Atoi: parsing \"sonntag\": invalid syntax",
		"0 15 29-30/99999999 02 *": "",
	} {
		_, err := Parse(text, time.UTC)
		if got := errorText(err); got != want {
			t.Errorf("Parse(%q) = %q, want %q", text, got, want)
		}
	}
	for name, want := range map[string]string{"Local": "unknown time zone Local", "Mars/Olympus": "unknown time zone Mars/Olympus", "": "", "Europe/Berlin": ""} {
		if _, err := Zone(name); errorText(err) != want {
			t.Errorf("Zone(%q) = %v, want %q", name, err, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestLastOfNothing(t *testing.T) {
	s := parse(t, "0 0 29 2 *", "")
	if last := s.Last(at(t, "2104-02-28T23:59:59Z")); !last.Equal(at(t, "2096-02-29T00:00:00Z")) {
		t.Errorf("the last tick before a long pause is %s", last)
	}
}

var zones = []string{
	"UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia", "America/St_Johns",
	"Africa/Casablanca", "Africa/Cairo", "America/Santiago", "Asia/Gaza", "Antarctica/Troll", "Pacific/Kwajalein",
}

// field draws one field of cron.
func field(low, high int) *rapid.Generator[string] {
	number := rapid.Map(rapid.IntRange(low, high), strconv.Itoa)
	return rapid.OneOf(
		rapid.Just("*"),
		number,
		rapid.Map(rapid.IntRange(2, high), func(n int) string { return "*/" + strconv.Itoa(n) }),
		rapid.Map(rapid.SliceOfN(number, 1, 3), func(list []string) string { return strings.Join(list, ",") }),
	)
}

// Whatever the schedule and the zone, ticks go forward, Next and Last agree, and
// the iterator gives just what they give.
func TestTicksAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join([]string{
			field(0, 59).Draw(t, "minute"), field(0, 23).Draw(t, "hour"), field(1, 28).Draw(t, "day"), field(1, 12).Draw(t, "month"), field(0, 6).Draw(t, "weekday"),
		}, " ")
		s := parse(t, text, rapid.SampledFrom(zones).Draw(t, "zone"))
		begin := time.Unix(rapid.Int64Range(0, 2_000_000_000).Draw(t, "begin"), 0)
		var list []time.Time
		for after := begin; len(list) < 30; {
			tick := s.Next(after)
			if !tick.After(after) {
				t.Fatalf("%s: the tick after %s is %s", text, after, tick)
			}
			if last := s.Last(tick); !last.Equal(tick) {
				t.Fatalf("%s: the last tick at %s is %s", text, tick, last)
			}
			if last := s.Last(tick.Add(-1)); last.After(after) || !s.Next(last).Equal(tick) {
				t.Fatalf("%s: the last tick before %s is %s", text, tick, last)
			}
			list = append(list, tick)
			after = tick
		}
		end := list[len(list)-1]
		if got := slices.Collect(s.Ticks(list[0], end)); !slices.EqualFunc(got, list[:len(list)-1], time.Time.Equal) {
			t.Fatalf("%s: from %s to %s it ticks at %v, one by one at %v", text, list[0], end, got, list)
		}
	})
}

// Every day has the tick of a schedule that names one time of the day: it is at
// that time, or at the end of the gap that left it out. That of a day that was
// left out whole coincides with the next one's where both are at its beginning.
func TestEveryDayTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		minute := rapid.IntRange(1, 24*60-1).Draw(t, "minute")
		text := time.Date(2000, 1, 1, 0, minute, 0, 0, time.UTC).Format("4 15 * * *")
		s := parse(t, text, zone)
		year := rapid.IntRange(1990, 2030).Draw(t, "year")
		n := 0
		for tick := range s.Ticks(time.Date(year, 1, 1, 0, 0, 0, 0, s.zone), time.Date(year+1, 1, 1, 0, 0, 0, 0, s.zone)) {
			n++
			local := tick.In(s.zone)
			if local.Hour()*60+local.Minute() == minute {
				continue
			}
			if start, _ := local.ZoneBounds(); !start.Equal(tick) {
				t.Fatalf("%s in %s ticks at %s, where no gap ends", text, zone, local)
			}
		}
		if days := time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC).YearDay(); n != days {
			t.Fatalf("%s in %s ticks %d times in the %d days of %d", text, zone, n, days, year)
		}
	})
}

// A schedule that ticks every four or eight years is found as soon as any other.
func TestRareTicks(t *testing.T) {
	s := parse(t, "0 0 29 2 *", "America/New_York")
	after := time.Date(1890, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 200 {
		tick := s.Next(after)
		if local := tick.In(s.zone); local.Month() != time.February || local.Day() != 29 || tick.Sub(after) > 9*366*24*time.Hour {
			t.Fatalf("after %s it ticks at %s", after, local)
		}
		if last := s.Last(tick); !last.Equal(tick) {
			t.Fatalf("the last tick at %s is %s", tick, last)
		}
		after = tick
	}
}
