package simulation

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"semel/storage"
)

// kind is what a transaction did to a job, an event on its way or a sink.
type kind string

const (
	enqueue     kind = "enqueue"
	claimed     kind = "claim"
	renew       kind = "renew"
	complete    kind = "complete"
	retry       kind = "retry"
	fail        kind = "fail"
	release     kind = "release"
	rescue      kind = "rescue"
	promote     kind = "promote"
	take        kind = "take"        // events, to be sent
	acknowledge kind = "acknowledge" // events that have arrived
	putOff      kind = "put off"     // events whose delivery has failed
	giveUp      kind = "give up"     // events whose last delivery has failed
	giveBack    kind = "give back"   // events that were taken and not sent
	salvage     kind = "salvage"     // events that were under way when their process died
	requeue     kind = "requeue"     // events, by a person
	halt        kind = "halt"        // a sink that wants no more
	resume      kind = "resume"      // a sink that had stopped
	register    kind = "register"    // a source, on the first start
	forget      kind = "forget"      // that a host wanted to be left alone, when that is over
	stale       kind = "stale"       // counts an outcome that came too late, and writes nothing of it
)

// kinds are all, in the order of a job's life.
var kinds = []kind{register, enqueue, claimed, renew, complete, retry, fail, release, rescue, promote, stale, forget,
	take, acknowledge, putOff, giveUp, giveBack, salvage, requeue, halt, resume}

var outcomeKinds = map[string]kind{
	storage.OutcomeComplete: complete, storage.OutcomeRetry: retry, storage.OutcomeFail: fail,
	storage.OutcomeReleased: release, storage.OutcomeRescued: rescue,
}

// state is all of a store that may be told from outside.
type state struct {
	jobs         map[uint64]*storage.Job
	attempts     map[uint64][]storage.Attempt
	observations map[string]*storage.Observation         // by source and record key
	outbox       map[uint64]*storage.Event               // by number
	dispatches   map[string]map[uint64]*storage.Dispatch // by sink and event
	sinks        map[string]*storage.Sink
	quarantine   map[uint64]*storage.Quarantine // by job
	sources      int
	pages        int   // counted for drift
	stale        int64 // outcomes that came too late
}

// readState reads a store.
func readState(s *storage.Store) (*state, error) {
	st := &state{
		jobs: map[uint64]*storage.Job{}, attempts: map[uint64][]storage.Attempt{},
		observations: map[string]*storage.Observation{}, outbox: map[uint64]*storage.Event{},
		dispatches: map[string]map[uint64]*storage.Dispatch{}, sinks: map[string]*storage.Sink{}, quarantine: map[uint64]*storage.Quarantine{},
	}
	err := s.View(func(tx *storage.Tx) error {
		sources, err := tx.Sources()
		if err != nil {
			return err
		}
		st.sources = len(sources)
		if _, err := tx.Jobs(0, 1<<30, func(j *storage.Job) bool { st.jobs[j.ID] = j; return true }); err != nil {
			return err
		}
		if _, err := tx.Quarantined(0, 1<<30, func(q *storage.Quarantine) bool { st.quarantine[q.Job] = q; return true }); err != nil {
			return err
		}
		for id := range st.jobs {
			if st.attempts[id], err = tx.Attempts(id); err != nil {
				return err
			}
		}
		for _, source := range sources {
			st.stale += tx.Counters(source.Name)[storage.MetricStaleCommits]
			if err := st.readObservations(tx, source.Name); err != nil {
				return err
			}
			if err := st.readDrift(tx, source); err != nil {
				return err
			}
		}
		return st.readOutbox(tx)
	})
	return st, err
}

func (st *state) readObservations(tx *storage.Tx, source string) error {
	_, err := tx.Observations(source, nil, 1<<30, func(o *storage.Observation) error {
		st.observations[o.Key.String()] = o
		return nil
	})
	return err
}

// readDrift adds how many pages of a source are counted: each of them tells of the page
// as a whole.
func (st *state) readDrift(tx *storage.Tx, source storage.Source) error {
	return tx.Drifts(source.Name, source.Version, func(d *storage.Drift) bool {
		st.pages += int(d.Fields[0].Past.Pages) + len(d.Pages)
		return true
	})
}

