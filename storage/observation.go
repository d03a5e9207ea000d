package storage

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// WriteMode says which of two observations of one key stays.
type WriteMode string

const (
	WriteInsert WriteMode = "insert" // the lowest window
	WriteUpsert WriteMode = "upsert" // the latest window, then the higher rules version

	// The windows of these two do not compete: the window is part of the key.
	WriteAppend  WriteMode = "append"  // the higher rules version
	WriteReplace WriteMode = "replace" // that of the smaller job key; all of a window change together (replace.go)
)

// NewObservation is one record to commit.
type NewObservation struct {
	Key     string   // the record's own key
	Data    []byte   // finished JSON object; nil where Gone
	Missing []string // fields without a match
	Gone    bool     // the page says that there is no such record
}

// Observation is a record committed under its key.
type Observation struct {
	Key        JobKey    // the job key's parts with the record's own key as target
	Job        string    // text of the key of the job it came from
	Window     time.Time // of that job
	Country    string    // of that job
	URL        string    // of the page, after redirects
	Version    int       // of the rules that made it
	Revision   int       // 1, and 1 more with every change of content
	ObservedAt time.Time // when the page was fetched that brought this content: when its attempt ended
	Missing    []string
	Gone       bool
	Data       []byte
	Seq        uint64   // number of the change that brought this content (see Changes); 0: an older schema wrote it
	Told       []uint64 // hashes of the contents that observation.updated has told of, of this window; see tell
}

const observationVersion = 3 // 2 is sealed, 3 has Seq and Told

func (o *Observation) encode() []byte {
	e := newEncoder(observationVersion, 96+len(o.Job)+len(o.URL)+len(o.Data))
	e.time(o.Window)
	e.time(o.ObservedAt)
	e.u32(uint32(o.Version))
	e.u32(uint32(o.Revision))
	e.flag(o.Gone)
	e.text(o.Job)
	e.text(o.Country)
	e.text(o.URL)
	e.texts(o.Missing)
	e.bytes(o.Data)
	e.u64(o.Seq)
	e.u32(uint32(len(o.Told)))
	for _, sum := range o.Told {
		e.u64(sum)
	}
	return e.sealed()
}

func decodeObservation(key, b []byte) (*Observation, error) {
	o, err := readObservation(key, b)
	if err != nil {
		return nil, &RecordError{bucketNames[bucketObservation], bytes.Clone(key), err}
	}
	return o, nil
}

// readObservation reads the record of an observation whose place in bucket obs is
// key.
func readObservation(key, b []byte) (*Observation, error) {
	d := newDecoder(observationVersion, b)
	o := &Observation{}
	o.Window, o.ObservedAt = d.time(), d.time()
	o.Version, o.Revision = int(d.u32()), int(d.u32())
	o.Gone = d.flag()
	o.Job, o.Country, o.URL = d.text(), d.text(), d.text()
	o.Missing = d.texts()
	o.Data = bytes.Clone(d.raw())
	if d.version >= 3 {
		o.Seq = d.u64()
		for n := d.u32(); n > 0 && d.err == nil; n-- {
			o.Told = append(o.Told, d.u64())
		}
	}
	if err := d.done(); err != nil {
		return nil, err
	}
	return o, o.readKey(key)
}

// readKey takes the identity out of the bucket's key.
func (o *Observation) readKey(key []byte) error {
	source, rest, found := bytes.Cut(key, []byte{0})
	target, rest, ok1 := readText(rest)
	country, rest, ok2 := readText(rest)
	if !found || !ok1 || !ok2 || len(rest) < 12 {
		return errShort
	}
	d := decoder{b: rest}
	o.Key = JobKey{Source: string(source), Target: target, Country: country}
	if w := d.u64(); w != 0 {
		o.Key.Window = time.Unix(int64(w^1<<63), 0).UTC()
	}
	o.Key.Version = int(d.u32())
	o.Key.Scope = string(d.b)
	return nil
}

// row is a record of a job's commit as an observation.
func (tx *Tx) row(j *Job, r NewObservation, c *Completion) *Observation {
	return &Observation{
		Key: c.RowKey(j, r.Key),
		Job: j.Key.String(), Window: j.Window, Country: j.Country, URL: c.Attempt.FinalURL,
		Version: c.Attempt.ParserVersion, Revision: 1, ObservedAt: cmp.Or(c.Attempt.FetchedAt, tx.Now),
		Missing: r.Missing, Gone: r.Gone, Data: r.Data,
	}
}

