package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// PageHash is the SHA-256 of a page's bytes: equal hashes are taken for equal
// pages. The zero value stands for no page.
type PageHash [sha256.Size]byte

// IsZero reports whether it stands for no page.
func (h PageHash) IsZero() bool { return h == PageHash{} }

func (h PageHash) String() string { return hex.EncodeToString(h[:]) }

// KeptPage is a page on its way into the store, compressed by its worker so
// that the writer need not.
type KeptPage struct {
	Hash  PageHash
	bytes int // of the page
	frame []byte
	lost  pagePlace // where a copy of it stands that cannot be read; zero: none is known
}

// KeepPage compresses what the parser saw of a page; nil: the page is over 1 GiB
// and is not kept. It is safe for concurrent use and does not keep body.
func KeepPage(body []byte) *KeptPage {
	if len(body) > maxPage {
		return nil
	}
	p := &KeptPage{Hash: sha256.Sum256(body), bytes: len(body)}
	p.frame = appendFrame(nil, p.Hash, body)
	return p
}

// ProbePage looks whether the copy that the store has of a page, if any, can be read.
// Where it cannot, the page is stored anew when its attempt is committed. It costs a
// read of the page, which here no writer waits for.
func (s *Store) ProbePage(k *KeptPage) {
	p, in, err := s.pagePlace(k.Hash)
	if err != nil {
		return // it is new, or the commit meets what is wrong
	}
	if _, err := s.segments.read(in.name, p, k.Hash); err != nil {
		k.lost = p
	}
}

// codec is made when the first page is kept or read: it holds buffers.
var codec = sync.OnceValues(func() (*zstd.Encoder, *zstd.Decoder) {
	// A window over 1 MB would cost memory for each core and hardly win
	// anything: few pages are larger.
	enc, err := zstd.NewWriter(nil, zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constant
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxPage))
	if err != nil {
		panic(err)
	}
	return enc, dec
})

// maxPage bounds what a damaged frame can make us allocate, and so what can be
// kept; engine.max_body is far below it, unless somebody raises it that much.
const maxPage = 1 << 30

// pagePlace says where a page stands and how many attempts name it.
type pagePlace struct {
	segment uint32
	offset  uint64 // of its frame in the segment
	size    uint32 // of the frame
	refs    uint32
}

// is reports whether two are one place.
func (p pagePlace) is(q pagePlace) bool { return p.segment == q.segment && p.offset == q.offset }

const pageVersion = 2

func (p pagePlace) encode() []byte {
	e := newEncoder(pageVersion, 21)
	e.u32(p.segment)
	e.u64(p.offset)
	e.u32(p.size)
	e.u32(p.refs)
	return e.sealed()
}

// pageAt reads where a page stands. Error: ErrNotFound.
func (tx *Tx) pageAt(h PageHash) (pagePlace, error) {
	v := tx.get(bucketPage, h[:])
	if v == nil {
		return pagePlace{}, fmt.Errorf("page %s: %w", h, ErrNotFound)
	}
	return decodePage(h[:], v)
}

func decodePage(key, v []byte) (pagePlace, error) {
	d := newDecoder(pageVersion, v)
	p := pagePlace{d.u32(), d.u64(), d.u32(), d.u32()}
	if err := d.done(); err != nil {
		return pagePlace{}, &RecordError{bucketNames[bucketPage], bytes.Clone(key), err}
	}
	return p, nil
}

// keepPage adds a reference to a page, and the page where it is new or its copy is
// lost.
func (tx *Tx) keepPage(k *KeptPage) error {
	p, err := tx.pageAt(k.Hash)
	switch {
	case errors.Is(err, ErrNotFound):
		p, err = tx.appendFrame(k.frame)
	case err == nil && p.is(k.lost):
		p, err = tx.replaceFrame(p, k.frame)
	}
	if err != nil {
		return err
	}
	p.refs++
	return tx.put(bucketPage, k.Hash[:], p.encode())
}

// replaceFrame gives a page another place for this frame of it.
func (tx *Tx) replaceFrame(old pagePlace, frame []byte) (pagePlace, error) {
	p, err := tx.appendFrame(frame)
	if err != nil {
		return pagePlace{}, err
	}
	p.refs = old.refs
	return p, tx.moveLive(old.segment, -int64(old.size))
}

// sharePage adds a reference to a page that is there.
func (tx *Tx) sharePage(h PageHash) error {
	p, err := tx.pageAt(h)
	if err != nil {
		return err
	}
	p.refs++
	return tx.put(bucketPage, h[:], p.encode())
}

// dropPage takes a reference from a page; one that no attempt names is gone.
func (tx *Tx) dropPage(h PageHash) error {
	p, err := tx.pageAt(h)
	if err != nil {
		return err
	}
	if p.refs--; p.refs > 0 {
		return tx.put(bucketPage, h[:], p.encode())
	}
	if err := tx.moveLive(p.segment, -int64(p.size)); err != nil {
		return err
	}
	return tx.remove(bucketPage, h[:])
}

// ReadPage gives the bytes of a kept page. Errors: ErrNotFound, ErrPageLost,
// *RecordError where the store does not say where it is, ErrStopped.
func (s *Store) ReadPage(h PageHash) ([]byte, error) {
	for {
		p, in, err := s.pagePlace(h)
		if err != nil {
			return nil, err
		}
		body, err := s.segments.read(in.name, p, h)
		switch {
		case err == nil:
			return body, nil
		case !errors.Is(err, fs.ErrNotExist) || !s.moved(h, p):
			return nil, fmt.Errorf("%w: page %s: %w", ErrPageLost, h, err)
		}
	}
}

// pagePlace is where a page stands, and in which segment. Error: ErrNotFound.
func (s *Store) pagePlace(h PageHash) (p pagePlace, in segmentRecord, err error) {
	err = s.View(func(tx *Tx) (err error) {
		if p, err = tx.pageAt(h); err == nil {
			in, err = tx.segment(p.segment)
		}
		return err
	})
	return p, in, err
}

// moved reports whether a page stands elsewhere by now: its segment was
// collected between the look and the read.
func (s *Store) moved(h PageHash, from pagePlace) bool {
	moved := false
	_ = s.View(func(tx *Tx) error {
		p, err := tx.pageAt(h)
		moved = err != nil || p.segment != from.segment
		return nil
	})
	return moved
}
