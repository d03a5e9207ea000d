package simulation

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"semel/storage"
)

var (
	seeds   = flag.Int("seeds", defaultSeeds, "run the seeds from 1 to `N`")
	oneSeed = flag.Uint64("seed", 0, "run this seed alone; with -v its whole trace is printed")
)

// leastHits is how often each fault and each boundary must be hit in so many
// seeds: 100 times in 2,000, and half of that in proportion where there are
// fewer, since with few seeds luck has its say, and with very few it decides.
func leastHits(seeds int) int {
	switch {
	case seeds >= 2000:
		return 100
	case seeds >= 200:
		return seeds / 40
	}
	return 0
}

// shown is how much of a failing seed's trace is printed.
const shown = 40

func TestMain(m *testing.M) {
	flag.Parse()
	// With one processor goroutines take turns, and what a seed did once it
	// does again.
	runtime.GOMAXPROCS(1)
	storage.KeepPage([]byte("the first makes the compressor, which must not belong to one bubble"))
	os.Exit(m.Run())
}

// TestSimulation runs worlds. A seed that fails is printed, and replays.
func TestSimulation(t *testing.T) {
	u := newUniverse(t)
	if *oneSeed != 0 {
		u.test(t, seed(*oneSeed))
		t.Log(u.coverage)
		return
	}
	for s := range *seeds {
		if u.test(t, seed(s+1)); t.Failed() {
			return
		}
	}
	t.Log(u.coverage)
	if rare := u.coverage.rare(leastHits(*seeds)); len(rare) > 0 {
		t.Errorf("too seldom in %d seeds:\n%s", *seeds, strings.Join(rare, "\n"))
	}
}

// TestReplay: what a seed did once it does again, to the nanosecond.
func TestReplay(t *testing.T) {
	u := newUniverse(t)
	for s := range replayed {
		first, second := u.run(t, seed(s+1)), u.run(t, seed(s+1))
		for i := range max(len(first.trace), len(second.trace)) {
			if i >= len(first.trace) || i >= len(second.trace) || first.trace[i] != second.trace[i] {
				t.Errorf("seed %d parts at line %d:\n%s\nand\n%s", s+1, i, around(first.trace, i), around(second.trace, i))
				break
			}
		}
	}
}

func around(trace []string, i int) string {
	return strings.Join(trace[min(max(0, i-6), len(trace)):min(i+4, len(trace))], "\n")
}

// universe is what all worlds of a test share.
type universe struct {
	dir      string
	empty    []byte // the file of a store that nobody has used
	catalog  *catalog
	calm     *world
	coverage *coverage
}

func newUniverse(t *testing.T) *universe {
	u := &universe{dir: shm(t), empty: emptyStore(t), catalog: newCatalog(t), coverage: newCoverage()}
	calm := newWorld(u, 0)
	calm.calm = true
	synctest.Test(t, func(*testing.T) { calm.run(nil) })
	if calm.failed() {
		t.Fatalf("the calm world: %s\n%s", calm.wrong, strings.Join(calm.trace, "\n"))
	}
	u.calm = calm
	return u
}

// shm is a folder in memory where the system has one: nothing here is to
// outlive the test, and no disk should set its pace.
func shm(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "semel-simulation-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// run makes a world and runs it to its end.
func (u *universe) run(t *testing.T, s seed) *world {
	w := newWorld(u, s)
	w.verbose = *oneSeed != 0
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would have its say in who is next
	synctest.Test(t, func(*testing.T) { w.run(u.calm) })
	runtime.GC()
	return w
}

// test runs a seed and tells what is wrong with its world.
func (u *universe) test(t *testing.T, s seed) {
	w := u.run(t, s)
	u.coverage.seeds++
	if *oneSeed != 0 && testing.Verbose() {
		t.Log(strings.Join(w.trace, "\n"))
	}
	if !w.failed() {
		return
	}
	i := slices.IndexFunc(w.trace, func(line string) bool { return strings.Contains(line, wrongMark) })
	t.Errorf("seed %d failed: %s\n\n%s\n\nreplay: go test ./engine/simulation -run TestSimulation -seed %d -v",
		s, strings.Join(w.wrong, "\n"), strings.Join(w.trace[max(0, i-shown):i+1], "\n"), s)
}
