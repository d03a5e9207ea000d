package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// environment is what the secrets of testdata refer to.
var environment = map[string]string{
	"USER_SET": "fine", "TWO_LINES": "hunter1\nhunter2", "TWO_WORDS": "hunter1 hunter2",
	"HOOK": "whsec_aHVudGVyIGh1bnRlciBodW50ZXIgaHVudGVyIQ==", "HOOK_SHORT": "whsec_aHVudGVy", "HOOK_PLAIN": "aHVudGVyIGh1bnRlciBodW50ZXIgaHVudGVyIQ==",
}

// TestBroken loads each broken config and expects exactly the faults that its
// first lines state as "# want:LINE: …".
func TestBroken(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.toml")
	if err != nil || len(files) < 60 {
		t.Fatalf("found %d broken configs (%v), want at least 60", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".toml"), func(t *testing.T) {
			want := wantedFaults(t, file)
			c, err := Load(file, func(name string) string { return environment[name] })
			faults, ok := errors.AsType[Errors](err)
			if !ok {
				t.Fatalf("Load = %v, %v; want Errors", c, err)
			}
			if diff := cmp.Diff(want, strings.Split(faults.Error(), "\n")); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), "aHVudGVy") {
				t.Errorf("a secret is shown: %v", err)
			}
		})
	}
}

func wantedFaults(t *testing.T, file string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(content)) {
		text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "# want")
		if !ok {
			break
		}
		want = append(want, filepath.ToSlash(file)+text)
	}
	return want
}
