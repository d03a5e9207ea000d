package simulation

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"semel/failpoint"
	"semel/storage"
)

// pageFault is how keeping pages fails at one of its failpoints.
type pageFault struct {
	name  string
	point failpoint.Point
	err   error
	skip  int // times that it is let be before
}

// failPages lets a page be lost while it is kept.
func failPages(point failpoint.Point, err error) func(*life, string) {
	return func(l *life, name string) {
		f := &pageFault{name, point, err, l.draw("pages to skip").below(12)}
		l.w.disk.set(func(d *disk) { d.pageFault = f })
	}
}

// keepPages is the store's call while it appends kept pages.
func (d *disk) keepPages(p failpoint.Point) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.pageFault
	switch {
	case d.off != nil:
		return d.off
	case d.full && p == failpoint.AppendPages:
		d.w.met("full disk")
		return &fs.PathError{Op: "write", Path: d.path, Err: syscall.ENOSPC}
	case f != nil && f.point == p && f.skip > 0:
		f.skip--
	case f != nil && f.point == p:
		d.w.met(f.name)
		return d.end(d.read(nil), f.err)
	}
	if p == failpoint.SyncPages { // from here on they are durable
		d.synced = d.pageFiles()
	}
	return nil
}

// pageFiles are the files of kept pages with their sizes.
func (d *disk) pageFiles() map[string]int64 {
	sizes := map[string]int64{}
	entries, _ := os.ReadDir(d.path + storage.PagesSuffix) // without a page there is no folder
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			sizes[e.Name()] = info.Size()
		}
	}
	return sizes
}

// tearPages takes back a part of what was appended and not synced, and leaves
// noise in the rest.
func (d *disk) tearPages() {
	files := d.pageFiles()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		lost := files[name] - d.synced[name]
		if lost <= 0 {
			continue
		}
		path := filepath.Join(d.path+storage.PagesSuffix, name)
		kept := int64(d.w.seed.draw("torn pages", name[:8], d.begun).below(int(lost) + 1))
		d.w.logf("%d of %d bytes of pages that were not synced stay, as noise", kept, lost)
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			d.w.failf("tearing pages: %v", err)
			return
		}
		_, writeErr := file.WriteAt(make([]byte, kept), d.synced[name])
		truncErr := file.Truncate(d.synced[name] + kept)
		if writeErr != nil || truncErr != nil || file.Close() != nil {
			d.w.failf("tearing pages: %v, %v", writeErr, truncErr)
		}
	}
	d.synced = d.pageFiles() // that much was found at the next start
}
