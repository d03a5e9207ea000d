package api

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"semel/engine"
	"semel/storage"
)

// Verify implements Service. The look itself cannot be cut short.
func (l *Local) Verify(_ context.Context, fn func(Breach) error) (VerifyResult, error) {
	breaches, err := l.Store.Check()
	if err != nil {
		return VerifyResult{}, fmt.Errorf("verifying the store: %w", err)
	}
	result := VerifyResult{Breaches: len(breaches)}
	for _, b := range breaches {
		if err := fn(Breach{b.Bucket, hex.EncodeToString(b.Key), b.What}); err != nil {
			return result, err
		}
	}
	return result, nil
}

// Checksums implements Service.
func (l *Local) Checksums(context.Context) (map[string]SourceSum, error) {
	sums := map[string]SourceSum{}
	err := l.Store.View(func(tx *storage.Tx) error {
		sources, err := tx.Sources()
		for _, s := range sources {
			sums[s.Name] = SourceSum{}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	checksums, err := l.Store.Checksums()
	for _, c := range checksums {
		sums[c.Source] = SourceSum{Rows: c.Rows, Checksum: c.SHA256}
	}
	return sums, err
}

// VerifyTwice implements Service.
func (l *Local) VerifyTwice(ctx context.Context, source string, fn func(Unlike) error) (result TwiceResult, err error) {
	if l.Config.Source(source) == nil {
		return result, fmt.Errorf("%w %q: its rules are needed", ErrUnknownSource, source)
	}
	scratch, remove, err := openScratch()
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	replay, err := l.Replay(ctx, source, scratch)
	if err != nil {
		return result, fmt.Errorf("reading the pages of %s again: %w", source, err)
	}
	for _, u := range replay.Unlike {
		if err := fn(Unlike(u)); err != nil {
			return result, err
		}
	}
	result = TwiceResult{Pages: replay.Pages, Rows: replay.Rows, Unlike: len(replay.Unlike), Missing: replay.Missing}
	sums, err := scratch.Checksums()
	for _, c := range sums {
		result.Checksum = c.SHA256
	}
	return result, err
}

// openScratch makes an empty store in a temporary folder; remove ends both.
func openScratch() (scratch *storage.Store, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "semel-scratch-")
	if err != nil {
		return nil, nil, err
	}
	scratch, err = storage.Open(filepath.Join(dir, "scratch.db"), storage.Options{NoSync: true, Gather: engine.Gather})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return scratch, func() error { return errors.Join(scratch.Close(), os.RemoveAll(dir)) }, nil
}

// Backup implements Service.
func (l *Local) Backup(_ context.Context, path string) (BackupResult, error) {
	if !filepath.IsAbs(path) {
		return BackupResult{}, badRequest("a backup needs an absolute path (got %q)", path)
	}
	done, err := l.Store.Backup(path)
	if err != nil {
		return BackupResult{}, fmt.Errorf("backing up to %s: %w", path, err)
	}
	return BackupResult{Path: path, Bytes: done.Bytes, Segments: done.Segments, PagesBytes: done.Pages}, nil
}
