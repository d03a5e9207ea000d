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

// keepPage adds a reference to a page, and the page where it is new.
func (tx *Tx) keepPage(k *KeptPage) error {
	p, err := tx.pageAt(k.Hash)
	if errors.Is(err, ErrNotFound) {
		p, err = tx.appendFrame(k.frame)
	}
	if err != nil {
		return err
	}
	p.refs++
	return tx.put(bucketPage, k.Hash[:], p.encode())
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

// ReadPage gives the bytes of a kept page. Errors: ErrNotFound, *RecordError
// where its segment is missing or damaged, ErrStopped.
func (s *Store) ReadPage(h PageHash) ([]byte, error) {
	for {
		var p pagePlace
		var in segmentRecord
		err := s.View(func(tx *Tx) (err error) {
			if p, err = tx.pageAt(h); err == nil {
				in, err = tx.segment(p.segment)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		body, err := s.segments.read(in.name, p, h)
		if !errors.Is(err, fs.ErrNotExist) || !s.moved(h, p) {
			return body, err
		}
	}
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
