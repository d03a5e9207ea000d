package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"semel/storage"
)

// replacement writes files of one folder under other names, and gives them
// their own when all are whole and durable. Until then what was there stands.
type replacement struct {
	files []replacing
}

type replacing struct {
	temp *os.File
	path string
}

// create opens a file that is to become the one at path.
func (r *replacement) create(path string) (*os.File, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("writing %s: it is not a regular file", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	// Not os.CreateTemp: its files are the owner's alone, whatever umask says.
	name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%s.tmp", filepath.Base(path), rand.Text()[:8]))
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err == nil && info != nil { // who may read it stays as it was
		err = file.Chmod(info.Mode().Perm())
	}
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	r.files = append(r.files, replacing{file, path})
	return file, nil
}

// commit makes the files durable and then gives them their names.
func (r *replacement) commit() error {
	for _, f := range r.files {
		if err := errors.Join(f.temp.Sync(), f.temp.Close()); err != nil {
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
	}
	for len(r.files) > 0 {
		f := r.files[0]
		if err := os.Rename(f.temp.Name(), f.path); err != nil {
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
		r.files = r.files[1:]
		if err := storage.SyncDir(filepath.Dir(f.path)); err != nil {
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
	}
	return nil
}

// discard removes what commit has not named.
func (r *replacement) discard() error {
	var errs []error
	for _, f := range r.files {
		_ = f.temp.Close()
		errs = append(errs, os.Remove(f.temp.Name()))
	}
	r.files = nil
	return errors.Join(errs...)
}
