package intake

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"semel/engine/cron"
)

// WindowArg names windows as --window does: an instant, a day of UTC, or a range
// of time. Which windows those are says the source's schedule.
type WindowArg struct {
	text     string
	kind     windowKind
	from, to time.Time // [from, to); of an instant: the second that begins with it
}

type windowKind int

const (
	instantWindow windowKind = iota
	dayWindow
	rangeWindow
)

// lastYear keeps the end of a window among the years that RFC 3339 can write.
const lastYear = 9998

var errYear = fmt.Errorf("must be of the years 1 to %d", lastYear)

// errWindow says what a window may be.
var errWindow = errors.New(`must be an instant such as 2026-04-23T15:00:00Z, a date such as 2026-04-23, or A..B of these`)

// ParseWindow reads an RFC 3339 instant, cut to whole seconds, a date, or "A..B",
// where each side is one of them and a date stands for its beginning in UTC.
func ParseWindow(text string) (WindowArg, error) {
	w := WindowArg{text: text}
	var day bool
	var err error
	if from, to, isRange := strings.Cut(text, ".."); isRange {
		w.kind = rangeWindow
		w.from, _, err = parseTime(from)
		if err == nil {
			w.to, _, err = parseTime(to)
		}
		if err == nil && !w.from.Before(w.to) {
			err = errors.New("the end must be later than the beginning")
		}
	} else if w.from, day, err = parseTime(text); day {
		w.kind, w.to = dayWindow, w.from.AddDate(0, 0, 1)
	} else {
		w.to = w.from.Add(time.Second)
	}
	if err != nil {
		return WindowArg{}, fmt.Errorf("window %q: %w", text, err)
	}
	return w, nil
}

// ParseTime reads an RFC 3339 instant, cut to whole seconds, or a date, which
// stands for its beginning in UTC.
func ParseTime(text string) (time.Time, error) {
	t, _, err := parseTime(text)
	switch {
	case errors.Is(err, errYear):
		return time.Time{}, fmt.Errorf("%q %w", text, err)
	case err != nil:
		return time.Time{}, fmt.Errorf("%q must be an instant such as 2026-04-23T15:00:00Z, or a date such as 2026-04-23", text)
	}
	return t, nil
}

func parseTime(text string) (t time.Time, day bool, err error) {
	if t, err = time.Parse(time.DateOnly, text); err == nil {
		day = true
	} else if t, err = time.Parse(time.RFC3339, text); err != nil {
		return time.Time{}, false, errWindow
	}
	t = t.UTC().Truncate(time.Second)
	if !t.After(time.Time{}) || t.Year() > lastYear {
		return time.Time{}, false, errYear
	}
	return t, day, nil
}

// String is the text that ParseWindow read.
func (w WindowArg) String() string { return w.text }

// IsZero reports whether it names nothing.
func (w WindowArg) IsZero() bool { return w.from.IsZero() && w.to.IsZero() }

// Starts are the starts of the windows to collect for, the earliest first. With
// a schedule they are its ticks: for an instant the one whose window it is in,
// for a day and a range all within. There may be none. Without a schedule (nil)
// it is one: the instant, or the beginning of the day or range. Error:
// ErrTooManyWindows.
func (w WindowArg) Starts(s *cron.Schedule) ([]time.Time, error) {
	switch {
	case s == nil:
		return []time.Time{w.from}, nil
	case w.kind != instantWindow:
		return Windows(s, w.from, w.to)
	}
	if tick := s.Last(w.from); !tick.IsZero() {
		return []time.Time{tick}, nil
	}
	return nil, nil
}

// ErrTooManyWindows is of a range that holds more than MaxWindows.
var ErrTooManyWindows = errors.New("too many windows")

// MaxWindows is how many windows jobs may be made for at once, eleven years of
// hours: more is a slip of the pen, and fills the disk.
const MaxWindows = 100_000

// Windows are the starts of a schedule's windows in [from, to). Error:
// ErrTooManyWindows.
func Windows(s *cron.Schedule, from, to time.Time) (starts []time.Time, err error) {
	for tick := range s.Ticks(from, to) {
		if len(starts) == MaxWindows {
			return nil, fmt.Errorf("%w: more than %d begin from %s to %s", ErrTooManyWindows, MaxWindows, from.Format(time.RFC3339), to.Format(time.RFC3339))
		}
		starts = append(starts, tick)
	}
	return starts, nil
}

// Start is the start of the one window that it names with a schedule (nil:
// none). It is an error where there is none, or more than one.
func (w WindowArg) Start(s *cron.Schedule) (start time.Time, err error) {
	if s == nil {
		return w.from, nil
	}
	from, to := w.Range(s)
	for tick := range s.Ticks(from, to) {
		if !start.IsZero() {
			return time.Time{}, fmt.Errorf("window %q: the schedule has more than one there: name it by an instant in it", w.text)
		}
		start = tick
	}
	if start.IsZero() {
		err = fmt.Errorf("window %q: the schedule has none there", w.text)
	}
	return start, err
}

// Range is [from, to), in which the windows begin that are meant among those that
// are there.
func (w WindowArg) Range(s *cron.Schedule) (from, to time.Time) {
	if s != nil && w.kind == instantWindow {
		if tick := s.Last(w.from); !tick.IsZero() {
			return tick, tick.Add(time.Second)
		}
	}
	return w.from, w.to
}
