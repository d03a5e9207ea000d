package storage

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// JobState is where a job stands; see transition.go for what moves it.
type JobState string

const (
	StatePending   JobState = "pending"   // ready to be claimed
	StateRunning   JobState = "running"   // owned by a worker until its lease ends
	StateRetryable JobState = "retryable" // safe to attempt again after a delay
	StateComplete  JobState = "complete"  // observation committed
	StateFailed    JobState = "failed"    // terminal until a person retries it
)

// JobStates are all states, in the order of a job's life.
var JobStates = []JobState{StatePending, StateRunning, StateRetryable, StateComplete, StateFailed}

// Terminal reports whether only a person can move the job on.
func (s JobState) Terminal() bool { return s == StateComplete || s == StateFailed }

func (s JobState) code() byte {
	for i, state := range JobStates {
		if s == state {
			return byte(i)
		}
	}
	panic("storage: unknown job state " + string(s))
}

// suspectAfter is how many deaths in a row make a job wait until nothing else
// of its lane is ready: it may be what kills the workers.
const suspectAfter = 3

// Var is one variable of a target.
type Var struct{ Name, Value string }

// NewJob is a job as intake makes it.
type NewJob struct {
	Key      JobKey    // parts outside the source's identity are zero
	Country  string    // this and the next three are recorded whether or not they
	Window   time.Time // are in the key, and equal to what the key says where they
	Scope    string    // are
	Version  int
	URL      string // as it will be requested
	Host     string // pacing belongs to it
	Vars     []Var
	Priority int8   // higher first
	Depth    uint16 // links from the target that the source was given; 0: that target itself
	Run      uint64 // that it is made for; 0: that of its window, or none where it has no window
}

func (n *NewJob) lane() Lane { return Lane{n.Host, n.Key.Source, n.Country} }

// Job is one expected observation of a target in a window.
type Job struct {
	ID  uint64 // counted up by the store from 1: short, and ordered by creation
	Key JobKey // what makes it this job; parts outside the identity are zero

	Country string    // wanted exit country, "" for any
	Window  time.Time // start of the window, zero: none
	Scope   string
	Version int // parser version when the job was made; once complete, that which read its page

	URL      string
	Vars     []Var
	Priority int8
	Lane     LaneID
	Depth    uint16 // links from the target that the source was given
	Run      uint64 // that made it; 0: none, as for jobs without a window that nobody imported, and those of schema 3

	State      JobState
	Generation uint32   // claims so far; the fence, and the number of the last attempt
	Attempts   uint32   // attempts that count, over the job's whole life
	Tries      uint32   // the same since a person last retried the job; limits compare it
	Rescues    uint32   // deaths in a row: set back by every outcome
	Recovered  bool     // was rescued at least once
	Category   Category // why the last attempt did not complete; "" when it did or none was made
	Reason     string   // the same for people

	Created    time.Time
	Updated    time.Time
	FirstClaim time.Time // since a person last retried it; zero: never claimed
	ClaimedAt  time.Time // while running
	LeaseUntil time.Time // while running
	Owner      string    // while running
	NextAt     time.Time // while retryable: when it becomes pending

	BytesUp   int64 // on the wire, all attempts
	BytesDown int64
	Spent     int64 // both together since a person last retried it; limits compare it

	Forgotten       uint32 // attempts up to this number are pruned; 0: none
	RescueForgotten bool   // one of these was rescued

	Sent string // step that must not be repeated and may have been sent (MarkSent) since a person last retried the job; "" none, and once complete
}

// jobVersion 2 added Forgotten, and is sealed; 3 added Sent; 4 Run, Depth and
// RescueForgotten.
const jobVersion = 4

func (j *Job) encode() []byte {
	e := newEncoder(jobVersion, 256+len(j.URL))
	e.u8(j.State.code())
	e.u8(byte(j.Priority))
	e.u32(uint32(j.Lane))
	e.u32(j.Generation)
	e.u32(j.Attempts)
	e.u32(j.Tries)
	e.u32(j.Rescues)
	e.flag(j.Recovered)
	for _, t := range []time.Time{j.Created, j.Updated, j.FirstClaim, j.ClaimedAt, j.LeaseUntil, j.NextAt, j.Window} {
		e.time(t)
	}
	e.i64(j.BytesUp)
	e.i64(j.BytesDown)
	e.i64(j.Spent)
	e.u32(j.Forgotten)
	e.u32(uint32(j.Version))
	e.u64(j.Run)
	e.u32(uint32(j.Depth))
	e.flag(j.RescueForgotten)
	// Of the key only what cannot be told from the rest of the job.
	e.text(j.Key.Source)
	e.text(j.Key.Target)
	e.flag(j.Key.Country != "")
	e.flag(!j.Key.Window.IsZero())
	e.flag(j.Key.Scope != "")
	e.flag(j.Key.Version != 0)
	for _, s := range []string{j.Country, j.Scope, j.URL, string(j.Category), j.Reason, j.Owner, j.Sent} {
		e.text(s)
	}
	e.b = binary.AppendUvarint(e.b, uint64(len(j.Vars)))
	for _, v := range j.Vars {
		e.text(v.Name)
		e.text(v.Value)
	}
	return e.sealed()
}

