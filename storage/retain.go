package storage

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Retention says how long history is kept. Zero fields keep it for ever.
type Retention struct {
	// Attempts is how long a job's story is kept after the job has ended: its
	// attempts, and where its key has a window, the job itself. A job without
	// one stays: it is what makes "once" true. So does one that an observation
	// came from. The story of a job with a page in quarantine is kept.
	Attempts time.Duration
	// Events is how long an event is kept that is neither pending nor dead at any
	// sink.
	Events time.Duration
	// Pages is how long an attempt's page is kept after the attempt has ended,
	// unless it is in quarantine.
	// Its room is given back by CollectPages.
	Pages time.Duration
}

// Pruned counts what a Prune deleted.
type Pruned struct{ Attempts, Jobs, Events, Pages, Robots, Keys int }

const (
	// pruneKeys bounds what one transaction deletes, as all outcomes that come
	// in meanwhile wait for it (design notes, storage §5.2: a few milliseconds).
	pruneKeys = 2000
	// robotsKept is how long a robots.txt is kept that nobody fetched anew: it
	// is believed for a day.
	robotsKept = 7 * day
)

// Prune deletes what r no longer keeps, oldest first, in transactions so short
// that writers beside it hardly notice. It may end between any two of them
// (ctx, an error): what is left is for the next call.
//
// A window whose job is forgotten can be made again by who asks for it by name,
// and is then collected again. What it brings follows the write rules, so that
// no newer fact changes.
func (s *Store) Prune(ctx context.Context, now time.Time, r Retention) (Pruned, error) {
	p := &pruner{store: s, ctx: ctx}
	for _, step := range []struct {
		kept  time.Duration
		prune func(before time.Time) error
	}{
		{IdempotencyKept, p.keys}, // before the jobs that they hold
		{r.Attempts, p.jobs},
		{r.Events, p.events},
		{r.Pages, p.pages},
		{robotsKept, p.robots},
		{daysKept, p.days},
	} {
		if step.kept == 0 {
			continue
		}
		if err := step.prune(now.Add(-step.kept)); err != nil {
			return p.done, fmt.Errorf("pruning %s: %w", s.path, err)
		}
	}
	return p.done, nil
}

// pruner is one Prune.
type pruner struct {
	store *Store
	ctx   context.Context
	done  Pruned
}

// each calls fn with the entries of a bucket in their order until it gives
// false, and then after every entryRows of them, outside of any snapshot.
func (p *pruner) each(id bucket, fn func(tx *Tx, k, v []byte) (bool, error), then func() error) error {
	var after []byte
	for more := true; more; more = after != nil {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		err := p.store.View(func(tx *Tx) (err error) {
			after, err = tx.entries(id, after, func(k, v []byte) (bool, error) { return fn(tx, k, v) })
			return err
		})
		if err != nil {
			return err
		}
		if err := then(); err != nil {
			return err
		}
	}
	return nil
}

// update is the store's, and does nothing once ctx is over.
func (p *pruner) update(fn func(*Tx) error) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	return p.store.Update(p.ctx, fn)
}

// wornJob is a job that ended long ago and of which something can go.
type wornJob struct {
	id  uint64
	key string // "" where the job itself must stay
}

// jobs deletes the story of jobs that ended before a time. What it looks up
// first stays true while it works: no job that ended before the time gets an
// event or an observation anew without moving, and one that moves is spared; an
// event that is requeued meanwhile binds no job.
func (p *pruner) jobs(before time.Time) error {
	cited, err := p.citations()
	if err != nil {
		return err
	}
	var worn []wornJob
	return p.each(bucketJob, func(tx *Tx, k, v []byte) (bool, error) {
		j, err := decodeJob(tailID(k), v)
		if err != nil || !j.Created.Before(before) { // ids are in the order of creation: all that follow are younger
			return false, err
		}
		if !j.endedBefore(before) || tx.hasQuarantine(j.ID) {
			return true, nil
		}
		w := wornJob{id: j.ID}
		if key := j.Key.String(); !j.Key.Window.IsZero() && !cited.has(key) {
			bound, err := tx.boundByEvent(j.ID)
			if err != nil {
				return false, err
			}
			if !bound {
				w.key = key
			}
		}
		if w.key != "" || tx.hasAttempts(j.ID) {
			worn = append(worn, w)
		}
		return true, nil
	}, func() (err error) {
		for len(worn) > 0 && err == nil {
			worn, err = p.forgetJobs(worn, before)
		}
		return err
	})
}

func (j *Job) endedBefore(t time.Time) bool { return j.State.Terminal() && j.Updated.Before(t) }

// boundByEvent reports whether a job must stay for an event of its that is yet to
// be sent.
func (tx *Tx) boundByEvent(job uint64) (bool, error) {
	for _, seq := range tx.jobEvents(job) {
		if bound, err := tx.anyDispatch(seq, (*Dispatch).bindsJob); bound || err != nil {
			return bound, err
		}
	}
	return false, nil
}