// export is what `semel export --data-only` gives of all sources.
func (st *state) export() string {
	var b []byte
	for _, key := range slices.Sorted(maps.Keys(st.observations)) {
		b = st.observations[key].AppendLine(fmt.Appendf(b, "%s ", key), true)
	}
	return string(b)
}

// verdicts are what became of the jobs, by key.
func (st *state) verdicts() map[string]string {
	verdicts := map[string]string{}
	for _, j := range st.jobs {
		verdicts[j.Key.String()] = fmt.Sprintf("%s %s", j.State, j.Category)
	}
	return verdicts
}

// open counts the jobs with work ahead and the events that have still to arrive
// at a sink.
func (st *state) open() (jobs, events int) {
	for _, j := range st.jobs {
		if !j.State.Terminal() {
			jobs++
		}
	}
	for _, sink := range sinkNames {
		events += len(st.events(sink, storage.DispatchPending, storage.DispatchDead))
	}
	return jobs, events
}

// ledger is what is durable in a world, as its disk has seen it. The store
// never knows of it.
type ledger struct {
	w *world

	mu        sync.Mutex
	now       *state
	byURL     map[string]uint64
	stillborn map[claim]bool            // see change
	events    map[string]*storage.Event // all that ever were, by id
	requeued  map[parcelOf]int
}

func newLedger(w *world) *ledger {
	return &ledger{
		w: w, now: &state{}, byURL: map[string]uint64{},
		stillborn: map[claim]bool{}, events: map[string]*storage.Event{}, requeued: map[parcelOf]int{},
	}
}

// find gives the durable job of a URL.
func (l *ledger) find(url string) (*storage.Job, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.now.jobs[l.byURL[url]]
	return j, j != nil
}

