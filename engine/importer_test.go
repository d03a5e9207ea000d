package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/engine/intake"
	"semel/failpoint"
	"semel/storage"
	"semel/storage/storagetest"
)

// told keeps what an import tells.
type told struct {
	bad      []string
	changed  []ImportChanged
	progress []ImportProgress
}

func (to *told) tell(n ImportNews) error {
	switch {
	case n.Bad != nil:
		to.bad = append(to.bad, fmt.Sprintf("%d %s", n.Bad.Line, n.Bad.Reason))
	case n.Changed != nil:
		to.changed = append(to.changed, *n.Changed)
	case n.Progress != nil:
		to.progress = append(to.progress, *n.Progress)
	}
	return nil
}

// importer imports a file of targets of the source shop, in chunks of two rows.
func importer(t testing.TB, store *storage.Store, name, content string) (*Importer, *told) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	src := source(t, 0)
	to := &told{}
	return &Importer{
		Store: store, Source: &src.Source, Vars: []string{"id"}, Record: storage.Source{Name: "shop", Identity: "x"},
		Path: path, ChunkRows: 2, Tell: to.tell,
	}, to
}

func rowsOf(from, to int) string {
	var b strings.Builder
	b.WriteString("id\n")
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%05d\n", i)
	}
	return b.String()
}

