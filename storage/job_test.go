package storage_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

// TestEnqueue: one job per key; what is offered again changes a job that has
// work ahead, and no other.
func TestEnqueue(t *testing.T) {
	s := storagetest.Open(t)
	first := target("a")
	first.Vars = []storage.Var{{Name: "sku", Value: "a"}}
	offers := []struct {
		change func(*storage.NewJob)
		want   storage.Enqueued
	}{
		{func(*storage.NewJob) {}, storage.Enqueued{ID: 1, New: true}},
		{func(*storage.NewJob) {}, storage.Enqueued{ID: 1}},
		{func(n *storage.NewJob) { n.URL = "http://h/other" }, storage.Enqueued{ID: 1, Refreshed: true}},
		{func(n *storage.NewJob) { n.Vars = []storage.Var{{Name: "sku", Value: "b"}} }, storage.Enqueued{ID: 1, Refreshed: true}},
		{func(n *storage.NewJob) { n.Priority = 5 }, storage.Enqueued{ID: 1, Refreshed: true}},
		{func(n *storage.NewJob) { n.Country = "US" }, storage.Enqueued{ID: 1, Refreshed: true}},
		{func(n *storage.NewJob) { n.Host = "other" }, storage.Enqueued{ID: 1, Refreshed: true}},
		{func(n *storage.NewJob) { n.Key.Target = "b" }, storage.Enqueued{ID: 2, New: true}},
		{func(n *storage.NewJob) { n.Key.Version, n.Version = 2, 2 }, storage.Enqueued{ID: 3, New: true}},
	}
	for i, offer := range offers {
		n := first
		offer.change(&n)
		known := func() (known bool) {
			view(t, s, func(tx *storage.Tx) (err error) { known, err = tx.Known(n); return err })
			return known
		}
		if before := known(); before != (!offer.want.New && !offer.want.Refreshed) {
			t.Errorf("offer %d: known before: %v", i, before)
		}
		if got := enqueue(t, s, n)[0]; got != offer.want {
			t.Errorf("offer %d: %+v, want %+v", i, got, offer.want)
		}
		if !known() {
			t.Errorf("offer %d is not known after it was taken", i)
		}
		j := getJob(t, s, offer.want.ID)
		if j.URL != n.URL || j.Priority != n.Priority || j.Country != n.Country || !slices.Equal(j.Vars, n.Vars) || j.Key != n.Key {
			t.Errorf("offer %d: the job is %+v", i, j)
		}
	}
}

// TestRefreshByState: what runs or is complete keeps what it was made with.
func TestRefreshByState(t *testing.T) {
	s := storagetest.Open(t)
	enqueue(t, s, target("running"), target("complete"), target("failed"), target("retryable"), target("pending"))
	jobs := claim(t, s, 4)
	update(t, s, func(tx *storage.Tx) error {
		if _, err := tx.CompleteJob(jobs[1].Lease(), record(storage.WriteUpsert, 1, "r", "x")); err != nil {
			return err
		}
		if err := tx.FailJob(jobs[2].Lease(), storage.Attempt{}, storage.Failure{Category: storage.CategoryTLS}); err != nil {
			return err
		}
		return tx.RetryJob(jobs[3].Lease(), storage.Attempt{Category: storage.CategoryDNS}, tx.Now.Add(time.Hour))
	})
	for name, refreshed := range map[string]bool{"running": false, "complete": false, "failed": true, "retryable": true, "pending": true} {
		n := target(name)
		n.URL, n.Priority, n.Host = "http://new/", 7, "new"
		if got := enqueue(t, s, n)[0]; got.New || got.Refreshed != refreshed {
			t.Errorf("%s job: %+v", name, got)
		}
	}
}

