package storage

import (
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
// own, where nobody can recover.
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
	return t.page(meta.root)
}

// page checks a page and what is below it. No page is met twice, so that this
// ends and is no deeper than the tree.
func (t *tree) page(id uint64) error {
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
	if err := t.elements(page); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// elements checks the elements of a page, and what is below them.
func (t *tree) elements(page []byte) error {
	kind, count := binary.LittleEndian.Uint16(page[8:]), int(binary.LittleEndian.Uint16(page[10:]))
	if kind != branchPage && kind != leafPage {
		return fmt.Errorf("%w: its kind is %#x", ErrUnreadable, kind)
	}
	if pageHeader+count*elementLength > len(page) || kind == branchPage && count == 0 {
		return fmt.Errorf("%w: it has %d elements", ErrUnreadable, count)
	}
	for i := range count {
		at := pageHeader + i*elementLength
		element := page[at : at+elementLength]
		var err error
		if kind == branchPage {
			err = t.branch(element, page[at:])
		} else {
			err = t.leaf(element, page[at:])
		}
		if err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

// branch checks an element of a branch; rest is the page from there on.
func (t *tree) branch(element, rest []byte) error {
	key := uint64(binary.LittleEndian.Uint32(element)) + uint64(binary.LittleEndian.Uint32(element[4:]))
	if key > uint64(len(rest)) {
		return fmt.Errorf("%w: its key ends behind its page", ErrUnreadable)
	}
	return t.page(binary.LittleEndian.Uint64(element[8:]))
}

// leaf checks an element of a leaf; rest is the page from there on.
func (t *tree) leaf(element, rest []byte) error {
	value := uint64(binary.LittleEndian.Uint32(element[4:])) + uint64(binary.LittleEndian.Uint32(element[8:]))
	end := value + uint64(binary.LittleEndian.Uint32(element[12:]))
	if end > uint64(len(rest)) {
		return fmt.Errorf("%w: its value ends behind its page", ErrUnreadable)
	}
	if binary.LittleEndian.Uint32(element)&bucketElement == 0 {
		return nil
	}
	bucket := rest[value:end]
	if len(bucket) < bucketHeader {
		return fmt.Errorf("%w: a bucket of %d bytes", ErrUnreadable, len(bucket))
	}
	if root := binary.LittleEndian.Uint64(bucket); root != 0 {
		return t.page(root)
	}
	if bucket = bucket[bucketHeader:]; len(bucket) < pageHeader {
		return fmt.Errorf("%w: a bucket without a page", ErrUnreadable)
	}
	return t.elements(bucket)
}
