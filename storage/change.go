package storage

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
)

// ErrCursor: a text is no cursor of this source in this store.
var ErrCursor = errors.New("not a cursor of this source in this store")

// ChangeCursor is a place among the changes of a source (see Changes). The zero
// value is before all of them.
type ChangeCursor struct {
	older []byte // key, without the source, of the last row passed while those of older schemas are looked for
	found bool   // all rows of older schemas were passed
	seq   uint64 // of the last change given
}

const cursorVersion = 2 // as all records that are sealed

func (c ChangeCursor) append(e *encoder) {
	e.flag(c.found)
	e.u64(c.seq)
	e.bytes(c.older)
}

func (c *ChangeCursor) read(d *decoder) {
	c.found, c.seq = d.flag(), d.u64()
	c.older = append(c.older, d.raw()...)
}

// Text is the cursor as others keep it. It says nothing but to ParseChangeCursor.
func (c ChangeCursor) Text(source string) string {
	e := newEncoder(cursorVersion, 32+len(source)+len(c.older))
	e.text(source)
	c.append(e)
	return base64.RawURLEncoding.EncodeToString(e.sealed())
}

// ParseChangeCursor reads what ChangeCursor.Text made of a cursor of a source;
// "" is the zero value. Error: ErrCursor.
func (tx *Tx) ParseChangeCursor(source, text string) (c ChangeCursor, err error) {
	if text == "" {
		return c, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrCursor, err)
	}
	d := newDecoder(cursorVersion, b)
	of := d.text()
	c.read(d)
	switch err := d.done(); {
	case err != nil:
		return ChangeCursor{}, fmt.Errorf("%w: %w", ErrCursor, err)
	case of != source:
		return ChangeCursor{}, fmt.Errorf("%w: it is of source %q", ErrCursor, of)
	case c.seq > tailID(tx.get(bucketMeta, []byte(sequenceNames[changeSequence]))):
		return ChangeCursor{}, fmt.Errorf("%w: it is ahead of all changes", ErrCursor)
	}
	return c, nil
}

// Changes calls fn with up to limit observations of a source that were created
// or got new content after a cursor, each once and as it is now, in the order in
// which that happened, and gives the cursor behind them. What an older schema
// wrote comes first, in the order of its keys. more says that there may be more
// behind the new cursor, even where fn got less than limit.
//
// Numbers follow the order of commits, so that none appears later before a
// cursor; a row that changes again moves to the end. An observation that is
// deleted is gone from here as well.
func (tx *Tx) Changes(source string, after ChangeCursor, limit int, fn func(*Observation) error) (next ChangeCursor, more bool, err error) {
	if !after.found {
		next, err = tx.olderRows(source, after, limit, fn)
		return next, true, err
	}
	prefix := counterKey(source, "")
	c := tx.bucket(bucketChange).Cursor()
	k, place := c.Seek(changeKey(source, after.seq+1))
	for n := 0; n < limit && bytes.HasPrefix(k, prefix); n++ {
		o, err := tx.observationAt(append(bytes.Clone(prefix), place...))
		if err == nil {
			err = fn(o)
		}
		if err != nil {
			return after, false, err
		}
		after.seq = tailID(k)
		k, place = c.Next()
	}
	return after, bytes.HasPrefix(k, prefix), nil
}

// olderRows is Changes for what an older schema wrote: it looks at up to
// entryRows rows.
func (tx *Tx) olderRows(source string, after ChangeCursor, limit int, fn func(*Observation) error) (ChangeCursor, error) {
	prefix := counterKey(source, "")
	c := tx.bucket(bucketObservation).Cursor()
	from := append(bytes.Clone(prefix), after.older...)
	k, v := c.Seek(from)
	if after.older != nil && bytes.Equal(k, from) {
		k, v = c.Next()
	}
	for n := 0; bytes.HasPrefix(k, prefix); n++ {
		if n == entryRows || limit == 0 {
			return after, nil
		}
		o, err := decodeObservation(k, v)
		if err == nil && o.Seq == 0 {
			limit--
			err = fn(o)
		}
		if err != nil {
			return after, err
		}
		after.older = bytes.Clone(k[len(prefix):])
		k, v = c.Next()
	}
	return ChangeCursor{found: true}, nil
}

// observationAt reads the observation of a place that an index names.
func (tx *Tx) observationAt(place []byte) (*Observation, error) {
	v := tx.get(bucketObservation, place)
	if v == nil {
		return nil, &RecordError{bucketNames[bucketObservation], place, errors.New("it is missing, and a change leads to it")}
	}
	return decodeObservation(place, v)
}

func changeKey(source string, seq uint64) []byte { return outboxKey(source, seq) }

// renumber makes an observation the newest change: the number that it has is
// given up.
func (tx *Tx) renumber(place []byte, o *Observation) error {
	if err := tx.dropChange(o); err != nil {
		return err
	}
	o.Seq = tx.nextID(changeSequence)
	return tx.insert(bucketChange, changeKey(o.Key.Source, o.Seq), place[len(o.Key.Source)+1:])
}

func (tx *Tx) dropChange(o *Observation) error {
	if o.Seq == 0 {
		return nil
	}
	return tx.remove(bucketChange, changeKey(o.Key.Source, o.Seq))
}

// dropObservation deletes an observation and all that leads to it.
func (tx *Tx) dropObservation(o *Observation) error {
	if err := tx.dropChange(o); err != nil {
		return err
	}
	tx.count(o.Key.Source, MetricObservations, -1)
	return tx.remove(bucketObservation, observationKey(o.Key))
}
