package storage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Problem is one place where a page does not fit its rules.
type Problem struct {
	Row    int    // from 0; -1: the page as a whole
	Field  string // "": no single field is at fault
	Value  string // what stands there, shortened to 200 bytes by the parser; "": nothing does
	Reason string // what was expected, for people
}

// MaxProblems is how many problems of a page are kept: who mends rules needs
// some of them, and a listing can have a hundred thousand rows.
const MaxProblems = 100

// Quarantine is a page that did not fit its rules, as a whole or in some of its
// rows. It stands until what the page gives is committed, the job completes by
// another page, or a person discards it. A job has one at most, that of the page
// that failed last.
type Quarantine struct {
	Job        uint64
	Generation uint32    // of the attempt that read the page, which has it where it was kept
	Attempts   uint32    // of the job that counted when it was read
	Version    int       // of the rules that it did not fit
	Since      time.Time // when it was set aside under these rules
	Rows       int       // that did fit, and were committed
	Problems   []Problem // the first MaxProblems
	More       int       // problems beyond these
}

const quarantineVersion = 2 // as all records that are sealed

func (q *Quarantine) encode() []byte {
	e := newEncoder(quarantineVersion, 64+128*len(q.Problems))
	e.u32(q.Generation)
	e.u32(q.Attempts)
	e.u32(uint32(q.Version))
	e.time(q.Since)
	e.u32(uint32(q.Rows))
	e.u32(uint32(q.More))
	e.u32(uint32(len(q.Problems)))
	for _, p := range q.Problems {
		e.i64(int64(p.Row))
		e.text(p.Field)
		e.text(p.Value)
		e.text(p.Reason)
	}
	return e.sealed()
}

func decodeQuarantine(key, b []byte) (*Quarantine, error) {
	d := newDecoder(quarantineVersion, b)
	q := &Quarantine{
		Job: tailID(key), Generation: d.u32(), Attempts: d.u32(), Version: int(d.u32()),
		Since: d.time(), Rows: int(d.u32()), More: int(d.u32()),
	}
	for n := d.u32(); n > 0 && d.err == nil; n-- {
		q.Problems = append(q.Problems, Problem{Row: int(d.i64()), Field: d.text(), Value: d.text(), Reason: d.text()})
	}
	if err := d.done(); err != nil {
		return nil, &RecordError{bucketNames[bucketQuarantine], slices.Clone(key), err}
	}
	return q, nil
}

// Quarantine reads what a job has in quarantine. Error: ErrNotFound.
func (tx *Tx) Quarantine(job uint64) (*Quarantine, error) {
	v := tx.get(bucketQuarantine, idKey(job))
	if v == nil {
		return nil, fmt.Errorf("quarantine of job %d: %w", job, ErrNotFound)
	}
	return decodeQuarantine(idKey(job), v)
}

// Quarantined calls fn with what jobs of ids over after have in quarantine, in
// the order of their ids, until fn returns false or limit were read, and gives
// the last id it read; 0 when there are no more.
func (tx *Tx) Quarantined(after uint64, limit int, fn func(*Quarantine) bool) (last uint64, err error) {
	c := tx.bucket(bucketQuarantine).Cursor()
	for k, v := c.Seek(idKey(after + 1)); k != nil; k, v = c.Next() {
		q, err := decodeQuarantine(k, v)
		if err != nil {
			return 0, err
		}
		if !fn(q) || limit == 1 {
			return q.Job, nil
		}
		limit--
	}
	return 0, nil
}

// hasQuarantine reports whether a job has something in quarantine.
func (tx *Tx) hasQuarantine(job uint64) bool { return tx.get(bucketQuarantine, idKey(job)) != nil }

// newQuarantine is what sets aside the page that the last attempt of a job has read.
func (tx *Tx) newQuarantine(j *Job, version int, problems []Problem) *Quarantine {
	return &Quarantine{
		Job: j.ID, Generation: j.Generation, Attempts: j.Attempts, Version: version, Since: tx.Now,
		Problems: problems[:min(len(problems), MaxProblems)], More: max(0, len(problems)-MaxProblems),
	}
}

// setAside quarantines a page in the place of an older one, and tells of it: once
// for each page and version of the rules.
func (tx *Tx) setAside(j *Job, q *Quarantine, sinks []Subscription) error {
	before, err := tx.Quarantine(j.ID)
	switch {
	case isNotFound(err):
		tx.count(j.Key.Source, MetricQuarantine, 1)
	case err != nil:
		return err
	}
	told := err == nil && before.Attempts == q.Attempts && before.Version == q.Version
	if told {
		q.Since = before.Since
	}
	if err := tx.put(bucketQuarantine, idKey(j.ID), q.encode()); err != nil || told || !anyWants(sinks, EventQuarantined) {
		return err
	}
	key := j.Key.String()
	return tx.emit(sinks, Event{
		ID: q.eventID(key), Job: j.ID,
		Type: EventQuarantined, Key: key, Data: q.appendEvent(make([]byte, 0, 512), j, key),
	})
}

