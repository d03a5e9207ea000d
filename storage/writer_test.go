package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// openTest is storagetest.Open for tests inside this package, which cannot
// import it.
func openTest(t testing.TB, opts Options) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "semel.db"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return s
}

func wantClean(t testing.TB, s *Store) {
	t.Helper()
	breaches, err := s.Check()
	if err != nil || len(breaches) > 0 {
		t.Errorf("check: %v, %v", breaches, err)
	}
}

func newJob(name string) NewJob {
	return NewJob{Key: JobKey{Source: "s", Target: name}, URL: "http://h/" + name, Host: "h"}
}

// TestGroupsUndoOnlyWhatFailed: of updates from many goroutines, half of which
// fail or panic half-way through their writes, exactly those stay that were
// acknowledged, and numbers go on without a gap.
func TestGroupsUndoOnlyWhatFailed(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	const callers, rounds = 32, 60
	kept := make([][]string, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 1))
			for r := range rounds {
				name, kind := fmt.Sprintf("%d-%d", c, r), random.IntN(4)
				err := s.Update(context.Background(), func(tx *Tx) error { return writeMuch(tx, name, kind) })
				if (err == nil) != (kind > 1) {
					t.Errorf("update %s of kind %d: %v", name, kind, err)
				}
				if err == nil {
					kept[c] = append(kept[c], name)
				}
			}
		})
	}
	wg.Wait()
	wantKept(t, s, kept)
	wantClean(t, s)
}