// forgetJobs deletes in one transaction, and gives the jobs it did not come to.
func (p *pruner) forgetJobs(worn []wornJob, before time.Time) (left []wornJob, err error) {
	var done Pruned
	err = p.update(func(tx *Tx) error {
		for left = worn; len(left) > 0; left = left[1:] {
			whole, err := tx.forgetJob(left[0], before, &done)
			if err != nil || !whole {
				return err
			}
		}
		return nil
	})
	if err == nil {
		p.done.Attempts += done.Attempts
		p.done.Jobs += done.Jobs
	}
	return left, err
}

// forgetJob deletes what can go of a job that has not moved since it was found,
// while done is within pruneKeys, and reports whether that was all.
func (tx *Tx) forgetJob(w wornJob, before time.Time, done *Pruned) (whole bool, err error) {
	j, err := tx.Job(w.id)
	if isNotFound(err) { // another Prune was here
		return true, nil
	}
	if err != nil || !j.endedBefore(before) || tx.hasQuarantine(j.ID) {
		return err == nil, err
	}
	room := pruneKeys - done.Attempts - 2*done.Jobs // a job and its key are two
	n, err := tx.dropAttempts(j, max(room, 0))
	if done.Attempts += n; err != nil || room-n < 2 {
		return false, err
	}
	if w.key == "" || tx.hasKey(j.ID) || tx.Staged(j) || tx.hasRows(j) { // rows may have been promoted since citations were read
		return true, nil
	}
	if err := tx.clear(bucketLive, rowKey(j.Run, j.ID, nil)); err != nil {
		return false, err
	}
	done.Jobs++
	tx.countState(j, -1)
	if err := tx.countInRun(j, -1); err != nil {
		return false, err
	}
	if err := tx.remove(bucketKey, keyIndex(j.Key.Window, w.key)); err != nil {
		return false, err
	}
	return true, tx.remove(bucketJob, idKey(j.ID))
}

func (tx *Tx) hasAttempts(job uint64) bool {
	prefix := idKey(job)
	k, _ := tx.bucket(bucketAttempt).Cursor().Seek(prefix)
	return bytes.HasPrefix(k, prefix)
}

// dropAttempts deletes up to limit of a job's attempts, oldest first. They stay
// counted, so a recount must know what is gone.
func (tx *Tx) dropAttempts(j *Job, limit int) (int, error) {
	attempts, err := tx.Attempts(j.ID)
	if attempts = attempts[:min(limit, len(attempts))]; err != nil || len(attempts) == 0 {
		return 0, err
	}
	j.tally(attempts, func(metric string, n int64) { tx.count(j.Key.Source, metricPruned+metric, n) })
	for _, a := range attempts {
		j.RescueForgotten = j.RescueForgotten || a.Outcome == OutcomeRescued
		if err := tx.pruneTraffic(&a); err != nil {
			return 0, err
		}
		if err := tx.remove(bucketAttempt, attemptKey(a.Job, a.Generation)); err != nil {
			return 0, err
		}
		if a.Page.IsZero() {
			continue
		}
		if err := tx.letGo(j, &a); err != nil {
			return 0, err
		}
	}
	j.Forgotten = attempts[len(attempts)-1].Generation
	return len(attempts), tx.save(j)
}

// pages lets go of the pages of attempts that ended before a time.
func (p *pruner) pages(before time.Time) error {
	return p.sweep(bucketAttempt, &p.done.Pages, hasPage(before), (*Tx).forgetPage)
}

// hasPage drops attempts that ended before a time and have a page still, which is
// not in quarantine.
func hasPage(before time.Time) judge {
	return func(tx *Tx, k, v []byte) (verdict, error) {
		a, err := decodeAttempt(k, v)
		if err != nil || a.Page.IsZero() || !a.End.Before(before) {
			return keep, err
		}
		q, err := tx.Quarantine(a.Job)
		if isNotFound(err) || err == nil && q.Generation != a.Generation {
			return drop, nil
		}
		return keep, err
	}
}

// forgetPage lets go of the page of an attempt.
func (tx *Tx) forgetPage(k, v []byte) error {
	a, err := decodeAttempt(k, v)
	if err != nil {
		return err
	}
	j, err := tx.Job(a.Job)
	if err != nil {
		return err
	}
	if err := tx.letGo(j, &a); err != nil {
		return err
	}
	a.Page, a.ContentType = PageHash{}, ""
	return tx.replace(bucketAttempt, k, v, a.encode())
}

// letGo takes an attempt's page from it, and with it what asks for that page.
func (tx *Tx) letGo(j *Job, a *Attempt) error {
	if err := tx.dropValidator(j, a); err != nil {
		return err
	}
	return tx.dropPage(a.Page)
}

