package storage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"semel/storage"
)

// Whatever is written over the pages of a store, it answers with an error that
// says so, or with what is still whole: nothing panics, nothing hangs.
func TestDamagedPages(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole.db")
	s, err := storage.Open(whole, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fillForDamage(t, s)
	unclean := readState(t, whole, [sha256.Size]byte{}) // without a list of free pages
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	clean := readState(t, whole, [sha256.Size]byte{})
	unreadable := 0
	for trial := range 60 {
		r := rand.New(rand.NewPCG(uint64(trial), 7))
		state := clean
		if trial%2 == 0 {
			state = unclean
		}
		damaged := image{pages: bytes.Clone(state.pages), size: state.size}
		damage(r, damaged.pages)
		path := filepath.Join(t.TempDir(), fmt.Sprintf("%d.db", trial))
		damaged.write(t, path)
		if err := useDamaged(path, trial%3 == 0); errors.Is(err, storage.ErrUnreadable) {
			unreadable++
		}
	}
	if unreadable < 10 {
		t.Errorf("only %d of 60 damaged stores were called unreadable", unreadable)
	}
}

func fillForDamage(t *testing.T, s *storage.Store) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *storage.Tx) error {
		for i := range 3000 {
			key := storage.JobKey{Source: "s", Target: fmt.Sprint(i)}
			if _, err := tx.EnqueueJob(storage.NewJob{Key: key, URL: "http://x.test/" + key.Target, Host: fmt.Sprint("h", i%50)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// damage writes over pages behind the two that bbolt checks itself.
func damage(r *rand.Rand, text []byte) {
	const page = 4096
	pages := 120 // those in use lie in front
	for range 1 + r.IntN(40) {
		at := (2 + r.IntN(pages)) * page
		switch r.IntN(4) {
		case 0:
			clear(text[at : at+page])
		case 1:
			copy(text[at:at+page], text[(2+r.IntN(pages))*page:])
		case 2:
			for i := range 64 {
				text[at+i] = byte(r.Uint32())
			}
		default:
			text[at+r.IntN(page)] ^= byte(1 + r.IntN(255))
		}
	}
}

// useDamaged reads and writes all over a store, and gives the last error.
func useDamaged(path string, readOnly bool) (last error) {
	s, err := storage.Open(path, storage.Options{ReadOnly: readOnly})
	if err != nil {
		return err
	}
	defer s.Close()
	note := func(err error) {
		if err != nil {
			last = err
		}
	}
	note(s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, 1<<30, func(*storage.Job) bool { return true })
		return err
	}))
	note(s.View(func(tx *storage.Tx) error { tx.ReadyLanes(); tx.Counters("s"); return nil }))
	_, err = s.Check()
	note(err)
	if readOnly {
		return last
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 5 {
		note(s.Update(ctx, func(tx *storage.Tx) error {
			claimed, err := tx.ClaimJobs("x", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 50}})
			if err != nil {
				return err
			}
			for _, j := range claimed[0] {
				if err := tx.RetryJob(j.Lease(), storage.Attempt{Category: storage.CategoryInternal}, time.Now()); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return last
}

// A panic of our own is no damage of the file.
func TestPanicIsNoDamage(t *testing.T) {
	s, err := storage.Open(filepath.Join(t.TempDir(), "s.db"), storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Update(t.Context(), func(*storage.Tx) error { panic("a bug") })
	if err == nil || errors.Is(err, storage.ErrUnreadable) {
		t.Errorf("update: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a panic in a View was swallowed")
		}
	}()
	_ = s.View(func(*storage.Tx) error { panic("a bug") })
}
