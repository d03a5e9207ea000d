package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"semel/engine/api"
	"semel/engine/config"
	"semel/failpoint"
	"semel/storage"
)

// checkAppend wants --append alone, but for --data-only.
func checkAppend(r api.ExportRequest, path string) error {
	const alone = "a file that is appended to gets every change as it comes: export with a window, the latest or a table to another file"
	switch {
	case path == "", path == "-":
		return usage("say -o FILE", "--append needs a file")
	case r.Window != "":
		return usage(alone, "--append does not go with --window")
	case r.Latest:
		return usage(alone, "--append does not go with --latest")
	case r.Format != api.FormatJSONL:
		return usage(alone, "--append does not go with --format %s", r.Format)
	}
	return nil
}

// appendFile is export --append.
func (a *app) appendFile(ctx context.Context, r api.ExportRequest, path string) func(*config.Config, api.Service) error {
	return func(c *config.Config, service api.Service) (err error) {
		if path, err = truePath(path); err != nil {
			return err
		}
		if err := refuseOwnFiles(c, path, path+manifestSuffix); err != nil {
			return err
		}
		f := &growing{service: service, request: r, path: path}
		defer func() { err = errors.Join(err, f.close()) }()
		rows, err := f.grow(ctx, a.notef)
		if err != nil {
			return exportFault(c, r.Source, err)
		}
		if a.json {
			return a.line(f.manifest())
		}
		a.notef("appended %s to %s", count(rows, "line"), path)
		return nil
	}
}

// truePath is the one name by which the store knows a file: absolute, without
// links, whether the file is there or not.
func truePath(path string) (string, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("writing %s: %w", path, err)
	}
	if file, err := filepath.EvalSymlinks(full); err == nil {
		return file, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(full))
	if err != nil {
		return "", fmt.Errorf("writing %s: %w", path, err)
	}
	return filepath.Join(dir, filepath.Base(full)), nil
}

// growing is a file to which the changes of a source are appended. A page of
// them is written, synced and then acknowledged by moving the file's cursor in
// the store: whenever the process dies, the file holds what is acknowledged and
// perhaps more, which the next one cuts off and writes again. The manifest goes
// before the file changes, and comes again when it is done.
type growing struct {
	service api.Service
	request api.ExportRequest
	path    string

	at   *api.FileCursor // as the store has it
	sum  hash.Hash       // of the file up to there
	file *os.File
}

// grow appends all that is new, and gives how many lines that was.
func (f *growing) grow(ctx context.Context, notef func(string, ...any)) (rows int, err error) {
	if err := f.find(ctx, notef); err != nil {
		return 0, err
	}
	if err := f.open(ctx); err != nil {
		return 0, err
	}
	if err := f.repair(notef); err != nil {
		return 0, err
	}
	for {
		page, err := f.service.Changes(ctx, api.ChangesRequest{
			Source: f.request.Source, Cursor: f.at.Cursor, Limit: api.MaxChanges, DataOnly: f.request.DataOnly,
		})
		if err != nil {
			return rows, err
		}
		if page.Rows == 0 {
			return rows, f.writeManifest()
		}
		if err := f.add(ctx, page); err != nil {
			return rows, fmt.Errorf("appending to %s: %w", f.path, err)
		}
		rows += page.Rows
	}
}

// find reads the file's cursor, and begins one where there is none. A file that
// somebody else has written is not touched.
func (f *growing) find(ctx context.Context, notef func(string, ...any)) (err error) {
	if f.at, err = f.service.FileCursor(ctx, f.request.Source, f.path); err != nil {
		return err
	}
	info, err := os.Stat(f.path)
	missing := errors.Is(err, fs.ErrNotExist)
	ours := f.at != nil && (f.at.Bytes > 0 || !f.hasManifest())
	switch {
	case err != nil && !missing:
		return fmt.Errorf("writing %s: %w", f.path, err)
	case !missing && !info.Mode().IsRegular():
		return fmt.Errorf("writing %s: it is not a regular file", f.path)
	case !ours && !missing && info.Size() > 0:
		return f.fault("%s is there, and --append has not written it", f.path)
	case f.at == nil:
		return f.move(ctx, api.FileCursor{DataOnly: f.request.DataOnly})
	case f.at.Bytes == 0 || !missing:
		return nil
	case f.hasManifest():
		return f.fault("%s is gone, to which %d lines were appended", f.path, f.at.Rows)
	}
	notef("%s and its manifest are gone: all is written anew", f.path)
	return f.move(ctx, api.FileCursor{DataOnly: f.request.DataOnly})
}

// fault is an error of a file that is not what was written.
func (f *growing) fault(format string, args ...any) error {
	return &fault{exitFailed, fmt.Errorf(format, args...), fmt.Sprintf("give another file, or remove this one and %s to write all anew", filepath.Base(f.path+manifestSuffix))}
}

func (f *growing) hasManifest() bool {
	_, err := os.Lstat(f.path + manifestSuffix)
	return err == nil
}