// RowKey is the key of an observation that a completion of a job writes under a
// record's own key.
func (c *Completion) RowKey(j *Job, record string) JobKey {
	key := JobKey{Source: j.Key.Source, Target: record, Country: j.Key.Country, Scope: j.Key.Scope, Version: j.Key.Version}
	if c.windowed(j) {
		key.Window = j.Window
	}
	return key
}

// windowed reports whether the rows of a job have its window in their keys. Those
// of a job that has no window in its own, or that a store older than runs has made,
// do not, whatever the mode.
func (c *Completion) windowed(j *Job) bool {
	return (c.Mode == WriteAppend || c.Mode == WriteReplace) && j.Run != 0 && !j.Key.Window.IsZero()
}

// observe writes one row of a job's commit by the rules of its mode. Which of
// two rows stays is decided by window, version and job key, never by the order
// of commits.
func (tx *Tx) observe(j *Job, o *Observation, c *Completion, done *Completed) error {
	place := observationKey(o.Key)
	v := tx.get(bucketObservation, place)
	if v == nil {
		done.Created++
		tx.count(j.Key.Source, MetricObservations, 1)
		if err := tx.own(j, o, ""); err != nil {
			return err
		}
		return tx.writeObservation(place, nil, o, j, EventCreated, c.Sinks)
	}
	old, err := decodeObservation(place, v)
	if err != nil {
		return err
	}
	if !o.replaces(old, c.Mode) {
		done.Rejected++
		return nil
	}
	if err := tx.own(j, o, old.Job); err != nil {
		return err
	}
	if o.sameContent(old) {
		// The content stays as first seen, and no event says otherwise. Only
		// the place it holds among windows moves on: a backfill of a window
		// between the two must find that this one is later.
		done.Unchanged++
		old.Told = old.toldIn(o)
		old.Window, old.Version, old.Job = o.Window, o.Version, o.Job
		old.URL, old.Country, old.Missing = o.URL, o.Country, o.Missing
		return tx.replace(bucketObservation, place, v, old.encode())
	}
	done.Updated++
	o.Revision, o.Seq, o.Told = old.Revision+1, old.Seq, old.toldIn(o)
	return tx.writeObservation(place, v, o, j, EventUpdated, c.Sinks)
}

// writeObservation is putObservation with its event, of the outcome of j.
func (tx *Tx) writeObservation(place, old []byte, o *Observation, j *Job, event string, sinks []Subscription) error {
	again := false
	if event == EventUpdated {
		again = o.tell()
	}
	if err := tx.putObservation(place, old, o); err != nil {
		return err
	}
	return tx.emitObservation(event, again, j, o, sinks)
}

// putObservation writes new content, which is a change, in the place of the
// record old (nil: there is none), whose Seq it still has.
func (tx *Tx) putObservation(place, old []byte, o *Observation) error {
	if err := tx.renumber(place, o); err != nil {
		return err
	}
	return tx.replace(bucketObservation, place, old, o.encode())
}

func (o *Observation) sameContent(old *Observation) bool {
	return o.Gone == old.Gone && bytes.Equal(o.Data, old.Data)
}

// replaces reports whether o stays and old goes.
func (o *Observation) replaces(old *Observation, mode WriteMode) bool {
	if o.Job == old.Job {
		return true // its own job, collected again
	}
	later := windowOrder(o.Window) > windowOrder(old.Window)
	if windowOrder(o.Window) != windowOrder(old.Window) {
		return later == (mode != WriteInsert)
	}
	if o.Version != old.Version {
		return (o.Version > old.Version) == (mode != WriteInsert)
	}
	return o.Job < old.Job
}

// Fingerprint is the first half of the SHA-256 of the content, in hex: it
// tells change, and is never a key.
func (o *Observation) Fingerprint() string {
	sum := sha256.Sum256(o.Data)
	return hex.EncodeToString(sum[:16])
}

// AppendLine appends the observation as one line of export, newline included:
// the record, flat, then _meta unless dataOnly. A gone observation has no
// data, and no line at all when dataOnly.
func (o *Observation) AppendLine(b []byte, dataOnly bool) []byte {
	switch {
	case dataOnly && o.Gone:
		return b
	case dataOnly:
		b = append(b, o.Data...)
	default:
		b = o.appendJSON(b)
	}
	return append(b, '\n')
}

