package storage

import "io"

// Schema is what this program writes, for the name of a saved store.
const Schema = schema

// SnapshotTo is the part of a backup that holds a snapshot.
func (s *Store) SnapshotTo(w io.Writer) error {
	_, _, err := s.snapshotTo(w)
	return err
}
