package delivery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"semel/failpoint"
	"semel/storage"
)

// numbered are events with numbers from first to below end.
func numbered(first, end int) []*storage.Event {
	var events []*storage.Event
	for n := first; n < end; n++ {
		events = append(events, &storage.Event{
			Seq: uint64(n), ID: fmt.Sprintf("evt_%032x", n), Type: storage.EventCreated, Key: fmt.Sprintf("shop:%d:-", n),
			Timestamp: time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC), Data: fmt.Appendf(nil, `{"n":%d}`, n),
		})
	}
	return events
}

// linesOf is how a file has numbered events.
func linesOf(first, end int) string {
	var b strings.Builder
	for n := first; n < end; n++ {
		fmt.Fprintf(&b, `{"id":"evt_%032x","type":"observation.created","timestamp":"2026-04-23T15:00:00Z","data":{"n":%d}}`+"\n", n, n)
	}
	return b.String()
}

// openFile is a File of the test, that tells to a log.
func openFile(t *testing.T, path string, rotate int64) (*File, *bytes.Buffer) {
	t.Helper()
	f, log := NewFile(path, rotate), new(bytes.Buffer)
	f.setLog(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { closeFile(t, f) })
	return f, log
}

func closeFile(t *testing.T, f *File) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// deliver wants one outcome for all events, and gives the reason.
func deliver(t *testing.T, f Transport, events []*storage.Event, want storage.DeliveryOutcome) (reason string) {
	t.Helper()
	results := f.Deliver(context.Background(), events)
	if len(results) != len(events) {
		t.Fatalf("%d results of %d events", len(results), len(events))
	}
	for i, r := range results {
		if r.Outcome != want || (r.Reason == "") != (want == storage.OutcomeDelivered || want == storage.OutcomeDeduplicated) {
			t.Fatalf("event %d: %+v, want %s", events[i].Seq, r, want)
		}
	}
	return results[0].Reason
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Fatalf("%s has %d bytes, want %d:\n%.2000s\nwant\n%.2000s", path, len(got), len(want), got, want)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fail lets a point fail as often as times says, and gives back its path.
func fail(t *testing.T, at failpoint.Point, times int, err error) {
	t.Helper()
	failpoint.Set(func(p failpoint.Point, _ string) error {
		if p != at || times == 0 {
			return nil
		}
		times--
		return err
	})
	t.Cleanup(func() { failpoint.Set(nil) })
}

func TestFileAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "news.jsonl")
	f, log := openFile(t, path, 0)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("it is there before the first delivery (%v)", err)
	}
	deliver(t, f, numbered(0, 3), storage.OutcomeDelivered)
	deliver(t, f, numbered(3, 4), storage.OutcomeDelivered)
	wantFile(t, path, linesOf(0, 4))
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := f.Deliver(ctx, numbered(4, 5)); r[0].Outcome != storage.OutcomeAgain {
		t.Errorf("after its time: %+v", r)
	}
	wantFile(t, path, linesOf(0, 4))
	if log.Len() > 0 {
		t.Error(log)
	}
}

// TestFileKnowsItsEnd: what a process that is gone has written is not written
// again, as far back as one can have been ahead of the store; what a person sends
// again is.
func TestFileKnowsItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "news.jsonl")
	const all = tailLines + 10
	writeFile(t, path, linesOf(0, all))
	f, _ := openFile(t, path, 0)
	deliver(t, f, numbered(10, all), storage.OutcomeDeduplicated)
	wantFile(t, path, linesOf(0, all))
	results := f.Deliver(context.Background(), append(numbered(9, 12), numbered(all, all+1)...))
	var got []storage.DeliveryOutcome
	for _, r := range results {
		got = append(got, r.Outcome)
	}
	want := []storage.DeliveryOutcome{storage.OutcomeDelivered, storage.OutcomeDeduplicated, storage.OutcomeDeduplicated, storage.OutcomeDelivered}
	if !slices.Equal(got, want) {
		t.Errorf("outcomes %q, want %q", got, want)
	}
	deliver(t, f, numbered(all, all+1), storage.OutcomeDelivered) // again, by a person
	wantFile(t, path, linesOf(0, all)+linesOf(9, 10)+linesOf(all, all+1)+linesOf(all, all+1))
	closeFile(t, f)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	deliver(t, f, numbered(12, 13), storage.OutcomeDeduplicated) // as before, though it went with the file
}

