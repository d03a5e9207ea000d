package storage

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"semel/failpoint"
)

// Kept pages stand in segments, files in a folder beside the store that only
// grow: in bbolt's pages they would be written again with every neighbour
// (measured: 3.7 times their size, here 1.1). A frame is synced before the
// transaction that names it. What stands behind the last frame of a committed
// transaction is nobody's, and written over.
//
// A segment begins with segmentMagic. A frame is
//
//	size of the whole frame u32 | size of the page u32 | SHA-256 of the page | zstd
//
// Each opening of the store begins a new segment, and its name has a random
// part: two files of one name begin with the same bytes, wherever copies of
// the store have gone meanwhile.

const (
	segmentMagic = "semelpg1"
	frameHeader  = 4 + 4 + sha256.Size
	// segmentSize is when the next segment begins: large enough that there are
	// few, small enough to be copied in one go when most of it is unused.
	segmentSize = 64 << 20
)

// segmentFile matches the names that place gives.
var segmentFile = regexp.MustCompile(`^\d{8}-[0-9a-f]{12}\.seg$`)

// PagesSuffix makes the name of the folder of kept pages of a store's.
const PagesSuffix = ".pages"

func appendFrame(b []byte, h PageHash, body []byte) []byte {
	start := len(b)
	b = append(b, make([]byte, frameHeader)...)
	copy(b[start+8:], h[:])
	enc, _ := codec()
	b = enc.EncodeAll(body, b)
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start))
	binary.BigEndian.PutUint32(b[start+4:], uint32(len(body)))
	return b
}

// openFrame gives the page in a frame, if it is the one that was meant.
func openFrame(frame []byte, want PageHash) ([]byte, error) {
	if len(frame) < frameHeader || binary.BigEndian.Uint32(frame) != uint32(len(frame)) || !bytes.Equal(frame[8:frameHeader], want[:]) {
		return nil, errors.New("another frame or none stands there")
	}
	_, dec := codec()
	body, err := dec.DecodeAll(frame[frameHeader:], nil)
	if err != nil {
		return nil, fmt.Errorf("decompressing it: %w", err)
	}
	if sha256.Sum256(body) != want {
		return nil, errors.New("its bytes have another SHA-256")
	}
	return body, nil
}

// segmentRecord is what the store knows of a segment.
type segmentRecord struct {
	name string // of the file
	size uint64 // up to the end of the last frame that was committed
	live uint64 // bytes of frames that pages stand in
}

const segmentVersion = 2

func (r segmentRecord) encode() []byte {
	e := newEncoder(segmentVersion, 32+len(r.name))
	e.text(r.name)
	e.u64(r.size)
	e.u64(r.live)
	return e.sealed()
}

func decodeSegment(key, v []byte) (segmentRecord, error) {
	d := newDecoder(segmentVersion, v)
	r := segmentRecord{name: d.text(), size: d.u64(), live: d.u64()}
	if err := d.done(); err != nil {
		return segmentRecord{}, &RecordError{bucketNames[bucketSegment], bytes.Clone(key), err}
	}
	return r, nil
}

func segmentKey(id uint32) []byte { return appendU32(nil, id) }

func (tx *Tx) segment(id uint32) (segmentRecord, error) {
	v := tx.get(bucketSegment, segmentKey(id))
	if v == nil {
		return segmentRecord{}, &RecordError{bucketNames[bucketSegment], segmentKey(id), errors.New("the segment is missing")}
	}
	return decodeSegment(segmentKey(id), v)
}

// segmentSizes are the files of all segments that pages stand in, with their sizes.
func (tx *Tx) segmentSizes() (map[string]int64, error) {
	sizes := map[string]int64{}
	c := tx.bucket(bucketSegment).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		r, err := decodeSegment(k, v)
		if err != nil {
			return nil, err
		}
		if r.live > 0 {
			sizes[r.name] = int64(r.size)
		}
	}
	return sizes, nil
}

// moveLive changes how many bytes of a segment pages stand in.
func (tx *Tx) moveLive(id uint32, by int64) error {
	r, err := tx.segment(id)
	if err != nil {
		return err
	}
	r.live = uint64(int64(r.live) + by)
	return tx.put(bucketSegment, segmentKey(id), r.encode())
}

// appendFrame gives a frame its place. It is written when the group commits.
func (tx *Tx) appendFrame(frame []byte) (pagePlace, error) {
	id, r, err := tx.segments.place(tx)
	if err != nil {
		return pagePlace{}, err
	}
	if len(tx.frames) == 0 {
		tx.framesAt = int64(r.size)
	}
	tx.frames = append(tx.frames, frame...)
	tx.written += len(frame)
	p := pagePlace{segment: id, offset: r.size, size: uint32(len(frame))}
	r.size += uint64(len(frame))
	r.live += uint64(len(frame))
	return p, tx.put(bucketSegment, segmentKey(id), r.encode())
}

