package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"semel/engine"
	"semel/engine/api"
	"semel/engine/config"
	"semel/failpoint"
	"semel/storage"
)

// orderedIDs are the targets of the source that every way leads to.
var orderedIDs = []string{"1", "2", "3"}

// orderedConfig has a source whose records tell the window that they are of.
const orderedConfig = `version = 1
[engine]
robots = false
[host."*"]
interval = "0s"
[source.shop]
url = "http://shop.test/p/{id}"
targets = [{ id = "1" }, { id = "2" }, { id = "3" }]
key = "{id}"
schedule = "@hourly"
catch_up = "all"
write = %q
[source.shop.parser.fields]
title = { css = "h1", required = true }
window = { var = "window" }
`

// orderedHour is the start of a window.
func orderedHour(h int) time.Time { return time.Date(2026, 4, 23, h, 0, 0, 0, time.UTC) }

// things is a site that has a page under every path.
type things struct{}

func (things) RoundTrip(r *http.Request) (*http.Response, error) {
	body := "<h1>Thing " + path.Base(r.URL.Path) + "</h1>"
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// box is a folder with a store, into which jobs come by any way.
type box struct {
	t      *rapid.T
	dir    string
	config *config.Config
	store  *storage.Store
}

func openBox(t *rapid.T, write string) *box {
	dir, err := os.MkdirTemp("", "semel-anyorder-")
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, dir: dir}
	b.write("semel.toml", fmt.Sprintf(orderedConfig, write))
	if b.config, err = loadConfigFile(filepath.Join(dir, "semel.toml"), nil); err != nil {
		t.Fatal(err)
	}
	b.open()
	return b
}

