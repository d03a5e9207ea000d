package storage

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Share is a part of a whole in ten-thousandths.
type Share uint16

const (
	// Whole is the Share of all.
	Whole Share = 10_000

	notRead Share = 1<<16 - 1 // of a page that says nothing of a field
)

// shareOf is n of a whole that is not 0, rounded down.
func shareOf(n, whole int) Share { return Share(n * int(Whole) / whole) }

// String is the share in percent, such as "98.5%".
func (s Share) String() string { return strconv.FormatFloat(float64(s)/100, 'f', -1, 64) + "%" }

// MaxDriftPages is how many pages a Drift keeps at most, and MinDriftPages how many can
// tell anything: that three lack what all before them had may still be chance.
const (
	MinDriftPages = 4
	MaxDriftPages = 100
)

// DriftPolicy says when a source's pages are taken to have changed.
type DriftPolicy struct {
	Fall   Share // which part of its share a field must have lost; 0: nothing is looked at
	Min    int   // records that must have been seen before
	Jobs   int   // how many pages are looked at together, the last ones: MinDriftPages to MaxDriftPages
	Failed int   // how many of these must lack a field that has drifted for the source to pause; 0: it never does
}

// Reading is what a page tells of how well it fits the rules that read it.
type Reading struct {
	Lane       LaneID         // of the job
	Version    int            // of the rules
	Job        uint64         // whose page it is
	Generation uint32         // of the attempt that read it
	Time       time.Time      // when it was fetched; zero: now
	Records    int            // that it holds, those that were set aside among them; at least 1
	Fields     []FieldReading // of the rules, in their order; at least one
}

// FieldReading is one field of a Reading. "" is the page as a whole.
type FieldReading struct {
	Name     string
	Required bool
	Records  int // in which it was looked for; 0: in none, since the page failed before
	Filled   int // of these: have a valid value
}

// Drift is how well the last pages of a lane fit a version of its source's rules, beside
// all pages before. There is none before the first page. Each host is asked at its own
// pace, so that pages of several come in no random order, and a site changes by itself.
type Drift struct {
	LaneID    LaneID
	Lane      Lane // of that number
	Version   int
	Fields    []DriftField // of the rules, in their order
	Pages     []DriftPage  // the last, the oldest first; up to DriftPolicy.Jobs
	Paused    time.Time    // since when no job of the source is handed out under these rules; zero: they are
	PausedFor string       // the field for which
}

// DriftField is a field's past, and since when pages lack it. As long as they do, its past
// stands still.
type DriftField struct {
	Name     string
	Required bool
	Past     Tally // of the pages before Drift.Pages

	Run    int       // how many of Drift.Pages came since it drifted; 0: it has not
	Since  time.Time // when the first of them was read; zero: it has not
	Before Share     // its share in all pages before that
}

// DriftPage is a page that was read.
type DriftPage struct {
	Job        uint64
	Generation uint32    // of the attempt
	Time       time.Time // when it was fetched
	Records    int
	Shares     []Share // of its records that fill each of Drift.Fields
}

const driftVersion = 2 // as all records that are sealed

func (d *Drift) encode() []byte {
	e := newEncoder(driftVersion, 64+64*len(d.Fields)+len(d.Pages)*(24+2*len(d.Fields)))
	e.time(d.Paused)
	e.text(d.PausedFor)
	e.u32(uint32(len(d.Fields)))
	for i := range d.Fields {
		f := &d.Fields[i]
		e.text(f.Name)
		e.flag(f.Required)
		e.u32(f.Past.Pages)
		e.u64(f.Past.Sum)
		e.u64(f.Past.Records)
		e.u32(uint32(f.Run))
		e.time(f.Since)
		e.u16(uint16(f.Before))
	}
	e.u32(uint32(len(d.Pages)))
	for _, p := range d.Pages {
		e.u64(p.Job)
		e.u32(p.Generation)
		e.time(p.Time)
		e.u32(uint32(p.Records))
		for _, s := range p.Shares {
			e.u16(uint16(s))
		}
	}
	return e.sealed()
}

// decodeDrift knows of the lane what the key says: its number and source.
func decodeDrift(key, b []byte) (*Drift, error) {
	dec := newDecoder(driftVersion, b)
	d := &Drift{Paused: dec.time(), PausedFor: dec.text()}
	source, rest, ok := bytes.Cut(key, []byte{0})
	if ok && len(rest) == 8 {
		d.Lane.Source = string(source)
		d.Version, d.LaneID = int(binary.BigEndian.Uint32(rest)), LaneID(binary.BigEndian.Uint32(rest[4:]))
	}
	for n := dec.u32(); n > 0 && dec.err == nil; n-- {
		d.Fields = append(d.Fields, DriftField{
			Name: dec.text(), Required: dec.flag(), Past: Tally{Pages: dec.u32(), Sum: dec.u64(), Records: dec.u64()},
			Run: int(dec.u32()), Since: dec.time(), Before: Share(dec.u16()),
		})
	}
	n := dec.u32()
	d.Pages = make([]DriftPage, 0, min(n, MaxDriftPages))
	for ; n > 0 && dec.err == nil; n-- {
		p := DriftPage{Job: dec.u64(), Generation: dec.u32(), Time: dec.time(), Records: int(dec.u32()), Shares: make([]Share, len(d.Fields))}
		for i := range p.Shares {
			p.Shares[i] = Share(dec.u16())
		}
		d.Pages = append(d.Pages, p)
	}
	if err := dec.done(); err != nil {
		return nil, &RecordError{bucketNames[bucketDrift], bytes.Clone(key), err}
	}
	return d, nil
}

