package storage

import (
	"crypto/sha256"
	"encoding/binary"
	"io"

	bolt "go.etcd.io/bbolt"
)

// Schema is what this program writes, for the name of a saved store.
const Schema = schema

// SnapshotTo is the part of a backup that holds a snapshot.
func (s *Store) SnapshotTo(w io.Writer) error {
	_, _, err := s.snapshotTo(w)
	return err
}

// Fingerprint is the SHA-256 of all buckets, keys and values.
func (s *Store) Fingerprint() (sum [sha256.Size]byte, err error) {
	hash := sha256.New()
	add := func(b []byte) {
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		hash.Write(b)
	}
	err = s.snapshot(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			add(name)
			return b.ForEach(func(k, v []byte) error {
				add(k)
				add(v)
				return nil
			})
		})
	})
	return [sha256.Size]byte(hash.Sum(nil)), err
}

// Deliver notes that a sink has acknowledged some events.
func (tx *Tx) Deliver(sink string, seqs []uint64) error {
	ended := make([]Delivery, len(seqs))
	for i, seq := range seqs {
		ended[i] = Delivery{Event: seq, Outcome: OutcomeDelivered}
	}
	return tx.EndDeliveries(sink, ended)
}
