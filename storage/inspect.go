package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	bolt "go.etcd.io/bbolt"
)

// The two meta pages of a bbolt file, as its format states them: a page header
// of 16 bytes, then magic, version, page size, flags (u32 each), root page and
// sequence, freelist page, end of the used pages, transaction, and an FNV-64a
// of what precedes it. The numbers are in the byte order of the machine, which
// is little-endian on every system Semel is built for.
const (
	metaOffset   = 16
	metaLength   = 64
	metaChecksum = metaLength - 8
	boltMagic    = 0xED0CDAED
	noFreelist   = ^uint64(0) // in place of the freelist page: it was not written
)

type metaPage struct{ root, freelist, end, tx uint64 }

func readMeta(page []byte) (metaPage, bool) {
	m := page[metaOffset : metaOffset+metaLength]
	sum := fnv.New64a()
	sum.Write(m[:metaChecksum])
	if binary.LittleEndian.Uint32(m) != boltMagic || binary.LittleEndian.Uint64(m[metaChecksum:]) != sum.Sum64() {
		return metaPage{}, false
	}
	return metaPage{
		root:     binary.LittleEndian.Uint64(m[16:]),
		freelist: binary.LittleEndian.Uint64(m[32:]),
		end:      binary.LittleEndian.Uint64(m[40:]),
		tx:       binary.LittleEndian.Uint64(m[48:]),
	}, true
}

// newestMeta is the meta page that a file stands for.
func newestMeta(file io.ReaderAt) (metaPage, error) {
	pages := make([]byte, 2*pageSize)
	if n, err := file.ReadAt(pages, 0); err != nil && !errors.Is(err, io.EOF) {
		return metaPage{}, err
	} else if n < len(pages) {
		return metaPage{}, fmt.Errorf("%w: it has %d bytes, a store has at least %d", ErrUnreadable, n, len(pages))
	}
	meta, ok := readMeta(pages[:pageSize])
	if second, valid := readMeta(pages[pageSize:]); valid && (!ok || second.tx > meta.tx) {
		meta, ok = second, true
	}
	if !ok {
		return metaPage{}, fmt.Errorf("%w: neither of its two meta pages is valid", ErrUnreadable)
	}
	return meta, nil
}

// inspect refuses a file that bbolt would overwrite as empty or would read
// past its end (which no program survives), and searches one that was not closed
// cleanly.
func inspect(path string, readOnly bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	meta, err := newestMeta(f)
	if err != nil {
		return err
	}
	// The size is taken after the meta page: a store in use grows in between.
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if need := int64(meta.end) * pageSize; info.Size() < need {
		return fmt.Errorf("%w: it is cut short, %d bytes of %d", ErrUnreadable, info.Size(), need)
	}
	if meta.freelist != noFreelist || readOnly {
		return nil
	}
	return search(path, f, int64(meta.end)*pageSize)
}

// search does what opening a file for writing will do when it looks for free
// pages, where damage can still be told. It reads the pages in use from front to
// back before: in the order of the tree that takes twenty times as long from a
// cold disk. It holds bbolt's lock, so that a store in use is not read for
// nothing.
func search(path string, f *os.File, used int64) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: lockWait})
	if err != nil {
		return openError(err)
	}
	_, err = io.Copy(io.Discard, io.NewSectionReader(f, 0, used))
	if err == nil {
		err = checkTree(f)
	}
	return errors.Join(err, db.Close())
}
