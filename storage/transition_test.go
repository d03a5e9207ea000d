package storage

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// inState makes a job and brings it into a state by the ways there are.
func inState(t *testing.T, s *Store, name string, state JobState) (j *Job) {
	t.Helper()
	err := s.Update(context.Background(), func(tx *Tx) error {
		e, err := tx.EnqueueJob(newJob(name))
		if err != nil {
			return err
		}
		if state != StatePending {
			claimed, err := tx.ClaimJobs("me", time.Minute, []ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
			if err != nil {
				return err
			}
			l := claimed[0][0].Lease()
			switch state {
			case StateComplete:
				_, err = tx.CompleteJob(l, Completion{Mode: WriteUpsert})
			case StateRetryable:
				err = tx.RetryJob(l, Attempt{Category: CategoryDNS}, tx.Now.Add(time.Hour))
			case StateFailed:
				err = tx.FailJob(l, Attempt{Category: CategoryTLS}, Failure{Category: CategoryTLS})
			}
			if err != nil {
				return err
			}
		}
		j, err = tx.Job(e.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if j.State != state {
		t.Fatalf("job is %s, want %s", j.State, state)
	}
	return j
}

// TestTransitions goes through every pair of verb and state: where the diagram
// has no arrow, the answer is ErrTransition and nothing changes.
func TestTransitions(t *testing.T) {
	type arrow struct {
		v    verb
		from JobState
	}
	arrows := map[arrow]JobState{
		{verbClaim, StatePending}:      StateRunning,
		{verbRenew, StateRunning}:      StateRunning,
		{verbMark, StateRunning}:       StateRunning,
		{verbComplete, StateRunning}:   StateComplete,
		{verbRetry, StateRunning}:      StateRetryable,
		{verbFail, StateRunning}:       StateFailed,
		{verbRelease, StateRunning}:    StatePending,
		{verbRescue, StateRunning}:     StatePending,
		{verbAbandon, StateRunning}:    StateFailed,
		{verbPromote, StateRetryable}:  StatePending,
		{verbCancel, StatePending}:     StateFailed,
		{verbCancel, StateRetryable}:   StateFailed,
		{verbRequeue, StateFailed}:     StatePending,
		{verbRecollect, StateFailed}:   StatePending,
		{verbRecollect, StateComplete}: StatePending,
		{verbReparse, StatePending}:    StateComplete,
		{verbReparse, StateFailed}:     StateComplete,
		{verbReparse, StateComplete}:   StateComplete,
	}
	verbs := []verb{
		verbClaim, verbRenew, verbMark, verbComplete, verbRetry, verbFail, verbRelease,
		verbRescue, verbAbandon, verbPromote, verbCancel, verbRequeue, verbRecollect, verbReparse,
	}
	if len(verbs) != len(transitions) {
		t.Fatalf("%d verbs are tested, there are %d", len(verbs), len(transitions))
	}
	for _, v := range verbs {
		for _, from := range JobStates {
			t.Run(string(v)+" "+string(from), func(t *testing.T) {
				s := openTest(t, Options{NoSync: true})
				j := inState(t, s, "a", from)
				to, allowed := arrows[arrow{v, from}]
				err := s.Update(context.Background(), func(tx *Tx) error {
					return tx.move(j, v, func(j *Job) {
						j.Owner, j.LeaseUntil, j.NextAt = "me", tx.Now.Add(time.Minute), tx.Now.Add(time.Hour)
						if j.State == StateFailed {
							j.Category = CategoryCanceled
						}
					})
				})
				if allowed != (err == nil) || !allowed && !errors.Is(err, ErrTransition) {
					t.Errorf("error %v, allowed: %v", err, allowed)
				}
				if !allowed {
					to = from
				}
				err = s.View(func(tx *Tx) error {
					if got, err := tx.Job(j.ID); err != nil || got.State != to {
						t.Errorf("job is %s (%v), want %s", got.State, err, to)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				wantIndexed(t, s)
			})
		}
	}
}

// wantIndexed wants every job in the index of its state, nowhere else, and
// counted. A move alone leaves no attempt behind, which Check would miss.
func wantIndexed(t *testing.T, s *Store) {
	t.Helper()
	err := s.View(func(tx *Tx) error {
		c := &checker{tx: tx, counts: map[delta]int64{}}
		c.each(bucketJob, func(k, v []byte) {
			j, err := decodeJob(tailID(k), v)
			if err != nil {
				t.Error(err)
				return
			}
			list, err := tx.Attempts(j.ID)
			if err != nil {
				t.Error(err)
			}
			c.place(j, k)
			c.recountJob(j, list)
		})
		c.indexes()
		c.counters()
		for _, b := range c.found {
			t.Errorf("breach: %s", b)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestVerbsThroughTheDoor: the exported methods answer a state they do not fit
// as their docs say.
func TestVerbsThroughTheDoor(t *testing.T) {
	lease := func(j *Job) Lease { return Lease{j.ID, "me", j.Generation} }
	for name, c := range map[string]struct {
		from []JobState
		do   func(tx *Tx, j *Job) error
		want error
	}{
		"complete": {[]JobState{StateRunning}, func(tx *Tx, j *Job) error {
			_, err := tx.CompleteJob(lease(j), Completion{Mode: WriteUpsert})
			return err
		}, ErrLeaseLost},
		"retry": {[]JobState{StateRunning}, func(tx *Tx, j *Job) error {
			return tx.RetryJob(lease(j), Attempt{Category: CategoryDNS}, tx.Now)
		}, ErrLeaseLost},
		"fail": {[]JobState{StateRunning}, func(tx *Tx, j *Job) error {
			return tx.FailJob(lease(j), Attempt{Category: CategoryTLS}, Failure{Category: CategoryTLS})
		}, ErrLeaseLost},
		"release": {[]JobState{StateRunning}, func(tx *Tx, j *Job) error { return tx.ReleaseJob(lease(j), Attempt{}) }, ErrLeaseLost},
		"mark":    {[]JobState{StateRunning}, func(tx *Tx, j *Job) error { return tx.MarkSent(lease(j), "pay") }, ErrLeaseLost},
		"cancel": {[]JobState{StatePending, StateRetryable}, func(tx *Tx, j *Job) error {
			_, err := tx.CancelJob(j.ID, nil)
			return err
		}, ErrTransition},
		"requeue":   {[]JobState{StateFailed}, func(tx *Tx, j *Job) error { _, err := tx.RequeueJob(j.ID); return err }, ErrTransition},
		"recollect": {[]JobState{StateFailed, StateComplete}, func(tx *Tx, j *Job) error { _, err := tx.RecollectJob(j.ID); return err }, ErrTransition},
	} {
		for _, state := range JobStates {
			t.Run(name+" "+string(state), func(t *testing.T) {
				s := openTest(t, Options{NoSync: true})
				j := inState(t, s, "a", state)
				err := s.Update(context.Background(), func(tx *Tx) error { return c.do(tx, j) })
				if slices.Contains(c.from, state) {
					if err != nil {
						t.Error(err)
					}
				} else if !errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				}
				missing := &Job{ID: 77}
				err = s.Update(context.Background(), func(tx *Tx) error { return c.do(tx, missing) })
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("without such a job: %v, want ErrNotFound", err)
				}
				wantClean(t, s)
			})
		}
	}
}

// TestMarkOutlivesTheLease: a step that may have been sent is known to whoever
// claims the job next, whichever way the lease ended; only the end of the work,
// a person, or knowing better takes the mark back.
func TestMarkOutlivesTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(tx *Tx, l Lease) error
		sent string
		want error
	}{
		"release": {func(tx *Tx, l Lease) error { return tx.ReleaseJob(l, Attempt{Category: CategoryReleased}) }, "pay", nil},
		"rescue": {func(tx *Tx, _ Lease) error {
			_, err := tx.RescueExpired(AllLeases, 1, func(string) RescuePolicy { return RescuePolicy{} })
			return err
		}, "pay", nil},
		"fail": {func(tx *Tx, l Lease) error {
			return tx.FailJob(l, Attempt{Category: CategoryReadTimeout}, Failure{Category: CategoryUnsafeToRepeat})
		}, "pay", nil},
		"retry": {func(tx *Tx, l Lease) error { return tx.RetryJob(l, Attempt{Category: CategoryDNS}, tx.Now) }, "pay", ErrTransition},
		"retry with the mark taken back": {func(tx *Tx, l Lease) error {
			return errors.Join(tx.MarkSent(l, ""), tx.RetryJob(l, Attempt{Category: CategoryDNS}, tx.Now))
		}, "", nil},
		"complete": {func(tx *Tx, l Lease) error { _, err := tx.CompleteJob(l, Completion{Mode: WriteUpsert}); return err }, "", nil},
		"a person's retry": {func(tx *Tx, l Lease) error {
			if err := tx.FailJob(l, Attempt{Category: CategoryReadTimeout}, Failure{Category: CategoryUnsafeToRepeat}); err != nil {
				return err
			}
			_, err := tx.RequeueJob(l.Job)
			return err
		}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, Options{NoSync: true})
			j := inState(t, s, "a", StateRunning)
			in := func(fn func(tx *Tx) error) error { return s.Update(context.Background(), fn) }
			if err := in(func(tx *Tx) error { return tx.MarkSent(j.Lease(), "pay") }); err != nil {
				t.Fatal(err)
			}
			if err := in(func(tx *Tx) error { return c.end(tx, j.Lease()) }); !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if err := in(func(tx *Tx) (err error) { j, err = tx.Job(j.ID); return err }); err != nil || j.Sent != c.sent {
				t.Errorf("the job is %s and may have sent %q, want %q (%v)", j.State, j.Sent, c.sent, err)
			}
			wantClean(t, s)
		})
	}
}

// TestStates: the names users see, and which of them end a job's way.
func TestStates(t *testing.T) {
	var terminal []JobState
	for i, state := range JobStates {
		if state.Terminal() {
			terminal = append(terminal, state)
		}
		if int(state.code()) != i {
			t.Errorf("state %s has code %d", state, state.code())
		}
	}
	if !slices.Equal(terminal, []JobState{StateComplete, StateFailed}) {
		t.Errorf("terminal states %v", terminal)
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown state has a code")
		}
	}()
	JobState("odd").code()
}
