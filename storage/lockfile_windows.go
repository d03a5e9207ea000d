package storage

import "os"

// LockFile always finds a file free: a lock of this system would keep readers
// away, too.
func LockFile(*os.File) (free bool, err error) { return true, nil }
