package storage

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// RunKey is what makes a run this run. A window's run is that of its source and
// window, whatever offered the window; a run without a window is an import's.
type RunKey struct {
	Source string
	Window time.Time // start, UTC, whole seconds; zero: none
	Import string    // name of what was imported, where there is no window
}

// String is the key as people and other systems see it: source:window:import,
// each part escaped as in a job's key, "-" where absent.
func (k RunKey) String() string {
	window := ""
	if !k.Window.IsZero() {
		window = k.Window.UTC().Format(time.RFC3339)
	}
	b := appendPart(make([]byte, 0, 64), k.Source)
	b = appendPart(append(b, ':'), window)
	return string(appendPart(append(b, ':'), k.Import))
}

// ParseRunKey reads the text that RunKey.String makes.
func ParseRunKey(text string) (RunKey, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return RunKey{}, fmt.Errorf("run key %q: want 3 parts between colons, got %d", text, len(parts))
	}
	for i, part := range parts {
		plain, err := unescapePart(part)
		if err != nil {
			return RunKey{}, fmt.Errorf("run key %q: %w", text, err)
		}
		parts[i] = plain
	}
	key := RunKey{Source: parts[0], Import: parts[2]}
	if parts[1] != "" {
		window, err := time.Parse(time.RFC3339, parts[1])
		if err != nil {
			return RunKey{}, fmt.Errorf("run key %q: window: %w", text, err)
		}
		key.Window = window.UTC()
	}
	return key, nil
}

// RunKind is what first asked for a run.
type RunKind string

// What asks for runs.
const (
	RunTick     RunKind = "tick"     // the schedule
	RunBackfill RunKind = "backfill" // backfill, for windows of the schedule that are past
	RunWindow   RunKind = "window"   // run --window
	RunImport   RunKind = "import"
	RunSingle   RunKind = "single" // a job by itself, such as a submitted one
)

// RunKinds are all kinds.
var RunKinds = []RunKind{RunTick, RunBackfill, RunWindow, RunImport, RunSingle}

// Run is the jobs of one window of a source, or of one import without a window.
// Its counts move in the transactions that move its jobs.
type Run struct {
	ID      uint64 // counted up by the store from 1
	Key     RunKey
	Kind    RunKind // what asked for it first
	Created time.Time

	Jobs   uint64 // that it has now: those that retention has forgotten are left out
	Open   uint64 // of these with work ahead
	Failed uint64 // of these

	// Its targets are offered to it as a whole, if they are: by a tick, a
	// backfill, run --window or an import.
	Listing bool              // that is under way, or an import of it was cut short: jobs may still be made of them
	Offered bool              // that has come to its end, at least once
	Targets uint64            // in the list that was read for it
	Sum     [sha256.Size]byte // of that list; zero: it has not been read whole
	List    uint64            // under which it is kept; 0: it is not, or no longer
	Made    uint64            // chunks of it that have become jobs

	Finished time.Time // when all was offered and no job had work ahead for the first time; zero: not yet

	// What its jobs have staged (WriteReplace) and is not promoted by itself
	// waits for ReleaseRun or DiscardRun, while no job has work ahead.
	Held      string    // why, for people; "": nothing waits
	HeldSince time.Time // zero: nothing waits
	Discarded time.Time // when a person dropped what was staged; zero: not since a job of it last had work ahead
	Replaced  time.Time // when the rows of its window were last replaced; zero: never
	Revision  uint64    // how often that has changed something; 1 where an older version had replaced them
	Told      []uint64  // hashes of the rows they have changed to; see tell
}

// Complete is how many of the run's jobs are complete.
func (r *Run) Complete() uint64 { return r.Jobs - r.Open - r.Failed }

const runVersion = 3 // 2 is sealed, 3 has Revision and Told

func (r *Run) encode() []byte {
	e := newEncoder(runVersion, 96)
	e.time(r.Created)
	for _, n := range []uint64{r.Jobs, r.Open, r.Failed} {
		e.u64(n)
	}
	e.text(string(r.Kind))
	e.text(r.Key.Source)
	e.time(r.Key.Window)
	e.text(r.Key.Import)
	e.flag(r.Listing)
	e.flag(r.Offered)
	for _, n := range []uint64{r.Targets, r.List, r.Made} {
		e.u64(n)
	}
	e.bytes(r.Sum[:])
	e.text(r.Held)
	for _, t := range []time.Time{r.Finished, r.HeldSince, r.Discarded, r.Replaced} {
		e.time(t)
	}
	e.u64(r.Revision)
	e.u32(uint32(len(r.Told)))
	for _, sum := range r.Told {
		e.u64(sum)
	}
	return e.sealed()
}

