package main

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"semel/storage"
)

// hanging is a site that answers nobody before release, and says when so many
// wait for it at once.
func hanging(t *testing.T, n int) (site *httptest.Server, all <-chan struct{}, release func()) {
	var asked atomic.Int64
	reached, answer := make(chan struct{}), make(chan struct{})
	site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		if asked.Add(1) == int64(n) {
			close(reached)
		}
		select {
		case <-answer:
			fmt.Fprint(w, "<h1>here it is</h1>")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(site.Close)
	return site, reached, func() { close(answer) }
}

const stopJobs = 6

func stopConfig(site string) string {
	return fmt.Sprintf(`version = 1
[engine]
allow_private = true
workers = %d
[host."*"]
concurrency = %[1]d
interval = "0s"
[source.shop]
url = "%s/{id}"
targets = [{ id = "1" }, { id = "2" }, { id = "3" }, { id = "4" }, { id = "5" }, { id = "6" }]
key = "{id}"
[source.shop.parser]
version = 1
[source.shop.parser.fields]
title = { css = "h1", required = true }
`, stopJobs, site)
}

// heldJobs counts the leases of a store whose process has ended, and wants no
// attempt to have counted.
func heldJobs(t *testing.T, path string) (held int) {
	t.Helper()
	s := openChecked(t, path)
	defer s.Close()
	if err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, math.MaxInt, func(j *storage.Job) bool {
			if j.State == storage.StateRunning {
				held++
			}
			if j.Attempts != 0 {
				t.Errorf("job %s has counted %d attempts", j.Key, j.Attempts)
			}
			return true
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return held
}

// TestStop: stopped while every attempt hangs, the program hands all jobs back
// within its bound; told twice it goes at once, and the next one takes them
// back. Neither counts an attempt.
func TestStop(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows has no signals to send")
	}
	for _, c := range []struct {
		command string
		twice   bool
		code    int
		held    int
	}{
		{"run", false, 0, 0},
		{runOnce, false, 130, 0},
		{"run", true, 130, stopJobs},
		{runOnce, true, 130, stopJobs},
	} {
		t.Run(fmt.Sprintf("%s, twice %v", c.command, c.twice), func(t *testing.T) {
			t.Parallel() // the clean ones wait out their grace
			site, all, release := hanging(t, stopJobs)
			f := newFolder(t, stopConfig(site.URL)).racing()
			p := f.start(strings.Fields(c.command)...)
			<-all
			p.signal(os.Interrupt)
			p.await("semel: stopping")
			if c.twice {
				<-time.After(200 * time.Millisecond) // at once it would be the first one's echo
				p.signal(os.Interrupt)
			}
			if code := p.exit(); code != c.code {
				t.Errorf("exit %d, want %d\n%s", code, c.code, strings.Join(p.said, "\n"))
			}
			if held := heldJobs(t, f.path("semel.db")); held != c.held {
				t.Errorf("%d leases are left, want %d", held, c.held)
			}
			release()
			want := fmt.Sprintf(`"completed":%d,"set_aside":0,"failed":0,"retried":0,"released":0,"stale":0,"rescued":%d,"open":0`, stopJobs, c.held)
			summary, stderr, _ := f.semel("run", "--once", "--json")
			if !strings.Contains(summary, want) {
				t.Errorf("the next run says %s, want %s", summary, want)
			}
			if atOnce := strings.Contains(stderr, "took back the leases of a process that died"); atOnce != c.twice {
				t.Errorf("leases were taken back at the start: %v, want %v\n%s", atOnce, c.twice, stderr)
			}
		})
	}
}
