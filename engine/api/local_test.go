package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/engine"
	"semel/engine/config"
	"semel/engine/delivery"
	"semel/engine/intake"
	"semel/parser"
	"semel/storage"
	"semel/storage/storagetest"
)

// local is a service over a fresh store whose config names the source shop.
func local(t *testing.T) *Local {
	t.Helper()
	return &Local{
		Store: storagetest.Open(t),
		Config: &config.Config{
			Engine:  config.Engine{Lease: time.Minute},
			Sources: []config.Source{{Source: intake.Source{Name: "shop"}, Rules: rules(t, 1)}},
		},
	}
}

func rules(t *testing.T, version int) *parser.Rules {
	t.Helper()
	rules, err := parser.Compile(parser.Spec{Version: version, Fields: []parser.Field{{Name: "n", Rule: parser.Rule{Var: "n"}}}})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func update(t *testing.T, l *Local, fn func(*storage.Tx) error) {
	t.Helper()
	if err := l.Store.Update(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func enqueue(t *testing.T, l *Local, source string, from, to int) {
	t.Helper()
	update(t, l, func(tx *storage.Tx) error {
		for i := from; i < to; i++ {
			key := storage.JobKey{Source: source, Target: fmt.Sprintf("%05d", i)}
			if _, err := tx.EnqueueJob(storage.NewJob{Key: key, URL: "http://x.test/" + key.Target, Host: "x.test"}); err != nil {
				return err
			}
		}
		return nil
	})
}

// work claims n jobs and ends each as end says.
func work(t *testing.T, l *Local, n int, end func(*storage.Tx, *storage.Job) error) {
	t.Helper()
	update(t, l, func(tx *storage.Tx) error {
		claimed, err := tx.ClaimJobs("test", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: n}})
		if err != nil {
			return err
		}
		for _, j := range claimed[0] {
			if err := end(tx, j); err != nil {
				return err
			}
		}
		return nil
	})
}

func failAs(c storage.Category) func(*storage.Tx, *storage.Job) error {
	return func(tx *storage.Tx, j *storage.Job) error {
		a := storage.Attempt{Category: c, Reason: "the site said no", BytesUp: 10, BytesDown: 90}
		return tx.FailJob(j.Lease(), a, storage.Failure{Category: c, Reason: a.Reason})
	}
}

func complete(tx *storage.Tx, j *storage.Job) error {
	_, err := tx.CompleteJob(j.Lease(), storage.Completion{
		Mode:    storage.WriteUpsert,
		Attempt: storage.Attempt{ParserVersion: 1, BytesUp: 100, BytesDown: 900},
		Records: []storage.NewObservation{{Key: j.Key.Target, Data: []byte(`{"n":"` + j.Key.Target + `"}`)}},
	})
	return err
}

func list(t *testing.T, l *Local, f JobFilter) []Job {
	t.Helper()
	var jobs []Job
	if err := l.Jobs(t.Context(), f, func(j Job) error { jobs = append(jobs, j); return nil }); err != nil {
		t.Fatal(err)
	}
	return jobs
}

func TestJobs(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 2*pageRows+5)
	enqueue(t, l, "old", 0, 3)
	update(t, l, func(tx *storage.Tx) error { return tx.PutSource(storage.Source{Name: "old"}) })
	work(t, l, 2, failAs(storage.CategoryNotFound))
	work(t, l, 1, failAs(storage.CategoryBlocked))
	for _, test := range []struct {
		name   string
		filter JobFilter
		want   int
	}{
		{"all, over several pages", JobFilter{}, 2*pageRows + 8},
		{"of a source", JobFilter{Source: "old"}, 3},
		{"in a state", JobFilter{State: storage.StateFailed}, 3},
		{"of a category", JobFilter{Category: storage.CategoryBlocked}, 1},
		{"limited", JobFilter{Source: "shop", Limit: 7}, 7},
		{"limited past a page", JobFilter{Source: "shop", Limit: pageRows + 1}, pageRows + 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			jobs := list(t, l, test.filter)
			if len(jobs) != test.want {
				t.Errorf("%d jobs, want %d", len(jobs), test.want)
			}
			if !slices.IsSortedFunc(jobs, func(a, b Job) int { return int(a.ID) - int(b.ID) }) {
				t.Error("the jobs are not in the order of their ids")
			}
		})
	}
}

