package simulation

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"semel/failpoint"
	"semel/storage"
)

// errPowerOff is what a process meets that is dead and does not know it.
var errPowerOff = errors.New("the power is off")

// side is where, seen from a transaction, the power goes: before, and nothing
// of it is durable, or after, and all of it is and nobody was told.
type side string

const (
	before side = "before"
	after  side = "after"
)

// cut is the end of the disk at a boundary: that of the transaction after skip
// others that made a move of a kind, or any where kind is "". Nothing is
// written any more until the next life.
type cut struct {
	fault string // by its name in the table of coverage
	side  side
	kind  kind
	skip  int
	err   error // from now on: errPowerOff, and the process is dead, or what a disk says that has failed
}

// here reports whether the power goes at a transaction that makes these moves.
func (c *cut) here(kinds []kind) bool {
	for _, k := range kinds {
		if c.kind == "" || c.kind == k {
			c.skip--
			return c.skip < 0
		}
	}
	return false
}

// disk is the file of a world's store. It decides what happens at the store's
// failpoints, and keeps what was durable when the power went.
type disk struct {
	w    *world
	path string

	mu        sync.Mutex
	begun     int              // transactions of all lives
	full      bool             // there is no room
	lacked    bool             // there was none for a transaction of this life
	slow      bool             // each commit takes seconds
	badWrite  string           // the next write fails, by this name; "": it does not
	cut       *cut             // nil: none is to come
	copied    []byte           // the file before the commit that is under way, for a cut before it
	pageFault *pageFault       // nil: none is to come
	synced    map[string]int64 // files of kept pages, as far as they are durable

	off      error  // why nothing is written any more; nil: all is well
	durable  []byte // the file then
	extra    bool   // the file may hold more: a commit that was cut off
	powerOff func() // lets the process of this life die
}

// newDisk puts a copy of an empty store into a folder.
func newDisk(w *world, dir string, empty []byte) *disk {
	d := &disk{w: w, path: filepath.Join(dir, "semel.db")}
	err := errors.Join(os.RemoveAll(d.path+storage.PagesSuffix), os.WriteFile(d.path, empty, 0o600))
	if err != nil {
		w.failf("making the disk: %v", err)
	}
	return d
}

// at is the store's call at a failpoint.
func (d *disk) at(p failpoint.Point, path string) error {
	if path != d.path {
		return nil
	}
	switch p {
	case failpoint.BeforeBegin:
		return d.beforeBegin()
	case failpoint.BeforeCommit:
		return d.beforeCommit()
	case failpoint.AfterCommit:
		return d.afterCommit()
	case failpoint.AppendPages, failpoint.SyncPages:
		return d.keepPages(p)
	}
	return nil
}

// beforeBegin takes a moment, in which whatever happens at this instant comes
// to its end: so it is not the scheduler that chooses what a transaction holds.
func (d *disk) beforeBegin() error {
	d.mu.Lock()
	d.begun++
	n := d.begun
	d.mu.Unlock()
	time.Sleep(d.w.seed.until(time.Millisecond, "begin", n))
	err := d.failure()
	if err != nil && err != errPowerOff { // the store has been told, and what the kernel dropped it would not write again
		d.w.failf("a store goes on after its disk has failed")
	}
	return err
}

// failure is why nothing is written any more; nil: all is well.
func (d *disk) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.off
}

// beforeCommit takes the time of a commit, and fails one that has no room.
func (d *disk) beforeCommit() error {
	time.Sleep(d.commitTime())
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.off != nil:
		return d.off
	case d.full:
		d.lacked = true
		d.w.met("full disk")
		return &fs.PathError{Op: "write", Path: filepath.Base(d.path), Err: syscall.ENOSPC}
	case d.badWrite != "":
		d.w.met(d.badWrite)
		return d.end(d.read(nil), &fs.PathError{Op: "write", Path: filepath.Base(d.path), Err: syscall.EIO})
	case d.cut != nil && d.cut.side == before:
		d.copied = d.read(d.copied[:0])
	}
	return nil
}

func (d *disk) commitTime() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, n := d.w.seed, d.begun
	if d.slow {
		d.w.met("slow commits")
		return s.until(s.draw("slow commit", n).between(time.Second, 2*lease), "commit", n)
	}
	return s.until(s.draw("fast commit", n).between(0, 5*time.Millisecond), "commit", n)
}

// afterCommit shows the ledger what the transaction did. If the power is to go
// here, then with the transaction, or as if nothing of it had been written: the
// process gets the same error either way, for it cannot know.
func (d *disk) afterCommit() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.w.look()
	kinds := d.w.ledger.explain(next)
	c := d.cut
	if c == nil || !c.here(kinds) {
		d.w.ledger.enter(next)
		return nil
	}
	d.w.met(c.fault)
	d.w.coverage.ended(c.side, kinds)
	d.w.logf("the end comes %s it", c.side)
	if c.side == before {
		d.extra = true
		return d.end(d.copied, c.err)
	}
	d.w.ledger.enter(next)
	return d.end(d.read(nil), c.err)
}

// crash lets the power go between two transactions.
func (d *disk) crash(fault string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off == nil {
		d.w.met(fault)
		_ = d.end(d.read(nil), errPowerOff)
	}
}

// end keeps what is durable, and lets nothing be written any more. It wants mu
// held, and gives err.
func (d *disk) end(durable []byte, err error) error {
	d.off, d.durable, d.cut = err, durable, nil
	if err == errPowerOff {
		d.powerOff()
	}
	return err
}

// read copies the file into buf, as far as it holds anything: bbolt makes it
// larger than it needs, by a sparse tail that costs time to read.
func (d *disk) read(buf []byte) []byte {
	f, err := os.Open(d.path)
	if err != nil {
		d.w.failf("reading the disk: %v", err)
		return nil
	}
	defer f.Close()
	for {
		n := len(buf)
		buf = slices.Grow(buf, len(hole))[:n+len(hole)]
		got, err := io.ReadFull(f, buf[n:])
		if buf = buf[:n+got]; err != nil || bytes.Equal(buf[n:], hole[:]) {
			return buf
		}
	}
}

// hole is longer than any run of zeros before the end of what is used.
var hole [64 << 10]byte

// on begins a life.
func (d *disk) on(powerOff func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.powerOff = powerOff
	d.full, d.lacked, d.slow, d.badWrite, d.cut, d.pageFault, d.off, d.extra = false, false, false, "", nil, nil, nil, false
}

// set changes the disk under a running process.
func (d *disk) set(change func(*disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (d *disk) setFull(yes bool) { d.set(func(d *disk) { d.full = yes }) }
func (d *disk) setSlow(yes bool) { d.set(func(d *disk) { d.slow = yes }) }

func (d *disk) wasFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lacked
}

// settle ends a life: what was not durable is gone. A store that knew must have
// left the file alone.
func (d *disk) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off == nil {
		return
	}
	if !d.extra && !bytes.Equal(d.read(nil), d.durable) {
		d.w.failf("a store that had stopped wrote to its file")
	}
	if err := os.WriteFile(d.path, d.durable, 0o600); err != nil {
		d.w.failf("restoring the disk: %v", err)
	}
	d.tearPages()
}

// emptyStore is the file of a store that nobody has used.
func emptyStore(t *testing.T) []byte {
	path := filepath.Join(t.TempDir(), "semel.db")
	s, err := storage.Open(path, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return image
}
