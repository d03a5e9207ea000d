package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"semel/engine/gateway"
	"semel/failpoint"
	"semel/storage"
)

const killPages = 500

// death is one way to kill the program: when a command comes to a point for the
// nth time, or, without a point, when the site was asked for some more pages.
type death struct {
	command string
	point   failpoint.Point
	most    int // n or the number of pages is drawn from 1 to this; up to fewTimes it is taken in turn
}

// fewTimes is how often a point may come for each time to have its turn in few
// kills.
const fewTimes = 4

const (
	runOnce      = "run --once"
	exportToFile = "export shop -o shop.jsonl"
	backupToFile = "backup copy.db"
	compact      = "compact"
)

// deaths are taken in turn.
var deaths = []death{
	{runOnce, failpoint.BeforeCommit, 12},
	{runOnce, failpoint.AfterCommit, 12},
	{runOnce, "", 40},
	{runOnce, failpoint.AppendPages, 12},
	{runOnce, failpoint.SyncPages, 12},
	{exportToFile, failpoint.InExport, 1},
	// The old manifest goes, the file comes, its manifest comes; a fourth time
	// does not come, so that some exports end.
	{exportToFile, failpoint.InReplace, 4},
	{backupToFile, failpoint.CopyBackup, 1},
	{backupToFile, failpoint.NameBackup, 2}, // a second time does not come, so that some backups end
	{compact, failpoint.CopyCompact, 1},
	{compact, failpoint.NameCompact, 1},
}

// killConfig collects the shop through a gateway with a login.
func killConfig(site, proxy string) string {
	return fmt.Sprintf(`version = 1
[store]
bodies = "all"
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
[source.shop.retry.server_error]
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
`, proxy, site, numbered(killPages))
}

// kills is how many times TestKill kills the program.
func kills() int {
	if os.Getenv("SEMEL_REAL") != "" {
		return 200
	}
	return 40
}

// TestKill kills the program with SIGKILL at named points and at any time, and
// runs it again each time, until all pages are collected; then it begins anew,
// until there were enough kills. After each one the store and its last backup
// agree with themselves, kept pages too, and an exported file is the old one or the new one, never beside the manifest
// of another. In the end the export is that of an undisturbed run, and no page
// was asked for again once it was committed.
func TestKill(t *testing.T) {
	site := newShop(t)
	login := []string{"PROXY_USER=u", "PROXY_PASS=p"}
	calm := newFolder(t, killConfig(site.URL, startGateway(t, nil).URL()), login...).racing()
	calm.ok(strings.Fields(runOnce)...)
	want := calm.ok("export", "shop", "--data-only")
	if n := strings.Count(want, "\n"); n != killPages {
		t.Fatalf("the undisturbed run gave %d records", n)
	}
	gw := startGateway(t, killFaults())
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	k := &killer{t: t, site: site, random: rand.New(rand.NewPCG(seed, 0)), met: map[death]int{}, tried: map[death]int{}}
	rounds, requests := 0, 0
	for ; k.kills < kills() && rounds < kills() && !t.Failed(); rounds++ {
		site.forget()
		k.begin(newFolder(t, killConfig(site.URL, gw.URL()), login...))
		for n := 0; k.kills < kills() && k.kill(deaths[n%len(deaths)]); n++ {
		}
		k.end(want)
		requests += site.total()
	}
	t.Logf("%d kills, %d of them with leases held; %d requests for %d times %d pages", k.kills, k.withLeases, requests, rounds, killPages)
	for _, d := range deaths {
		t.Logf("%3d kills of %s, point %q", k.met[d], d.command, d.point)
		if k.met[d] == 0 {
			t.Errorf("no kill of %s at point %q", d.command, d.point)
		}
	}
	if k.withLeases < k.kills/4 {
		t.Errorf("only %d of %d kills met a lease", k.withLeases, k.kills)
	}
}

func startGateway(t *testing.T, fault func(gateway.Request) gateway.Fault) *gateway.Gateway {
	t.Helper()
	gw, err := gateway.Start(gateway.Options{Username: "u", Password: "p", Fault: fault})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gw.Close)
	return gw
}

// killFaults let every fourth request fail, and are slow otherwise, so that
// leases are held at any moment.
func killFaults() func(gateway.Request) gateway.Fault {
	slow := gateway.Fault{Kind: gateway.Slow, After: 2 << 10, Pause: 4 * time.Millisecond}
	dead, reset := gateway.Fault{Kind: gateway.DeadTunnel}, gateway.Fault{Kind: gateway.Reset, After: 700}
	faults := gateway.Random(1, 0.25, dead, reset, slow)
	busy := gateway.Random(2, 0.002, gateway.Fault{Kind: gateway.Status, Status: 503, Header: http.Header{"Retry-After": {"1"}}}) // holds back the host for a second
	return func(r gateway.Request) gateway.Fault {
		for _, choose := range []func(gateway.Request) gateway.Fault{busy, faults} {
			if f := choose(r); f.Kind != gateway.None {
				return f
			}
		}
		return slow
	}
}

// killer kills the program over one folder after the other.
type killer struct {
	t          *testing.T
	site       *shop
	random     *rand.Rand
	tried, met map[death]int
	kills      int
	withLeases int

	// Of the folder at hand.
	f         *folder
	committed map[string]int // requests of a page when it was first seen committed
	exported  string         // shop.jsonl as it stands
}

