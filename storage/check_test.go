package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// damagedStore has a job of each state: 1 complete with one observation and one
// event, 2 running, 3 retryable, 4 failed, 5 pending.
func damagedStore(t *testing.T) *Store {
	t.Helper()
	s := openTest(t, Options{NoSync: true})
	err := s.Update(context.Background(), func(tx *Tx) error {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			if _, err := tx.EnqueueJob(newJob(name)); err != nil {
				return err
			}
		}
		claimed, err := tx.ClaimJobs("me", time.Minute, []ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 4}})
		if err != nil {
			return err
		}
		jobs := claimed[0]
		c := Completion{
			Mode: WriteUpsert, Sinks: []Subscription{{Sink: "a"}},
			Records: []NewObservation{{Key: "a", Data: []byte(`{}`)}},
		}
		if _, err := tx.CompleteJob(jobs[0].Lease(), c); err != nil {
			return err
		}
		if err := tx.RetryJob(jobs[2].Lease(), Attempt{Category: CategoryDNS}, tx.Now.Add(time.Hour)); err != nil {
			return err
		}
		return tx.FailJob(jobs[3].Lease(), Attempt{}, Failure{Category: CategoryTLS})
	})
	if err != nil {
		t.Fatal(err)
	}
	wantClean(t, s)
	return s
}

// place is the key of a job's entry in an index.
func place(tx *Tx, id uint64, key func(*Job) []byte) []byte {
	j, err := tx.Job(id)
	if err != nil {
		panic(err)
	}
	return key(j)
}

func waitKey(j *Job) []byte  { return timedKey(j.NextAt, j.ID) }
func endKey(j *Job) []byte   { return timedKey(j.LeaseUntil, j.ID) }
func indexKey(j *Job) []byte { return keyIndex(j.Key.Window, j.Key.String()) }

// rewrite stores a job changed past every rule.
func rewrite(tx *Tx, id uint64, change func(*Job)) error {
	j, err := tx.Job(id)
	if err != nil {
		return err
	}
	change(j)
	return tx.save(j)
}

