package cli

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// child is a semel that runs in a process of its own.
type child struct {
	*exec.Cmd
	lines <-chan string // of stderr
}

// startChild runs semel in a folder with targets that the site holds.
func startChild(t *testing.T, s *site, dir string, args ...string) *child {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("windows has no signals to send")
	}
	path, err := exec.LookPath("semel")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return &child{cmd, lines}
}

func (c *child) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := c.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// awaitLine waits for a line of stderr that holds text.
func (c *child) awaitLine(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case line, ok := <-c.lines:
			if strings.Contains(line, text) {
				return
			}
			if !ok {
				t.Fatalf("it ended without saying %q", text)
			}
		case <-deadline:
			t.Fatalf("it does not say %q", text)
		}
	}
}

// exit waits for the end and gives the exit code.
func (c *child) exit(t *testing.T) int {
	t.Helper()
	for range c.lines { // Wait must not run before the pipe is read to its end
	}
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode()
}

// heldFolder has a config whose two targets the site holds, one at a time.
func heldFolder(t *testing.T, s *site) string {
	t.Helper()
	dir := t.TempDir()
	text := s.fill(configText) + "\n[host.\"127.0.0.1\"]\nconcurrency = 1\n"
	for name, content := range map[string]string{"semel.toml": text, "targets.csv": "n\nhold1\nhold2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runHere runs a command of semel in a folder and gives its output.
func runHere(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("semel", args...)
	cmd.Dir, cmd.Stderr = dir, io.Discard
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("semel %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

func await(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s does not happen", what)
	}
}

// The first signal lets what runs end and commits it; the rest is left, and
// said to be: 130.
func TestRunOnceInterrupted(t *testing.T) {
	s := startSite(t)
	dir := heldFolder(t, s)
	c := startChild(t, s, dir, "run", "--once")
	await(t, "the first request", s.arrival("/p/hold1"))
	c.signal(t, syscall.SIGTERM)
	c.awaitLine(t, "semel: stopping")
	s.release()
	c.awaitLine(t, "semel: error: interrupted with 1 job left")
	if code := c.exit(t); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
	if n := s.count(); n != 1 {
		t.Errorf("the site got %d requests, want 1: after a signal nothing new starts", n)
	}
	if jobs := runHere(t, dir, "jobs", "--state", "complete", "--json"); strings.Count(jobs, "\n") != 1 {
		t.Errorf("complete are %q, want the one that ran", jobs)
	}
	if again := runHere(t, dir, "run", "--once", "--json"); !strings.Contains(again, `"completed":1,`) {
		t.Errorf("running again gave %s, want the other job", again)
	}
}

// An interrupted run that had no more to do is done.
func TestRunOnceInterruptedAtTheEnd(t *testing.T) {
	s := startSite(t)
	dir := heldFolder(t, s)
	if err := os.WriteFile(filepath.Join(dir, "targets.csv"), []byte("n\nhold1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startChild(t, s, dir, "run", "--once")
	await(t, "the first request", s.arrival("/p/hold1"))
	c.signal(t, os.Interrupt)
	c.awaitLine(t, "semel: stopping")
	s.release()
	if code := c.exit(t); code != exitDone {
		t.Errorf("exit code %d, want %d", code, exitDone)
	}
}

// The second signal ends the process though a request hangs; the job is taken
// back by the next process, no attempt burnt.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	s := startSite(t)
	dir := heldFolder(t, s)
	c := startChild(t, s, dir, "run")
	await(t, "the first request", s.arrival("/p/hold1"))
	c.signal(t, os.Interrupt)
	c.awaitLine(t, "semel: stopping")
	<-time.After(2 * echo) // a second signal at once would be the first one's echo
	c.signal(t, os.Interrupt)
	if code := c.exit(t); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
	s.release()
	if again := runHere(t, dir, "run", "--once", "--json"); !strings.Contains(again, `"completed":2,"set_aside":0,"failed":0,`) || !strings.Contains(again, `"rescued":1,`) {
		t.Errorf("running again gave %s, want 2 completed and 1 taken back", again)
	}
	if job := runHere(t, dir, "show", "1", "--json"); !strings.Contains(job, `"attempts":1,`) {
		t.Errorf("the job is %s, want 1 counted attempt", job)
	}
}