// TestFileRepairs: a torn end is cut off and told; what is not of events is left
// alone.
func TestFileRepairs(t *testing.T) {
	line := linesOf(7, 8)
	zeros := strings.Repeat("\x00", 3000)
	for _, test := range []struct {
		name, before string
		kept         string // what of it stands before the new events; "-": nothing is appended
		log          string
	}{
		{"empty", "", "", ""},
		{"whole", line, line, ""},
		{"no line end", line + line[:40], line, "bytes=40"},
		{"no line end alone", line[:40], "", "bytes=40"},
		{"one byte", "{", "", "bytes=1"},
		{"whole but for the line end", line + line[:len(line)-1], line, fmt.Sprintf("bytes=%d", len(line)-1)},
		{"no JSON", line + line[:40] + "\n", line, "bytes=41"},
		{"zeros", line + zeros, line, "bytes=3000"},
		{"zeros within", line + line[:40] + zeros + "}\n" + line, line, "bytes="},
		{"zeros and lines behind", line + zeros + "\n" + line, line, "bytes="},
		{"another line", line + `{"a":1}` + "\n", line + `{"a":1}` + "\n", ""},
		{"no JSON in between", line + "hello\n" + line, line + "hello\n" + line, ""},
		{"a text", "hello\n", "-", ""},
		{"a text without a line end", line + "hello", "-", ""},
		{"another file with zeros", "SQLite\n" + zeros, "-", ""},
		{"zeros alone", zeros, "-", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "news.jsonl")
			writeFile(t, path, test.before)
			f, log := openFile(t, path, 0)
			if test.kept == "-" {
				reason := deliver(t, f, numbered(0, 2), storage.OutcomeAgain)
				if !strings.Contains(reason, "does not end with an event") {
					t.Errorf("reason %q", reason)
				}
				wantFile(t, path, test.before)
				writeFile(t, path, "") // mended
				deliver(t, f, numbered(0, 2), storage.OutcomeDelivered)
				return
			}
			deliver(t, f, numbered(0, 2), storage.OutcomeDelivered)
			wantFile(t, path, test.kept+linesOf(0, 2))
			if got := log.String(); (got == "") != (test.log == "") || !strings.Contains(got, test.log) {
				t.Errorf("log %q, want %q", got, test.log)
			}
		})
	}
}

// TestFileOutlasts: what is appended after the time of its delivery is over, when
// nobody listens any more, is not appended again.
func TestFileOutlasts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "news.jsonl")
	f, _ := openFile(t, path, 0)
	ctx, cancel := context.WithCancel(context.Background())
	failpoint.Set(func(p failpoint.Point, _ string) error {
		if p == failpoint.SyncEvents {
			cancel()
		}
		return nil
	})
	t.Cleanup(func() { failpoint.Set(nil) })
	if r := f.Deliver(ctx, numbered(0, 2)); r[1].Outcome != storage.OutcomeDelivered {
		t.Errorf("%+v", r)
	}
	deliver(t, f, numbered(0, 2), storage.OutcomeDeduplicated)
	wantFile(t, path, linesOf(0, 2))
}

// TestFileFails: what cannot be made durable is cut off again, and the next
// delivery goes on behind what is.
func TestFileFails(t *testing.T) {
	for _, point := range []failpoint.Point{failpoint.AppendEvents, failpoint.SyncEvents, failpoint.EventsSynced} {
		t.Run(string(point), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "news.jsonl")
			f, log := openFile(t, path, 0)
			deliver(t, f, numbered(0, 1), storage.OutcomeDelivered)
			fail(t, point, 1, syscall.ENOSPC)
			if reason := deliver(t, f, numbered(1, 3), storage.OutcomeAgain); !strings.Contains(reason, syscall.ENOSPC.Error()) {
				t.Errorf("reason %q", reason)
			}
			wantFile(t, path, linesOf(0, 1))
			deliver(t, f, numbered(1, 3), storage.OutcomeDelivered)
			wantFile(t, path, linesOf(0, 3))
			if log.Len() > 0 {
				t.Error(log)
			}
		})
	}
}

// TestFileCannotCut: what cannot even be cut off again may have arrived; nothing
// is appended behind it, and it goes first when that is possible.
func TestFileCannotCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "news.jsonl")
	f, _ := openFile(t, path, 0)
	deliver(t, f, numbered(0, 1), storage.OutcomeDelivered)
	bad := true
	failpoint.Set(func(p failpoint.Point, _ string) error {
		if bad && (p == failpoint.SyncEvents || p == failpoint.CutEvents) {
			return syscall.EIO
		}
		return nil
	})
	t.Cleanup(func() { failpoint.Set(nil) })
	deliver(t, f, numbered(1, 3), storage.OutcomeAmbiguous)
	wantFile(t, path, linesOf(0, 3))
	deliver(t, f, numbered(3, 4), storage.OutcomeAgain)
	wantFile(t, path, linesOf(0, 3))
	bad = false
	deliver(t, f, numbered(3, 4), storage.OutcomeDelivered)
	wantFile(t, path, linesOf(0, 1)+linesOf(3, 4))
}

