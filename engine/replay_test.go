package engine

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/parser"
	"semel/storage"
	"semel/storage/storagetest"
)

func fieldRules(t *testing.T, css string) *parser.Rules {
	t.Helper()
	rules, err := parser.Compile(parser.Spec{Version: 1, Fields: []parser.Field{
		{Name: "title", Rule: parser.Rule{CSS: css}, Required: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// Pages read again under the same rules give the same observations; under
// others each that differs is named.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			switch req.URL.Path {
			case "/p/001":
				return respond(404, "no such thing"), nil
			case "/p/002":
				return respond(200, "<h1>Two</h1>"), nil // without a title element
			}
			return product(req.URL.Path), nil
		})
		src := source(t, 8)
		src.Gone = true
		opts := options(s, web, src)
		opts.Bodies = BodiesAll
		runOnce(t, opts)
		// One more, collected while no pages were kept.
		opts.Bodies = BodiesNone
		opts.Sources[0] = source(t, 9)
		runOnce(t, opts)

		got := replayed(t, opts)
		if got.Pages != 8 || got.Rows != 8 || got.Missing != 1 || len(got.Unlike) != 0 {
			t.Errorf("the same rules: %+v", got)
		}
		opts.Sources[0].Rules = fieldRules(t, "title")
		got = replayed(t, opts)
		if got.Pages != 8 || got.Rows != 7 || len(got.Unlike) != 7 {
			t.Fatalf("other rules: %+v", got)
		}
		text := ""
		for _, u := range got.Unlike {
			text += u.Key + ": " + u.What + "\n"
		}
		for _, want := range []string{
			"shop:002:-:-:-:-: its page no longer gives records: ",
			`shop:003:-:-:-:-: it was {"title":"Thing /p/003"}, and is {"title":"page /p/003"}`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
	})
}

func replayed(t *testing.T, opts Options) Replay {
	t.Helper()
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	scratch := storagetest.OpenAt(t, filepath.Join(t.TempDir(), "scratch.db"), storage.Options{NoSync: true})
	got, err := e.Replay(t.Context(), "shop", scratch)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A page that retention lets go between the look at its attempt and the read is
// one that is missing.
func TestReplayOfAPageJustGone(t *testing.T) {
	s, err := storage.Open(filepath.Join(t.TempDir(), "semel.db"), storage.Options{NoSync: true}) // it would not pass Check
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	opts := options(s, newSite(products), source(t, 1))
	err = s.Update(t.Context(), func(tx *storage.Tx) error {
		key := storage.JobKey{Source: "shop", Target: "001"}
		if _, err := tx.EnqueueJob(storage.NewJob{Key: key, URL: "http://shop.test/p/001", Host: "shop.test"}); err != nil {
			return err
		}
		claimed, err := tx.ClaimJobs("me", opts.Lease, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
		if err != nil {
			return err
		}
		_, err = tx.CompleteJob(claimed[0][0].Lease(), storage.Completion{
			Attempt: storage.Attempt{Page: storage.PageHash{1}, ParserVersion: 1}, Mode: storage.WriteUpsert,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := replayed(t, opts); got.Missing != 1 || got.Pages != 0 {
		t.Errorf("%+v", got)
	}
}

// What a page no longer gives stays, by its rules or by newer ones, and is no
// difference.
func TestReplayOfRowsThatStay(t *testing.T) {
	for _, mode := range []storage.WriteMode{storage.WriteUpsert, storage.WriteAppend, storage.WriteInsert} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := offersOf(t, 3, 1, mode, "li")
				s := collectedWindow(t, src)
				all := len(rows(t, s))
				slips := options(s, newSite(offers), offersOf(t, 3, 1, mode, "li:not(.more)"))
				slips.Bodies = BodiesAll
				if got := replayed(t, slips); len(got.Unlike) == 0 {
					t.Errorf("other rules under the same version: %+v", got)
				}
				time.Sleep(time.Hour)
				fewer := newSite(func(*http.Request, int) (*http.Response, error) { return respond(200, "<ul></ul>"), nil })
				if err := s.Update(t.Context(), func(tx *storage.Tx) error { _, err := tx.RecollectJob(1); return err }); err != nil {
					t.Fatal(err)
				}
				opts := options(s, fewer, src)
				opts.Bodies = BodiesAll
				runOnce(t, opts)
				if got := replayed(t, opts); len(got.Unlike) != 0 || got.Pages != 3 {
					t.Errorf("the page has fewer rows: %+v", got)
				}
				opts.Sources[0] = offersOf(t, 3, 2, mode, "li:not(.more)")
				reparse(t, idle(t, s, opts.Sources[0]), false)
				if got := replayed(t, opts); len(got.Unlike) != 0 || got.Pages != 3 || got.Rows == 0 {
					t.Errorf("the rules give fewer rows: %+v", got)
				}
				if n := len(rows(t, s)); n != all {
					t.Errorf("%d rows stand of %d", n, all)
				}
			})
		})
	}
}