// citations are the keys of the jobs that observations came from, as one bit
// for the hash of each: 8 MB, however many there are. Two keys may share a bit
// (1.5 % do at a million observations); then a job stays that could go, until a
// later call, which hashes differently.
type citations struct {
	seed uint64
	bits []uint64 // nil: no job can go, so none was looked up
}

const citationBits = 1 << 26

// citations reads all observations, unless no job has a window.
func (p *pruner) citations() (*citations, error) {
	cited := &citations{seed: rand.Uint64()}
	err := p.store.View(func(tx *Tx) error {
		if k, _ := tx.bucket(bucketKey).Cursor().Last(); bytes.Compare(k, idKey(1)) >= 0 { // windows come last
			cited.bits = make([]uint64, citationBits/64)
		}
		return nil
	})
	if err != nil || cited.bits == nil {
		return cited, err
	}
	return cited, p.each(bucketObservation, func(_ *Tx, k, v []byte) (bool, error) {
		o, err := decodeObservation(k, v)
		if err == nil {
			word, mask := cited.bit(o.Job)
			cited.bits[word] |= mask
		}
		return true, err
	}, func() error { return nil })
}

func (c *citations) has(key string) bool {
	if c.bits == nil {
		return true // made since: it is young
	}
	word, mask := c.bit(key)
	return c.bits[word]&mask != 0
}

func (c *citations) bit(key string) (word, mask uint64) {
	h := xxhash.NewWithSeed(c.seed)
	_, _ = h.WriteString(key) // never fails
	n := h.Sum64() % citationBits
	return n / 64, 1 << (n % 64)
}

// verdict is what becomes of an entry.
type verdict int

const (
	keep verdict = iota
	drop
	keepRest // of the bucket, too
)

// judge gives the verdict on an entry, and dropper carries one out.
type (
	judge   func(tx *Tx, k, v []byte) (verdict, error)
	dropper func(tx *Tx, k, v []byte) error
)

// sweep drops the entries of a bucket that judge says, and counts them. Each is
// judged again in the transaction that drops it.
func (p *pruner) sweep(id bucket, n *int, of judge, by dropper) error {
	var keys [][]byte
	return p.each(id, func(tx *Tx, k, v []byte) (bool, error) {
		said, err := of(tx, k, v)
		if said == drop {
			keys = append(keys, bytes.Clone(k))
		}
		return said != keepRest, err
	}, func() error {
		if len(keys) == 0 {
			return nil
		}
		batch := keys
		keys = nil
		dropped := 0
		err := p.update(func(tx *Tx) (err error) {
			dropped, err = tx.drop(id, batch, of, by)
			return err
		})
		if err == nil {
			*n += dropped
		}
		return err
	})
}

func (tx *Tx) drop(id bucket, keys [][]byte, of judge, by dropper) (dropped int, err error) {
	for _, k := range keys {
		v := tx.get(id, k)
		if v == nil {
			continue
		}
		said, err := of(tx, k, v)
		if err != nil {
			return 0, err
		}
		if said != drop {
			continue
		}
		if err := by(tx, k, v); err != nil {
			return 0, err
		}
		dropped++
	}
	return dropped, nil
}

// removeFrom deletes a whole entry.
func removeFrom(id bucket) dropper {
	return func(tx *Tx, k, _ []byte) error { return tx.remove(id, k) }
}

// events deletes those committed before a time that nobody awaits.
func (p *pruner) events(before time.Time) error {
	return p.sweep(bucketEvent, &p.done.Events, func(tx *Tx, k, v []byte) (verdict, error) {
		e, err := decodeEvent(tailID(k), v)
		switch {
		case err != nil:
			return keep, err
		case !e.Timestamp.Before(before): // they are in the order of commits
			return keepRest, nil
		}
		awaited, err := tx.anyDispatch(e.Seq, (*Dispatch).awaited)
		if err != nil || awaited {
			return keep, err
		}
		return drop, nil
	}, (*Tx).forgetEvent)
}

// robots deletes those that nobody has fetched since a time.
func (p *pruner) robots(before time.Time) error {
	return p.sweep(bucketRobots, &p.done.Robots, func(tx *Tx, k, _ []byte) (verdict, error) {
		r, _, err := tx.Robots(string(k))
		if err == nil && r.FetchedAt.Before(before) {
			return drop, nil
		}
		return keep, err
	}, removeFrom(bucketRobots))
}

// days deletes the daily counts of days before a time, after it has written down
// that they say nothing any more.
func (p *pruner) days(before time.Time) error {
	from := dayName(before)
	if err := p.update(func(tx *Tx) error { return tx.dropDays(from) }); err != nil {
		return err
	}
	n := 0
	return p.sweep(bucketCounter, &n, func(_ *Tx, k, _ []byte) (verdict, error) {
		_, metric, _ := strings.Cut(string(k), "\x00")
		if dropped(strings.TrimPrefix(metric, metricPruned), from) {
			return drop, nil
		}
		return keep, nil
	}, removeFrom(bucketCounter))
}
