package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The jobs of damagedStore.
const (
	jobRetryable = iota + 1 // of source s; rescued once, then tried
	jobRescued              // of source t; rescued once, then complete: rows gone and y
	jobComplete             // of source s; made row a, which jobLater updated
	jobRunning
	jobFailed
	jobPending  // released
	jobLater    // complete, for a window
	jobRequeued // of source t; failed, retried by a person, then released
	jobCanceled // of source t, its key over 128 bytes
	jobStaged   // of source u, whose run is held: staged p and q, and has p and x
	jobHolding  // of source u; failed, and has r
	jobUnfit    // of source v; failed, and its page is in quarantine
	jobReparsed // of source v; complete, read again by rules of version 2, which set a row aside
)

var (
	damagedDue    = time.Date(2000, 1, 1, 1, 0, 2, 0, time.UTC) // of jobRetryable
	damagedEnd    = time.Date(2000, 1, 1, 0, 1, 1, 0, time.UTC) // of the lease of jobRunning
	damagedWindow = time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
	damagedSinks  = []Subscription{{Sink: "a"}, {Sink: "b", Events: []string{EventJobComplete}}}
)

// damagedPage is what jobs that failed have kept, jobLater and jobReparsed.
var damagedPage = KeepPage([]byte("<p>not what the rules want</p>"))

// damagedStore is healthy and has some of everything. It is meant for a bubble,
// whose clock stands, so that the same call always makes the same store.
func damagedStore(t *testing.T) *Store {
	t.Helper()
	s := openTest(t, Options{NoSync: true})
	for _, fill := range []func(*Tx) error{fillRescued, fillOthers, fillOutcomes, fillByPerson, fillListed, fillImports, fillReplaced, fillHeld, fillDispatches, fillQuarantined, fillDrifted} {
		if err := s.Update(context.Background(), fill); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	wantClean(t, s)
	return s
}

func claimAll(tx *Tx) error {
	_, err := tx.ClaimJobs("me", time.Minute, []ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 99}})
	return err
}

func enqueueAll(tx *Tx, jobs ...NewJob) error {
	for _, n := range jobs {
		if _, err := tx.EnqueueJob(n); err != nil {
			return err
		}
	}
	return nil
}

func submit(tx *Tx, n NewJob, key string) error {
	_, err := tx.SubmitJob(n, Idempotency{Key: key})
	return err
}

func fillRescued(tx *Tx) error {
	x := newJob("x")
	x.Key = JobKey{Source: "t", Target: "x", Country: "US", Window: damagedWindow, Scope: "acme", Version: 3}
	x.Country, x.Window, x.Scope, x.Version = "US", damagedWindow, "acme", 3
	x.Vars = []Var{{"sku", "x"}}
	err := errors.Join(
		tx.PutSource(Source{Name: "s", Identity: "i", Rules: "r", Version: 1}),
		tx.PutSource(Source{Name: "t", Identity: "i", Rules: "r", Version: 3}),
		tx.PutRobots("http://h", 200, []byte("User-agent: *")),
		tx.GateHost("h", tx.Now.Add(time.Hour)),
		enqueueAll(tx, newJob("c"), x),
		claimAll(tx),
	)
	if err == nil {
		_, err = tx.RescueExpired(AllLeases, 9, func(string) RescuePolicy { return RescuePolicy{} })
	}
	return err
}

func fillOthers(tx *Tx) error {
	later := newJob("a")
	later.Window, later.Key.Window = damagedWindow, damagedWindow
	other := newJob("z")
	other.Key.Source, other.Country = "t", "DE"
	long := newJob(strings.Repeat("long", 50))
	long.Key.Source = "t"
	return errors.Join(
		enqueueAll(tx, newJob("a"), newJob("b")),
		submit(tx, newJob("d"), "made"),
		enqueueAll(tx, newJob("e"), later, other, long),
		claimAll(tx),
	)
}