func runImport(t testing.TB, im *Importer) Imported {
	t.Helper()
	done, err := im.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// wantImported compares what an import did, but for checksum and time.
func wantImported(t testing.TB, got Imported, want Imported) {
	t.Helper()
	got.SHA256, want.SHA256 = [32]byte{}, [32]byte{}
	if got.Before.IsZero() == want.Before.IsZero() {
		got.Before = want.Before
	}
	if got != want {
		t.Errorf("imported %+v, want %+v", got, want)
	}
}

// jobsText is all that a store says of its jobs but for their times, in the
// order of their ids.
func jobsText(t testing.TB, s *storage.Store) string {
	t.Helper()
	var b strings.Builder
	err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, 1<<30, func(j *storage.Job) bool {
			fmt.Fprintln(&b, j.ID, j.Key, j.URL, j.Vars, j.State, j.Run)
			return true
		})
		if err != nil {
			return err
		}
		return tx.Runs(0, func(r *storage.Run) bool {
			fmt.Fprintln(&b, r.ID, r.Key, r.Kind, r.Jobs, r.Open, r.Listing, r.Offered)
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Every bad row is told with its line, and the others become jobs.
func TestImportBadRows(t *testing.T) {
	for _, test := range []struct {
		file, content string
		good          int64
		want          []string
	}{
		{"a.csv", "id,x\n1,a\n\n2\n ,b\n3,\"c\nd\"\n\xff,e\n4,f,g\n5,h\n", 3, []string{
			"4 has 1 fields, the header 2", `5 url: variable "id" is empty`, `8 column "id" is not UTF-8`, "9 has 3 fields, the header 2",
		}},
		{"a.jsonl", "{\"id\":1}\n{\"id\":\"\"}\n{\"sku\":2}\nx\n{\"id\":null}\n{\"id\":3}\n", 2, []string{
			`2 url: variable "id" is empty`, `3 variable "id" is missing`, "4 is not a JSON object", `5 variable "id" is missing`,
		}},
		{"a.txt", "http://x.test/1\n# comment\nno url\nftp://x.test/\nhttp://u:p@x.test/\n\nhttp://x.test/2\n", 2, []string{
			"3 url: holds a space or a control character", `4 url: scheme "ftp" is neither http nor https`, "5 url: holds a user name or password",
		}},
		{"key.txt", "http://x.test/" + strings.Repeat("a", intake.MaxKeyBytes) + "\nhttp://x.test/2\n", 1, []string{
			fmt.Sprintf("1 the key has %d bytes, more than %d", intake.MaxKeyBytes+29, intake.MaxKeyBytes),
		}},
	} {
		t.Run(test.file, func(t *testing.T) {
			store := storagetest.Open(t)
			im, to := importer(t, store, test.file, test.content)
			if strings.HasSuffix(test.file, ".txt") {
				im.Source.URL, im.Source.Key, im.Vars = intake.Template{}, intake.Template{}, []string{"url"}
			}
			bad := int64(len(test.want))
			im.Strict = true
			wantImported(t, runImport(t, im), Imported{Rows: test.good + bad, Bad: bad})
			if diff := cmp.Diff(test.want, to.bad); diff != "" {
				t.Error(diff)
			}
			if text := jobsText(t, store); text != "" {
				t.Errorf("strict, and there are\n%s", text)
			}
			im.Strict = false
			wantImported(t, runImport(t, im), Imported{Rows: test.good + bad, Bad: bad, New: test.good, Chunks: (test.good + 1) / 2})
		})
	}
}

// A file of the wrong form is one error, or a bounded number of bad rows.
func TestImportWrongForm(t *testing.T) {
	for _, test := range []struct{ file, content, want string }{
		{"a.csv", "sku,x\n1,2\n", `a.csv has no column "id", which source shop needs (it has: sku, x)`},
		{"a.txt", "http://x.test/\n", `a.txt has no column "id", which source shop needs (it has: url)`},
		{"a.csv", "", "there is no header row"},
		{"a.xlsx", "", "its name ends in none of .csv, .jsonl and .txt"},
	} {
		im, _ := importer(t, storagetest.Open(t), test.file, test.content)
		if _, err := im.Run(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.file, err, test.want)
		}
	}
	im, to := importer(t, storagetest.Open(t), "a.jsonl", strings.Repeat("x\n", 1000))
	wantImported(t, runImport(t, im), Imported{Rows: 1000, Bad: 1000})
	if len(to.bad) != maxTold {
		t.Errorf("%d bad rows were told", len(to.bad))
	}
	im.Path = t.TempDir()
	if _, err := im.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is no regular file") {
		t.Errorf("a folder: %v", err)
	}
}

// The same file again changes nothing, from wherever it is read; another config
// makes other jobs of it.
func TestImportTwice(t *testing.T) {
	store := storagetest.Open(t)
	im, to := importer(t, store, "skus.csv", rowsOf(0, 5))
	done := runImport(t, im)
	wantImported(t, done, Imported{Rows: 5, New: 5, Chunks: 3})
	if done.SHA256 != sha256.Sum256([]byte(rowsOf(0, 5))) {
		t.Error("the checksum is not the file's")
	}
	want := jobsText(t, store)
	again, _ := importer(t, store, "skus.csv", rowsOf(0, 5))
	wantImported(t, runImport(t, again), Imported{Rows: 5, Known: 5, Before: time.Now()})
	if got := jobsText(t, store); got != want || len(to.changed) != 0 {
		t.Errorf("%v; the jobs are\n%s\nwant\n%s", to.changed, got, want)
	}
	im.Source.Identity.Parser, im.Source.ParserVersion = true, 2
	wantImported(t, runImport(t, im), Imported{Rows: 5, New: 5, Chunks: 3})
}

// A file that has changed under its name is told, and imported as it is.
func TestImportChanged(t *testing.T) {
	store := storagetest.Open(t)
	im, _ := importer(t, store, "skus.csv", rowsOf(0, 5))
	runImport(t, im)
	im, to := importer(t, store, "skus.csv", rowsOf(2, 9))
	wantImported(t, runImport(t, im), Imported{Rows: 7, Known: 3, New: 4, Chunks: 4})
	if len(to.changed) != 1 || !to.changed[0].Ended || to.changed[0].RowsWas != 5 || to.changed[0].RowsNow != 7 {
		t.Errorf("told %+v", to.changed)
	}
	// The same since an import that did not come to its end: chunks that are the
	// same are skipped.
	im, _ = importer(t, store, "more.csv", rowsOf(10, 20))
	interrupt(t, im, 2)
	im, to = importer(t, store, "more.csv", rowsOf(10, 13)+"00099\n")
	wantImported(t, runImport(t, im), Imported{Rows: 4, Known: 3, New: 1, Chunks: 1, Passed: 1})
	if len(to.changed) != 1 || to.changed[0].Ended || to.changed[0].RowsWas != 10 {
		t.Errorf("told %+v", to.changed)
	}
}

// interrupt ends an import after some chunks.
func interrupt(t *testing.T, im *Importer, chunks int) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	im.Tell = func(n ImportNews) error {
		if n.Progress != nil && n.Progress.Making {
			if chunks--; chunks == 0 {
				cancel(stop)
			}
		}
		return nil
	}
	if _, err := im.Run(ctx); !errors.Is(err, stop) {
		t.Fatalf("interrupted: %v", err)
	}
}

