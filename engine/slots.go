package engine

import "context"

// slots are places for as many at a time as its capacity says.
type slots chan struct{}

// take waits for a place, unless ctx ends before; then also where one is free,
// or chance would decide.
func (s slots) take(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// free gives a place back.
func (s slots) free() { <-s }
