package api

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/engine"
	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

// localWithRules is local whose source has rules of a version.
func localWithRules(t *testing.T, version int) *Local {
	t.Helper()
	l := local(t)
	l.Config.Sources[0].Rules, l.Config.Sources[0].ParserVersion = rules(t, version), version
	l.Config.Sources[0].IdentityText = "identity: target"
	return l
}

func TestAccept(t *testing.T) {
	l := localWithRules(t, 2)
	src := &l.Config.Sources[0]
	for _, s := range []Service{l, client(t, NewHandler(l, ""))} {
		got, err := s.Accept(t.Context(), NewAcceptRequest(src))
		if want := (AcceptResult{Source: "shop", Accepted: []string{}, Version: 2}); err != nil || !cmp.Equal(got, want) {
			t.Errorf("a source without jobs: %+v, %v", got, err)
		}
	}
	update(t, l, func(tx *storage.Tx) error {
		was := stored(src)
		was.Identity, was.IdentityText = "other", "identity: other"
		return tx.PutSource(was)
	})
	c := client(t, NewHandler(l, ""))
	other := NewAcceptRequest(src)
	other.Rules = "other"
	if _, err := c.Accept(t.Context(), other); !errors.Is(err, ErrOtherConfig) {
		t.Errorf("another config: %v", err)
	}
	if _, err := c.Accept(t.Context(), AcceptRequest{Source: "nobody"}); !errors.Is(err, ErrUnknownSource) {
		t.Errorf("an unknown source: %v", err)
	}
	got, err := c.Accept(t.Context(), NewAcceptRequest(src))
	if err != nil || len(got.Accepted) != 1 || !strings.Contains(got.Accepted[0], "from (identity: other) to (identity: target)") {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = c.Accept(t.Context(), NewAcceptRequest(src)); err != nil || len(got.Accepted) != 0 {
		t.Errorf("again: %+v, %v", got, err)
	}
}

// A guard's error is one on the other side, too.
func TestGuardPasses(t *testing.T) {
	err := newProblem(&engine.GuardError{Guards: []engine.Guard{{Source: "shop", What: "x"}, {Source: "more", What: "y"}}}).err()
	if !errors.Is(err, engine.ErrGuard) || err.Error() != "source shop: x; source more: y" {
		t.Errorf("%v", err)
	}
}

// Complete jobs are collected again where they are asked for: by name, or all of
// a source that may be sent again.
func TestRetryRecollects(t *testing.T) {
	l := localWithRules(t, 2)
	src := &l.Config.Sources[0]
	window := time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)
	update(t, l, func(tx *storage.Tx) error {
		for _, key := range []storage.JobKey{{Target: "a"}, {Target: "b", Window: window}, {Target: "c", Version: 1}, {Target: "d", Version: 2}, {Target: "e"}} {
			key.Source = "shop"
			n := storage.NewJob{Key: key, Window: key.Window, Version: key.Version, URL: "http://x.test/", Host: "x.test"}
			if _, err := tx.EnqueueJob(n); err != nil {
				return err
			}
		}
		return nil
	})
	complete := func(tx *storage.Tx, j *storage.Job) error {
		_, err := tx.CompleteJob(j.Lease(), storage.Completion{Mode: storage.WriteUpsert, Attempt: storage.Attempt{ParserVersion: max(1, j.Key.Version)}})
		return err
	}
	work(t, l, 4, complete)
	work(t, l, 1, failAs(storage.CategoryBlocked))
	again := func(s Selection) []uint64 {
		t.Helper()
		s.Recollect = true
		jobs, err := changed(t, client(t, NewHandler(l, "")).Retry, s)
		if err != nil {
			t.Fatal(err)
		}
		var ids []uint64
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		work(t, l, len(jobs), complete)
		return ids
	}
	for _, c := range []struct {
		name string
		s    Selection
		with func()
		want []uint64
	}{
		{"of a category", Selection{Source: "shop", Category: storage.CategoryBlocked}, nil, []uint64{5}},
		{"of a window", Selection{Source: "shop", From: window, To: window.Add(time.Second)}, nil, []uint64{2}},
		{"of a window without jobs", Selection{Source: "shop", From: window.Add(-time.Hour), To: window}, nil, nil},
		{"of a source, but for another version's", Selection{Source: "shop"}, nil, []uint64{1, 2, 4, 5}},
		{"by name, whatever it is", Selection{Refs: []string{"3"}}, nil, []uint64{3}},
		{"of a source that must not be sent again", Selection{Source: "shop"}, func() { src.Steps = []config.Step{{Repeatable: false}} }, nil},
		{"of a source that is not in the config", Selection{Source: "shop"}, func() {
			l.Config.Sources = []config.Source{{Source: intake.Source{Name: "other"}}}
			update(t, l, func(tx *storage.Tx) error { return tx.PutSource(storage.Source{Name: "shop"}) })
		}, nil},
	} {
		if c.with != nil {
			c.with()
		}
		if got := again(c.s); !slices.Equal(got, c.want) {
			t.Errorf("%s: jobs %v, want %v", c.name, got, c.want)
		}
	}
}

