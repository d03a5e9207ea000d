package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// uncleanFile is a store without a list of free pages, with branches in it.
func uncleanFile(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "semel.db")
	s, err := Open(path, Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Update(t.Context(), func(tx *Tx) error {
		for i := range 500 {
			if _, err := tx.EnqueueJob(newJob(fmt.Sprint("target", i))); err != nil {
				return err
			}
		}
		return nil
	})
	file, readErr := os.ReadFile(path)
	if err := errors.Join(err, readErr, s.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

// findPage is the first page of a kind in the tree of a file, other than its
// root.
func findPage(t *testing.T, file []byte, kind uint16) uint64 {
	t.Helper()
	meta, err := newestMeta(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	tree := &tree{file: bytes.NewReader(file), seen: make([]bool, meta.end)}
	if err := tree.page(meta.root, keyRange{}); err != nil {
		t.Fatal(err)
	}
	for id, seen := range tree.seen {
		if seen && uint64(id) != meta.root && binary.LittleEndian.Uint16(file[id*pageSize+8:]) == kind {
			return uint64(id)
		}
	}
	t.Fatalf("no page of kind %d", kind)
	return 0
}

// swap exchanges the places of two neighbouring elements of a leaf.
func swap(a, b []byte) {
	var first [elementLength]byte
	copy(first[:], a)
	copy(a[:elementLength], b)
	copy(b, first[:])
	binary.LittleEndian.PutUint32(a[4:], binary.LittleEndian.Uint32(a[4:])+elementLength)
	binary.LittleEndian.PutUint32(b[4:], binary.LittleEndian.Uint32(b[4:])-elementLength)
}

// TestCheckTree: whatever bbolt would die of is told instead.
func TestCheckTree(t *testing.T) {
	whole := uncleanFile(t)
	branch, leaf := findPage(t, whole, branchPage), findPage(t, whole, leafPage)
	meta, err := newestMeta(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	u16, u32, u64 := binary.LittleEndian.PutUint16, binary.LittleEndian.PutUint32, binary.LittleEndian.PutUint64
	bucket := func(page []byte) []byte { // the first one in the root
		return page[pageHeader+binary.LittleEndian.Uint32(page[20:])+binary.LittleEndian.Uint32(page[24:]):]
	}
	for name, c := range map[string]struct {
		page   uint64
		damage func(page []byte)
		want   string
	}{
		"another page":           {leaf, func(p []byte) { u64(p, branch) }, "says that it is page"},
		"ends behind all":        {leaf, func(p []byte) { u32(p[12:], 1<<20) }, "and ends with page"},
		"runs into the next":     {leaf, func(p []byte) { u32(p[12:], uint32(meta.end-1-leaf)) }, "in its tree twice"},
		"no kind":                {leaf, func(p []byte) { u16(p[8:], 0) }, "its kind is 0x0"},
		"too many elements":      {leaf, func(p []byte) { u16(p[10:], 1<<15) }, "it has 32768 elements"},
		"empty branch":           {branch, func(p []byte) { u16(p[10:], 0) }, "it has 0 elements"},
		"long key":               {branch, func(p []byte) { u32(p[20:], 1<<31) }, "element 0 ends behind its page"},
		"circle":                 {branch, func(p []byte) { u64(p[24:], branch) }, "in its tree twice"},
		"child out of the file":  {branch, func(p []byte) { u64(p[24:], 1<<40) }, "page 1099511627776 of"},
		"child is a meta page":   {branch, func(p []byte) { u64(p[24:], 1) }, "page 1 of"},
		"long value":             {leaf, func(p []byte) { u32(p[28:], 1<<31) }, "element 0 ends behind its page"},
		"key of another place":   {leaf, func(p []byte) { p[pageHeader+binary.LittleEndian.Uint32(p[20:])] = 0xff }, "the key of element 0 is out of order"},
		"keys out of order":      {leaf, func(p []byte) { swap(p[pageHeader:], p[pageHeader+elementLength:]) }, "is out of order"},
		"short bucket":           {meta.root, func(p []byte) { u32(p[28:], 8) }, "a bucket of 8 bytes"},
		"bucket without a page":  {meta.root, func(p []byte) { u32(p[28:], 16); u64(bucket(p), 0) }, "a bucket without a page"},
		"bucket with a bad page": {meta.root, func(p []byte) { u64(bucket(p), leaf+1<<30) }, "is in its tree"},
	} {
		t.Run(name, func(t *testing.T) {
			file := bytes.Clone(whole)
			c.damage(file[c.page*pageSize:])
			if err := checkTree(bytes.NewReader(file)); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			path := filepath.Join(t.TempDir(), "semel.db")
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path, Options{NoSync: true}); !errors.Is(err, ErrUnreadable) {
				t.Errorf("opening: %v", err)
			}
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, file) {
				t.Errorf("opening has changed the file (%v)", err)
			}
		})
	}
}
