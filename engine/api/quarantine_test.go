package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"semel/engine"
	"semel/storage"
	"semel/storage/storagetest"
)

// quarantineOf is a store whose job 1 of source shop has a page in quarantine.
func quarantineOf(t *testing.T) *Local {
	t.Helper()
	l := shopping(t, storagetest.Open(t))
	quarantine(t, l, "a")
	return l
}

// quarantine has the page of a new job of source shop set aside.
func quarantine(t *testing.T, l *Local, target string) {
	t.Helper()
	err := l.Store.Update(t.Context(), func(tx *storage.Tx) error {
		_, err := tx.EnqueueJob(storage.NewJob{Key: storage.JobKey{Source: "shop", Target: target}, URL: "http://shop.test/", Host: "shop.test"})
		if err != nil {
			return err
		}
		claimed, err := tx.ClaimJobs("me", 1, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
		if err != nil {
			return err
		}
		a := storage.Attempt{Category: storage.CategoryValidation, ParserVersion: 1, Kept: storage.KeepPage([]byte("<p>"))}
		return tx.FailJob(claimed[0][0].Lease(), a, storage.Failure{Category: a.Category, Problems: []storage.Problem{{Row: -1, Field: "title", Reason: "is missing"}}})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Pages are read by the rules that the caller means, or not at all.
func TestReleaseByOtherRules(t *testing.T) {
	l := quarantineOf(t)
	read := 0
	l.Release = func(context.Context, string, uint64) ([]storage.Problem, error) {
		read++
		return nil, nil
	}
	l.Reread = func(context.Context, engine.Past, bool, func(engine.ReparseNews) error) (engine.Reparsing, error) {
		read++
		return engine.Reparsing{}, nil
	}
	client := InProcess(NewHandler(l, ""), slog.New(slog.DiscardHandler))
	defer client.Close()
	for _, test := range []struct {
		rules Rules
		want  error
		read  int
	}{
		{Rules{"shop": "other"}, ErrOtherConfig, 0},
		{Rules{"shop": strings.Replace(RulesOf(l.Config)["shop"], "v1 ", "v2 ", 1)}, ErrOtherConfig, 0},
		{RulesOf(l.Config), nil, 2},
		{nil, nil, 2},
	} {
		read = 0
		err := client.ReleasePages(t.Context(), PageSelection{Source: "shop", Rules: test.rules}, func(Released) error { return nil })
		_, err2 := client.Reparse(t.Context(), ReparseRequest{Source: "shop", Rules: test.rules}, func(ReparseNews) error { return nil })
		if !errors.Is(err, test.want) || !errors.Is(err2, test.want) || read != test.read {
			t.Errorf("rules %v: %v and %v, %d pages read", test.rules, err, err2, read)
		}
	}
}

// A page that cannot be read again is told, and the others are released.
func TestReleaseWithoutPage(t *testing.T) {
	l := quarantineOf(t)
	l.Release = func(context.Context, string, uint64) ([]storage.Problem, error) { return nil, engine.ErrNoPage }
	var got []Released
	client := InProcess(NewHandler(l, ""), slog.New(slog.DiscardHandler))
	defer client.Close()
	err := client.ReleasePages(t.Context(), PageSelection{Refs: []string{"shop:a:-:-:-:-"}}, func(r Released) error {
		got = append(got, r)
		return nil
	})
	if err != nil || len(got) != 1 || got[0].Released || got[0].Unread != engine.ErrNoPage.Error() || len(got[0].Problems) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestQuarantineRequests(t *testing.T) {
	l := quarantineOf(t)
	h := NewHandler(l, "")
	for _, test := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/quarantine?source=shop&field=title", "", http.StatusOK, `"id":1,"job":"shop:a:-:-:-:-"`},
		{"GET", "/v1/quarantine?field=price", "", http.StatusOK, ""},
		{"GET", "/v1/quarantine?source=none", "", http.StatusNotFound, "unknown source"},
		{"GET", "/v1/quarantine?limit=-1", "", http.StatusBadRequest, "limit is"},
		{"GET", "/v1/quarantine?odd=1", "", http.StatusBadRequest, "unknown parameter"},
		{"GET", "/v1/quarantine/1", "", http.StatusOK, `"row":null,"field":"title"`},
		{"GET", "/v1/quarantine/1/page", "", http.StatusOK, "<p>"},
		{"GET", "/v1/quarantine/2", "", http.StatusNotFound, "not found"},
		{"POST", "/v1/quarantine/discard", "{}", http.StatusBadRequest, "name refs or a source"},
		{"POST", "/v1/quarantine/discard", `{"refs":["1"],"source":"shop"}`, http.StatusBadRequest, "not both"},
		{"POST", "/v1/quarantine/release", `{"refs":["1"],"source":"shop"}`, http.StatusBadRequest, "not both"},
		{"POST", "/v1/quarantine/discard", `{"refs":["1"]}`, http.StatusOK, `"id":1`},
		{"POST", "/v1/quarantine/discard", `{"refs":["1"]}`, http.StatusNotFound, "not found"},
	} {
		w := ask(h, test.method, test.path, test.body)
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%s %s: %d %s, want %d and %s", test.method, test.path, w.Code, w.Body, test.status, test.want)
		}
	}
}

// A page that leaves the quarantine while those of its source are gone through, as when
// a run completes its job, does not end the call. That a source is none of the process
// that holds the store does.
func TestSourceBesideARun(t *testing.T) {
	for name, all := range map[string]func(l *Local, told func(id uint64)) error{
		"release": func(l *Local, told func(uint64)) error {
			return l.ReleasePages(t.Context(), PageSelection{Source: "shop"}, func(r Released) error { told(r.ID); return nil })
		},
		"discard": func(l *Local, told func(uint64)) error {
			return l.DiscardPages(t.Context(), PageSelection{Source: "shop"}, func(q Quarantined) error { told(q.ID); return nil })
		},
	} {
		l := quarantineOf(t)
		quarantine(t, l, "b")
		quarantine(t, l, "c")
		leaves := func(job uint64) error {
			return l.Store.Update(t.Context(), func(tx *storage.Tx) error { return tx.DiscardQuarantine(job) })
		}
		l.Release = func(_ context.Context, _ string, job uint64) ([]storage.Problem, error) { return nil, leaves(job) }
		var ids []uint64
		err := all(l, func(id uint64) {
			if ids = append(ids, id); id == 1 {
				if err := leaves(2); err != nil {
					t.Error(err)
				}
			}
		})
		if err != nil || !slices.Equal(ids, []uint64{1, 3}) {
			t.Errorf("%s: of the pages of jobs 1 and 3, which are left, %d: %v", name, ids, err)
		}
	}
	l := quarantineOf(t)
	l.Release = func(context.Context, string, uint64) ([]storage.Problem, error) { return nil, storage.ErrNotFound }
	err := l.ReleasePages(t.Context(), PageSelection{Source: "shop"}, func(Released) error { return nil })
	if !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("of a source that the engine does not have: %v", err)
	}
}
