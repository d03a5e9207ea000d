package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"semel/engine/gateway"
	"semel/failpoint"
)

// syncFolder is a folder in which the shop is collected slowly enough to be
// caught.
func syncFolder(t *testing.T, site *shop) *folder {
	t.Helper()
	slow := gateway.Fault{Kind: gateway.Slow, After: 2 << 10, Pause: 4 * 1e6}
	gw := startGateway(t, func(gateway.Request) gateway.Fault { return slow })
	return newFolder(t, killConfig(site.URL, gw.URL()), "PROXY_USER=u", "PROXY_PASS=p")
}

// calmExport is what an undisturbed run over a shop gives.
func calmExport(t *testing.T) string {
	t.Helper()
	f := syncFolder(t, newShop(t))
	f.ok(strings.Fields(runOnce)...)
	return f.ok("export", "shop", "--data-only")
}

// wantStopped runs the program with more in its environment, and wants it to
// end since its disk does not write, as it should say.
func wantStopped(t *testing.T, f *folder, env string) {
	t.Helper()
	trapped := *f
	trapped.env = append([]string{env}, f.env...)
	_, stderr, code := trapped.semel(strings.Fields(runOnce)...)
	for _, text := range []string{"committing", "outcome unknown", "input/output error", "semel: hint: its disk could not write: look at the disk first"} {
		if code != 1 || !strings.Contains(stderr, text) {
			t.Fatalf("exit %d, want 1 with %q\n%s", code, text, stderr)
		}
	}
}

// wantGoesOn looks at what was left, runs the program again and compares.
func wantGoesOn(t *testing.T, f *folder, site *shop, want string) {
	t.Helper()
	k := &killer{t: t, site: site}
	k.begin(f)
	k.look()
	k.end(want)
}

// TestDiskErrors: after an error of the disk the process writes nothing more
// and ends; the next one goes on with what is there.
func TestDiskErrors(t *testing.T) {
	want := calmExport(t)
	for _, point := range []failpoint.Point{failpoint.BeforeCommit, failpoint.AfterCommit} {
		for _, hit := range []int{1, 2, 12} {
			t.Run(fmt.Sprint(point, " ", hit), func(t *testing.T) {
				site := newShop(t)
				f := syncFolder(t, site)
				wantStopped(t, f, trap{Point: point, Hit: hit, Errno: syscall.EIO}.env())
				then, err := os.ReadFile(f.path("semel.db" + trapped))
				if err != nil {
					t.Fatal(err)
				}
				if now, err := os.ReadFile(f.path("semel.db")); err != nil || !bytes.Equal(now, then) {
					t.Errorf("it went on writing (%v)", err)
				}
				if err := os.Remove(f.path("semel.db" + trapped)); err != nil {
					t.Fatal(err)
				}
				wantGoesOn(t, f, site, want)
			})
		}
	}
}

// failingSync names in the environment of the program of TestFailedSync the
// sync that fails: "data 3" is the third one of pages, "meta 3" of meta pages.
const failingSync = "SEMEL_TEST_FAILING_SYNC"

// syncCode replaces bbolt's syncs.
const syncCode = `
var testSyncs = map[string]int{}

func testSync(db *DB, kind string) error {
	testSyncs[kind]++
	if os.Getenv("` + failingSync + `") == fmt.Sprint(kind, " ", testSyncs[kind]) {
		return errors.New("input/output error")
	}
	return fdatasync(db)
}
`

// buildWithFailingSyncs builds semel with a bbolt whose syncs can fail.
func buildWithFailingSyncs(t *testing.T) (program string) {
	t.Helper()
	output := func(args ...string) []byte {
		cmd := exec.Command("go", args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
		}
		return out
	}
	dir := t.TempDir()
	library := filepath.Join(dir, "bbolt")
	if err := os.CopyFS(library, os.DirFS(strings.TrimSpace(string(output("list", "-m", "-f", "{{.Dir}}", "go.etcd.io/bbolt"))))); err != nil {
		t.Fatal(err)
	}
	letSyncsFail(t, filepath.Join(library, "tx.go"))
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), string(content))
	}
	output("mod", "edit", "-replace", "go.etcd.io/bbolt="+library, filepath.Join(dir, "go.mod"))
	program = filepath.Join(dir, "semel")
	output("build", "-modfile", filepath.Join(dir, "go.mod"), "-o", program, ".")
	return program
}

// letSyncsFail puts syncCode in the place of the syncs in bbolt's tx.go.
func letSyncsFail(t *testing.T, file string) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kinds := []string{"data", "meta"} // in this order they stand there
	parts := strings.Split(string(source), "fdatasync(tx.db)")
	if len(parts) != 1+len(kinds) {
		t.Fatalf("bbolt syncs in %d places, this test knows %d", len(parts)-1, len(kinds))
	}
	text := parts[0]
	for i, kind := range kinds {
		text += fmt.Sprintf("testSync(tx.db, %q)", kind) + parts[1+i]
	}
	writeFile(t, file, text+syncCode)
}

// TestFailedSync lets a sync of bbolt itself fail: that of the pages, after
// which the transaction is not there, and that of the meta page, after which it
// is. Neither is trusted.
func TestFailedSync(t *testing.T) {
	real(t, "go")
	program, want := buildWithFailingSyncs(t), calmExport(t)
	for _, sync := range []string{"data 4", "data 9", "meta 4", "meta 9"} {
		t.Run(sync, func(t *testing.T) {
			site := newShop(t)
			f := syncFolder(t, site)
			f.program = program
			wantStopped(t, f, failingSync+"="+sync)
			wantGoesOn(t, f, site, want)
		})
	}
}
