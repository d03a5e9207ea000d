package storage

import (
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// referenceBatch is how many pages have their references counted at once: some
// 20 MB, and one walk over all attempts for each batch.
const referenceBatch = 1 << 18

// keptPages compares segments with their files, pages with their frames, byte
// by byte, and both with what is said of them elsewhere.
func (c *checker) keptPages() {
	segments := c.segmentsHere()
	live := map[uint32]uint64{}
	c.each(bucketPage, func(k, v []byte) {
		if len(k) != len(PageHash{}) {
			c.breach(bucketPage, k, "its key is not a SHA-256")
			return
		}
		p, err := decodePage(k, v)
		if err != nil {
			c.unreadable(bucketPage, k, err)
			return
		}
		live[p.segment] += uint64(p.size)
		c.keptPage(PageHash(k), p, segments)
	})
	for _, id := range slices.Sorted(maps.Keys(segments)) {
		if r := segments[id]; r.live != live[id] {
			c.breach(bucketSegment, segmentKey(id), "it says %d bytes in use, its pages take %d", r.live, live[id])
		}
	}
	c.references()
}

// segmentsHere reads the segments, each with its file; those without have no
// name.
func (c *checker) segmentsHere() map[uint32]segmentRecord {
	here := map[uint32]segmentRecord{}
	c.each(bucketSegment, func(k, v []byte) {
		if len(k) != 4 {
			c.breach(bucketSegment, k, "its key is not the number of a segment")
			return
		}
		r, err := decodeSegment(k, v)
		if err != nil {
			c.unreadable(bucketSegment, k, err)
			return
		}
		c.written(bucketSegment, k, v, r.encode())
		if what := c.fileFault(r); what != "" {
			c.breach(bucketSegment, k, "%s", what)
			r.name = ""
		}
		here[binary.BigEndian.Uint32(k)] = r
	})
	return here
}

// fileFault is what is wrong with a segment's file as a whole; "": nothing. One that
// no page stands in may be gone: its record goes when pages are collected.
func (c *checker) fileFault(r segmentRecord) string {
	if !segmentFile.MatchString(r.name) {
		return "it has no name of a segment"
	}
	if r.live == 0 {
		return ""
	}
	info, err := os.Stat(filepath.Join(c.files.dir, r.name))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "its file " + r.name + " is missing"
	case err != nil:
		return "its file cannot be read: " + err.Error()
	case uint64(info.Size()) < r.size:
		return "its file " + r.name + " is cut short"
	}
	return ""
}

// keptPage reads a page and compares it with its hash. That its segment is
// missing is told once for all of them.
func (c *checker) keptPage(h PageHash, p pagePlace, segments map[uint32]segmentRecord) {
	r, there := segments[p.segment]
	switch {
	case !there:
		c.breach(bucketPage, h[:], "there is no segment %d", p.segment)
	case p.offset+uint64(p.size) > r.size:
		c.breach(bucketPage, h[:], "it ends behind its segment %d", p.segment)
	case r.name != "":
		if _, err := c.files.read(r.name, p, h); err != nil {
			c.unreadable(bucketPage, h[:], err)
		}
	}
}

// references counts how many attempts name each page.
func (c *checker) references() {
	for w := c.walk(bucketPage); w.k != nil; {
		var batch []PageHash // in the order of the bucket
		said, named := map[PageHash]uint32{}, map[PageHash]uint32{}
		for ; w.k != nil && len(batch) < referenceBatch; w.next() {
			if p, err := decodePage(w.k, w.v); err == nil && len(w.k) == len(PageHash{}) {
				h := PageHash(w.k)
				batch = append(batch, h)
				said[h] = p.refs
			}
		}
		c.each(bucketAttempt, func(k, v []byte) {
			if a, err := decodeAttempt(k, v); err == nil {
				if _, ours := said[a.Page]; ours && !a.Page.IsZero() {
					named[a.Page]++
				}
			}
		})
		for _, h := range batch {
			if said[h] != named[h] {
				c.breach(bucketPage, h[:], "it says that %d attempts name it, %d do", said[h], named[h])
			}
		}
	}
}
