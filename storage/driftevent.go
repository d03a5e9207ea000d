package storage

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// driftTold is what an event says of a field that has drifted. Its members are in
// the order in which they are written.
type driftTold struct {
	Source        string       `json:"source"`
	Host          string       `json:"host"`
	Country       *string      `json:"country"` // nil: any
	ParserVersion int          `json:"parser_version"`
	Field         *string      `json:"field"` // nil: the page as a whole
	Required      bool         `json:"required"`
	Since         time.Time    `json:"since"`
	ShareBefore   float64      `json:"share_before"`
	ShareNow      float64      `json:"share_now"`
	Pages         int          `json:"pages"`
	Example       driftExample `json:"example"`
	Paused        bool         `json:"paused"`
}

// driftExample is the job whose page showed it.
type driftExample struct {
	Job      string `json:"job"`
	ID       uint64 `json:"id"`
	URL      string `json:"url"`
	Attempts uint32 `json:"attempts"` // that counted then
}

// id is the same for the same page that shows the same.
func (t *driftTold) id() string {
	field := "-" // no name of a field begins with it
	if t.Field != nil {
		field = *t.Field
	}
	return eventID(EventDrifted, t.Source, strconv.Itoa(t.ParserVersion), field,
		t.Example.Job, strconv.FormatUint(uint64(t.Example.Attempts), 10), strconv.FormatBool(t.Paused))
}

// emitDrift tells that a field has drifted, or, where the source has paused, that it
// has for that.
func (tx *Tx) emitDrift(d *Drift, field int, r *Reading, sinks []Subscription) error {
	if !anyWants(sinks, EventDrifted) {
		return nil
	}
	j, err := tx.Job(r.Job)
	if err != nil {
		return err
	}
	is := d.drifted(field)
	told := driftTold{
		Source: d.Lane.Source, Host: d.Lane.Host, ParserVersion: d.Version, Required: is.Required, Since: is.Since.Truncate(time.Second),
		ShareBefore: is.Before.part(), ShareNow: is.Now.part(), Pages: is.Pages,
		Example: driftExample{Job: j.Key.String(), ID: j.ID, URL: j.URL, Attempts: j.Attempts},
		Paused:  !d.Paused.IsZero(),
	}
	if is.Lane.Country != "" {
		told.Country = &is.Lane.Country
	}
	if is.Field != "" {
		told.Field = &is.Field
	}
	data, err := json.Marshal(told)
	if err != nil {
		return err
	}
	return tx.emit(sinks, Event{ID: told.id(), Job: j.ID, Type: EventDrifted, Key: told.Source, Data: data})
}

// part is the share of 1.
func (s Share) part() float64 { return float64(s) / float64(Whole) }

// driftEvent wants an event to say what its id and its own data say, and its example
// to be there, with that many attempts or more.
func (c *checker) driftEvent(k []byte, e *Event) {
	var told driftTold
	if err := json.Unmarshal(e.Data, &told); err != nil {
		c.breach(bucketEvent, k, "its data is not that of a field that has drifted: %v", err)
		return
	}
	if anew, err := json.Marshal(told); err == nil {
		if told.Host == "" { // as events were in schema 5
			anew = bytes.Replace(anew, []byte(`"host":"","country":null,`), nil, 1)
		}
		c.same(bucketEvent, k, e.Data, anew)
	}
	c.rules(bucketEvent, k,
		rule{e.ID != told.id(), "its id is not that of what it tells"},
		rule{e.Key != told.Source, "it tells of another source than its key"},
		rule{e.Job != told.Example.ID, "it tells of another job than the one that it is of"},
	)
	j, err := c.tx.Job(e.Job)
	switch {
	case c.outlived(e.Seq, err):
	case err != nil:
		c.breach(bucketEvent, k, "its job: %v", err)
	default:
		c.rules(bucketEvent, k, rule{told.Example.Attempts > j.Attempts, "it tells of more attempts than its job has"})
	}
}
