package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"semel/failpoint"
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

// abandoned is how long nothing was written to a temporary file of a process
// that is taken for dead: longer than a sync takes. Locks would tell sooner, but
// not on every system.
const abandoned = time.Hour

const tempSuffix = ".tmp"

func tempPrefix(path string) string { return "." + filepath.Base(path) + "." }

// followed is the file that links lead to: that one is to be replaced, and not
// the link.
func followed(path string) string {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		return file
	}
	return path
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
	clean(path, time.Now())
	// Not os.CreateTemp: its files are the owner's alone, whatever umask says.
	name := filepath.Join(filepath.Dir(path), tempPrefix(path)+rand.Text()[:8]+tempSuffix)
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

// commit makes the files durable and then gives them their names. Before that
// the old ones of all but the first go away: whenever the process dies, the
// first file stands alone or beside those that belong to it.
func (r *replacement) commit() error {
	for _, f := range r.files {
		if err := errors.Join(f.temp.Sync(), f.temp.Close()); err != nil {
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
	}
	for _, f := range r.files[1:] {
		err := rename(f.path, func() error { return os.Remove(f.path) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for len(r.files) > 0 {
		f := r.files[0]
		err := rename(f.path, func() error {
			err := os.Rename(f.temp.Name(), f.path)
			if err == nil {
				r.files = r.files[1:]
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rename changes what the name path stands for, and makes that durable.
func rename(path string, change func() error) error {
	err := failpoint.At(failpoint.InReplace, path)
	if err == nil {
		err = change()
	}
	if err == nil {
		err = storage.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// clean removes what earlier replacements of path have left that died. It
// cannot tell why one fails: the file that comes next would say so.
func clean(path string, now time.Time) {
	entries, _ := os.ReadDir(filepath.Dir(path))
	for _, e := range entries {
		ours := strings.HasPrefix(e.Name(), tempPrefix(path)) && strings.HasSuffix(e.Name(), tempSuffix)
		if info, err := e.Info(); ours && err == nil && now.Sub(info.ModTime()) > abandoned {
			_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
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
