package storage

import "syscall"

// fullErrors are ERROR_DISK_FULL, ERROR_HANDLE_DISK_FULL and
// ERROR_DISK_QUOTA_EXCEEDED.
var fullErrors = []syscall.Errno{112, 39, 1295}