// TestFileMoved: what others do to the file is noticed before the next batch.
func TestFileMoved(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there nobody moves an open file")
	}
	for _, test := range []struct {
		name string
		do   func(path string) error
		left string // what stands before the next events
		log  string
	}{
		{"renamed", func(path string) error { return os.Rename(path, path+".1") }, "", "moved or deleted"},
		{"deleted", os.Remove, "", "moved or deleted"},
		{"copied and emptied", func(path string) error { return os.Truncate(path, 0) }, "", "changed by somebody"},
		{"torn", func(path string) error { return appendTo(path, `{"id":"ev`) }, linesOf(0, 2), "bytes=9"},
		{"longer", func(path string) error { return appendTo(path, linesOf(50, 51)) }, linesOf(0, 2) + linesOf(50, 51), "changed by somebody"},
		{"replaced", func(path string) error {
			return errors.Join(os.WriteFile(path+".new", []byte(linesOf(0, 2)), 0o600), os.Rename(path+".new", path))
		}, linesOf(0, 2), "moved or deleted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "news.jsonl")
			f, log := openFile(t, path, 0)
			deliver(t, f, numbered(0, 2), storage.OutcomeDelivered)
			if err := test.do(path); err != nil {
				t.Fatal(err)
			}
			deliver(t, f, numbered(2, 4), storage.OutcomeDelivered)
			deliver(t, f, numbered(4, 5), storage.OutcomeDelivered)
			wantFile(t, path, test.left+linesOf(2, 5))
			if got := log.String(); !strings.Contains(got, test.log) {
				t.Errorf("log %q, want %q", got, test.log)
			}
		})
	}
}

func appendTo(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

func TestFileRefuses(t *testing.T) {
	dir := t.TempDir()
	f, _ := openFile(t, dir, 0)
	deliver(t, f, numbered(0, 1), storage.OutcomeAgain)
	f, _ = openFile(t, filepath.Join(dir, "no", "news.jsonl"), 0)
	deliver(t, f, numbered(0, 1), storage.OutcomeAgain)
	if runtime.GOOS == "windows" {
		return
	}
	f, _ = openFile(t, os.DevNull, 0)
	if reason := deliver(t, f, numbered(0, 1), storage.OutcomeAgain); !strings.Contains(reason, "not a regular file") {
		t.Errorf("reason %q", reason)
	}
	path := filepath.Join(dir, "news.jsonl")
	first, _ := openFile(t, path, 0)
	deliver(t, first, numbered(0, 1), storage.OutcomeDelivered)
	second, _ := openFile(t, path, 0)
	if reason := deliver(t, second, numbered(1, 2), storage.OutcomeAgain); !strings.Contains(reason, "another process writes to ") {
		t.Errorf("reason %q", reason)
	}
	closeFile(t, first)
	deliver(t, second, numbered(1, 2), storage.OutcomeDelivered)
	wantFile(t, path, linesOf(0, 2))
}

// TestFileRotates: a full file gets a name that none has, and the end that is
// compared spans them.
func TestFileRotates(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "news.jsonl")
	three := int64(len(linesOf(0, 3)))
	writeFile(t, path+".000007", linesOf(100, 101))
	writeFile(t, path+".8", "not ours")
	f, _ := openFile(t, path, three)
	deliver(t, f, numbered(0, 2), storage.OutcomeDelivered)
	deliver(t, f, numbered(2, 3), storage.OutcomeDelivered)
	deliver(t, f, numbered(3, 4), storage.OutcomeDelivered)   // full
	deliver(t, f, numbered(4, 9), storage.OutcomeDelivered)   // more than a file has
	deliver(t, f, numbered(9, 10), storage.OutcomeDelivered)  // over it already
	fail(t, failpoint.RotateEvents, 1, syscall.EIO)           // at the next one
	deliver(t, f, numbered(10, 13), storage.OutcomeAgain)     //
	deliver(t, f, numbered(10, 13), storage.OutcomeDelivered) // in a new file
	for name, want := range map[string]string{
		".000007": linesOf(100, 101), ".8": "not ours", ".000008": linesOf(0, 3), ".000009": linesOf(3, 4), ".000010": linesOf(4, 9), ".000011": linesOf(9, 10),
		"": linesOf(10, 13),
	} {
		wantFile(t, path+name, want)
	}
	closeFile(t, f)
	alone, _ := openFile(t, filepath.Join(dir, "alone.jsonl"), 1)
	deliver(t, alone, numbered(0, 1), storage.OutcomeDelivered) // more than a file has, and none before it
	if _, err := os.Stat(filepath.Join(dir, "alone.jsonl.000001")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty file was rotated (%v)", err)
	}
	next, _ := openFile(t, path, three)
	deliver(t, next, append(numbered(0, 13), numbered(100, 101)...), storage.OutcomeDeduplicated)
	wantFile(t, path, linesOf(10, 13))
}
