package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Types of events.
const (
	EventCreated     = "observation.created"
	EventUpdated     = "observation.updated"
	EventJobComplete = "job.complete"
	EventJobFailed   = "job.failed"
	EventRunFinished = "run.finished"
	EventQuarantined = "page.quarantined"
	EventDrifted     = "schema.drifted"  // pages of a source lack what they had
	EventReplaced    = "window.replaced" // of a WriteReplace source, in the place of observation.created and .updated
)

// EventTypes are all types of events.
var EventTypes = []string{EventCreated, EventUpdated, EventReplaced, EventJobComplete, EventJobFailed, EventQuarantined, EventDrifted, EventRunFinished}

// Subscription is one sink's wish for a source's events.
type Subscription struct {
	Sink   string
	Events []string // types; empty: all but job.complete, which only a name brings
}

func (s Subscription) wants(event string) bool {
	if len(s.Events) == 0 {
		return event != EventJobComplete
	}
	return slices.Contains(s.Events, event)
}

// Event is one fact for the outside, written in the transaction that made it
// a fact.
type Event struct {
	Seq       uint64    // order of commits
	Job       uint64    // whose outcome it is of; 0: of a run, or no longer pending when schema 4 came
	ID        string    // evt_ and 32 hex digits: the same for the same fact, on any box
	Type      string    // observation.created, …
	Key       string    // observation, job or run key, or a source: deliveries keep its order
	Timestamp time.Time // when it was committed
	Data      []byte    // JSON object: the line of export, the job …
}

const eventVersion = 3 // 2 is sealed, 3 has the job

func (e *Event) encode() []byte {
	w := newEncoder(eventVersion, 96+len(e.Key)+len(e.Data))
	w.time(e.Timestamp)
	w.text(e.ID)
	w.text(e.Type)
	w.text(e.Key)
	w.bytes(e.Data)
	w.u64(e.Job)
	return w.sealed()
}

func decodeEvent(seq uint64, b []byte) (*Event, error) {
	d := newDecoder(eventVersion, b)
	e := &Event{Seq: seq, Timestamp: d.time(), ID: d.text(), Type: d.text(), Key: d.text(), Data: bytes.Clone(d.raw())}
	if d.version >= 3 {
		e.Job = d.u64()
	}
	if err := d.done(); err != nil {
		return nil, &RecordError{bucketNames[bucketEvent], idKey(seq), err}
	}
	return e, nil
}

// eventID hashes what makes a fact this fact.
func eventID(parts ...string) string {
	var b []byte
	for _, part := range parts {
		b = strconv.AppendInt(b, int64(len(part)), 10)
		b = append(b, ':')
		b = append(b, part...)
	}
	sum := sha256.Sum256(b)
	return "evt_" + hex.EncodeToString(sum[:16])
}

// observationEventID is the same for the same content of an observation,
// whatever brought it there. Content that has come back, after other content in
// the same window, is another fact: whoever knows events by their ids would else
// keep what came between. Its revision tells it from the first time.
func observationEventID(event string, again bool, o *Observation) string {
	window := JobKey{Window: o.Window}.String()
	parts := []string{event, o.Key.String(), window, strconv.Itoa(o.Version), o.content()}
	if again {
		parts = append(parts, strconv.Itoa(o.Revision))
	}
	return eventID(parts...)
}

// content is what an observation says.
func (o *Observation) content() string {
	if o.Gone {
		return "gone"
	}
	return string(o.Data)
}

// maxTold bounds Observation.Told. Contents hardly change so often within a
// window; beyond it all of them count as having come back.
const maxTold = 32

// tell notes that an event tells of the content, and reports whether one did so
// before.
func (o *Observation) tell() (again bool) {
	sum := xxhash.Sum64String(o.content())
	if len(o.Told) == maxTold || slices.Contains(o.Told, sum) {
		return true
	}
	o.Told = append(o.Told, sum)
	return false
}

// toldIn is what was told of o, if next is of the same window, which is in the ids. So
// is the version, but one that was given up may come back.
func (o *Observation) toldIn(next *Observation) []uint64 {
	if !o.Window.Equal(next.Window) {
		return nil
	}
	return o.Told
}

func (tx *Tx) emitObservation(event string, again bool, j *Job, o *Observation, sinks []Subscription) error {
	if !anyWants(sinks, event) {
		return nil
	}
	return tx.emit(sinks, Event{
		ID: observationEventID(event, again, o), Job: j.ID,
		Type: event, Key: o.Key.String(), Data: o.appendJSON(nil),
	})
}

func jobEventID(event, key string, attempts uint32) string {
	return eventID(event, key, strconv.FormatUint(uint64(attempts), 10))
}

