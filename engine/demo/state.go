package demo

import (
	"errors"
	"fmt"

	"semel/storage"
)

// state is what a look into the store found, nobody being at work there.
type state struct {
	complete map[string]bool // products whose record is committed, by id
	openUpTo int             // highest number of a product whose job has work ahead, 0: none has
	held     int             // jobs whose lease a dead worker still has
	longest  uint64          // the job with the most attempts, the first of them
	attempts uint32          // of that job, rescued ones too
	counters storage.Counters
}

// readState looks into a store without changing it; one that is not there yet
// has nothing. Errors: those of storage.Open.
func readState(path string) (s state, err error) {
	s.complete = map[string]bool{}
	store, err := storage.Open(path, storage.Options{ReadOnly: true})
	if errors.Is(err, storage.ErrNotFound) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	err = store.View(func(tx *storage.Tx) error {
		s.counters = tx.Counters(source)
		for after, more := uint64(0), true; more; more = after != 0 {
			if after, err = tx.Jobs(after, 1000, func(j *storage.Job) bool { s.add(j); return true }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("reading the demo's store: %w", err)
	}
	return s, nil
}

func (s *state) add(j *storage.Job) {
	if j.Key.Source != source {
		return
	}
	if j.Generation > s.attempts {
		s.longest, s.attempts = j.ID, j.Generation
	}
	switch j.State {
	case storage.StateComplete:
		s.complete[j.Key.Target] = true
	case storage.StateRunning:
		s.held++
	}
	if n, ok := number(j.Key.Target); ok && !j.State.Terminal() {
		s.openUpTo = max(s.openUpTo, n)
	}
}

// open is how many of the first pages have no record yet.
func (s *state) open(pages int) int {
	n := 0
	for i := 1; i <= pages; i++ {
		if !s.complete[ID(i)] {
			n++
		}
	}
	return n
}

func (s *state) recovered() int { return int(s.counters[storage.MetricRecovered]) }
