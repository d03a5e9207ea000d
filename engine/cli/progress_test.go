package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/storage"
)

// newProgress has a store with one pending job of one source.
func newProgress(t *testing.T, out *console) *progress {
	t.Helper()
	s, err := storage.Open(filepath.Join(t.TempDir(), "semel.db"), storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	err = s.Update(context.Background(), func(tx *storage.Tx) error {
		if err := tx.PutSource(storage.Source{Name: "pages"}); err != nil {
			return err
		}
		_, err := tx.EnqueueJob(storage.NewJob{
			Key: storage.JobKey{Source: "pages", Target: "1"}, Version: 1, URL: "http://site.example/", Host: "site.example",
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return &progress{store: s, sources: []string{"pages"}, out: out}
}

func TestProgressLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		p := newProgress(t, newConsole(&text))
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
		defer cancel()
		p.begin(time.Now())
		p.watch(ctx)
		want := "semel: 0% of 1 job: 0 complete, 0 failed, 1 waiting; 0 retried, 0 B, 0.0 jobs/s\n"
		if text.String() != strings.Repeat(want, 3) {
			t.Errorf("in 70 s it said\n%swant three times\n%s", text.String(), want)
		}
		_ = p.store.Close() // inside the bubble, where its writer lives
	})
}

func TestProgressText(t *testing.T) {
	p := &progress{first: tally{complete: 10, retries: 4, bytes: 1000}}
	got := p.lineText(tally{complete: 40, failed: 10, waiting: 50, retries: 9, bytes: 4000}, 8*time.Second)
	want := "50% of 100 jobs: 40 complete, 10 failed, 50 waiting; 5 retried, 3.0 kB, 5.0 jobs/s"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := p.lineText(tally{complete: 1, events: 2}, time.Second); !strings.HasSuffix(got, "jobs/s; 2 events to deliver") {
		t.Errorf("with events that wait: %s", got)
	}
}

// On a terminal a bar stands on the last line; what is logged takes it away
// first, and at the end it is gone.
func TestConsoleBar(t *testing.T) {
	var text bytes.Buffer
	c := &console{w: &text, terminal: true}
	c.draw(5, 10, "0 failed")
	if !strings.Contains(text.String(), "(5/10)") || !strings.Contains(text.String(), "0 failed") {
		t.Fatalf("no bar in %q", text.String())
	}
	c.draw(10, 10, "all") // more may come: the bar must not end
	c.draw(11, 20, "more")
	if !strings.Contains(text.String(), "(11/20)") {
		t.Errorf("the bar stopped: %q", text.String())
	}
	text.Reset()
	if _, err := c.Write([]byte("a log line\n")); err != nil {
		t.Fatal(err)
	}
	if before, _, _ := strings.Cut(text.String(), "a log line"); !strings.HasPrefix(before, "\r") || strings.Trim(before, "\r ") != "" {
		t.Errorf("the bar is not taken away before a line: %q", text.String())
	}
	c.finish()
	if c.bar != nil || !strings.HasSuffix(text.String(), "\r") {
		t.Errorf("the bar is not taken away at the end: %q", text.String())
	}
}
