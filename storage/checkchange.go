package storage

import (
	"bytes"
	"fmt"
	"strings"
)

// numberedRow wants an observation to be found by the number of its change.
func (c *checker) numberedRow(k []byte, o *Observation) {
	if o.Seq == 0 {
		return
	}
	c.see(changeSequence, o.Seq)
	source := counterKey(o.Key.Source, "")
	if place := c.tx.get(bucketChange, changeKey(o.Key.Source, o.Seq)); place != nil && bytes.Equal(append(source, place...), k) {
		c.numbered++
	} else {
		c.breach(bucketObservation, k, "its change %d is missing in bucket change, or leads elsewhere", o.Seq)
	}
}

// changes looks for numbers that no observation has, unless there are just as
// many as observations that were found by theirs.
func (c *checker) changes() {
	c.each(bucketChange, func(_, _ []byte) { c.numbered-- })
	if c.numbered == 0 {
		return
	}
	c.each(bucketChange, func(k, place []byte) {
		source, seq, ok := bytes.Cut(k, []byte{0})
		if !ok || len(seq) != 8 {
			c.breach(bucketChange, k, "its key is not a source and a number")
			return
		}
		o, err := c.tx.observationAt(append(counterKey(string(source), ""), place...))
		if err != nil || o.Seq != tailID(k) {
			c.breach(bucketChange, k, "it leads to no observation of this number")
		}
	})
}

// cursors wants every file's cursor to be of a source and a path, and not to be
// ahead of all changes.
func (c *checker) cursors() {
	c.each(bucketCursor, func(k, v []byte) {
		f, err := decodeFileCursor(k, v)
		if err != nil {
			c.unreadable(bucketCursor, k, err)
			return
		}
		c.see(changeSequence, f.After.seq)
		c.written(bucketCursor, k, v, f.encode())
		source, path, _ := strings.Cut(string(k), "\x00")
		c.rules(bucketCursor, k,
			rule{source == "" || path == "", "its key is not a source and a path"},
			rule{(f.Rows == 0) != (f.Bytes == 0), fmt.Sprintf("it says %d rows in %d bytes", f.Rows, f.Bytes)},
			rule{f.LastWindow.Before(f.FirstWindow), "its last window is before its first"},
		)
	})
}