// driftPrefix begins the keys of all lanes of a source under a version of its rules.
func driftPrefix(source string, version int) []byte {
	return appendU32(append([]byte(source), 0), uint32(version))
}

func driftKey(source string, version int, lane LaneID) []byte {
	return appendU32(driftPrefix(source, version), uint32(lane))
}

func (d *Drift) key() []byte { return driftKey(d.Lane.Source, d.Version, d.LaneID) }

// Drift reads how well the pages of a lane fit a version of its source's rules. The
// caller must not change it. Error: ErrNotFound (there is none, or no such lane).
func (tx *Tx) Drift(id LaneID, version int) (*Drift, error) {
	lane, err := tx.Lane(id)
	if err != nil {
		return nil, err
	}
	key := driftKey(lane.Source, version, id)
	d, changed := tx.drifts[string(key)]
	if changed && !d.forgotten() {
		return d, nil
	}
	v := tx.get(bucketDrift, key)
	if changed || v == nil {
		return nil, fmt.Errorf("drift of source %s at %s, version %d: %w", lane.Source, lane.Host, version, ErrNotFound)
	}
	if d, err = decodeDrift(key, v); err == nil {
		d.Lane = lane
	}
	return d, err
}

// Drifts reads those of all lanes of a source, in the order of their numbers, until fn
// gives false. It takes 10 to 20 µs for each (measured with 50 pages of 10 fields).
func (tx *Tx) Drifts(source string, version int, fn func(*Drift) bool) error {
	prefix := driftPrefix(source, version)
	var ids []LaneID
	c := tx.bucket(bucketDrift).Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		if len(k) != len(prefix)+4 {
			return &RecordError{bucketNames[bucketDrift], bytes.Clone(k), errors.New("its key names no lane")}
		}
		ids = append(ids, LaneID(binary.BigEndian.Uint32(k[len(prefix):])))
	}
	for _, d := range tx.drifts {
		if d.Lane.Source == source && d.Version == version {
			ids = append(ids, d.LaneID)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		switch d, err := tx.Drift(id, version); {
		case isNotFound(err): // forgotten just now
		case err != nil:
			return err
		case !fn(d):
			return nil
		}
	}
	return nil
}

// anew is one of the same lane before its first page: it stands for there being none.
func (d *Drift) anew() *Drift { return &Drift{LaneID: d.LaneID, Lane: d.Lane, Version: d.Version} }

// forgotten reports whether it is as anew makes it: one that is there has a field.
func (d *Drift) forgotten() bool { return len(d.Fields) == 0 }

// saveDrift changes a Drift, which nobody may touch again; it is written when the
// group commits, since each page of the lane moves it.
func (tx *Tx) saveDrift(d *Drift) {
	key := string(d.key())
	if tx.drifts == nil {
		tx.drifts, tx.driftsBefore = map[string]*Drift{}, map[string]*Drift{}
	}
	if _, again := tx.driftsBefore[key]; !again {
		tx.driftsBefore[key] = tx.drifts[key]
	}
	tx.drifts[key] = d
}

// undoDrifts takes back what a failed step changed of drifts.
func (tx *Tx) undoDrifts() {
	for key, was := range tx.driftsBefore {
		if was == nil {
			delete(tx.drifts, key)
		} else {
			tx.drifts[key] = was
		}
	}
	clear(tx.driftsBefore)
}