func (tx *Tx) emitJob(event string, j *Job, sinks []Subscription) error {
	if !anyWants(sinks, event) {
		return nil
	}
	key := j.Key.String()
	return tx.emit(sinks, Event{
		ID: jobEventID(event, key, j.Attempts), Job: j.ID,
		Type: event, Key: key, Data: j.appendEvent(make([]byte, 0, 256), key),
	})
}

// conclude tells of a job that is complete or has failed, and ends its run where
// it was the last.
func (tx *Tx) conclude(event string, j *Job, sinks []Subscription) error {
	if err := tx.emitJob(event, j, sinks); err != nil {
		return err
	}
	return tx.settleRun(j.Run, sinks)
}

// appendEvent appends what a job's event says of it, as a JSON object.
func (j *Job) appendEvent(b []byte, key string) []byte {
	b = append(b, `{"job":`...)
	b = appendJSON(b, key)
	b = append(b, `,"id":`...)
	b = strconv.AppendUint(b, j.ID, 10)
	for _, field := range [...]struct{ name, value string }{
		{"source", j.Key.Source}, {"state", string(j.State)}, {"url", j.URL},
		{"category", string(j.Category)}, {"reason", j.Reason},
	} {
		b = append(b, ',', '"')
		b = append(b, field.name...)
		b = append(b, '"', ':')
		b = appendJSON(b, field.value)
	}
	b = append(b, `,"window":`...)
	b = appendWindow(b, j.Window)
	b = append(b, `,"country":`...)
	b = appendCountry(b, j.Country)
	b = append(b, `,"attempts":`...)
	b = strconv.AppendUint(b, uint64(j.Attempts), 10)
	return append(b, '}')
}

func anyWants(sinks []Subscription, event string) bool {
	return slices.ContainsFunc(sinks, func(s Subscription) bool { return s.wants(event) })
}

func (tx *Tx) emit(sinks []Subscription, e Event) error {
	seq := tx.nextID(eventSequence)
	e.Timestamp = tx.Now
	if err := tx.insert(bucketEvent, idKey(seq), e.encode()); err != nil {
		return err
	}
	if e.Job != 0 {
		if err := tx.insert(bucketJobEvent, jobEventKey(e.Job, seq), nil); err != nil {
			return err
		}
	}
	for _, s := range sinks {
		if !s.wants(e.Type) {
			continue
		}
		if err := tx.addDispatch(seq, s.Sink); err != nil {
			return err
		}
	}
	return nil
}

func jobEventKey(job, seq uint64) []byte { return appendU64(idKey(job), seq) }

// Event reads an event. Error: ErrNotFound.
func (tx *Tx) Event(seq uint64) (*Event, error) {
	v := tx.get(bucketEvent, idKey(seq))
	if v == nil {
		return nil, fmt.Errorf("event %d: %w", seq, ErrNotFound)
	}
	return decodeEvent(seq, v)
}

// eventOf reads an event that must be there: that it is missing is damage, and no
// ErrNotFound.
func (tx *Tx) eventOf(seq uint64) (*Event, error) {
	return decodeEvent(seq, tx.get(bucketEvent, idKey(seq)))
}

// FindEvent looks for an event by its id among all, the newest first: of content that
// came back, older versions wrote several events of one id. Who knows the number
// reads it with Tx.Event. Errors: ErrNotFound, and that of ctx.
func (s *Store) FindEvent(ctx context.Context, id string) (*Event, error) {
	for before := uint64(math.MaxUint64); before > 0 && ctx.Err() == nil; {
		var found *Event
		err := s.View(func(tx *Tx) (err error) {
			found, before, err = tx.findEvent(id, before)
			return err
		})
		if found != nil || err != nil {
			return found, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("event %s: %w", id, ErrNotFound)
}

// findEvent looks at up to entryRows events before a number, the newest first.
// It gives the event, or the number to go on from; 0: that was all.
func (tx *Tx) findEvent(id string, before uint64) (*Event, uint64, error) {
	c := tx.bucket(bucketEvent).Cursor()
	c.Seek(idKey(before))
	k, v := c.Prev()
	for n := 1; k != nil; n++ {
		if bytes.Contains(v, []byte(id)) { // else there is no need to decode it
			if e, err := decodeEvent(tailID(k), v); err != nil || e.ID == id {
				return e, 0, err
			}
		}
		if n == entryRows {
			return nil, tailID(k), nil
		}
		k, v = c.Prev()
	}
	return nil, 0, nil
}

// JobEvents are the events of a job's outcomes, in the order of their commits.
// Those that were no longer pending when schema 4 came are not among them.
func (tx *Tx) JobEvents(job uint64) ([]*Event, error) {
	var events []*Event
	for _, seq := range tx.jobEvents(job) {
		e, err := tx.eventOf(seq)
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

func (tx *Tx) jobEvents(job uint64) (seqs []uint64) {
	prefix := idKey(job)
	c := tx.bucket(bucketJobEvent).Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		seqs = append(seqs, tailID(k))
	}
	return seqs
}
