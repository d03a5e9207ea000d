package storage_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

func checksums(t testing.TB, s *storage.Store) []storage.Checksum {
	t.Helper()
	list, err := s.Checksums()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// checksumWork is the work of the two histories: jobs by target, each with one
// record.
type checksumWork struct {
	source, target string
	window         time.Time
	record         storage.NewObservation
}

func checksumWorks() []checksumWork {
	day := time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)
	var works []checksumWork
	for i := range 1200 { // more than a page of rows
		key := fmt.Sprint(i)
		works = append(works, checksumWork{"a", key, time.Time{}, storage.NewObservation{Key: key, Data: []byte(`{"v":` + key + `}`)}})
	}
	return append(works,
		checksumWork{"b", "gone", day, storage.NewObservation{Key: "gone", Gone: true}},
		checksumWork{"b", "x", day, storage.NewObservation{Key: "x", Data: []byte(`{"v":1}`)}},
		checksumWork{"b", "x", day.AddDate(0, 0, 1), storage.NewObservation{Key: "x", Data: []byte(`{"v":2}`)}},
		checksumWork{"b", "x", day.AddDate(0, 0, 2), storage.NewObservation{Key: "x", Data: []byte(`{"v":2}`), Missing: []string{"w"}}},
	)
}

// collectWorks does the works in their order; a troubled history loses leases and
// repeats attempts on the way.
func collectWorks(t *testing.T, works []checksumWork, troubled bool) *storage.Store {
	t.Helper()
	s := storagetest.OpenAt(t, filepath.Join(t.TempDir(), "semel.db"), storage.Options{NoSync: true})
	for i, w := range works {
		n := target(w.target)
		n.Key.Source, n.Key.Window, n.Window = w.source, w.window, w.window
		update(t, s, func(tx *storage.Tx) error { _, err := tx.EnqueueJob(n); return err })
		if troubled && i%100 == 0 {
			claimOne(t, s)
			update(t, s, func(tx *storage.Tx) error {
				_, err := tx.RescueExpired(storage.AllLeases, 1, func(string) storage.RescuePolicy { return storage.RescuePolicy{} })
				return err
			})
		}
		c := storage.Completion{Mode: storage.WriteUpsert, Records: []storage.NewObservation{w.record}}
		if troubled {
			c.Attempt.FinalURL, c.Attempt.ParserVersion = "http://h/elsewhere", 7
		}
		j := claimOne(t, s)
		update(t, s, func(tx *storage.Tx) error { _, err := tx.CompleteJob(j.Lease(), c); return err })
	}
	return s
}

// TestChecksumIndependentOfHistory: other orders, deaths, ids, revisions, times,
// pages and versions of the rules lead to the same checksums.
func TestChecksumIndependentOfHistory(t *testing.T) {
	works := checksumWorks()
	smooth := checksums(t, collectWorks(t, works, false))
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(len(works), func(i, j int) { works[i], works[j] = works[j], works[i] })
	troubled := checksums(t, collectWorks(t, works, true))
	if diff := cmp.Diff(smooth, troubled); diff != "" {
		t.Errorf("checksums of two histories:\n%s", diff)
	}
	rows := map[string]int64{}
	for _, c := range smooth {
		rows[c.Source] = c.Rows
	}
	if diff := cmp.Diff(map[string]int64{"a": 1200, "b": 2}, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// TestChecksumTellsDifferences: any other row gives another checksum, and only
// to its own source.
func TestChecksumTellsDifferences(t *testing.T) {
	day := time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)
	base := func() []checksumWork {
		return []checksumWork{
			{"a", "x", day, storage.NewObservation{Key: "x", Data: []byte(`{}`)}},
			{"b", "y", day, storage.NewObservation{Key: "y", Data: []byte(`{"v":1}`)}},
		}
	}
	want := checksums(t, collectWorks(t, base(), false))
	seen := map[string]string{}
	for name, change := range map[string]func(w *checksumWork){
		"data":   func(w *checksumWork) { w.record.Data = []byte(`{"v":2}`) },
		"key":    func(w *checksumWork) { w.record.Key = "z" },
		"window": func(w *checksumWork) { w.window = day.AddDate(0, 0, 1) },
		"none":   func(w *checksumWork) { w.window = time.Time{} },
		"gone":   func(w *checksumWork) { w.record.Gone, w.record.Data = true, nil },
	} {
		works := base()
		change(&works[1])
		got := checksums(t, collectWorks(t, works, false))
		if got[0] != want[0] {
			t.Errorf("%s: the other source's checksum is %v, was %v", name, got[0], want[0])
		}
		if got[1].SHA256 == want[1].SHA256 || seen[got[1].SHA256] != "" {
			t.Errorf("%s: no checksum of its own (as %q)", name, seen[got[1].SHA256])
		}
		seen[got[1].SHA256] = name
	}
}

// TestChecksumContent: the checksum is what its doc says.
func TestChecksumContent(t *testing.T) {
	day := time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)
	s := collectWorks(t, []checksumWork{
		{"a", "y", day, storage.NewObservation{Key: "y", Gone: true}},
		{"a", "x:", time.Time{}, storage.NewObservation{Key: "x:", Data: []byte(`{"v":1}`)}},
	}, false)
	var content []byte
	for _, part := range []string{
		"a:x%3A:-:-:-:-", "", "", `{"v":1}`,
		"a:y:-:-:-:-", "2026-04-23T00:00:00Z", "gone", "",
	} {
		content = binary.BigEndian.AppendUint64(content, uint64(len(part)))
		content = append(content, part...)
	}
	sum := sha256.Sum256(content)
	want := []storage.Checksum{{Source: "a", Rows: 2, SHA256: hex.EncodeToString(sum[:])}}
	if got := checksums(t, s); !slices.Equal(got, want) {
		t.Errorf("checksums %v, want %v", got, want)
	}
}

// TestChecksumErrors: an empty store has none, a stopped one gives none.
func TestChecksumErrors(t *testing.T) {
	s, err := storage.Open(filepath.Join(t.TempDir(), "semel.db"), storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if list := checksums(t, s); len(list) != 0 {
		t.Errorf("checksums of nothing: %v", list)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Checksums(); !errors.Is(err, storage.ErrStopped) {
		t.Errorf("error %v", err)
	}
}
