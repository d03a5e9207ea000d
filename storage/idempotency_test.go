package storage_test

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/storage"
	"semel/storage/storagetest"
)

// submit asks for a job under a key; body stands for all that was asked for.
func submit(t testing.TB, s *storage.Store, n storage.NewJob, key string, body byte) (done storage.Submitted, err error) {
	t.Helper()
	err = s.Update(t.Context(), func(tx *storage.Tx) (err error) {
		done, err = tx.SubmitJob(n, storage.Idempotency{Key: key, Body: [32]byte{body}})
		return err
	})
	return done, err
}

// A key stands for its first request: neither the job's end nor the store's
// changes that.
func TestReplay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	s, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	wants := func(name, key string, body byte, id uint64, made, replayed bool) *storage.Job {
		t.Helper()
		done, err := submit(t, s, target(name), key, body)
		if err != nil || done.Job.ID != id || done.New != made || done.Replayed != replayed {
			t.Fatalf("%s under %q: %+v, %v", name, key, done, err)
		}
		return done.Job
	}
	wants("a", "first", 1, 1, true, false)
	wants("a", "first", 1, 1, true, true)
	wants("a", "second", 1, 1, false, false) // the same job by its own key
	wants("a", "second", 1, 1, false, true)
	wants("a", "", 1, 1, false, false)
	wants("b", "first", 1, 1, true, true) // what it asks for is its body; what is made of that may have changed
	_, err = submit(t, s, target("a"), "first", 2)
	wantError(t, err, storage.ErrKeyReused)
	update(t, s, func(tx *storage.Tx) error { _, err := tx.CancelJob(1, nil); return err })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = storagetest.OpenAt(t, path, storage.Options{NoSync: true})
	if j := wants("a", "first", 1, 1, true, true); j.State != storage.StateFailed {
		t.Errorf("the job is shown as %s", j.State)
	}
	view(t, s, func(tx *storage.Tx) error {
		_, err := tx.Replay(storage.Idempotency{})
		wantError(t, err, storage.ErrNotFound)
		return nil
	})
}

// A request that fails leaves no key behind.
func TestFailedRequestHasNoKey(t *testing.T) {
	s := storagetest.Open(t)
	bad := target("a")
	bad.Key.Scope = "of another"
	if _, err := submit(t, s, bad, "k", 1); err == nil {
		t.Fatal("it was made")
	}
	if done, err := submit(t, s, target("a"), "k", 2); err != nil || !done.New || done.Replayed {
		t.Errorf("%+v, %v", done, err)
	}
}

// After 24 hours a key is as one that never came, whether or not it was swept.
func TestKeysEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		first := func(name, key string, body byte, made bool) {
			t.Helper()
			done, err := submit(t, s, target(name), key, body)
			if err != nil || done.Replayed || done.New != made {
				t.Errorf("%+v, %v", done, err)
			}
		}
		first("a", "k", 1, true)
		first("b", "l", 1, true)
		time.Sleep(storage.IdempotencyKept - time.Microsecond)
		if done, err := submit(t, s, target("a"), "k", 1); err != nil || !done.Replayed {
			t.Errorf("too early: %+v, %v", done, err)
		}
		time.Sleep(time.Microsecond)
		first("c", "k", 2, true) // another request, another job
		first("a", "m", 1, false)
		time.Sleep(time.Microsecond)
		if done := prune(t, s, storage.Retention{}); done != (storage.Pruned{Keys: 1}) {
			t.Errorf("pruned %+v, want the one key that is over", done)
		}
		if done, err := submit(t, s, target("c"), "k", 2); err != nil || !done.Replayed || done.Job.ID != 3 {
			t.Errorf("the new request under the old key: %+v, %v", done, err)
		}
	})
}

// A job stays while a key leads to it, so that the answer is always the same.
func TestKeyHoldsItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		n := onDay("a", 0)
		enqueue(t, s, n)
		update(t, s, func(tx *storage.Tx) error { _, err := tx.CancelJob(1, nil); return err })
		time.Sleep(2 * time.Hour)
		if done, err := submit(t, s, n, "k", 1); err != nil || done.New {
			t.Fatalf("%+v, %v", done, err)
		}
		hour := storage.Retention{Attempts: time.Hour}
		if done := prune(t, s, hour); done != (storage.Pruned{}) {
			t.Errorf("pruned %+v while a key leads there", done)
		}
		time.Sleep(storage.IdempotencyKept + time.Second)
		if done := prune(t, s, hour); done != (storage.Pruned{Jobs: 1, Keys: 1}) {
			t.Errorf("pruned %+v, want key and job", done)
		}
	})
}

func TestValidIdempotencyKey(t *testing.T) {
	for key, want := range map[string]bool{
		"": false, "a": true, `"8e03978e 40d5"~`: true, "a\n": false, "\x7f": false, "ü": false,
		strings.Repeat("x", storage.MaxIdempotencyKey): true, strings.Repeat("x", storage.MaxIdempotencyKey+1): false,
	} {
		if got := storage.ValidIdempotencyKey(key); got != want {
			t.Errorf("%q: %v", key, got)
		}
	}
}