// writeMuch makes three jobs and completes one of them, and fails (kind 0) or
// panics (kind 1) before the last write.
func writeMuch(tx *Tx, name string, kind int) error {
	for i := range 2 {
		if _, err := tx.EnqueueJob(newJob(fmt.Sprintf("%s-%d", name, i))); err != nil {
			return err
		}
	}
	if err := tx.PutRobots("http://"+name, 200, []byte("User-agent: *")); err != nil {
		return err
	}
	claimed, err := tx.ClaimJobs("me", time.Minute, []ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
	if err != nil {
		return err
	}
	c := Completion{
		Mode: WriteUpsert, Sinks: []Subscription{{Sink: "a"}}, Attempt: Attempt{ParserVersion: 1},
		// Everyone writes the same row, so that undoing has something to restore.
		Records: []NewObservation{{Key: name, Data: []byte(`{}`)}, {Key: "shared", Data: []byte(`{"by":"` + name + `"}`)}},
	}
	if _, err := tx.CompleteJob(claimed[0][0].Lease(), c); err != nil {
		return err
	}
	switch kind {
	case 0:
		return errors.New("half-way")
	case 1:
		panic("half-way")
	}
	_, err = tx.EnqueueJob(newJob(name + "-2"))
	return err
}

func wantKept(t *testing.T, s *Store, kept [][]string) {
	t.Helper()
	updates := 0
	err := s.View(func(tx *Tx) error {
		for _, names := range kept {
			for _, name := range names {
				updates++
				for i := range 3 {
					if _, err := tx.JobByKey(newJob(fmt.Sprintf("%s-%d", name, i)).Key); err != nil {
						return err
					}
				}
				if _, ok, err := tx.Robots("http://" + name); err != nil || !ok {
					return fmt.Errorf("robots of %s: %v, %w", name, ok, err)
				}
			}
		}
		last := uint64(0)
		if _, err := tx.Jobs(0, 1<<30, func(j *Job) bool { last++; return j.ID == last }); err != nil {
			return err
		}
		counters := tx.Counters("s")
		if last != uint64(3*updates) || counters.State(StateComplete) != int64(updates) || counters.State(StatePending) != int64(2*updates) {
			t.Errorf("%d jobs in one row, counters %v, for %d updates", last, counters, updates)
		}
		robots := tx.bucket(bucketRobots).Stats().KeyN
		rows := tx.bucket(bucketObservation).Stats().KeyN
		if robots != updates || rows != updates+1 {
			t.Errorf("%d robots and %d observations for %d updates", robots, rows, updates)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestGroupEndsThoughUpdatesFail: failed updates count, so that a stream of
// them cannot hold up one that waits for its commit.
func TestGroupEndsThoughUpdatesFail(t *testing.T) {
	s := &Store{now: time.Now, db: openTest(t, Options{NoSync: true}).db, queue: make(chan *update, 3*maxGroup)}
	first := &update{func(tx *Tx) error { return tx.PutRobots("o", 200, nil) }, make(chan error, 1)}
	for range 2 * maxGroup {
		s.queue <- &update{func(*Tx) error { return errors.New("no") }, make(chan error, 1)}
	}
	s.group(first)
	if err := <-first.done; err != nil || len(s.queue) != maxGroup+1 {
		t.Errorf("group ended with %d updates left in the queue (%v)", len(s.queue), err)
	}
}

// TestGroupBytes: a group stays within its bytes, however many wait.
func TestGroupBytes(t *testing.T) {
	s := &Store{now: time.Now, db: openTest(t, Options{NoSync: true}).db, queue: make(chan *update, 8)}
	big := &update{func(tx *Tx) error { return tx.PutRobots("o", 200, make([]byte, maxGroupBytes)) }, make(chan error, 1)}
	s.queue <- &update{func(*Tx) error { return nil }, make(chan error, 1)}
	s.group(big)
	if err := <-big.done; err != nil || len(s.queue) != 1 {
		t.Errorf("%d updates left in the queue (%v)", len(s.queue), err)
	}
}

// TestStepsOfAGroupSeeEachOther and what failed between them is not seen.
func TestStepsOfAGroupSeeEachOther(t *testing.T) {
	db := openTest(t, Options{NoSync: true}).db
	b, err := db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Rollback()
	tx := newTx(b, time.Time{})
	steps := []func(*Tx) error{
		func(tx *Tx) error { _, err := tx.EnqueueJob(newJob("a")); return err },
		func(tx *Tx) error {
			if _, err := tx.EnqueueJob(newJob("b")); err != nil {
				return err
			}
			return errors.New("undone")
		},
		func(tx *Tx) error {
			if _, err := tx.JobByKey(newJob("b").Key); !isNotFound(err) {
				return fmt.Errorf("b is there: %w", err)
			}
			e, err := tx.EnqueueJob(newJob("c"))
			if e.ID != 2 {
				return fmt.Errorf("c has id %d, want 2", e.ID)
			}
			return err
		},
	}
	for i, step := range steps {
		if err := tx.run(step); (err != nil) != (i == 1) {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

// TestStepsOfAGroupCountRuns: the steps of a group see what those before them
// changed of runs before it is written, and nothing of one that failed.
func TestStepsOfAGroupCountRuns(t *testing.T) {
	db := openTest(t, Options{NoSync: true}).db
	b, err := db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Rollback()
	tx := newTx(b, time.Time{})
	in := func(window int64, name string) NewJob {
		n := newJob(name)
		n.Window = time.Unix(window, 0).UTC()
		n.Key.Window = n.Window
		return n
	}
	undone := errors.New("undone")
	for i, step := range []struct {
		jobs []NewJob
		err  error
		want []uint64 // jobs of each run
	}{
		{[]NewJob{in(1, "a")}, undone, nil},
		{[]NewJob{in(1, "a"), in(1, "b")}, nil, []uint64{2}},
		{[]NewJob{in(1, "c"), in(2, "a"), in(2, "b")}, undone, []uint64{2}},
		{[]NewJob{in(2, "a"), in(1, "c")}, nil, []uint64{3, 1}},
		{[]NewJob{in(2, "b")}, undone, []uint64{3, 1}},
	} {
		err := tx.run(func(tx *Tx) error { return errors.Join(enqueueAll(tx, step.jobs...), step.err) })
		if !errors.Is(err, step.err) {
			t.Fatalf("step %d: %v", i, err)
		}
		if got := jobsOfRuns(t, tx); !slices.Equal(got, step.want) {
			t.Errorf("after step %d the runs have %d jobs, want %d", i, got, step.want)
		}
	}
	if err := tx.flushRuns(); err != nil {
		t.Fatal(err)
	}
	if got := jobsOfRuns(t, newTx(b, time.Time{})); !slices.Equal(got, []uint64{3, 1}) {
		t.Errorf("as written the runs have %d jobs", got)
	}
}

// jobsOfRuns are the counts of all runs, the oldest first.
func jobsOfRuns(t *testing.T, tx *Tx) (jobs []uint64) {
	t.Helper()
	err := tx.Runs(0, func(r *Run) bool {
		jobs = append(jobs, r.Jobs)
		if again, err := tx.Run(r.ID); err != nil || !cmp.Equal(again, r) {
			t.Errorf("run %d is %+v, listed %+v (%v)", r.ID, again, r, err)
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
	slices.Reverse(jobs)
	return jobs
}

// TestNothingIsCommittedForNothing: a group without a write costs no fsync.
func TestNothingIsCommittedForNothing(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	err := s.Update(context.Background(), func(tx *Tx) error { _, err := tx.EnqueueJob(newJob("a")); return err })
	if err != nil {
		t.Fatal(err)
	}
	txid := func() (id int) {
		_ = s.View(func(tx *Tx) error { id = tx.bolt.ID(); return nil })
		return id
	}
	before := txid()
	reading := func(tx *Tx) error { _, err := tx.Job(1); return err }
	failing := func(tx *Tx) error {
		_, _ = tx.EnqueueJob(newJob("b"))
		return errors.New("no")
	}
	if err := s.Update(context.Background(), reading); err != nil {
		t.Error(err)
	}
	if err := s.Update(context.Background(), failing); err == nil {
		t.Error("an update that fails gave no error")
	}
	if after := txid(); after != before {
		t.Errorf("transaction %d, want %d still", after, before)
	}
}

// TestFailedCommitStopsTheStore: the file may not grow, so that the commit
// fails; its outcome counts as unknown for all that wait and all that come.
func TestFailedCommitStopsTheStore(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	s.db.MaxSize = 1 << 16
	big := func(tx *Tx) error { return tx.PutRobots("o", 200, make([]byte, 1<<20)) }
	const callers = 20
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { errs[i] = s.Update(context.Background(), big) })
	}
	wg.Wait()
	small := func(tx *Tx) error { return tx.PutRobots("p", 200, nil) }
	_, checkErr := s.Check()
	_, backupErr := s.Backup(filepath.Join(t.TempDir(), "backup.db"))
	later := map[string]error{
		"update": s.Update(context.Background(), small), "view": s.View(func(*Tx) error { return nil }), "check": checkErr,
		"backup": backupErr, "what the store says": s.Err(),
	}
	for i, err := range errs {
		later[fmt.Sprint("waiting update ", i)] = err
	}
	for what, err := range later {
		if !errors.Is(err, ErrStopped) || !strings.Contains(err.Error(), "outcome unknown") {
			t.Errorf("%s: %v, want ErrStopped, outcome unknown", what, err)
		}
	}
}

// TestFailedUndoStopsTheStore: a step that cannot be taken back must not be
// committed with the others.
func TestFailedUndoStopsTheStore(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	err := s.Update(context.Background(), func(tx *Tx) error {
		tx.undo = append(tx.undo, change{bucket: bucketRobots, key: nil, old: []byte("x")}) // no empty key can be put
		return errors.New("no")
	})
	if !errors.Is(err, ErrStopped) || !errors.Is(s.Err(), ErrStopped) {
		t.Errorf("update: %v, store: %v, want ErrStopped of both", err, s.Err())
	}
}

func TestUseAfterClose(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, checkErr := s.Check()
	_, backupErr := s.Backup(filepath.Join(t.TempDir(), "backup.db"))
	for what, err := range map[string]error{
		"update": s.Update(context.Background(), func(*Tx) error { return nil }),
		"view":   s.View(func(*Tx) error { return nil }),
		"check":  checkErr,
		"backup": backupErr,
	} {
		if !errors.Is(err, ErrStopped) {
			t.Errorf("%s after close: %v, want ErrStopped", what, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// TestCloseWaits: what came before Close is committed, also where it still waits
// for a place in the queue.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openTest(t, Options{NoSync: true})
		goOn := make(chan struct{})
		const callers = 4*maxGroup + 10
		errs := make(chan error, callers)
		for i := range callers {
			go func() {
				errs <- s.Update(context.Background(), func(tx *Tx) error {
					<-goOn
					return tx.PutRobots(fmt.Sprint(i), 200, nil)
				})
			}()
		}
		synctest.Wait() // one runs, the queue is full, some wait for it
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		if err := s.Update(context.Background(), func(*Tx) error { return nil }); !errors.Is(err, ErrStopped) {
			t.Errorf("update while closing: %v, want ErrStopped", err)
		}
		close(goOn)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		for range callers {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestCanceledBeforeQueued: a full queue is the back-pressure, and waiting for
// it ends with the context; the function then never runs.
func TestCanceledBeforeQueued(t *testing.T) {
	s := &Store{queue: make(chan *update)} // nobody takes from it
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	if err := s.Update(ctx, func(*Tx) error { t.Error("it ran"); return nil }); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
}
