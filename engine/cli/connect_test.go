package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"semel/engine/api"
	"semel/storage"
	"semel/storage/storagetest"
)

// Commands know the store through api.Service alone: a Local is made only to be
// given to a handler.
func TestNoCommandBypassesTheClient(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	handlers := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		allowed := map[ast.Node]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if isAPI(n.Fun, "NewHandler") {
					handlers++
					allowed[localOf(n.Args[0])] = true
				}
			case *ast.SelectorExpr:
				if isAPI(n, "Local") && !allowed[n] {
					t.Errorf("%s: api.Local outside of a call of api.NewHandler", set.Position(n.Pos()))
				}
			}
			return true
		})
	}
	if handlers != 2 {
		t.Errorf("%d handlers are made, want the run's and that of other commands", handlers)
	}
}

func isAPI(n ast.Node, name string) bool {
	s, ok := n.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	pkg, ok := s.X.(*ast.Ident)
	return ok && pkg.Name == "api"
}

// localOf is the type in an argument of the form &api.Local{…}.
func localOf(arg ast.Expr) ast.Node {
	address, ok := arg.(*ast.UnaryExpr)
	if !ok {
		return nil
	}
	literal, ok := address.X.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	return literal.Type
}

// outcome is all that a command of semel shows.
func outcome(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("semel", args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return fmt.Sprintf("semel %s\n%s%s%d\n", strings.Join(args, " "), &stdout, &stderr, cmd.ProcessState.ExitCode())
}

// serving waits until a semel run answers for the store in a folder.
func serving(t *testing.T, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := awaitOwner(ctx, filepath.Join(dir, "semel.db")); err != nil {
		t.Fatal(err)
	}
}

// awaitOwner waits until somebody answers for a store.
func awaitOwner(ctx context.Context, store string) (api.Owner, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		client, owner, err := api.Dial(ctx, store)
		if err == nil {
			return owner, client.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return api.Owner{}, err
		}
	}
}

// storeCommands are commands on a store with 2 complete jobs, job 3 failed, and
// none left to do; they leave it so.
var storeCommands = [][]string{
	{"status"},
	{"status", "--json"},
	{"jobs"},
	{"jobs", "--json"},
	{"jobs", "--state", "failed", "--category", "not_found", "--limit", "1"},
	{"jobs", "--source", "pagse"},
	{"show", "1"},
	{"show", "3", "--json"},
	{"show", "pages:gone:-:-:-:-"},
	{"show", "99"},
	{"show", "non/sense?"},
	{"show", ".."},
	{"export", "pages"},
	{"export", "pages", "--data-only"},
	{"export", "pages", "-o", "out.jsonl", "--json"},
	{"export", "pagse"},
	{"verify"},
	{"verify", "--json"},
	{"verify", "--twice", "pages"},
	{"backup", "no/such/folder/copy.db"},
	{"retry", "3", "1"},
	{"retry", "--source", "pages", "--category", "blocked"},
	{"retry", "--source", "pagse"},
	{"cancel", "1"},
	{"cancel", "99"},
}

// heldCommands are commands on a store whose job 1 is held and the others not
// begun; they leave it so.
var heldCommands = [][]string{
	{"cancel", "2", "3"},
	{"retry", "2"},
	{"retry", "--source", "pages", "--json"},
	{"cancel", "2", "--json"},
	{"retry", "--source", "pages", "--category", "canceled"},
	{"cancel", "3", "99"},
	{"jobs", "--source", "pages", "--state", "pending", "--category", "canceled"},
}

// Every command shows the same whether it opens the store or asks the run that
// holds it.
// holder is what status says of who holds the store.
var holder = regexp.MustCompile(`semel run, pid .*|no semel run holds the store|"run":(null|{[^}]*})`)

