package storage_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"semel/storage"
	"semel/storage/storagetest"
)

// completeFor runs a new job of a target for a window and gives it.
func completeFor(t *testing.T, s *storage.Store, name string, window time.Time, kept []byte, v storage.Validator) *storage.Job {
	t.Helper()
	n := target(name)
	n.Key.Window, n.Window, n.Country = window, window, "US"
	enqueue(t, s, n)
	j := claimOne(t, s)
	a := storage.Attempt{Status: 200, FinalURL: n.URL, Country: "US", ContentType: "text/html"}
	if kept != nil {
		a.Kept = storage.KeepPage(kept)
	}
	update(t, s, func(tx *storage.Tx) error {
		_, err := tx.CompleteJob(j.Lease(), storage.Completion{Attempt: a, Mode: storage.WriteUpsert, Validator: v})
		return err
	})
	return j
}

// wantValidator compares what a target is asked with; job 0: nothing.
func wantValidator(t *testing.T, s *storage.Store, like *storage.Job, want storage.Validator, job uint64) {
	t.Helper()
	view(t, s, func(tx *storage.Tx) error {
		kept, err := tx.KeptAnswer(like)
		v, a := kept.Validator, kept.Attempt
		if job == 0 {
			if !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("there is %+v of job %d (%v)", v, a.Job, err)
			}
			return nil
		}
		if err != nil || v != want || a.Job != job || a.Page.IsZero() || kept.PageBytes != 4 {
			t.Errorf("%+v of job %d (%v), want %+v of job %d", v, a.Job, err, want, job)
		}
		return nil
	})
	storagetest.Check(t, s)
}

// A target is asked with the validator of the page that its last job completed
// with, whatever the window, and of no other country.
func TestValidator(t *testing.T) {
	s := storagetest.Open(t)
	day := func(n int) time.Time { return time.Date(2026, 4, n, 0, 0, 0, 0, time.UTC) }
	one := storage.Validator{ETag: `"1"`}
	two := storage.Validator{ETag: `W/"2"`, LastModified: "Thu, 23 Apr 2026 15:00:00 GMT"}

	first := completeFor(t, s, "a", day(1), []byte("<p>1"), one)
	wantValidator(t, s, first, one, first.ID)
	second := completeFor(t, s, "a", day(2), []byte("<p>2"), two)
	wantValidator(t, s, first, two, second.ID)

	elsewhere := *first
	elsewhere.Country = "DE"
	wantValidator(t, s, &elsewhere, one, 0)
	other := completeFor(t, s, "b", day(1), []byte("<p>1"), storage.Validator{})
	wantValidator(t, s, other, one, 0)

	completeFor(t, s, "a", day(3), nil, two)
	wantValidator(t, s, first, one, 0)
	fourth := completeFor(t, s, "a", day(4), []byte("<p>1"), one)
	wantValidator(t, s, first, one, fourth.ID)
	completeFor(t, s, "a", day(5), []byte("<p>3"), storage.Validator{})
	wantValidator(t, s, first, one, 0)
}

// It goes with the page, however that goes, and not with an older one.
func TestValidatorGoesWithItsPage(t *testing.T) {
	for name, r := range map[string]storage.Retention{
		"pages":    {Pages: 36 * time.Hour},
		"attempts": {Attempts: 36 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := storagetest.Open(t)
			v := storage.Validator{LastModified: "Thu, 23 Apr 2026 15:00:00 GMT"}
			first := completeFor(t, s, "a", time.Now(), []byte("<p>1"), v)
			time.Sleep(day)
			second := completeFor(t, s, "a", time.Now(), []byte("<p>1"), v)
			time.Sleep(day)
			prune(t, s, r)
			wantValidator(t, s, first, v, second.ID)
			time.Sleep(day)
			if done := prune(t, s, r); done.Pages+done.Attempts != 1 {
				t.Errorf("%s: pruned %+v", name, done)
			}
			wantValidator(t, s, first, v, 0)
		})
	}
}

// It is one with the outcome: an update that fails leaves none, and it is there
// in a backup and after that was compacted.
func TestValidatorIsOneWithItsOutcome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	s := storagetest.OpenAt(t, path, storage.Options{})
	v := storage.Validator{ETag: `"1"`}
	first := completeFor(t, s, "a", time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), []byte("<p>1"), v)

	n := target("b")
	enqueue(t, s, n)
	j, undone := claimOne(t, s), errors.New("undone")
	err := s.Update(t.Context(), func(tx *storage.Tx) error {
		_, err := tx.CompleteJob(j.Lease(), storage.Completion{
			Attempt: storage.Attempt{Kept: storage.KeepPage([]byte("<p>2")), FinalURL: n.URL}, Mode: storage.WriteUpsert, Validator: v,
		})
		return errors.Join(err, undone)
	})
	wantError(t, err, undone)
	wantValidator(t, s, j, v, 0)

	backup := filepath.Join(t.TempDir(), "backup.db")
	if _, err := s.Backup(backup); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.Compact(backup); err != nil {
		t.Fatal(err)
	}
	wantValidator(t, storagetest.OpenAt(t, backup, storage.Options{}), first, v, first.ID)
}
