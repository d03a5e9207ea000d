package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	memoryTargets = 200_000
	memoryPages   = 15_000   // worked while it is watched: longer than queueing all takes
	memoryBound   = 150      // MiB of RssAnon: the mapping of the store file aside
	memoryPage    = 20 << 10 // bytes of a page
)

// BenchmarkMemory watches the real program while it works with 200,000 queued
// targets, and fails when its own memory passes the bound.
func BenchmarkMemory(b *testing.B) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		b.Skip("there is no /proc to read RssAnon from")
	}
	page := []byte("<html><head><title>x</title></head><body><h1>Thing</h1><p class=price>$9.50</p>" +
		strings.Repeat(`<p class="text">Some <b>text</b> of the <a href="/x">page</a>.</p>`, memoryPage/66) + "</body></html>")
	var served atomic.Int64
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write(page)
	}))
	defer site.Close()
	var targets strings.Builder
	targets.WriteString("id\n")
	for i := range memoryTargets {
		fmt.Fprintf(&targets, "%06d\n", i)
	}
	for b.Loop() {
		served.Store(0)
		f := newFolder(b, fmt.Sprintf(`version = 1
[engine]
allow_private = true
robots = false
[host."*"]
concurrency = 64
interval = "0s"
[source.shop]
url = "%s/p/{id}"
targets = "targets.csv"
key = "{id}"
[source.shop.parser]
version = 1
[source.shop.parser.fields]
title = { css = "h1", required = true }
price = { css = ".price", type = "money", currency = "USD", decimal = "." }
`, site.URL))
		f.write("targets.csv", targets.String())
		peak, queued := watchMemory(b, f, &served)
		b.ReportMetric(float64(peak)/1024, "MiB-RssAnon")
		if queued < memoryTargets-2*memoryPages {
			b.Errorf("only %d targets were queued", queued)
		}
		if peak > memoryBound<<10 {
			b.Errorf("RssAnon reached %d KiB, the bound is %d MiB", peak, memoryBound)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// watchMemory runs the program until it has made jobs of all targets and
// worked some pages more, and gives its highest RssAnon in KiB and what is
// still queued.
func watchMemory(b *testing.B, f *folder, served *atomic.Int64) (peak, queued int) {
	cmd := f.command("run", "--once")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for served.Load() < memoryPages {
		<-tick.C
		rss := rssAnon(cmd.Process.Pid)
		if rss == 0 {
			b.Fatalf("the program ended early:\n%s", &stderr)
		}
		peak = max(peak, rss)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		b.Fatalf("stopping: %v\n%s", err, &stderr)
	}
	s := statusOf(b, f, "shop")
	return peak, s.Pending
}

// rssAnon is a process's anonymous resident memory in KiB, 0 if it is gone.
func rssAnon(pid int) (kib int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	_, _ = fmt.Sscan(rest, &kib)
	return kib
}
