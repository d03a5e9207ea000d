package storage_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"semel/storage"
)

func update(t testing.TB, s *storage.Store, fn func(*storage.Tx) error) {
	t.Helper()
	if err := s.Update(context.Background(), fn); err != nil {
		t.Fatal(err)
	}
}

func view(t testing.TB, s *storage.Store, fn func(*storage.Tx) error) {
	t.Helper()
	if err := s.View(fn); err != nil {
		t.Fatal(err)
	}
}

// target is a job of source s at host h.
func target(name string) storage.NewJob {
	return storage.NewJob{Key: storage.JobKey{Source: "s", Target: name}, URL: "http://h/" + name, Host: "h"}
}

func enqueue(t testing.TB, s *storage.Store, jobs ...storage.NewJob) (done []storage.Enqueued) {
	t.Helper()
	update(t, s, func(tx *storage.Tx) error {
		for _, n := range jobs {
			e, err := tx.EnqueueJob(n)
			if err != nil {
				return err
			}
			done = append(done, e)
		}
		return nil
	})
	return done
}

// claim takes up to n of all ready jobs for a minute.
func claim(t testing.TB, s *storage.Store, n int) (jobs []*storage.Job) {
	t.Helper()
	update(t, s, func(tx *storage.Tx) error {
		groups, err := tx.ClaimJobs("me", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: n}})
		if err == nil {
			jobs = groups[0]
		}
		return err
	})
	return jobs
}

func claimOne(t testing.TB, s *storage.Store) *storage.Job {
	t.Helper()
	jobs := claim(t, s, 1)
	if len(jobs) != 1 {
		t.Fatalf("claimed %d jobs, want 1", len(jobs))
	}
	return jobs[0]
}

func getJob(t testing.TB, s *storage.Store, id uint64) (j *storage.Job) {
	t.Helper()
	view(t, s, func(tx *storage.Tx) (err error) {
		j, err = tx.Job(id)
		return err
	})
	return j
}

func counters(t testing.TB, s *storage.Store, source string) (c storage.Counters) {
	t.Helper()
	view(t, s, func(tx *storage.Tx) error {
		c = tx.Counters(source)
		return nil
	})
	return c
}

func observations(t testing.TB, s *storage.Store, source string) (list []*storage.Observation) {
	t.Helper()
	view(t, s, func(tx *storage.Tx) error {
		_, err := tx.Observations(source, nil, 1<<30, func(o *storage.Observation) error {
			list = append(list, o)
			return nil
		})
		return err
	})
	return list
}

func pending(t testing.TB, s *storage.Store, sink string) (list []*storage.Event) {
	t.Helper()
	view(t, s, func(tx *storage.Tx) (err error) {
		list, err = tx.PendingEvents(sink, 0, 1<<30)
		return err
	})
	return list
}

func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// record is a completion with one record.
func record(mode storage.WriteMode, version int, key, value string) storage.Completion {
	data, err := json.Marshal(map[string]string{"v": value})
	if err != nil {
		panic(err)
	}
	return storage.Completion{
		Attempt: storage.Attempt{FinalURL: "http://h/" + key, ParserVersion: version, Records: 1},
		Mode:    mode,
		Records: []storage.NewObservation{{Key: key, Data: data}},
	}
}
