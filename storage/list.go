package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// A list is a source's targets as they were read once, for the windows that
// they are offered to. It is read whole before jobs are made of it, chunk by
// chunk and window by window, so that whoever goes on after a crash goes on with
// these targets and not with those of an edited file. A list that is not whole
// after a crash is dropped and read again: nothing was made of it.

// List is a list of targets that is kept.
type List struct {
	ID     uint64 // counted up by the store from 1
	Source string
	Kind   RunKind // of what asked for it
	File   string  // that the targets' lines are of; "": none
	Chunks uint32  // kept

	Whole   bool              // it was read to its end; the next two are zero before
	Targets uint64            // in all chunks
	Sum     [sha256.Size]byte // of their records, in order
}

// ListTarget is a target of a list.
type ListTarget struct {
	Vars []Var
	Line int // in List.File, from 1; 0: unknown
}

const listVersion = 2 // the first is sealed

func (l *List) encode() []byte {
	e := newEncoder(listVersion, 80)
	e.text(l.Source)
	e.text(string(l.Kind))
	e.text(l.File)
	e.u32(l.Chunks)
	e.flag(l.Whole)
	e.u64(l.Targets)
	e.bytes(l.Sum[:])
	return e.sealed()
}

func decodeList(id uint64, b []byte) (*List, error) {
	d := newDecoder(listVersion, b)
	l := &List{ID: id, Source: d.text(), Kind: RunKind(d.text()), File: d.text(), Chunks: d.u32(), Whole: d.flag(), Targets: d.u64()}
	copy(l.Sum[:], d.raw())
	if err := d.done(); err != nil {
		return nil, &RecordError{bucketNames[bucketList], idKey(id), err}
	}
	return l, nil
}

// Entries of a list: its record under its id alone, and below that its chunks
// and the runs that still want it.
const (
	listChunk = 'c' // chunk u32
	listRun   = 'r' // window u64
)

func chunkKey(list uint64, n uint32) []byte {
	return appendU32(append(appendU64(make([]byte, 0, 13), list), listChunk), n)
}

func listRunKey(list uint64, window time.Time) []byte {
	return appendU64(append(appendU64(make([]byte, 0, 17), list), listRun), windowOrder(window))
}

// ListChunk is some targets on their way into a list, compressed by whoever
// read them so that the writer need not.
type ListChunk struct {
	plain, frame []byte
	targets      int
}

// PackTargets makes a chunk of a list.
func PackTargets(targets []ListTarget) ListChunk {
	e := &encoder{}
	for _, t := range targets {
		e.b = binary.AppendUvarint(e.b, uint64(t.Line))
		e.b = binary.AppendUvarint(e.b, uint64(len(t.Vars)))
		for _, v := range t.Vars {
			e.text(v.Name)
			e.text(v.Value)
		}
	}
	enc, _ := codec()
	return ListChunk{e.b, enc.EncodeAll(e.b, nil), len(targets)}
}

// Plain are the bytes that the list's sum is taken of.
func (c ListChunk) Plain() []byte { return c.plain }

const chunkVersion = 2 // the first is sealed

func (c ListChunk) encode() []byte {
	e := newEncoder(chunkVersion, len(c.frame)+16)
	e.bytes(c.frame)
	return e.sealed()
}

// unpackChunk gives the plain bytes of a chunk's record.
func unpackChunk(record []byte) ([]byte, error) {
	d := newDecoder(chunkVersion, record)
	frame := d.raw()
	if err := d.done(); err != nil {
		return nil, err
	}
	_, dec := codec()
	return dec.DecodeAll(frame, nil)
}

func decodeTargets(plain []byte) ([]ListTarget, error) {
	d := &decoder{b: plain}
	var targets []ListTarget
	for d.err == nil && len(d.b) > 0 {
		t := ListTarget{Line: d.number()}
		for n := d.length(); n > 0 && d.err == nil; n-- {
			t.Vars = append(t.Vars, Var{d.text(), d.text()})
		}
		targets = append(targets, t)
	}
	return targets, d.err
}

// number reads a count that is not one of bytes that follow.
func (d *decoder) number() int {
	n, size := binary.Uvarint(d.b)
	if d.err == nil && (size <= 0 || n > math.MaxInt32) {
		d.err = errShort
	}
	if d.err != nil {
		return 0
	}
	d.b = d.b[size:]
	return int(n)
}

// OpenList begins a list of a source's targets. A list that no run wants
// (OfferWindow) is dropped.
func (tx *Tx) OpenList(source string, kind RunKind) (*List, error) {
	l := &List{ID: tx.nextID(listSequence), Source: source, Kind: kind}
	return l, tx.saveList(l)
}