// open opens the file for this process alone, and its sum where the cursor has it.
func (f *growing) open(ctx context.Context) (err error) {
	if f.file, err = os.OpenFile(f.path, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return fmt.Errorf("writing %s: %w", f.path, err)
	}
	free, err := storage.LockFile(f.file)
	if err == nil && !free {
		return &fault{exitFailed, fmt.Errorf("another process appends to %s", f.path), "run this one again when that has ended"}
	}
	if err == nil {
		err = storage.SyncDir(filepath.Dir(f.path))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", f.path, err)
	}
	if f.at, err = f.service.FileCursor(ctx, f.request.Source, f.path); err != nil { // where another process has left it
		return err
	}
	if f.at.DataOnly != f.request.DataOnly {
		return usage("give another file", "%s was begun with --data-only=%t", f.path, f.at.DataOnly)
	}
	f.sum = sha256.New()
	if len(f.at.Sum) > 0 {
		if err := f.sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(f.at.Sum); err != nil {
			return fmt.Errorf("reading the cursor of %s: %w", f.path, err)
		}
	}
	return nil
}

// repair compares the file with its cursor, and cuts off what was not
// acknowledged.
func (f *growing) repair(notef func(string, ...any)) error {
	info, err := f.file.Stat()
	if err != nil {
		return fmt.Errorf("reading %s: %w", f.path, err)
	}
	size, written := info.Size(), int64(f.at.Bytes)
	if size < written {
		return f.fault("%s has %d bytes, and %d were written", f.path, size, written)
	}
	tail, err := f.tail(f.at.Bytes)
	switch {
	case err != nil:
		return fmt.Errorf("reading %s: %w", f.path, err)
	case written > 0 && !bytes.Equal(tail, f.at.Tail):
		return f.fault("%s has other bytes before byte %d than were written", f.path, written)
	case size == written:
		return nil
	}
	notef("%d bytes at the end of %s were never acknowledged: they are cut off, and what belongs there is written again", size-written, f.path)
	return errors.Join(f.removeManifest(), f.file.Truncate(written))
}

// tailBytes is how much of a file's end is compared.
const tailBytes = 4 << 10

// tail is the SHA-256 of the file's last bytes before an end.
func (f *growing) tail(end uint64) ([]byte, error) {
	n := min(int64(end), tailBytes)
	sum := sha256.New()
	_, err := io.Copy(sum, io.NewSectionReader(f.file, int64(end)-n, n))
	return sum.Sum(nil), err
}

// add appends a page, and acknowledges it once it is durable.
func (f *growing) add(ctx context.Context, page api.Changes) error {
	if err := f.removeManifest(); err != nil {
		return err
	}
	_, err := f.file.WriteAt(page.Lines, int64(f.at.Bytes))
	if err == nil {
		err = failpoint.At(failpoint.InAppend, f.path)
	}
	if err == nil {
		err = f.file.Sync()
	}
	if err == nil {
		err = failpoint.At(failpoint.AppendSynced, f.path)
	}
	if err != nil {
		return err
	}
	next, err := f.behind(page)
	if err != nil {
		return err
	}
	return f.move(ctx, next)
}

// behind is the cursor behind a page that is written.
func (f *growing) behind(page api.Changes) (next api.FileCursor, err error) {
	next = *f.at
	next.Cursor = page.Cursor
	next.Bytes += uint64(len(page.Lines))
	next.Rows += uint64(page.Rows)
	if first := page.FirstWindow; first != nil && (next.FirstWindow == nil || first.Before(*next.FirstWindow)) {
		next.FirstWindow = first
	}
	if last := page.LastWindow; last != nil && (next.LastWindow == nil || last.After(*next.LastWindow)) {
		next.LastWindow = last
	}
	f.sum.Write(page.Lines)
	if next.Sum, err = f.sum.(encoding.BinaryMarshaler).MarshalBinary(); err != nil {
		return next, err
	}
	next.Tail, err = f.tail(next.Bytes)
	return next, err
}

// move moves the file's cursor in the store.
func (f *growing) move(ctx context.Context, to api.FileCursor) error {
	err := f.service.MoveFileCursor(ctx, f.request.Source, api.FileMove{Path: f.path, From: f.at, To: to})
	if err == nil {
		f.at = &to
	}
	return err
}

func (f *growing) manifest() manifest {
	result := api.ExportResult{Rows: int(f.at.Rows), FirstWindow: f.at.FirstWindow, LastWindow: f.at.LastWindow}
	return newManifest(f.request, result, f.sum.Sum(nil))
}

// removeManifest keeps the manifest from standing beside another file than the
// one it describes.
func (f *growing) removeManifest() error {
	if !f.hasManifest() {
		return nil
	}
	return rename(f.path+manifestSuffix, func() error { return os.Remove(f.path + manifestSuffix) })
}

// writeManifest writes the manifest, unless it is there.
func (f *growing) writeManifest() (err error) {
	m := f.manifest()
	if old, err := os.ReadFile(f.path + manifestSuffix); err == nil && bytes.Equal(old, m.text()) {
		return nil
	}
	var files replacement
	defer func() { err = errors.Join(err, files.discard()) }()
	if err := m.create(&files, f.path); err != nil {
		return err
	}
	return files.commit()
}

func (f *growing) close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
