package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"semel/failpoint"
)

const (
	// maxGroup bounds the updates in one transaction. Throughput still rises
	// beyond it, but so does the time the first one waits (storage notes §1.3:
	// 256 callers 2.8 ms, 1,024 callers over 5 ms).
	maxGroup = 256
	// maxGroupBytes bounds what one transaction puts.
	maxGroupBytes = 8 << 20
)

// update is one function on its way through the writer.
type update struct {
	fn   func(*Tx) error
	done chan error // capacity 1
}

// write is the single writer: it runs until the queue is closed and drained.
func (s *Store) write() {
	defer close(s.stopped)
	var began time.Time
	last := 0 // updates in the last group
	for first := range s.queue {
		if err := s.Err(); err != nil {
			first.done <- err
			continue
		}
		if last > 1 { // alone there is nobody to wait for
			time.Sleep(s.gather - time.Since(began))
		}
		began = time.Now()
		last = s.group(first)
	}
}

// begin starts a transaction; a damaged page is met here at the earliest.
func (s *Store) begin(writable bool) (b *bolt.Tx, err error) {
	err = guard(func() error {
		b, err = s.db.Begin(writable)
		return err
	})
	return b, err
}

// group runs first and all that wait behind it in one transaction, and gives
// how many it made durable. A group forms by itself while the one before is
// synced: for callers that wait for their commit, lingering for more only
// lowers throughput (measured: 1 ms at every number of callers). For callers
// that go on meanwhile there is Options.Gather.
func (s *Store) group(first *update) int {
	var b *bolt.Tx
	err := failpoint.At(failpoint.BeforeBegin, s.path)
	if err == nil {
		b, err = s.begin(true)
	}
	if err != nil {
		first.done <- s.stop(fmt.Errorf("beginning a transaction: %w", err))
		return 0
	}
	tx := newTx(b, time.Time{})
	tx.segments = s.segments
	var acks []*update
	u := first
	for n := 1; ; n++ { // failed ones count, too: else a stream of them would hold up the rest
		tx.Now = s.now().UTC()
		if err := tx.run(u.fn); err != nil && tx.broken == nil {
			u.done <- err
		} else { // who broke the group learns with the others that the store has stopped
			acks = append(acks, u)
		}
		if n == maxGroup || tx.written > maxGroupBytes || tx.broken != nil {
			break
		}
		if u = s.next(); u == nil {
			break
		}
	}
	err = s.finish(b, tx)
	if err == nil {
		s.announce(tx) // before the callers go on: they may ask
	}
	for _, u := range acks {
		u.done <- err
	}
	return len(acks)
}

// next is an update that is waiting, nil when there is none. The callers that
// the last commit has just woken get a turn to queue what they do next.
func (s *Store) next() *update {
	for range 2 {
		select {
		case u := <-s.queue: // nil once the queue is closed
			return u
		default:
			runtime.Gosched()
		}
	}
	return nil
}

// finish makes the group durable. A group that wrote nothing needs no commit.
func (s *Store) finish(b *bolt.Tx, tx *Tx) error {
	if tx.broken != nil {
		_ = guard(b.Rollback)
		return s.stop(tx.broken)
	}
	if err := guard(tx.flush); err != nil {
		_ = guard(b.Rollback)
		return s.stop(fmt.Errorf("writing what the group counted: %w", err))
	}
	if tx.written == 0 {
		return guard(b.Rollback)
	}
	if err := s.keepFrames(tx); err != nil {
		_ = guard(b.Rollback)
		return err
	}
	return s.commit(b)
}

// flush writes what many steps of a group move, once for all.
func (tx *Tx) flush() error {
	return errors.Join(tx.flushSequences(), tx.flushCounters(), tx.flushRuns(), tx.flushDrifts())
}

// keepFrames makes the pages of a group durable, before the transaction that
// names them. Its error is as commit's; nobody names what it has written.
func (s *Store) keepFrames(tx *Tx) error {
	if len(tx.frames) == 0 {
		return nil
	}
	err := s.segments.flush(tx.frames, tx.framesAt)
	switch {
	case err == nil:
		return nil
	case noRoom(err):
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return s.stop(fmt.Errorf("keeping pages in %s: %w", s.segments.dir, err))
}

// commit makes a transaction durable. It gives ErrFull where the disk had no
// room for it. Any other error stops the store, for what it wrote may or may
// not be there after a restart: what the kernel did not sync it may have
// dropped.
func (s *Store) commit(b *bolt.Tx) error {
	id := b.ID()
	err := failpoint.At(failpoint.BeforeCommit, s.path)
	if err != nil {
		_ = guard(b.Rollback)
	} else if err = guard(b.Commit); err == nil {
		err = failpoint.At(failpoint.AfterCommit, s.path)
	}
	if err == nil {
		return nil
	}
	if noRoom(err) && s.stands() < id {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return s.stop(fmt.Errorf("committing (outcome unknown): %w", err))
}

// stands is the transaction that readers see.
func (s *Store) stands() int {
	id := math.MaxInt
	_ = s.snapshot(func(b *bolt.Tx) error {
		id = b.ID()
		return nil
	})
	return id
}

// noRoom reports whether a write failed since the disk is full. A sync that
// says so is not meant: it may have dropped what was written before.
func noRoom(err error) bool {
	var write *fs.PathError
	return slices.ContainsFunc(fullErrors, func(full syscall.Errno) bool {
		if errors.As(err, &write) {
			return write.Op != "sync" && errors.Is(err, full)
		}
		// bbolt tells this one as text. It comes before anything is written.
		return err != nil && strings.HasPrefix(err.Error(), "file resize error:") && strings.HasSuffix(err.Error(), full.Error())
	})
}

// run calls fn as one step of a group: all of it happens, or none.
func (tx *Tx) run(fn func(*Tx) error) (err error) {
	readyBefore, queuedBefore, writtenBefore, framesBefore := len(tx.ready), len(tx.queued), tx.written, len(tx.frames)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			if fromDamage(p) { // what it has written cannot be undone, nor trusted
				err = damaged(p)
				tx.broken = err
				return
			}
			err = fmt.Errorf("panic in a store update: %v\n%s", p, debug.Stack())
		}
		if err != nil {
			tx.undoAll()
			tx.ready, tx.queued = tx.ready[:readyBefore], tx.queued[:queuedBefore]
			tx.written, tx.frames = writtenBefore, tx.frames[:framesBefore]
			return
		}
		tx.keep()
	}()
	return fn(tx)
}