func TestEnqueueRefuses(t *testing.T) {
	s := storagetest.Open(t)
	window := time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)
	for what, change := range map[string]func(*storage.NewJob){
		"another country": func(n *storage.NewJob) { n.Key.Country, n.Country = "US", "DE" },
		"another scope":   func(n *storage.NewJob) { n.Key.Scope = "acme" },
		"another version": func(n *storage.NewJob) { n.Key.Version = 3 },
		"another window":  func(n *storage.NewJob) { n.Key.Window, n.Window = window, window.Add(time.Hour) },
		"zero in source":  func(n *storage.NewJob) { n.Key.Source = "s\x00x" },
		"zero in host":    func(n *storage.NewJob) { n.Host = "h\x00x" },
	} {
		n := target("a")
		change(&n)
		err := s.Update(context.Background(), func(tx *storage.Tx) error { _, err := tx.EnqueueJob(n); return err })
		if err == nil || !(strings.Contains(err.Error(), "names another") || strings.Contains(err.Error(), "zero byte")) {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

// TestNotFound: what is not there is ErrNotFound, by id, by key and by source.
func TestNotFound(t *testing.T) {
	s := storagetest.Open(t)
	view(t, s, func(tx *storage.Tx) error {
		_, byID := tx.Job(1)
		_, byKey := tx.JobByKey(target("a").Key)
		_, source := tx.Source("s")
		for _, err := range []error{byID, byKey, source} {
			wantError(t, err, storage.ErrNotFound)
		}
		if known, err := tx.Known(target("a")); known || err != nil {
			t.Errorf("known: %v, %v", known, err)
		}
		if _, err := tx.Lane(9); err == nil {
			t.Error("a lane that is not there has a host")
		}
		return nil
	})
}

// TestJobsPaging: pages of any size show each job once, in the order of ids.
func TestJobsPaging(t *testing.T) {
	s := storagetest.Open(t)
	for i := range 7 {
		enqueue(t, s, target(fmt.Sprint(i)))
	}
	for limit := 1; limit <= 8; limit++ {
		var ids []uint64
		view(t, s, func(tx *storage.Tx) error {
			for last := uint64(0); ; {
				var err error
				last, err = tx.Jobs(last, limit, func(j *storage.Job) bool { ids = append(ids, j.ID); return true })
				if err != nil || last == 0 {
					return err
				}
			}
		})
		if !slices.Equal(ids, []uint64{1, 2, 3, 4, 5, 6, 7}) {
			t.Errorf("limit %d: %v", limit, ids)
		}
	}
	view(t, s, func(tx *storage.Tx) error {
		last, err := tx.Jobs(2, 100, func(j *storage.Job) bool { return j.ID < 4 })
		if last != 4 {
			t.Errorf("stopped at job %d, want 4", last)
		}
		return err
	})
}

// TestClaimOrder: suspects last, then priority, then age; over several lanes as
// over one; other lanes stay.
func TestClaimOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		add := func(name, host string, priority int8) storage.NewJob {
			n := target(name)
			n.Host, n.Priority = host, priority
			return n
		}
		enqueue(t, s, add("suspect", "h1", 100))
		for range 3 { // it kills its worker three times
			claimOne(t, s)
			time.Sleep(2 * time.Minute)
			update(t, s, func(tx *storage.Tx) error {
				_, err := tx.RescueExpired(tx.Now, 10, func(string) storage.RescuePolicy { return storage.RescuePolicy{} })
				return err
			})
		}
		enqueue(t, s, add("low", "h1", -128), add("plain1", "h2", 0), add("high1", "h1", 127), add("plain2", "h1", 0), add("high2", "h2", 127), add("away", "h3", 127))
		var lanes []storage.LaneID
		view(t, s, func(tx *storage.Tx) error {
			for _, lane := range tx.ReadyLanes() {
				if l, err := tx.Lane(lane); err != nil || l.Source != "s" {
					t.Errorf("lane %d is of %s (%v)", lane, l.Source, err)
				} else if l.Host != "h3" {
					lanes = append(lanes, lane)
				}
			}
			return nil
		})
		if len(lanes) != 2 {
			t.Fatalf("lanes %v", lanes)
		}
		update(t, s, func(tx *storage.Tx) error {
			groups, err := tx.ClaimJobs("me", time.Minute, []storage.ClaimGroup{{Lanes: lanes, Max: 2}, {Lanes: lanes[:1]}, {Lanes: lanes, Max: 100}, {Max: 5}})
			if err != nil {
				return err
			}
			var got [][]string
			for _, jobs := range groups {
				var names []string
				for _, j := range jobs {
					names = append(names, j.Key.Target)
				}
				got = append(got, names)
			}
			want := [][]string{{"high1", "high2"}, nil, {"plain1", "plain2", "low", "suspect"}, nil}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("claimed (-want +got):\n%s", diff)
			}
			return nil
		})
	})
}

