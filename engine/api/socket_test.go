package api

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// storeAt makes a file that stands for a store.
func storeAt(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "semel.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func listen(t *testing.T, store string) net.Listener {
	t.Helper()
	l, err := Listen(store)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The socket is there while its owner is, by every name of the store.
func TestDial(t *testing.T) {
	dir := t.TempDir()
	store := storeAt(t, dir)
	alias := filepath.Join(t.TempDir(), "alias.db")
	if err := os.Symlink(store, alias); err != nil {
		t.Skip(err)
	}
	wantNoOwner := func() {
		t.Helper()
		if _, _, err := Dial(t.Context(), store); !errors.Is(err, ErrNoOwner) {
			t.Errorf("got %v, want ErrNoOwner", err)
		}
	}
	wantNoOwner()
	l := local(t)
	server := Serve(listen(t, store), NewHandler(l, "me"), slog.New(slog.DiscardHandler))
	for _, name := range []string{store, alias} {
		c, owner, err := Dial(t.Context(), name)
		if err != nil || owner.Name != "me" {
			t.Fatalf("%s: %+v, %v", name, owner, err)
		}
		if _, err := c.Status(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	wantNoOwner()
	if _, err := os.Lstat(store + SocketSuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, _, err := Dial(t.Context(), filepath.Join(dir, "none.db")); !errors.Is(err, ErrNoOwner) {
		t.Errorf("no store: %v", err)
	}
}

// What a dead owner left is replaced; what is no socket of ours stays, though a
// file there names it.
func TestListenReplaces(t *testing.T) {
	store := storeAt(t, t.TempDir())
	name := store + SocketSuffix
	mine := filepath.Join(t.TempDir(), "mine")
	for _, file := range []string{mine, name} {
		if err := os.WriteFile(file, []byte(mine+"\n"+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(name+".new", 0o700); err != nil { // of one that was killed on its way to a socket
		t.Fatal(err)
	}
	first := listen(t, store)
	first.(*socket).Listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := first.(*socket).Listener.Close(); err != nil { // as a kill would: the name stays
		t.Fatal(err)
	}
	if _, _, err := Dial(t.Context(), store); !errors.Is(err, ErrNoOwner) {
		t.Errorf("a dead owner: %v", err)
	}
	second := listen(t, store)
	if info, err := os.Lstat(name); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(name + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder on the way is still there: %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error("a file that is no socket is gone")
	}
}

// A copy of a store whose socket is elsewhere is nobody's, and to own it takes
// nothing from the owner of the other. A runtime folder that is not there is
// done without.
func TestCopyOfStore(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(t.TempDir(), "none"))
	var stores []string
	for range 2 {
		dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		stores = append(stores, storeAt(t, dir))
	}
	server := Serve(listen(t, stores[0]), NewHandler(local(t), "me"), slog.New(slog.DiscardHandler))
	text, err := os.ReadFile(stores[0] + SocketSuffix)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stores[1]+SocketSuffix, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Dial(t.Context(), stores[1]); !errors.Is(err, ErrNoOwner) {
		t.Errorf("a copy: %v", err)
	}
	if err := listen(t, stores[1]).Close(); err != nil {
		t.Error(err)
	}
	c, _, err := Dial(t.Context(), stores[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), server.Stop()); err != nil {
		t.Error(err)
	}
}

// Where there is no place for a socket at all, both reasons are told.
func TestListenFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store := storeAt(t, dir)
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "none"))
	t.Setenv("TMPDIR", filepath.Join(dir, "none"))
	if _, err := Listen(store); err == nil || !strings.Contains(err.Error(), "making the socket of store") || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("it left %v, %v", entries, err)
	}
	if _, err := Listen(filepath.Join(dir, "none.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no store: %v", err)
	}
}
