package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"semel/engine/gateway"
	"semel/storage"
)

const (
	killPages = 500
	kills     = 20
)

// killConfig collects the shop through a gateway with a login.
func killConfig(site, proxy string) string {
	ids := make([]string, killPages)
	for i := range ids {
		ids[i] = fmt.Sprintf(`{ id = "%03d" }`, i)
	}
	return fmt.Sprintf(`version = 1
[engine]
workers = 16
allow_private = true
[host."*"]
concurrency = 16
interval = "0s"
[proxy.home]
url = %q
username = "env:PROXY_USER"
password = "env:PROXY_PASS"
[source.shop]
url = "%s/p/{id}"
targets = [%s]
key = "{id}"
proxy = "home"
[source.shop.limits]
attempts = 60
[source.shop.retry.exit_connect]
base = "50ms"
max = "200ms"
[source.shop.retry.body_truncated]
base = "50ms"
max = "200ms"
[source.shop.retry.throttled]
base = "50ms"
max = "200ms"
[source.shop.parser]
version = 1
[source.shop.parser.fields]
title = { css = "h1", required = true }
price = { css = ".price", type = "money", currency = "USD", decimal = "." }
`, proxy, site, strings.Join(ids, ", "))
}

// TestKill kills the program with SIGKILL at 20 moments spread over its
// commits and runs it again each time. In the end the export is that of an
// undisturbed run, and no page was asked for again once it was committed.
func TestKill(t *testing.T) {
	site := newShop(t)
	slow := gateway.Fault{Kind: gateway.Slow, After: 2 << 10, Pause: 4 * time.Millisecond}
	dead, reset := gateway.Fault{Kind: gateway.DeadTunnel}, gateway.Fault{Kind: gateway.Reset, After: 700}
	busy := gateway.Fault{Kind: gateway.Status, Status: 503, Header: http.Header{"Retry-After": {"1"}}}
	// One in ten of the faults is a 503: each holds back its host for a second.
	faults := gateway.Random(1, 0.25, dead, dead, dead, reset, reset, reset, slow, slow, slow, busy)
	start := func(fault func(gateway.Request) gateway.Fault) *gateway.Gateway {
		gw, err := gateway.Start(gateway.Options{Username: "u", Password: "p", Fault: fault})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(gw.Close)
		return gw
	}
	login := []string{"PROXY_USER=u", "PROXY_PASS=p"}

	calm := newFolder(t, killConfig(site.URL, start(nil).URL()), login...)
	calm.ok("run", "--once")
	want := calm.ok("export", "shop", "--data-only")
	if n := strings.Count(want, "\n"); n != killPages {
		t.Fatalf("the undisturbed run gave %d records", n)
	}

	gw := start(func(r gateway.Request) gateway.Fault {
		if f := faults(r); f.Kind != gateway.None {
			return f
		}
		return slow // so that leases are held at any moment
	})
	f := newFolder(t, killConfig(site.URL, gw.URL()), login...)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	moments := killMoments(rand.New(rand.NewPCG(seed, 0)))
	committed := map[string]int{} // requests of a page when it was first seen committed
	withLeases := 0
	base := site.total()
	for _, moment := range moments {
		killAt(t, f, func() bool { return site.total()-base >= moment })
		running := lookAtStore(t, f.path("semel.db"), site, committed)
		if running > 0 {
			withLeases++
		}
	}
	f.ok("run", "--once")
	t.Logf("%d kills, %d of them with leases held; %d requests for %d pages", kills, withLeases, site.total()-base, killPages)
	if got := f.ok("export", "shop", "--data-only"); got != want {
		t.Error("the export differs from that of the undisturbed run")
	}
	counts := site.counts()
	for id, n := range committed {
		if counts[id] != n {
			t.Errorf("page %s was asked for %d times after it was committed", id, counts[id]-n)
		}
	}
	if withLeases <= kills/2 {
		t.Errorf("only %d of %d kills met a lease", withLeases, kills)
	}
}

// killMoments are numbers of requests spread over 5 to 95 % of the pages.
func killMoments(r *rand.Rand) []int {
	moments := make([]int, kills)
	step := killPages * 90 / 100 / kills
	for i := range moments {
		moments[i] = killPages*5/100 + i*step + r.IntN(step)
	}
	return moments
}

// killAt runs the program and kills it when a moment has come.
func killAt(t *testing.T, f *folder, come func() bool) {
	t.Helper()
	cmd := f.command("run", "--once")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !come() {
		select {
		case err := <-ended:
			t.Fatalf("the program ended before it was killed: %v\n%s", err, &stderr)
		case <-tick.C:
		}
	}
	_ = cmd.Process.Signal(syscall.SIGKILL)
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("the program was not killed: %v\n%s", err, &stderr)
	}
}

// lookAtStore checks the store of a dead process, notes how often each
// committed page had been asked for, and counts the leases that were held.
func lookAtStore(t *testing.T, path string, site *shop, committed map[string]int) (running int) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		return 0 // killed before it made its store
	}
	s, err := storage.Open(path, storage.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	breaches, err := s.Check()
	if err != nil || len(breaches) > 0 {
		t.Fatalf("after a kill: %v, %v", breaches, err)
	}
	counts := site.counts()
	if err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, 1<<30, func(j *storage.Job) bool {
			switch j.State {
			case storage.StateRunning:
				running++
			case storage.StateComplete:
				if _, seen := committed[j.Key.Target]; !seen {
					committed[j.Key.Target] = counts[j.Key.Target]
				}
			}
			return true
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return running
}