// TestClaim: what a claim writes, and that a lease ends on a whole second, not
// before its length is over.
func TestClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		enqueue(t, s, target("a"))
		time.Sleep(1500 * time.Millisecond)
		now := time.Now().UTC()
		given := claimOne(t, s)
		j := getJob(t, s, 1)
		if diff := cmp.Diff(given, j); diff != "" {
			t.Errorf("the claim gave (-given +stored):\n%s", diff)
		}
		if j.State != storage.StateRunning || j.Generation != 1 || j.Owner != "me" || !j.ClaimedAt.Equal(now) || !j.FirstClaim.Equal(now) {
			t.Errorf("job %+v", j)
		}
		if want := now.Add(time.Minute + 500*time.Millisecond); !j.LeaseUntil.Equal(want) {
			t.Errorf("the lease ends at %s, want %s", j.LeaseUntil, want)
		}
		if len(claim(t, s, 1)) != 0 {
			t.Error("a running job was claimed")
		}
	})
}

// TestLateWorker: a worker that wakes up after its lease was rescued commits
// nothing, and is counted.
func TestLateWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		enqueue(t, s, target("a"))
		late := claimOne(t, s).Lease()
		time.Sleep(59 * time.Second)
		rescue := func() (n int) {
			update(t, s, func(tx *storage.Tx) (err error) {
				n, err = tx.RescueExpired(tx.Now, 10, func(string) storage.RescuePolicy { return storage.RescuePolicy{} })
				return err
			})
			return n
		}
		if n := rescue(); n != 0 {
			t.Errorf("%d jobs rescued before their lease ended", n)
		}
		time.Sleep(2 * time.Second)
		if n := rescue(); n != 1 {
			t.Errorf("%d jobs rescued, want 1", n)
		}
		second := claimOne(t, s)
		before := getJob(t, s, 1)
		for name, fn := range map[string]func(tx *storage.Tx) error{
			"complete": func(tx *storage.Tx) error {
				_, err := tx.CompleteJob(late, record(storage.WriteUpsert, 1, "a", "late"))
				return err
			},
			"retry":   func(tx *storage.Tx) error { return tx.RetryJob(late, storage.Attempt{}, tx.Now) },
			"fail":    func(tx *storage.Tx) error { return tx.FailJob(late, storage.Attempt{}, storage.Failure{}) },
			"release": func(tx *storage.Tx) error { return tx.ReleaseJob(late, storage.Attempt{}) },
			"mark":    func(tx *storage.Tx) error { return tx.MarkSent(late, "pay") },
		} {
			update(t, s, func(tx *storage.Tx) error {
				wantError(t, fn(tx), storage.ErrLeaseLost)
				return nil
			})
			if diff := cmp.Diff(before, getJob(t, s, 1)); diff != "" {
				t.Errorf("%s changed the job:\n%s", name, diff)
			}
		}
		update(t, s, func(tx *storage.Tx) error {
			stranger := second.Lease()
			stranger.Owner = "stranger"
			if lost, err := tx.RenewLeases([]storage.Lease{late, second.Lease(), stranger}, time.Hour); err != nil || !slices.Equal(lost, []storage.Lease{late, stranger}) {
				t.Errorf("renewing lost %v, %v", lost, err)
			}
			return nil
		})
		c := counters(t, s, "s")
		if c[storage.MetricStaleCommits] != 5 || c[storage.MetricRecovered] != 1 || len(observations(t, s, "s")) != 0 {
			t.Errorf("counters %v", c)
		}
		update(t, s, func(tx *storage.Tx) error {
			_, err := tx.CompleteJob(second.Lease(), record(storage.WriteUpsert, 1, "a", "in time"))
			return err
		})
		if j := getJob(t, s, 1); j.Rescues != 0 || !j.Recovered || j.Owner != "" || !j.LeaseUntil.IsZero() {
			t.Errorf("completed job %+v", j)
		}
	})
}

