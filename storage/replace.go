package storage

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Under write mode replace the rows of a window change together. What a job
// brings is staged until the run of its window has no work ahead; then all that
// is staged takes, in one step, the place of what the same jobs brought before.
// A run whose jobs a person sends back works as a new round of the same kind.
// Bucket live says whose each row is, so that the step knows which rows go, and of
// which attempt what stands of a job is.
//
// A run takes that step by itself where the window is whole after it: all its targets
// were offered, each has rows, staged or standing, and no row goes that what stands of a
// page may give. Where the window was read again as a whole (Completion.Whole), one
// version of the rules must have read all of it, too. Whether that
// is so is told from what the buckets hold whenever the run has no work ahead, and never
// from how it came to be: no offer, release or retry can promote what an earlier look
// held. Where it is not so, or the window would lose more than half of its rows, a person
// decides (ReleaseRun, DiscardRun).
//
// The step is one transaction: while it writes, other writers wait. See doc.go
// for what it takes.

// brought is what a job says of its rows in bucket staged or live, at its own place.
type brought struct {
	Rows       uint32 // of its page, also those that stand as another job's
	Generation uint32 // of the attempt that completed the job with them; 0: nobody knows (an older schema staged them)
	Version    int    // of the rules that read the page
	Counted    bool   // its duplicates and what was unchanged are in the counters
	Whole      bool   // it is staged as a part of its whole window, see Completion
}

const broughtVersion = 2 // as all records that are sealed

func (b *brought) encode() []byte {
	e := newEncoder(broughtVersion, 19)
	e.u32(b.Rows)
	e.u32(b.Generation)
	e.u32(uint32(b.Version))
	e.flag(b.Counted)
	e.flag(b.Whole)
	return e.sealed()
}

// readBrought reads what stands at a job's own place.
func readBrought(id bucket, j *Job, v []byte) (b brought, err error) {
	if isOldBrought(id, v) {
		return oldBrought(j, v), nil
	}
	d := newDecoder(broughtVersion, v)
	b = brought{Rows: d.u32(), Generation: d.u32(), Version: int(d.u32()), Counted: d.flag(), Whole: d.flag()}
	if err := d.done(); err != nil {
		return b, &RecordError{bucketNames[id], rowKey(j.Run, j.ID, nil), err}
	}
	return b, nil
}

// isOldBrought reports whether an older schema wrote it: the number of rows in bucket
// staged, and nothing in live.
func isOldBrought(id bucket, v []byte) bool {
	return id == bucketStaged && len(v) == 4 || id == bucketLive && len(v) == 0
}

// oldBrought takes it to be of what last completed the job.
func oldBrought(j *Job, v []byte) brought {
	b := brought{Version: j.Version}
	if len(v) > 0 {
		b.Rows = binary.BigEndian.Uint32(v)
	}
	if j.State == StateComplete {
		b.Generation = j.Generation
	}
	return b
}

// brings is what a completion brings for a job that is now complete.
func (c *Completion) brings(j *Job) *brought {
	return &brought{Rows: uint32(len(c.Records)), Generation: j.Generation, Version: c.Attempt.ParserVersion, Counted: c.counted, Whole: c.Whole}
}

// stage sets a job's rows aside, in the place of those it staged before.
func (tx *Tx) stage(j *Job, rows []*Observation, c *Completion) error {
	if err := tx.changeRun(j, func(r *Run) { r.Discarded = noTime }); err != nil { // that was of what was staged before
		return err
	}
	b, job := c.brings(j), rowKey(j.Run, j.ID, nil)
	if v := tx.get(bucketStaged, job); v != nil {
		before, err := readBrought(bucketStaged, j, v)
		if err != nil {
			return err
		}
		b.Counted = b.Counted && before.Counted // what was staged is counted once it stands
	}
	if err := tx.clear(bucketStaged, job); err != nil {
		return err
	}
	places := map[string]bool{}
	for _, o := range rows {
		place := observationKey(o.Key)
		places[string(place)] = true
		if err := tx.put(bucketStaged, rowKey(j.Run, j.ID, place), o.encode()); err != nil {
			return err
		}
	}
	b.Rows = uint32(len(places))
	return tx.insert(bucketStaged, job, b.encode())
}

// Staged reports whether what a job has brought waits for the rest of its run.
func (tx *Tx) Staged(j *Job) bool { return tx.get(bucketStaged, rowKey(j.Run, j.ID, nil)) != nil }