func TestJob(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 1)
	enqueue(t, l, "gone", 0, 1)
	work(t, l, 1, failAs(storage.CategoryNotFound))
	byID, err := l.Job(t.Context(), "1")
	if err != nil {
		t.Fatal(err)
	}
	byKey, err := l.Job(t.Context(), "shop:00000:-:-:-:-")
	if err != nil || !cmp.Equal(byID, byKey) {
		t.Errorf("by key %+v, %v; by id %+v", byKey, err, byID)
	}
	if len(byID.History) != 1 || byID.History[0].Reason != "the site said no" || *byID.Category != storage.CategoryNotFound ||
		byID.Next != "nothing: run semel retry 1 to try again" {
		t.Errorf("%+v", byID)
	}
	for _, ref := range []string{"77", "shop:nothing:-:-:-:-", "what?"} {
		if _, err := l.Job(t.Context(), ref); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if other, err := l.Job(t.Context(), "2"); err != nil || other.Next != "nothing: its source is not in the config" {
		t.Errorf("%+v, %v", other, err)
	}
}

// The shape of a job is what scripts read.
func TestJobShape(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 1)
	text, err := json.Marshal(list(t, l, JobFilter{})[0])
	want := `{"id":1,"key":"shop:00000:-:-:-:-","source":"shop","state":"pending","generation":0,"attempts":0,` +
		`"category":null,"next_at":null,"window":null,"country":null,"url":"http://x.test/00000"}`
	if err != nil || string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// changed gives the jobs that Retry or Cancel changes.
func changed(t *testing.T, change func(context.Context, Selection, func(Job) error) error, s Selection) ([]Job, error) {
	t.Helper()
	var jobs []Job
	err := change(t.Context(), s, func(j Job) error { jobs = append(jobs, j); return nil })
	return jobs, err
}

func TestRetryAndCancel(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 6)
	work(t, l, 2, failAs(storage.CategoryNotFound))
	work(t, l, 1, failAs(storage.CategoryBlocked))
	work(t, l, 1, complete)

	if jobs, err := changed(t, l.Retry, Selection{Refs: []string{"1", "99"}}); !errors.Is(err, storage.ErrNotFound) || len(jobs) > 0 {
		t.Errorf("an unknown job: %v, %v", jobs, err)
	}
	if jobs, err := changed(t, l.Retry, Selection{Refs: []string{"1", "4"}}); !errors.Is(err, storage.ErrTransition) || len(jobs) > 0 {
		t.Errorf("a complete job: %v, %v", jobs, err)
	}
	if n := len(list(t, l, JobFilter{State: storage.StateFailed})); n != 3 {
		t.Fatalf("a retry that failed moved %d jobs", 3-n)
	}
	if _, err := changed(t, l.Retry, Selection{Source: "nobody"}); !errors.Is(err, ErrUnknownSource) {
		t.Errorf("an unknown source: %v", err)
	}
	jobs, err := changed(t, l.Retry, Selection{Source: "shop", Category: storage.CategoryNotFound})
	if err != nil || len(jobs) != 2 || jobs[0].State != storage.StatePending {
		t.Errorf("by category: %+v, %v", jobs, err)
	}
	jobs, err = changed(t, l.Cancel, Selection{Refs: []string{"5", "shop:00005:-:-:-:-"}})
	if err != nil || len(jobs) != 2 || *jobs[1].Category != storage.CategoryCanceled {
		t.Errorf("cancel: %+v, %v", jobs, err)
	}
	if _, err := changed(t, l.Cancel, Selection{Refs: []string{"4"}}); !errors.Is(err, storage.ErrTransition) {
		t.Errorf("cancel of a complete job: %v", err)
	}
}

// Whoever listens to a change does not end it by going away.
func TestChangeGoesOn(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, pageRows+5)
	calls := 0
	err := l.Cancel(t.Context(), Selection{Source: "shop"}, func(Job) error { calls++; return errBroken })
	if !errors.Is(err, errBroken) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if n := len(list(t, l, JobFilter{State: storage.StateFailed})); n != pageRows+5 {
		t.Errorf("%d jobs are canceled", n)
	}
}