func decodeRun(id uint64, b []byte) (*Run, error) {
	d := newDecoder(runVersion, b)
	r := &Run{ID: id, Created: d.time()}
	for _, n := range []*uint64{&r.Jobs, &r.Open, &r.Failed} {
		*n = d.u64()
	}
	r.Kind = RunKind(d.text())
	r.Key = RunKey{Source: d.text(), Window: d.time(), Import: d.text()}
	r.Listing, r.Offered = d.flag(), d.flag()
	for _, n := range []*uint64{&r.Targets, &r.List, &r.Made} {
		*n = d.u64()
	}
	copy(r.Sum[:], d.raw())
	r.Held = d.text()
	for _, t := range []*time.Time{&r.Finished, &r.HeldSince, &r.Discarded, &r.Replaced} {
		*t = d.time()
	}
	switch {
	case d.version >= 3:
		r.Revision = d.u64()
		for n := d.u32(); n > 0 && d.err == nil; n-- {
			r.Told = append(r.Told, d.u64())
		}
	case !r.Replaced.IsZero():
		r.Revision = 1
	}
	if err := d.done(); err != nil {
		return nil, &RecordError{bucketNames[bucketRun], idKey(id), err}
	}
	return r, nil
}

// Run reads a run. Error: ErrNotFound.
func (tx *Tx) Run(id uint64) (*Run, error) {
	if r, changed := tx.runs[id]; changed {
		return &r, nil
	}
	v := tx.get(bucketRun, idKey(id))
	if v == nil {
		return nil, fmt.Errorf("run %d: %w", id, ErrNotFound)
	}
	return decodeRun(id, v)
}

// RunByKey reads the run of a key. Error: ErrNotFound.
func (tx *Tx) RunByKey(key RunKey) (*Run, error) {
	text := []byte(key.String())
	v := tx.get(bucketRunKey, text)
	if v == nil {
		return nil, fmt.Errorf("run %s: %w", text, ErrNotFound)
	}
	r, err := tx.Run(tailID(v))
	if isNotFound(err) { // damage: as "not found" it would be made a second time
		return nil, &RecordError{bucketNames[bucketRunKey], text, fmt.Errorf("it leads to run %d, which is missing", tailID(v))}
	}
	return r, err
}

// Runs calls fn with all runs of ids under before (0: all), newest first, until
// fn returns false.
func (tx *Tx) Runs(before uint64, fn func(*Run) bool) error {
	c := tx.bucket(bucketRun).Cursor()
	k, v := c.Last()
	if before > 0 {
		c.Seek(idKey(before))
		k, v = c.Prev()
	}
	for ; k != nil; k, v = c.Prev() {
		r, err := decodeRun(tailID(k), v)
		if changed, ok := tx.runs[tailID(k)]; ok {
			r, err = &changed, nil
		}
		if err != nil {
			return err
		}
		if !fn(r) {
			return nil
		}
	}
	return nil
}

// OpenRun finds the run of a key, or makes it.
func (tx *Tx) OpenRun(key RunKey, kind RunKind) (*Run, error) {
	found, err := tx.RunByKey(key)
	if !isNotFound(err) {
		return found, err
	}
	r := &Run{ID: tx.nextID(runSequence), Key: key, Kind: kind, Created: tx.Now}
	if err := tx.insert(bucketRunKey, []byte(key.String()), idKey(r.ID)); err != nil {
		return nil, err
	}
	return r, tx.insert(bucketRun, idKey(r.ID), r.encode())
}

// saveRun changes a run; it is written when the group commits, since most of its
// jobs move it. One with work ahead waits for no person.
func (tx *Tx) saveRun(r *Run) {
	if r.Open > 0 || r.Listing {
		r.Held, r.HeldSince, r.Discarded = "", noTime, noTime
	}
	if tx.runs == nil {
		tx.runs, tx.runsBefore = map[uint64]Run{}, map[uint64]Run{}
	}
	if _, again := tx.runsBefore[r.ID]; !again {
		tx.runsBefore[r.ID] = tx.runs[r.ID]
	}
	tx.runs[r.ID] = *r
}

// undoRuns takes back what a failed step changed of runs.
func (tx *Tx) undoRuns() {
	for id, was := range tx.runsBefore {
		if was.ID == 0 {
			delete(tx.runs, id)
		} else {
			tx.runs[id] = was
		}
	}
	clear(tx.runsBefore)
}

func (tx *Tx) flushRuns() error {
	for id, r := range tx.runs {
		if err := tx.put(bucketRun, idKey(id), r.encode()); err != nil {
			return err
		}
	}
	return nil
}

