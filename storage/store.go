package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	// lockWait is how long Open waits for another process to let go; long
	// enough for a command that is just ending.
	lockWait = time.Second
	pageSize = 4096
	// mapSize is the address space mapped at least: remapping waits for all
	// readers, and a long one stalls every writer behind it (measured: 7.6 s
	// of an 8 s reader). It costs addresses, not memory.
	mapSize = 16 << 30
)

// Options of Open. The zero value opens for reading and writing.
type Options struct {
	// ReadOnly opens beside other readers and writes nothing; Update fails.
	ReadOnly bool
	// NoSync leaves out every fsync: for simulations only, a crash of the
	// machine then loses the store.
	NoSync bool
	// Gather is the least time between the beginnings of two transactions,
	// while more than one update comes in for each: fewer and fuller ones
	// write less, and leave the processor to callers that do not wait. 0 begins
	// each at once.
	Gather time.Duration
	// Now is the clock of all times that are stored; nil: time.Now. Tests let
	// it jump.
	Now func() time.Time
}

// Store is one open store file. It is safe for concurrent use.
type Store struct {
	path string
	db   *bolt.DB
	read bool
	file os.FileInfo // as it was opened

	segments *segments
	backups  sync.Mutex // one at a time: two may go to one name

	gather  time.Duration // see Options
	now     func() time.Time
	queue   chan *update  // to the writer
	stopped chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	closing bool
	failure error               // why the store has stopped
	ready   map[LaneID]struct{} // lanes that got ready jobs since TakeReady
	wake    chan struct{}       // one token when ready is not empty
	queued  map[string]uint64   // sinks for which events became pending since TakeQueued, with the first of these
	deliver chan struct{}       // one token when queued is not empty
	pending sync.WaitGroup      // Updates under way
}

// Open opens the store at path, creating it (mode 0600) unless ReadOnly.
// Errors: ErrInUse, ErrUnreadable, ErrNewerSchema, ErrNotFound (ReadOnly and
// no file), fs.ErrPermission, and those of the file system.
func Open(path string, opts Options) (*Store, error) {
	return open(path, "", opts)
}

// open is Open with the folder of kept pages anywhere; "": beside the file.
func open(path, pages string, opts Options) (*Store, error) {
	if err := prepare(path, opts.ReadOnly); err != nil {
		return nil, fmt.Errorf("opening store %s: %w", path, err)
	}
	var db *bolt.DB
	err := guard(func() (err error) {
		db, err = openFile(path, opts)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening store %s: %w", path, err)
	}
	if pages == "" { // by now the file is there, also where links lead to it
		pages = realPath(path) + PagesSuffix
	}
	if _, err := os.ReadDir(pages); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("opening store %s: its kept pages: %w", path, err), db.Close())
	}
	s := &Store{
		path: path, db: db, read: opts.ReadOnly,
		segments: &segments{dir: pages, store: path, noSync: opts.NoSync},
		gather:   opts.Gather, now: opts.Now,
		queue:   make(chan *update, 4*maxGroup),
		stopped: make(chan struct{}),
		ready:   map[LaneID]struct{}{},
		wake:    make(chan struct{}, 1),
		queued:  map[string]uint64{},
		deliver: make(chan struct{}, 1),
	}
	if s.now == nil {
		s.now = time.Now
	}
	if opts.ReadOnly {
		close(s.stopped)
		err = guard(func() error { return db.View(checkSchema) })
	} else {
		err = guard(func() error { return db.Update(migrate) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening store %s: %w", path, err), db.Close())
	}
	if s.file, err = os.Stat(path); err != nil {
		return nil, errors.Join(fmt.Errorf("opening store %s: %w", path, err), db.Close())
	}
	if !opts.ReadOnly {
		_ = os.Remove(compactName(path)) // of a Compact that was killed: it would hold the lock
		go s.write()
	}
	return s, nil
}

// realPath is the file that links lead to: what belongs to a store lies beside
// that, whatever name the store was opened by.
func realPath(path string) string {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		return file
	}
	return path
}

// prepare makes a missing store and refuses a file that bbolt would take for
// an empty store or read past its end.
func prepare(path string, readOnly bool) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && readOnly:
		return ErrNotFound
	case errors.Is(err, fs.ErrNotExist):
		return create(path)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%w: it is a folder", ErrUnreadable)
	}
	return inspect(path, readOnly)
}