// A job that retention forgets while a source's jobs are changed does not keep
// the others from it.
func TestChangeSkipsForgotten(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 2)
	work(t, l, 2, failAs(storage.CategoryNotFound))
	jobs, err := l.changePage(t.Context(), []uint64{1, 99, 2}, transition{[]storage.JobState{storage.StateFailed}, (*storage.Tx).RequeueJob, nil})
	if err != nil || len(jobs) != 2 {
		t.Errorf("%+v, %v", jobs, err)
	}
}

// What a dead process held is taken back before a person's command looks at
// it; what runs here is not.
func TestTakeBack(t *testing.T) {
	for name, test := range map[string]struct {
		engine Engine
		err    error
	}{"no engine": {nil, nil}, "an engine": {pauses{}, storage.ErrTransition}} {
		t.Run(name, func(t *testing.T) {
			l := local(t)
			l.Engine = test.engine
			enqueue(t, l, "shop", 0, 3)
			work(t, l, 2, func(*storage.Tx, *storage.Job) error { return nil }) // and then it died, or not
			if _, err := changed(t, l.Cancel, Selection{Refs: []string{"1"}}); !errors.Is(err, test.err) {
				t.Errorf("canceling gave %v, want %v", err, test.err)
			}
		})
	}
}

// pauses is an engine whose proxies are paused so.
type pauses map[string]engine.Pause

func (p pauses) Paused() map[string]engine.Pause { return p }

// What comes next for a job that runs depends on who is asked.
func TestNextOfRunning(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 1)
	work(t, l, 1, func(*storage.Tx, *storage.Job) error { return nil })
	for want, e := range map[string]Engine{"its process is gone": nil, "it is being worked on": pauses{}} {
		l.Engine = e
		if story, err := l.Job(t.Context(), "1"); err != nil || !strings.HasPrefix(story.Next, want) {
			t.Errorf("next is %q, want %q; %v", story.Next, want, err)
		}
	}
}

// A job that waits to be failed, and one that a person must decide on, say so.
func TestNextOfUnsafe(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 2)
	work(t, l, 2, func(tx *storage.Tx, j *storage.Job) error {
		if err := tx.MarkSent(j.Lease(), "pay"); err != nil || j.ID == 2 {
			return err
		}
		return tx.FailJob(j.Lease(), storage.Attempt{Category: storage.CategoryReadTimeout}, storage.Failure{Category: storage.CategoryUnsafeToRepeat})
	})
	update(t, l, func(tx *storage.Tx) error {
		_, err := tx.RescueExpired(storage.AllLeases, 1, func(string) storage.RescuePolicy { return storage.RescuePolicy{} })
		return err
	})
	for ref, want := range map[string]string{"1": "nothing: look at the site whether it was done; semel retry 1 sends it again", "2": "it fails as unsafe_to_repeat when it is claimed"} {
		if story, err := l.Job(t.Context(), ref); err != nil || !strings.HasPrefix(story.Next, want) {
			t.Errorf("next of job %s is %q, want %q; %v", ref, story.Next, want, err)
		}
	}
}

func TestExport(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, pageRows+10)
	window := time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)
	update(t, l, func(tx *storage.Tx) error {
		for day := range 3 {
			at := window.AddDate(0, 0, day)
			key := storage.JobKey{Source: "shop", Target: fmt.Sprint("w", day), Window: at}
			if _, err := tx.EnqueueJob(storage.NewJob{Key: key, Window: at, URL: "http://x.test/w", Host: "x.test"}); err != nil {
				return err
			}
		}
		return nil
	})
	work(t, l, pageRows+13, complete)
	var out bytes.Buffer
	result, err := l.Export(t.Context(), ExportRequest{Source: "shop", DataOnly: true}, &out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != pageRows+13 || result.Rows != len(lines) || !slices.IsSorted(lines) {
		t.Errorf("%d lines, result %+v", len(lines), result)
	}
	if result.FirstWindow == nil || !result.FirstWindow.Equal(window) || !result.LastWindow.Equal(window.AddDate(0, 0, 2)) {
		t.Errorf("windows from %v to %v", result.FirstWindow, result.LastWindow)
	}
	if _, err := l.Export(t.Context(), ExportRequest{Source: "nobody"}, &out); !errors.Is(err, ErrUnknownSource) {
		t.Errorf("an unknown source: %v", err)
	}
	if _, err := l.Export(t.Context(), ExportRequest{Source: "shop"}, brokenPipe{}); !errors.Is(err, errBroken) {
		t.Errorf("a writer that fails: %v", err)
	}
}