// Stands reports whether what a complete job of a WriteReplace source brought
// last stands among the observations: until it is promoted, and once a person has
// discarded it, it does not.
func (tx *Tx) Stands(j *Job) (bool, error) {
	if j.Run == 0 || j.Key.Window.IsZero() {
		return true, nil
	}
	v := tx.get(bucketLive, rowKey(j.Run, j.ID, nil))
	if v == nil || tx.Staged(j) {
		return false, nil
	}
	b, err := readBrought(bucketLive, j, v)
	return b.Generation == j.Generation, err
}

// hasRows reports whether a job is the owner of rows in bucket live.
func (tx *Tx) hasRows(j *Job) bool {
	job := rowKey(j.Run, j.ID, nil)
	c := tx.bucket(bucketLive).Cursor()
	k, _ := c.Seek(job)
	if bytes.Equal(k, job) {
		k, _ = c.Next()
	}
	return bytes.HasPrefix(k, job)
}

// OwnRows are the rows of a window that are a job's: none where their keys have no
// window.
func (tx *Tx) OwnRows(j *Job) (rows []*Observation, err error) {
	job := rowKey(j.Run, j.ID, nil)
	c := tx.bucket(bucketLive).Cursor()
	for k, _ := c.Seek(job); bytes.HasPrefix(k, job); k, _ = c.Next() {
		if bytes.Equal(k, job) {
			continue
		}
		_, place := readRowKey(k)
		o, err := decodeObservation(place, tx.get(bucketObservation, place))
		if err != nil {
			return nil, err
		}
		rows = append(rows, o)
	}
	return rows, nil
}

// clear deletes all keys of a bucket that begin with prefix.
func (tx *Tx) clear(id bucket, prefix []byte) error {
	var keys [][]byte
	c := tx.bucket(id).Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		if err := tx.remove(id, k); err != nil {
			return err
		}
	}
	return nil
}

// own notes that a row is j's from now on, and no longer that of the job whose
// key is was; "": it was nobody's. Rows without a window in their key have no
// owner.
func (tx *Tx) own(j *Job, o *Observation, was string) error {
	if o.Key.Window.IsZero() || was == o.Job {
		return nil
	}
	place := observationKey(o.Key)
	if was != "" {
		before, err := tx.jobByText(was)
		if err != nil {
			return fmt.Errorf("observation %s: its job: %w", o.Key, err)
		}
		if err := tx.remove(bucketLive, rowKey(before.Run, before.ID, place)); err != nil {
			return err
		}
	}
	return tx.insert(bucketLive, rowKey(j.Run, j.ID, place), nil)
}

// replacement is how the rows of a window change when what its jobs have staged
// takes its place. before and after hold an entry for each row.
type replacement struct {
	run     *Run
	jobs    map[uint64]string  // that have staged: their keys
	brought map[uint64]brought // by job: what it has staged, or else what stands of it
	version int                // of the rules: the highest that has read what is staged
	whole   bool               // some of that was read again with the whole window
	before  map[string]uint64  // by place in bucket obs: whose row stands there
	after   map[string]uint64  // whose will
	fresh   int                // rows staged that are not counted yet
	hidden  map[uint64]int     // by job that has not staged: rows that it gave and that stand as another's
}

// replacement reads what a run has staged and what stands. Of two rows under one
// key that of the smaller job key stays, whichever was committed first.
func (tx *Tx) replacement(r *Run) (*replacement, error) {
	p := &replacement{
		run: r, jobs: map[uint64]string{}, brought: map[uint64]brought{},
		before: map[string]uint64{}, after: map[string]uint64{}, hidden: map[uint64]int{},
	}
	if err := tx.eachOwned(bucketStaged, r, func(job uint64, place, v []byte) error { return p.staged(tx, job, place, v) }); err != nil {
		return nil, err
	}
	return p, tx.eachOwned(bucketLive, r, func(job uint64, place, v []byte) error { return p.live(tx, job, place, v) })
}

// staged takes an entry of bucket staged.
func (p *replacement) staged(tx *Tx, job uint64, place, v []byte) error {
	if len(place) > 0 {
		if !p.brought[job].Counted {
			p.fresh++
		}
		return p.take(tx, job, place)
	}
	j, err := tx.Job(job)
	if err != nil {
		return err
	}
	b, err := readBrought(bucketStaged, j, v)
	p.jobs[job], p.brought[job] = j.Key.String(), b
	p.version, p.whole = max(p.version, b.Version), p.whole || b.Whole
	return err
}