func fillOutcomes(tx *Tx) error {
	lease := func(id uint64) Lease {
		j, err := tx.Job(id)
		if err != nil {
			panic(err)
		}
		return j.Lease()
	}
	complete := func(id uint64, version int, records ...NewObservation) error {
		_, err := tx.CompleteJob(lease(id), Completion{
			Attempt: Attempt{FinalURL: fmt.Sprint("http://h/", id), ParserVersion: version, BytesUp: 1, BytesDown: 100},
			Mode:    WriteUpsert, Sinks: damagedSinks, Records: records,
		})
		return err
	}
	completeKept := func(id uint64, row NewObservation) error {
		_, err := tx.CompleteJob(lease(id), Completion{
			Attempt: Attempt{FinalURL: fmt.Sprint("http://h/", id), ParserVersion: 1, BytesUp: 1, BytesDown: 100, Kept: damagedPage, ContentType: "text/html"},
			Mode:    WriteUpsert, Sinks: damagedSinks, Records: []NewObservation{row}, Validator: Validator{ETag: `"1"`},
		})
		return err
	}
	failed := func(id uint64) error {
		return tx.FailJob(lease(id), Attempt{Category: CategoryTLS, Kept: damagedPage, ContentType: "text/html"}, Failure{Category: CategoryTLS, Sinks: damagedSinks})
	}
	return errors.Join(
		complete(jobRescued, 3, NewObservation{Key: "gone", Gone: true}, NewObservation{Key: "y", Data: []byte(`{"v":null}`), Missing: []string{"v"}}),
		complete(jobComplete, 1, NewObservation{Key: "a", Data: []byte(`{}`)}),
		completeKept(jobLater, NewObservation{Key: "a", Data: []byte(`{"v":1}`)}),
		tx.RetryJob(lease(jobRetryable), Attempt{Category: CategoryDNS, Reason: "no such host", BytesUp: 7, Proxy: "home"}, tx.Now.Add(time.Hour)),
		failed(jobFailed), failed(jobRequeued),
		tx.ReleaseJob(lease(jobPending), Attempt{Category: CategoryReleased}),
		tx.ReleaseJob(lease(jobCanceled), Attempt{Category: CategoryReleased}),
	)
}

func fillByPerson(tx *Tx) error {
	_, err := tx.RequeueJob(jobRequeued)
	_, err2 := tx.CancelJob(jobCanceled, damagedSinks)
	err3 := submit(tx, newJob("b"), "found")
	err4 := tx.MoveFileCursor("s", "/out.jsonl", nil, &FileCursor{After: ChangeCursor{found: true, seq: 4}, Bytes: 9, Rows: 1})
	return errors.Join(err, err2, err3, err4)
}

// fillListed keeps a list of two targets that one of two runs is yet to get.
func fillListed(tx *Tx) error {
	err := tx.PutSchedule(&Schedule{Source: "s", Spec: "@hourly", Zone: "UTC", Since: tx.Now})
	l, err2 := tx.OpenList("s", RunTick)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	for _, window := range listedWindows {
		if _, err := tx.OfferWindow(l, window); err != nil {
			return err
		}
	}
	chunk := PackTargets(listedTargets)
	err = errors.Join(tx.AddChunk(l, chunk), tx.EndList(l, 2, sha256.Sum256(chunk.Plain())))
	r, err2 := tx.NextRun(l)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	_, err = tx.ChunkMade(l, r, nil)
	return err
}

// fillDispatches has sink b acknowledge an event, give up another and be in the
// middle of a third, after it was stopped.
func fillDispatches(tx *Tx) error {
	_, err := tx.TakeEvents("b", []uint64{eventJobRescued, eventJobA, eventJobLater})
	err2 := tx.EndDeliveries("b", []Delivery{
		{Event: eventJobRescued, Outcome: OutcomeDelivered},
		{Event: eventJobA, Outcome: OutcomeAgain, Reason: "status 500", Counts: true, Dead: true},
		{Event: eventJobLater, Outcome: OutcomeAmbiguous, Reason: "timeout", Counts: true, Next: tx.Now.Add(time.Minute)},
	})
	_, err3 := tx.TakeEvents("b", []uint64{eventJobLater})
	return errors.Join(err, err2, err3, tx.StopSink("b", "status 410"))
}