// segments are the files of kept pages. All but mu's fields belong to the
// writer.
type segments struct {
	dir    string
	store  string // its path, for failpoints
	noSync bool

	id   uint32   // of the segment appended to; 0: none yet
	name string   // of its file
	file *os.File // nil: not made yet

	mu     sync.Mutex
	pins   int      // readers of whole segments
	doomed []string // files to delete when nobody reads
}

// place is the segment that a transaction appends to: a new one for each
// opening of the store, and where the last one is full or its file was removed.
func (g *segments) place(tx *Tx) (uint32, segmentRecord, error) {
	if g.id != 0 {
		v := tx.get(bucketSegment, segmentKey(g.id))
		if v == nil { // what began it was undone
			return g.id, g.fresh(), nil
		}
		r, err := decodeSegment(segmentKey(g.id), v)
		if err != nil || len(tx.frames) > 0 || r.size < segmentSize && !g.removed() {
			return g.id, r, err
		}
		if err := g.close(); err != nil {
			return 0, r, err
		}
	}
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	g.id = 1
	if last, _ := tx.bucket(bucketSegment).Cursor().Last(); last != nil {
		g.id = binary.BigEndian.Uint32(last) + 1
	}
	g.name = fmt.Sprintf("%08d-%s.seg", g.id, hex.EncodeToString(random[:]))
	return g.id, g.fresh(), nil
}

// removed reports whether the file that is open has lost its name: nobody would find
// what is appended to it.
func (g *segments) removed() bool {
	if g.file == nil {
		return false
	}
	_, err := os.Lstat(filepath.Join(g.dir, g.name))
	return errors.Is(err, os.ErrNotExist)
}

func (g *segments) fresh() segmentRecord {
	return segmentRecord{name: g.name, size: uint64(len(segmentMagic))}
}

// flush makes frames durable at their place.
func (g *segments) flush(frames []byte, at int64) error {
	if err := failpoint.At(failpoint.AppendPages, g.store); err != nil {
		return err
	}
	if g.file == nil {
		if err := g.create(); err != nil {
			return err
		}
	}
	if _, err := g.file.WriteAt(frames, at); err != nil {
		return err
	}
	if err := failpoint.At(failpoint.SyncPages, g.store); err != nil || g.noSync {
		return err
	}
	return g.file.Sync()
}

// create makes the file of a new segment, durable by name.
func (g *segments) create() error {
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(g.dir, g.name), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte(segmentMagic), 0); err != nil {
		return errors.Join(err, f.Close())
	}
	g.file = f
	if g.noSync {
		return nil
	}
	return errors.Join(SyncDir(g.dir), SyncDir(filepath.Dir(g.dir)))
}

// close ends the segment appended to.
func (g *segments) close() error {
	f := g.file
	g.id, g.name, g.file = 0, "", nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// read gives the page in a frame. Error: fs.ErrNotExist (its file is missing).
func (g *segments) read(name string, p pagePlace, h PageHash) (body []byte, err error) {
	frame, err := readFrame(filepath.Join(g.dir, name), p)
	if err == nil {
		body, err = openFrame(frame, h)
	}
	if err != nil {
		return nil, fmt.Errorf("its frame at %d in %s: %w", p.offset, name, err)
	}
	return body, nil
}

func readFrame(path string, p pagePlace) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if end := p.offset + uint64(p.size); uint64(info.Size()) < end {
		return nil, fmt.Errorf("the file is cut short: %d bytes, not %d", info.Size(), end)
	}
	frame := make([]byte, p.size)
	_, err = f.ReadAt(frame, int64(p.offset))
	return frame, err
}

// bytes is what the files take together.
func (g *segments) bytes() (n int64) {
	entries, _ := os.ReadDir(g.dir) // without a folder there are none
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
	}
	return n
}

// pin keeps every segment that a snapshot names where it is until the result
// is called.
func (g *segments) pin() (unpin func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pins++
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.pins--; g.pins == 0 {
			for _, name := range g.doomed {
				_ = os.Remove(filepath.Join(g.dir, name)) // compact finds what stays
			}
			g.doomed = nil
		}
	})
}

// discard deletes the file of a segment that no snapshot from now on names.
func (g *segments) discard(name string) {
	unpin := g.pin()
	g.mu.Lock()
	g.doomed = append(g.doomed, name)
	g.mu.Unlock()
	unpin()
}
