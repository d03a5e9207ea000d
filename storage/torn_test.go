package storage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"semel/storage"
)

// These tests build the files that a crash of the machine can leave. A commit
// is, in this order:
//
//  1. where the file must grow: its new size, and a sync;
//  2. the pages that changed, and a sync;
//  3. one of the two meta pages, in turn, and a sync.
//
// What was written since the last sync may have reached the disk in any order
// and in part: every sector by itself. So a crash leaves
//
//   - before the first sync: all as it was, in the old or the new size;
//   - before the second: any sectors of the changed pages, the meta page old;
//   - before the third: all changed pages, the meta page old, new or torn.
//
// Only a whole new meta page makes the transaction there; else it is not. What
// was acknowledged is everything up to the commit before. A new meta page over
// old pages is no such state: illegal images are made of those, to see that the
// checks used here see anything.
const (
	tornPage   = 4096
	tornSector = 512
)

// fileState is a store file after a sync.
type fileState struct {
	pages []byte // up to the last one in use
	size  int64  // with the room behind them
	sum   [sha256.Size]byte
}

// transaction is the last one in the file.
func (f fileState) transaction() uint64 { return max(metaTx(f.pages, 0), metaTx(f.pages, 1)) }

func metaTx(pages []byte, page int) uint64 {
	return binary.LittleEndian.Uint64(pages[page*tornPage+64:])
}

// readState reads a file that an open store has just synced.
func readState(t *testing.T, path string, sum [sha256.Size]byte) fileState {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	metas := make([]byte, 2*tornPage)
	if _, err := f.ReadAt(metas, 0); err != nil {
		t.Fatal(err)
	}
	newest := 0
	if metaTx(metas, 1) > metaTx(metas, 0) {
		newest = tornPage
	}
	pages := make([]byte, binary.LittleEndian.Uint64(metas[newest+56:])*tornPage)
	if _, err := f.ReadAt(pages, 0); err != nil {
		t.Fatal(err)
	}
	return fileState{pages, info.Size(), sum}
}

// commit is what one transaction did to the file.
type commit struct{ before, after fileState }

// image is a file and the state that is in it.
type image struct {
	what  string
	pages []byte
	size  int64
	sum   [sha256.Size]byte
}

// meta is the meta page that the commit wrote.
func (c commit) meta() int { return int(c.after.transaction() % 2) }

// sectors are the offsets of the sectors of data pages that the commit changed.
func (c commit) sectors() (changed []int) {
	old := c.old()
	for at := 2 * tornPage; at < len(c.after.pages); at += tornSector {
		if !bytes.Equal(old[at:at+tornSector], c.after.pages[at:at+tornSector]) {
			changed = append(changed, at)
		}
	}
	return changed
}

// old are the pages before, as many as after.
func (c commit) old() []byte {
	pages := make([]byte, max(len(c.before.pages), len(c.after.pages)))
	copy(pages, c.before.pages)
	return pages
}

// legal are files that a crash in this commit can leave.
func (c commit) legal(r *rand.Rand, n int) []image {
	sectors := c.sectors()
	images := []image{{"the old size", c.before.pages, c.before.size, c.before.sum}}
	for range n {
		images = append(images, image{"some sectors", c.some(r, sectors), c.after.size, c.before.sum})
	}
	whole := c.old()
	copy(whole[2*tornPage:], c.after.pages[2*tornPage:])
	images = append(images, image{"all pages, the old meta page", whole, c.after.size, c.before.sum})
	for range n / 4 {
		images = append(images, c.tornMeta(r, whole))
	}
	return append(images, image{"all of it", c.after.pages, c.after.size, c.after.sum})
}

// some is the file with the old meta page and some of the changed sectors.
func (c commit) some(r *rand.Rand, sectors []int) []byte {
	pages := c.old()
	all := []float64{0.02, 0.5, 0.98}[r.IntN(3)]
	byPage := r.IntN(2) == 0 // whole pages, too, are what a disk writes
	page, take := -1, false
	for _, at := range sectors {
		if !byPage || at/tornPage != page {
			page, take = at/tornPage, r.Float64() < all
		}
		if take {
			copy(pages[at:at+tornSector], c.after.pages[at:])
		}
	}
	return pages
}