// live takes an entry of bucket live, once all of staged are taken.
func (p *replacement) live(tx *Tx, job uint64, place, v []byte) error {
	_, again := p.jobs[job]
	switch {
	case len(place) > 0:
		if p.before[string(place)] = job; again {
			return nil
		}
		p.hidden[job]--
		return p.take(tx, job, place)
	case again:
		return nil
	}
	j, err := tx.Job(job)
	if err != nil {
		return err
	}
	b, err := readBrought(bucketLive, j, v)
	p.brought[job], p.hidden[job] = b, int(b.Rows)
	return err
}

// unsure counts the jobs that may give a row which goes: what of theirs stood as
// another's row is not kept, so only their pages could tell.
func (p *replacement) unsure() (jobs int) {
	goes := func(place string) bool { _, stays := p.after[place]; return !stays }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(p.before)), goes) {
		return 0
	}
	for _, rows := range p.hidden {
		if rows > 0 {
			jobs++
		}
	}
	return jobs
}

// take gives a place to a job, unless it is that of one with a smaller key.
func (p *replacement) take(tx *Tx, job uint64, place []byte) error {
	if holder, taken := p.after[string(place)]; taken {
		mine, err := tx.Job(job)
		if err != nil || p.jobs[holder] < mine.Key.String() {
			return err
		}
	}
	p.after[string(place)] = job
	return nil
}

// eachOwned calls fn with the entries of a run in bucket staged or live. place is
// empty in that of a job itself, which comes before those of its rows.
func (tx *Tx) eachOwned(id bucket, r *Run, fn func(job uint64, place, v []byte) error) error {
	prefix := idKey(r.ID)
	c := tx.bucket(id).Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		if len(k) < 16 {
			return &RecordError{bucketNames[id], bytes.Clone(k), errShort}
		}
		job, place := readRowKey(k)
		if err := fn(job, place, v); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) runStaged(r *Run) bool {
	prefix := idKey(r.ID)
	k, _ := tx.bucket(bucketStaged).Cursor().Seek(prefix)
	return bytes.HasPrefix(k, prefix)
}

// settleRows promotes what a run without work ahead has staged, or holds it.
func (tx *Tx) settleRows(r *Run, sinks []Subscription) error {
	if !tx.runStaged(r) {
		return nil
	}
	p, err := tx.replacement(r)
	if err != nil {
		return err
	}
	reason, err := tx.lacks(p)
	if err != nil {
		return err
	}
	if reason != "" {
		r.Held, r.HeldSince = reason, tx.Now
		tx.saveRun(r)
		return nil
	}
	return tx.promote(p, sinks)
}

// lacks is what keeps a run without work ahead from being promoted by itself; "":
// nothing.
func (tx *Tx) lacks(p *replacement) (string, error) {
	r := p.run
	g, err := tx.gaps(p)
	switch {
	case err != nil:
		return "", err
	case !r.Offered:
		return "not all targets of its window were offered", nil
	case g.failed > 0:
		return fmt.Sprintf("%d of its %d jobs failed", g.failed, r.Jobs), nil
	case g.missing > 0:
		return fmt.Sprintf("%d of its %d jobs are complete and have no rows, staged or not", g.missing, r.Jobs), nil
	case p.whole && g.others > 0:
		return fmt.Sprintf("the pages of %d of its %d jobs were not read by version %d of the rules, as the others were", g.others, r.Jobs, p.version), nil
	case p.unsure() > 0:
		return fmt.Sprintf("rows would go that %d of its jobs, whose pages were not read with the others, may give", p.unsure()), nil
	case 2*len(p.after) < len(p.before):
		return fmt.Sprintf("the window would have %d rows, and has %d", len(p.after), len(p.before)), nil
	}
	return "", nil
}

// gaps counts the jobs that keep a window from being whole.
type gaps struct {
	failed  int
	missing int // that are complete, and have no rows
	others  int // whose rows are not of the version that is staged
}

func (tx *Tx) gaps(p *replacement) (g gaps, err error) {
	err = tx.RunJobs(p.run, func(j *Job) error {
		b, has := p.brought[j.ID]
		failed := j.State == StateFailed
		if has && !failed && b.Version == p.version {
			return nil
		}
		superseded, err := p.superseded(tx, j)
		switch {
		case err != nil || superseded:
			return err
		case failed:
			g.failed++
		case !has:
			g.missing++
		default:
			g.others++
		}
		return nil
	})
	return g, err
}

