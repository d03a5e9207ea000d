package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"time"
)

// Types of events.
const (
	EventCreated     = "observation.created"
	EventUpdated     = "observation.updated"
	EventJobComplete = "job.complete"
	EventJobFailed   = "job.failed"
	EventRunFinished = "run.finished"
	EventReplaced    = "window.replaced" // of a WriteReplace source, in the place of observation.created and .updated
)

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
	ID        string    // evt_ and 32 hex digits: the same for the same fact, on any box
	Type      string    // observation.created, …
	Key       string    // observation or job key: deliveries keep its order
	Timestamp time.Time // when it was committed
	Data      []byte    // JSON object: the line of export, or the job
}

const eventVersion = 2 // 2 is sealed

func (e *Event) encode() []byte {
	w := newEncoder(eventVersion, 96+len(e.Key)+len(e.Data))
	w.time(e.Timestamp)
	w.text(e.ID)
	w.text(e.Type)
	w.text(e.Key)
	w.bytes(e.Data)
	return w.sealed()
}

func decodeEvent(seq uint64, b []byte) (*Event, error) {
	d := newDecoder(eventVersion, b)
	e := &Event{Seq: seq, Timestamp: d.time(), ID: d.text(), Type: d.text(), Key: d.text(), Data: bytes.Clone(d.raw())}
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
// whatever brought it there.
func observationEventID(event string, o *Observation) string {
	content := string(o.Data)
	if o.Gone {
		content = "gone"
	}
	window := JobKey{Window: o.Window}.String()
	return eventID(event, o.Key.String(), window, strconv.Itoa(o.Version), content)
}

func (tx *Tx) emitObservation(event string, o *Observation, sinks []Subscription) error {
	if !anyWants(sinks, event) {
		return nil
	}
	return tx.emit(sinks, Event{
		ID:   observationEventID(event, o),
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
		ID:   jobEventID(event, key, j.Attempts),
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
	for _, s := range sinks {
		if !s.wants(e.Type) {
			continue
		}
		if err := tx.insert(bucketOutbox, outboxKey(s.Sink, seq), nil); err != nil {
			return err
		}
	}
	return nil
}

// PendingEvents are up to limit events that a sink has not acknowledged, in
// the order of their commits.
func (tx *Tx) PendingEvents(sink string, limit int) ([]*Event, error) {
	var events []*Event
	prefix := counterKey(sink, "")
	c := tx.bucket(bucketOutbox).Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix) && len(events) < limit; k, _ = c.Next() {
		seq := tailID(k)
		e, err := decodeEvent(seq, tx.get(bucketEvent, idKey(seq)))
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// AckEvents notes that a sink has some events. One that it did not wait for
// changes nothing: a delivery may be acknowledged twice.
func (tx *Tx) AckEvents(sink string, seqs []uint64) error {
	for _, seq := range seqs {
		key := outboxKey(sink, seq)
		if tx.get(bucketOutbox, key) == nil {
			continue
		}
		if err := tx.remove(bucketOutbox, key); err != nil {
			return err
		}
		tx.count("", MetricDelivered+sink, 1)
	}
	return nil
}

// waitingSinks are the sinks that wait for an event: one seek each.
func (tx *Tx) waitingSinks() []string {
	var sinks []string
	c := tx.bucket(bucketOutbox).Cursor()
	for k, _ := c.First(); len(k) > 0; {
		sink, _, _ := bytes.Cut(k, []byte{0})
		sinks = append(sinks, string(sink))
		k, _ = c.Seek(append(bytes.Clone(sink), 1))
	}
	return sinks
}

// PendingBySink counts the events that each sink has not acknowledged.
func (tx *Tx) PendingBySink() (map[string]int64, error) {
	pending := map[string]int64{}
	c := tx.bucket(bucketOutbox).Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		sink, _, ok := bytes.Cut(k, []byte{0})
		if !ok {
			return nil, &RecordError{bucketNames[bucketOutbox], bytes.Clone(k), errShort}
		}
		pending[string(sink)]++
	}
	return pending, nil
}