var (
	listedWindows = []time.Time{damagedWindow.Add(time.Hour), damagedWindow.Add(2 * time.Hour)}
	listedTargets = []ListTarget{{Vars: []Var{{"id", "1"}}, Line: 2}, {Vars: []Var{{"id", "2"}}, Line: 3}}
)

// The imports of damagedStore: one has come to its end, of the other two chunks
// have become jobs.
var (
	importDone = ImportKey{Source: "s", Window: damagedWindow.Add(3 * time.Hour), Name: "done.csv"}
	importHalf = ImportKey{Source: "t", Name: "half.csv"}
)

func fillImports(tx *Tx) error {
	for _, key := range []ImportKey{importDone, importHalf} {
		_, err := tx.BeginImport(Import{Key: key, Rows: 3, Bad: 1})
		for n := range uint32(2) {
			err = errors.Join(err, tx.PutImportChunk(key, n, ImportChunk{Rows: 1}))
		}
		if err != nil {
			return err
		}
	}
	_, err := tx.EndImport(importDone, nil)
	return err
}

// fillReplaced promotes the rows of a run, and fillHeld holds the next ones.
func fillReplaced(tx *Tx) error {
	r, err := tx.OpenRun(RunKey{Source: "u", Window: damagedWindow}, RunTick)
	if err != nil {
		return err
	}
	jobs := []NewJob{newJob("m"), newJob("n")}
	for i := range jobs {
		jobs[i].Key.Source, jobs[i].Key.Window, jobs[i].Window, jobs[i].Host = "u", damagedWindow, damagedWindow, "w"
	}
	tx.BeginListing(r)
	if err := enqueueAll(tx, jobs...); err != nil {
		return err
	}
	if r, err = tx.Run(r.ID); err != nil {
		return err
	}
	return errors.Join(tx.EndListing(r, damagedSinks), claimU(tx), completeU(tx, jobStaged, "p", "x"), completeU(tx, jobHolding, "r"))
}

func fillHeld(tx *Tx) error {
	_, err := tx.RecollectJob(jobStaged)
	_, err2 := tx.RecollectJob(jobHolding)
	err = errors.Join(err, err2, claimU(tx), completeU(tx, jobStaged, "p", "q"))
	if err != nil {
		return err
	}
	j, err := tx.Job(jobHolding)
	if err != nil {
		return err
	}
	return tx.FailJob(j.Lease(), Attempt{Category: CategoryTLS}, Failure{Category: CategoryTLS, Sinks: damagedSinks})
}

func claimU(tx *Tx) error {
	lane, err := tx.lane(Lane{Host: "w", Source: "u"})
	if err != nil {
		return err
	}
	_, err = tx.ClaimJobs("me", time.Minute, []ClaimGroup{{Lanes: []LaneID{lane}, Max: 9}})
	return err
}

func completeU(tx *Tx, id uint64, keys ...string) error {
	j, err := tx.Job(id)
	if err != nil {
		return err
	}
	c := Completion{Attempt: Attempt{ParserVersion: 1, FinalURL: "http://w/"}, Mode: WriteReplace, Sinks: damagedSinks}
	for _, key := range keys {
		c.Records = append(c.Records, NewObservation{Key: key, Data: fmt.Appendf(nil, `{"v":%q,"generation":%d}`, key, j.Generation)})
	}
	_, err = tx.CompleteJob(j.Lease(), c)
	return err
}

