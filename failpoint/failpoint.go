// Package failpoint names the places where a test may let the disk fail or the
// process die. Outside of tests nothing is ever set, and a place costs one
// atomic load.
//
// It answers for the list of places. What is to happen at one is the business
// of the test that sets it; what an error there means is said by the place.
package failpoint

import "sync/atomic"

// Point is a place.
type Point string

const (
	// BeforeBegin: updates wait for a transaction that has not begun. An error
	// is what the disk said to the first read.
	BeforeBegin Point = "before begin"
	// BeforeCommit: a transaction is complete and nothing of it is written. An
	// error is what the disk said to the first write.
	BeforeCommit Point = "before commit"
	// AfterCommit: a transaction is durable and nobody knows. An error is what
	// the disk said to the last sync.
	AfterCommit Point = "after commit"
	// AppendPages: kept pages are about to be appended to their segment. An
	// error is what the disk said to the write.
	AppendPages Point = "append pages"
	// SyncPages: kept pages are appended and not synced. An error is what the
	// disk said to the sync.
	SyncPages Point = "sync pages"
	// CopyBackup: the store's part of a backup is copied and not synced.
	CopyBackup Point = "copy backup"
	// NameBackup: a backup is whole and checked, and has not its name yet.
	NameBackup Point = "name backup"
	// CopyCompact: the copy that compact makes is written and not synced.
	CopyCompact Point = "copy compact"
	// NameCompact: it is whole and compared, and has not the store's name yet.
	NameCompact Point = "name compact"
	// InExport: a part of an export has been handed to its file. An error is
	// what the disk said to it.
	InExport Point = "in export"
	// InAppend: rows have been appended to a file and not synced. An error is
	// what the disk said to that.
	InAppend Point = "in append"
	// AppendSynced: they are synced, and the file's cursor has not moved.
	AppendSynced Point = "append synced"
	// InReplace: new files are whole and durable, and one name is about to
	// change. An error is what the disk said to that.
	InReplace Point = "in replace"
	// AppendEvents: events are about to be appended to a sink's file. An error
	// is what the disk said to the write.
	AppendEvents Point = "append events"
	// SyncEvents: events are appended and not synced. An error is what the disk
	// said to the sync.
	SyncEvents Point = "sync events"
	// EventsSynced: events are durable in their file, and nobody knows.
	EventsSynced Point = "events synced"
	// CutEvents: what was appended in vain is about to be cut off. An error is
	// what the disk said to that.
	CutEvents Point = "cut events"
	// RotateEvents: a full file has its new name, and the next one is not begun.
	RotateEvents Point = "rotate events"
)

// Func decides what happens at a point in the work on the file at path: nil
// lets it go on, an error makes it fail. It need not return: a test may kill
// its process there.
type Func func(p Point, path string) error

var current atomic.Pointer[Func]

// Set makes fn decide in the whole process; nil: nothing happens any more.
func Set(fn Func) {
	if fn == nil {
		current.Store(nil)
		return
	}
	current.Store(&fn)
}

// At is called where the point is.
func At(p Point, path string) error {
	if fn := current.Load(); fn != nil {
		return (*fn)(p, path)
	}
	return nil
}
