package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"time"
)

// Checksum stands for what one source has collected, and for nothing of how:
// two stores that came to the same observations have the same checksum,
// whatever was killed, retried or reordered on the way.
type Checksum struct {
	Source string
	Rows   int64
	SHA256 string // in hex
}

// Checksums gives the checksum of each source that has observations, in the
// order of their names. What is written meanwhile may or may not be in it.
//
// It is the SHA-256 of the source's rows, in the byte order of what is in their
// keys: record key, country, window, version, scope. Of each row it takes the
// text of the observation's key, the start of the observation's window (RFC
// 3339 in UTC, "" without one), "gone" or "", and the data, in this order and
// each after its length in bytes as a big-endian number of 8 bytes. It leaves
// out ids, attempts, revisions, the time of observation, the job's key, the
// page's URL and the version of the rules where that is not in the key.
func (s *Store) Checksums() ([]Checksum, error) {
	var c checksums
	for after, more := []byte(nil), true; more; more = after != nil {
		err := s.View(func(tx *Tx) (err error) {
			after, err = tx.entries(bucketObservation, after, c.row)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	c.end()
	return c.done, nil
}

// checksums is a walk over all observations.
type checksums struct {
	sum  hash.Hash
	now  Checksum // of the source at last
	done []Checksum
}

func (c *checksums) row(k, v []byte) (more bool, err error) {
	o, err := decodeObservation(k, v)
	if err != nil {
		return false, err
	}
	c.add(o)
	return true, nil
}

func (c *checksums) add(o *Observation) {
	if c.sum == nil || o.Key.Source != c.now.Source {
		c.end()
		c.sum, c.now = sha256.New(), Checksum{Source: o.Key.Source}
	}
	window, gone := "", ""
	if !o.Window.IsZero() {
		window = o.Window.UTC().Format(time.RFC3339)
	}
	if o.Gone {
		gone = "gone"
	}
	for _, part := range [][]byte{[]byte(o.Key.String()), []byte(window), []byte(gone), o.Data} {
		c.sum.Write(appendU64(nil, uint64(len(part))))
		c.sum.Write(part)
	}
	c.now.Rows++
}

// end closes the sum of a source.
func (c *checksums) end() {
	if c.sum != nil {
		c.now.SHA256 = hex.EncodeToString(c.sum.Sum(nil))
		c.done = append(c.done, c.now)
	}
}
