package storage

import (
	"bytes"
	"errors"
	"time"
)

// ErrCursorMoved: the cursor of a file is no longer where the caller saw it.
var ErrCursorMoved = errors.New("the file's cursor has moved meanwhile")

// FileCursor says how far the changes of a source have been appended to a file,
// and what the file was then: what is behind its Bytes was never acknowledged.
// The zero value is that of a file about to be begun.
type FileCursor struct {
	After       ChangeCursor
	Bytes       uint64
	Rows        uint64
	FirstWindow time.Time // of the rows; zero: none has a window
	LastWindow  time.Time
	Sum         []byte // state of a SHA-256 over the file, as encoding.BinaryMarshaler gives it
	Tail        []byte // SHA-256 of the file's end, as whoever writes it takes that
	DataOnly    bool
}

const fileCursorVersion = 2 // as all records that are sealed

func (f *FileCursor) encode() []byte {
	e := newEncoder(fileCursorVersion, 256+len(f.After.older))
	e.u64(f.Bytes)
	e.u64(f.Rows)
	e.time(f.FirstWindow)
	e.time(f.LastWindow)
	e.flag(f.DataOnly)
	e.bytes(f.Sum)
	e.bytes(f.Tail)
	f.After.append(e)
	return e.sealed()
}

func decodeFileCursor(key, v []byte) (*FileCursor, error) {
	d := newDecoder(fileCursorVersion, v)
	f := &FileCursor{Bytes: d.u64(), Rows: d.u64(), FirstWindow: d.time(), LastWindow: d.time(), DataOnly: d.flag()}
	f.Sum, f.Tail = bytes.Clone(d.raw()), bytes.Clone(d.raw())
	f.After.read(d)
	if err := d.done(); err != nil {
		return nil, &RecordError{bucketNames[bucketCursor], bytes.Clone(key), err}
	}
	return f, nil
}

// FileCursor reads the cursor of a source and a file, nil if there is none. path
// is absolute.
func (tx *Tx) FileCursor(source, path string) (*FileCursor, error) {
	key := counterKey(source, path)
	v := tx.get(bucketCursor, key)
	if v == nil {
		return nil, nil
	}
	return decodeFileCursor(key, v)
}

// MoveFileCursor sets the cursor of a source and a file, which must still be at
// from; nil: there must be none. Error: ErrCursorMoved.
func (tx *Tx) MoveFileCursor(source, path string, from, to *FileCursor) error {
	key := counterKey(source, path)
	now := tx.get(bucketCursor, key)
	if (now == nil) != (from == nil) || from != nil && !bytes.Equal(now, from.encode()) {
		return ErrCursorMoved
	}
	return tx.replace(bucketCursor, key, now, to.encode())
}
