package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Tx is one step inside a transaction. It is valid only while the function it
// was given to runs, and for one goroutine.
type Tx struct {
	// Now is the time of this step, UTC, fixed when it begins: everything it
	// writes carries the same time.
	Now time.Time

	bolt    *bolt.Tx
	buckets [bucketCount]*bolt.Bucket

	ids       [sequenceCount]uint64 // last handed out; 0: not read yet
	idsBefore [sequenceCount]uint64 // the same when this step began

	runs       map[uint64]Run // changed by the group
	runsBefore map[uint64]Run // those changed by this step, when it began; zero: not in runs

	drifts       map[string]*Drift // changed by the group, by key
	driftsBefore map[string]*Drift // those changed by this step, when it began; nil: not in drifts

	undo     []change        // what this step wrote, for its rollback
	deltas   []delta         // counters this step moved
	totals   map[delta]int64 // counters moved by the group; n of the key is 0
	ready    []LaneID        // lanes that got ready jobs in the group
	queued   []queued        // events that became pending in the group
	written  int             // bytes put by the group; 0: nothing to commit
	frames   []byte          // of pages that the group keeps
	framesAt int64           // where they begin in the segment
	segments *segments       // nil in a View

	broken error // an undo failed: the whole group must not commit
}

// change is one put or delete and what stood there before. The old value is
// bbolt's memory, valid until the commit.
type change struct {
	bucket bucket
	key    []byte
	old    []byte // nil: there was none
}

type delta struct {
	source, metric string
	n              int64
}

func newTx(b *bolt.Tx, now time.Time) *Tx { return &Tx{Now: now, bolt: b} }

func (tx *Tx) bucket(id bucket) *bolt.Bucket {
	if tx.buckets[id] == nil {
		b := tx.bolt.Bucket([]byte(bucketNames[id]))
		b.FillPercent = id.fillPercent() // not kept in the file
		tx.buckets[id] = b
	}
	return tx.buckets[id]
}

func (tx *Tx) get(id bucket, key []byte) []byte { return tx.bucket(id).Get(key) }

// entryRows bounds what one look at a whole bucket reads: snapshots as short as
// that stall no writer (storage notes §2.7: as fast as one long one).
const entryRows = 1000

// entries calls fn with up to entryRows entries behind a key (nil: from the first)
// until it gives false. It gives the last one's key, nil when that was all.
func (tx *Tx) entries(id bucket, after []byte, fn func(k, v []byte) (bool, error)) ([]byte, error) {
	c := tx.bucket(id).Cursor()
	k, v := c.Seek(after)
	if after != nil && bytes.Equal(k, after) {
		k, v = c.Next()
	}
	for n := 1; k != nil; n++ {
		more, err := fn(k, v)
		if err != nil || !more {
			return nil, err
		}
		if n == entryRows {
			return bytes.Clone(k), nil
		}
		k, v = c.Next()
	}
	return nil, nil
}

// put stores value, which the caller must not touch again.
func (tx *Tx) put(id bucket, key, value []byte) error {
	return tx.replace(id, key, tx.get(id, key), value)
}

// insert is put for a key that cannot be there, such as one with a new id:
// not looking saves a third of the writer's time.
func (tx *Tx) insert(id bucket, key, value []byte) error { return tx.replace(id, key, nil, value) }

// replace is put where the caller has just read the old value; nil: there was none.
func (tx *Tx) replace(id bucket, key, old, value []byte) error {
	if value == nil {
		value = []byte{} // bbolt shows a nil value as absent until the commit
	}
	tx.undo = append(tx.undo, change{id, key, old})
	tx.written += len(key) + len(value) + 1
	if err := tx.bucket(id).Put(key, value); err != nil {
		return fmt.Errorf("writing bucket %s: %w", bucketNames[id], err)
	}
	return nil
}

// remove deletes a key that must be there: an index that lacks an entry it
// should have is damage.
func (tx *Tx) remove(id bucket, key []byte) error {
	c := tx.bucket(id).Cursor()
	found, old := c.Seek(key)
	if !bytes.Equal(found, key) {
		return &RecordError{bucketNames[id], key, fmt.Errorf("index entry is missing; run semel verify")}
	}
	tx.undo = append(tx.undo, change{id, key, old})
	tx.written += len(key) + 1
	if err := c.Delete(); err != nil {
		return fmt.Errorf("deleting from bucket %s: %w", bucketNames[id], err)
	}
	return nil
}

// keep ends a step that succeeded.
func (tx *Tx) keep() {
	tx.idsBefore = tx.ids
	clear(tx.runsBefore)
	clear(tx.driftsBefore)
	tx.undo = tx.undo[:0]
	for _, d := range tx.deltas {
		if tx.totals == nil {
			tx.totals = map[delta]int64{}
		}
		tx.totals[delta{source: d.source, metric: d.metric}] += d.n
	}
	tx.deltas = tx.deltas[:0]
}

// undoAll takes back a failed step. Where that is not possible, the whole group
// must not commit.
func (tx *Tx) undoAll() {
	if err := guard(tx.rollback); err != nil {
		tx.broken = err
	}
}

// rollback takes back what a failed step wrote, newest first.
func (tx *Tx) rollback() error {
	for i := len(tx.undo) - 1; i >= 0; i-- {
		c := tx.undo[i]
		var err error
		if c.old == nil {
			err = tx.bucket(c.bucket).Delete(c.key)
		} else {
			err = tx.bucket(c.bucket).Put(c.key, c.old)
		}
		if err != nil {
			return fmt.Errorf("undoing a failed update: %w", err)
		}
	}
	tx.ids = tx.idsBefore
	tx.undoRuns()
	tx.undoDrifts()
	tx.undo = tx.undo[:0]
	tx.deltas = tx.deltas[:0]
	return nil
}

// sequence is one of the counters in bucket meta that number things from 1.
type sequence int

const (
	jobSequence sequence = iota
	eventSequence
	laneSequence
	runSequence
	listSequence
	changeSequence
	sequenceCount
)

var sequenceNames = [sequenceCount]string{"job", "event", "lane", "run", "list", "change"}

// nextID counts a sequence up. What a group handed out is written when the
// group commits; a step that is undone gives its numbers back.
func (tx *Tx) nextID(s sequence) uint64 {
	if tx.ids[s] == 0 {
		if v := tx.get(bucketMeta, []byte(sequenceNames[s])); len(v) == 8 {
			tx.ids[s] = binary.BigEndian.Uint64(v)
			tx.idsBefore[s] = tx.ids[s]
		}
	}
	tx.ids[s]++
	return tx.ids[s]
}

func (tx *Tx) flushSequences() error {
	for s, id := range tx.ids {
		key, value := []byte(sequenceNames[s]), idKey(id)
		if id == 0 || bytes.Equal(tx.get(bucketMeta, key), value) {
			continue
		}
		if err := tx.put(bucketMeta, key, value); err != nil {
			return err
		}
	}
	return nil
}
