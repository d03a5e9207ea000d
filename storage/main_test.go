package storage_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests and wants no goroutine left behind, or is the child
// of the crash test.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashStore); path != "" {
		crashChild(path)
	}
	goleak.VerifyTestMain(m)
}
