package storage_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"semel/storage"
	"semel/storage/storagetest"
)

var (
	unfitPage = storage.KeepPage([]byte("<p>1,00</p>"))
	ambiguous = []storage.Problem{{Row: -1, Field: "price", Value: "1,00", Reason: "has two readings"}}
	allSinks  = []storage.Subscription{{Sink: "s"}}
)

// failUnfit has a job fail for what its page holds.
func failUnfit(t *testing.T, s *storage.Store, n storage.NewJob) *storage.Job {
	t.Helper()
	enqueue(t, s, n)
	j := claimOne(t, s)
	update(t, s, func(tx *storage.Tx) error {
		a := storage.Attempt{Category: storage.CategoryValidation, ParserVersion: 1, FinalURL: "http://h/a", Kept: unfitPage, BytesDown: 7}
		return tx.FailJob(j.Lease(), a, storage.Failure{Category: storage.CategoryValidation, Problems: ambiguous, Sinks: allSinks})
	})
	return getJob(t, s, j.ID)
}

// readable is the attempt whose page a job can be read from again.
func readable(t *testing.T, s *storage.Store, job uint64) (a storage.Attempt) {
	t.Helper()
	view(t, s, func(tx *storage.Tx) error {
		j, err := tx.Job(job)
		if err == nil {
			a, err = tx.Reparsable(j)
		}
		return err
	})
	return a
}

func events(t *testing.T, s *storage.Store) (types []string) {
	t.Helper()
	for _, e := range pending(t, s, "s") {
		types = append(types, e.Type)
	}
	return types
}

func quarantined(t *testing.T, s *storage.Store) int64 {
	t.Helper()
	return counters(t, s, "s")[storage.MetricQuarantine]
}

// TestQuarantineRelease: a page that did not fit is told once, and completes its
// job once it does, without an attempt that counts or a byte.
func TestQuarantineRelease(t *testing.T) {
	s := storagetest.Open(t)
	failed := failUnfit(t, s, target("a"))
	read := readable(t, s, failed.ID)
	for range 2 { // the same again is no news
		update(t, s, func(tx *storage.Tx) error { return tx.QuarantinePage(read, 1, ambiguous, allSinks) })
	}
	if got := events(t, s); len(got) != 2 || got[0] != storage.EventQuarantined || got[1] != storage.EventJobFailed {
		t.Errorf("events %q", got)
	}
	update(t, s, func(tx *storage.Tx) error {
		c := record(storage.WriteUpsert, 2, "a", "1.00")
		c.Sinks = allSinks
		return reparse(tx, read, c)
	})
	j := getJob(t, s, failed.ID)
	if j.State != storage.StateComplete || j.Version != 2 || j.Attempts != 1 || j.BytesDown != 7 || j.Category != "" {
		t.Errorf("job %+v", j)
	}
	if a := readable(t, s, j.ID); a.Kind != storage.KindReparse || a.Page != unfitPage.Hash || a.Generation != 2 || a.FinalURL != "http://h/a" {
		t.Errorf("its attempt %+v", a)
	}
	if list := observations(t, s, "s"); len(list) != 1 || list[0].Version != 2 || list[0].URL != "http://h/a" {
		t.Errorf("rows %+v", list)
	}
	if n := counters(t, s, "s").Completed(); n != 1 {
		t.Errorf("%d jobs were completed", n)
	}
	if got := events(t, s)[2:]; len(got) != 1 || got[0] != storage.EventCreated || quarantined(t, s) != 0 {
		t.Errorf("events since %q, %d in quarantine", got, quarantined(t, s))
	}
	err := s.Update(context.Background(), func(tx *storage.Tx) error {
		return reparse(tx, read, record(storage.WriteUpsert, 2, "a", "2.00"))
	})
	wantError(t, err, storage.ErrTransition)
}

// TestQuarantineEventIDs: that a page does not fit the rules of a version is one
// fact, however often it is found, and in any store.
func TestQuarantineEventIDs(t *testing.T) {
	ids := map[int]string{}
	for range 2 {
		s := storagetest.Open(t)
		enqueue(t, s, target("a"))
		l := claimOne(t, s).Lease()
		update(t, s, func(tx *storage.Tx) error {
			c := record(storage.WriteUpsert, 1, "a", "1")
			c.Attempt.Kept = unfitPage
			_, err := tx.CompleteJob(l, c)
			return err
		})
		for _, version := range []int{2, 3, 2, 3} {
			update(t, s, func(tx *storage.Tx) error { return tx.QuarantinePage(readAt(tx, 1), version, ambiguous, allSinks) })
			list := pending(t, s, "s")
			id := list[len(list)-1].ID
			if ids[version] == "" {
				ids[version] = id
			}
			if ids[version] != id {
				t.Errorf("of version %d: event %s, before %s", version, id, ids[version])
			}
			update(t, s, func(tx *storage.Tx) error { // another generation
				return reparse(tx, readAt(tx, 1), record(storage.WriteUpsert, 1, "a", "1"))
			})
		}
	}
	if ids[2] == ids[3] {
		t.Errorf("versions 2 and 3 have the event %s", ids[2])
	}
}