// TestCheckFinds: for each kind of damage Check tells the place and what is
// wrong there, and nothing else.
func TestCheckFinds(t *testing.T) {
	counter := func(metric string) []byte { return counterKey("s", metric) }
	garbage := []byte{99, 1, 2}
	observationAt := observationKey(JobKey{Source: "s", Target: "a"})
	for name, c := range map[string]struct {
		damage func(tx *Tx) error
		want   []string // "bucket: part of the text", in any order
	}{
		"missing ready entry": {
			func(tx *Tx) error { return tx.remove(bucketReady, place(tx, 5, readyKey)) },
			[]string{"job: it is pending, and its entry in bucket ready: false"},
		},
		"missing wait entry": {
			func(tx *Tx) error { return tx.remove(bucketWait, place(tx, 3, waitKey)) },
			[]string{"job: it is retryable, and its entry in bucket wait: false"},
		},
		"missing lease entry": {
			func(tx *Tx) error { return tx.remove(bucketLease, place(tx, 2, endKey)) },
			[]string{"job: it is running, and its entry in bucket lease: false"},
		},
		"extra ready entry": {
			func(tx *Tx) error { return tx.put(bucketReady, place(tx, 4, readyKey), nil) },
			[]string{"job: it is failed, and its entry in bucket ready: true", "ready: job 4 is failed"},
		},
		"ready entry elsewhere": {
			func(tx *Tx) error {
				return tx.put(bucketReady, place(tx, 5, func(j *Job) []byte { j.Priority = 9; return readyKey(j) }), nil)
			},
			[]string{"ready: job 5 stands elsewhere"},
		},
		"entry of no job": {
			func(tx *Tx) error { return tx.put(bucketWait, timedKey(tx.Now, 77), nil) },
			[]string{"wait: its job: job 77: not found"},
		},
		"wrong state": {
			func(tx *Tx) error { return rewrite(tx, 5, func(j *Job) { j.State = StateComplete }) },
			[]string{
				"job: it is complete, and its entry in bucket ready: true", "ready: job 5 is complete",
				"counter: it says 1, a recount gives 2", "counter: it says 1, a recount gives 0",
			},
		},
		"running without an owner": {
			func(tx *Tx) error { return rewrite(tx, 2, func(j *Job) { j.Owner = "" }) },
			[]string{"job: it runs without an owner"},
		},
		"missing job": {
			func(tx *Tx) error { return tx.remove(bucketJob, idKey(5)) },
			[]string{"ready: its job: job 5: not found", "key: its job: job 5: not found", "counter: it says 1, a recount gives 0"},
		},
		"garbage job": {
			func(tx *Tx) error { return tx.put(bucketJob, idKey(5), garbage) },
			[]string{
				"job: reading bucket job, key 0000000000000005", "ready: its job: reading bucket job",
				"key: its job: reading bucket job", "counter: it says 1, a recount gives 0",
			},
		},
		"missing key": {
			func(tx *Tx) error { return tx.remove(bucketKey, place(tx, 5, indexKey)) },
			[]string{"job: its key s:e:-:-:-:- leads to job 0"},
		},
		"key of another job": {
			func(tx *Tx) error { return tx.put(bucketKey, place(tx, 5, indexKey), idKey(4)) },
			[]string{"job: its key s:e:-:-:-:- leads to job 4", "key: job 4 has the key s:d:-:-:-:-"},
		},
		"garbage attempt": {
			func(tx *Tx) error { return tx.put(bucketAttempt, attemptKey(2, 1), garbage) },
			[]string{"attempt: reading bucket attempt"},
		},
		"attempt of no job": {
			func(tx *Tx) error {
				return tx.put(bucketAttempt, attemptKey(77, 1), (&Attempt{Outcome: OutcomeRescued}).encode())
			},
			[]string{"attempt: its job: job 77: not found"},
		},
		"attempt of a later generation": {
			func(tx *Tx) error {
				return tx.put(bucketAttempt, attemptKey(2, 9), (&Attempt{Outcome: OutcomeRescued}).encode())
			},
			[]string{"attempt: generation 9, its job has 1"},
		},
		"attempt that its job has not counted": {
			func(tx *Tx) error {
				return tx.put(bucketAttempt, attemptKey(2, 1), (&Attempt{Outcome: OutcomeRetry}).encode())
			},
			[]string{"attempt: 1 attempts count, its job says 0", "counter: it says 3, a recount gives 4"},
		},
		"garbage observation": {
			func(tx *Tx) error { return tx.put(bucketObservation, observationAt, garbage) },
			[]string{"obs: reading bucket obs", "counter: it says 1, a recount gives 0"},
		},
		"observation of no job": {
			func(tx *Tx) error {
				o := &Observation{Job: newJob("ghost").Key.String()}
				return tx.put(bucketObservation, observationAt, o.encode())
			},
			[]string{"obs: its job: job s:ghost:-:-:-:-: not found"},
		},
		"observation without a job key": {
			func(tx *Tx) error {
				return tx.put(bucketObservation, observationAt, (&Observation{Job: "x"}).encode())
			},
			[]string{"obs: its job: job key"},
		},
		"garbage event": {
			func(tx *Tx) error { return tx.put(bucketEvent, idKey(1), garbage) },
			[]string{"event: reading bucket event"},
		},
		"outbox row without event": {
			func(tx *Tx) error { return tx.put(bucketOutbox, outboxKey("a", 77), nil) },
			[]string{"outbox: there is no event 77"},
		},
		"wrong counter": {
			func(tx *Tx) error {
				return tx.put(bucketCounter, counter(MetricObservations), binary.BigEndian.AppendUint64(nil, 5))
			},
			[]string{"counter: it says 5, a recount gives 1"},
		},
		"missing counter": {
			func(tx *Tx) error { return tx.remove(bucketCounter, counter(MetricFailures+string(CategoryTLS))) },
			[]string{"counter: it is missing, a recount gives 1"},
		},
		"counter of nothing": {
			func(tx *Tx) error { return tx.put(bucketCounter, counterKey("x", metricState+"failed"), idKey(2)) },
			[]string{"counter: it says 2, a recount gives 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := damagedStore(t)
			if err := s.Update(context.Background(), c.damage); err != nil {
				t.Fatal(err)
			}
			found, err := s.Check()
			if err != nil {
				t.Fatal(err)
			}
			wantBreaches(t, found, c.want)
		})
	}
}

