package simulation

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	"semel/failpoint"
	"semel/storage"
)

const (
	// maxLives and maxTime bound a world that does not come to its end.
	maxLives = 200
	maxTime  = 2 * 24 * time.Hour
)

// wrongMark stands in the trace where something is wrong.
const wrongMark = "WRONG: "

// world is all there is for one seed.
type world struct {
	seed     seed
	calm     bool // nothing disturbs it
	verbose  bool // the engines' logs are part of the trace
	catalog  *catalog
	coverage *coverage

	clock  clock
	disk   *disk
	site   *site
	ledger *ledger
	life   *life // the present one

	consumers map[string]*consumer // by sink
	onTheWay  sync.WaitGroup       // deliveries, also of processes that have ended

	mu    sync.Mutex
	trace []string
	wrong []string
}

func newWorld(u *universe, s seed) *world {
	w := &world{seed: s, catalog: u.catalog, coverage: u.coverage, consumers: map[string]*consumer{}}
	for _, sink := range sinkNames {
		w.consumers[sink] = newConsumer(w, sink)
	}
	w.disk = newDisk(w, u.dir, u.empty)
	w.site = newSite(w)
	w.ledger = newLedger(w)
	return w
}

// run lives until everything is collected and told, and checks the end against
// a calm world's; nil: this is it.
func (w *world) run(calm *world) {
	failpoint.Set(w.disk.at)
	defer failpoint.Set(nil)
	w.liveAll()
	w.onTheWay.Wait()
	if w.failed() {
		return
	}
	w.checkEnd()
	if calm != nil {
		w.compare(calm)
	}
}

// liveAll lives until nothing is left to do.
func (w *world) liveAll() {
	begin := time.Now()
	for n := 1; !w.over() && !w.failed(); n++ {
		if n > maxLives || time.Since(begin) > maxTime {
			w.failf("it does not come to its end: life %d after %s", n, time.Since(begin))
			return
		}
		w.live(n)
		time.Sleep(w.seed.until(w.seed.draw("between lives", n).between(0, w.longestPause()), "life", n))
	}
}

// longestPause is how long it may take until the next life begins: longer where
// only events are left, whose next delivery a clock may have put far away.
func (w *world) longestPause() time.Duration {
	if jobs, _ := w.ledger.state().open(); jobs == 0 {
		return 10 * time.Minute
	}
	return 20 * time.Second
}

// look reads the store of the present life.
func (w *world) look() *state {
	st, err := readState(w.life.store)
	if err != nil {
		w.failf("reading the store: %v", err)
	}
	return st
}

// over reports whether nothing is left to do.
func (w *world) over() bool {
	st := w.ledger.state()
	jobs, events := st.open()
	return len(st.jobs) == w.catalog.size() && jobs == 0 && events == 0
}

// checkEnd checks what must hold in every world that is over.
func (w *world) checkEnd() {
	st := w.ledger.state()
	for id, j := range st.jobs {
		if most := w.site.failures(id) + 1; int(j.Attempts) > most {
			w.failf("%s: %d attempts count, the site gave reason for %d", name(j), j.Attempts, most)
		}
		completed := 0
		for _, a := range st.attempts[id] {
			if a.Outcome == storage.OutcomeComplete {
				completed++
				w.checkPage(j, a)
			}
		}
		if done := j.State == storage.StateComplete; completed > 1 || done != (completed == 1) {
			w.failf("%s is %s and has completed %d times", name(j), j.State, completed)
		}
	}
	w.checkDeliveries()
}

// checkPage wants a complete job to have kept the page that the site has.
func (w *world) checkPage(j *storage.Job, a storage.Attempt) {
	if _, body := page(j.URL); a.Page != sha256.Sum256([]byte(body)) {
		w.failf("%s has kept page %s, the site has another", name(j), a.Page)
	}
}

// compare wants the end of a calm world.
func (w *world) compare(calm *world) {
	got, want := w.ledger.state(), calm.ledger.state()
	if got.export() != want.export() {
		w.failf("the export differs:\n%s\nin the calm world:\n%s", got.export(), want.export())
	}
	if !maps.Equal(got.verdicts(), want.verdicts()) {
		w.failf("the jobs ended as\n%v\nin the calm world:\n%v", got.verdicts(), want.verdicts())
	}
	if !reflect.DeepEqual(w.told(), calm.told()) {
		w.failf("sinks were told of\n%v\nin the calm world:\n%v", w.told(), calm.told())
	}
}

// met counts a fault that happened.
func (w *world) met(fault string) {
	w.coverage.fault(fault)
	w.logf("fault: %s", fault)
}

// logf notes something for the trace.
func (w *world) logf(format string, args ...any) {
	line := fmt.Sprintf("%s %s", time.Now().Format("02 15:04:05.000000000"), fmt.Sprintf(format, args...))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, line)
}

// failf notes that something is wrong. The world ends soon after.
func (w *world) failf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.logf("%s%s", wrongMark, text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, text)
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wrong) > 0
}
