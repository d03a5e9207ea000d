package demo_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"semel/engine"
	"semel/engine/demo"
	"semel/storage"
	"semel/storage/storagetest"
)

// holds fails the test unless records.jsonl has each page's record once, and
// nothing else.
func holds(t *testing.T, dir string, pages int) {
	t.Helper()
	got := lines(t, filepath.Join(dir, "records.jsonl"))
	if len(got) != pages {
		t.Fatalf("records.jsonl has %d lines, want %d", len(got), pages)
	}
	for i, line := range got {
		data, _, _ := strings.Cut(line, `,"_meta":`)
		if want := string(demo.Record(i + 1)); data+"}" != want {
			t.Errorf("line %d is\n%s}\nwant\n%s", i+1, data, want)
		}
	}
	store, err := storage.Open(filepath.Join(dir, "semel.db"), storage.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // nothing was written
	storagetest.Check(t, store)
}

func says(t *testing.T, p *play, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.stdout.String(), text) {
			t.Errorf("the report does not say %q:\n%s", text, &p.stdout)
		}
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestRunTwice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "semel-demo")
	first := newPlay(t, dir)
	first.run(t)
	says(t, first, "50 collected", "50 of 50 in records.jsonl", "dead exit (502) ", "reset in the body ", "slow answer ", "503 with Retry-After ", "0 records; 0 requests")
	if want := []string{"records.jsonl", "semel.db", "semel.toml", "targets.csv"}; !slices.Equal(names(t, dir), want) {
		t.Errorf("the folder has %v, want %v", names(t, dir), want)
	}
	records := lines(t, filepath.Join(dir, "records.jsonl"))

	second := newPlay(t, dir)
	second.run(t)
	says(t, second, "nothing to do: all 50 pages were collected by an earlier demo in this folder; 0 requests were made", "50 of 50 in records.jsonl")
	if !slices.Equal(records, lines(t, filepath.Join(dir, "records.jsonl"))) {
		t.Error("the second demo changed records.jsonl")
	}

	wider := newPlay(t, dir)
	wider.Pages = 60
	wider.run(t)
	says(t, wider, "10 collected, 50 known", "60 of 60 in records.jsonl", "0 requests for pages that were committed before")
	holds(t, dir, 60)

	narrower := newPlay(t, dir)
	narrower.Pages = 3
	narrower.run(t)
	says(t, narrower, "nothing to do", "3 of 3 in records.jsonl", "57 of an earlier demo")
}

func TestKill(t *testing.T) {
	dir := t.TempDir()
	p := newPlay(t, dir)
	p.Pages, p.Faults, p.Kill = 120, 0.2, true
	p.RunOnce = nil // the work is the child's alone
	p.run(t)
	says(t, p, fmt.Sprintf("semel show %d -c", longest(t, dir)), "kill 1 ", "kill 5 ", "the next process took back", "120 collected", "0 records; 0 requests")
	holds(t, dir, 120)

	again := newPlay(t, dir)
	again.Pages, again.Kill = 120, true
	again.run(t)
	says(t, again, "nothing to do")
	if strings.Contains(again.stdout.String(), "kill 1") {
		t.Error("a child with nothing to do was killed")
	}
}

