package storage

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var heldKey = []byte("u:1999-12-31T00%3A00%3A00Z:-") // of runHeld

const (
	eventReplaced = 13 // of runHeld
	eventFinished = 14
)

func changeStaged(key []byte, change func(*Observation)) func(*Tx) error {
	return func(tx *Tx) error {
		o, err := tx.stagedRow(key)
		if err != nil {
			return err
		}
		change(o)
		return tx.put(bucketStaged, key, o.encode())
	}
}

// runDamage is to runs, their keys and their events.
var runDamage = []damage{
	{"garbage", put(bucketRun, idKey(runLater), garbage), []Breach{
		{"run", idKey(runLater), "it cannot be read: record has an unknown version"},
		{"run", idKey(runLater), "it is missing, and 1 jobs are of it"},
		{"runkey", []byte("s:1999-12-31T00%3A00%3A00Z:-"), "it leads to no run of this key"},
	}},
	{"flag of 3", changeRecord(bucketRun, idKey(runLater), withByte(51, 3)), []Breach{
		{"run", idKey(runLater), "it reads as a record that would be written differently"},
	}},
	{"missing", remove(bucketRun, idKey(runLater)), []Breach{
		{"run", idKey(runLater), "it is missing, and 1 jobs are of it"},
		{"runkey", []byte("s:1999-12-31T00%3A00%3A00Z:-"), "it leads to no run of this key"},
	}},
	{"key of no id", copyTo(bucketRun, idKey(runLater), []byte("x")), []Breach{
		{"run", []byte("x"), "its key is not a number from 1"},
	}},
	{"unknown kind", changeRun(runLater, func(r *Run) { r.Kind = "odd" }), []Breach{
		{"run", idKey(runLater), "its kind is unknown: odd"},
	}},
	{"no source", changeRun(runLater, func(r *Run) { r.Key.Source = "" }), []Breach{
		{"run", idKey(runLater), "it has no source"},
		{"run", idKey(runLater), "its key -:1999-12-31T00%3A00%3A00Z:- is missing in bucket runkey, or leads elsewhere"},
		{"runkey", []byte("s:1999-12-31T00%3A00%3A00Z:-"), "it leads to no run of this key"},
	}},
	{"no window", changeRun(runLater, func(r *Run) { r.Key.Window = noTime }), []Breach{
		{"run", idKey(runLater), "it has neither a window nor an import, or both"},
		{"run", idKey(runLater), "its key s:-:- is missing in bucket runkey, or leads elsewhere"},
		{"runkey", []byte("s:1999-12-31T00%3A00%3A00Z:-"), "it leads to no run of this key"},
	}},
	{"a window and an import", changeRun(runLater, func(r *Run) { r.Key.Import = "x.csv" }), []Breach{
		{"run", idKey(runLater), "it has neither a window nor an import, or both"},
		{"run", idKey(runLater), "its key s:1999-12-31T00%3A00%3A00Z:x.csv is missing in bucket runkey, or leads elsewhere"},
		{"runkey", []byte("s:1999-12-31T00%3A00%3A00Z:-"), "it leads to no run of this key"},
	}},
	{"window within a second", changeRun(runLater, func(r *Run) { r.Key.Window = r.Key.Window.Add(time.Millisecond) }), []Breach{
		{"run", idKey(runLater), "its window does not begin with a second"},
	}},
	{"jobs", changeRun(runLater, func(r *Run) { r.Jobs++ }), []Breach{
		{"run", idKey(runLater), "its counts are not those of its jobs"},
	}},
	{"open jobs", changeRun(runLater, func(r *Run) { r.Open++ }), []Breach{
		{"run", idKey(runLater), "its counts are not those of its jobs"},
	}},
	{"failed jobs", changeRun(runLater, func(r *Run) { r.Failed++ }), []Breach{
		{"run", idKey(runLater), "its counts are not those of its jobs"},
	}},
	{"finished and never offered", changeRun(runLater, func(r *Run) { r.Finished = r.Created }), []Breach{
		{"run", idKey(runLater), "it is finished and its targets were never offered"},
	}},
	{"offered and never finished", changeRun(runLater, func(r *Run) { r.Offered = true }), []Breach{
		{"run", idKey(runLater), "nothing of it has work ahead, and it is not finished"},
	}},
	{"changed and never replaced", changeRun(runLater, func(r *Run) { r.Revision = 1 }), []Breach{
		{"run", idKey(runLater), "its rows have changed and were never replaced"},
	}},
	{"told of too often", changeRun(runHeld, func(r *Run) { r.Told = append(r.Told, 1) }), []Breach{
		{"run", idKey(runHeld), "its rows are told of more often than they have changed"},
	}},
	{"held for nothing", changeRun(runHeld, func(r *Run) { r.Held = "" }), []Breach{
		{"run", idKey(runHeld), "it is held since no time, or for no reason"},
		{"run", idKey(runHeld), "what is staged for it is neither promoted nor held"},
	}},
	{"held since no time", changeRun(runHeld, func(r *Run) { r.HeldSince = noTime }), []Breach{
		{"run", idKey(runHeld), "it is held since no time, or for no reason"},
	}},
	{"held while it works", changeRun(runHeld, func(r *Run) { r.Listing = true }), []Breach{
		{"run", idKey(runHeld), "it has work ahead and is held or discarded"},
	}},
	{"held with nothing staged", changeRun(runLater, func(r *Run) { r.Held, r.HeldSince = "odd", r.Created }), []Breach{
		{"run", idKey(runLater), "it is held and nothing is staged for it"},
	}},
	{"neither promoted nor held", changeRun(runHeld, func(r *Run) { r.Held, r.HeldSince = "", noTime }), []Breach{
		{"run", idKey(runHeld), "what is staged for it is neither promoted nor held"},
	}},
	{"discarded with something staged", changeRun(runHeld, func(r *Run) { r.Held, r.HeldSince, r.Discarded = "", noTime, r.Created }), []Breach{
		{"run", idKey(runHeld), "what is staged for it is neither promoted nor held"},
		{"run", idKey(runHeld), "it is discarded, and something is staged for it"},
	}},
	{"sequence", put(bucketMeta, []byte("run"), i64(1)), []Breach{
		{"meta", []byte("run"), "it says 1, and 7 is in use"},
	}},
	{"key missing", remove(bucketRunKey, heldKey), []Breach{
		{"run", idKey(runHeld), "its key u:1999-12-31T00%3A00%3A00Z:- is missing in bucket runkey, or leads elsewhere"},
		{"event", idKey(eventReplaced), "its run: run u:1999-12-31T00%3A00%3A00Z:-: not found"},
		{"event", idKey(eventFinished), "its run: run u:1999-12-31T00%3A00%3A00Z:-: not found"},
	}},
	{"key of another run", put(bucketRunKey, heldKey, idKey(runLater)), []Breach{
		{"run", idKey(runHeld), "its key u:1999-12-31T00%3A00%3A00Z:- is missing in bucket runkey, or leads elsewhere"},
		{"runkey", heldKey, "it leads to no run of this key"},
		{"event", idKey(eventReplaced), "it tells of another run than its key"},
		{"event", idKey(eventReplaced), "the rows of its run were never replaced"},
		{"event", idKey(eventReplaced), "it tells of a later revision than that of its run"},
		{"event", idKey(eventFinished), "its run was finished at another time"},
	}},
	{"key of no run", put(bucketRunKey, []byte("u:-:x"), idKey(77)), []Breach{
		{"runkey", []byte("u:-:x"), "it leads to no run of this key"},
	}},
	{"runkey of no id", put(bucketRunKey, []byte("u:-:x"), []byte("x")), []Breach{
		{"runkey", []byte("u:-:x"), "it leads to no run of this key"},
	}},
	{"job of another run", changeJob(jobLater, func(j *Job) { j.Run = runHeld }), []Breach{
		{"run", idKey(runLater), "its counts are not those of its jobs"},
		{"run", idKey(runHeld), "its counts are not those of its jobs"},
	}},
	{"event of no run", changeEvent(eventFinished, func(e *Event) { e.Key = "u:-:ghost" }), []Breach{
		{"event", idKey(eventFinished), "its run: run u:-:ghost: not found"},
	}},
	{"event of nothing", changeEvent(eventFinished, func(e *Event) { e.Key = "x" }), []Breach{
		{"event", idKey(eventFinished), `it names "x", which is not the key of a run`},
	}},
	{"event of another id", changeEvent(eventFinished, func(e *Event) { e.ID = "evt_0" }), []Breach{
		{"event", idKey(eventFinished), "its id is not that of what it tells"},
	}},
	{"event cut short", changeEvent(eventFinished, func(e *Event) { e.Data = e.Data[:9] }), []Breach{
		{"event", idKey(eventFinished), "its data is not JSON"},
	}},
	{"event at another time", changeEvent(eventFinished, func(e *Event) { e.Timestamp = e.Timestamp.Add(time.Second) }), []Breach{
		{"event", idKey(eventFinished), "its run was finished at another time"},
	}},
	{"replaced: of no run", changeEvent(eventReplaced, func(e *Event) { e.Key = "u:-:ghost" }), []Breach{
		{"event", idKey(eventReplaced), "its run: run u:-:ghost: not found"},
	}},
	{"replaced: of another run", changeEvent(eventReplaced, func(e *Event) { e.Key = "t:1999-12-31T00%3A00%3A00Z:-" }), []Breach{
		{"event", idKey(eventReplaced), "it tells of another run than its key"},
		{"event", idKey(eventReplaced), "the rows of its run were never replaced"},
		{"event", idKey(eventReplaced), "it tells of a later revision than that of its run"},
	}},
	{"replaced: cut short", changeEvent(eventReplaced, func(e *Event) { e.Data = e.Data[:9] }), []Breach{
		{"event", idKey(eventReplaced), "its data is not that of a window: unexpected end of JSON input"},
	}},
	{"replaced: spaced", changeEvent(eventReplaced, says(`"rows":`, `"rows": `)), []Breach{
		{"event", idKey(eventReplaced), "it reads as a record that would be written differently"},
	}},
	{"replaced: of other rows", changeEvent(eventReplaced, says(`"sha256":"`, `"sha256":"0`)), []Breach{
		{"event", idKey(eventReplaced), "its id is not that of what it tells"},
	}},
	{"replaced: of a revision to come", changeEvent(eventReplaced, says(`"revision":1`, `"revision":2`)), []Breach{
		{"event", idKey(eventReplaced), "it tells of a later revision than that of its run"},
	}},
	{"replaced: no change", changeEvent(eventReplaced, says(`"added":3`, `"added":0`)), []Breach{
		{"event", idKey(eventReplaced), "it tells of no change"},
	}},
}

