package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// A page begins with its own number (u64), its kind, its number of elements
// (u16 each) and how many pages follow that belong to it (u32). The elements
// come next, 16 bytes each: of a branch, the place and length of a key (u32
// each, the place counted from the element) and a child page (u64); of a leaf,
// flags, place, length of key and length of value (u32 each). The value of a
// bucket is its root page (u64), 0 when its one page comes with the value, and
// a sequence (u64).
const (
	pageHeader    = 16
	elementLength = 16
	bucketHeader  = 16
	branchPage    = 0x01
	leafPage      = 0x02
	bucketElement = 0x01
)

// tree walks all pages in use, and refuses what bbolt would die of when it
// searches a file for free pages or checks it: it does both in goroutines of its
// own, where nobody can recover, and the search does not outlive a fault that it
// finds itself.
type tree struct {
	file io.ReaderAt
	seen []bool // by page, as many as there are
}

// checkTree walks the newest state of a file that nobody writes to.
func checkTree(file io.ReaderAt) error {
	meta, err := newestMeta(file)
	if err != nil {
		return err
	}
	t := &tree{file: file, seen: make([]bool, meta.end)}
	return t.page(meta.root, keyRange{})
}

// page checks a page and what is below it, all keys of which lie in keys. No
// page is met twice, so that this ends and is no deeper than the tree.
func (t *tree) page(id uint64, keys keyRange) error {
	if id < 2 || id >= uint64(len(t.seen)) {
		return fmt.Errorf("%w: page %d of %d is in its tree", ErrUnreadable, id, len(t.seen))
	}
	page := make([]byte, pageSize)
	if _, err := t.file.ReadAt(page, int64(id)*pageSize); err != nil {
		return err
	}
	last := id + uint64(binary.LittleEndian.Uint32(page[12:]))
	if own := binary.LittleEndian.Uint64(page); own != id || last >= uint64(len(t.seen)) {
		return fmt.Errorf("%w: page %d says that it is page %d and ends with page %d", ErrUnreadable, id, own, last)
	}
	for i := id; i <= last; i++ {
		if t.seen[i] {
			return fmt.Errorf("%w: page %d is in its tree twice", ErrUnreadable, i)
		}
		t.seen[i] = true
	}
	if last > id {
		page = make([]byte, (last-id+1)*pageSize)
		if _, err := t.file.ReadAt(page, int64(id)*pageSize); err != nil {
			return err
		}
	}
	if err := t.elements(page, keys); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// elements checks the elements of a page, and what is below them.
func (t *tree) elements(page []byte, keys keyRange) error {
	kind, count := binary.LittleEndian.Uint16(page[8:]), int(binary.LittleEndian.Uint16(page[10:]))
	if kind != branchPage && kind != leafPage {
		return fmt.Errorf("%w: its kind is %#x", ErrUnreadable, kind)
	}
	if pageHeader+count*elementLength > len(page) || kind == branchPage && count == 0 {
		return fmt.Errorf("%w: it has %d elements", ErrUnreadable, count)
	}
	list := make([]element, count)
	for i := range list {
		var ok bool
		if list[i], ok = readElement(page, kind, pageHeader+i*elementLength); !ok {
			return fmt.Errorf("%w: element %d ends behind its page", ErrUnreadable, i)
		}
		if !keys.holds(list[i].key) || i > 0 && bytes.Compare(list[i-1].key, list[i].key) >= 0 {
			return fmt.Errorf("%w: the key of element %d is out of order", ErrUnreadable, i)
		}
	}
	for i, e := range list {
		err := error(nil)
		switch {
		case kind == branchPage && i+1 < count:
			err = t.page(e.child, keyRange{e.key, list[i+1].key})
		case kind == branchPage:
			err = t.page(e.child, keyRange{e.key, keys.to})
		case e.bucket:
			err = t.bucket(e.value)
		}
		if err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

// keyRange is where the keys below an element of a branch lie: from is one of
// them, to is not. Nil is no bound.
type keyRange struct{ from, to []byte }

func (r keyRange) holds(key []byte) bool {
	return bytes.Compare(r.from, key) <= 0 && (r.to == nil || bytes.Compare(key, r.to) < 0)
}

// element is one of a page; its slices are parts of it.
type element struct {
	key    []byte
	child  uint64 // of a branch
	value  []byte // of a leaf
	bucket bool   // the value is a bucket
}

// readElement reads the element at a place of a page; false: it does not fit.
func readElement(page []byte, kind uint16, at int) (e element, ok bool) {
	head := page[at : at+elementLength]
	u32 := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(head[i:])) }
	if kind == branchPage {
		start := uint64(at) + u32(0)
		end := start + u32(4)
		if end > uint64(len(page)) {
			return e, false
		}
		return element{key: page[start:end], child: binary.LittleEndian.Uint64(head[8:])}, true
	}
	start := uint64(at) + u32(4)
	middle := start + u32(8)
	end := middle + u32(12)
	if end > uint64(len(page)) {
		return e, false
	}
	return element{key: page[start:middle], value: page[middle:end], bucket: u32(0)&bucketElement != 0}, true
}

// bucket checks the bucket that a value stands for.
func (t *tree) bucket(value []byte) error {
	if len(value) < bucketHeader {
		return fmt.Errorf("%w: a bucket of %d bytes", ErrUnreadable, len(value))
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return t.page(root, keyRange{})
	}
	if value = value[bucketHeader:]; len(value) < pageHeader {
		return fmt.Errorf("%w: a bucket without a page", ErrUnreadable)
	}
	return t.elements(value, keyRange{})
}