// TestAttempts: each claim leaves one attempt under its generation; released and
// rescued ones are kept and not counted, and their bytes are.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		enqueue(t, s, target("a"))
		ends := []func(tx *storage.Tx, l storage.Lease) error{
			func(tx *storage.Tx, l storage.Lease) error {
				return tx.ReleaseJob(l, storage.Attempt{Category: storage.CategoryReleased, BytesDown: 1})
			},
			func(tx *storage.Tx, _ storage.Lease) error {
				_, err := tx.RescueExpired(tx.Now.Add(time.Hour), 10, func(string) storage.RescuePolicy { return storage.RescuePolicy{Max: 2} })
				return err
			},
			func(tx *storage.Tx, l storage.Lease) error {
				return tx.RetryJob(l, storage.Attempt{Category: storage.CategoryDNS, BytesUp: 2}, time.Time{}) // overdue: now
			},
			func(tx *storage.Tx, l storage.Lease) error {
				_, err := tx.CompleteJob(l, record(storage.WriteUpsert, 4, "a", "x"))
				return err
			},
		}
		for _, end := range ends {
			j := claimOne(t, s)
			time.Sleep(time.Second)
			update(t, s, func(tx *storage.Tx) error {
				if err := end(tx, j.Lease()); err != nil {
					return err
				}
				_, err := tx.PromoteDue(10)
				return err
			})
		}
		var got []string
		view(t, s, func(tx *storage.Tx) error {
			list, err := tx.Attempts(1)
			for i, a := range list {
				if a.Job != 1 || a.Generation != uint32(i+1) || a.Owner != "me" || a.End.Sub(a.Start) != time.Second {
					t.Errorf("attempt %+v", a)
				}
				got = append(got, a.Outcome+" "+string(a.Category))
			}
			return err
		})
		if want := []string{"released released", "rescued lease_expired", "retry dns", "complete "}; !slices.Equal(got, want) {
			t.Errorf("attempts %q, want %q", got, want)
		}
		j, c := getJob(t, s, 1), counters(t, s, "s")
		if j.Attempts != 2 || j.Tries != 2 || j.Spent != 3 || j.Generation != 4 || j.Rescues != 0 || !j.Recovered || j.Category != "" {
			t.Errorf("job %+v", j)
		}
		if c[storage.MetricAttempts] != 2 || c[storage.MetricComplete] != 1 || c[storage.MetricAfterRecovery] != 1 || c[storage.MetricBytesDown] != 1 {
			t.Errorf("counters %v", c)
		}
	})
}

// TestRescueLimit: a job whose workers die fails after so many in a row, with an
// event; a person's retry counts anew.
func TestRescueLimit(t *testing.T) {
	s := storagetest.Open(t)
	enqueue(t, s, target("a"))
	die := func() *storage.Job {
		claimOne(t, s)
		update(t, s, func(tx *storage.Tx) error {
			_, err := tx.RescueExpired(tx.Now.Add(time.Hour), 10, func(source string) storage.RescuePolicy {
				return storage.RescuePolicy{Max: 2, Sinks: []storage.Subscription{{Sink: source}}}
			})
			return err
		})
		return getJob(t, s, 1)
	}
	if j := die(); j.State != storage.StatePending || j.Rescues != 1 {
		t.Errorf("after one death: %+v", j)
	}
	if j := die(); j.State != storage.StateFailed || j.Category != storage.CategoryBudgetExhausted || !strings.Contains(j.Reason, "died 2 times") {
		t.Errorf("after two deaths: %+v", j)
	}
	if events := pending(t, s, "s"); len(events) != 1 || events[0].Type != storage.EventJobFailed {
		t.Errorf("events %v", events)
	}
	update(t, s, func(tx *storage.Tx) error {
		j, err := tx.RequeueJob(1)
		if err == nil && (j.Rescues != 0 || j.Tries != 0 || !j.FirstClaim.IsZero()) {
			t.Errorf("retried job %+v", j)
		}
		return err
	})
	if j := die(); j.State != storage.StatePending {
		t.Errorf("one death after a retry: %+v", j)
	}
}