// replaceDamage is to what is staged and to whose rows are whose.
var replaceDamage = []damage{
	{"garbage", put(bucketStaged, stagedP, garbage), []Breach{
		{"staged", stagedP, "it cannot be read: record has an unknown version"},
	}},
	{"a bit", changeRaw(bucketStaged, stagedP, withByte(40, 1)), []Breach{
		{"staged", stagedP, "it cannot be read: record is not what was written: its checksum differs"},
	}},
	{"flag of 3", changeRecord(bucketStaged, stagedP, withByte(25, 3)), []Breach{
		{"staged", stagedP, "it reads as a record that would be written differently"},
		{"staged", stagedP, "it is gone and has data"},
	}},
	{"key cut", put(bucketStaged, []byte("x"), garbage), []Breach{
		{"staged", []byte("x"), "its key is not a run's and a job's id"},
	}},
	{"place cut", copyTo(bucketStaged, stagedP, stagedP[:24]), []Breach{
		{"staged", stagedJob, "it says another number of rows than job 10 has staged"},
		{"staged", stagedP[:24], "it cannot be read: record is cut short"},
	}},
	{"another place", copyTo(bucketStaged, stagedP, rowKey(runHeld, jobStaged, rowA)), []Breach{
		{"staged", stagedJob, "it says another number of rows than job 10 has staged"},
		{"staged", rowKey(runHeld, jobStaged, rowA), "it names job u:m:-:1999-12-31T00%3A00%3A00Z:-:-, and stands under job 10"},
	}},
	{"of no job", copyTo(bucketStaged, stagedP, rowKey(runHeld, 77, rowP)), []Breach{
		{"staged", rowKey(runHeld, 77, rowP), "there is no job 77"},
	}},
	{"of another run", copyTo(bucketStaged, stagedP, rowKey(runLater, jobStaged, rowP)), []Breach{
		{"run", idKey(runLater), "what is staged for it is neither promoted nor held"},
		{"staged", rowKey(runLater, jobStaged, rowP), "job 10 is of run 7"},
	}},
	{"of another job", copyTo(bucketStaged, stagedP, rowKey(runHeld, jobHolding, rowP)), []Breach{
		{"staged", rowKey(runHeld, jobHolding, rowP), "the place of job 11 itself is missing"},
	}},
	{"a row missing", remove(bucketStaged, stagedQ), []Breach{
		{"staged", stagedJob, "it says another number of rows than job 10 has staged"},
	}},
	{"the job's own place missing", remove(bucketStaged, stagedJob), []Breach{
		{"staged", stagedP, "the place of job 10 itself is missing"},
		{"staged", stagedQ, "the place of job 10 itself is missing"},
	}},
	{"data of another kind", changeStaged(stagedP, func(o *Observation) { o.Data = []byte(`["v"]`) }), []Breach{
		{"staged", stagedP, "its data is not a JSON object"},
	}},
	{"another page", changeStaged(stagedP, func(o *Observation) { o.URL = "http://w/other" }), []Breach{
		{"staged", stagedP, "no attempt of job 10 read http://w/other by version 1 of the rules"},
	}},
	{"another job", changeStaged(stagedP, func(o *Observation) { o.Job = strings.Replace(o.Job, "u:m", "u:n", 1) }), []Breach{
		{"staged", stagedP, "it names job u:n:-:1999-12-31T00%3A00%3A00Z:-:-, and stands under job 10"},
	}},
	{"job's own place cut", put(bucketStaged, stagedJob, []byte{2, 0}), []Breach{
		{"staged", stagedJob, "it cannot be read: record is cut short"},
	}},
	{"of another attempt", changeBrought(bucketStaged, func(b *brought) { b.Generation = 3 }), []Breach{
		{"staged", stagedJob, "it is of a later attempt than its job had"},
	}},
	{"of another version", changeBrought(bucketStaged, func(b *brought) { b.Version = 2 }), []Breach{
		{"staged", stagedJob, "attempt 2 of job 10 completed nothing by version 2 of the rules"},
		{"staged", stagedP, "version 1 of the rules made it, and job 10 has staged what version 2 did"},
		{"staged", stagedQ, "version 1 of the rules made it, and job 10 has staged what version 2 did"},
	}},
	{"live: of another version", changeBrought(bucketLive, func(b *brought) { b.Version = 2 }), []Breach{
		{"live", stagedJob, "attempt 1 of job 10 completed nothing by version 2 of the rules"},
	}},
	{"live: not counted", changeBrought(bucketLive, func(b *brought) { b.Counted = false }), []Breach{
		{"live", stagedJob, "it stands and is not counted, or not as what stands"},
	}},
	{"live: as if staged", changeBrought(bucketLive, func(b *brought) { b.Whole = true }), []Breach{
		{"live", stagedJob, "it stands and is not counted, or not as what stands"},
	}},
	{"live: a row missing", remove(bucketLive, rowKey(runHeld, jobStaged, rowP)), []Breach{
		{"obs", rowP, "it is missing in bucket live under job 10"},
	}},
	{"live: the job's own place missing", remove(bucketLive, rowKey(runHeld, jobStaged, nil)), []Breach{
		{"live", rowKey(runHeld, jobStaged, rowP), "the place of job 10 itself is missing"},
		{"live", rowKey(runHeld, jobStaged, rowX), "the place of job 10 itself is missing"},
	}},
	{"live: a value", put(bucketLive, rowKey(runHeld, jobStaged, rowP), []byte("x")), []Breach{
		{"live", rowKey(runHeld, jobStaged, rowP), "it has a value"},
	}},
	{"live: key cut", put(bucketLive, []byte("x"), nil), []Breach{
		{"live", []byte("x"), "its key is not a run's and a job's id"},
	}},
	{"live: of no row", put(bucketLive, rowKey(runHeld, jobStaged, rowQ), nil), []Breach{
		{"live", rowKey(runHeld, jobStaged, rowQ), "job 10 has no such observation"},
	}},
	{"live: of another job's row", put(bucketLive, rowKey(runHeld, jobHolding, rowP), nil), []Breach{
		{"live", rowKey(runHeld, jobHolding, rowP), "job 11 has no such observation"},
	}},
	{"live: of no job", put(bucketLive, rowKey(runHeld, 77, nil), nil), []Breach{
		{"live", rowKey(runHeld, 77, nil), "there is no job 77"},
	}},
	{"live: of another run", put(bucketLive, rowKey(runLater, jobStaged, nil), nil), []Breach{
		{"live", rowKey(runLater, jobStaged, nil), "job 10 is of run 7"},
	}},
	{"row missing", remove(bucketObservation, rowP), []Breach{
		{"change", changeKey("u", 5), "it leads to no observation of this number"},
		{"live", rowKey(runHeld, jobStaged, rowP), "job 10 has no such observation"},
		{"counter", counterKey("u", "observations"), "it says 3, a recount gives 2"},
	}},
}

