package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// mount mounts a tmpfs of some bytes until the test ends. Where that is not
// allowed the test is skipped, unless SEMEL_REAL is set.
func mount(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0777", size)); err != nil {
		if os.Getenv("SEMEL_REAL") != "" {
			t.Fatalf("SEMEL_REAL is set, and a tmpfs cannot be mounted: %v", err)
		}
		t.Skipf("a tmpfs cannot be mounted (%v); .ci/run does that as root", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// storeCommands are the commands that open the store, in every way there is.
var storeCommands = []string{runOnce, "status", "jobs", "retry 1", "export shop", exportToFile}

// mediaConfig has its store in a folder of its own, and nobody to ask.
const mediaConfig = `version = 1
[store]
path = "media/semel.db"
[engine]
allow_private = true
[source.shop]
url = "http://127.0.0.1:1/{id}"
targets = [{ id = "1" }]
key = "{id}"
[source.shop.limits]
attempts = 1
[source.shop.parser]
version = 1
[source.shop.parser.fields]
title = { css = "h1" }
`

// mediaFolder is a folder with a config, and a store in media where content is
// not nil.
func mediaFolder(t *testing.T, content []byte) *folder {
	t.Helper()
	f := newFolder(t, mediaConfig)
	err := os.Mkdir(f.path("media"), 0o755)
	if content != nil {
		err = errors.Join(err, os.WriteFile(f.path("media/semel.db"), content, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// realStore is the file of a store with a failed job in it.
func realStore(t *testing.T) []byte {
	t.Helper()
	f := mediaFolder(t, nil)
	if _, stderr, code := f.semel(strings.Fields(runOnce)...); code != 3 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	content, err := os.ReadFile(f.path("media/semel.db"))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// filesBelow are the names, times and contents of all that is in a folder.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var content []byte
		if info.Mode().IsRegular() {
			content, err = os.ReadFile(path)
		}
		files[path] = fmt.Sprintln(info.Mode(), info.ModTime().UnixNano(), string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// refusal is how a command refuses a store.
type refusal struct {
	code        int
	error, hint string // parts of its text
}

// wantRefused runs each command and wants it refused, with all files as they
// were.
func wantRefused(t *testing.T, f *folder, want refusal, commands ...string) {
	t.Helper()
	for _, line := range commands {
		before := filesBelow(t, f.dir)
		cmd := f.command(strings.Fields(line)...)
		wantExit(t, cmd, want)
		after := filesBelow(t, f.dir)
		for path, was := range before {
			if after[path] != was {
				t.Errorf("semel %s has changed %s", line, path)
			}
		}
		if len(after) != len(before) {
			t.Errorf("semel %s has left %d files where there were %d", line, len(after), len(before))
		}
	}
}

// wantExit runs a command and wants a refusal.
func wantExit(t *testing.T, cmd *exec.Cmd, want refusal) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	said, hint, _ := strings.Cut(stderr.String(), "semel: hint: ")
	if code := cmd.ProcessState.ExitCode(); code != want.code ||
		!strings.HasPrefix(said, "semel: error: opening store ") || !strings.Contains(said, want.error) || !strings.Contains(hint, want.hint) {
		t.Errorf("semel %s: exit %d, want %d with %q and %q\n%s", strings.Join(cmd.Args[1:], " "), code, want.code, want.error, want.hint, &stderr)
	}
}

// TestBadStores: whatever stands at the place of the store, every command says
// what is wrong and what to do, and leaves all as it was.
func TestBadStores(t *testing.T) {
	whole := realStore(t)
	bothMetas, newer, foreign := bytes.Clone(whole), newerStore(t, whole), foreignStore(t)
	for i := range 8192 {
		bothMetas[i] ^= 0x55
	}
	cases := map[string]struct {
		content []byte
		want    refusal
	}{
		"empty":           {[]byte{}, refusal{6, "unreadable: it has 0 bytes", "go back to a copy"}},
		"zeros":           {make([]byte, len(whole)), refusal{6, "unreadable: neither of its two meta pages", "go back to a copy"}},
		"text":            {[]byte(strings.Repeat("sku,price\n", 2000)), refusal{6, "unreadable: neither", "go back to a copy"}},
		"both meta pages": {bothMetas, refusal{6, "unreadable: neither", "go back to a copy"}},
		"another program": {foreign, refusal{6, "a bbolt file of another program", "go back to a copy"}},
		"newer":           {newer, refusal{6, "newer version", "use the semel that wrote it"}},
	}
	used := len(bytes.TrimRight(whole, "\x00"))
	for _, size := range []int{1, 100, 4095, 4096, 8191, 8192, 8193, 12288, used / 2, used - 4096} {
		cases[fmt.Sprint("cut at ", size)] = struct {
			content []byte
			want    refusal
		}{whole[:size], refusal{6, "unreadable: it", "go back to a copy"}}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			wantRefused(t, mediaFolder(t, c.content), c.want, storeCommands...)
		})
	}
	t.Run("folder", func(t *testing.T) {
		f := mediaFolder(t, nil)
		if err := os.Mkdir(f.path("media/semel.db"), 0o755); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, f, refusal{6, "unreadable: it is a folder", "go back to a copy"}, storeCommands...)
	})
}

// newerStore is a store as a later version of the program might leave it.
func newerStore(t *testing.T, content []byte) []byte {
	t.Helper()
	return changed(t, content, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("schema"), []byte{0, 0, 0, 99})
	})
}

// foreignStore is a file of another program that uses bbolt, too.
func foreignStore(t *testing.T) []byte {
	t.Helper()
	return changed(t, nil, func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	})
}

// changed is a bbolt file after one more transaction.
func changed(t *testing.T, content []byte, change func(*bolt.Tx) error) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "changed.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
	if content, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return content
}