func (tx *Tx) saveList(l *List) error { return tx.put(bucketList, idKey(l.ID), l.encode()) }

// OfferWindow opens the run of a window, and offers a list to it. It reports
// false where another list is being offered to it already.
func (tx *Tx) OfferWindow(l *List, window time.Time) (bool, error) {
	r, err := tx.OpenRun(RunKey{Source: l.Source, Window: window}, l.Kind)
	if err != nil || r.List != 0 {
		return false, err
	}
	r.List, r.Made, r.Targets, r.Sum = l.ID, 0, 0, [sha256.Size]byte{}
	if err := tx.insert(bucketList, listRunKey(l.ID, window), idKey(r.ID)); err != nil {
		return false, err
	}
	tx.BeginListing(r)
	return true, nil
}

// Lists are the lists of a source, the oldest first.
func (tx *Tx) Lists(source string) ([]*List, error) {
	var lists []*List
	c := tx.bucket(bucketList).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Seek(idKey(binary.BigEndian.Uint64(k) + 1)) {
		if len(k) != 8 {
			return nil, &RecordError{bucketNames[bucketList], bytes.Clone(k), errors.New("it is of a list that is missing; run semel verify")}
		}
		l, err := decodeList(tailID(k), v)
		if err != nil {
			return nil, err
		}
		if l.Source == source {
			lists = append(lists, l)
		}
	}
	return lists, nil
}

// AddChunk appends a chunk to a list that is being read.
func (tx *Tx) AddChunk(l *List, c ListChunk) error {
	if err := tx.insert(bucketList, chunkKey(l.ID, l.Chunks), c.encode()); err != nil {
		return err
	}
	l.Chunks++
	return tx.saveList(l)
}

// EndList notes that a list was read to its end.
func (tx *Tx) EndList(l *List, targets uint64, sum [sha256.Size]byte) error {
	l.Whole, l.Targets, l.Sum = true, targets, sum
	return tx.saveList(l)
}

// ListTargets reads a chunk of a list.
func (tx *Tx) ListTargets(l *List, chunk uint32) ([]ListTarget, error) {
	key := chunkKey(l.ID, chunk)
	plain, err := unpackChunk(tx.get(bucketList, key))
	if err != nil {
		return nil, &RecordError{bucketNames[bucketList], key, err}
	}
	targets, err := decodeTargets(plain)
	if err != nil {
		return nil, &RecordError{bucketNames[bucketList], key, err}
	}
	return targets, nil
}

// NextRun is the run of the earliest window that still wants a list. Error:
// ErrNotFound.
func (tx *Tx) NextRun(l *List) (*Run, error) {
	prefix := append(idKey(l.ID), listRun)
	k, v := tx.bucket(bucketList).Cursor().Seek(prefix)
	if !bytes.HasPrefix(k, prefix) {
		return nil, fmt.Errorf("run of list %d: %w", l.ID, ErrNotFound)
	}
	r, err := tx.Run(tailID(v))
	if isNotFound(err) { // damage: as "not found" the list would be dropped
		return nil, &RecordError{bucketNames[bucketList], bytes.Clone(k), fmt.Errorf("it leads to run %d, which is missing", tailID(v))}
	}
	return r, err
}

// ChunkMade notes that the next chunk of a list has become jobs of a run, and
// ends the run's listing after the last one. It reports whether that was so; a
// list without chunks ends so, too. sinks are those of the run's source.
func (tx *Tx) ChunkMade(l *List, r *Run, sinks []Subscription) (bool, error) {
	r.Targets, r.Sum = l.Targets, l.Sum
	if r.Made < uint64(l.Chunks) {
		r.Made++
	}
	if r.Made < uint64(l.Chunks) {
		tx.saveRun(r)
		return false, nil
	}
	if err := tx.remove(bucketList, listRunKey(l.ID, r.Key.Window)); err != nil {
		return false, err
	}
	r.List = 0
	return true, tx.EndListing(r, sinks)
}

// DropChunks deletes up to max chunks of a list from its end, which is then not
// whole. It reports whether none is left; a list that no run wants goes with the
// last one.
func (tx *Tx) DropChunks(l *List, max int) (bool, error) {
	for ; l.Chunks > 0 && max > 0; max-- {
		if err := tx.remove(bucketList, chunkKey(l.ID, l.Chunks-1)); err != nil {
			return false, err
		}
		l.Chunks--
	}
	l.Whole, l.Targets, l.Sum = false, 0, [sha256.Size]byte{}
	if l.Chunks > 0 {
		return false, tx.saveList(l)
	}
	if _, err := tx.NextRun(l); !isNotFound(err) {
		return true, errors.Join(err, tx.saveList(l))
	}
	return true, tx.remove(bucketList, idKey(l.ID))
}