// longest is the first job with the most attempts.
func longest(t *testing.T, dir string) (id uint64) {
	t.Helper()
	store, err := storage.Open(filepath.Join(dir, "semel.db"), storage.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // nothing was written
	err = store.View(func(tx *storage.Tx) error {
		most := 0
		_, err := tx.Jobs(0, 1000, func(j *storage.Job) bool {
			attempts, err := tx.Attempts(j.ID)
			if err != nil {
				t.Error(err)
			}
			if len(attempts) > most {
				id, most = j.ID, len(attempts)
			}
			return true
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A demo that was interrupted goes on in the next, whose ports are others.
func TestInterruptedGoesOn(t *testing.T) {
	for name, kill := range map[string]bool{"in this process": false, "in a child": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := newPlay(t, dir)
			first.Faults, first.Kill = demo.MaxFaults, kill // long enough for a line of progress
			ctx, cancel := context.WithCancel(t.Context())
			first.Stderr = writerFunc(cancel)
			if err := demo.Run(ctx, first.Options); !errors.Is(err, context.Canceled) {
				t.Fatalf("an interrupted demo gives %v, want context.Canceled", err)
			}
			second := newPlay(t, dir)
			second.Faults = 0
			second.run(t)
			says(t, second, "0 requests for pages that were committed before")
			holds(t, dir, 50)
		})
	}
}

// writerFunc is called whenever something is written.
type writerFunc func()

func (f writerFunc) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

func TestForeignFolderIsNotTouched(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"another config":    {"semel.toml": "version = 1\n"},
		"marker not first":  {"semel.toml": "version = 1\n" + markerLine(t)},
		"marker cut short":  {"semel.toml": markerLine(t)[:20]},
		"longer first line": {"semel.toml": strings.TrimSuffix(markerLine(t), "\n") + ", or not\n"},
		"one letter longer": {"semel.toml": strings.TrimSuffix(markerLine(t), "\n") + "s\n"},
		"empty config":      {"semel.toml": ""},
		"no config":         {"notes.txt": "mine"},
		"a store alone":     {"semel.db": "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := names(t, dir)
			p := newPlay(t, dir)
			p.RunOnce, p.Export = nil, nil // neither may be called
			err := demo.Run(t.Context(), p.Options)
			if !errors.Is(err, demo.ErrForeignFolder) || !strings.Contains(err.Error(), dir) {
				t.Fatalf("the error is %v, want ErrForeignFolder with %s", err, dir)
			}
			if after := names(t, dir); !slices.Equal(before, after) {
				t.Errorf("the folder had %v and has %v", before, after)
			}
			for name, content := range files {
				if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
					t.Errorf("%s is now %q, %v", name, got, err)
				}
			}
		})
	}
}

// markerLine is the first line of a demo's config.
func markerLine(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	p := newPlay(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.RunOnce = func(context.Context, string) (engine.Summary, error) { return engine.Summary{}, nil }
	if err := demo.Run(ctx, p.Options); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return lines(t, filepath.Join(dir, "semel.toml"))[0] + "\n"
}

func TestFileInPlaceOfFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := demo.Run(t.Context(), newPlay(t, path).Options); err == nil {
		t.Fatal("a file was taken for a folder")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
		t.Errorf("the file is now %q, %v", got, err)
	}
}

func TestStoreInUse(t *testing.T) {
	dir := t.TempDir()
	first := newPlay(t, dir)
	first.Faults = 0
	first.run(t)
	config := lines(t, filepath.Join(dir, "semel.toml"))
	storagetest.OpenAt(t, filepath.Join(dir, "semel.db"), storage.Options{})
	if err := demo.Run(t.Context(), newPlay(t, dir).Options); !errors.Is(err, storage.ErrInUse) {
		t.Fatalf("the error is %v, want ErrInUse", err)
	}
	if !slices.Equal(config, lines(t, filepath.Join(dir, "semel.toml"))) {
		t.Error("the config was changed under a running engine")
	}
}

func TestBounds(t *testing.T) {
	tests := []struct {
		name   string
		change func(*demo.Options)
		text   string
	}{
		{"no folder", func(o *demo.Options) { o.Dir = "" }, "the folder has no name"},
		{"no page", func(o *demo.Options) { o.Pages = 0 }, "pages must be 1 to 100000 (got 0)"},
		{"pages below", func(o *demo.Options) { o.Pages = -1 }, "got -1"},
		{"pages over", func(o *demo.Options) { o.Pages = demo.MaxPages + 1 }, "got 100001"},
		{"faults below", func(o *demo.Options) { o.Faults = -0.01 }, "faults must be 0 to 0.9 (got -0.01)"},
		{"faults over", func(o *demo.Options) { o.Faults = 0.91 }, "got 0.91"},
		{"faults no number", func(o *demo.Options) { o.Faults = math.NaN() }, "got NaN"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "demo")
			p := newPlay(t, dir)
			test.change(&p.Options)
			err := demo.Run(t.Context(), p.Options)
			if !errors.Is(err, demo.ErrUsage) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("the error is %v, want ErrUsage with %q", err, test.text)
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder was made all the same (%v)", err)
			}
		})
	}
}

func TestEdgesOfBounds(t *testing.T) {
	for name, change := range map[string]func(*demo.Options){
		"one page":          func(o *demo.Options) { o.Pages = 1 },
		"one page, killed":  func(o *demo.Options) { o.Pages, o.Kill = 1, true },
		"two pages, killed": func(o *demo.Options) { o.Pages, o.Kill = 2, true },
		"no faults":         func(o *demo.Options) { o.Faults = 0 },
		"most faults":       func(o *demo.Options) { o.Pages, o.Faults = 5, demo.MaxFaults },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, t.TempDir())
			change(&p.Options)
			p.run(t)
			holds(t, p.Dir, p.Pages)
		})
	}
}

// The gateway's login is in no file and in no output, and the environment is as
// it was.
func TestLoginIsNowhere(t *testing.T) {
	t.Setenv("SEMEL_DEMO_USER", "mine")
	p := newPlay(t, t.TempDir())
	p.Faults = 0
	var secrets []string
	p.RunOnce = func(ctx context.Context, path string) (engine.Summary, error) {
		secrets = []string{os.Getenv("SEMEL_DEMO_USER"), os.Getenv("SEMEL_DEMO_PASSWORD")}
		return runOnce(ctx, path)
	}
	p.run(t)
	places := map[string]string{"stdout": p.stdout.String(), "stderr": p.stderr.String()}
	for _, name := range names(t, p.Dir) {
		content, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		places[name] = string(content)
	}
	for _, secret := range secrets {
		if len(secret) < 16 {
			t.Fatalf("the login is %q", secret)
		}
		for place, content := range places {
			if strings.Contains(content, secret) {
				t.Errorf("%s holds the login", place)
			}
		}
	}
	if user := os.Getenv("SEMEL_DEMO_USER"); user != "mine" {
		t.Errorf("SEMEL_DEMO_USER is %q after the demo", user)
	}
	if _, set := os.LookupEnv("SEMEL_DEMO_PASSWORD"); set {
		t.Error("SEMEL_DEMO_PASSWORD is still set after the demo")
	}
}

