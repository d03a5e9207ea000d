package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

func (c *checker) observations() {
	c.each(bucketObservation, func(k, v []byte) {
		o, err := decodeObservation(k, v)
		if err != nil {
			c.unreadable(bucketObservation, k, err)
			return
		}
		c.recount(o.Key.Source, MetricObservations, 1)
		c.written(bucketObservation, k, v, o.encode())
		c.same(bucketObservation, k, k, observationKey(o.Key))
		c.rules(bucketObservation, k, observationRules(o)...)
		c.numberedRow(k, o)
		if j := c.maker(bucketObservation, k, o); j != nil {
			c.made(bucketObservation, k, o, j)
			c.owner(k, o, j)
		}
	})
}

// observationRules are what an observation promises by itself.
func observationRules(o *Observation) []rule {
	object := len(o.Data) > 1 && o.Data[0] == '{' && o.Data[len(o.Data)-1] == '}' && json.Valid(o.Data)
	missing := slices.Sorted(slices.Values(o.Missing))
	return []rule{
		{o.Gone && len(o.Data) > 0, "it is gone and has data"},
		{!o.Gone && !object, "its data is not a JSON object"},
		{o.Revision < 1, "its revision is 0"},
		{o.ObservedAt.IsZero(), "it was observed at no time"},
		{slices.Contains(missing, "") || len(slices.Compact(missing)) < len(o.Missing), "its list of missing fields has no name or one twice"},
	}
}

// maker reads the job that an observation names, whose key must be that of the
// observation but for the target and a window; nil: it is told what is wrong, or
// an event has outlived it.
func (c *checker) maker(id bucket, key []byte, o *Observation) *Job {
	made, err := ParseJobKey(o.Job)
	if err != nil || made.String() != o.Job {
		c.breach(id, key, "it names %q, which is not the key of a job", o.Job)
		return nil
	}
	own := o.Key
	if made.Target = own.Target; own.Window.IsZero() || made.Window.Equal(own.Window) {
		made.Window = own.Window
	}
	if made != own {
		c.breach(id, key, "it names job %s, of another source, country, window, scope or version", o.Job)
		return nil
	}
	j, err := c.tx.jobByText(o.Job)
	if err != nil && (id != bucketEvent || !c.outlived(tailID(key), err)) {
		c.breach(id, key, "its job: %v", err)
	}
	return j
}

// made compares an observation with the job that made it. A job that completed
// more than once has more than one page to its name, and may have changed its
// country between them; of those it has forgotten nobody knows.
func (c *checker) made(id bucket, k []byte, o *Observation, j *Job) {
	list, err := c.tx.Attempts(j.ID)
	if err != nil {
		return // told with the attempts
	}
	list = slices.DeleteFunc(list, func(a Attempt) bool { return a.Outcome != OutcomeComplete })
	same := func(a Attempt) bool { return a.FinalURL == o.URL && a.ParserVersion == o.Version }
	whole := j.Forgotten == 0
	once := whole && j.State == StateComplete && len(list) <= 1
	if !o.Window.Equal(j.Window) || once && o.Country != j.Country {
		c.breach(id, k, "its window or country is not that of job %d", j.ID)
	}
	switch {
	case !whole:
	case len(list) == 0 && j.State != StateComplete:
		c.breach(id, k, "job %d, which made it, never completed", j.ID)
	case len(list) > 0 && !slices.ContainsFunc(list, same):
		c.breach(id, k, "no attempt of job %d read %s by version %d of the rules", j.ID, o.URL, o.Version)
	}
}