func decodeJob(id uint64, b []byte) (*Job, error) {
	d := newDecoder(jobVersion, b)
	j := &Job{ID: id}
	if code := int(d.u8()); code < len(JobStates) {
		j.State = JobStates[code]
	} else {
		d.err = fmt.Errorf("unknown state %d", code)
	}
	j.Priority = int8(d.u8())
	j.Lane = LaneID(d.u32())
	j.Generation, j.Attempts, j.Tries, j.Rescues = d.u32(), d.u32(), d.u32(), d.u32()
	j.Recovered = d.flag()
	for _, t := range []*time.Time{&j.Created, &j.Updated, &j.FirstClaim, &j.ClaimedAt, &j.LeaseUntil, &j.NextAt, &j.Window} {
		*t = d.time()
	}
	j.BytesUp, j.BytesDown, j.Spent = d.i64(), d.i64(), d.i64()
	if d.version > 1 {
		j.Forgotten = d.u32()
	}
	j.Version = int(d.u32())
	if d.version > 3 {
		j.Run, j.Depth = d.u64(), uint16(d.u32())
		j.RescueForgotten = d.flag()
	} else { // until then a job completed once, after all its rescues
		j.RescueForgotten = j.Forgotten > 0 && j.Recovered
	}
	j.Key.Source, j.Key.Target = d.text(), d.text()
	country, window, scope, version := d.flag(), d.flag(), d.flag(), d.flag()
	var category string
	for _, s := range []*string{&j.Country, &j.Scope, &j.URL, &category, &j.Reason, &j.Owner} {
		*s = d.text()
	}
	j.Category = Category(category)
	if d.version > 2 {
		j.Sent = d.text()
	}
	for range d.length() {
		j.Vars = append(j.Vars, Var{d.text(), d.text()})
	}
	j.restoreKey(country, window, scope, version)
	if err := d.done(); err != nil {
		return nil, &RecordError{bucketNames[bucketJob], idKey(id), err}
	}
	return j, nil
}

func (j *Job) restoreKey(country, window, scope, version bool) {
	if country {
		j.Key.Country = j.Country
	}
	if window {
		j.Key.Window = j.Window
	}
	if scope {
		j.Key.Scope = j.Scope
	}
	if version {
		j.Key.Version = j.Version
	}
}

// Job reads a job. Error: ErrNotFound.
func (tx *Tx) Job(id uint64) (*Job, error) {
	v := tx.get(bucketJob, idKey(id))
	if v == nil {
		return nil, fmt.Errorf("job %d: %w", id, ErrNotFound)
	}
	return decodeJob(id, v)
}

// JobByKey reads the job of a key. Error: ErrNotFound.
func (tx *Tx) JobByKey(key JobKey) (*Job, error) {
	text := key.String()
	j, err := tx.findJob(text, keyIndex(key.Window, text))
	if err == nil && j == nil {
		err = fmt.Errorf("job %s: %w", text, ErrNotFound)
	}
	return j, err
}

// findJob reads the job of a key by its text and its place in bucket key; nil:
// there is none.
func (tx *Tx) findJob(text string, place []byte) (*Job, error) {
	v := tx.get(bucketKey, place)
	if v == nil {
		return nil, nil
	}
	j, err := tx.Job(tailID(v))
	switch {
	case isNotFound(err): // damage: as "not found" it would be made a second time
		return nil, &RecordError{bucketNames[bucketKey], place, fmt.Errorf("it leads to job %d, which is missing", tailID(v))}
	case err != nil:
		return nil, err
	case j.Key.String() != text:
		return nil, fmt.Errorf("job %s: %w (it is that of job %d)", text, ErrKeyCollision, j.ID)
	}
	return j, nil
}

func (tx *Tx) jobByText(text string) (*Job, error) {
	key, err := ParseJobKey(text)
	if err != nil {
		return nil, err
	}
	return tx.JobByKey(key)
}

// Jobs calls fn with jobs of ids over after, in the order of their ids, until
// fn returns false or limit jobs were read, and gives the last id it read; 0
// when there are no more.
func (tx *Tx) Jobs(after uint64, limit int, fn func(*Job) bool) (last uint64, err error) {
	c := tx.bucket(bucketJob).Cursor()
	for k, v := c.Seek(idKey(after + 1)); k != nil; k, v = c.Next() {
		j, err := decodeJob(tailID(k), v)
		if err != nil {
			return 0, err
		}
		if !fn(j) || limit == 1 {
			return j.ID, nil
		}
		limit--
	}
	return 0, nil
}

