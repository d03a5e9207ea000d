package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
)

// schedules wants every schedule to be of a source that is known.
func (c *checker) schedules() {
	c.each(bucketSchedule, func(k, v []byte) {
		s, err := decodeSchedule(string(k), v)
		if err != nil {
			c.unreadable(bucketSchedule, k, err)
			return
		}
		c.written(bucketSchedule, k, v, s.encode())
		c.rules(bucketSchedule, k,
			rule{c.tx.get(bucketSource, k) == nil, "it is of a source that is unknown"},
			rule{s.Since.IsZero(), "it has no beginning"},
		)
	})
}

// lists looks at kept lists: each has the chunks that it counts, and is wanted
// by runs that say so.
func (c *checker) lists() {
	var l *listCheck
	wanted := 0
	c.each(bucketList, func(k, v []byte) {
		switch {
		case len(k) < 8 || binary.BigEndian.Uint64(k) == 0:
			c.breach(bucketList, k, "its key does not begin with a number from 1")
			return
		case len(k) == 8:
			c.endList(l)
			l = c.beginList(k, v)
			return
		case l == nil || !bytes.HasPrefix(k, l.key):
			c.breach(bucketList, k, "it is of a list that is missing or cannot be read")
			return
		}
		switch {
		case k[8] == listChunk && len(k) == 13:
			c.listChunk(l, k, v)
		case k[8] == listRun && len(k) == 17:
			wanted++
			c.listRun(l, k, v)
		default:
			c.breach(bucketList, k, "its key is neither that of a chunk nor that of a run")
		}
	})
	c.endList(l)
	c.runsWithLists(wanted)
}

// listCheck is a list and what was seen of it.
type listCheck struct {
	*List
	key     []byte
	chunks  uint32
	targets uint64
	sum     hash.Hash
}

// beginList is nil for a list that cannot be read.
func (c *checker) beginList(k, v []byte) *listCheck {
	l, err := decodeList(tailID(k), v)
	if err != nil {
		c.unreadable(bucketList, k, err)
		return nil
	}
	c.see(listSequence, l.ID)
	c.written(bucketList, k, v, l.encode())
	c.rules(bucketList, k,
		rule{l.Source == "", "it is of no source"},
		rule{!slices.Contains(RunKinds, l.Kind), "its kind is unknown: " + string(l.Kind)},
		rule{!l.Whole && (l.Targets != 0 || l.Sum != [sha256.Size]byte{}), "it is not whole, and says what is in it"},
	)
	return &listCheck{List: l, key: bytes.Clone(k), sum: sha256.New()}
}

func (c *checker) listChunk(l *listCheck, k, v []byte) {
	if n := binary.BigEndian.Uint32(k[9:]); n != l.chunks {
		c.breach(bucketList, k, "the chunk before it is missing")
		l.chunks = n
	}
	l.chunks++
	plain, err := unpackChunk(v)
	if err != nil {
		c.unreadable(bucketList, k, err)
		return
	}
	targets, err := decodeTargets(plain)
	if err != nil {
		c.unreadable(bucketList, k, err)
		return
	}
	l.targets += uint64(len(targets))
	_, _ = l.sum.Write(plain) // a hash takes everything
}

func (c *checker) listRun(l *listCheck, k, v []byte) {
	r, err := c.tx.Run(tailID(v))
	switch {
	case len(v) != 8 || isNotFound(err):
		c.breach(bucketList, k, "it leads to no run")
	case err != nil:
		c.breach(bucketList, k, "run %d cannot be read", tailID(v))
	case r.List != l.ID || !r.Listing:
		c.breach(bucketList, k, "run %d does not want this list", r.ID)
	case r.Key.Source != l.Source || !bytes.Equal(k, listRunKey(l.ID, r.Key.Window)):
		c.breach(bucketList, k, "run %d is of another source or window", r.ID)
	case r.Made > uint64(l.Chunks):
		c.breach(bucketList, k, "run %d has made %d of its %d chunks", r.ID, r.Made, l.Chunks)
	}
}

func (c *checker) endList(l *listCheck) {
	if l == nil {
		return
	}
	c.rules(bucketList, l.key,
		rule{l.Chunks != l.chunks, "it does not have the chunks that it counts"},
		rule{l.Whole && (l.Targets != l.targets || !bytes.Equal(l.Sum[:], l.sum.Sum(nil))), "its targets are not those that were read"},
	)
}

// runsWithLists looks for runs that want a list which does not know of them,
// unless there are just as many as lists know of.
func (c *checker) runsWithLists(known int) {
	c.each(bucketRun, func(k, v []byte) {
		if r, err := decodeRun(tailID(k), v); err == nil && r.List != 0 {
			known--
		}
	})
	if known == 0 {
		return
	}
	c.each(bucketRun, func(k, v []byte) {
		r, err := decodeRun(tailID(k), v)
		if err == nil && r.List != 0 && !bytes.Equal(c.tx.get(bucketList, listRunKey(r.List, r.Key.Window)), k) {
			c.breach(bucketRun, k, "it wants list %d, which does not know of it", r.List)
		}
	})
}