// BeginListing notes that targets are offered to a run from now on: until
// EndListing it is not over, even where no job of it has work ahead.
func (tx *Tx) BeginListing(r *Run) {
	r.Listing = true
	tx.saveRun(r)
}

// EndListing notes that all targets were offered. Listing stays while a list or an
// import still offers others. sinks are those of the run's source.
func (tx *Tx) EndListing(r *Run, sinks []Subscription) error {
	imports, err := tx.OpenImports(r)
	if err != nil {
		return err
	}
	r.Listing, r.Offered = r.List != 0 || len(imports) > 0, true
	tx.saveRun(r)
	return tx.settleRun(r.ID, sinks)
}

// RunJobs calls fn with the jobs of a run whose keys name its window, in the order of
// their keys.
func (tx *Tx) RunJobs(r *Run, fn func(*Job) error) error {
	source, _, _ := strings.Cut(JobKey{Source: r.Key.Source}.String(), ":")
	prefix := keyIndex(r.Key.Window, source+":")
	c := tx.bucket(bucketKey).Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		j, err := tx.Job(tailID(v))
		if err != nil {
			return err
		}
		if j.Run != r.ID {
			continue
		}
		if err := fn(j); err != nil {
			return err
		}
	}
	return nil
}

// settleRun promotes or holds what the jobs of a run without work ahead have
// staged, and ends it if it was offered all its targets; any other it leaves as it
// is. Jobs that a person sends back later do not begin it anew.
func (tx *Tx) settleRun(id uint64, sinks []Subscription) error {
	if id == 0 {
		return nil
	}
	r, err := tx.Run(id)
	if err != nil || r.Listing || r.Open > 0 {
		return err
	}
	if err := tx.settleRows(r, sinks); err != nil || !r.Offered || !r.Finished.IsZero() {
		return err
	}
	r.Finished = tx.Now
	tx.saveRun(r)
	return tx.emitRun(EventRunFinished, r, sinks)
}

func (tx *Tx) emitRun(event string, r *Run, sinks []Subscription) error {
	if !anyWants(sinks, event) {
		return nil
	}
	key := r.Key.String()
	return tx.emit(sinks, Event{ID: eventID(event, key), Type: event, Key: key, Data: r.appendEvent(make([]byte, 0, 192), key)})
}

// appendEvent appends what a run's event says of it, as a JSON object.
func (r *Run) appendEvent(b []byte, key string) []byte {
	b = append(b, `{"run":`...)
	b = appendJSON(b, key)
	b = append(b, `,"source":`...)
	b = appendJSON(b, r.Key.Source)
	b = append(b, `,"window":`...)
	b = appendWindow(b, r.Key.Window)
	b = append(b, `,"kind":`...)
	b = appendJSON(b, string(r.Kind))
	for _, count := range [...]struct {
		name string
		n    uint64
	}{{"jobs", r.Jobs}, {"complete", r.Complete()}, {"failed", r.Failed}} {
		b = append(b, ',', '"')
		b = append(b, count.name...)
		b = append(b, '"', ':')
		b = strconv.AppendUint(b, count.n, 10)
	}
	return append(b, '}')
}

// runOf is the run that a new job belongs to; 0: none.
func (tx *Tx) runOf(n NewJob) (uint64, error) {
	if n.Run != 0 || n.Window.IsZero() {
		return n.Run, nil
	}
	r, err := tx.OpenRun(RunKey{Source: n.Key.Source, Window: n.Window}, RunSingle)
	if err != nil {
		return 0, err
	}
	return r.ID, nil
}

// countInRun adds a job to its run (n 1) or takes it out (-1).
func (tx *Tx) countInRun(j *Job, n int) error {
	return tx.changeRun(j, func(r *Run) {
		r.Jobs += uint64(n)
		r.countAs(j.State, n)
	})
}

// moveInRun notes that a job has left a state.
func (tx *Tx) moveInRun(j *Job, was JobState) error {
	if was == j.State || !was.Terminal() && !j.State.Terminal() {
		return nil
	}
	return tx.changeRun(j, func(r *Run) {
		r.countAs(was, -1)
		r.countAs(j.State, 1)
	})
}

func (tx *Tx) changeRun(j *Job, change func(*Run)) error {
	if j.Run == 0 {
		return nil
	}
	r, err := tx.Run(j.Run)
	if err != nil {
		return fmt.Errorf("job %s: %w", j.Key, err)
	}
	change(r)
	tx.saveRun(r)
	return nil
}

// countAs adds n jobs of a state.
func (r *Run) countAs(state JobState, n int) {
	switch {
	case !state.Terminal():
		r.Open += uint64(n)
	case state == StateFailed:
		r.Failed += uint64(n)
	}
}
