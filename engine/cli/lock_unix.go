//go:build unix

package cli

import (
	"errors"
	"os"
	"syscall"
)

// lock takes a file for this process until it is closed, and reports whether it
// was free.
func lock(file *os.File) (free bool, err error) {
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