// eventID is the same for the same page under the same version of the rules.
func (q *Quarantine) eventID(key string) string {
	return eventID(EventQuarantined, key, strconv.FormatUint(uint64(q.Attempts), 10), strconv.Itoa(q.Version))
}

// appendEvent appends what the event says: the job as it is, with the attempts that
// it had when the page was read, and what is wrong.
func (q *Quarantine) appendEvent(b []byte, j *Job, key string) []byte {
	then := *j
	then.Attempts = q.Attempts
	b = then.appendEvent(b, key)
	b = append(b[:len(b)-1], `,"parser_version":`...)
	b = strconv.AppendInt(b, int64(q.Version), 10)
	b = append(b, `,"rows":`...)
	b = strconv.AppendInt(b, int64(q.Rows), 10)
	b = append(b, `,"problems":[`...)
	for i := range q.Problems {
		if i > 0 {
			b = append(b, ',')
		}
		b = q.Problems[i].appendJSON(b)
	}
	b = append(b, `],"more":`...)
	b = strconv.AppendInt(b, int64(q.More), 10)
	return append(b, '}')
}

func (p *Problem) appendJSON(b []byte) []byte {
	b = append(b, `{"row":`...)
	if p.Row < 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, int64(p.Row), 10)
	}
	for _, part := range [...]struct{ name, value string }{{"field", p.Field}, {"value", p.Value}, {"reason", p.Reason}} {
		b = append(b, ',', '"')
		b = append(b, part.name...)
		b = append(b, '"', ':')
		b = appendJSON(b, part.value)
	}
	return append(b, '}')
}

// UnmarshalJSON reads what an event says of a problem.
func (p *Problem) UnmarshalJSON(b []byte) error {
	said := struct {
		Row                  *int
		Field, Value, Reason string
	}{}
	if err := json.Unmarshal(b, &said); err != nil {
		return err
	}
	*p = Problem{-1, said.Field, said.Value, said.Reason}
	if said.Row != nil {
		p.Row = *said.Row
	}
	return nil
}

// endQuarantine lets go of what a job has in quarantine, if it has anything.
func (tx *Tx) endQuarantine(j *Job) error {
	if !tx.hasQuarantine(j.ID) {
		return nil
	}
	tx.count(j.Key.Source, MetricQuarantine, -1)
	return tx.remove(bucketQuarantine, idKey(j.ID))
}

// DiscardQuarantine drops what a job has in quarantine, for a person: the job
// stays as it is, and its page is kept no longer than others. Error: ErrNotFound.
func (tx *Tx) DiscardQuarantine(job uint64) error {
	if _, err := tx.Quarantine(job); err != nil {
		return err
	}
	j, err := tx.Job(job)
	if err != nil {
		return err
	}
	return tx.endQuarantine(j)
}

// quarantines wants each to be of a job, and of an attempt of its that read a
// page.
func (c *checker) quarantines() {
	c.each(bucketQuarantine, func(k, v []byte) {
		if len(k) != 8 || tailID(k) == 0 {
			c.breach(bucketQuarantine, k, "its key is not an id from 1")
			return
		}
		q, err := decodeQuarantine(k, v)
		if err != nil {
			c.unreadable(bucketQuarantine, k, err)
			return
		}
		c.written(bucketQuarantine, k, v, q.encode())
		c.rules(bucketQuarantine, k, quarantineRules(q)...)
		if j := c.jobOf(bucketQuarantine, k, q.Job); j != nil {
			c.recount(j.Key.Source, MetricQuarantine, 1)
			c.quarantined(k, q, j)
		}
	})
}

// quarantineRules are what a record promises by itself.
func quarantineRules(q *Quarantine) []rule {
	silent := func(p Problem) bool { return p.Reason == "" }
	return []rule{
		{len(q.Problems) == 0, "it has no problem"},
		{slices.ContainsFunc(q.Problems, silent), "it has a problem for no reason"},
		{len(q.Problems) > MaxProblems || q.More > 0 && len(q.Problems) < MaxProblems, "it has more problems than are kept, or counts some that it could keep"},
		{q.Version == 0, "it is of no version of the rules"},
		{q.Since.IsZero(), "it is set aside since no time"},
	}
}

// quarantined compares what is in quarantine with its job and attempt.
func (c *checker) quarantined(k []byte, q *Quarantine, j *Job) {
	c.rules(bucketQuarantine, k,
		rule{q.Attempts > j.Attempts, "it tells of more attempts than its job has"},
		rule{j.State == StateComplete && q.Generation != j.Generation, "its job was completed since, by another attempt"},
	)
	a, err := c.tx.attempt(q.Job, q.Generation)
	switch {
	case isNotFound(err):
		c.breach(bucketQuarantine, k, "there is no attempt %d of job %d", q.Generation, q.Job)
	case err == nil && a.Outcome != OutcomeFail && a.Outcome != OutcomeComplete: // one that cannot be read is told as such
		c.breach(bucketQuarantine, k, "attempt %d of job %d neither failed nor completed", q.Generation, q.Job)
	}
}
