package storage

import "testing"

// TestKeepPageBounds: what could not be read again is not kept.
func TestKeepPageBounds(t *testing.T) {
	if k := KeepPage(make([]byte, maxPage+1)); k != nil { // memory that is never touched
		t.Errorf("a page of %d bytes is kept", maxPage+1)
	}
}