func (tx *Tx) flushDrifts() error {
	for key, d := range tx.drifts {
		var err error
		switch {
		case !d.forgotten():
			err = tx.put(bucketDrift, []byte(key), d.encode())
		case tx.get(bucketDrift, []byte(key)) != nil:
			err = tx.remove(bucketDrift, []byte(key))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Drifted is a field that pages have less often than they did.
type Drifted struct {
	Lane        Lane   // whose pages
	Field       string // "": the page as a whole
	Required    bool
	Since       time.Time // when the first page was read that lacked it
	Before, Now Share     // of a page's records that fill it, over all pages before and those since
	Pages       int       // since
	Example     uint64    // job of the last page that lacked it
}

// String is a part of a sentence for people.
func (d Drifted) String() string {
	what := "field " + d.Field
	switch {
	case d.Field == "":
		what = "a page that fits its rules"
	case d.Required:
		what = "required " + what
	}
	from := d.Lane.Host
	if d.Lane.Country != "" {
		from += ", asked from " + d.Lane.Country + ","
	}
	return fmt.Sprintf("%s is there in %s of the %d pages of %s since %s, and was in %s of those before",
		what, d.Now, d.Pages, from, d.Since.UTC().Format(time.RFC3339), d.Before)
}

// Drifted are the fields that have drifted, in the order of the rules.
func (d *Drift) Drifted() (list []Drifted) {
	for i := range d.Fields {
		if d.Fields[i].Run > 0 {
			list = append(list, d.drifted(i))
		}
	}
	return list
}

func (d *Drift) drifted(i int) Drifted {
	f := &d.Fields[i]
	out := Drifted{Lane: d.Lane, Field: f.Name, Required: f.Required, Since: f.Since, Before: f.Before}
	var now Tally
	for _, p := range d.Pages[len(d.Pages)-f.Run:] {
		now.add(p.sample(i))
		if p.Shares[i] < f.Before {
			out.Example = p.Job
		}
	}
	out.Now, out.Pages = now.Share(), int(now.Pages)
	return out
}

// DriftNews is what a page has shown of drift that none before it did.
type DriftNews struct {
	Began  []Drifted
	Paused *Drifted // for which the source pauses now; nil: for none
}

// CountPage counts a page that rules have read, in the transaction of its job's
// outcome, tells of fields that have drifted with it, and pauses the source where that is
// so for many pages. Of each version of the rules a page counts once, and that of a job
// that had failed by them not at all. Errors: ErrNotFound (there is no such lane or job).
func (tx *Tx) CountPage(r Reading, p DriftPolicy, sinks []Subscription) (news DriftNews, err error) {
	if failed, err := tx.failedBefore(&r); err != nil || failed {
		return news, err
	}
	before, err := tx.driftBefore(&r)
	if err != nil {
		return news, err
	}
	d := before.next(&r)
	if p.Failed == 0 {
		d.Paused, d.PausedFor = noTime, "" // it did, under another config
	}
	began := d.count(r.page(cmp.Or(r.Time, tx.Now)), p)
	for _, i := range began {
		news.Began = append(news.Began, d.drifted(i))
		if err := tx.emitDrift(d, i, &r, sinks); err != nil {
			return news, err
		}
	}
	if i := d.pausing(p); i >= 0 {
		d.Paused, d.PausedFor = tx.Now, d.Fields[i].Name
		paused := d.drifted(i)
		news.Paused = &paused
		if err := tx.emitDrift(d, i, &r, sinks); err != nil {
			return news, err
		}
	}
	tx.saveDrift(d)
	return news, nil
}

// failedBefore reports whether the job's page had been read by these rules before, and
// failed. Whoever asks for such pages again has chosen them for that, so that neither
// those that fail once more nor those that now fit tell of the others.
func (tx *Tx) failedBefore(r *Reading) (bool, error) {
	for generation := r.Generation - 1; generation > 0; generation-- {
		a, err := tx.attempt(r.Job, generation)
		switch {
		case isNotFound(err): // pruned, and all before it
			return false, nil
		case err != nil:
			return false, err
		case a.ParserVersion == r.Version && (a.Outcome == OutcomeFail || a.Outcome == OutcomeComplete):
			return a.Outcome == OutcomeFail, nil
		}
	}
	return false, nil
}

func (tx *Tx) driftBefore(r *Reading) (*Drift, error) {
	d, err := tx.Drift(r.Lane, r.Version)
	if !isNotFound(err) {
		return d, err
	}
	lane, err := tx.Lane(r.Lane)
	return &Drift{LaneID: r.Lane, Lane: lane, Version: r.Version}, err
}

// next is a copy to be changed: nothing but Shares, which never change, is shared. Where
// its fields are not those that were read, counting begins.
func (d *Drift) next(r *Reading) *Drift {
	same := func(f DriftField, read FieldReading) bool { return f.Name == read.Name && f.Required == read.Required }
	if slices.EqualFunc(d.Fields, r.Fields, same) {
		next := *d
		next.Fields, next.Pages = slices.Clone(d.Fields), slices.Clone(d.Pages)
		return &next
	}
	next := d.anew()
	for _, f := range r.Fields {
		next.Fields = append(next.Fields, DriftField{Name: f.Name, Required: f.Required})
	}
	return next
}

// page is a Reading as it is kept.
func (r *Reading) page(fetched time.Time) DriftPage {
	p := DriftPage{Job: r.Job, Generation: r.Generation, Time: fetched, Records: r.Records, Shares: make([]Share, len(r.Fields))}
	for i, f := range r.Fields {
		p.Shares[i] = notRead
		if f.Records > 0 {
			p.Shares[i] = shareOf(f.Filled, f.Records)
		}
	}
	return p
}

// ForgetDrift begins the counts of a source's pages under a version of its rules anew,
// for a person who takes them as they are, and ends its pause. Where there are none
// it does nothing.
func (tx *Tx) ForgetDrift(source string, version int) error {
	paused := false
	err := tx.Drifts(source, version, func(d *Drift) bool {
		paused = paused || !d.Paused.IsZero()
		tx.saveDrift(d.anew())
		return true
	})
	if err != nil || !paused {
		return err
	}
	for _, id := range tx.ReadyLanes() { // who hands them out has passed over them
		lane, err := tx.Lane(id)
		if err != nil {
			return err
		}
		if lane.Source == source {
			tx.ready = append(tx.ready, id)
		}
	}
	return nil
}
