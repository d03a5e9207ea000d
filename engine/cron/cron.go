// Package cron knows at which instants a schedule ticks.
//
// It answers for what a schedule's text means in a time zone, through every
// change of that zone's clocks. It leaves to others: what a tick leads to, and
// what becomes of ticks that nobody saw. No clock is asked: the same text, zone
// and range always give the same instants, on every machine, since the time
// zones are part of the program.
//
// # Clocks that change
//
// A schedule names times of a wall clock, and a zone whose clocks are put
// forward leaves some out, one that puts them back has some twice. Where the
// field of the hour is a list of hours or of ranges, the schedule means a time of
// the day: one that is left out ticks when the gap ends, one that comes twice
// ticks the first time, and ticks that fall on one instant are one. Where that
// field holds a "*" or a step, the schedule means a pace: it follows the time
// that passes. An hourly schedule then ticks 23 times on the day that is an hour
// short, and 25 times on the one that is longer; a time that is left out ticks
// when a clock that nobody has put forward would show it.
package cron

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	_ "time/tzdata" // zones, also where the machine has none

	"github.com/robfig/cron/v3"
)

// Schedule is when something falls due. It is not changed after Parse.
type Schedule struct {
	text   string
	zone   *time.Location
	fields *cron.SpecSchedule // of a wall clock that never changes
	pace   bool               // follows the time that passes
}

// Zone finds a time zone by its IANA name; "" is UTC. The machine's own zone has
// no name here: the ticks would depend on where the program runs.
func Zone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("unknown time zone Local")
	}
	return time.LoadLocation(name)
}

// Parse reads five fields of cron (minute, hour, day of the month, month, day of
// the week), or one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly and
// @annually. A schedule that never ticks, such as one for 31 February, is an
// error.
func Parse(text string, zone *time.Location) (*Schedule, error) {
	switch {
	case strings.HasPrefix(text, "TZ="), strings.HasPrefix(text, "CRON_TZ="):
		return nil, errors.New("the time zone has a setting of its own, timezone")
	case strings.HasPrefix(text, "@every"):
		return nil, errors.New(`@every says how often, and not when: write five fields, such as "*/15 * * * *"`)
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return nil, err
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("%q names no instants", text)
	}
	fields.Location = time.UTC
	s := &Schedule{text: text, zone: zone, fields: fields, pace: isPace(text)}
	if s.step(time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("it never ticks: no month that it names has the day that it names")
	}
	return s, nil
}

// isPace reports whether the field of the hour holds a "*" or a step.
func isPace(text string) bool {
	if fields := strings.Fields(text); len(fields) > 1 {
		return strings.ContainsAny(fields[1], "*?/")
	}
	return text == "@hourly"
}

// String is the text that Parse read.
func (s *Schedule) String() string { return s.text }

// Zone is the name of the time zone.
func (s *Schedule) Zone() string { return s.zone.String() }

// Next is the first tick after an instant, in UTC.
func (s *Schedule) Next(after time.Time) time.Time {
	for {
		p := s.periodAt(after.Add(1))
		if tick := s.nextWithin(p, after); !tick.IsZero() || p.end.IsZero() {
			return tick
		}
		after = s.skip(p.end.Add(-1))
	}
}

// maxShift is more than a clock of any zone, or one that was put forward by a
// day, is from UTC.
const maxShift = 48 * time.Hour

// skip passes over a time in which no clock whatever shows a time of the schedule:
// one that ticks every eight years would be looked for in each period between.
func (s *Schedule) skip(after time.Time) time.Time {
	if soon := s.step(after.UTC().Add(-maxShift)).Add(-maxShift); soon.After(after) {
		return soon
	}
	return after
}

// Last is the latest tick that is not after an instant, in UTC; zero: there is
// none in the ten years before.
func (s *Schedule) Last(until time.Time) time.Time {
	reach, longest := time.Hour, until.AddDate(-10, 0, 0)
	early := until.Add(-reach)
	for s.Next(early).After(until) {
		if early.Before(longest) {
			return time.Time{}
		}
		reach *= 4
		early = until.Add(-reach)
	}
	// The first tick after early is not after until; that after late is.
	for late := until; late.Sub(early) > time.Second; {
		if middle := early.Add(late.Sub(early) / 2); s.Next(middle).After(until) {
			late = middle
		} else {
			early = middle
		}
	}
	return s.Next(early)
}

// Ticks are those in [from, to), in UTC.
func (s *Schedule) Ticks(from, to time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for tick := s.Next(from.Add(-1)); tick.Before(to); tick = s.Next(tick) {
			if !yield(tick) {
				return
			}
		}
	}
}

// period is a time in which a zone's clocks are not changed.
type period struct {
	start, end time.Time     // [start, end); zero: unbounded
	offset     time.Duration // of its clocks from UTC
	before     time.Duration // of the clocks before start; offset where there is no change
}

func (s *Schedule) periodAt(t time.Time) period {
	t = t.In(s.zone)
	p := period{offset: offset(t)}
	p.start, p.end = t.ZoneBounds()
	p.before = p.offset
	if !p.start.IsZero() {
		p.before = offset(p.start.Add(-1))
	}
	return p
}

func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// nextWithin is the first tick of a period after an instant; zero: it has none.
func (s *Schedule) nextWithin(p period, after time.Time) time.Time {
	first := s.wall(s.skipSecond(p, after), p.offset)
	if left := s.nextLeftOut(p, after); !left.IsZero() && (first.IsZero() || left.Before(first)) {
		first = left
	}
	if first.IsZero() || !p.end.IsZero() && !first.Before(p.end) {
		return time.Time{}
	}
	return first
}

// skipSecond passes over the times that a period has for the second time, where
// only the first counts.
func (s *Schedule) skipSecond(p period, after time.Time) time.Time {
	if s.pace || p.before <= p.offset {
		return after
	}
	if over := p.start.Add(p.before - p.offset).Add(-1); over.After(after) {
		return over
	}
	return after
}

// nextLeftOut is the next tick for a time that the clocks have left out when
// they were put forward at the start of a period; zero: there is none.
func (s *Schedule) nextLeftOut(p period, after time.Time) time.Time {
	if p.before >= p.offset || !s.pace && !after.Before(p.start) {
		return time.Time{}
	}
	tick := s.wall(after, p.before)
	switch {
	case tick.IsZero() || !tick.Before(p.start.Add(p.offset-p.before)):
		return time.Time{}
	case s.pace:
		return tick
	}
	return p.start.UTC()
}

// wall is the first instant after another at which clocks of one offset show a
// time of the schedule; zero: there is none.
func (s *Schedule) wall(after time.Time, offset time.Duration) time.Time {
	shown := s.step(after.UTC().Add(offset))
	if shown.IsZero() {
		return time.Time{}
	}
	return shown.Add(-offset)
}

// step is the next time that the fields name on a clock that never changes.
// Five years is how far one call looks; between two 29 Februaries there can be
// eight.
func (s *Schedule) step(shown time.Time) time.Time {
	next := s.fields.Next(shown)
	if next.IsZero() {
		next = s.fields.Next(shown.AddDate(5, 0, 0))
	}
	return next
}
