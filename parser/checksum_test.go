package parser

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
)

// checksumFile has a line for each version of the rules that pages have been
// read by here: what they are, the version, and the SHA-256 of what they gave.
const checksumFile = "testdata/checksums.txt"

// keepsChecksum holds that rules of one version give the same bytes for ever,
// since records in stores say that version. A change is a new version: -update
// adds its checksum, and changes none that is there.
func keepsChecksum(t *testing.T, what string, version int, output []byte) {
	t.Helper()
	if err := addChecksum(checksumFile, fmt.Sprintf("%s v%d", what, version), output, *update); err != nil {
		t.Error(err)
	}
}

func addChecksum(file, name string, output []byte, update bool) error {
	sum := sha256.Sum256(output)
	line := name + " " + hex.EncodeToString(sum[:]) + "\n"
	sums, err := os.ReadFile(file)
	switch {
	case err != nil && !os.IsNotExist(err):
		return err
	case bytes.Contains(append([]byte("\n"), sums...), []byte("\n"+line)):
		return nil
	case bytes.Contains(append([]byte("\n"), sums...), []byte("\n"+name+" ")):
		return fmt.Errorf("%s gives other bytes than this version did: take the change back, or give the rules a new version", name)
	case !update:
		return fmt.Errorf("%s has no checksum yet: go test -update adds it", name)
	}
	return os.WriteFile(file, append(sums, line...), 0o644)
}

func TestChecksums(t *testing.T) {
	for _, g := range goldens() {
		rules := mustCompile(t, g.spec)
		out, err := rules.Parse(g.input(t))
		if err != nil {
			t.Fatal(err)
		}
		keepsChecksum(t, g.file, rules.Version(), []byte(out.text()))
	}
}

// TestChecksumsStay: no way leads to another checksum of the same version.
func TestChecksumsStay(t *testing.T) {
	file := t.TempDir() + "/checksums.txt"
	for _, step := range []struct {
		name, output string
		update       bool
		want         string
	}{
		{"a v1", "one", false, "has no checksum yet"},
		{"a v1", "one", true, ""},
		{"a v1", "one", false, ""},
		{"a v1", "two", false, "gives other bytes"},
		{"a v1", "two", true, "gives other bytes"},
		{"a v11", "two", true, ""},
		{"a v2", "two", true, ""},
		{"a v1", "one", true, ""},
	} {
		err := addChecksum(file, step.name, []byte(step.output), step.update)
		if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("%+v: %v", step, err)
		}
	}
	if sums, err := os.ReadFile(file); err != nil || bytes.Count(sums, []byte("\n")) != 3 {
		t.Errorf("the checksums are %q, %v", sums, err)
	}
}