// LastJob is the highest id of a job; 0: there is none.
func (tx *Tx) LastJob() uint64 {
	k, _ := tx.bucket(bucketJob).Cursor().Last()
	return tailID(k)
}

// PriorityBackfill is below that of every source: past windows wait for present
// ones. A job that is there keeps its priority when it is offered with this one.
const PriorityBackfill = -128

// Enqueued says what became of one NewJob.
type Enqueued struct {
	ID        uint64
	New       bool // false: a job of this key was there before
	Refreshed bool // it was, and now has this URL, variables and priority
}

// validate refuses a job that could not be read back as it was made: the
// record keeps of the key only what the job does not say itself.
func (n *NewJob) validate() error {
	k := n.Key
	switch {
	case strings.Contains(k.Source, "\x00"), strings.Contains(n.Host, "\x00"):
		return fmt.Errorf("job %s: source %q or host %q holds a zero byte", k, k.Source, n.Host)
	case k.Country != "" && k.Country != n.Country,
		k.Scope != "" && k.Scope != n.Scope,
		k.Version != 0 && k.Version != n.Version,
		!k.Window.IsZero() && !k.Window.Equal(n.Window):
		return fmt.Errorf("job %s: its key names another country, window, scope or version than the job", k)
	}
	return nil
}

// EnqueueJob makes a pending job, or finds the one that has its key. A job
// found that still has work ahead takes over the URL, the variables, the
// priority and the depth it was offered with, so that a mended config reaches
// it: from a source's own target always, from a link where the way to it is
// shorter than the one known. Errors: ErrKeyCollision, and that of a key that
// contradicts the job.
func (tx *Tx) EnqueueJob(n NewJob) (Enqueued, error) {
	if err := n.validate(); err != nil {
		return Enqueued{}, err
	}
	text := n.Key.String()
	place := keyIndex(n.Key.Window, text)
	found, err := tx.findJob(text, place)
	if err != nil {
		return Enqueued{}, err
	}
	if found != nil {
		refreshed, err := tx.refresh(found, n)
		return Enqueued{ID: found.ID, Refreshed: refreshed}, err
	}
	lane, err := tx.lane(n.lane())
	if err != nil {
		return Enqueued{}, err
	}
	run, err := tx.runOf(n)
	if err != nil {
		return Enqueued{}, err
	}
	id := tx.nextID(jobSequence)
	j := &Job{
		ID: id, Run: run, Depth: n.Depth, Key: n.Key, Country: n.Country, Window: n.Window, Scope: n.Scope, Version: n.Version,
		URL: n.URL, Vars: n.Vars, Priority: n.Priority, Lane: lane, State: StatePending,
		Created: tx.Now, Updated: tx.Now,
	}
	if err := tx.insert(bucketKey, place, idKey(id)); err != nil {
		return Enqueued{}, err
	}
	tx.countState(j, 1)
	if err := tx.countInRun(j, 1); err != nil {
		return Enqueued{}, err
	}
	if err := tx.index(j); err != nil {
		return Enqueued{}, err
	}
	return Enqueued{ID: id, New: true}, tx.insert(bucketJob, idKey(id), j.encode())
}

// Known reports whether EnqueueJob would change nothing, so that a rerun over
// a million known targets needs no transaction.
func (tx *Tx) Known(n NewJob) (bool, error) {
	text := n.Key.String()
	found, err := tx.findJob(text, keyIndex(n.Key.Window, text))
	if found == nil {
		return false, err
	}
	lane, err := tx.Lane(found.Lane)
	return err == nil && !stale(found, lane.Host, n), err
}

// stale reports whether a job should take over what it was offered with.
func stale(j *Job, host string, n NewJob) bool {
	if j.State == StateRunning || j.State == StateComplete || n.Depth > j.Depth || n.Depth == j.Depth && n.Depth > 0 {
		return false
	}
	return j.Depth != n.Depth || j.URL != n.URL || j.Priority != n.priority(j) || j.Country != n.Country || host != n.Host || !slices.Equal(j.Vars, n.Vars)
}

// priority is what a job that is there has once it was offered with n.
func (n *NewJob) priority(j *Job) int8 {
	if n.Priority == PriorityBackfill {
		return j.Priority
	}
	return n.Priority
}

func (tx *Tx) refresh(j *Job, n NewJob) (bool, error) {
	was, err := tx.Lane(j.Lane)
	if err != nil || !stale(j, was.Host, n) {
		return false, err
	}
	lane, err := tx.lane(n.lane())
	if err != nil {
		return false, err
	}
	if err := tx.unindex(j); err != nil {
		return false, err
	}
	j.URL, j.Vars, j.Priority, j.Country, j.Lane, j.Depth, j.Updated = n.URL, n.Vars, n.priority(j), n.Country, lane, n.Depth, tx.Now
	if err := tx.index(j); err != nil {
		return false, err
	}
	return true, tx.save(j)
}

func (tx *Tx) save(j *Job) error { return tx.put(bucketJob, idKey(j.ID), j.encode()) }
