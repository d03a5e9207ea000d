package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"semel/failpoint"
)

// history is a store that lives through what a seed brings: outcomes with and
// without pages, in groups of which some fail and some meet a full disk, people,
// sinks, a clock, pruning, collecting, backups, restores and compacts.
type history struct {
	t      *testing.T
	random *rand.Rand
	path   string
	store  *Store
	now    time.Time // moved only while no update is under way
	bodies map[PageHash][]byte
	leases []Lease
	steps  []string
}

func (h *history) open() {
	s, err := Open(h.path, Options{NoSync: true, Now: func() time.Time { return h.now }})
	if err != nil {
		h.t.Fatal(err)
	}
	h.store, h.leases = s, nil
}

func (h *history) chance(n int) bool { return h.random.IntN(n) == 0 }

// page is one of a few pages, so that attempts share them; or none.
func (h *history) page() *KeptPage {
	if h.chance(4) {
		return nil
	}
	body := make([]byte, 100*h.random.IntN(12))
	r := rand.New(rand.NewPCG(uint64(len(body)), 0))
	for i := range body {
		body[i] = byte(r.Uint32())
	}
	k := KeepPage(body)
	h.bodies[k.Hash] = body
	return k
}

var historySinks = []Subscription{
	{Sink: "a", Events: []string{EventCreated, EventUpdated, EventJobComplete, EventJobFailed}},
	{Sink: "b"},
}

// updates are what can be done; outcomes are of l. Each draws before it gives
// the function that the writer runs.
func (h *history) updates(l Lease) map[string]func(*Tx) error {
	n, page := h.random.IntN(40), h.page()
	job := newJob(strconv.Itoa(n % 6))
	if n%3 > 0 {
		job.Window = time.Date(2026, 4, 20+h.random.IntN(3), 0, 0, 0, 0, time.UTC)
		if !h.chance(4) {
			job.Key.Window = job.Window
		}
	}
	job.Country = []string{"", "DE"}[n%2]
	attempt := Attempt{Kept: page, FinalURL: "http://h/x", ParserVersion: 1 + n%2, BytesUp: 3, BytesDown: int64(n)}
	failed := attempt
	failed.Category = CategoryTLS
	var problems []Problem
	if n%5 < 2 {
		problems = []Problem{{Row: n%2 - 1, Field: "f", Reason: "it is missing"}}
	}
	row := NewObservation{Key: strconv.Itoa(n % 4), Data: fmt.Appendf(nil, `{"v":%d}`, n%5)}
	sink := historySinks[n%2].Sink
	mode := []WriteMode{WriteUpsert, WriteReplace, WriteReplace, WriteAppend}[h.random.IntN(4)]
	return map[string]func(*Tx) error{
		"enqueue": func(tx *Tx) error { _, err := tx.EnqueueJob(job); return err },
		"claim": func(tx *Tx) error {
			got, err := tx.ClaimJobs("me", time.Minute, []ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 2}})
			if err == nil {
				for _, j := range got[0] {
					h.leases = append(h.leases, j.Lease()) // one that is undone is a lost one
				}
			}
			return err
		},
		"complete": func(tx *Tx) error {
			_, err := tx.CompleteJob(l, Completion{Attempt: attempt, Mode: mode, Records: []NewObservation{row}, Problems: problems, Sinks: historySinks})
			return err
		},
		"reparse": func(tx *Tx) error {
			read, err := reparsable(tx, uint64(n))
			if err == nil {
				err = reparse(tx, read, Completion{Attempt: Attempt{ParserVersion: 1 + n%3}, Mode: mode, Records: []NewObservation{row}, Problems: problems, Sinks: historySinks})
			}
			return err
		},
		"unfit": func(tx *Tx) error {
			read, err := reparsable(tx, uint64(n))
			if err == nil {
				err = tx.QuarantinePage(read, 1+n%3, []Problem{{Row: -1, Reason: "rows matched nothing"}}, historySinks)
			}
			return err
		},
		"discard": func(tx *Tx) error { return tx.DiscardQuarantine(uint64(n)) },
		"retry":   func(tx *Tx) error { return tx.RetryJob(l, failed, tx.Now.Add(time.Minute)) },
		"fail": func(tx *Tx) error {
			return tx.FailJob(l, failed, Failure{Category: CategoryTLS, Problems: problems, Sinks: historySinks})
		},
		"release": func(tx *Tx) error { return tx.ReleaseJob(l, Attempt{Category: CategoryReleased}) },
		"rescue": func(tx *Tx) error {
			_, err := tx.RescueExpired(AllLeases, 1, func(string) RescuePolicy { return RescuePolicy{Max: 2, Sinks: historySinks} })
			return err
		},
		"promote":   func(tx *Tx) error { _, err := tx.PromoteDue(2); return err },
		"cancel":    func(tx *Tx) error { _, err := tx.CancelJob(uint64(n), historySinks); return err },
		"requeue":   func(tx *Tx) error { _, err := tx.RequeueJob(uint64(n)); return err },
		"recollect": func(tx *Tx) error { _, err := tx.RecollectJob(uint64(n)); return err },
		"offer": func(tx *Tx) error {
			r, err := tx.Run(1 + uint64(n%4))
			if err != nil {
				return err
			}
			tx.BeginListing(r)
			return tx.EndListing(r, historySinks)
		},
		"take":    func(tx *Tx) error { _, err := tx.ReleaseRun(1+uint64(n%4), historySinks); return err },
		"drop":    func(tx *Tx) error { _, err := tx.DiscardRun(1 + uint64(n%4)); return err },
		"send":    func(tx *Tx) error { return sendSome(tx, sink, n%8) },
		"end":     func(tx *Tx) error { return endSome(tx, sink, n) },
		"died":    func(tx *Tx) error { _, err := tx.RescueDeliveries(); return err },
		"replay":  func(tx *Tx) error { return tx.RequeueEvent(uint64(1+n), sink) },
		"abandon": func(tx *Tx) error { return tx.DiscardEvent(uint64(1+n), sink) },
		"stop":    func(tx *Tx) error { return tx.StopSink(sink, "status 410") },
		"start":   func(tx *Tx) error { return tx.StartSink(sink) },
	}
}

