package delivery

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"semel/failpoint"
	"semel/storage"
)

// Of a test of kills: how much is written, and how far the store may be behind.
const (
	killEvents = 1000
	killBatch  = 20
	killLag    = 3 * killBatch
	killRotate = 9 << 10 // some three batches
)

// fileWriter is what a process that plays a sink's process is told.
type fileWriter struct {
	Path  string
	From  int // the first event that is not known to have arrived
	Point failpoint.Point
	Hit   int // how often it comes to Point before it dies there
}

const asFileWriter = "SEMEL_TEST_FILE_WRITER"

// TestFileWriter is no test: it is that process.
func TestFileWriter(t *testing.T) {
	text := os.Getenv(asFileWriter)
	if text == "" {
		t.Skip("TestFileKilled starts it")
	}
	var w fileWriter
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		t.Fatal(err)
	}
	failpoint.Set(func(p failpoint.Point, _ string) error {
		if p == w.Point {
			w.Hit--
		}
		if p == w.Point && w.Hit == 0 {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}
		return nil
	})
	f := NewFile(w.Path, killRotate)
	for at := w.From; at < killEvents; at += killBatch {
		for _, r := range f.Deliver(t.Context(), numbered(at, at+killBatch)) {
			if r.Outcome != storage.OutcomeDelivered && r.Outcome != storage.OutcomeDeduplicated {
				t.Fatalf("%+v", r)
			}
		}
		fmt.Println("arrived", at+killBatch)
	}
	closeFile(t, f)
}

// TestFileKilled kills a process that appends, at every point at which it may have
// done a part, tears what it had not synced, and lets the next one begin where the
// store knows of: behind what has arrived. In the end each event is there once, in
// order, in whole lines.
func TestFileKilled(t *testing.T) {
	points := []failpoint.Point{failpoint.AppendEvents, failpoint.SyncEvents, failpoint.EventsSynced, failpoint.RotateEvents}
	path := filepath.Join(t.TempDir(), "news.jsonl")
	kills, arrived := 0, 0
	for ; arrived < killEvents; kills++ {
		w := fileWriter{Path: path, From: max(0, arrived-killLag), Point: points[kills%len(points)], Hit: 2 + kills%3}
		arrived = max(arrived, w.run(t))
		if w.Point == failpoint.SyncEvents && arrived < killEvents {
			tearFile(t, path, 1+kills*37%(killBatch*100))
		}
	}
	t.Logf("%d kills", kills-1)
	if kills < 15 {
		t.Errorf("only %d kills", kills-1)
	}
	full, err := filepath.Glob(path + ".*")
	if err != nil || len(full) < 10 {
		t.Fatalf("%d full files (%v)", len(full), err)
	}
	var all strings.Builder
	for _, name := range append(slices.Sorted(slices.Values(full)), path) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	if got, want := all.String(), linesOf(0, killEvents); got != want {
		t.Errorf("%d bytes, want %d:\n%s", len(got), len(want), got)
	}
}

// run lets a process work until it dies or is done, and gives what it said has
// arrived.
func (w fileWriter) run(t *testing.T) (arrived int) {
	t.Helper()
	told, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFileWriter$")
	cmd.Env = append(os.Environ(), asFileWriter+"="+string(told))
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for in := bufio.NewScanner(stdout); in.Scan(); {
		said = append(said, in.Text())
		_, _ = fmt.Sscanf(in.Text(), "arrived %d", &arrived)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		t.Fatalf("exit %d: %s", code, strings.Join(said, "\n"))
	}
	return arrived
}

// tearFile takes some bytes off the end of a file: they were never synced.
func tearFile(t *testing.T, path string, bytes int) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, max(0, info.Size()-int64(bytes)))
	}
	if err != nil {
		t.Fatal(err)
	}
}