// A file that is written to between its two passes is not taken for imported.
func TestImportChangedMeanwhile(t *testing.T) {
	store := storagetest.Open(t)
	im, _ := importer(t, store, "skus.csv", rowsOf(0, 5)+" \n")
	im.Tell = func(n ImportNews) error {
		if n.Bad != nil { // it stands last: the first pass is over
			return os.WriteFile(im.Path, []byte(rowsOf(0, 6)), 0o600)
		}
		return nil
	}
	if _, err := im.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "has changed while it was imported") {
		t.Errorf("error %v", err)
	}
	im.Tell = (&told{}).tell
	if done := runImport(t, im); done.Rows != 6 || done.New+done.Known != 6 || done.Chunks+done.Passed != 3 || !done.Before.IsZero() {
		t.Errorf("imported %+v", done)
	}
}

// Killed at any commit, before or after it is durable, and run again until it
// comes to its end, an import makes what an undisturbed one makes.
func TestImportKilled(t *testing.T) {
	const rows = 41
	whole := storagetest.Open(t)
	im, _ := importer(t, whole, "skus.csv", rowsOf(0, rows))
	runImport(t, im)
	want := jobsText(t, whole)
	random := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		path := filepath.Join(t.TempDir(), "semel.db")
		deaths, passed := 0, int64(0)
		for {
			done, err := importUntil(t, path, im, random.IntN(12))
			passed += done.Passed
			if err == nil {
				break
			}
			deaths++
		}
		store := storagetest.OpenAt(t, path, storage.Options{})
		if got := jobsText(t, store); got != want {
			t.Fatalf("after %d deaths the jobs are\n%s\nwant\n%s", deaths, got, want)
		}
		if deaths > 1 && passed == 0 {
			t.Errorf("%d deaths, and no chunk was passed over", deaths)
		}
	}
}

// importUntil imports into the store at path, whose disk fails at the nth point
// of a commit.
func importUntil(t *testing.T, path string, im *Importer, n int) (Imported, error) {
	t.Helper()
	store, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	failpoint.Set(func(p failpoint.Point, _ string) error {
		if p == failpoint.BeforeCommit || p == failpoint.AfterCommit {
			if n--; n < 0 {
				return errors.New("the disk is gone")
			}
		}
		return nil
	})
	defer failpoint.Set(nil)
	killed := *im
	killed.Store = store
	done, err := killed.Run(t.Context())
	failpoint.Set(nil)
	if closeErr := store.Close(); err == nil && closeErr != nil {
		t.Fatal(closeErr)
	}
	return done, err
}

// The jobs of an import are those of its run, or of its window's, which is over
// once.
func TestImportRun(t *testing.T) {
	store := storagetest.Open(t)
	im, _ := importer(t, store, "skus.csv", rowsOf(0, 3))
	im.Sinks = []storage.Subscription{{Sink: "all"}}
	runImport(t, im)
	im.Window = time.Now().Truncate(time.Second).UTC()
	runImport(t, im)
	err := store.View(func(tx *storage.Tx) error {
		for _, key := range []storage.RunKey{{Source: "shop", Import: "skus.csv"}, {Source: "shop", Window: im.Window}} {
			r, err := tx.RunByKey(key)
			if err != nil {
				return err
			}
			if r.Jobs != 3 || r.Open != 3 || r.Listing || !r.Offered || r.Kind != storage.RunImport {
				t.Errorf("run %+v", r)
			}
		}
		_, err := tx.Source("shop")
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestImportTellEnds(t *testing.T) {
	im, _ := importer(t, storagetest.Open(t), "skus.csv", "id\n1\n \n")
	enough := errors.New("enough")
	im.Tell = func(ImportNews) error { return enough }
	if _, err := im.Run(t.Context()); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := im.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
