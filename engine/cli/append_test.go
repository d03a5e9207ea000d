package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"semel/storage"
)

// TestAppendTwiceAtOnce: of two processes that append to a file one is refused
// before it changes anything.
func TestAppendTwiceAtOnce(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there the cursor alone stops the second")
	}
	s, dir := startSite(t), t.TempDir()
	for name, content := range map[string]string{"semel.toml": s.fill(configText), "targets.csv": "n\n1\n2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runHere(t, dir, "run", "--once")
	path := filepath.Join(dir, "news.jsonl")
	held, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if free, err := storage.LockFile(held); err != nil || !free {
		t.Fatalf("%t, %v", free, err)
	}
	cmd := exec.Command("semel", "export", "pages", "-o", path, "--append")
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	err = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); err == nil || code != exitFailed || !strings.Contains(stderr.String(), "another process appends to ") {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
	if info, err := held.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("the file was written: %v, %v", info, err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	runHere(t, dir, "export", "pages", "-o", path, "--append")
	if text, err := os.ReadFile(path); err != nil || bytes.Count(text, []byte("\n")) != 2 {
		t.Errorf("%q, %v", text, err)
	}
}
