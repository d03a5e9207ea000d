package api

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"semel/engine/intake"
	"semel/parser"
)

// importing is a service whose source shop takes a variable n, and a file of two
// good rows and a bad one.
func importing(t *testing.T) (*Local, ImportRequest) {
	t.Helper()
	l := local(t)
	s := &l.Config.Sources[0]
	var err error
	if s.URL, err = intake.ParseTemplate("http://x.test/{n}"); err != nil {
		t.Fatal(err)
	}
	s.ParserVersion = 1
	if s.Rules, err = parser.Compile(parser.Spec{Version: 1, Fields: []parser.Field{{Name: "n", Rule: parser.Rule{CSS: "h1"}}}}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "skus.csv")
	if err := os.WriteFile(path, []byte("n\n1\n2,x\n3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return l, ImportRequest{Source: "shop", Path: path, ChunkRows: 1}
}

// What an import tells comes through a client as it is told.
func TestClientImport(t *testing.T) {
	l, r := importing(t)
	c := client(t, NewHandler(l, ""))
	var news []ImportNews
	result, err := c.Import(t.Context(), r, func(n ImportNews) error {
		news = append(news, n)
		return nil
	})
	want := []ImportNews{
		{Bad: &BadRow{3, "has 2 fields, the header 1"}},
		{Progress: &ImportProgress{Making: true, Rows: 1, Of: 2}},
		{Progress: &ImportProgress{Making: true, Rows: 2, Of: 2}},
	}
	if diff := cmp.Diff(want, news); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if len(result.SHA256) != 64 {
		t.Errorf("checksum %q", result.SHA256)
	}
	result.SHA256 = ""
	if diff := cmp.Diff(ImportResult{Path: r.Path, Rows: 3, New: 2, Bad: 1, Chunks: 2}, result); diff != "" {
		t.Error(diff)
	}
}

func TestImportRefused(t *testing.T) {
	l, r := importing(t)
	c := client(t, NewHandler(l, ""))
	for name, test := range map[string]struct {
		change func(*ImportRequest)
		want   error
	}{
		"source":   {func(r *ImportRequest) { r.Source = "ghost" }, ErrUnknownSource},
		"relative": {func(r *ImportRequest) { r.Path = "skus.csv" }, ErrBadRequest},
		"kind":     {func(r *ImportRequest) { r.Path += ".gz" }, ErrBadRequest},
		"none":     {func(r *ImportRequest) { r.ChunkRows = 0 }, ErrBadRequest},
		"many":     {func(r *ImportRequest) { r.ChunkRows = 5001 }, ErrBadRequest},
	} {
		changed := r
		test.change(&changed)
		if _, err := c.Import(t.Context(), changed, func(ImportNews) error { return nil }); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// Of two imports of one file the second is refused while the first goes on, and
// changes nothing of that one.
func TestImportAtOnce(t *testing.T) {
	l, r := importing(t)
	quiet := func(ImportNews) error { return nil }
	result, err := l.Import(t.Context(), r, func(ImportNews) error {
		if _, err := l.Import(t.Context(), r, quiet); !errors.Is(err, ErrImporting) {
			t.Errorf("the second: %v", err)
		}
		return nil
	})
	if err != nil || result.New != 2 {
		t.Errorf("the first: %+v, %v", result, err)
	}
	if result, err := l.Import(t.Context(), r, quiet); err != nil || result.Before == nil {
		t.Errorf("after it: %+v, %v", result, err)
	}
}

// A run that waits for an import names it, and status warns of one that was cut
// short until it has been gone on with.
func TestImportCutShort(t *testing.T) {
	l, r := importing(t)
	c := client(t, NewHandler(l, ""))
	warned := func() bool {
		status, err := c.Status(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(status.Warnings, func(w string) bool {
			return strings.Contains(w, "the import of skus.csv was cut short, and run shop:-:skus.csv waits")
		})
	}
	enough := errors.New("enough")
	_, err := l.Import(t.Context(), r, func(n ImportNews) error {
		if n.Progress == nil {
			return nil
		}
		if warned() {
			t.Error("warned while it is under way")
		}
		return enough
	})
	runs := listRuns(t, c, RunFilter{})
	if !errors.Is(err, enough) || len(runs) != 1 || runs[0].State != RunListing || !slices.Equal(runs[0].Imports, []string{"skus.csv"}) || !warned() {
		t.Errorf("cut short (%v): %+v, warned %v", err, runs, warned())
	}
	_, err = l.Import(t.Context(), r, func(ImportNews) error { return nil })
	if runs := listRuns(t, c, RunFilter{}); err != nil || runs[0].State != RunWorking || runs[0].Imports != nil || warned() {
		t.Errorf("gone on with (%v): %+v, warned %v", err, runs, warned())
	}
}
