package storage

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// guard calls fn, and turns what bbolt does when it meets a damaged page (it
// panics, or reads memory that is not mapped) into ErrUnreadable. Other panics
// go on.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			if !fromDamage(p) {
				panic(p)
			}
			err = damaged(p)
		}
	}()
	return fn()
}

func damaged(p any) error {
	return fmt.Errorf("%w: a damaged page: %v", ErrUnreadable, p)
}

// fromDamage reports whether a panic that is being recovered comes from a
// damaged file: a fault of the mapped memory, or bbolt's own code. It must be
// called from the function that recovers.
func fromDamage(p any) bool {
	if _, fault := p.(interface{ Addr() uintptr }); fault {
		return true
	}
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	panicking := false
	for {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic":
			panicking = true
		case panicking && !strings.HasPrefix(frame.Function, "runtime."):
			return strings.HasPrefix(frame.Function, "go.etcd.io/bbolt")
		}
		if !more {
			return false
		}
	}
}