var errBroken = errors.New("broken pipe")

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

func TestStatus(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 5)
	work(t, l, 2, complete)
	work(t, l, 1, failAs(storage.CategoryNotFound))
	enqueue(t, l, "gone", 0, 2)
	update(t, l, func(tx *storage.Tx) error { return tx.PutSource(storage.Source{Name: "gone"}) })
	s, err := l.Status(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	shop := s.Sources["shop"]
	if shop.Total() != 5 || shop.Complete != 2 || shop.Failed != 1 || shop.Pending != 2 || shop.AttemptsPerComplete != 1.5 ||
		shop.BytesPerComplete != 1050 || shop.Failures[storage.CategoryNotFound] != 1 {
		t.Errorf("%+v", shop)
	}
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "2 jobs wait, but the source is not in the config") {
		t.Errorf("warnings %q", s.Warnings)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var shape struct {
		Sources map[string]map[string]any
	}
	if err := json.Unmarshal(text, &shape); err != nil {
		t.Fatal(err)
	}
	keys := slices.Collect(maps.Keys(shape.Sources["shop"]))
	for _, key := range []string{
		"pending", "running", "retryable", "complete", "failed", "attempts_per_complete", "recovered", "completed_after_recovery",
		"duplicates_rejected", "stale_commits", "bytes_up", "bytes_down", "bytes_per_complete", "retries", "failures",
	} {
		if !slices.Contains(keys, key) {
			t.Errorf("sources.shop has no %s", key)
		}
	}
	for _, want := range []string{`"outbox":{}`, `"proxies":{}`, `"quarantine":{}`, `"warnings":[`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

func (pauses) FullSince() time.Time              { return time.Time{} }
func (pauses) HeldHosts() map[string]engine.Hold { return nil }
func (pauses) SinkPauses() map[string]delivery.Pause {
	return map[string]delivery.Pause{"down": {Reason: "status 503", Until: time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC)}}
}
func (pauses) Waits(source, host, country string) string { return "" }

// held is an engine that leaves a host alone.
type held struct{ pauses }

func (held) HeldHosts() map[string]engine.Hold {
	holds := map[string]engine.Hold{}
	for i := range 12 {
		holds[fmt.Sprintf("h%02d.test", i)] = engine.Hold{Reason: "it has asked for that", Until: time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC)}
	}
	return holds
}

func (held) Waits(source, host, country string) string {
	return fmt.Sprintf("%s at %s in %q waits", source, host, country)
}

// What holds back is told: hosts in the status, and for each job.
func TestWaits(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 1)
	l.Engine = held{}
	s, err := l.Status(t.Context(), 0)
	if err != nil || len(s.Warnings) != hostsNamed+1 || s.Warnings[0] != "host h00.test is left alone until 2026-05-01T03:00:00Z: it has asked for that" || s.Warnings[hostsNamed] != "2 more hosts are left alone" {
		t.Errorf("%q, %v", s.Warnings, err)
	}
	story, err := l.Job(t.Context(), "1")
	if want := `shop at x.test in "" waits`; err != nil || story.Next != want {
		t.Errorf("next is %q, want %q; %v", story.Next, want, err)
	}
}

// fullDisk is an engine that waits for room.
type fullDisk struct{ pauses }

func (fullDisk) FullSince() time.Time { return time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC) }

func TestStatusOfAFullDisk(t *testing.T) {
	l := local(t)
	l.Engine = fullDisk{}
	s, err := l.Status(t.Context(), 0)
	if err != nil || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "no room since 2026-05-01T03:00:00Z") {
		t.Errorf("%q, %v", s.Warnings, err)
	}
}
