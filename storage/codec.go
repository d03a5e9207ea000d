package storage

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Records are a version byte, fixed-width numbers and length-prefixed text, and
// from version 2 on a seal of four bytes: the low half of the xxhash of all
// before it. bbolt has no checksum of its own, and a bit that a disk has turned
// in a price must be told, never exported. Encoders give a fresh slice each
// time: bbolt keeps the slice until commit.

const (
	sealedFrom = 2 // version
	sealBytes  = 4
)

var (
	errShort   = errors.New("record is cut short")
	errVersion = errors.New("record has an unknown version")
	errTrail   = errors.New("record has trailing bytes")
	errSeal    = errors.New("record is not what was written: its checksum differs")
)

type encoder struct{ b []byte }

func newEncoder(version byte, size int) *encoder {
	return &encoder{b: append(make([]byte, 0, size), version)}
}

func (e *encoder) u8(n byte)      { e.b = append(e.b, n) }
func (e *encoder) u16(n uint16)   { e.b = binary.BigEndian.AppendUint16(e.b, n) }
func (e *encoder) u32(n uint32)   { e.b = appendU32(e.b, n) }
func (e *encoder) u64(n uint64)   { e.b = appendU64(e.b, n) }
func (e *encoder) i64(n int64)    { e.u64(uint64(n)) }
func (e *encoder) text(s string)  { e.b = append(binary.AppendUvarint(e.b, uint64(len(s))), s...) }
func (e *encoder) bytes(p []byte) { e.b = append(binary.AppendUvarint(e.b, uint64(len(p))), p...) }

func (e *encoder) flag(on bool) {
	if on {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

// time keeps microseconds; the zero time is the smallest number.
func (e *encoder) time(t time.Time) {
	if t.IsZero() {
		e.i64(math.MinInt64)
		return
	}
	e.i64(t.UnixMicro())
}

func (e *encoder) texts(list []string) {
	e.b = binary.AppendUvarint(e.b, uint64(len(list)))
	for _, s := range list {
		e.text(s)
	}
}

// sealed is the finished record.
func (e *encoder) sealed() []byte { return appendU32(e.b, seal(e.b)) }

func seal(b []byte) uint32 { return uint32(xxhash.Sum64(b)) }

// decoder reads what encoder wrote; the first fault sticks.
type decoder struct {
	b       []byte
	version byte // of the record
	err     error
}

// newDecoder reads records of every version up to the one that is written now.
func newDecoder(newest byte, b []byte) *decoder {
	d := &decoder{b: b}
	switch d.version = d.u8(); {
	case d.err != nil:
	case d.version == 0 || d.version > newest:
		d.err = errVersion
	case d.version >= sealedFrom:
		d.open(b)
	}
	return d
}

// open takes the seal off a record.
func (d *decoder) open(record []byte) {
	end := len(record) - sealBytes
	switch {
	case end < 1:
		d.err = errShort
	case binary.BigEndian.Uint32(record[end:]) != seal(record[:end]):
		d.err = errSeal
	default:
		d.b = record[1:end]
	}
}

func (d *decoder) take(n int) []byte {
	if d.err == nil && (n < 0 || n > len(d.b)) {
		d.err = errShort
	}
	if d.err != nil {
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) u8() byte {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if p := d.take(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if p := d.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if p := d.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

func (d *decoder) i64() int64 { return int64(d.u64()) }
func (d *decoder) flag() bool { return d.u8() != 0 }

func (d *decoder) time() time.Time {
	us := d.i64()
	if us == math.MinInt64 || d.err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func (d *decoder) length() int {
	n, size := binary.Uvarint(d.b)
	if d.err == nil && (size <= 0 || n > uint64(len(d.b))) {
		d.err = errShort
	}
	if d.err != nil {
		return 0
	}
	d.b = d.b[size:]
	return int(n)
}

// raw aliases the record: copy it before the transaction ends.
func (d *decoder) raw() []byte  { return d.take(d.length()) }
func (d *decoder) text() string { return string(d.raw()) }

func (d *decoder) texts() []string {
	n := d.length()
	if d.err != nil || n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.text())
	}
	return list
}

func (d *decoder) done() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = errTrail
	}
	return d.err
}
