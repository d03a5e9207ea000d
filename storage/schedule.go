package storage

import (
	"fmt"
	"time"
)

// Schedule is what the store remembers of a source's schedule, so that no tick
// leads to jobs twice, and an edit makes up none that are past.
type Schedule struct {
	Source string
	Spec   string // as the config had it; "": the source had a schedule and has none now
	Zone   string // IANA name

	Since time.Time // when this schedule was first seen: ticks up to then are none of its
	Last  time.Time // the latest tick since then that was made or passed over; zero: none yet
}

// After is the time whose later ticks are still to come.
func (s *Schedule) After() time.Time {
	if s.Last.After(s.Since) {
		return s.Last
	}
	return s.Since
}

const scheduleVersion = 2 // the first is sealed

func (s *Schedule) encode() []byte {
	e := newEncoder(scheduleVersion, 64)
	e.text(s.Spec)
	e.text(s.Zone)
	e.time(s.Since)
	e.time(s.Last)
	return e.sealed()
}

func decodeSchedule(source string, b []byte) (*Schedule, error) {
	d := newDecoder(scheduleVersion, b)
	s := &Schedule{Source: source, Spec: d.text(), Zone: d.text(), Since: d.time(), Last: d.time()}
	if err := d.done(); err != nil {
		return nil, &RecordError{bucketNames[bucketSchedule], []byte(source), err}
	}
	return s, nil
}

// Schedule reads what is remembered of a source's schedule. Error: ErrNotFound.
func (tx *Tx) Schedule(source string) (*Schedule, error) {
	v := tx.get(bucketSchedule, []byte(source))
	if v == nil {
		return nil, fmt.Errorf("schedule of %s: %w", source, ErrNotFound)
	}
	return decodeSchedule(source, v)
}

// PutSchedule remembers a schedule.
func (tx *Tx) PutSchedule(s *Schedule) error {
	return tx.put(bucketSchedule, []byte(s.Source), s.encode())
}
