package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// Breach is one place where the store contradicts itself.
type Breach struct {
	Bucket string
	Key    []byte
	What   string
}

// String shows keys that are numbers alone in hex, as RecordError does.
func (b Breach) String() string {
	format := "bucket %s, key %q: %s"
	switch bucket(slices.Index(bucketNames[:], b.Bucket)) {
	case bucketLaneName, bucketJob, bucketReady, bucketWait, bucketLease, bucketAttempt, bucketEvent, bucketPage, bucketSegment, bucketRun, bucketList, bucketStaged, bucketLive, bucketDispatch, bucketJobEvent, bucketQuarantine:
		format = "bucket %s, key %x: %s"
	}
	return fmt.Sprintf(format, b.Bucket, b.Key, b.What)
}

// Check compares everything with everything: pages with bbolt's own check,
// jobs with their indexes and runs both ways, attempts and observations with jobs,
// changes with observations both ways, rows that are staged with their runs,
// events with observations and jobs, dispatches with events and indexes, kept pages with
// their hashes and with what names them, validators, quarantined pages and those that
// drift is judged by with the attempts they are of, idempotency keys with jobs, counters
// with a recount. It gives what does not agree, in the order in which it looked; an
// error means that it could not look. While bbolt's pages are checked writers wait; the rest reads one
// snapshot beside them (see View). It keeps nothing per job: memory grows with
// the sources and runs, the size of the file and what it finds.
func (s *Store) Check() ([]Breach, error) {
	found, err := s.checkPages()
	if err != nil || len(found) > 0 { // nothing below can be trusted on broken pages
		return found, err
	}
	defer s.segments.pin()()
	err = s.View(func(tx *Tx) error {
		c := &checker{tx: tx, files: s.segments, counts: map[delta]int64{}, runs: map[uint64]runCounts{}, daysFrom: tx.daysFrom()}
		for _, look := range []func(){
			c.jobs, c.runRecords, c.lists, c.schedules, c.imports, c.indexes, c.lanes,
			c.observations, c.changes, c.cursors, c.staged, c.live, c.events, c.jobEvents, c.dispatches, c.sinks, c.keptPages, c.validators, c.quarantines, c.drifts, c.idempotencyKeys,
			c.sources, c.hosts, c.robots, c.meta, c.counters, // the last two judge what the others saw
		} {
			look()
		}
		found = c.found
		return nil
	})
	return found, err
}

// checkPages is bbolt's check, after ours of all that it would die of. It looks
// at the list of free pages, which belongs to the writer, so that writing waits
// while it runs.
func (s *Store) checkPages() (found []Breach, err error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	b, err := s.begin(!s.read)
	if errors.Is(err, ErrUnreadable) { // bbolt may keep its locks for ever
		return nil, s.stop(err)
	}
	if err != nil {
		return nil, stoppedBy(err)
	}
	defer func() { err = errors.Join(err, b.Rollback()) }()
	file, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	breach := func(err error) { found = append(found, Breach{Bucket: "(pages)", What: err.Error()}) }
	if err := checkTree(file); errors.Is(err, ErrUnreadable) {
		breach(err)
		return found, nil
	} else if err != nil {
		return nil, err
	}
	for err := range b.Check() {
		breach(err)
	}
	return found, nil
}

// checker looks at one snapshot. Each method looks at one bucket, or at those
// that are read side by side.
type checker struct {
	tx       *Tx
	files    *segments
	counts   map[delta]int64       // recount of what counters should say; n of the key is 0
	daysFrom string                // daily counts of days before it say nothing; "": all say something
	placed   [bucketCount]int      // records found at their place in an index
	largest  [sequenceCount]uint64 // ids seen
	runs     map[uint64]runCounts  // of runs that jobs name
	numbered int                   // observations found by the number of their change
	found    []Breach
}

func (c *checker) breach(id bucket, key []byte, format string, args ...any) {
	c.found = append(c.found, Breach{bucketNames[id], bytes.Clone(key), fmt.Sprintf(format, args...)})
}

// unreadable tells of a record that does not decode. Its place is the breach's.
func (c *checker) unreadable(id bucket, key []byte, err error) {
	if record, ok := errors.AsType[*RecordError](err); ok {
		err = record.Err
	}
	c.breach(id, key, "it cannot be read: %v", err)
}

// rule is something a record promises by itself.
type rule struct {
	broken bool
	what   string
}

func (c *checker) rules(id bucket, key []byte, rules ...rule) {
	for _, r := range rules {
		if r.broken {
			c.breach(id, key, "%s", r.what)
		}
	}
}

// written wants a record to be the bytes that it would be written as: a flag
// that is neither 0 nor 1 reads well and is damage all the same. One of an older
// version would be written as one of today's.
func (c *checker) written(id bucket, key, record, anew []byte) {
	if record[0] == anew[0] {
		c.same(id, key, record, anew)
	}
}

func (c *checker) same(id bucket, key, got, anew []byte) {
	if !bytes.Equal(got, anew) {
		c.breach(id, key, "it reads as a record that would be written differently")
	}
}

// see notes an id that a sequence must have handed out.
func (c *checker) see(s sequence, id uint64) { c.largest[s] = max(c.largest[s], id) }

// walk is a place in a bucket.
type walk struct {
	cursor *bolt.Cursor
	k, v   []byte // nil at the end
}

func (c *checker) walk(id bucket) *walk {
	w := &walk{cursor: c.tx.bucket(id).Cursor()}
	w.k, w.v = w.cursor.First()
	return w
}

func (w *walk) next() { w.k, w.v = w.cursor.Next() }

// each calls fn with every entry of a bucket.
func (c *checker) each(id bucket, fn func(k, v []byte)) {
	for w := c.walk(id); w.k != nil; w.next() {
		fn(w.k, w.v)
	}
}