// superseded reports whether a job whose key names other rules than those of what is
// staged has one of these beside it, with rows.
func (p *replacement) superseded(tx *Tx, j *Job) (bool, error) {
	key := j.Key
	if key.Version == 0 || key.Version == p.version {
		return false, nil
	}
	key.Version = p.version
	beside, err := tx.JobByKey(key)
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, has := p.brought[beside.ID]
	return has && beside.State == StateComplete, nil
}

// ReleaseRun promotes what a run has staged, whatever it was held for. Jobs that
// have staged nothing keep the rows they have. Errors: ErrNotFound, ErrNotHeld.
func (tx *Tx) ReleaseRun(id uint64, sinks []Subscription) (*Run, error) {
	r, err := tx.heldRun(id)
	if err != nil {
		return nil, err
	}
	p, err := tx.replacement(r)
	if err != nil {
		return nil, err
	}
	return r, tx.promote(p, sinks)
}

// DiscardRun drops what a run has staged: the rows that stood before stand.
// Errors: ErrNotFound, ErrNotHeld.
func (tx *Tx) DiscardRun(id uint64) (*Run, error) {
	r, err := tx.heldRun(id)
	if err != nil {
		return nil, err
	}
	if err := tx.clear(bucketStaged, idKey(id)); err != nil {
		return nil, err
	}
	r.Held, r.HeldSince, r.Discarded = "", noTime, tx.Now
	tx.saveRun(r)
	return r, nil
}

func (tx *Tx) heldRun(id uint64) (*Run, error) {
	r, err := tx.Run(id)
	if err == nil && r.Held == "" {
		err = fmt.Errorf("run %s: %w", r.Key, ErrNotHeld)
	}
	return r, err
}

// AsReleased gives what the rows of a run's window are once it is released, by their
// keys: as Tx.Observation, but for the rows that this would bring, change or drop.
// Errors: ErrNotFound, ErrNotHeld.
func (tx *Tx) AsReleased(run uint64) (func(JobKey) (*Observation, error), error) {
	r, err := tx.heldRun(run)
	if err != nil {
		return nil, err
	}
	p, err := tx.replacement(r)
	if err != nil {
		return nil, err
	}
	return func(key JobKey) (*Observation, error) {
		place := observationKey(key)
		owner, stays := p.after[string(place)]
		if !stays {
			return nil, fmt.Errorf("observation %s once run %s is released: %w", key, r.Key, ErrNotFound)
		}
		if _, staged := p.jobs[owner]; staged {
			return tx.stagedRow(rowKey(run, owner, place))
		}
		return tx.Observation(key)
	}, nil
}

// promote makes a replacement come true. Equal content keeps its revision and
// its time, so that the same rows again change nothing.
func (tx *Tx) promote(p *replacement, sinks []Subscription) error {
	var n promoted
	var sum checksums
	for _, place := range p.places() {
		o, err := tx.replaceRow(p, place, &n)
		if err != nil {
			return err
		}
		if o != nil {
			sum.add(o)
		}
		if err := tx.handOver(p, place); err != nil {
			return err
		}
	}
	sum.end()
	changes := n.added+n.changed+n.removed > 0
	again := changes && p.run.tell(sum.now.SHA256)
	if err := tx.endRound(p, n); err != nil || !changes {
		return err
	}
	return tx.emitReplaced(p.run, again, n, sum.now, sinks)
}

// tell notes that the rows of the run's window have changed, and reports whether
// they have been as they are before. Where an older version has replaced them
// nobody knows, and they count as having come back; so they do beyond maxTold.
func (r *Run) tell(rows string) (again bool) {
	r.Revision++
	sum := xxhash.Sum64String(rows)
	if len(r.Told) == 0 && r.Revision > 1 || len(r.Told) == maxTold || slices.Contains(r.Told, sum) {
		return true
	}
	r.Told = append(r.Told, sum)
	return false
}

// promoted counts the rows of one promotion.
type promoted struct {
	added, changed, removed int
	unchanged, fresh        int // of rows that are not counted yet: equal to what stood, and all that stand
}

// places are those of all rows, before and after, in the order of bucket obs.
func (p *replacement) places() []string {
	places := slices.Collect(maps.Keys(p.after))
	for place := range p.before {
		if _, stays := p.after[place]; !stays {
			places = append(places, place)
		}
	}
	slices.Sort(places)
	return places
}

