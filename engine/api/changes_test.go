package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

// follower is who keeps a table up to date by pages of changes.
type follower struct {
	cursor string
	rows   map[string]content // by key
}

// content is what changes of a row; the window in its _meta moves on without.
type content struct {
	Revision    int
	Fingerprint string
	Gone        bool
}

// page takes the next page and gives how many rows it had.
func (f *follower) page(t *testing.T, s Service, limit int) int {
	t.Helper()
	page, err := s.Changes(t.Context(), ChangesRequest{Source: "shop", Cursor: f.cursor, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(page.Lines), "\n")
	if lines = lines[:len(lines)-1]; len(lines) != page.Rows || page.Rows > limit {
		t.Fatalf("%d lines, %d rows, limit %d", len(lines), page.Rows, limit)
	}
	for _, line := range lines {
		key, row := readRow(t, line)
		f.rows[key] = row
	}
	f.cursor = page.Cursor
	return page.Rows
}

func readRow(t *testing.T, line string) (string, content) {
	t.Helper()
	var row struct {
		Meta struct {
			Key string
			content
		} `json:"_meta"`
	}
	if err := json.Unmarshal([]byte(line), &row); err != nil {
		t.Fatal(err)
	}
	return row.Meta.Key, row.Meta.content
}

// wantTable wants the follower's table to be that of an export.
func (f *follower) wantTable(t *testing.T, s Service) {
	t.Helper()
	var out bytes.Buffer
	if _, err := s.Export(t.Context(), ExportRequest{Source: "shop"}, &out); err != nil {
		t.Fatal(err)
	}
	want := map[string]content{}
	for line := range strings.Lines(out.String()) {
		key, row := readRow(t, line)
		want[key] = row
	}
	if diff := cmp.Diff(want, f.rows); diff != "" {
		t.Fatalf("the follower's table (-want +got):\n%s", diff)
	}
}

// commit collects a target that gives some records. Each time is a later window.
func commit(t *testing.T, l *Local, n int, records ...storage.NewObservation) {
	t.Helper()
	window := time.Date(2026, 4, 23, 0, 0, n, 0, time.UTC)
	update(t, l, func(tx *storage.Tx) error {
		key := storage.JobKey{Source: "shop", Target: "page", Window: window}
		_, err := tx.EnqueueJob(storage.NewJob{Key: key, Window: window, URL: "http://x.test/", Host: "x.test"})
		return err
	})
	work(t, l, 1, func(tx *storage.Tx, j *storage.Job) error {
		_, err := tx.CompleteJob(j.Lease(), storage.Completion{
			Attempt: storage.Attempt{ParserVersion: 1}, Mode: storage.WriteUpsert, Records: records,
		})
		return err
	})
}

// TestChangesFollow: who pages with a cursor, over whatever is written meanwhile
// and whatever restarts, has the source's table whenever a page is empty.
func TestChangesFollow(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := t.TempDir() + "/semel.db"
	l := local(t)
	open := func() {
		t.Helper()
		var err error
		if l.Store, err = storage.Open(path, storage.Options{NoSync: true}); err != nil {
			t.Fatal(err)
		}
	}
	open()
	f, caughtUp := &follower{rows: map[string]content{}}, 0
	for n := range 400 {
		switch random.IntN(4) {
		case 0, 1:
			var records []storage.NewObservation
			for _, key := range random.Perm(30)[:1+random.IntN(8)] {
				r := storage.NewObservation{Key: fmt.Sprint(key), Data: fmt.Appendf(nil, `{"v":%d}`, n)}
				if random.IntN(5) == 0 {
					r.Gone, r.Data = true, nil
				}
				records = append(records, r)
			}
			commit(t, l, n, records...)
		case 2:
			if f.page(t, l, 1+random.IntN(6)) == 0 {
				caughtUp++
				f.wantTable(t, l)
			}
		case 3:
			if random.IntN(20) == 0 {
				if err := l.Store.Close(); err != nil {
					t.Fatal(err)
				}
				open()
			}
		}
	}
	for f.page(t, l, 7) > 0 {
	}
	f.wantTable(t, l)
	storagetest.Check(t, l.Store)
	if err := l.Store.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("caught up %d times on the way, %d rows", caughtUp, len(f.rows))
}

// TestChangesDataOnly: rows that have no line fill no page.
func TestChangesDataOnly(t *testing.T) {
	l := local(t)
	var records []storage.NewObservation
	for i := range 3 * pageRows {
		records = append(records, storage.NewObservation{Key: fmt.Sprint(i), Gone: i != 2*pageRows+5, Data: map[bool][]byte{true: []byte(`{"v":1}`)}[i == 2*pageRows+5]})
	}
	commit(t, l, 0, records...)
	page, err := l.Changes(t.Context(), ChangesRequest{Source: "shop", Limit: 10, DataOnly: true})
	if err != nil || page.Rows != 1 || string(page.Lines) != "{\"v\":1}\n" {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestChangesBounded(t *testing.T) {
	l := local(t)
	big := []byte(`{"v":"` + strings.Repeat("x", 100<<10) + `"}`)
	for i := range 3 {
		var records []storage.NewObservation
		for k := range changesRows {
			records = append(records, storage.NewObservation{Key: fmt.Sprint(i, k), Data: big})
		}
		commit(t, l, i, records...)
	}
	rows, cursor, pages := 0, "", 0
	for ; ; pages++ {
		page, err := l.Changes(t.Context(), ChangesRequest{Source: "shop", Cursor: cursor, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if page.Rows == 0 {
			break
		}
		rows, cursor = rows+page.Rows, page.Cursor
	}
	if rows != 3*changesRows || pages != 3 {
		t.Errorf("%d rows in %d pages", rows, pages)
	}
}

func TestObservationsHandler(t *testing.T) {
	l := local(t)
	commit(t, l, 0, storage.NewObservation{Key: "a", Data: []byte(`{}`)}, storage.NewObservation{Key: "b", Data: []byte(`{}`)})
	other := local(t)
	commit(t, other, 0, storage.NewObservation{Key: "a", Data: []byte(`{}`)}, storage.NewObservation{Key: "b", Data: []byte(`{}`)})
	get := func(l *Local, query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		NewHandler(l, "").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/observations/shop?"+query, nil))
		return w
	}
	first := get(l, "cursor=&limit=1")
	cursor := first.Header().Get("Semel-Cursor")
	if first.Code != http.StatusOK || strings.Count(first.Body.String(), "\n") != 1 || cursor == "" {
		t.Fatalf("%d, cursor %q: %s", first.Code, cursor, first.Body)
	}
	for name, c := range map[string]struct {
		query  string
		lines  int
		status int
	}{
		"all":                        {"", 2, 200},
		"pages of a given size":      {"cursor=&limit=10000", 2, 200},
		"the rest":                   {"cursor=" + cursor, 1, 200},
		"garbage":                    {"cursor=garbage", 0, 400},
		"no page":                    {"cursor=&limit=0", 0, 400},
		"too large":                  {"cursor=&limit=10001", 0, 400},
		"not a number":               {"cursor=&limit=x", 0, 400},
		"limit of an export":         {"limit=1", 0, 400},
		"window of a page":           {"cursor=&window=2026-04-23", 0, 400},
		"latest of a page":           {"cursor=&latest=true", 0, 400},
		"table of a page":            {"cursor=&format=csv", 0, 400},
		"unknown parameter":          {"cursor=&x=1", 0, 400},
		"unknown format":             {"format=xml", 0, 400},
		"bad flag":                   {"latest=perhaps", 0, 400},
		"in its window":              {"window=2026-04-23", 2, 200},
		"in another window":          {"window=2026-04-24", 0, 200},
		"in a bad window":            {"window=yesterday", 0, 400},
		"the newest":                 {"latest=true&format=jsonl", 2, 200},
		"a cursor of another source": {"cursor=" + storage.ChangeCursor{}.Text("other"), 0, 400},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(l, c.query)
			if lines := strings.Count(w.Body.String(), "\n"); w.Code != c.status || c.status == 200 && lines != c.lines {
				t.Errorf("%d with %d lines: %s", w.Code, lines, w.Body)
			}
		})
	}
	commit(t, l, 1, storage.NewObservation{Key: "c", Data: []byte(`{}`)})
	if ahead := get(l, "cursor=").Header().Get("Semel-Cursor"); get(other, "cursor="+ahead).Code != http.StatusBadRequest {
		t.Error("a cursor of another store is taken")
	}
}

// TestChangesOfReplace: rows that left would stay with whoever follows.
func TestChangesOfReplace(t *testing.T) {
	l := local(t)
	l.Config.Sources[0].Write = string(storage.WriteReplace)
	_, changes := l.Changes(t.Context(), ChangesRequest{Source: "shop", Limit: 1})
	_, cursor := l.FileCursor(t.Context(), "shop", "/f")
	for _, err := range []error{changes, cursor, l.MoveFileCursor(t.Context(), "shop", FileMove{Path: "/f"})} {
		if !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), "write mode is replace") {
			t.Error(err)
		}
	}
}

// TestFileCursorCalls goes through the socket's side of export --append.
func TestFileCursorCalls(t *testing.T) {
	l := local(t)
	commit(t, l, 0, storage.NewObservation{Key: "a", Data: []byte(`{}`)})
	c := client(t, NewHandler(l, ""))
	page, err := c.Changes(t.Context(), ChangesRequest{Source: "shop", Limit: 5})
	if err != nil || page.Rows != 1 || page.FirstWindow == nil || len(page.Lines) == 0 {
		t.Fatalf("%+v, %v", page, err)
	}
	if f, err := c.FileCursor(t.Context(), "shop", "/f"); err != nil || f != nil {
		t.Fatalf("%+v, %v", f, err)
	}
	begun := FileCursor{DataOnly: true}
	moved := FileCursor{Cursor: page.Cursor, Bytes: 3, Rows: 1, FirstWindow: page.FirstWindow, LastWindow: page.LastWindow, Sum: []byte{1}, Tail: []byte{2}}
	for _, move := range []struct {
		m    FileMove
		want error
	}{
		{FileMove{Path: "f", To: begun}, ErrBadRequest},
		{FileMove{Path: "/f", To: FileCursor{Cursor: "x"}}, ErrBadRequest},
		{FileMove{Path: "/f", From: &FileCursor{Cursor: "x"}, To: begun}, ErrBadRequest},
		{FileMove{Path: "/f", To: begun}, nil},
		{FileMove{Path: "/f", To: begun}, storage.ErrCursorMoved},
		{FileMove{Path: "/f", From: &begun, To: moved}, nil},
		{FileMove{Path: "/f", From: &begun, To: moved}, storage.ErrCursorMoved},
	} {
		if err := c.MoveFileCursor(t.Context(), "shop", move.m); !errors.Is(err, move.want) {
			t.Errorf("%+v: %v, want %v", move.m, err, move.want)
		}
	}
	if f, err := c.FileCursor(t.Context(), "shop", "/f"); err != nil || !cmp.Equal(*f, moved) {
		t.Errorf("%+v, %v, want %+v", f, err, moved)
	}
	for _, err := range []error{
		func() error { _, err := c.FileCursor(t.Context(), "nope", "/f"); return err }(),
		func() error { _, err := c.Changes(t.Context(), ChangesRequest{Source: "nope", Limit: 1}); return err }(),
		c.MoveFileCursor(t.Context(), "nope", FileMove{Path: "/f"}),
	} {
		if !errors.Is(err, ErrUnknownSource) {
			t.Error(err)
		}
	}
}