func TestSameOverTheSocket(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		targets  string
		commands [][]string
		held     bool
	}{
		{"nothing left", "n\n1\n2\ngone\n", storeCommands, false},
		{"jobs held", "n\nhold1\nhold2\nhold3\n", heldCommands, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t)
			dir := heldFolder(t, s)
			if err := os.WriteFile(filepath.Join(dir, "targets.csv"), []byte(test.targets), 0o600); err != nil {
				t.Fatal(err)
			}
			if test.held {
				c := startChild(t, s, dir, "run")
				await(t, "the first request", s.arrival("/p/hold1"))
				c.signal(t, syscall.SIGKILL)
				c.exit(t)
				outcome(t, dir, "cancel", "99") // takes back what it held
			} else {
				outcome(t, dir, "run", "--once")
			}
			var here []string
			for _, args := range test.commands {
				here = append(here, outcome(t, dir, args...))
			}
			c := startChild(t, s, dir, "run")
			serving(t, dir)
			for i, args := range test.commands {
				if got, want := outcome(t, dir, args...), here[i]; holder.ReplaceAllString(got, "") != holder.ReplaceAllString(want, "") {
					t.Errorf("over the socket:\n%s\nopened here:\n%s", got, want)
				}
			}
			s.release()
			c.signal(t, syscall.SIGTERM)
			if code := c.exit(t); code != exitDone {
				t.Errorf("the run exits with %d", code)
			}
		})
	}
}

// An owner that is stopped holds no command up for ever.
func TestSilentOwner(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	dir := heldFolder(t, s)
	c := startChild(t, s, dir, "run")
	serving(t, dir)
	c.signal(t, syscall.SIGSTOP)
	want := "semel: error: opening store semel.db: the semel run that holds the store does not answer within 5s"
	if runtime.GOOS == "linux" {
		want += fmt.Sprintf(", pid %d\n", c.Process.Pid)
	}
	if got := outcome(t, dir, "status"); !strings.Contains(got, want) || !strings.HasSuffix(got, "\n5\n") {
		t.Errorf("status shows\n%s", got)
	}
	c.signal(t, syscall.SIGKILL)
	c.exit(t)
}

// A command that holds the store keeps a run away, without the name of a run.
func TestStoreHeldByCommand(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	dir := heldFolder(t, s)
	store := storagetest.OpenAt(t, filepath.Join(dir, "semel.db"), storage.Options{})
	want := "semel: error: opening store semel.db: store is in use by another process\n" +
		"semel: hint: another semel works with it: try again when that has ended\n5\n"
	if got := outcome(t, dir, "run", "--once"); !strings.HasSuffix(got, want) {
		t.Errorf("run shows\n%s", got)
	}
	if _, err := os.Lstat(store.Path() + api.SocketSuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a run that has no store made a socket: %v", err)
	}
}

// contradiction is a service whose store contradicts itself.
type contradiction struct{ api.Service }

func (contradiction) Verify(_ context.Context, fn func(api.Breach) error) (api.VerifyResult, error) {
	return api.VerifyResult{Breaches: 1}, fn(api.Breach{Bucket: "job", Key: "000c", What: "it is \x1b[31mpending"})
}

func TestVerifyTellsBreaches(t *testing.T) {
	for _, tt := range []struct {
		json bool
		want string
	}{
		{false, "bucket job, key 000c: it is \uFFFD[31mpending\n"},
		{true, `{"bucket":"job","key":"000c","what":"it is \u001b[31mpending"}` + "\n"},
	} {
		var stdout, stderr bytes.Buffer
		a := &app{stdout: bufio.NewWriter(&stdout), stderr: &stderr, getenv: func(string) string { return "" }, json: tt.json, started: true}
		code := a.finish(a.verify(t.Context(), "")(nil, contradiction{}))
		if code != exitFailed || stdout.String() != tt.want || !strings.HasPrefix(stderr.String(), "semel: error: the store contradicts itself in 1 place\n") {
			t.Errorf("exit %d, stdout %q, stderr %q", code, &stdout, &stderr)
		}
	}
}

func TestProxyText(t *testing.T) {
	until := time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)
	for want, p := range map[string]api.ProxyStatus{
		"gw (http://gw.example:1)": {Endpoint: "gw (http://gw.example:1)"},
		"gw (http://gw.example:1), paused until 2026-04-23T15:00:00Z: it\uFFFDanswered 407": {Endpoint: "gw (http://gw.example:1)", Paused: "it\nanswered 407", PausedUntil: &until},
	} {
		if got := proxyText(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