func wantBreaches(t *testing.T, found []Breach, want []string) {
	t.Helper()
	if len(found) != len(want) {
		t.Errorf("found %d breaches, want %d", len(found), len(want))
	}
	left := found
search:
	for _, w := range want {
		for i, b := range left {
			if strings.HasPrefix(b.Bucket+": "+b.What, w) {
				left = append(left[:i:i], left[i+1:]...)
				continue search
			}
		}
		t.Errorf("did not find %q", w)
	}
	for _, b := range left {
		t.Errorf("found also: %s", b)
	}
}

// TestCheckFindsBrokenPages: what bbolt's own check finds is told, and nothing
// below it is looked at.
func TestCheckFindsBrokenPages(t *testing.T) {
	s := damagedStore(t)
	err := s.Update(context.Background(), func(tx *Tx) error { // bbolt does not check a bucket of less than a page
		for i := range 100 {
			if _, err := tx.EnqueueJob(newJob(fmt.Sprint("more ", i))); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	// Job 1 becomes job 9 where it stands: keys out of order.
	file, err := os.ReadFile(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	first := append(idKey(1), (&Job{State: StateComplete}).encode()[:2]...)
	if !bytes.Contains(file, first) {
		t.Fatal("the record of job 1 is not in the file")
	}
	file = bytes.ReplaceAll(file, first, append(idKey(9), first[8:]...))
	if err := os.WriteFile(s.Path(), file, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = Open(s.Path(), Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found, err := s.Check()
	if err != nil || len(found) == 0 {
		t.Fatalf("found %v, %v", found, err)
	}
	for _, b := range found {
		if b.Bucket != "(pages)" {
			t.Errorf("found %s", b)
		}
	}
}

// TestCheckBesideWriters: the check sees whole states only, whatever is written
// while it runs.
func TestCheckBesideWriters(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	done := make(chan error, 1)
	go func() {
		for i := range 100 {
			err := s.Update(context.Background(), func(tx *Tx) error { return writeMuch(tx, string(rune('A'+i)), 2) })
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		wantClean(t, s)
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

// TestDanglingKeyIsDamage: a key that leads to no job must not make a second one.
func TestDanglingKeyIsDamage(t *testing.T) {
	s := damagedStore(t)
	err := s.Update(context.Background(), func(tx *Tx) error { return tx.remove(bucketJob, idKey(5)) })
	if err != nil {
		t.Fatal(err)
	}
	err = s.Update(context.Background(), func(tx *Tx) error { _, err := tx.EnqueueJob(newJob("e")); return err })
	if err == nil || !strings.Contains(err.Error(), "it leads to job 5, which is missing") {
		t.Errorf("error %v", err)
	}
}

// TestMissingEntryIsDamage: a transition that does not find its job in the index
// says so and changes nothing.
func TestMissingEntryIsDamage(t *testing.T) {
	s := damagedStore(t)
	err := s.Update(context.Background(), func(tx *Tx) error {
		return tx.remove(bucketReady, place(tx, 5, readyKey))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Update(context.Background(), func(tx *Tx) error { _, err := tx.CancelJob(5, nil); return err })
	if err == nil || !strings.Contains(err.Error(), "index entry is missing") {
		t.Errorf("error %v", err)
	}
	err = s.View(func(tx *Tx) error {
		if j, err := tx.Job(5); err != nil || j.State != StatePending {
			t.Errorf("job %+v, %v", j, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
