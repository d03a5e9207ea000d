package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"semel/failpoint"
	"semel/storage"
)

// appendRows is more than the pages of one append hold.
const appendRows = 11_000

const appendConfig = `version = 1
[source.shop]
url = "http://127.0.0.1:1/"
targets = [{ id = "1" }]
key = "{id}"
[source.shop.parser]
key = "{n}"
rows = { css = "p" }
[source.shop.parser.fields]
n = { css = "b" }
`

// collectRows commits a page of rows for a window: those of a round's number have
// another content than before.
func collectRows(t *testing.T, path string, round int, keys []int) {
	t.Helper()
	s, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	window := time.Date(2026, 4, 23, round, 0, 0, 0, time.UTC)
	var records []storage.NewObservation
	for _, key := range keys {
		records = append(records, storage.NewObservation{Key: fmt.Sprintf("%06d", key), Data: fmt.Appendf(nil, `{"n":"%06d","round":%d}`, key, round)})
	}
	err = s.Update(context.Background(), func(tx *storage.Tx) error {
		key := storage.JobKey{Source: "shop", Target: "1", Window: window}
		put := tx.PutSource(storage.Source{Name: "shop"})
		_, made := tx.EnqueueJob(storage.NewJob{Key: key, Window: window, URL: "http://127.0.0.1:1/", Host: "127.0.0.1:1"})
		claimed, err := tx.ClaimJobs("test", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
		if err := errors.Join(put, made, err); err != nil {
			return err
		}
		_, err = tx.CompleteJob(claimed[0][0].Lease(), storage.Completion{Mode: storage.WriteUpsert, Records: records})
		return err
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// everyNth are the numbers from first on, below end.
func everyNth(first, end, n int) (keys []int) {
	for ; first < end; first += n {
		keys = append(keys, first)
	}
	return keys
}

// TestAppendKilled kills export --append at every point at which it may have done
// a part, as often as it comes there, and lets it go on: in the end each file is
// that of appends that nobody disturbed, byte for byte, with each revision once,
// and no manifest ever stands beside another file.
func TestAppendKilled(t *testing.T) {
	f := newFolder(t, appendConfig)
	kills := 0
	for round, keys := range [][]int{
		everyNth(0, appendRows, 1),     // the first time
		everyNth(0, appendRows, 2),     // other content
		everyNth(0, 2*appendRows, 700), // new rows, too
	} {
		collectRows(t, f.path("semel.db"), round, keys)
		f.ok("export", "shop", "-o", "calm.jsonl", "--append")
		for _, point := range []failpoint.Point{failpoint.InAppend, failpoint.AppendSynced, failpoint.BeforeCommit, failpoint.AfterCommit, failpoint.InReplace} {
			name := strings.ReplaceAll(string(point), " ", "-") + ".jsonl"
			n := appendKilled(t, f, name, point)
			t.Logf("round %d, %s: %d kills", round, point, n)
			kills += n
			for _, suffix := range []string{"", ".manifest.json"} {
				calm, err1 := os.ReadFile(f.path("calm.jsonl" + suffix))
				got, err2 := os.ReadFile(f.path(name + suffix))
				if err := errors.Join(err1, err2); err != nil || string(calm) != string(got) {
					t.Fatalf("round %d, %s%s: %d bytes, undisturbed %d (%v)", round, name, suffix, len(got), len(calm), err)
				}
			}
		}
	}
	text, err := os.ReadFile(f.path("calm.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if seen[line] {
			t.Fatalf("twice: %s", line)
		}
		seen[line] = true
	}
	if want := appendRows + appendRows/2 + 2*appendRows/700 + 1; len(seen) != want {
		t.Errorf("%d lines, want %d", len(seen), want)
	}
	openChecked(t, f.path("semel.db")).Close()
	if kills < 15 {
		t.Errorf("only %d kills", kills)
	}
}

// appendKilled appends to a file and is killed at a point, at its first time and
// then one later each time, until it is done.
func appendKilled(t *testing.T, f *folder, name string, point failpoint.Point) (kills int) {
	t.Helper()
	for ; ; kills++ {
		cmd := f.command("export", "shop", "-o", name, "--append")
		cmd.Env = append(cmd.Env, trap{Point: point, Hit: kills + 1}.env())
		if !killed(t, cmd, nil) {
			return kills
		}
		wantOwnManifest(t, f.path(name))
		if point == failpoint.InAppend {
			tear(t, f.path(name))
		}
	}
}

// wantOwnManifest wants no manifest beside a file, or its own.
func wantOwnManifest(t *testing.T, path string) {
	t.Helper()
	manifest, err := os.ReadFile(path + ".manifest.json")
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	file, err2 := os.ReadFile(path)
	sum := sha256.Sum256(file)
	if err := errors.Join(err, err2); err != nil || !strings.Contains(string(manifest), hex.EncodeToString(sum[:])) {
		t.Fatalf("the manifest of another file stands beside it (%v)", err)
	}
}

// tear leaves half a line at the end of a file, as a kill within a write does.
func tear(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(`{"n":"0000`)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}