// A comparison is the engine's, in a store that is gone afterwards.
func TestLocalCompare(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	l := localWithRules(t, 1)
	src := &l.Config.Sources[0]
	var scratch string
	row := func(data string) *storage.Observation {
		return &storage.Observation{Key: storage.JobKey{Source: "shop", Target: "a"}, Country: "US", Data: []byte(data)}
	}
	from := time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)
	l.CompareIn = func(_ context.Context, past engine.Past, s *storage.Store, fn func(engine.Difference) error) (engine.Comparison, error) {
		scratch = s.Path()
		if want := (engine.Past{Source: "shop", From: from, To: from.Add(time.Hour)}); past != want {
			t.Errorf("asked for %+v, want %+v", past, want)
		}
		for _, d := range []engine.Difference{{Was: row(`{"x":1,"y":[2],"z":null}`), Now: row(`{"y":[3],"z":null,"w":"<"}`)}, {Was: row(`{}`)}, {Now: row(`{"n":1}`)}} {
			if err := fn(d); err != nil {
				return engine.Comparison{}, err
			}
		}
		return engine.Comparison{Jobs: 1, Failed: 2, Same: 3, New: 4, Changed: 5, Gone: 6, Elsewhere: 7, NotCompared: 8}, nil
	}
	country := "US"
	c := client(t, NewHandler(l, ""))
	var got []Difference
	result, err := c.Compare(t.Context(), CompareRequest{"shop", from, from.Add(time.Hour)}, func(d Difference) error { got = append(got, d); return nil })
	want := []Difference{
		{Kind: "changed", Key: "a", Country: &country, Fields: []FieldChange{
			{"w", nil, []byte(`"<"`)}, {"x", []byte("1"), nil}, {"y", []byte("[2]"), []byte("[3]")},
		}},
		{Kind: "gone", Key: "a", Country: &country, Record: []byte("{}")},
		{Kind: "new", Key: "a", Country: &country, Record: []byte(`{"n":1}`)},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" || result != (CompareResult{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("%+v, %v\n%s", result, err, diff)
	}
	if _, err := os.Stat(filepath.Dir(scratch)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its folder: %v", err)
	}
	for _, r := range []CompareRequest{{Source: "shop", From: from}, {Source: "shop", To: from}} {
		if _, err := c.Compare(t.Context(), r, nil); !errors.Is(err, ErrBadRequest) {
			t.Errorf("half a range: %v", err)
		}
	}
	src.Steps = []config.Step{{Repeatable: false}}
	if _, err := c.Compare(t.Context(), CompareRequest{Source: "shop"}, nil); !errors.Is(err, ErrBadRequest) {
		t.Errorf("a request that must not be repeated: %v", err)
	}
	if _, err := c.Compare(t.Context(), CompareRequest{Source: "nobody"}, nil); !errors.Is(err, ErrUnknownSource) {
		t.Errorf("an unknown source: %v", err)
	}
}
