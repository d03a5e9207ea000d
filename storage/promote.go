package storage

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
)

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