func (c *checker) events() {
	c.each(bucketEvent, func(k, v []byte) {
		if len(k) != 8 || tailID(k) == 0 {
			c.breach(bucketEvent, k, "its key is not a number from 1")
			return
		}
		e, err := decodeEvent(tailID(k), v)
		if err != nil {
			c.unreadable(bucketEvent, k, err)
			return
		}
		c.see(eventSequence, e.Seq)
		c.written(bucketEvent, k, v, e.encode())
		c.eventListed(k, e)
		switch e.Type {
		case EventCreated, EventUpdated:
			c.observationEvent(k, e)
		case EventJobComplete, EventJobFailed, EventQuarantined:
			c.jobEvent(k, e)
		case EventRunFinished:
			c.runEvent(k, e)
		case EventDrifted:
			c.driftEvent(k, e)
		case EventReplaced:
			c.replacedEvent(k, e)
		default:
			c.breach(bucketEvent, k, "its type is unknown: %s", e.Type)
		}
	})
}

// observationEvent wants an event to say what its id and its own data say, and
// the observation to be there, in the same revision or a later one.
func (c *checker) observationEvent(k []byte, e *Event) {
	now := c.told(k, e)
	then := now // nearly always, and then there is nothing to read
	if now == nil || !bytes.Equal(now.appendJSON(nil), e.Data) {
		if then = c.asTold(k, e); then == nil {
			return
		}
	}
	c.rules(bucketEvent, k,
		rule{e.ID != observationEventID(e.Type, false, then) && e.ID != observationEventID(e.Type, true, then), "its id is not that of what it tells"},
		rule{(e.Type == EventCreated) != (then.Revision == 1), "its type and the revision it tells of contradict each other"},
		rule{e.Timestamp.Before(then.ObservedAt), "it tells of what was observed after it"},
	)
	switch {
	case now == nil || then.Revision < now.Revision:
	case then.Revision > now.Revision:
		c.breach(bucketEvent, k, "it tells of revision %d, the observation is in revision %d", then.Revision, now.Revision)
	case !then.sameContent(now) || then.ObservedAt.Unix() != now.ObservedAt.Unix():
		c.breach(bucketEvent, k, "revision %d of the observation has another content or time", now.Revision)
	}
}

// asTold reads the observation out of an event and looks at it; nil: it is told
// that it cannot be read.
func (c *checker) asTold(k []byte, e *Event) *Observation {
	o, err := readLine(e)
	if err != nil {
		c.breach(bucketEvent, k, "its data is not that of an observation: %v", err)
		return nil
	}
	if !bytes.Contains(e.Data, replaced) {
		c.same(bucketEvent, k, e.Data, o.appendJSON(nil))
		c.maker(bucketEvent, k, o)
	}
	return o
}

// replaced stands in JSON where text was not UTF-8: what such a line says of
// names cannot be compared with what they are.
var replaced = []byte(`\ufffd`)

// told reads the observation that an event is about, as it is now; nil: it is
// told that there is none, or with the observations that it cannot be read, or
// what has become of it says nothing of the event.
func (c *checker) told(k []byte, e *Event) *Observation {
	key, err := ParseJobKey(e.Key)
	if err != nil {
		return nil // told with the event's data
	}
	if c.overtaken(key, e) {
		return nil
	}
	place := observationKey(key)
	v := c.tx.get(bucketObservation, place)
	if v == nil {
		c.breach(bucketEvent, k, "there is no observation %s", e.Key)
		return nil
	}
	o, err := decodeObservation(place, v)
	if err != nil {
		return nil
	}
	return o
}