// create makes an empty store beside path and links it into place, so that no
// other process ever sees a half-written one (bbolt's own first write of 16 KiB
// can be torn) and of two that create at once only one wins.
func create(path string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	name := tmp.Name()
	defer os.Remove(name)
	if err := tmp.Close(); err != nil {
		return err
	}
	db, err := bolt.Open(name, 0o600, &bolt.Options{Timeout: lockWait, PageSize: pageSize, NoFreelistSync: true})
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(migrate), db.Close()); err != nil {
		return err
	}
	if err := os.Link(name, path); err != nil && !errors.Is(err, fs.ErrExist) {
		// Some file systems have no links; renaming is the next best.
		if err := os.Rename(name, path); err != nil {
			return err
		}
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names that are new in a folder durable. Windows has no such
// call and needs none.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func openFile(path string, opts Options) (*bolt.DB, error) {
	options := &bolt.Options{
		Timeout:  lockWait,
		ReadOnly: opts.ReadOnly,
		PageSize: pageSize,
		// A synced freelist is written whole at every commit; after a purge
		// that is most of the writing. A clean Close writes it once.
		NoFreelistSync: true,
		FreelistType:   bolt.FreelistMapType,
		NoSync:         opts.NoSync,
	}
	if runtime.GOOS != "windows" { // there bbolt makes the file as large as the mapping
		options.InitialMmapSize = mapSize
	}
	var file *os.File
	options.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag, mode)
		if file == nil { // bbolt opens more of them later, for backups
			file = f
		}
		return f, err
	}
	db, err := bolt.Open(path, 0o600, options)
	if err != nil {
		return nil, openError(err)
	}
	switch named, err := hasName(file, path); {
	case err != nil:
		return nil, errors.Join(err, db.Close())
	case !named:
		if err := db.Close(); err != nil {
			return nil, err
		}
		return openFile(path, opts)
	}
	return db, nil
}

// hasName reports whether an open file still is the one at path. Compact gives
// the path to another file while it holds the lock: who has waited for that lock
// would then work on a file that nobody sees any more.
func hasName(file *os.File, path string) (bool, error) {
	opened, err := file.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(opened, named), err
}

func openError(err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return ErrInUse
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum):
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return err
}

// Path is the file the store was opened at.
func (s *Store) Path() string { return s.path }

// Moved is nil while the file that was opened stands at its path, else ErrMoved.
func (s *Store) Moved() error {
	now, err := os.Stat(s.path)
	if err == nil && os.SameFile(now, s.file) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("store %s: %w", s.path, ErrMoved)
}

// Close waits for queued updates and closes the file. A clean close writes the
// list of free pages, so that the next Open need not search for them.
func (s *Store) Close() error {
	s.mu.Lock()
	already := s.closing
	s.closing = true
	s.mu.Unlock()
	if already {
		return nil
	}
	s.pending.Wait()
	close(s.queue)
	<-s.stopped
	err := s.segments.close()
	failure := s.Err()
	if errors.Is(failure, ErrUnreadable) {
		return err // after a panic bbolt may keep its locks for ever, and Close would wait for them
	}
	if !s.read && failure == nil {
		s.db.NoFreelistSync = false
		listErr := guard(func() error { return s.db.Update(func(*bolt.Tx) error { return nil }) })
		if !noRoom(listErr) { // else the next Open searches for them
			err = errors.Join(err, listErr)
		}
	}
	return errors.Join(err, guard(s.db.Close))
}

// Err is the error that every call gives since the store has stopped, an
// ErrStopped that says why; nil while it works.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		return nil
	}
	return stoppedBy(s.failure)
}

// View runs fn on a consistent snapshot. Keep it short: while a snapshot is
// held, pages that writers replace cannot be used again and the file grows.
// Nothing fn gets from the Tx may be kept unless its doc says so. Error:
// ErrStopped, and fn's own.
func (s *Store) View(fn func(*Tx) error) error {
	return s.snapshot(func(b *bolt.Tx) error { return fn(newTx(b, s.now().UTC())) })
}

// snapshot is bbolt's View. After a commit of unknown outcome it shows nothing:
// what it would show may be gone after a restart.
func (s *Store) snapshot(fn func(*bolt.Tx) error) error {
	if err := s.Err(); err != nil {
		return err
	}
	err := guard(func() error { return s.db.View(fn) })
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrStopped
	}
	return err
}

// Update runs fn in the writer's next transaction and returns when that is
// durable, or with fn's error and nothing written. fn runs exactly once, or
// not at all (ErrStopped, or ctx done before it was queued); once queued, ctx
// no longer matters, for the outcome would be unknown. fn must not call the
// store, wait, or do I/O: every other writer waits for it.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	if s.read {
		return fmt.Errorf("updating %s: %w: opened for reading only", s.path, fs.ErrPermission)
	}
	s.mu.Lock()
	if s.closing || s.failure != nil {
		failure := s.failure
		s.mu.Unlock()
		return stoppedBy(failure)
	}
	s.pending.Add(1)
	s.mu.Unlock()
	defer s.pending.Done()

	u := &update{fn: fn, done: make(chan error, 1)}
	select {
	case s.queue <- u:
		return <-u.done
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Store) stop(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = err
	}
	return stoppedBy(s.failure)
}

func stoppedBy(failure error) error {
	if failure == nil {
		return ErrStopped
	}
	return fmt.Errorf("%w: %w", ErrStopped, failure)
}