// tornMeta is the file with all pages and a meta page of which only the first
// bytes were written: smaller than a sector, which some disks promise to write
// whole.
func (c commit) tornMeta(r *rand.Rand, whole []byte) image {
	pages := bytes.Clone(whole)
	at, cut := c.meta()*tornPage, r.IntN(100) // its content has 80 bytes
	copy(pages[at:at+cut], c.after.pages[at:])
	sum := c.before.sum
	if bytes.Equal(pages[at:at+tornPage], c.after.pages[at:at+tornPage]) {
		sum = c.after.sum
	}
	return image{fmt.Sprintf("the meta page cut at %d", cut), pages, c.after.size, sum}
}

// illegal is the new meta page over the old pages, or over some of them.
func (c commit) illegal(r *rand.Rand, sectors []int) image {
	pages := c.some(r, sectors)
	at := c.meta() * tornPage
	copy(pages[at:at+tornPage], c.after.pages[at:])
	return image{"illegal", pages, c.after.size, c.after.sum}
}

func (i image) write(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(i.pages)
	if err := errors.Join(err, f.Truncate(i.size), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// tornRecorder works on a store and keeps what each commit did to its file.
type tornRecorder struct {
	t       *testing.T
	path    string
	s       *storage.Store
	r       *rand.Rand
	last    fileState
	commits []commit
	claimed []*storage.Job
	jobs    int
}

func recordCommits(t *testing.T, r *rand.Rand, steps int) []commit {
	t.Helper()
	x := &tornRecorder{t: t, path: filepath.Join(t.TempDir(), "semel.db"), r: r}
	x.open()
	x.last = readState(t, x.path, x.sum())
	for range steps {
		x.step()
	}
	if err := x.s.Close(); err != nil {
		t.Fatal(err)
	}
	x.note(x.last.sum)
	return x.commits
}

// open leaves out syncs: they change nothing in the file, and its states are
// read when no write is under way.
func (x *tornRecorder) open() {
	s, err := storage.Open(x.path, storage.Options{NoSync: true})
	if err != nil {
		x.t.Fatal(err)
	}
	x.s = s
}

func (x *tornRecorder) sum() [sha256.Size]byte {
	sum, err := x.s.Fingerprint()
	if err != nil {
		x.t.Fatal(err)
	}
	return sum
}

// note keeps the commit that has brought the file from its last state to sum.
func (x *tornRecorder) note(sum [sha256.Size]byte) {
	now := readState(x.t, x.path, sum)
	switch now.transaction() - x.last.transaction() {
	case 0:
		return
	case 1:
		x.commits = append(x.commits, commit{x.last, now})
		x.last = now
	default:
		x.t.Fatalf("more than one transaction at once: %d after %d", now.transaction(), x.last.transaction())
	}
}

// step is one transaction, or two: a close and an open.
func (x *tornRecorder) step() {
	if x.r.IntN(12) == 0 {
		if err := x.s.Close(); err != nil {
			x.t.Fatal(err)
		}
		x.note(x.last.sum)
		x.open()
		x.note(x.last.sum)
		return
	}
	update(x.t, x.s, func(tx *storage.Tx) error {
		if len(x.claimed) > 0 && x.r.IntN(2) == 0 {
			return x.finish(tx)
		}
		if x.r.IntN(2) == 0 {
			return x.enqueue(tx)
		}
		groups, err := tx.ClaimJobs("w", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1 + x.r.IntN(6)}})
		x.claimed = append(x.claimed, groups[0]...)
		return err
	})
	x.note(x.sum())
}

func (x *tornRecorder) enqueue(tx *storage.Tx) error {
	for range 1 + x.r.IntN(15) {
		n := target(fmt.Sprint("job", x.jobs))
		n.URL += strings.Repeat("x", x.r.IntN(2)*x.r.IntN(9000)) // some do not fit in a page
		if _, err := tx.EnqueueJob(n); err != nil {
			return err
		}
		x.jobs++
	}
	return nil
}