// TestQuarantineOfRows: rows that did not fit are set aside while the others are
// committed, until a later attempt has all of them.
func TestQuarantineOfRows(t *testing.T) {
	s := storagetest.Open(t)
	enqueue(t, s, target("a"))
	l := claimOne(t, s).Lease()
	c := record(storage.WriteUpsert, 1, "a", "1")
	for row := range storage.MaxProblems + 3 {
		c.Problems = append(c.Problems, storage.Problem{Row: row, Reason: "it has no key"})
	}
	update(t, s, func(tx *storage.Tx) error { _, err := tx.CompleteJob(l, c); return err })
	view(t, s, func(tx *storage.Tx) error {
		q, err := tx.Quarantine(1)
		if err == nil && (q.Rows != 1 || len(q.Problems) != storage.MaxProblems || q.More != 3) {
			t.Errorf("in quarantine: %d rows, %d problems and %d more", q.Rows, len(q.Problems), q.More)
		}
		return err
	})
	recollect(t, s, 1, "1")
	if n := quarantined(t, s); n != 0 {
		t.Errorf("%d in quarantine", n)
	}
}

// TestQuarantineIsKept: retention keeps what a person has not looked at, until it
// is discarded.
func TestQuarantineIsKept(t *testing.T) {
	s := storagetest.Open(t)
	n := target("a")
	n.Window = time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)
	n.Key.Window = n.Window
	failed := failUnfit(t, s, n)
	pruneAll := func() storage.Pruned {
		t.Helper()
		done, err := s.Prune(context.Background(), time.Now().Add(1000*time.Hour), storage.Retention{Attempts: time.Hour, Pages: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	if done := pruneAll(); done != (storage.Pruned{}) {
		t.Errorf("pruned %+v", done)
	}
	if _, err := s.ReadPage(readable(t, s, failed.ID).Page); err != nil {
		t.Error(err)
	}
	update(t, s, func(tx *storage.Tx) error { return tx.DiscardQuarantine(failed.ID) })
	if j := getJob(t, s, failed.ID); j.State != storage.StateFailed {
		t.Errorf("job %+v", j)
	}
	if done := pruneAll(); done.Attempts != 1 { // the event binds the job
		t.Errorf("pruned %+v", done)
	}
	err := s.Update(context.Background(), func(tx *storage.Tx) error { return tx.DiscardQuarantine(failed.ID) })
	wantError(t, err, storage.ErrNotFound)
}

// TestReparseOfCanceled: what a person has canceled is not completed by a page that is
// still in quarantine.
func TestReparseOfCanceled(t *testing.T) {
	s := storagetest.Open(t)
	failed := failUnfit(t, s, target("a"))
	read := readable(t, s, failed.ID)
	update(t, s, func(tx *storage.Tx) error { _, err := tx.RequeueJob(failed.ID); return err })
	update(t, s, func(tx *storage.Tx) error { _, err := tx.CancelJob(failed.ID, nil); return err })
	err := s.Update(context.Background(), func(tx *storage.Tx) error {
		_, err := tx.Reparsable(getJob(t, s, failed.ID))
		wantError(t, err, storage.ErrNotFound)
		return reparse(tx, read, record(storage.WriteUpsert, 2, "a", "1.00"))
	})
	wantError(t, err, storage.ErrTransition)
}

// TestReparseIntoAnother: where the key names the rules, a page that is read by
// others completes a job of theirs, and what the older ones gave stays.
func TestReparseIntoAnother(t *testing.T) {
	s := storagetest.Open(t)
	versioned := func(version int) storage.NewJob {
		n := target("a")
		n.Key.Version, n.Version = version, version
		return n
	}
	enqueue(t, s, versioned(1))
	l := claimOne(t, s).Lease()
	update(t, s, func(tx *storage.Tx) error {
		c := record(storage.WriteUpsert, 1, "a", "1")
		c.Attempt.Kept = unfitPage
		_, err := tx.CompleteJob(l, c)
		return err
	})
	into := func(n storage.NewJob, version int) error {
		return s.Update(context.Background(), func(tx *storage.Tx) error {
			_, err := tx.ReparseJob(readAt(tx, 1), &n, record(storage.WriteUpsert, version, "a", "2"))
			return err
		})
	}
	if err := into(versioned(2), 2); err != nil {
		t.Fatal(err)
	}
	if list := observations(t, s, "s"); len(list) != 2 || list[0].Version != 1 || list[1].Version != 2 {
		t.Errorf("rows %+v", list)
	}
	wantError(t, into(versioned(2), 2), storage.ErrTransition) // it is complete
	failUnfit(t, s, versioned(3))
	wantError(t, into(versioned(3), 3), storage.ErrTransition) // it has a page of its own
	update(t, s, func(tx *storage.Tx) error { return tx.DiscardQuarantine(3) })
	if err := into(versioned(3), 3); err != nil || getJob(t, s, 3).State != storage.StateComplete {
		t.Errorf("into one that has failed: %v, %+v", err, getJob(t, s, 3))
	}
	if j := getJob(t, s, 2); j.State != storage.StateComplete || j.Attempts != 0 || j.Generation != 1 {
		t.Errorf("the job of the new rules: %+v", j)
	}
}

// TestReparseKeepsTheTimeOfThePage: what a page says was observed when it was
// fetched, however late and however often it is read again, also for another job. Its
// events happen when it is read.
func TestReparseKeepsTheTimeOfThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		enqueue(t, s, target("a"))
		l := claimOne(t, s).Lease()
		time.Sleep(time.Second)
		fetched := time.Now()
		update(t, s, func(tx *storage.Tx) error {
			c := record(storage.WriteUpsert, 1, "a", "1")
			c.Attempt.Kept = unfitPage
			_, err := tx.CompleteJob(l, c)
			return err
		})
		for version := 2; version <= 4; version++ {
			time.Sleep(24 * time.Hour)
			update(t, s, func(tx *storage.Tx) error {
				c := record(storage.WriteUpsert, version, "a", strconv.Itoa(version))
				c.Sinks = allSinks
				into := (*storage.NewJob)(nil)
				if version == 4 {
					n := target("a")
					n.Key.Version, n.Version = version, version
					into = &n
				}
				_, err := tx.ReparseJob(readAt(tx, 1), into, c)
				return err
			})
			rows := observations(t, s, "s")
			if o := rows[len(rows)-1]; o.Version != version || !o.ObservedAt.Equal(fetched) {
				t.Errorf("version %d: %+v, want it observed at %s", version, o, fetched)
			}
			told := pending(t, s, "s")
			if e := told[len(told)-1]; !e.Timestamp.Equal(time.Now()) {
				t.Errorf("version %d was told at %s, want %s", version, e.Timestamp, time.Now())
			}
		}
	})
}