// fillQuarantined sets a page aside, and reads another one again.
func fillQuarantined(tx *Tx) error {
	jobs := []NewJob{newJob("k"), newJob("l")}
	for i := range jobs {
		jobs[i].Key.Source, jobs[i].Host = "v", "v"
	}
	err := enqueueAll(tx, jobs...)
	lane, err2 := tx.lane(Lane{Host: "v", Source: "v"})
	claimed, err3 := tx.ClaimJobs("me", time.Minute, []ClaimGroup{{Lanes: []LaneID{lane}, Max: 9}})
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	a := Attempt{ParserVersion: 1, FinalURL: "http://v/", Kept: damagedPage, ContentType: "text/html", BytesDown: 9}
	_, err = tx.CompleteJob(claimed[0][1].Lease(), Completion{Attempt: a, Mode: WriteUpsert, Records: []NewObservation{{Key: "l", Data: []byte(`{"v":1}`)}}})
	a.Category = CategoryValidation
	err2 = tx.FailJob(claimed[0][0].Lease(), a, Failure{
		Category: CategoryValidation, Sinks: damagedSinks,
		Problems: []Problem{{Row: -1, Field: "price", Value: "1,00", Reason: "is ambiguous"}, {Row: 2, Reason: "it has no key"}},
	})
	read, err3 := tx.attempt(jobReparsed, 1)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	_, err = tx.ReparseJob(read, nil, Completion{
		Attempt: Attempt{ParserVersion: 2, Records: 1}, Mode: WriteUpsert, Records: []NewObservation{{Key: "l", Data: []byte(`{"v":1}`)}},
		Problems: []Problem{{Row: 1, Field: "price", Reason: "is missing"}},
	})
	return err
}

// laneV is of source v.
const laneV LaneID = 6

// fillDrifted has pages lose a field, so that source v pauses.
func fillDrifted(tx *Tx) error {
	for n := range 42 {
		j, filled := uint64(jobReparsed), 1
		if n >= 30 {
			j, filled = jobUnfit, 0
		}
		_, err := tx.CountPage(Reading{
			Lane: laneV, Version: 1, Job: j, Generation: 1, Records: 1,
			Fields: []FieldReading{{Records: 1, Filled: 1}, {Name: "price", Records: 1, Filled: filled}},
		}, DriftPolicy{Fall: Whole / 2, Min: 10, Jobs: 20, Failed: 10}, damagedSinks)
		if err != nil {
			return err
		}
	}
	return nil
}

func waitKey(j *Job) []byte  { return timedKey(j.NextAt, j.ID) }
func endKey(j *Job) []byte   { return timedKey(j.LeaseUntil, j.ID) }
func indexKey(j *Job) []byte { return keyIndex(j.Key.Window, j.Key.String()) }

// The functions below make the damage: they write past every rule.

func put(id bucket, key, value []byte) func(*Tx) error {
	return func(tx *Tx) error { return tx.put(id, key, value) }
}

func remove(id bucket, key []byte) func(*Tx) error {
	return func(tx *Tx) error { return tx.remove(id, key) }
}

// putAt writes a job's entry into an index.
func putAt(id bucket, job uint64, key func(*Job) []byte, value []byte) func(*Tx) error {
	return func(tx *Tx) error {
		j, err := tx.Job(job)
		if err != nil {
			return err
		}
		return tx.put(id, key(j), value)
	}
}

func removeAt(id bucket, job uint64, key func(*Job) []byte) func(*Tx) error {
	return func(tx *Tx) error {
		j, err := tx.Job(job)
		if err != nil {
			return err
		}
		return tx.remove(id, key(j))
	}
}

// copyTo writes a record under a second key.
func copyTo(id bucket, from, to []byte) func(*Tx) error {
	return func(tx *Tx) error { return tx.put(id, to, bytes.Clone(tx.get(id, from))) }
}

// changeRecord writes a record that is wrong and well sealed.
func changeRecord(id bucket, key []byte, change func([]byte) []byte) func(*Tx) error {
	return changeRaw(id, key, func(v []byte) []byte {
		e := encoder{change(v[:len(v)-sealBytes])}
		return e.sealed()
	})
}

func changeRaw(id bucket, key []byte, change func([]byte) []byte) func(*Tx) error {
	return func(tx *Tx) error { return tx.put(id, key, change(bytes.Clone(tx.get(id, key)))) }
}