// TestReadOnlyMedia: from a file system that cannot be written a store can be
// read; what must write says so.
func TestReadOnlyMedia(t *testing.T) {
	content := realStore(t)
	f := newFolder(t, mediaConfig)
	dir := mount(t, 64<<20)
	if err := errors.Join(os.Symlink(dir, f.path("media")), os.WriteFile(filepath.Join(dir, "semel.db"), content, 0o644)); err != nil {
		t.Fatal(err)
	}
	remount := func(flags uintptr) {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	remount(syscall.MS_RDONLY)
	for _, line := range []string{"status", "jobs", "export shop", exportToFile} {
		f.ok(strings.Fields(line)...)
	}
	wantRefused(t, f, refusal{5, "read-only file system", "set store.path to a place that can be written"}, runOnce, "retry 1")
	remount(0)
	if err := os.Remove(filepath.Join(dir, "semel.db")); err != nil {
		t.Fatal(err)
	}
	remount(syscall.MS_RDONLY)
	wantRefused(t, f, refusal{5, "read-only file system", "set store.path to a place that can be written"}, runOnce)
	wantRefused(t, f, refusal{5, "not found", "semel run --once makes the store"}, "status", "export shop")
}

// nobody runs a command of semel as a user who owns nothing. Without root it
// runs as who we are.
func nobody(f *folder, line string) *exec.Cmd {
	cmd := f.command(strings.Fields(line)...)
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return cmd
}

// TestNoPermission: a file or a folder that is not ours is told as such.
func TestNoPermission(t *testing.T) {
	content := realStore(t)
	for name, c := range map[string]struct {
		file, folder fs.FileMode
		store        bool
		commands     []string
	}{
		"file that cannot be read":     {0, 0o755, true, storeCommands},
		"file that cannot be written":  {0o444, 0o755, true, []string{runOnce, "retry 1"}},
		"folder that cannot be opened": {0o644, 0, true, storeCommands},
		"folder for reading only":      {0, 0o555, false, []string{runOnce}},
	} {
		t.Run(name, func(t *testing.T) {
			f := publicFolder(t)
			media := f.path("media")
			err := os.Mkdir(media, 0o755)
			if c.store {
				err = errors.Join(err, os.WriteFile(filepath.Join(media, "semel.db"), content, 0o644), os.Chmod(filepath.Join(media, "semel.db"), c.file))
			}
			if err := errors.Join(err, os.Chmod(media, c.folder)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(media, 0o755) })
			for _, line := range c.commands {
				wantExit(t, nobody(f, line), refusal{5, "permission denied", "check who owns the file and its folder"})
			}
			if err := os.Chmod(media, 0o755); err != nil {
				t.Fatal(err)
			}
			if entries, err := os.ReadDir(media); err != nil || len(entries) > 1 || len(entries) == 1 && !c.store {
				t.Errorf("the folder holds %v (%v)", entries, err)
			}
			if now, err := os.ReadFile(filepath.Join(media, "semel.db")); c.store && os.Getuid() == 0 && (err != nil || !bytes.Equal(now, content)) {
				t.Errorf("the store has changed (%v)", err)
			}
		})
	}
}

// TestNoPermissionForPages: so is the folder of kept pages, before anything is
// collected that could not be kept.
func TestNoPermissionForPages(t *testing.T) {
	f := publicFolder(t)
	store := f.path("media/semel.db")
	pages := store + ".pages"
	err := errors.Join(os.Mkdir(f.path("media"), 0o755), os.WriteFile(store, realStore(t), 0o644), os.Mkdir(pages, 0))
	if err := errors.Join(err, os.Chmod(f.path("media"), 0o777), os.Chmod(store, 0o666)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(pages, 0o755) })
	for _, line := range []string{runOnce, "status", "verify"} {
		wantExit(t, nobody(f, line), refusal{5, "its kept pages: open media/semel.db.pages: permission denied", "check who owns the file and its folder"})
	}
}

// publicFolder is a folder that everybody can enter, with the program in it.
func publicFolder(t *testing.T) *folder {
	t.Helper()
	dir := partDir(t, "root")
	f := &folder{t: t, dir: dir}
	f.write("semel.toml", mediaConfig)
	f.program = filepath.Join(dir, "semel")
	program, err := os.ReadFile(plain)
	if err := errors.Join(err, os.WriteFile(f.program, program, 0o755)); err != nil {
		t.Fatal(err)
	}
	return f
}