func (k *killer) begin(f *folder) { k.f, k.committed, k.exported = f, map[string]int{}, "" }

// kill lets the program die, or an export come to its end, and looks at what it
// left. It is false when a run came to its end: then all pages are collected.
func (k *killer) kill(d death) bool {
	k.t.Helper()
	n := 1 + k.random.IntN(d.most)
	if d.most <= fewTimes {
		n = 1 + k.tried[d]%d.most
	}
	k.tried[d]++
	cmd := k.f.command(strings.Fields(d.command)...)
	come := make(<-chan struct{})
	if d.point == "" {
		come = k.site.after(n)
	} else {
		cmd.Env = append(cmd.Env, trap{Point: d.point, Hit: n}.env())
	}
	died := killed(k.t, cmd, come)
	held, export := k.look()
	k.lookAtExport(export)
	if _, err := os.Stat(k.f.path("copy.db")); err == nil {
		openChecked(k.t, k.f.path("copy.db")).Close()
	}
	if died {
		k.met[d]++
		k.kills++
		k.withLeases += min(held, 1)
	}
	return died || d.command != runOnce
}

// end lets the program finish and compares.
func (k *killer) end(want string) {
	k.t.Helper()
	k.f.ok(strings.Fields(runOnce)...)
	if got := k.f.ok("export", "shop", "--data-only"); got != want {
		k.t.Error("the export differs from that of the undisturbed run")
	}
	counts := k.site.counts()
	for id, n := range k.committed {
		if counts[id] != n {
			k.t.Errorf("page %s was asked for %d times after it was committed", id, counts[id]-n)
		}
	}
	k.wantClean()
}

// wantClean exports, backs up and compacts once more, long after the kills: then
// nothing is left of the commands that died.
func (k *killer) wantClean() {
	k.t.Helper()
	entries, err := os.ReadDir(k.f.dir)
	if err != nil {
		k.t.Fatal(err)
	}
	yesterday := time.Now().AddDate(0, 0, -1)
	for _, e := range entries {
		if err := os.Chtimes(k.f.path(e.Name()), yesterday, yesterday); err != nil {
			k.t.Fatal(err)
		}
	}
	for _, command := range []string{exportToFile, backupToFile, compact} {
		k.f.ok(strings.Fields(command)...)
	}
	k.f.wantOnly("copy.db", "copy.db.pages", "semel.db", "semel.db.pages", "semel.toml", "shop.jsonl", "shop.jsonl.manifest.json")
}

// killed starts the program, which dies by itself or when a moment has come,
// and reports whether it died. If it did not, it is done.
func killed(t *testing.T, cmd *exec.Cmd, come <-chan struct{}) bool {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	select {
	case <-come:
		_ = cmd.Process.Kill()
		err = <-ended
	case err = <-ended:
	}
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != -1) {
		t.Fatalf("the program ended before it was killed: %v\n%s", err, &stderr)
	}
	return err != nil
}

// look checks the store of a dead process, notes how often each committed page
// had been asked for, counts the leases that were held, and exports.
func (k *killer) look() (held int, export string) {
	k.t.Helper()
	path := k.f.path("semel.db")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, "" // killed before it made its store
	}
	s := openChecked(k.t, path)
	defer s.Close()
	counts := k.site.counts()
	if err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, math.MaxInt, func(j *storage.Job) bool {
			switch j.State {
			case storage.StateRunning:
				held++
			case storage.StateComplete:
				if _, seen := k.committed[j.Key.Target]; !seen {
					k.committed[j.Key.Target] = counts[j.Key.Target]
				}
			}
			return true
		})
		return err
	}); err != nil {
		k.t.Fatal(err)
	}
	return held, exportOf(k.t, s, "shop")
}

// openChecked opens the store of a process that is dead, for reading.
func openChecked(t *testing.T, path string) *storage.Store {
	t.Helper()
	s, err := storage.Open(path, storage.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if breaches, err := s.Check(); err != nil || len(breaches) > 0 {
		s.Close()
		t.Fatalf("the store it left: %v, %v", breaches, err)
	}
	return s
}

// exportOf is what semel export prints of a source.
func exportOf(t *testing.T, s *storage.Store, source string) string {
	t.Helper()
	var lines []byte
	if err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Observations(source, nil, math.MaxInt, func(o *storage.Observation) error {
			lines = o.AppendLine(lines, false)
			return nil
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return string(lines)
}

// lookAtExport wants the exported file to be what it was or what the store
// gives now, and its manifest to be its own.
func (k *killer) lookAtExport(now string) {
	k.t.Helper()
	file, err := os.ReadFile(k.f.path("shop.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.t.Fatal(err)
	}
	if got := string(file); got != k.exported && got != now {
		k.t.Errorf("the exported file of %d bytes is neither the old one (%d) nor the new one (%d)", len(got), len(k.exported), len(now))
	}
	k.exported = string(file)
	text, err := os.ReadFile(k.f.path("shop.jsonl.manifest.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var manifest struct{ SHA256 string }
	if err := errors.Join(err, json.Unmarshal(text, &manifest)); err != nil {
		k.t.Fatalf("the manifest %q: %v", text, err)
	}
	if sum := sha256.Sum256(file); manifest.SHA256 != hex.EncodeToString(sum[:]) {
		k.t.Error("the exported file stands beside the manifest of another")
	}
}
