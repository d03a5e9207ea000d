package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"semel/engine/cli"
	"semel/failpoint"
)

// asProgram set in the environment makes the test binary be semel itself.
const asProgram = "SEMEL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		armFromEnv()
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(withPlain(m.Run))
}

// plain is the test binary without the race detector.
var plain = os.Args[0]

// withPlain builds plain where the test binary is not it, and runs the tests.
func withPlain(tests func() int) (code int) {
	if !raceDetector {
		return tests()
	}
	dir, err := os.MkdirTemp("", "semel-plain-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	plain = filepath.Join(dir, "semel.test")
	if out, err := exec.Command("go", "test", "-race=false", "-c", "-o", plain, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building semel without the race detector: %v\n%s", err, out)
		return 1
	}
	return tests()
}

// failAt in the environment of the program is a trap in JSON.
const failAt = "SEMEL_TEST_FAIL_AT"

// trap is what the program meets when it comes to a point for the nth time.
type trap struct {
	Point failpoint.Point
	Hit   int
	Errno syscall.Errno // 0: SIGKILL
}

// trapped is the end of the name of a copy of the store's file, made when a
// trap let its disk fail.
const trapped = ".trapped"

// env is the trap for folder.command.
func (p trap) env() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return failAt + "=" + string(text)
}

// armFromEnv sets the trap that the environment asks for.
func armFromEnv() {
	text := os.Getenv(failAt)
	if text == "" {
		return
	}
	var armed trap
	if err := json.Unmarshal([]byte(text), &armed); err != nil {
		panic(err)
	}
	var hits atomic.Int64
	failpoint.Set(func(p failpoint.Point, path string) error {
		switch {
		case p != armed.Point || hits.Add(1) != int64(armed.Hit):
			return nil
		case armed.Errno != 0:
			file, err := os.ReadFile(path)
			if err := errors.Join(err, os.WriteFile(path+trapped, file, 0o600)); err != nil {
				panic(err)
			}
			return armed.Errno
		}
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	})
}

// real skips a test of real parts unless SEMEL_REAL is set: there a missing
// part is a failure, elsewhere the reason of the skip is said.
func real(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		if os.Getenv("SEMEL_REAL") != "" {
			t.Fatalf("SEMEL_REAL is set, and %s is not installed", program)
		}
		t.Skipf("%s is not installed; .ci/run installs it and sets SEMEL_REAL=1", program)
	}
	if os.Getenv("SEMEL_REAL") == "" {
		t.Skip("SEMEL_REAL is not set: tests of real parts run in .ci/run")
	}
}

// folder is a folder in which semel is run as a process of its own, without the
// race detector: most processes do one thing, or are killed, and a killed one
// cannot tell what the detector saw.
type folder struct {
	t       testing.TB
	dir     string
	env     []string
	program string // that plays semel
}

func newFolder(t testing.TB, config string, env ...string) *folder {
	t.Helper()
	f := &folder{t: t, dir: t.TempDir(), env: env, program: plain}
	f.write("semel.toml", config)
	return f
}

// racing lets the race detector watch semel, if it watches the tests: for what many
// workers do at once. A process in which it sees a race exits with 66.
func (f *folder) racing() *folder {
	f.program = os.Args[0]
	return f
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

func (f *folder) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// command is a semel process, not started.
func (f *folder) command(args ...string) *exec.Cmd {
	cmd := exec.Command(f.program, args...)
	cmd.Dir = f.dir
	cmd.Env = append(append(os.Environ(), asProgram+"=1"), f.env...)
	return cmd
}

// semel runs a command to its end and gives what it printed and its exit code.
func (f *folder) semel(args ...string) (stdout, stderr string, code int) {
	f.t.Helper()
	cmd := f.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		f.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// ok runs a command that must exit with 0, and gives its stdout.
func (f *folder) ok(args ...string) string {
	f.t.Helper()
	stdout, stderr, code := f.semel(args...)
	if code != 0 {
		f.t.Fatalf("semel %s: exit %d\n%s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// process is a semel that runs while the test goes on.
type process struct {
	*exec.Cmd
	t     testing.TB
	lines <-chan string // of stderr
	said  []string      // those that were read
}

// patience is how long a process may take to do what it must do: far longer
// than it should.
const patience = time.Minute

func (f *folder) start(args ...string) *process {
	f.t.Helper()
	cmd := f.command(args...)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return &process{Cmd: cmd, t: f.t, lines: lines}
}

// await reads stderr until a line holds text.
func (p *process) await(text string) {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, more := <-p.lines:
			if !more {
				p.t.Fatalf("it ended without saying %q:\n%s", text, strings.Join(p.said, "\n"))
			}
			p.said = append(p.said, line)
			if strings.Contains(line, text) {
				return
			}
		case <-deadline:
			p.t.Fatalf("it does not say %q:\n%s", text, strings.Join(p.said, "\n"))
		}
	}
}

func (p *process) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the end and gives the exit code.
func (p *process) exit() int {
	p.t.Helper()
	deadline := time.AfterFunc(patience, func() { _ = p.Process.Kill() })
	defer deadline.Stop()
	for line := range p.lines {
		p.said = append(p.said, line)
	}
	_ = p.Wait()
	return p.ProcessState.ExitCode() // -1: it was killed
}

// wantOnly wants these files in the folder and no others.
func (f *folder) wantOnly(names ...string) {
	f.t.Helper()
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
	}
	if !slices.Equal(there, slices.Sorted(slices.Values(names))) {
		f.t.Errorf("the folder holds %q, want %q", there, names)
	}
}

// shop is a site of product pages that counts who asks for what.
type shop struct {
	*httptest.Server
	mu       sync.Mutex
	requests map[string]int
	left     int    // requests until reached is called
	reached  func() // see at
}

// numbered are so many of the shop's pages, from 000 on, as a list of targets.
func numbered(pages int) string {
	ids := make([]string, pages)
	for i := range ids {
		ids[i] = fmt.Sprintf(`{ id = "%03d" }`, i)
	}
	return strings.Join(ids, ", ")
}

func newShop(t *testing.T) *shop {
	s := &shop{requests: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *shop) serve(w http.ResponseWriter, r *http.Request) {
	id, ok := strings.CutPrefix(r.URL.Path, "/p/")
	if !ok {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	s.requests[id]++
	if s.left--; s.left == 0 {
		s.reached()
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, pageOf(id))
}

func pageOf(id string) string {
	return fmt.Sprintf("<html><head><title>%[1]s</title></head><body><h1>Thing %[1]s</h1><p class=price>$%[2]d.50</p>%[3]s</body></html>",
		id, len(id)*7, strings.Repeat("<p>some text of the page</p>", 200))
}

func (s *shop) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[string]int, len(s.requests))
	for id, n := range s.requests {
		counts[id] = n
	}
	return counts
}

// at calls do when n more pages were asked for, before any of them is answered
// that comes later. Only the last call counts.
func (s *shop) at(n int, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.reached = n, do
}

// after gives a channel that is closed when n more pages were asked for.
func (s *shop) after(n int) <-chan struct{} {
	reached := make(chan struct{})
	s.at(n, func() { close(reached) })
	return reached
}

// forget begins counting anew.
func (s *shop) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.requests)
}

func (s *shop) total() int {
	total := 0
	for _, n := range s.counts() {
		total += n
	}
	return total
}
