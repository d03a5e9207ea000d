package storage_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests and wants no goroutine left behind, or is the child
// of one of them.
func TestMain(m *testing.M) {
	for name, child := range map[string]func(path string){
		crashStore: crashChild, compactStore: compactChild, tornStore: tornChild, crashReplace: replaceChild,
	} {
		if path := os.Getenv(name); path != "" {
			child(path)
		}
	}
	goleak.VerifyTestMain(m)
}