// What is not as promised is an error, whatever RunOnce says.
func TestBrokenPromisesAreTold(t *testing.T) {
	tests := []struct {
		name   string
		change func(*play)
		text   string
	}{
		{"run fails", func(p *play) {
			p.RunOnce = func(context.Context, string) (engine.Summary, error) { return engine.Summary{}, errBroken }
		}, "broken"},
		{"export fails", func(p *play) {
			p.Export = func(context.Context, string, string, string) error { return errBroken }
		}, "broken"},
		{"a record is missing", editing(func(list []string) []string { return list[1:] }), "1 of 50 pages have no right record"},
		{"a record is there twice", editing(func(list []string) []string { return append(list, list[7]) }), "1 records are not what the site says, such as 000008"},
		{"a record has other content", editing(func(list []string) []string {
			list[3] = strings.Replace(list[3], "No. 4", "No. 5", 1)
			return list
		}), "such as 000004"},
		{"a line is no record", editing(func(list []string) []string { return append(list, "{") }), "such as (not JSON)"},
		{"a page that is not on the site", editing(func(list []string) []string {
			return append(list, strings.ReplaceAll(list[0], `"key":"000001"`, `"key":"1"`))
		}), "such as 1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newPlay(t, t.TempDir())
			p.Faults = 0
			test.change(p)
			if err := demo.Run(t.Context(), p.Options); err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("the error is %v, want one with %q", err, test.text)
			}
		})
	}
}

var errBroken = errors.New("broken")

// editing exports lines that edit has changed.
func editing(edit func([]string) []string) func(*play) {
	return func(p *play) {
		p.Export = func(ctx context.Context, config, source, out string) error {
			if err := export(ctx, config, source, out); err != nil {
				return err
			}
			content, err := os.ReadFile(out)
			if err != nil {
				return err
			}
			list := edit(strings.Split(strings.TrimSuffix(string(content), "\n"), "\n"))
			return os.WriteFile(out, []byte(strings.Join(list, "\n")+"\n"), 0o600)
		}
	}
}

// askAgain is a RunOnce that makes a request of its own after the work.
func askAgain(t *testing.T, id string) func(context.Context, string) (engine.Summary, error) {
	return func(ctx context.Context, path string) (engine.Summary, error) {
		summary, err := runOnce(ctx, path)
		if err != nil {
			return summary, err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return summary, err
		}
		address := regexp.MustCompile(`"http://(127\.0\.0\.1:\d+)"`).FindSubmatch(content)
		proxy := &url.URL{
			Scheme: "http", Host: string(address[1]),
			User: url.UserPassword(os.Getenv("SEMEL_DEMO_USER"), os.Getenv("SEMEL_DEMO_PASSWORD")),
		}
		client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}
		answer, err := client.Get("http://shop.example/product/" + id)
		if err != nil {
			return summary, err
		}
		if answer.StatusCode != http.StatusOK {
			t.Errorf("the request of the test's own was answered %s", answer.Status)
		}
		return summary, answer.Body.Close()
	}
}

// One request too many is found, whether or not there was anything to do.
func TestRequestsAgainAreTold(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		pages int
		ask   string
		want  []string
	}{
		{50, "", nil},
		{51, "000001", []string{"1 requests for pages whose record was committed"}},
		{51, "000051", []string{"1 requests for pages whose record was committed", "1 requests, though every page had been collected"}},
	} {
		p := newPlay(t, dir)
		p.Pages, p.Faults = step.pages, 0
		if step.ask == "" {
			p.run(t)
			continue
		}
		p.RunOnce = askAgain(t, step.ask)
		err := demo.Run(t.Context(), p.Options)
		for _, text := range step.want {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("the error is %v, want one with %q", err, text)
			}
		}
	}
}

func TestChildThatCannotWork(t *testing.T) {
	for name, change := range map[string]func(*play){
		"starting the working process:": func(p *play) { p.Executable = filepath.Join(p.Dir, "none") },
		"told to fail":                  func(*play) { t.Setenv(failVariable, "1") },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, t.TempDir())
			p.Kill = true
			change(p)
			if err := demo.Run(t.Context(), p.Options); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("the error is %v, want one with %q", err, name)
			}
		})
	}
}
