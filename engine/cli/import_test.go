package cli

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"semel/engine/api"
)

// importFolder has a config and a file of rows.
func importFolder(t *testing.T, s *site, rows int) string {
	t.Helper()
	dir := t.TempDir()
	writeHere(t, dir, "semel.toml", s.fill(configText))
	writeHere(t, dir, "targets.csv", "n\n")
	writeRows(t, dir, rows)
	return dir
}

func writeHere(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func writeRows(t *testing.T, dir string, rows int) {
	t.Helper()
	var b strings.Builder
	b.WriteString("n\n")
	for i := range rows {
		fmt.Fprintln(&b, i)
	}
	writeHere(t, dir, "more.csv", b.String())
}

// beginImport begins to import a file in chunks of one row, and returns when jobs
// are made: that the file has changed is told just before.
func beginImport(t *testing.T, s *site, rows int) (string, *child) {
	t.Helper()
	dir := importFolder(t, s, 1)
	runHere(t, dir, "import", "pages", "more.csv")
	writeRows(t, dir, rows)
	c := startChild(t, s, dir, "import", "pages", "more.csv", "--chunk", "1")
	c.awaitLine(t, "has changed since")
	return dir, c
}

// A signal ends an import behind a chunk, and it says how to go on: 130.
func TestImportInterrupted(t *testing.T) {
	t.Parallel()
	const rows = 20_000
	dir, c := beginImport(t, startSite(t), rows)
	c.signal(t, syscall.SIGTERM)
	c.awaitLine(t, "semel: error: interrupted")
	c.awaitLine(t, "semel: hint: run it again to go on: chunks that were made are skipped")
	if code := c.exit(t); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
	made := strings.Count(runHere(t, dir, "jobs"), "\n")
	if made >= rows {
		t.Fatal("it came to its end")
	}
	if text := runHere(t, dir, "verify"); text != "source pages: 0 observations\n" {
		t.Error(text)
	}
}

// Killed at any moment, any number of times, and run again, an import makes what
// an undisturbed one makes.
func TestImportKilled(t *testing.T) {
	t.Parallel()
	const rows = 3000
	s := startSite(t)
	whole := importFolder(t, s, rows)
	runHere(t, whole, "import", "pages", "more.csv")
	want := runHere(t, whole, "jobs", "--json")
	dir := importFolder(t, s, rows)
	for range 5 {
		c := startChild(t, s, dir, "import", "pages", "more.csv", "--chunk", "10")
		<-time.After(time.Duration(rand.IntN(200)) * time.Millisecond)
		c.signal(t, os.Kill)
		c.exit(t)
	}
	runHere(t, dir, "import", "pages", "more.csv", "--chunk", "10")
	if got := runHere(t, dir, "jobs", "--json"); got != want {
		t.Error("the jobs are not those of an undisturbed import")
	}
	runHere(t, dir, "verify")
	if text := runHere(t, dir, "import", "pages", "more.csv"); !strings.Contains(text, "nothing to do") {
		t.Error(text)
	}
}

// Memory does not grow with the file.
func TestImportMemory(t *testing.T) {
	const (
		rows  = 300_000
		bound = 150 << 10 // KiB of RssAnon: the mapping of the store file aside
	)
	if _, err := os.Stat("/proc/self/status"); err != nil || testing.Short() {
		t.Skip("it imports a large file, and reads RssAnon from /proc")
	}
	if raceDetector {
		t.Skip("the race detector keeps several times the memory; .ci/run measures without it")
	}
	s := startSite(t)
	dir := importFolder(t, s, rows)
	c := startChild(t, s, dir, "import", "pages", "more.csv", "--chunk", "5000")
	peak := 0
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for rss := rssAnon(t, c.Process.Pid); rss > 0; rss = rssAnon(t, c.Process.Pid) {
		peak = max(peak, rss)
		<-ticker.C
	}
	if code := c.exit(t); code != exitDone || peak == 0 || peak > bound {
		t.Errorf("exit code %d, RssAnon reached %d KiB, the bound is %d", code, peak, bound)
	}
	t.Logf("RssAnon reached %d KiB", peak)
}

// rssAnon is a process's anonymous resident memory in KiB, 0 when it has ended.
func rssAnon(t *testing.T, pid int) (kib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	if _, rest, found := strings.Cut(string(text), "RssAnon:"); found { // a zombie has none
		_, _ = fmt.Sscan(rest, &kib)
	}
	return kib
}

// The bar on a terminal shows what is done, how fast and how long it will take.
func TestImportBar(t *testing.T) {
	var text bytes.Buffer
	out := newConsole(&text)
	out.terminal, out.unit = true, "rows"
	v := &importView{app: &app{}, out: out}
	for _, p := range []api.ImportProgress{{Rows: 10, Of: 100}, {Rows: 100, Of: 100}, {Making: true, Rows: 50, Of: 90}} {
		if err := v.tell(api.ImportNews{Progress: &p}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"checking rows", "(10/100, ", "making jobs", "(50/90, ", "rows/"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("it shows %q, without %q", &text, want)
		}
	}
}
