package storage

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

var noTime time.Time

// AllLeases is a time by which every lease has ended: for RescueExpired by who
// knows that their holders are dead.
var AllLeases = time.Unix(1<<40, 0).UTC()

// Lease is a bounded right to run a job: what a worker must show to write.
type Lease struct {
	Job        uint64
	Owner      string
	Generation uint32
}

// Lease is the claim that a running job is under.
func (j *Job) Lease() Lease { return Lease{j.ID, j.Owner, j.Generation} }

// leaseEnd rounds up to whole seconds, so that leases taken together stand
// together in the index.
func leaseEnd(now time.Time, d time.Duration) time.Time {
	end := now.Add(d)
	if t := end.Truncate(time.Second); t.Before(end) {
		return t.Add(time.Second)
	}
	return end
}

// ClaimGroup asks for up to Max jobs out of some lanes, best first: suspects
// last, higher priority first, then older ids.
type ClaimGroup struct {
	Lanes []LaneID
	Max   int
}

// ClaimJobs gives ready jobs to owner for the length of a lease. Result i is
// of group i and shorter than Max only where the group's lanes are now empty.
func (tx *Tx) ClaimJobs(owner string, lease time.Duration, groups []ClaimGroup) ([][]*Job, error) {
	until := leaseEnd(tx.Now, lease)
	claimed := make([][]*Job, len(groups))
	for i, g := range groups {
		for _, id := range tx.pick(g) {
			j, err := tx.Job(id)
			if err != nil {
				return nil, err
			}
			if err := tx.move(j, verbClaim, func(j *Job) {
				j.Generation++
				j.Owner, j.ClaimedAt, j.LeaseUntil, j.NextAt = owner, tx.Now, until, noTime
				j.Category, j.Reason = "", "" // they stand in the attempt that ended with them
				if j.FirstClaim.IsZero() {
					j.FirstClaim = tx.Now
				}
			}); err != nil {
				return nil, err
			}
			claimed[i] = append(claimed[i], j)
		}
	}
	return claimed, nil
}

// pick merges the heads of a group's lanes. It only reads: the index must not
// change under a cursor.
func (tx *Tx) pick(g ClaimGroup) []uint64 {
	type head struct {
		lane []byte
		key  []byte
		next func() []byte
	}
	var heads []head
	for _, lane := range g.Lanes {
		c, prefix := tx.bucket(bucketReady).Cursor(), appendU32(nil, uint32(lane))
		if k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix) {
			heads = append(heads, head{prefix, k, func() []byte { k, _ := c.Next(); return k }})
		}
	}
	var ids []uint64
	for len(ids) < g.Max && len(heads) > 0 {
		best := 0
		for i := range heads {
			if bytes.Compare(heads[i].key[4:], heads[best].key[4:]) < 0 {
				best = i
			}
		}
		h := &heads[best]
		ids = append(ids, tailID(h.key))
		if h.key = h.next(); !bytes.HasPrefix(h.key, h.lane) {
			heads = slices.Delete(heads, best, best+1)
		}
	}
	return ids
}

// fence reads the job of a lease that still holds. Otherwise it counts a stale
// commit and gives ErrLeaseLost.
func (tx *Tx) fence(l Lease) (*Job, error) {
	j, err := tx.Job(l.Job)
	if err != nil {
		return nil, err
	}
	if j.State != StateRunning || j.Owner != l.Owner || j.Generation != l.Generation {
		tx.count(j.Key.Source, MetricStaleCommits, 1)
		return nil, fmt.Errorf("job %s, generation %d of %s: %w", j.Key, l.Generation, l.Owner, ErrLeaseLost)
	}
	return j, nil
}

// RenewLeases makes leases end lease after now, and gives those that were lost.
func (tx *Tx) RenewLeases(leases []Lease, lease time.Duration) (lost []Lease, err error) {
	until := leaseEnd(tx.Now, lease)
	for _, l := range leases {
		j, err := tx.Job(l.Job)
		if err != nil {
			return nil, err
		}
		if j.State != StateRunning || j.Owner != l.Owner || j.Generation != l.Generation {
			lost = append(lost, l)
			continue
		}
		if err := tx.move(j, verbRenew, func(j *Job) { j.LeaseUntil = until }); err != nil {
			return nil, err
		}
	}
	return lost, nil
}

// RescuePolicy is what one source wants done with a job whose worker died.
type RescuePolicy struct {
	Max   int // deaths in a row before it fails; 0: no limit
	Sinks []Subscription
}

// RescueExpired takes back up to limit jobs whose lease ended at before or
// earlier, and gives how many it took. A rescue burns no attempt.
func (tx *Tx) RescueExpired(before time.Time, limit int, policy func(source string) RescuePolicy) (int, error) {
	ids := tx.due(bucketLease, before, limit)
	for _, id := range ids {
		j, err := tx.Job(id)
		if err != nil {
			return 0, err
		}
		if err := tx.rescue(j, policy(j.Key.Source)); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

func (tx *Tx) rescue(j *Job, p RescuePolicy) error {
	attempt := Attempt{
		Outcome: OutcomeRescued, Category: CategoryLeaseExpired,
		Reason: "its worker died or fell silent before the lease ended",
	}
	if err := tx.saveAttempt(j, attempt); err != nil {
		return err
	}
	v := verbRescue
	if p.Max > 0 && int(j.Rescues)+1 >= p.Max {
		v = verbAbandon
	}
	tx.count(j.Key.Source, MetricRecovered, 1)
	err := tx.move(j, v, func(j *Job) {
		endLease(j)
		j.Rescues++
		j.Recovered = true
		j.Category, j.Reason = CategoryLeaseExpired, attempt.Reason
		if v == verbAbandon {
			j.Category, j.Reason = CategoryBudgetExhausted, fmt.Sprintf("its worker died %d times in a row (limits.rescues)", j.Rescues)
		}
	})
	if err != nil || v != verbAbandon {
		return err
	}
	return tx.conclude(EventJobFailed, j, p.Sinks)
}

func endLease(j *Job) { j.Owner, j.ClaimedAt, j.LeaseUntil = "", noTime, noTime }

// PromoteDue makes up to limit retryable jobs pending whose delay is over.
func (tx *Tx) PromoteDue(limit int) (int, error) {
	ids := tx.due(bucketWait, tx.Now, limit)
	for _, id := range ids {
		j, err := tx.Job(id)
		if err != nil {
			return 0, err
		}
		if err := tx.move(j, verbPromote, func(j *Job) { j.NextAt = noTime }); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// due collects the ids of a time index up to and including a time, before any
// of them is changed.
func (tx *Tx) due(id bucket, until time.Time, limit int) []uint64 {
	var ids []uint64
	end := appendTime(nil, until)
	c := tx.bucket(id).Cursor()
	for k, _ := c.First(); k != nil && len(ids) < limit && bytes.Compare(k[:8], end) <= 0; k, _ = c.Next() {
		ids = append(ids, tailID(k))
	}
	return ids
}

// NextDue is when the first retryable job is due and when the first lease
// ends; zero times where there are none.
func (tx *Tx) NextDue() (retry, lease time.Time) {
	first := func(id bucket) time.Time {
		k, _ := tx.bucket(id).Cursor().First()
		if len(k) < 8 {
			return noTime
		}
		d := decoder{b: k}
		return d.time()
	}
	return first(bucketWait), first(bucketLease)
}