func (b *box) write(name, text string) {
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) open() {
	var err error
	if b.store, err = storage.Open(b.config.Store.Path, storage.Options{NoSync: true}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) close() {
	if err := errors.Join(b.store.Close(), os.RemoveAll(b.dir)); err != nil {
		b.t.Error(err)
	}
}

func (b *box) local() *api.Local {
	return &api.Local{Store: b.store, Config: b.config, Offer: idle{b.config, b.store}.offer}
}

// work runs what is due at an hour, and all jobs there are.
func (b *box) work(hour int) error {
	sources, err := allSources(b.config, nil)
	if err != nil {
		return err
	}
	opts := engineOptions(b.config, sources, slog.New(slog.DiscardHandler))
	opts.Store, opts.Owner, opts.Transport, opts.At = b.store, "test", things{}, orderedHour(hour)
	e, err := engine.New(opts)
	if err != nil {
		return err
	}
	defer e.Close()
	_, err = e.RunOnce(context.Background())
	return err
}

func (b *box) backfill(from, to int) error {
	_, err := b.local().Backfill(context.Background(), api.BackfillRequest{Source: "shop", From: orderedHour(from), To: orderedHour(to)}, nil)
	return err
}

func (b *box) importFor(hour int, ids []string) error {
	name := strings.Join(ids, "-") + ".csv"
	b.write(name, "id\n"+strings.Join(ids, "\n")+"\n")
	r := api.ImportRequest{Source: "shop", Path: filepath.Join(b.dir, name), Window: orderedHour(hour).Format(time.RFC3339), ChunkRows: 1}
	_, err := b.local().Import(context.Background(), r, func(api.ImportNews) error { return nil })
	return err
}

func (b *box) submit(hour int, id, key string) error {
	s := api.Submission{Source: "shop", Vars: map[string]string{"id": id}, Window: orderedHour(hour).Format(time.RFC3339), IdempotencyKey: key}
	_, err := b.local().Submit(context.Background(), s)
	return err
}

// killed does something until it has come to a commit for the nth time, on either
// side of it, and opens the store as the next process would.
func (b *box) killed(n int, do func() error) {
	gone := errors.New("the process is gone")
	left := n
	failpoint.Set(func(p failpoint.Point, _ string) error {
		if p == failpoint.BeforeCommit || p == failpoint.AfterCommit {
			if left--; left < 0 {
				return gone
			}
		}
		return nil
	})
	err := do()
	failpoint.Set(nil)
	if err != nil && !errors.Is(err, gone) && !errors.Is(err, storage.ErrStopped) {
		b.t.Fatalf("killed at commit %d: %v", n, err)
	}
	_ = b.store.Close() // it may have stopped
	b.open()
}

// goods are the jobs of a box and what they brought, and nothing of how.
func (b *box) goods() string {
	if breaches, err := b.store.Check(); err != nil || len(breaches) > 0 {
		b.t.Fatalf("check: %v, %v", breaches, err)
	}
	var lines []string
	err := b.local().Jobs(context.Background(), api.JobFilter{}, func(j api.Job) error {
		lines = append(lines, fmt.Sprintln(j.Key, j.Window, j.URL, j.State))
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(lines)
	rows := &strings.Builder{}
	if _, err := b.local().Export(context.Background(), api.ExportRequest{Source: "shop", DataOnly: true}, rows); err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(lines, "") + rows.String()
}

// asked is what a box is asked to collect: targets by hour.
type asked map[int]map[string]bool

func (a asked) add(hour int, ids ...string) {
	if a[hour] == nil {
		a[hour] = map[string]bool{}
	}
	for _, id := range ids {
		a[hour][id] = true
	}
}

const lastHour = 6

// step draws one thing to do with a box, and notes what that asks for. ticked is
// the hour of the latest tick so far; -1: there was none.
func (b *box) step(want asked, ticked *int) (do func() error) {
	hour := rapid.IntRange(0, lastHour).Draw(b.t, "hour")
	switch rapid.SampledFrom([]string{"tick", "backfill", "import", "submit"}).Draw(b.t, "way") {
	case "tick":
		want.tick(hour, ticked)
		return func() error { return b.work(hour) }
	case "backfill":
		to := hour + rapid.IntRange(1, 3).Draw(b.t, "hours")
		for h := hour; h < to; h++ {
			want.add(h, orderedIDs...)
		}
		return func() error { return b.backfill(hour, to) }
	case "import":
		ids := rapid.SliceOfNDistinct(rapid.SampledFrom(orderedIDs), 1, 3, rapid.ID).Draw(b.t, "ids")
		want.add(hour, ids...)
		return func() error { return b.importFor(hour, ids) }
	}
	id, key := rapid.SampledFrom(orderedIDs).Draw(b.t, "id"), ""
	if rapid.Bool().Draw(b.t, "with a key") {
		key = fmt.Sprint(hour, "-", id)
	}
	want.add(hour, id)
	return func() error { return b.submit(hour, id, key) }
}

// tick asks for the window of the first tick, and for all since the last one.
func (a asked) tick(hour int, ticked *int) {
	from := *ticked + 1
	if *ticked < 0 {
		from = hour
	}
	for h := from; h <= hour; h++ {
		a.add(h, orderedIDs...)
	}
	*ticked = max(*ticked, hour)
}

// TestWaysInAnyOrder: whichever ways jobs come in, in whatever order, killed or not
// and worked in between or not, the jobs and what they bring are those of one import
// for each window, in the order of the windows.
func TestWaysInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		write := rapid.SampledFrom([]string{"insert", "upsert", "append"}).Draw(t, "write")
		b := openBox(t, write)
		defer b.close()
		want, ticked := asked{}, -1
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			do := b.step(want, &ticked)
			if rapid.Bool().Draw(t, "killed") {
				b.killed(rapid.IntRange(0, 9).Draw(t, "at commit"), do)
			}
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
		want.tick(lastHour, &ticked)
		if err := b.work(lastHour); err != nil {
			t.Fatal(err)
		}
		if got, plain := b.goods(), imported(t, write, want); got != plain {
			t.Fatalf("any order:\n%s\none way alone:\n%s", got, plain)
		}
	})
}

// imported are the goods of a box that got all that is wanted by imports alone.
func imported(t *rapid.T, write string, want asked) string {
	b := openBox(t, write)
	defer b.close()
	for _, hour := range slices.Sorted(maps.Keys(want)) {
		if err := b.importFor(hour, slices.Sorted(maps.Keys(want[hour]))); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.work(lastHour); err != nil {
		t.Fatal(err)
	}
	return b.goods()
}