// readLine reads an observation out of its event.
func readLine(e *Event) (*Observation, error) {
	key, err := ParseJobKey(e.Key)
	if err != nil {
		return nil, err
	}
	// Quotes inside text are escaped, so that no text can look like this.
	meta := bytes.LastIndex(e.Data, []byte(`"_meta":{"source":`))
	if meta < 1 {
		return nil, errors.New("it has no _meta")
	}
	var line struct {
		Meta struct {
			Job           string
			Window        time.Time
			Country, URL  string
			ParserVersion int `json:"parser_version"`
			Revision      int
			ObservedAt    time.Time `json:"observed_at"`
			Missing       []string
			Gone          bool
		} `json:"_meta"`
	}
	if err := json.Unmarshal(append([]byte{'{'}, e.Data[meta:]...), &line); err != nil {
		return nil, err
	}
	m := line.Meta
	o := &Observation{
		Key: key, Job: m.Job, Window: m.Window, Country: m.Country, URL: m.URL, Version: m.ParserVersion,
		Revision: m.Revision, ObservedAt: m.ObservedAt, Missing: m.Missing, Gone: m.Gone,
	}
	switch {
	case meta > 1:
		o.Data = append(bytes.Clone(e.Data[:meta-1]), '}')
	case !m.Gone:
		o.Data = []byte(`{}`)
	}
	return o, nil
}

// jobEvent wants an event to say what its id and its own data say, and the job
// to be there, with that many attempts or more.
func (c *checker) jobEvent(k []byte, e *Event) {
	var told jobTold
	if err := json.Unmarshal(e.Data, &told); err != nil {
		c.breach(bucketEvent, k, "its data is not that of a job: %v", err)
		return
	}
	j, err := c.tx.jobByText(e.Key)
	if err == nil && told.ID < j.ID { // its key was taken again
		_, err = c.tx.Job(told.ID)
	}
	switch {
	case c.outlived(e.Seq, err):
		return
	case err != nil:
		c.breach(bucketEvent, k, "its job: %v", err)
		return
	}
	id, data, typed := told.event(e, j.Key)
	placed := bytes.Contains(e.Data, []byte(`,"window":`))
	if !placed { // as events were before schema 5
		data = bytes.Replace(data, []byte(`,"window":null,"country":null`), nil, 1)
	}
	if !bytes.Contains(e.Data, replaced) {
		c.same(bucketEvent, k, e.Data, data)
	}
	c.rules(bucketEvent, k,
		rule{e.ID != id, "its id is not that of what it tells"},
		rule{!typed, "its type and the state it tells of contradict each other"},
		rule{told.ID != j.ID, "it tells of another job than its key"},
		rule{placed && !told.Window.Equal(j.Window), "it tells of another window than that of its job"},
		rule{e.Job != 0 && e.Job != told.ID, "it tells of another job than the one that it is of"},
		rule{told.Attempts > j.Attempts, "it tells of more attempts than its job has"},
	)
}

// jobTold is what an event says of a job, and of its page.
type jobTold struct {
	ID            uint64
	State         JobState
	URL, Reason   string
	Category      Category
	Window        time.Time
	Country       string // of then: a job may change its own
	Attempts      uint32
	ParserVersion int `json:"parser_version"`
	Rows, More    int
	Problems      []Problem
}

// event is the id and the data that an event which says this should have, and
// whether its type is one of this state.
func (t *jobTold) event(e *Event, key JobKey) (id string, data []byte, typed bool) {
	j := Job{
		ID: t.ID, Key: key, State: t.State, URL: t.URL, Category: t.Category, Reason: t.Reason,
		Window: t.Window, Country: t.Country, Attempts: t.Attempts,
	}
	if e.Type == EventQuarantined {
		q := Quarantine{Attempts: t.Attempts, Version: t.ParserVersion, Rows: t.Rows, Problems: t.Problems, More: t.More}
		return q.eventID(e.Key), q.appendEvent(nil, &j, e.Key), t.State.Terminal()
	}
	return jobEventID(e.Type, e.Key, t.Attempts), j.appendEvent(nil, e.Key), e.Type == "job."+string(t.State)
}

// outlived reports whether err says that the job of an event is gone, and may
// be: Prune forgets a job before its events, once none of their dispatches binds
// it.
func (c *checker) outlived(event uint64, err error) bool {
	if !isNotFound(err) {
		return false
	}
	bound, err := c.tx.anyDispatch(event, (*Dispatch).bindsJob)
	return !bound || err != nil // one that cannot be read is told as such
}
