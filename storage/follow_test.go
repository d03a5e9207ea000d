package storage_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"semel/storage"
	"semel/storage/storagetest"
)

// linked is a job that so many links lead to, with a variable that says from
// where.
func linked(name string, depth uint16, from string) storage.NewJob {
	n := target(name)
	n.Depth, n.Vars = depth, []storage.Var{{Name: "from", Value: from}}
	return n
}

func TestFollowWithTheOutcome(t *testing.T) {
	s := storagetest.Open(t)
	n := target("list")
	n.Window = time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)
	enqueue(t, s, n)
	j := claimOne(t, s)
	c := record(storage.WriteUpsert, 1, "list", "x")
	next := linked("next", 1, "list")
	next.Window, next.Run = time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC), j.Run
	c.Follow = []storage.NewJob{next, next}
	failed := errors.New("not this time")
	err := s.Update(context.Background(), func(tx *storage.Tx) error {
		if _, err := tx.CompleteJob(j.Lease(), c); err != nil {
			return err
		}
		return failed
	})
	wantError(t, err, failed)
	view(t, s, func(tx *storage.Tx) error {
		_, err := tx.JobByKey(next.Key)
		wantError(t, err, storage.ErrNotFound)
		return nil
	})
	var done storage.Completed
	update(t, s, func(tx *storage.Tx) (err error) {
		done, err = tx.CompleteJob(j.Lease(), c)
		return err
	})
	if done.Followed != 1 || done.Known != 1 || done.Collided != 0 {
		t.Errorf("%+v", done)
	}
	view(t, s, func(tx *storage.Tx) error {
		r, err := tx.Run(j.Run)
		if err != nil || r.Jobs != 2 || r.Open != 1 {
			t.Errorf("run %+v, %v", r, err)
		}
		return nil
	})
}

// While nobody has claimed it, a job is as deep as the shortest way to it, and
// is what that way made of it.
func TestShorterWay(t *testing.T) {
	for _, c := range []struct {
		was, now uint16
		taken    bool
	}{{3, 2, true}, {3, 3, false}, {2, 3, false}, {3, 0, true}, {0, 3, false}, {0, 0, true}} {
		t.Run(fmt.Sprintf("%d then %d", c.was, c.now), func(t *testing.T) {
			s := storagetest.Open(t)
			first := enqueue(t, s, linked("a", c.was, "first"))[0]
			again := linked("a", c.now, "second")
			view(t, s, func(tx *storage.Tx) error {
				if known, err := tx.Known(again); known == c.taken || err != nil {
					t.Errorf("known is %t, %v", known, err)
				}
				return nil
			})
			second := enqueue(t, s, again)[0]
			if second.ID != first.ID || second.New || second.Refreshed != c.taken {
				t.Errorf("%+v", second)
			}
			want, from := c.was, "first"
			if c.taken {
				want, from = c.now, "second"
			}
			if j := getJob(t, s, first.ID); j.Depth != want || j.Vars[0].Value != from {
				t.Errorf("depth %d from %s, want %d from %s", j.Depth, j.Vars[0].Value, want, from)
			}
		})
	}
}

// The depth counts by itself, also where nothing else differs.
func TestShorterWayAlone(t *testing.T) {
	s := storagetest.Open(t)
	id := enqueue(t, s, linked("a", 3, "x"))[0].ID
	enqueue(t, s, linked("a", 1, "x"))
	if j := getJob(t, s, id); j.Depth != 1 {
		t.Errorf("depth %d", j.Depth)
	}
}

// A job that has been claimed stays as deep as it was: what it led to is made.
func TestShorterWayTooLate(t *testing.T) {
	s := storagetest.Open(t)
	id := enqueue(t, s, linked("a", 3, "first"))[0].ID
	claimOne(t, s)
	if again := enqueue(t, s, linked("a", 1, "second"))[0]; again.Refreshed {
		t.Errorf("%+v", again)
	}
	if j := getJob(t, s, id); j.Depth != 3 {
		t.Errorf("depth %d", j.Depth)
	}
}

// BenchmarkFollow commits a page with as many links as one may have.
func BenchmarkFollow(b *testing.B) {
	s, err := storage.Open(filepath.Join(b.TempDir(), "semel.db"), storage.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.StopTimer()
	for page := range b.N {
		enqueue(b, s, storage.NewJob{Key: storage.JobKey{Source: "s", Target: fmt.Sprint(page)}, URL: "http://list/", Host: "list", Priority: 1})
		j := claimOne(b, s)
		c := record(storage.WriteUpsert, 1, fmt.Sprint(page), "x")
		for i := range 10_000 {
			c.Follow = append(c.Follow, linked(fmt.Sprintf("%d/product-%06d?ref=listing", page, i), 1, "a page of the listing"))
		}
		b.StartTimer()
		update(b, s, func(tx *storage.Tx) error {
			_, err := tx.CompleteJob(j.Lease(), c)
			return err
		})
		b.StopTimer()
	}
}