// TestDue: NextDue names the earliest, the limits bound one pass.
func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		next := func() (retry, lease time.Time) {
			view(t, s, func(tx *storage.Tx) error { retry, lease = tx.NextDue(); return nil })
			return retry, lease
		}
		if retry, lease := next(); !retry.IsZero() || !lease.IsZero() {
			t.Errorf("an empty store is due at %s and %s", retry, lease)
		}
		enqueue(t, s, target("a"), target("b"), target("c"), target("d"))
		jobs := claim(t, s, 4)
		now := time.Now().UTC()
		update(t, s, func(tx *storage.Tx) error {
			for i, j := range jobs[:3] {
				if err := tx.RetryJob(j.Lease(), storage.Attempt{Category: storage.CategoryDNS}, now.Add(time.Duration(3-i)*time.Second)); err != nil {
					return err
				}
			}
			return nil
		})
		if retry, lease := next(); !retry.Equal(now.Add(time.Second)) || !lease.Equal(jobs[3].LeaseUntil) {
			t.Errorf("due at %s and %s", retry, lease)
		}
		promote := func(limit int) (n int) {
			update(t, s, func(tx *storage.Tx) (err error) { n, err = tx.PromoteDue(limit); return err })
			return n
		}
		if n := promote(10); n != 0 {
			t.Errorf("%d promoted before their time", n)
		}
		time.Sleep(2 * time.Second)
		if n := promote(1); n != 1 || getJob(t, s, 3).State != storage.StatePending {
			t.Errorf("%d promoted of a limit of 1, the first due is %s", n, getJob(t, s, 3).State)
		}
		if n := promote(10); n != 1 || getJob(t, s, 1).State != storage.StateRetryable {
			t.Errorf("%d promoted, want the one other that is due", n)
		}
	})
}

// TestReady: whoever waits is woken after a commit that made a job ready, with
// its lane, and by nothing else.
func TestReady(t *testing.T) {
	s := storagetest.Open(t)
	woken := func() bool {
		select {
		case <-s.Ready():
			return true
		default:
			return false
		}
	}
	enqueue(t, s, target("a"))
	if lanes := s.TakeReady(); !woken() || !slices.Equal(lanes, []storage.LaneID{1}) {
		t.Errorf("after an enqueue: %v", lanes)
	}
	j := claimOne(t, s)
	_ = s.Update(context.Background(), func(tx *storage.Tx) error {
		if err := tx.ReleaseJob(j.Lease(), storage.Attempt{}); err != nil {
			return err
		}
		return fmt.Errorf("undone")
	})
	if lanes := s.TakeReady(); woken() || len(lanes) != 0 {
		t.Errorf("after a claim and an undone release: %v", lanes)
	}
	update(t, s, func(tx *storage.Tx) error { return tx.ReleaseJob(j.Lease(), storage.Attempt{}) })
	other := target("b")
	other.Host = "elsewhere"
	enqueue(t, s, other)
	lanes := s.TakeReady()
	slices.Sort(lanes)
	if !woken() || !slices.Equal(lanes, []storage.LaneID{1, 2}) {
		t.Errorf("after a release and an enqueue elsewhere: %v", lanes)
	}
}