func withByte(i int, b byte) func([]byte) []byte {
	return func(v []byte) []byte {
		v[i] = b
		return v
	}
}

func changeJob(id uint64, change func(*Job)) func(*Tx) error {
	return func(tx *Tx) error {
		j, err := tx.Job(id)
		if err != nil {
			return err
		}
		change(j)
		return tx.save(j)
	}
}

func changeAttempt(job uint64, generation uint32, change func(*Attempt)) func(*Tx) error {
	return func(tx *Tx) error {
		key := attemptKey(job, generation)
		a, err := decodeAttempt(key, tx.get(bucketAttempt, key))
		if err != nil {
			return err
		}
		change(&a)
		return tx.put(bucketAttempt, key, a.encode())
	}
}

func changeRow(place []byte, change func(*Observation)) func(*Tx) error {
	return func(tx *Tx) error {
		o, err := decodeObservation(place, tx.get(bucketObservation, place))
		if err != nil {
			return err
		}
		change(o)
		return tx.put(bucketObservation, place, o.encode())
	}
}

func changeEvent(seq uint64, change func(*Event)) func(*Tx) error {
	return func(tx *Tx) error {
		e, err := decodeEvent(seq, tx.get(bucketEvent, idKey(seq)))
		if err != nil {
			return err
		}
		change(e)
		return tx.put(bucketEvent, idKey(seq), e.encode())
	}
}

func changeRun(id uint64, change func(*Run)) func(*Tx) error {
	return func(tx *Tx) error {
		r, err := tx.Run(id)
		if err != nil {
			return err
		}
		change(r)
		return tx.put(bucketRun, idKey(id), r.encode())
	}
}

func changeList(id uint64, change func(*List)) func(*Tx) error {
	return func(tx *Tx) error {
		l, err := decodeList(id, tx.get(bucketList, idKey(id)))
		if err != nil {
			return err
		}
		change(l)
		return tx.saveList(l)
	}
}

func addTo(source, metric string, n int64) func(*Tx) error {
	return func(tx *Tx) error {
		tx.count(source, metric, n)
		return nil
	}
}

// says replaces text in an event's data.
func says(before, after string) func(*Event) {
	return func(e *Event) {
		if !bytes.Contains(e.Data, []byte(before)) {
			panic(before)
		}
		e.Data = bytes.ReplaceAll(e.Data, []byte(before), []byte(after))
	}
}

// The places of damagedStore's rows, and the numbers of its events.
var (
	rowA    = observationKey(JobKey{Source: "s", Target: "a"})
	rowGone = observationKey(JobKey{Source: "t", Target: "gone", Country: "US", Scope: "acme", Version: 3})
	rowY    = observationKey(JobKey{Source: "t", Target: "y", Country: "US", Scope: "acme", Version: 3})
	rowP    = observationKey(JobKey{Source: "u", Target: "p", Window: damagedWindow})
	rowQ    = observationKey(JobKey{Source: "u", Target: "q", Window: damagedWindow})
	rowX    = observationKey(JobKey{Source: "u", Target: "x", Window: damagedWindow})
	garbage = []byte{99, 1, 2}

	changeA                     = changeKey("s", 4)
	changeGone                  = changeKey("t", 1)
	cursorS                     = counterKey("s", "/out.jsonl")
	stagedJob, stagedP, stagedQ = rowKey(runHeld, jobStaged, nil), rowKey(runHeld, jobStaged, rowP), rowKey(runHeld, jobStaged, rowQ)
)

// The runs of damagedStore.
const (
	runRescued = iota + 1 // of source t
	runLater              // of source s
	runHeld    = 7        // of source u
)

const (
	eventGone = iota + 1
	eventY
	eventJobRescued
	eventA // revision 1
	eventJobA
	eventLater // revision 2
	eventJobLater
	eventFailed
)