// replaceRow brings one row to what it is after the step; nil: it is gone.
func (tx *Tx) replaceRow(p *replacement, text string, n *promoted) (*Observation, error) {
	place := []byte(text)
	owner, stays := p.after[text]
	if !stays {
		n.removed++
		return nil, tx.dropRow(place)
	}
	v := tx.get(bucketObservation, place)
	if _, staged := p.jobs[owner]; !staged {
		return decodeObservation(place, v)
	}
	o, err := tx.stagedRow(rowKey(p.run.ID, owner, place))
	if err != nil {
		return nil, err
	}
	fresh := !p.brought[owner].Counted
	if fresh {
		n.fresh++
	}
	if v == nil {
		n.added++
		return o, tx.putObservation(place, nil, o)
	}
	old, err := decodeObservation(place, v)
	if err != nil {
		return nil, err
	}
	if o.sameContent(old) {
		if fresh {
			n.unchanged++
		}
		o.Revision, o.ObservedAt, o.Seq = old.Revision, old.ObservedAt, old.Seq
		return o, tx.replace(bucketObservation, place, v, o.encode())
	}
	n.changed++
	o.Revision, o.Seq = old.Revision+1, old.Seq
	return o, tx.putObservation(place, v, o)
}

// dropRow deletes the row of a place.
func (tx *Tx) dropRow(place []byte) error {
	o, err := decodeObservation(place, tx.get(bucketObservation, place))
	if err != nil {
		return err
	}
	return tx.dropObservation(o)
}

func (tx *Tx) stagedRow(key []byte) (*Observation, error) {
	_, place := readRowKey(key)
	o, err := readObservation(place, tx.get(bucketStaged, key))
	if err != nil {
		return nil, &RecordError{bucketNames[bucketStaged], key, err}
	}
	return o, nil
}

// handOver brings a row's entry in bucket live from its owner to the next.
func (tx *Tx) handOver(p *replacement, place string) error {
	was, stood := p.before[place]
	is, stays := p.after[place]
	if stood && stays && was == is {
		return nil
	}
	if stood {
		if err := tx.remove(bucketLive, rowKey(p.run.ID, was, []byte(place))); err != nil {
			return err
		}
	}
	if !stays {
		return nil
	}
	return tx.insert(bucketLive, rowKey(p.run.ID, is, []byte(place)), nil)
}

// endRound notes that nothing of a run is staged any more.
func (tx *Tx) endRound(p *replacement, n promoted) error {
	r := p.run
	for job := range p.jobs {
		b := p.brought[job]
		b.Counted, b.Whole = true, false
		if err := tx.put(bucketLive, rowKey(r.ID, job, nil), b.encode()); err != nil {
			return err
		}
	}
	if err := tx.clear(bucketStaged, idKey(r.ID)); err != nil {
		return err
	}
	source := r.Key.Source
	tx.count(source, MetricObservations, int64(n.added))
	tx.count(source, MetricUnchanged, int64(n.unchanged))
	tx.count(source, MetricDuplicates, int64(p.fresh-n.fresh))
	r.Held, r.HeldSince, r.Replaced = "", noTime, tx.Now
	tx.saveRun(r)
	return nil
}

// emitReplaced tells of a promotion that changed something. rows is the checksum
// of the window's rows after it, again whether it was theirs before.
func (tx *Tx) emitReplaced(r *Run, again bool, n promoted, rows Checksum, sinks []Subscription) error {
	if !anyWants(sinks, EventReplaced) {
		return nil
	}
	e := replacedEvent{
		Run: r.Key.String(), Source: r.Key.Source, Window: r.Key.Window, Rows: rows.Rows,
		Added: n.added, Changed: n.changed, Removed: n.removed, Revision: r.Revision, SHA256: rows.SHA256,
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return tx.emit(sinks, Event{ID: e.id(again), Type: EventReplaced, Key: e.Run, Data: data})
}

// replacedEvent is what window.replaced says.
type replacedEvent struct {
	Run     string    `json:"run"` // its key
	Source  string    `json:"source"`
	Window  time.Time `json:"window"`
	Rows    int64     `json:"rows"` // that the window has now
	Added   int       `json:"added"`
	Changed int       `json:"changed"`
	Removed int       `json:"removed"`

	Revision uint64 `json:"revision,omitempty"` // of the window: 1, and one more with each change; 0: of before schema 5
	SHA256   string `json:"sha256"`             // of these rows, as Checksums has it
}

// id is the same for the same rows of a window. As of observations, that rows have
// come back is another fact: their revision tells it from the first time.
func (e *replacedEvent) id(again bool) string {
	parts := []string{EventReplaced, e.Run, e.SHA256}
	if again {
		parts = append(parts, strconv.FormatUint(e.Revision, 10))
	}
	return eventID(parts...)
}
