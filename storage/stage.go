package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// brought is what a job says of its rows in bucket staged or live, at its own place.
type brought struct {
	Rows       uint32 // of its page, also those that stand as another job's
	Generation uint32 // of the attempt that completed the job with them; 0: nobody knows (an older schema staged them)
	Version    int    // of the rules that read the page
	Counted    bool   // its duplicates and what was unchanged are in the counters
	Whole      bool   // it is staged as a part of its whole window, see Completion
}

const broughtVersion = 2 // as all records that are sealed

func (b *brought) encode() []byte {
	e := newEncoder(broughtVersion, 19)
	e.u32(b.Rows)
	e.u32(b.Generation)
	e.u32(uint32(b.Version))
	e.flag(b.Counted)
	e.flag(b.Whole)
	return e.sealed()
}

// readBrought reads what stands at a job's own place.
func readBrought(id bucket, j *Job, v []byte) (b brought, err error) {
	if isOldBrought(id, v) {
		return oldBrought(j, v), nil
	}
	d := newDecoder(broughtVersion, v)
	b = brought{Rows: d.u32(), Generation: d.u32(), Version: int(d.u32()), Counted: d.flag(), Whole: d.flag()}
	if err := d.done(); err != nil {
		return b, &RecordError{bucketNames[id], rowKey(j.Run, j.ID, nil), err}
	}
	return b, nil
}

// isOldBrought reports whether an older schema wrote it: the number of rows in bucket
// staged, and nothing in live.
func isOldBrought(id bucket, v []byte) bool {
	return id == bucketStaged && len(v) == 4 || id == bucketLive && len(v) == 0
}

// oldBrought takes it to be of what last completed the job.
func oldBrought(j *Job, v []byte) brought {
	b := brought{Version: j.Version}
	if len(v) > 0 {
		b.Rows = binary.BigEndian.Uint32(v)
	}
	if j.State == StateComplete {
		b.Generation = j.Generation
	}
	return b
}

// brings is what a completion brings for a job that is now complete.
func (c *Completion) brings(j *Job) *brought {
	return &brought{Rows: uint32(len(c.Records)), Generation: j.Generation, Version: c.Attempt.ParserVersion, Counted: c.counted, Whole: c.Whole}
}

// stage sets a job's rows aside, in the place of those it staged before.
func (tx *Tx) stage(j *Job, rows []*Observation, c *Completion) error {
	if err := tx.changeRun(j, func(r *Run) { r.Discarded = noTime }); err != nil { // that was of what was staged before
		return err
	}
	b, job := c.brings(j), rowKey(j.Run, j.ID, nil)
	if v := tx.get(bucketStaged, job); v != nil {
		before, err := readBrought(bucketStaged, j, v)
		if err != nil {
			return err
		}
		b.Counted = b.Counted && before.Counted // what was staged is counted once it stands
	}
	if err := tx.clear(bucketStaged, job); err != nil {
		return err
	}
	places := map[string]bool{}
	for _, o := range rows {
		place := observationKey(o.Key)
		places[string(place)] = true
		if err := tx.put(bucketStaged, rowKey(j.Run, j.ID, place), o.encode()); err != nil {
			return err
		}
	}
	b.Rows = uint32(len(places))
	return tx.insert(bucketStaged, job, b.encode())
}

// Staged reports whether what a job has brought waits for the rest of its run.
func (tx *Tx) Staged(j *Job) bool { return tx.get(bucketStaged, rowKey(j.Run, j.ID, nil)) != nil }

// Stands reports whether what a complete job of a WriteReplace source brought
// last stands among the observations: until it is promoted, and once a person has
// discarded it, it does not.
func (tx *Tx) Stands(j *Job) (bool, error) {
	if j.Run == 0 || j.Key.Window.IsZero() {
		return true, nil
	}
	v := tx.get(bucketLive, rowKey(j.Run, j.ID, nil))
	if v == nil || tx.Staged(j) {
		return false, nil
	}
	b, err := readBrought(bucketLive, j, v)
	return b.Generation == j.Generation, err
}

// hasRows reports whether a job is the owner of rows in bucket live.
func (tx *Tx) hasRows(j *Job) bool {
	job := rowKey(j.Run, j.ID, nil)
	c := tx.bucket(bucketLive).Cursor()
	k, _ := c.Seek(job)
	if bytes.Equal(k, job) {
		k, _ = c.Next()
	}
	return bytes.HasPrefix(k, job)
}

// OwnRows are the rows of a window that are a job's: none where their keys have no
// window.
func (tx *Tx) OwnRows(j *Job) (rows []*Observation, err error) {
	job := rowKey(j.Run, j.ID, nil)
	c := tx.bucket(bucketLive).Cursor()
	for k, _ := c.Seek(job); bytes.HasPrefix(k, job); k, _ = c.Next() {
		if bytes.Equal(k, job) {
			continue
		}
		_, place := readRowKey(k)
		o, err := decodeObservation(place, tx.get(bucketObservation, place))
		if err != nil {
			return nil, err
		}
		rows = append(rows, o)
	}
	return rows, nil
}

// clear deletes all keys of a bucket that begin with prefix.
func (tx *Tx) clear(id bucket, prefix []byte) error {
	var keys [][]byte
	c := tx.bucket(id).Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		if err := tx.remove(id, k); err != nil {
			return err
		}
	}
	return nil
}

// own notes that a row is j's from now on, and no longer that of the job whose
// key is was; "": it was nobody's. Rows without a window in their key have no
// owner.
func (tx *Tx) own(j *Job, o *Observation, was string) error {
	if o.Key.Window.IsZero() || was == o.Job {
		return nil
	}
	place := observationKey(o.Key)
	if was != "" {
		before, err := tx.jobByText(was)
		if err != nil {
			return fmt.Errorf("observation %s: its job: %w", o.Key, err)
		}
		if err := tx.remove(bucketLive, rowKey(before.Run, before.ID, place)); err != nil {
			return err
		}
	}
	return tx.insert(bucketLive, rowKey(j.Run, j.ID, place), nil)
}