// reparsable is the attempt whose page a job can be read from again.
func reparsable(tx *Tx, job uint64) (Attempt, error) {
	j, err := tx.Job(job)
	if err != nil {
		return Attempt{}, err
	}
	return tx.Reparsable(j)
}

// sendSome takes the first events that a sink waits for.
func sendSome(tx *Tx, sink string, n int) error {
	events, err := tx.PendingEvents(sink, 0, n)
	var seqs []uint64
	for _, e := range events {
		seqs = append(seqs, e.Seq)
	}
	_, err2 := tx.TakeEvents(sink, seqs)
	return errors.Join(err, err2)
}

// endSome ends some of what is under way, each in its way.
func endSome(tx *Tx, sink string, n int) error {
	s, err := tx.Sink(sink)
	if err != nil {
		return err
	}
	outcomes := []DeliveryOutcome{OutcomeDelivered, OutcomeAgain, OutcomeDelivered, OutcomeAmbiguous, OutcomeDeduplicated, ""}
	var ended []Delivery
	for i, seq := range s.Taken[:len(s.Taken)-len(s.Taken)*(n%3)/3] {
		ended = append(ended, Delivery{
			Event: seq, Outcome: outcomes[(n+i)%len(outcomes)], Reason: "a reason", Counts: n%2 == 0, Dead: i%3 == 0, Next: tx.Now.Add(time.Minute),
		})
	}
	return tx.EndDeliveries(sink, ended)
}

var historyUpdates = strings.Fields("enqueue enqueue enqueue claim claim claim complete complete complete retry fail release rescue promote cancel requeue requeue recollect recollect reparse reparse unfit discard offer take drop send send send end end end died replay replay abandon stop start")

var errUndone = errors.New("undone")

// update draws one update. It may fail or panic when all is done.
func (h *history) update() func(*Tx) error {
	var l Lease
	if len(h.leases) > 0 {
		l = h.leases[h.random.IntN(len(h.leases))]
	}
	name := historyUpdates[h.random.IntN(len(historyUpdates))]
	fn, end := h.updates(l)[name], h.random.IntN(10)
	h.steps = append(h.steps, name)
	return func(tx *Tx) error {
		err := fn(tx)
		switch {
		case err != nil, end > 1:
			return err
		case end == 1:
			panic(errUndone)
		}
		return errUndone
	}
}

