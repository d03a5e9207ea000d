package storage

import (
	"errors"
	"fmt"
)

// Errors of opening a store.
var (
	// ErrInUse: another process holds the store.
	ErrInUse = errors.New("store is in use by another process")
	// ErrUnreadable: the file is empty, cut short or not a store.
	ErrUnreadable = errors.New("store is unreadable")
	// ErrNewerSchema: a newer version of this program wrote the store.
	ErrNewerSchema = errors.New("store was written by a newer version of semel")
	// ErrOlderSchema: the store was opened for reading only and is of an older
	// version; opening it for writing migrates it.
	ErrOlderSchema = errors.New("store was written by an older version of semel")
	// ErrDamaged: a store or its copy contradicts itself; semel verify names
	// each place.
	ErrDamaged = errors.New("store is damaged")
	// ErrNotFound: there is no such job, source, event or file.
	ErrNotFound = errors.New("not found")
)

// Errors of using a store.
var (
	// ErrPageLost: the file that a kept page stands in is missing or damaged; the
	// store itself may be sound. The page is stored anew when it is collected again.
	ErrPageLost = errors.New("kept page is missing or damaged")
	// ErrStopped: a commit failed and its outcome is unknown, or the store was
	// closed. Nothing more is written until it is opened again.
	ErrStopped = errors.New("store has stopped")
	// ErrMoved: the store's file was moved, removed or replaced while it was in
	// use, so that nobody will find what is written to it.
	ErrMoved = errors.New("store was moved, removed or replaced while it was in use")
	// ErrFull: the disk has no room. Nothing of the transaction was written and
	// the store works on; the same update may be tried again.
	ErrFull = errors.New("no room on the disk of the store")
	// ErrLeaseLost: owner or generation no longer match, so the caller's
	// claim is over and nothing of its outcome was written. The method that
	// returns it has counted it; a caller that returns nil from Update keeps
	// the count.
	ErrLeaseLost = errors.New("lease lost")
	// ErrTransition: the state of the job, or of the event at its sink, does not
	// allow what was asked.
	ErrTransition = errors.New("transition not allowed")
	// ErrKeyReused: an idempotency key stands for another request.
	ErrKeyReused = errors.New("this key was used for another request")
	// ErrNotHeld: nothing of the run waits for a person.
	ErrNotHeld = errors.New("run is not held")
	// ErrKeyCollision: two long job keys share a hash.
	ErrKeyCollision = errors.New("job key collides with another one's hash")
)

// RecordError is a record that cannot be read: damage, named by place.
type RecordError struct {
	Bucket string
	Key    []byte
	Err    error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("reading bucket %s, key %x: %v", e.Bucket, e.Key, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }
