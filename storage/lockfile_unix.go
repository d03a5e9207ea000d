//go:build unix

package storage

import (
	"errors"
	"os"
	"syscall"
)

// LockFile takes a file for this process until it is closed, and reports whether
// it was free. Only those that ask are kept away: everybody may read it.
func LockFile(file *os.File) (free bool, err error) {
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
