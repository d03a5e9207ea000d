package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"semel/failpoint"
	"semel/storage"
)

// FileBatch is how many events a File gets in one delivery at most: they share
// one sync.
const FileBatch = 256

// File is a Transport that appends events to a file, as JSON Lines. A batch is
// written at once and acknowledged once it is synced; one that fails is cut off
// again. What a dead process had written and not acknowledged is found at the end
// of the file and acknowledged as deduplicated, so that no event is there twice;
// one that a person sends again is appended again, unless it is found there.
//
// A File is for one delivery at a time. Writing to a disk cannot be interrupted:
// Deliver may outlast its context by that.
type File struct {
	path   string
	rotate int64
	log    *slog.Logger

	file *os.File        // nil: not open
	size int64           // of the part that is whole and durable
	torn bool            // there may be something behind that part, of a write that failed
	seen map[string]bool // ids that may come again: see remember; nil: it was never open
}

// NewFile is a File that begins a new file before one has more than some bytes;
// 0: never. A single batch that has more is not cut into two.
func NewFile(path string, rotate int64) *File {
	return &File{path: path, rotate: rotate, log: slog.New(slog.DiscardHandler)}
}

func (f *File) setLog(log *slog.Logger) { f.log = log }

// Ready says why there could be no such file now; nil: there could.
func (f *File) Ready() error {
	info, err := os.Stat(filepath.Dir(f.path))
	switch {
	case err != nil:
		return fmt.Errorf("its folder is missing (%w): make it first", err)
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", filepath.Dir(f.path))
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	file := f.file
	f.file = nil
	return file.Close()
}

// Deliver appends the events that the file does not have.
func (f *File) Deliver(ctx context.Context, events []*storage.Event) []Result {
	results := make([]Result, len(events))
	err := ctx.Err()
	if err == nil {
		err = f.ready()
	}
	if err != nil {
		return fill(results, Result{Outcome: storage.OutcomeAgain, Reason: err.Error()})
	}
	var lines []byte
	for i, e := range events {
		if f.seen[e.ID] {
			results[i].Outcome = storage.OutcomeDeduplicated
			continue
		}
		lines = append(AppendJSON(lines, e), '\n')
	}
	if len(lines) == 0 {
		return results
	}
	fill(results, f.append(lines))
	if ctx.Err() != nil { // nobody may have waited for these results
		f.remember(events, results)
	}
	return results
}

// remember keeps the ids of events that are in the file and will be sent again,
// besides those at its end when it was first opened.
func (f *File) remember(events []*storage.Event, results []Result) {
	for i, e := range events {
		if results[i].Outcome == storage.OutcomeDelivered {
			f.seen[e.ID] = true
		}
	}
}

// fill makes all results that are not there yet the same.
func fill(results []Result, with Result) []Result {
	for i := range results {
		if results[i].Outcome == "" {
			results[i] = with
		}
	}
	return results
}

// append makes lines durable in the file, or leaves it as it was.
func (f *File) append(lines []byte) Result {
	if f.rotate > 0 && f.size > 0 && f.size+int64(len(lines)) > f.rotate {
		if err := f.turn(); err != nil {
			return Result{Outcome: storage.OutcomeAgain, Reason: fmt.Sprintf("beginning a new file: %v", err)}
		}
	}
	err := f.write(lines)
	if err == nil {
		f.size += int64(len(lines))
		return Result{Outcome: storage.OutcomeDelivered}
	}
	f.torn = true
	if cutErr := f.cut(); cutErr != nil {
		return Result{Outcome: storage.OutcomeAmbiguous, Reason: fmt.Sprintf("%v; cutting it off again: %v", err, cutErr)}
	}
	return Result{Outcome: storage.OutcomeAgain, Reason: err.Error()}
}

func (f *File) write(lines []byte) error {
	if err := failpoint.At(failpoint.AppendEvents, f.path); err != nil {
		return err
	}
	if _, err := f.file.Write(lines); err != nil {
		return err
	}
	if err := failpoint.At(failpoint.SyncEvents, f.path); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	return failpoint.At(failpoint.EventsSynced, f.path)
}

// cut cuts off what stands behind the durable part. After a sync that failed the
// system may show bytes that no disk has: nothing may be written behind them, and
// nobody may find them again.
func (f *File) cut() error {
	err := failpoint.At(failpoint.CutEvents, f.path)
	if err == nil {
		err = f.file.Truncate(f.size)
	}
	if err == nil {
		err = f.file.Sync()
	}
	f.torn = err != nil
	return err
}

// ready has the file of this name open, ending where it was left.
func (f *File) ready() error {
	if f.file == nil {
		return f.open()
	}
	named := isNamed(f.file, f.path)
	if f.torn {
		if err := f.cut(); err != nil && named {
			return fmt.Errorf("cutting off what could not be appended: %w", err)
		}
	}
	info, err := f.file.Stat()
	switch {
	case !named:
		f.log.Info("the file was moved or deleted: it is begun anew", "file", f.path)
	case err != nil || info.Size() != f.size:
		f.log.Warn("the file was changed by somebody else", "file", f.path)
	default:
		return nil
	}
	if err := f.Close(); err != nil {
		return err
	}
	return f.open()
}

// isNamed reports whether a name leads to a file that is open.
func isNamed(file *os.File, path string) bool {
	there, err := os.Stat(path)
	own, ownErr := file.Stat()
	return err == nil && ownErr == nil && os.SameFile(there, own)
}

// open opens the file for this process alone, makes durable what it finds there,
// and repairs its end.
func (f *File) open() (err error) {
	file, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if err := f.claim(file); err != nil {
		return err
	}
	end, err := readTail(file, tailLines)
	if err != nil {
		return err
	}
	if err := f.repair(file, end); err != nil {
		return err
	}
	if f.seen == nil {
		if err := f.recall(end.ids); err != nil {
			return err
		}
	}
	f.file, f.size, f.torn = file, end.whole, false
	return nil
}

// claim takes a file that was opened, and makes it and its name durable: what a
// dead process had written may be in the system's memory alone.
func (f *File) claim(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.path)
	}
	free, err := storage.LockFile(file)
	if err != nil {
		return fmt.Errorf("locking %s: %w", f.path, err)
	}
	if !free {
		return fmt.Errorf("another process writes to %s", f.path)
	}
	if !isNamed(file, f.path) {
		return fmt.Errorf("%s was moved while it was opened", f.path)
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return storage.SyncDir(filepath.Dir(f.path))
}

// turn gives the full file a name of its own and begins the next one.
func (f *File) turn() error {
	names, err := f.rotated()
	if err != nil {
		return err
	}
	next := f.rotatedName(1)
	if len(names) > 0 {
		next = f.rotatedName(names[len(names)-1] + 1)
	}
	if err := f.Close(); err != nil { // Windows renames no file that is open
		return err
	}
	if err := os.Rename(f.path, next); err != nil {
		return err
	}
	if err := failpoint.At(failpoint.RotateEvents, f.path); err != nil {
		return err
	}
	return f.open()
}

// rotatedName is that of the nth full file: names sort as they were filled.
func (f *File) rotatedName(n int) string { return fmt.Sprintf("%s.%06d", f.path, n) }

// rotated are the numbers of the full files that are still there, from the
// first on; none where others rotate the file, if anybody does.
func (f *File) rotated() (numbers []int, err error) {
	if f.rotate == 0 {
		return nil, nil
	}
	entries, err := os.ReadDir(filepath.Dir(f.path))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		suffix, ok := strings.CutPrefix(e.Name(), filepath.Base(f.path)+".")
		if n, err := strconv.Atoi(suffix); ok && err == nil && filepath.Base(f.rotatedName(n)) == e.Name() {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}