// TestReparseAfterTheClockWasSetBack: no event is older than what it tells of.
func TestReparseAfterTheClockWasSetBack(t *testing.T) {
	s := storagetest.Open(t)
	failed := failUnfit(t, s, target("a"))
	read := readable(t, s, failed.ID)
	read.End = time.Now().Add(time.Hour)
	update(t, s, func(tx *storage.Tx) error {
		c := record(storage.WriteUpsert, 2, "a", "1.00")
		c.Sinks = allSinks
		return reparse(tx, read, c)
	})
	if o := observations(t, s, "s")[0]; o.ObservedAt.After(time.Now()) {
		t.Errorf("observed at %s", o.ObservedAt)
	}
}

// reparse commits what a page gives that was read again, and settles its run.
func reparse(tx *storage.Tx, read storage.Attempt, c storage.Completion) error {
	j, err := tx.ReparseJob(read, nil, c)
	if err == nil {
		_, err = tx.SettleReparsed(j.Run, c.Sinks)
	}
	return err
}

func readAt(tx *storage.Tx, job uint64) storage.Attempt {
	j, err := tx.Job(job)
	if err != nil {
		panic(err)
	}
	a, err := tx.Reparsable(j)
	if err != nil {
		panic(err)
	}
	return a
}

// TestReparseCountsWhatWasStaged: what a page gave is counted once it stands, also where
// it was read again before.
func TestReparseCountsWhatWasStaged(t *testing.T) {
	s := storagetest.Open(t)
	enqueue(t, s, jobsIn(replaceWindow, "a", "b")...) // not offered as a whole: held
	for _, j := range claim(t, s, 2) {
		c := record(storage.WriteReplace, 1, "p", "1")
		c.Attempt.Kept = unfitPage
		update(t, s, func(tx *storage.Tx) error { _, err := tx.CompleteJob(j.Lease(), c); return err })
	}
	for range 2 {
		update(t, s, func(tx *storage.Tx) error {
			for _, job := range []uint64{1, 2} {
				if err := reparse(tx, readAt(tx, job), record(storage.WriteReplace, 2, "p", "2")); err != nil {
					return err
				}
			}
			_, err := tx.ReleaseRun(1, nil)
			return err
		})
		if n := counters(t, s, "s")[storage.MetricDuplicates]; n != 1 {
			t.Errorf("%d duplicates", n)
		}
	}
}

// TestReparseOfDiscardedRun: rows that a page gives anew are held again, whatever a
// person said of those before.
func TestReparseOfDiscardedRun(t *testing.T) {
	s := storagetest.Open(t)
	n := target("a")
	n.Window = time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)
	n.Key.Window = n.Window
	enqueue(t, s, n)
	l := claimOne(t, s).Lease()
	c := record(storage.WriteReplace, 1, "a", "1")
	c.Attempt.Kept = unfitPage
	update(t, s, func(tx *storage.Tx) error { _, err := tx.CompleteJob(l, c); return err })
	update(t, s, func(tx *storage.Tx) error { _, err := tx.DiscardRun(1); return err })
	update(t, s, func(tx *storage.Tx) error {
		return reparse(tx, readAt(tx, 1), record(storage.WriteReplace, 2, "a", "2"))
	})
	update(t, s, func(tx *storage.Tx) error {
		r, err := tx.Run(1)
		if err == nil && (r.Held == "" || !r.Discarded.IsZero()) {
			t.Errorf("run %+v", r)
		}
		return err
	})
}
