package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"semel/storage"
)

const diskPages = 600

// diskConfig collects pages of the shop directly, with its store in media.
func diskConfig(site string, pages int) string {
	return fmt.Sprintf(`version = 1
[store]
path = "media/semel.db"
[engine]
workers = 16
allow_private = true
[host."*"]
concurrency = 16
interval = "0s"
[source.shop]
url = "%s/p/{id}"
targets = [%s]
key = "{id}"
[source.shop.parser]
version = 1
[source.shop.parser.fields]
title = { css = "h1", required = true }
price = { css = ".price", type = "money", currency = "USD", decimal = "." }
`, site, numbered(pages))
}

// diskFolder is a folder with its store on a disk of 4 MB.
func diskFolder(t *testing.T, site *shop) *folder {
	t.Helper()
	f := newFolder(t, diskConfig(site.URL, diskPages)).racing()
	if err := os.Symlink(mount(t, 4<<20), f.path("media")); err != nil {
		t.Fatal(err)
	}
	return f
}

// undisturbed is what the shop's pages give, data only.
func undisturbed(t *testing.T, site *shop) string {
	t.Helper()
	f := newFolder(t, diskConfig(site.URL, diskPages))
	if err := os.Mkdir(f.path("media"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.ok(strings.Fields(runOnce)...)
	site.forget()
	return f.ok("export", "shop", "--data-only")
}

// fill takes all the room that a disk has left, and gives a function that makes
// room again.
func fill(t *testing.T, disk string) (free func()) {
	filler, err := os.Create(filepath.Join(disk, "filler"))
	for err == nil {
		_, err = io.CopyN(filler, zeros{}, 4096)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	return func() {
		if err := errors.Join(filler.Close(), os.Remove(filler.Name())); err != nil {
			t.Error(err)
		}
	}
}

// fillDuring fills the disk when a sixth of the pages were asked for.
func fillDuring(t *testing.T, site *shop, disk string) <-chan func() {
	filled := make(chan func(), 1)
	site.at(diskPages/6, func() { filled <- fill(t, disk) })
	return filled
}

// zeros reads as zeros without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

const (
	fullText = "the disk of the store is full"
	roomText = "there is room on the disk of the store again"
)

// wantFinished wants all pages collected as by an undisturbed run, each asked
// for once, but for some that may have been collected again.
func wantFinished(t *testing.T, f *folder, site *shop, want string, again int) {
	t.Helper()
	openChecked(t, f.path("media/semel.db")).Close()
	if got := f.ok("export", "shop", "--data-only"); got != want {
		t.Error("the export differs from that of the undisturbed run")
	}
	if total := site.total(); total < diskPages || total > diskPages+again {
		t.Errorf("%d requests for %d pages", total, diskPages)
	}
}

// TestFullDisk: when its disk is full the program says so and stops claiming;
// when there is room it goes on, and nothing is asked for again.
func TestFullDisk(t *testing.T) {
	site := newShop(t)
	want := undisturbed(t, site)
	f := diskFolder(t, site)
	filled := fillDuring(t, site, f.path("media"))
	p := f.start(strings.Fields(runOnce)...)
	free := <-filled
	p.await(fullText)
	wantIdle(t, site)
	free()
	p.await(roomText)
	if code := p.exit(); code != 0 {
		t.Errorf("exit %d\n%s", code, strings.Join(p.said, "\n"))
	}
	wantFinished(t, f, site, want, 0)
}

// wantIdle wants the program to ask for nothing any more, over two tries to
// write. That comes when the store's file has no free page left either: until
// then some writes find room.
func wantIdle(t *testing.T, site *shop) {
	t.Helper()
	asked := site.total()
	for range 15 {
		<-time.After(2 * time.Second)
		now := site.total()
		if now == asked && now < diskPages {
			return
		}
		asked = now
	}
	t.Errorf("%d of %d pages were asked for on a full disk, and it goes on", asked, diskPages)
}

// TestStopOnAFullDisk: a signal ends a program that waits for room within its
// bound. Only outcomes that were not written are collected again.
func TestStopOnAFullDisk(t *testing.T) {
	site := newShop(t)
	want := undisturbed(t, site)
	f := diskFolder(t, site)
	filled := fillDuring(t, site, f.path("media"))
	p := f.start(strings.Fields(runOnce)...)
	free := <-filled
	p.await(fullText)
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 130 {
		t.Errorf("exit %d\n%s", code, strings.Join(p.said, "\n"))
	}
	held, committed := diskState(t, f.path("media/semel.db"))
	lost := site.total() - committed
	if lost > 2*16 || held < lost {
		t.Errorf("%d outcomes were not written, %d leases are held", lost, held)
	}
	free()
	f.ok(strings.Fields(runOnce)...)
	wantFinished(t, f, site, want, lost)
}

// TestStartOnAFullDisk: new targets wait for room like all else.
func TestStartOnAFullDisk(t *testing.T) {
	site := newShop(t)
	want := undisturbed(t, site)
	f := diskFolder(t, site)
	f.write("semel.toml", diskConfig(site.URL, 10))
	f.ok(strings.Fields(runOnce)...)
	free := fill(t, f.path("media"))
	f.write("semel.toml", diskConfig(site.URL, diskPages))
	p := f.start(strings.Fields(runOnce)...)
	p.await(fullText) // more than fits into the free pages of the file
	free()
	if code := p.exit(); code != 0 {
		t.Errorf("exit %d\n%s", code, strings.Join(p.said, "\n"))
	}
	wantFinished(t, f, site, want, 0)
}

// diskState counts the jobs of a store that are held and complete.
func diskState(t *testing.T, path string) (held, complete int) {
	t.Helper()
	s := openChecked(t, path)
	defer s.Close()
	if err := s.View(func(tx *storage.Tx) error {
		c := tx.Counters("shop")
		held, complete = int(c.State(storage.StateRunning)), int(c.State(storage.StateComplete))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return held, complete
}

// TestNoRoomForAStore: where there is no room for a new store none is begun.
func TestNoRoomForAStore(t *testing.T) {
	site := newShop(t)
	f := diskFolder(t, site)
	free := fill(t, f.path("media"))
	wantRefused(t, f, refusal{5, "no space left on device", "make room"}, runOnce)
	free()
	f.ok(strings.Fields(runOnce)...)
}
