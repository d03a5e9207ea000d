package storage_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests and wants no goroutine left behind, or is a child
// of the tests that kill one.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashStore); path != "" {
		crashChild(path)
	}
	if path := os.Getenv(compactStore); path != "" {
		compactChild(path)
	}
	goleak.VerifyTestMain(m)
}
