//go:build !windows

package storage

import "syscall"

// fullErrors are what a system answers to a write where there is no room.
var fullErrors = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}