// claim gives the claim under which a URL may be asked for now, and whether
// there is one. Who got a claim that was taken back at once may ask, too: it
// cannot know.
func (l *ledger) claim(url string) (claim, bool) {
	j, known := l.find(url)
	if !known {
		return claim{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := claim{j.ID, j.Generation}
	return c, j.State == storage.StateRunning || l.stillborn[c]
}

// state is the present one. It is not changed any more.
func (l *ledger) state() *state {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// knows reports whether an event is durable.
func (l *ledger) knows(e *storage.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return reflect.DeepEqual(l.events[e.ID], e)
}

// enter makes a state the present one.
func (l *ledger) enter(next *state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enterOutbox(next)
	l.now = next
	for id, j := range next.jobs {
		l.byURL[j.URL] = id
	}
}

// reopened compares what a new life finds with what should be there.
func (l *ledger) reopened(found *state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.now.jobs) > 0 && !reflect.DeepEqual(l.now, found) {
		l.w.failf("the store that was opened again is not what was durable:\n%s", difference(l.now, found))
	}
}

func difference(want, got *state) string {
	var b strings.Builder
	for id := range want.jobs {
		if !reflect.DeepEqual(want.jobs[id], got.jobs[id]) {
			fmt.Fprintf(&b, "job %d: want %+v\ngot %+v\n", id, want.jobs[id], got.jobs[id])
		}
	}
	if b.Len() == 0 {
		return "observations, events or attempts differ"
	}
	return b.String()
}

// explain tells what moves lead from the present state to the next, and fails
// the world where none can.
func (l *ledger) explain(next *state) []kind {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &change{w: l.w, old: l.now, next: next}
	for _, id := range slices.Sorted(maps.Keys(next.jobs)) {
		c.job(id)
	}
	for id := range l.now.jobs {
		if next.jobs[id] == nil {
			c.wrong("job %d is gone", id)
		}
	}
	c.observations()
	c.pages()
	for _, sink := range sinkNames {
		c.outbox(sink)
	}
	if next.sources > l.now.sources {
		c.move(register, "%d sources", next.sources)
	}
	if n := next.stale - l.now.stale; n > 0 {
		c.move(stale, "%d outcomes", n)
	}
	if len(c.kinds) == 0 { // the store does not show what it remembers of hosts
		c.move(forget, "a host's wish")
	}
	for _, claim := range c.stillborn {
		l.stillborn[claim] = true
	}
	l.w.logf("commit %s", strings.Join(c.told, ", "))
	return c.kinds
}

// change is what one transaction did.
type change struct {
	w         *world
	old, next *state
	kinds     []kind
	told      []string
	completed []*storage.Job
	failed    []*storage.Job
	written   []fact
	stillborn []claim // whose lease was taken back in the transaction that gave it
}

// fact is one revision of an observation.
type fact struct {
	*storage.Observation
	first bool
}

func (c *change) wrong(format string, args ...any) { c.w.failf(format, args...) }

func (c *change) move(k kind, format string, args ...any) {
	if !slices.Contains(c.kinds, k) {
		c.kinds = append(c.kinds, k)
	}
	c.told = append(c.told, string(k)+" "+fmt.Sprintf(format, args...))
}

// job follows one job from state to state.
func (c *change) job(id uint64) {
	old, next := c.old.jobs[id], c.next.jobs[id]
	ended := c.next.attempts[id][len(c.old.attempts[id]):]
	if old == nil {
		c.move(enqueue, "%s", name(next))
		old = &storage.Job{ID: id, State: storage.StatePending}
	}
	p := &path{c, next, old.State, old.Generation, old.NextAt}
	for _, a := range ended {
		if a.Generation == p.generation+1 {
			p.claim()
			c.stillborn = append(c.stillborn, claim{id, p.generation})
		}
		p.end(a)
	}
	switch {
	case next.Generation == p.generation+1:
		p.claim()
	case next.State == storage.StatePending:
		p.promote()
	case p.at == storage.StateRunning && !next.LeaseUntil.Equal(old.LeaseUntil):
		c.move(renew, "%s#%d", name(next), p.generation)
	}
	if p.at != next.State || p.generation != next.Generation {
		c.wrong("%s: it was %s in generation %d and is %s in %d", name(next), old.State, old.Generation, next.State, next.Generation)
	}
	c.counts(old, next, ended)
}

// path is a job on its way through one transaction.
type path struct {
	c          *change
	job        *storage.Job // as it is afterwards
	at         storage.JobState
	generation uint32
	due        time.Time // where it waits
}

// promote ends the wait: by some time that the clock has shown, it is over.
func (p *path) promote() {
	if p.at != storage.StateRetryable {
		return
	}
	p.c.move(promote, "%s", name(p.job))
	p.at = storage.StatePending
	if p.due.After(p.c.w.clock.latest()) {
		p.c.wrong("%s waits until %s and was promoted before", name(p.job), p.due)
	}
}

func (p *path) claim() {
	if p.promote(); p.at == storage.StatePending {
		p.generation++
		p.c.move(claimed, "%s#%d", name(p.job), p.generation)
		p.at = storage.StateRunning
	}
}

func (p *path) end(a storage.Attempt) {
	if p.at != storage.StateRunning || a.Generation != p.generation {
		p.c.wrong("%s: attempt %d ended %s, the job was %s in generation %d", name(p.job), a.Generation, a.Outcome, p.at, p.generation)
	}
	p.at, p.due = p.c.outcome(p.job, a), a.NextAt
}

// outcome checks one ended attempt against what the site had said to it, and
// gives the state that it leaves its job in.
func (c *change) outcome(j *storage.Job, a storage.Attempt) storage.JobState {
	c.move(outcomeKinds[a.Outcome], "%s#%d", name(j), a.Generation)
	said := c.w.site.said(claim{j.ID, a.Generation})
	wants := func(answers ...answer) {
		if !slices.Contains(answers, said) {
			c.wrong("%s: attempt %d ended %s, the site had said %q to it", name(j), a.Generation, a.Outcome, said)
		}
	}
	switch a.Outcome {
	case storage.OutcomeComplete:
		wants(itsPage)
		c.completed = append(c.completed, j)
		return storage.StateComplete
	case storage.OutcomeFail: // the target's own fault; a status is seen also when it comes late
		wants(itsPage, itLate)
		if unfit, aside := a.Category == storage.CategoryValidation, c.next.quarantine[j.ID] != nil; unfit != aside {
			c.wrong("%s: it failed as %s, and is in quarantine: %t", name(j), a.Category, aside)
		}
		c.failed = append(c.failed, j)
		return storage.StateFailed
	case storage.OutcomeRetry:
		wants(notItself, itLate)
		return storage.StateRetryable
	}
	return storage.StatePending
}

// counts wants only attempts to count that should: no stop, no crash and no
// account burns one. What is terminal is not touched at all.
func (c *change) counts(old, next *storage.Job, ended []storage.Attempt) {
	burnt := 0
	for _, a := range ended {
		if a.Outcome != storage.OutcomeReleased && a.Outcome != storage.OutcomeRescued {
			burnt++
		}
	}
	if next.Attempts != old.Attempts+uint32(burnt) {
		c.wrong("%s: %d attempts counted, then %d", name(next), old.Attempts, next.Attempts)
	}
	if old.State.Terminal() && !reflect.DeepEqual(old, next) {
		c.wrong("%s was %s and has changed", name(next), old.State)
	}
}

// observations wants each to have changed only with the job that it names,
// never to vanish, and content only under a new revision.
func (c *change) observations() {
	for key, old := range c.old.observations {
		if c.next.observations[key] == nil {
			c.wrong("observation %s is gone: %+v", key, old)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.next.observations)) {
		old, next := c.old.observations[key], c.next.observations[key]
		if reflect.DeepEqual(old, next) {
			continue
		}
		byJob := func(j *storage.Job) bool { return j.Key.String() == next.Job }
		if !slices.ContainsFunc(c.completed, byJob) {
			c.wrong("observation %s changed without job %s", key, next.Job)
		}
		was := 0
		if old != nil {
			was = old.Revision
		}
		if next.Revision < was || next.Revision == was && !bytes.Equal(old.Data, next.Data) {
			c.wrong("observation %s went from revision %d to %d: %s", key, was, next.Revision, next.Data)
		}
		for ; was < next.Revision; was++ {
			c.written = append(c.written, fact{next, was == 0})
		}
	}
	for _, j := range c.completed {
		key := storage.JobKey{Source: j.Key.Source, Target: j.Key.Target}.String()
		if c.next.observations[key] == nil {
			c.wrong("%s is complete without an observation", name(j))
		}
	}
}

// pages wants those to be counted for drift, and no others, that rules have read in this
// transaction.
func (c *change) pages() {
	read := len(c.completed)
	for _, j := range c.failed {
		if c.next.quarantine[j.ID] != nil {
			read++
		}
	}
	if counted := c.next.pages - c.old.pages; counted != read {
		c.wrong("%d pages were read, %d are counted", read, counted)
	}
}

// wanted are the events that a sink is to get of this transaction.
func (c *change) wanted(sink string) []string {
	var list []string
	want := func(event, source, key string) {
		if c.w.catalog.wants(source, sink, event) {
			list = append(list, event+" "+key)
		}
	}
	for _, f := range c.written {
		event := storage.EventUpdated
		if f.first {
			event = storage.EventCreated
		}
		want(event, f.Key.Source, f.Key.String())
	}
	for _, j := range c.completed {
		want(storage.EventJobComplete, j.Key.Source, j.Key.String())
	}
	for _, j := range c.failed {
		want(storage.EventJobFailed, j.Key.Source, j.Key.String())
		if c.next.quarantine[j.ID] != nil {
			want(storage.EventQuarantined, j.Key.Source, j.Key.String())
		}
	}
	slices.Sort(list)
	return list
}

// name is a job's for the trace.
func name(j *storage.Job) string {
	text := j.Key.Source + "/" + j.Key.Target
	if !j.Window.IsZero() {
		text += fmt.Sprintf("@%d", j.Window.Day())
	}
	return text
}