// changeBrought changes what the job that has staged says at its own place.
func changeBrought(id bucket, change func(*brought)) func(*Tx) error {
	return func(tx *Tx) error {
		j, err := tx.Job(jobStaged)
		if err != nil {
			return err
		}
		b, err := readBrought(id, j, tx.get(id, stagedJob))
		if err != nil {
			return err
		}
		change(&b)
		return tx.put(id, stagedJob, b.encode())
	}
}

// TestBroughtOfOlderSchema: what a job brought before it said so is that of its last
// attempt, and counts as such for its run.
func TestBroughtOfOlderSchema(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := damagedStore(t)
		old := func(tx *Tx) error {
			return errors.Join(
				tx.put(bucketStaged, stagedJob, appendU32(nil, 2)),
				tx.put(bucketLive, rowKey(runHeld, jobStaged, nil), nil),
				tx.put(bucketLive, rowKey(runHeld, jobHolding, nil), nil),
			)
		}
		if err := s.Update(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		wantClean(t, s)
		err := s.Update(t.Context(), func(tx *Tx) error { _, err := tx.ReleaseRun(runHeld, nil); return err })
		if err != nil {
			t.Fatal(err)
		}
		wantClean(t, s)
		err = s.View(func(tx *Tx) error {
			j, err := tx.Job(jobStaged)
			if err != nil {
				return err
			}
			stands, err := tx.Stands(j)
			if !stands {
				t.Errorf("what job %d has brought does not stand", j.ID)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