// group runs some updates in one transaction.
func (h *history) group() {
	if point := []failpoint.Point{failpoint.AppendPages, failpoint.BeforeCommit}[h.random.IntN(2)]; h.chance(6) {
		failOnce(h.t, point, &fs.PathError{Op: "write", Err: syscall.ENOSPC})
	}
	defer failpoint.Set(nil)
	var updates sync.WaitGroup
	begun, queued := make(chan struct{}), make(chan struct{})
	updates.Go(func() {
		_ = h.store.Update(context.Background(), func(*Tx) error {
			close(begun)
			<-queued
			return nil
		})
	})
	<-begun
	for range 1 + h.random.IntN(5) {
		u := &update{fn: h.update(), done: make(chan error, 1)}
		h.store.queue <- u
		updates.Go(func() {
			err := <-u.done
			for _, legal := range []error{nil, errUndone, ErrFull, ErrLeaseLost, ErrNotFound, ErrTransition, ErrNotHeld} {
				if errors.Is(err, legal) {
					return
				}
			}
			if !strings.Contains(err.Error(), errUndone.Error()) {
				h.t.Error(err)
			}
		})
	}
	close(queued)
	updates.Wait()
}

// must ends the test where a step fails.
func (h *history) must(what string, err error) {
	h.t.Helper()
	h.steps = append(h.steps, what)
	if err != nil {
		h.t.Fatalf("%v: %v", h.steps, err)
	}
}

// step does one thing.
func (h *history) step() {
	backup := filepath.Join(filepath.Dir(h.path), "backup.db")
	switch h.random.IntN(30) {
	case 0, 1:
		h.now = h.now.Add(time.Duration(h.random.IntN(20)) * time.Hour)
	case 2, 3:
		kept := func() time.Duration { return time.Duration(h.random.IntN(4)) * 10 * time.Hour }
		_, err := h.store.Prune(h.t.Context(), h.now, Retention{kept(), kept(), kept()})
		h.must("prune", err)
	case 4, 5:
		h.must("collect", h.store.CollectPages(h.t.Context()))
	case 6:
		h.must("close", h.store.Close())
		if h.chance(2) {
			_, err := Compact(h.path)
			h.must("compact", err)
		}
		h.open()
	case 7:
		_, err := h.store.Backup(backup)
		h.must("backup", err)
		if h.chance(3) {
			h.must("restore", errors.Join(h.store.Close(), os.RemoveAll(h.path+PagesSuffix), os.Rename(backup, h.path)))
			_ = os.Rename(backup+PagesSuffix, h.path+PagesSuffix) // there may be none
			h.open()
		}
	default:
		h.group()
		return
	}
	h.check()
}

// check wants the store right, and every page that an attempt names as it was.
func (h *history) check() {
	h.t.Helper()
	if breaches, err := h.store.Check(); err != nil || len(breaches) > 0 {
		h.t.Fatalf("%v: %v, %v", h.steps, breaches, err)
	}
	var named []PageHash
	err := h.store.View(func(tx *Tx) error {
		_, err := tx.entries(bucketAttempt, nil, func(k, v []byte) (bool, error) {
			a, err := decodeAttempt(k, v)
			if !a.Page.IsZero() {
				named = append(named, a.Page)
			}
			return true, err
		})
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, page := range named {
		if got, err := h.store.ReadPage(page); err != nil || !bytes.Equal(got, h.bodies[page]) {
			h.t.Fatalf("%v: page %s is %d bytes (%v)", h.steps, page, len(got), err)
		}
	}
}

// TestHistories: whatever happens to a store, it is right, and says so.
func TestHistories(t *testing.T) {
	seeds := uint64(25)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := &history{
				t: t, random: rand.New(rand.NewPCG(seed, 0)), path: filepath.Join(t.TempDir(), "semel.db"),
				now: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC), bodies: map[PageHash][]byte{},
			}
			h.open()
			for range 250 {
				h.step()
			}
			h.check()
			h.must("close", h.store.Close())
		})
	}
}

// reparse commits what a page gives that was read again, and settles its run.
func reparse(tx *Tx, read Attempt, c Completion) error {
	j, err := tx.ReparseJob(read, nil, c)
	if err == nil {
		_, err = tx.SettleReparsed(j.Run, c.Sinks)
	}
	return err
}