func (x *tornRecorder) finish(tx *storage.Tx) error {
	j := x.claimed[0]
	x.claimed = x.claimed[1:]
	if x.r.IntN(4) == 0 {
		return tx.RetryJob(j.Lease(), storage.Attempt{Category: storage.CategoryInternal}, time.Now())
	}
	c := record(storage.WriteUpsert, 1, j.Key.Target, strings.Repeat("y", x.r.IntN(2)*x.r.IntN(9000)))
	c.Sinks = []storage.Subscription{{Sink: "a"}}
	_, err := tx.CompleteJob(j.Lease(), c)
	return err
}

// TestTornWrites: whatever a crash of the machine leaves opens at once as the
// state before the commit under way or as the one after it, agrees with itself
// and can be worked on.
func TestTornWrites(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	steps, each := 60, 16
	if testing.Short() {
		steps, each = 20, 10
	}
	commits := recordCommits(t, r, steps)
	dir, images, grown := t.TempDir(), 0, 0
	for n, c := range commits {
		if c.after.size > c.before.size {
			grown++
		}
		for _, i := range c.legal(r, each) {
			// A new name each time: some file systems sync what replaces a file.
			path := filepath.Join(dir, fmt.Sprint(images, ".db"))
			i.write(t, path)
			if err := errors.Join(survives(path, i.sum), os.Remove(path)); err != nil {
				t.Errorf("commit %d of %d, %s: %v", n, len(commits), i.what, err)
			}
			images++
		}
	}
	t.Logf("%d files of %d commits, %d of which let the file grow", images, len(commits), grown)
	if grown == 0 {
		t.Error("no commit let the file grow: the test does not show that")
	}
}

// survives wants a store to hold one state and to work on.
func survives(path string, want [sha256.Size]byte) error {
	s, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		return err
	}
	breaches, err := s.Check()
	if len(breaches) > 0 {
		err = errors.Join(err, fmt.Errorf("breaches: %v", breaches))
	}
	got, sumErr := s.Fingerprint()
	if sumErr == nil && got != want {
		sumErr = errors.New("it is not the state that was committed")
	}
	next := target("next")
	err = errors.Join(err, sumErr, s.Update(context.Background(), func(tx *storage.Tx) error { _, err := tx.EnqueueJob(next); return err }))
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	if s, err = storage.Open(path, storage.Options{NoSync: true}); err != nil {
		return err
	}
	err = s.View(func(tx *storage.Tx) error { _, err := tx.JobByKey(next.Key); return err })
	return errors.Join(err, s.Close())
}

// tornStore names a damaged file in the environment of a child process.
const tornStore = "SEMEL_TEST_TORN"

// tornChild says what it finds in a file.
func tornChild(path string) {
	s, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		fmt.Println(err)
		os.Exit(0)
	}
	breaches, err := s.Check()
	sum, sumErr := s.Fingerprint()
	if err := errors.Join(err, sumErr); err != nil {
		fmt.Println(err)
	} else if len(breaches) > 0 {
		fmt.Println("breach", breaches[0])
	} else {
		fmt.Printf("state %x\n", sum)
	}
	_ = s.Close()
	os.Exit(0)
}

// TestIllegalWrites: a meta page that came before its pages is damage. It is
// seen as such or harmless, and neither hangs nor kills the process.
func TestIllegalWrites(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	commits := recordCommits(t, r, 60)
	path := filepath.Join(t.TempDir(), "torn.db")
	files, said := 20, map[string]int{}
	for range files {
		c := commits[r.IntN(len(commits))]
		i := c.illegal(r, c.sectors())
		i.write(t, path)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		child := exec.CommandContext(ctx, os.Args[0])
		child.Env = append(os.Environ(), tornStore+"="+path)
		out, err := child.Output()
		cancel()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = fmt.Errorf("%w\n%s", err, exit.Stderr)
			}
			t.Errorf("the child ended with %v", err)
			continue
		}
		line := string(out)
		switch {
		case strings.Contains(line, storage.ErrUnreadable.Error()):
			said["unreadable"]++
		case strings.HasPrefix(line, "breach "):
			said["breach"]++
		case line == fmt.Sprintf("state %x\n", c.after.sum):
			said["harmless"]++
		case strings.HasPrefix(line, "state "):
			said["unseen"]++
		default:
			said["another error"]++
			t.Log(line)
		}
	}
	t.Logf("of %d files: %v", files, said)
	if said["unreadable"]+said["breach"] < files/10 {
		t.Error("damage is not seen")
	}
}