func (o *Observation) appendJSON(b []byte) []byte {
	if len(o.Data) > 2 { // more than {}
		b = append(b, o.Data[:len(o.Data)-1]...)
		b = append(b, ',')
	} else {
		b = append(b, '{')
	}
	b = append(b, `"_meta":{"source":`...)
	b = appendJSON(b, o.Key.Source)
	b = append(b, `,"key":`...)
	b = appendJSON(b, o.Key.Target)
	b = append(b, `,"job":`...)
	b = appendJSON(b, o.Job)
	b = append(b, `,"window":`...)
	b = appendWindow(b, o.Window)
	b = append(b, `,"country":`...)
	b = appendCountry(b, o.Country)
	b = append(b, `,"url":`...)
	b = appendJSON(b, o.URL)
	b = append(b, `,"parser_version":`...)
	b = strconv.AppendInt(b, int64(o.Version), 10)
	b = append(b, `,"revision":`...)
	b = strconv.AppendInt(b, int64(o.Revision), 10)
	b = append(b, `,"fingerprint":"`...)
	b = append(b, o.Fingerprint()...)
	b = append(b, `","observed_at":"`...)
	b = o.ObservedAt.UTC().AppendFormat(b, time.RFC3339)
	b = append(b, `","missing":[`...)
	for i, name := range o.Missing {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(b, name)
	}
	b = append(b, ']')
	if o.Gone {
		b = append(b, `,"gone":true`...)
	}
	return append(b, "}}"...)
}

// appendWindow appends a window's start as JSON, null for none.
func appendWindow(b []byte, window time.Time) []byte {
	if window.IsZero() {
		return append(b, "null"...)
	}
	b = window.UTC().AppendFormat(append(b, '"'), time.RFC3339)
	return append(b, '"')
}

// appendCountry appends a country as JSON, null for none.
func appendCountry(b []byte, country string) []byte {
	if country == "" {
		return append(b, "null"...)
	}
	return appendJSON(b, country)
}

// appendJSON appends text as a JSON string without HTML escaping.
func appendJSON(b []byte, text string) []byte {
	for i := 0; i < len(text); i++ {
		if c := text[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			var buf bytes.Buffer
			e := json.NewEncoder(&buf)
			e.SetEscapeHTML(false)
			if err := e.Encode(text); err != nil {
				panic(err) // a string always encodes
			}
			return append(b, bytes.TrimRight(buf.Bytes(), "\n")...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

// Observation reads the one under a key. Error: ErrNotFound.
func (tx *Tx) Observation(key JobKey) (*Observation, error) {
	place := observationKey(key)
	v := tx.get(bucketObservation, place)
	if v == nil {
		return nil, fmt.Errorf("observation %s: %w", key, ErrNotFound)
	}
	return decodeObservation(place, v)
}

// Observations calls fn with up to limit observations of a source in the order
// of (record key, country, window, version), beginning after the place that an
// earlier call gave (nil: from the first). It gives the place to go on from,
// nil when there are no more. Rows that differ only in window, version or
// scope are never parted between two calls, so limit may be passed by a few.
func (tx *Tx) Observations(source string, after []byte, limit int, fn func(*Observation) error) ([]byte, error) {
	prefix := counterKey(source, "")
	c := tx.bucket(bucketObservation).Cursor()
	k, v := c.Seek(prefix)
	if after != nil {
		if k, v = c.Seek(after); bytes.Equal(k, after) {
			k, v = c.Next()
		}
	}
	var group []*Observation
	var current, last []byte
	for n := 0; bytes.HasPrefix(k, prefix); k, v = c.Next() {
		g, ok := observationGroup(k)
		if !ok {
			return nil, &RecordError{bucketNames[bucketObservation], bytes.Clone(k), errShort}
		}
		if !bytes.Equal(g, current) {
			if err := inOrder(group, fn); err != nil {
				return nil, err
			}
			if group, current = group[:0], g; n >= limit {
				return bytes.Clone(last), nil
			}
		}
		o, err := decodeObservation(k, v)
		if err != nil {
			return nil, err
		}
		group, last = append(group, o), k
		n++
	}
	return nil, inOrder(group, fn)
}

// inOrder hands out one group by window and version. The bucket's key cannot:
// it has no window where the write mode keeps one observation per key.
func inOrder(group []*Observation, fn func(*Observation) error) error {
	sortObservations(group)
	for _, o := range group {
		if err := fn(o); err != nil {
			return err
		}
	}
	return nil
}

func sortObservations(group []*Observation) {
	slices.SortStableFunc(group, func(a, b *Observation) int {
		return cmp.Or(
			cmp.Compare(windowOrder(a.Window), windowOrder(b.Window)),
			cmp.Compare(a.Version, b.Version),
		)
	})
}
