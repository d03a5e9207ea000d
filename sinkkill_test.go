package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"semel/failpoint"
)

const sinkPages = 300

// sinkConfig collects the shop for a file that is soon full.
func sinkConfig(site string) string {
	return fmt.Sprintf(`version = 1
[engine]
allow_private = true
robots = false
[host."*"]
concurrency = 16
interval = "0s"
[sink.news]
type = "file"
path = "news.jsonl"
rotate = "20kB"
events = ["observation.created"]
[source.shop]
url = "%s/p/{id}"
targets = [%s]
key = "{id}"
sinks = ["news"]
[source.shop.parser]
version = 1
[source.shop.parser.fields]
title = { css = "h1", required = true }
`, site, numbered(sinkPages))
}

// TestFileSinkKilled kills runs at every point at which a sink's file may have got
// a part of a batch, tears what was not synced, and runs again: in the end each
// event is in the files once, in whole lines, as after a run that nobody disturbed.
func TestFileSinkKilled(t *testing.T) {
	site := newShop(t)
	calm := newFolder(t, sinkConfig(site.URL)).racing()
	calm.ok(strings.Fields(runOnce)...)
	want := sinkIDs(t, calm)
	if len(want) != sinkPages {
		t.Fatalf("the undisturbed run delivered %d events", len(want))
	}
	points := []failpoint.Point{failpoint.AppendEvents, failpoint.SyncEvents, failpoint.EventsSynced, failpoint.RotateEvents, failpoint.AfterCommit}
	met := map[failpoint.Point]int{}
	for rounds := 0; rounds < 2; rounds++ {
		f := newFolder(t, sinkConfig(site.URL))
		for n := 0; ; n++ {
			point := points[n%len(points)]
			cmd := f.command(strings.Fields(runOnce)...)
			cmd.Env = append(cmd.Env, trap{Point: point, Hit: 1 + (n/len(points)+rounds)%4}.env())
			if !killed(t, cmd, nil) {
				break
			}
			met[point]++
			if point == failpoint.SyncEvents {
				tearOff(t, f.path("news.jsonl"), 1+int64(n*17%90))
			}
			openChecked(t, f.path("semel.db")).Close()
		}
		f.ok(strings.Fields(runOnce)...)
		if got := sinkIDs(t, f); !slices.Equal(got, want) {
			t.Errorf("%d events are in the files, undisturbed %d", len(got), len(want))
		}
	}
	t.Logf("kills %v", met)
	for _, point := range points {
		if met[point] == 0 {
			t.Errorf("no kill at point %q", point)
		}
	}
}

// tearOff takes bytes off the end of a file.
func tearOff(t *testing.T, path string, bytes int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()-bytes)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sinkIDs are the sorted ids of the events in the files of the sink.
func sinkIDs(t *testing.T, f *folder) (ids []string) {
	t.Helper()
	files, err := filepath.Glob(f.path("news.jsonl*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files (%v)", len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var event struct{ ID string }
			if err := json.Unmarshal([]byte(line), &event); err != nil || !strings.HasSuffix(line, "\n") {
				t.Fatalf("%s has the line %q (%v)", name, line, err)
			}
			ids = append(ids, event.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