// readyAt is a place in bucket ready.
func readyAt(lane LaneID, class, priority byte, id uint64) []byte {
	return appendU64(append(appendU32(nil, uint32(lane)), class, 127-priority), id)
}

func i64(n int64) []byte { return idKey(uint64(n)) }

var segmentNames = regexp.MustCompile(`\d{8}-[0-9a-f]{12}\.seg`)

// TestCheckFinds: for each kind of damage Check gives exactly the report of what
// contradicts what, and where.
func TestCheckFinds(t *testing.T) {
	for table, list := range map[string][]damage{
		"jobs": jobDamage, "indexes": indexDamage, "attempts": attemptDamage, "rows": rowDamage,
		"events": eventDamage, "names": nameDamage, "counters": counterDamage, "pages": keptDamage,
		"validators":       validatorDamage,
		"idempotency keys": idempotencyDamage,
		"lists":            listDamage,
		"changes":          changeDamage,
		"imports":          importDamage,
		"runs":             runDamage,
		"replace":          replaceDamage,
		"outbox":           outboxDamage,
		"quarantine":       quarantineDamage,
		"drift":            driftDamage,
	} {
		for _, d := range list {
			t.Run(table+" "+d.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := damagedStore(t)
					if err := s.Update(context.Background(), d.do); err != nil {
						t.Fatal(err)
					}
					found, err := s.Check()
					if err != nil {
						t.Fatal(err)
					}
					for i := range found {
						found[i].What = segmentNames.ReplaceAllString(found[i].What, "SEGMENT")
					}
					if diff := cmp.Diff(d.want, found); diff != "" || len(found) == 0 {
						t.Errorf("report (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// TestCheckOlderEvents: events of jobs from before schema 5, which say nothing of
// window and country, are no damage, nor are those of drift from before schema 6, which
// say nothing of the host.
func TestCheckOlderEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := damagedStore(t)
		err := s.Update(context.Background(), func(tx *Tx) error {
			return errors.Join(
				changeEvent(eventFailed, says(`"window":null,"country":null,`, ``))(tx),
				changeEvent(eventJobA, says(`"window":null,"country":null,`, ``))(tx),
				changeEvent(eventDrifted, says(`"host":"v","country":null,`, ``))(tx),
			)
		})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := s.Check(); err != nil || len(found) > 0 {
			t.Errorf("report %v (%v)", found, err)
		}
	})
}

func TestBreachString(t *testing.T) {
	for want, b := range map[string]Breach{
		`bucket attempt, key 000000000000000500000001: it is odd`: {"attempt", attemptKey(5, 1), "it is odd"},
		`bucket counter, key "s\x00recovered": it is odd`:         {"counter", counterKey("s", MetricRecovered), "it is odd"},
		`bucket (pages), key "": it is odd`:                       {"(pages)", nil, "it is odd"},
	} {
		if got := b.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestCheckOddText: text that JSON must change, and records that look like what
// surrounds them in an event, are no damage.
func TestCheckOddText(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	odd := []string{"", "\xff\xfe", "\u2028", `"_meta":{"source":"`, "a:b%\x00-", strings.Repeat("\xff", 200)}
	for _, text := range odd {
		first := newJob(text)
		first.Country, first.URL = text, text
		later, scoped := first, first
		later.Key.Window, later.Window = damagedWindow, damagedWindow // updates what the first made
		scoped.Key.Scope, scoped.Scope = text, text
		for _, n := range []NewJob{first, later, scoped} {
			data, err := json.Marshal(map[string]any{"v": text, "w": map[string]any{"_meta": map[string]any{"source": n.Window}}})
			if err != nil {
				t.Fatal(err)
			}
			err = s.Update(context.Background(), func(tx *Tx) error { return completeOdd(tx, n, text, data) })
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	wantClean(t, s)
}

func completeOdd(tx *Tx, n NewJob, text string, data []byte) error {
	if err := errors.Join(enqueueAll(tx, n), claimAll(tx)); err != nil {
		return err
	}
	j, err := tx.JobByKey(n.Key)
	if err != nil || j.State != StateRunning { // "" makes the same key with and without a scope
		return err
	}
	_, err = tx.CompleteJob(j.Lease(), Completion{
		Mode: WriteUpsert, Sinks: damagedSinks, Attempt: Attempt{FinalURL: text, Reason: text},
		Records: []NewObservation{{Key: text, Data: data}, {Key: text + "x", Data: []byte(`{}`), Missing: []string{text + "y"}}},
	})
	return err
}

// TestCheckFindsBrokenPages: what bbolt's own check finds is told, and nothing
// below it is looked at.
func TestCheckFindsBrokenPages(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	err := s.Update(context.Background(), func(tx *Tx) error { // bbolt does not check a bucket of less than a page
		for i := range 100 {
			if _, err := tx.EnqueueJob(newJob(fmt.Sprint(i))); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	// Job 1 becomes job 9 where it stands: keys out of order.
	file, err := os.ReadFile(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	first := append(idKey(1), (&Job{State: StatePending}).encode()[:2]...)
	if !bytes.Contains(file, first) {
		t.Fatal("the record of job 1 is not in the file")
	}
	file = bytes.ReplaceAll(file, first, append(idKey(9), first[8:]...))
	if err := os.WriteFile(s.Path(), file, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = Open(s.Path(), Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found, err := s.Check()
	if err != nil || len(found) == 0 {
		t.Fatalf("found %v, %v", found, err)
	}
	for _, b := range found {
		if b.Bucket != "(pages)" {
			t.Errorf("found %s", b)
		}
	}
}

// TestCheckBesideWriters: the check sees whole states only, whatever is written
// while it runs.
func TestCheckBesideWriters(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	done := make(chan error, 1)
	go func() {
		for i := range 100 {
			err := s.Update(context.Background(), func(tx *Tx) error { return writeMuch(tx, string(rune('A'+i)), 2) })
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		wantClean(t, s)
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

// TestCheckStopped: a store that has stopped is not looked at.
func TestCheckStopped(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Check(); !errors.Is(err, ErrStopped) {
		t.Errorf("found %v, %v", found, err)
	}
}

// TestChecksumsOfDamage: a row that cannot be read has no checksum.
func TestChecksumsOfDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := damagedStore(t)
		if err := s.Update(context.Background(), put(bucketObservation, rowA, garbage)); err != nil {
			t.Fatal(err)
		}
		list, err := s.Checksums()
		if damaged, ok := errors.AsType[*RecordError](err); !ok || damaged.Bucket != "obs" {
			t.Errorf("checksums %v, error %v", list, err)
		}
	})
}

// TestDanglingKeyIsDamage: a key that leads to no job must not make a second one.
func TestDanglingKeyIsDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := damagedStore(t)
		err := s.Update(context.Background(), func(tx *Tx) error { return tx.remove(bucketJob, idKey(jobPending)) })
		if err != nil {
			t.Fatal(err)
		}
		err = s.Update(context.Background(), func(tx *Tx) error { return enqueueAll(tx, newJob("e")) })
		if err == nil || !strings.Contains(err.Error(), "it leads to job 6, which is missing") {
			t.Errorf("error %v", err)
		}
	})
}

// TestMissingEntryIsDamage: a transition that does not find its job in the index
// says so and changes nothing.
func TestMissingEntryIsDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := damagedStore(t)
		err := s.Update(context.Background(), func(tx *Tx) error {
			return removeAt(bucketReady, jobPending, readyKey)(tx)
		})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Update(context.Background(), func(tx *Tx) error { _, err := tx.CancelJob(jobPending, nil); return err })
		if err == nil || !strings.Contains(err.Error(), "index entry is missing") {
			t.Errorf("error %v", err)
		}
		err = s.View(func(tx *Tx) error {
			if j, err := tx.Job(jobPending); err != nil || j.State != StatePending {
				t.Errorf("job %+v, %v", j, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
