package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// schema is the version of the layout that this program writes.
const schema = 6

var schemaKey = []byte("schema")

// migrations bring a store from version i to i+1, all inside one transaction.
var migrations = [schema]func(*bolt.Tx) error{
	0: createBuckets(bucketNames[:bucketPage]...),
	1: createBuckets(bucketNames[bucketPage], bucketNames[bucketSegment]), // an attempt of schema 1 reads as one without a page
	2: createBuckets(bucketNames[bucketValidator]),                        // a job or attempt of schema 2 reads as one without steps
	// A job of schema 3 reads as one of no run, an observation as a change without
	// a number, an event as one of no job.
	3: inTurn(createBuckets(bucketNames[bucketRun:bucketQuarantine]...), countRules, addDispatches),
	4: createBuckets(bucketNames[bucketQuarantine:bucketCount]...), // an attempt of schema 4 reads as one that fetched its page
	// Schema 5 counted pages by source, which says nothing of one host.
	5: inTurn(deleteBucket(bucketNames[bucketDrift]), createBuckets(bucketNames[bucketDrift])),
}

func inTurn(steps ...func(*bolt.Tx) error) func(*bolt.Tx) error {
	return func(b *bolt.Tx) error {
		for _, step := range steps {
			if err := step(b); err != nil {
				return err
			}
		}
		return nil
	}
}

func createBuckets(names ...string) func(*bolt.Tx) error {
	return func(b *bolt.Tx) error {
		for _, name := range names {
			if _, err := b.CreateBucket([]byte(name)); err != nil {
				return fmt.Errorf("creating bucket %s: %w", name, err)
			}
		}
		return nil
	}
}

func deleteBucket(name string) func(*bolt.Tx) error {
	return func(b *bolt.Tx) error {
		if err := b.DeleteBucket([]byte(name)); err != nil {
			return fmt.Errorf("deleting bucket %s: %w", name, err)
		}
		return nil
	}
}

// countRules counts complete jobs by the rules that read their pages, which until
// schema 3 only their attempts say. What cannot be read is left to Check.
func countRules(b *bolt.Tx) error {
	tx := newTx(b, noTime)
	var late []*Job // read by other rules than those they were made under
	c := tx.bucket(bucketJob).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		j, err := decodeJob(tailID(k), v)
		if err != nil || j.State != StateComplete {
			continue
		}
		a, err := tx.attempt(j.ID, j.Generation)
		if err == nil && a.ParserVersion > 0 && a.ParserVersion != j.Version {
			j.Version = a.ParserVersion
			late = append(late, j)
		}
		tx.count(j.Key.Source, rulesMetric(j.Version), 1)
	}
	for _, j := range late {
		if err := tx.save(j); err != nil {
			return err
		}
	}
	tx.keep()
	return tx.flushCounters()
}

// addDispatches makes those of pending events, of which until schema 3 only the
// index tells, and lists these events with their jobs.
func addDispatches(b *bolt.Tx) error {
	tx := newTx(b, noTime)
	c := tx.bucket(bucketOutbox).Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		sink, _, _ := bytes.Cut(k, []byte{0})
		if err := tx.insert(bucketDispatch, dispatchKey(tailID(k), string(sink)), newDispatch); err != nil {
			return err
		}
		tx.count("", metricOutbox+string(sink), 1)
		if err := tx.listWithJob(tailID(k)); err != nil {
			return err
		}
	}
	tx.keep()
	return tx.flushCounters()
}

// listWithJob has an event say which job it is of, and the job lead to it.
func (tx *Tx) listWithJob(seq uint64) error {
	e, err := tx.eventOf(seq)
	if err != nil || e.Job != 0 { // left to Check, or listed for another sink
		return nil
	}
	if e.Job = tx.jobOfEvent(e); e.Job == 0 {
		return nil
	}
	if err := tx.insert(bucketJobEvent, jobEventKey(e.Job, seq), nil); err != nil {
		return err
	}
	return tx.put(bucketEvent, idKey(seq), e.encode())
}

// jobOfEvent finds the job of whose outcome an event is by what it tells; 0: it
// is of a run, or cannot be read, which is left to Check.
func (tx *Tx) jobOfEvent(e *Event) uint64 {
	key := e.Key
	switch e.Type {
	case EventCreated, EventUpdated:
		o, err := readLine(e)
		if err != nil {
			return 0
		}
		key = o.Job
	case EventJobComplete, EventJobFailed:
	default:
		return 0
	}
	j, err := tx.jobByText(key)
	if err != nil {
		return 0
	}
	return j.ID
}

// schemaOf is 0 for a file without a store in it.
func schemaOf(b *bolt.Tx) (uint32, error) {
	meta := b.Bucket([]byte(bucketNames[bucketMeta]))
	if meta == nil {
		if key, _ := b.Cursor().First(); key != nil {
			return 0, fmt.Errorf("%w: it is a bbolt file of another program", ErrUnreadable)
		}
		return 0, nil
	}
	v := meta.Get(schemaKey)
	if len(v) != 4 {
		return 0, fmt.Errorf("%w: it has no schema version", ErrUnreadable)
	}
	return binary.BigEndian.Uint32(v), nil
}

func migrate(b *bolt.Tx) error {
	version, err := schemaOf(b)
	if err != nil {
		return err
	}
	if version > schema {
		return fmt.Errorf("%w: schema %d, this program knows %d", ErrNewerSchema, version, schema)
	}
	if version == schema {
		return checkBuckets(b)
	}
	for ; version < schema; version++ {
		if err := migrations[version](b); err != nil {
			return fmt.Errorf("%w: migrating from schema %d: %w", ErrUnreadable, version, err)
		}
	}
	if err := checkBuckets(b); err != nil {
		return err
	}
	return b.Bucket([]byte(bucketNames[bucketMeta])).Put(schemaKey, appendU32(nil, version))
}

// checkSchema is what a read-only Open can do instead.
func checkSchema(b *bolt.Tx) error {
	version, err := schemaOf(b)
	switch {
	case err != nil:
		return err
	case version > schema:
		return fmt.Errorf("%w: schema %d, this program knows %d", ErrNewerSchema, version, schema)
	case version < schema:
		return fmt.Errorf("%w: schema %d, this program works with %d", ErrOlderSchema, version, schema)
	}
	return checkBuckets(b)
}

func checkBuckets(b *bolt.Tx) error {
	for _, name := range bucketNames {
		if b.Bucket([]byte(name)) == nil {
			return fmt.Errorf("%w: bucket %s is missing", ErrUnreadable, name)
		}
	}
	return nil
}
