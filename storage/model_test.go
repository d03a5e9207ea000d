package storage_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"semel/storage"
)

// The model is the store as design.md describes it, in plain maps: no bbolt, no
// indexes, no transactions. TestModel drives both with the same steps.

type modelRow struct {
	window   time.Time
	version  int
	job      string
	data     string
	revision int
}

type model struct {
	jobs     []*storage.Job // by id - 1; only what the model cares for is set
	host     []string       // of the job
	rows     map[string]*modelRow
	counters map[string]map[string]int64
	events   []*modelEvent // by number - 1
	sinks    map[string]*modelSink
	queued   map[string]uint64 // what the last step has to announce
	leases   []storage.Lease   // every lease ever given
	runs     []*modelRun       // by id - 1

	quarantine map[*storage.Job]modelUnfit
}

// modelUnfit says for what page and under which rules a job has it in quarantine.
type modelUnfit struct {
	attempts uint32
	version  int
}

func newModel() *model {
	return &model{
		rows:     map[string]*modelRow{},
		counters: map[string]map[string]int64{"s1": {}, "s2": {}},
		sinks:    map[string]*modelSink{"all": {}, "some": {}},
		queued:   map[string]uint64{},

		quarantine: map[*storage.Job]modelUnfit{},
	}
}

func (m *model) count(source, metric string, n int64) { m.counters[source][metric] += n }

func (m *model) job(id uint64) *storage.Job { return m.jobs[id-1] }

// set is the only place where the model changes a state.
func (m *model) set(j *storage.Job, state storage.JobState, category storage.Category) {
	j.State, j.Category = state, category
	if state != storage.StateRunning {
		j.Owner, j.LeaseUntil = "", time.Time{}
	}
}

// holds reports whether a lease is good, and counts it where it is not.
func (m *model) holds(l storage.Lease) bool {
	j := m.job(l.Job)
	if j.State == storage.StateRunning && j.Owner == l.Owner && j.Generation == l.Generation {
		return true
	}
	m.count(j.Key.Source, storage.MetricStaleCommits, 1)
	return false
}

func (m *model) burn(j *storage.Job, bytes int64) {
	j.Attempts++
	j.Tries++
	m.count(j.Key.Source, storage.MetricAttempts, 1)
	m.spend(j, bytes)
}

func (m *model) spend(j *storage.Job, bytes int64) {
	j.BytesDown += bytes
	j.Spent += bytes
	m.count(j.Key.Source, storage.MetricBytesDown, bytes)
	m.count(j.Key.Source, storage.MetricBytesWasted, bytes)
}

// write is design.md §7 for one record, but for those that are staged.
func (m *model) write(j *storage.Job, place, key string, version int, data string, mode storage.WriteMode, sinks []storage.Subscription) {
	eventKey := storage.JobKey{Source: j.Key.Source, Target: key}
	if place != j.Key.Source+" "+key {
		eventKey.Window = j.Window
	}
	row := &modelRow{window: j.Window, version: version, job: j.Key.String(), data: data, revision: 1}
	old := m.rows[place]
	switch {
	case old == nil:
		m.rows[place] = row
		m.count(j.Key.Source, storage.MetricObservations, 1)
		m.emit(sinks, storage.EventCreated, eventKey.String())
	case old.job != row.job && !modelWins(row, old, mode):
		m.count(j.Key.Source, storage.MetricDuplicates, 1)
	case old.data == row.data:
		m.count(j.Key.Source, storage.MetricUnchanged, 1)
		old.window, old.version, old.job = row.window, row.version, row.job
	default:
		row.revision = old.revision + 1
		m.rows[place] = row
		m.emit(sinks, storage.EventUpdated, eventKey.String())
	}
}

// modelWins orders two rows of one key by window, version and job key.
func modelWins(a, b *modelRow, mode storage.WriteMode) bool {
	c := cmp.Or(a.window.Compare(b.window), cmp.Compare(a.version, b.version))
	if c == 0 {
		return a.job < b.job
	}
	return (c > 0) == (mode != storage.WriteInsert)
}

var (
	modelKeys    = []string{"p", "q", "r"}
	modelWindows = []time.Time{
		{}, time.Date(1960, 5, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC), time.Date(2026, 4, 24, 15, 0, 0, 0, time.UTC),
	}
	modelSinks = []storage.Subscription{
		{Sink: "all"},
		{Sink: "some", Events: []string{storage.EventJobComplete, storage.EventUpdated}},
	}
)

const modelRescues = 5 // deaths in a row before a job fails

// machine is the store under test beside its model.
type machine struct {
	t    *rapid.T
	path string
	s    *storage.Store
	m    *model
	mode storage.WriteMode
}

func (x *machine) open() {
	s, err := storage.Open(x.path, storage.Options{NoSync: true})
	if err != nil {
		x.t.Fatal(err)
	}
	x.s = s
}

func (x *machine) update(fn func(tx *storage.Tx) error) {
	if err := x.s.Update(context.Background(), fn); err != nil {
		x.t.Fatal(err)
	}
}

func (x *machine) enqueue(t *rapid.T) {
	source := rapid.SampledFrom([]string{"s1", "s2"}).Draw(t, "source")
	n := storage.NewJob{
		Key:      storage.JobKey{Source: source, Target: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "target")},
		Window:   rapid.SampledFrom(modelWindows).Draw(t, "window"),
		Host:     rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "host"),
		URL:      rapid.SampledFrom([]string{"http://u/1", "http://u/2"}).Draw(t, "url"),
		Priority: int8(rapid.IntRange(-2, 2).Draw(t, "priority")),
	}
	n.Key.Window = n.Window
	var got storage.Enqueued
	x.update(func(tx *storage.Tx) (err error) {
		got, err = tx.EnqueueJob(n)
		return err
	})
	if want := x.m.enqueue(n); got != want {
		t.Fatalf("enqueue gave %+v, want %+v", got, want)
	}
}

// run is that of a job's source and window.
func (m *model) run(n storage.NewJob) uint64 {
	if n.Window.IsZero() {
		return 0
	}
	i := slices.IndexFunc(m.runs, func(r *modelRun) bool { return r.source == n.Key.Source && r.window.Equal(n.Window) })
	if i >= 0 {
		return uint64(i + 1)
	}
	m.runs = append(m.runs, &modelRun{
		source: n.Key.Source, window: n.Window,
		staged: map[*storage.Job]map[string]*modelRow{}, brought: map[*storage.Job]modelBrought{}, stands: map[*storage.Job]modelBrought{},
	})
	return uint64(len(m.runs))
}

func (m *model) enqueue(n storage.NewJob) storage.Enqueued {
	for i, j := range m.jobs {
		if j.Key != n.Key {
			continue
		}
		same := j.URL == n.URL && j.Priority == n.Priority && m.host[i] == n.Host
		if same || j.State == storage.StateRunning || j.State == storage.StateComplete {
			return storage.Enqueued{ID: j.ID}
		}
		j.URL, j.Priority, m.host[i] = n.URL, n.Priority, n.Host
		return storage.Enqueued{ID: j.ID, Refreshed: true}
	}
	j := &storage.Job{ID: uint64(len(m.jobs) + 1), Run: m.run(n), Key: n.Key, Window: n.Window, URL: n.URL, Priority: n.Priority, State: storage.StatePending}
	m.jobs, m.host = append(m.jobs, j), append(m.host, n.Host)
	return storage.Enqueued{ID: j.ID, New: true}
}

func (x *machine) claim(t *rapid.T) {
	limit := rapid.IntRange(1, 4).Draw(t, "max")
	owner := rapid.SampledFrom([]string{"w1", "w2"}).Draw(t, "owner")
	length := time.Duration(rapid.IntRange(1, 90_000).Draw(t, "lease ms")) * time.Millisecond
	var ids []uint64
	var end time.Time
	x.update(func(tx *storage.Tx) error {
		groups, err := tx.ClaimJobs(owner, length, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: limit}})
		for _, j := range groups[0] {
			ids = append(ids, j.ID)
		}
		end = tx.Now.Add(length)
		return err
	})
	if want := x.m.claim(owner, end, limit); !slices.Equal(ids, want) {
		t.Fatalf("claimed %v, want %v", ids, want)
	}
}

func (m *model) claim(owner string, end time.Time, limit int) (ids []uint64) {
	var ready []*storage.Job
	for _, j := range m.jobs {
		if j.State == storage.StatePending {
			ready = append(ready, j)
		}
	}
	suspect := func(j *storage.Job) int {
		if j.Rescues >= 3 {
			return 1
		}
		return 0
	}
	slices.SortFunc(ready, func(a, b *storage.Job) int {
		return cmp.Or(suspect(a)-suspect(b), cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
	})
	for _, j := range ready[:min(limit, len(ready))] {
		m.set(j, storage.StateRunning, "")
		j.Generation++
		j.Owner, j.LeaseUntil = owner, roundUp(end)
		m.leases = append(m.leases, j.Lease())
		ids = append(ids, j.ID)
	}
	return ids
}

func roundUp(t time.Time) time.Time {
	if r := t.Truncate(time.Second); r.Before(t) {
		return r.Add(time.Second)
	}
	return t
}

// lease draws any lease ever given: most are over.
func (x *machine) lease(t *rapid.T) storage.Lease {
	if len(x.m.leases) == 0 {
		t.Skip("no lease yet")
	}
	l := x.m.leases[len(x.m.leases)-1-rapid.IntRange(0, min(len(x.m.leases)-1, 12)).Draw(t, "lease")]
	if rapid.IntRange(0, 9).Draw(t, "foreign") == 0 {
		l.Owner = "stranger"
	}
	return l
}

// outcome runs an outcome under some lease and wants it lost exactly where the
// model says so; then it reports whether it was applied.
func (x *machine) outcome(l storage.Lease, fn func(tx *storage.Tx) error) bool {
	var got error
	x.update(func(tx *storage.Tx) error {
		if got = fn(tx); errors.Is(got, storage.ErrLeaseLost) {
			return nil // keeps the count
		}
		return got
	})
	holds := x.m.holds(l)
	if holds != (got == nil) {
		x.t.Fatalf("outcome under %+v: %v, the model says it holds: %v", l, got, holds)
	}
	return holds
}

func (x *machine) complete(t *rapid.T) {
	l := x.lease(t)
	c := x.completion(t)
	version := c.Attempt.ParserVersion
	c.Attempt.BytesDown, c.Attempt.Kept = 10, modelPage
	if !x.outcome(l, func(tx *storage.Tx) error { _, err := tx.CompleteJob(l, c); return err }) {
		return
	}
	j := x.m.job(l.Job)
	x.m.burn(j, 10)
	x.m.count(j.Key.Source, storage.MetricComplete, 1)
	x.m.count(j.Key.Source, storage.MetricBytesWasted, -10)
	if j.Recovered {
		x.m.count(j.Key.Source, storage.MetricAfterRecovery, 1)
	}
	j.Rescues, j.Sent, j.Version = 0, "", version
	x.m.set(j, storage.StateComplete, "")
	x.finish(j, c, false)
	x.m.emit(modelSinks, storage.EventJobComplete, j.Key.String())
	x.settle(x.m.runOf(j))
}

// completion draws what the parser made of a page.
func (x *machine) completion(t *rapid.T) storage.Completion {
	version := rapid.IntRange(1, 2).Draw(t, "version")
	c := storage.Completion{Attempt: storage.Attempt{ParserVersion: version}, Mode: x.mode, Problems: x.problems(t), Sinks: modelSinks}
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(modelKeys), 0, 3, rapid.ID).Draw(t, "records") {
		data := rapid.SampledFrom([]string{`{"v":1}`, `{"v":2}`, `{"v":3}`}).Draw(t, "data")
		c.Records = append(c.Records, storage.NewObservation{Key: key, Data: []byte(data)})
	}
	return c
}

// finish is what a job brings that is complete; counted: it was so before.
func (x *machine) finish(j *storage.Job, c storage.Completion, counted bool) {
	x.write(j, c.Attempt.ParserVersion, c.Records, counted)
	if len(c.Problems) == 0 {
		x.m.endQuarantine(j)
	} else {
		x.m.setAside(j, modelUnfit{j.Attempts, c.Attempt.ParserVersion})
	}
}

func (x *machine) retry(t *rapid.T) {
	l := x.lease(t)
	due := time.Now().UTC().Add(time.Duration(rapid.IntRange(-5, 60).Draw(t, "delay s")) * time.Second).Truncate(time.Microsecond)
	a := storage.Attempt{Category: storage.CategoryReadTimeout, BytesDown: 3}
	retry := func(tx *storage.Tx) error {
		if err := tx.MarkSent(l, ""); err != nil { // a job with a mark is not repeated
			return err
		}
		return tx.RetryJob(l, a, due)
	}
	if x.outcome(l, retry) {
		j := x.m.job(l.Job)
		j.Sent = ""
		x.m.burn(j, 3)
		x.m.count(j.Key.Source, storage.MetricRetries+"read_timeout", 1)
		x.m.set(j, storage.StateRetryable, storage.CategoryReadTimeout)
		j.Rescues, j.NextAt = 0, due
		if now := time.Now().UTC().Truncate(time.Microsecond); due.Before(now) {
			j.NextAt = now
		}
	}
}

func (x *machine) mark(t *rapid.T) {
	l := x.lease(t)
	step := rapid.SampledFrom([]string{"pay", "confirm", ""}).Draw(t, "step")
	if x.outcome(l, func(tx *storage.Tx) error { return tx.MarkSent(l, step) }) {
		x.m.job(l.Job).Sent = step
	}
}

func (x *machine) fail(t *rapid.T) {
	l := x.lease(t)
	a := storage.Attempt{Category: storage.CategoryNotFound, BytesDown: 5, ParserVersion: 1, Kept: modelPage}
	f := storage.Failure{Category: storage.CategoryNotFound, Problems: x.problems(t), Sinks: modelSinks}
	if x.outcome(l, func(tx *storage.Tx) error { return tx.FailJob(l, a, f) }) {
		j := x.m.job(l.Job)
		x.m.burn(j, 5)
		j.Rescues = 0
		x.m.set(j, storage.StateFailed, storage.CategoryNotFound)
		if len(f.Problems) > 0 {
			x.m.setAside(j, modelUnfit{j.Attempts, 1})
		}
		x.m.emit(modelSinks, storage.EventJobFailed, j.Key.String())
		x.settle(x.m.runOf(j))
	}
}

func (x *machine) release(t *rapid.T) {
	l := x.lease(t)
	a := storage.Attempt{Category: storage.CategoryReleased, BytesDown: 1}
	if x.outcome(l, func(tx *storage.Tx) error { return tx.ReleaseJob(l, a) }) {
		j := x.m.job(l.Job)
		x.m.spend(j, 1)
		x.m.set(j, storage.StatePending, storage.CategoryReleased)
	}
}

func (x *machine) renew(t *rapid.T) {
	l := x.lease(t)
	var lost []storage.Lease
	var end time.Time
	x.update(func(tx *storage.Tx) (err error) {
		lost, err = tx.RenewLeases([]storage.Lease{l}, time.Minute)
		end = tx.Now.Add(time.Minute)
		return err
	})
	j := x.m.job(l.Job)
	holds := j.State == storage.StateRunning && j.Lease() == l
	if holds != (len(lost) == 0) {
		t.Fatalf("renewing %+v lost %v", l, lost)
	}
	if holds {
		j.LeaseUntil = roundUp(end)
	}
}

func (x *machine) rescue(t *rapid.T) {
	n := 0
	x.update(func(tx *storage.Tx) (err error) {
		n, err = tx.RescueExpired(tx.Now, 1_000, func(string) storage.RescuePolicy {
			return storage.RescuePolicy{Max: modelRescues, Sinks: modelSinks}
		})
		return err
	})
	expired := 0
	for _, j := range x.m.byTime(func(j *storage.Job) (time.Time, bool) { return j.LeaseUntil, j.State == storage.StateRunning }) {
		expired++
		j.Rescues++
		j.Recovered = true
		x.m.count(j.Key.Source, storage.MetricRecovered, 1)
		x.m.set(j, storage.StatePending, storage.CategoryLeaseExpired)
		if j.Rescues >= modelRescues {
			x.m.set(j, storage.StateFailed, storage.CategoryBudgetExhausted)
			x.m.emit(modelSinks, storage.EventJobFailed, j.Key.String())
			x.settle(x.m.runOf(j))
		}
	}
	if n != expired {
		t.Fatalf("rescued %d, want %d", n, expired)
	}
}

// byTime are the jobs whose time has come, in the order of that time.
func (m *model) byTime(of func(*storage.Job) (time.Time, bool)) []*storage.Job {
	jobs := slices.DeleteFunc(slices.Clone(m.jobs), func(j *storage.Job) bool {
		due, is := of(j)
		return !is || due.After(time.Now())
	})
	slices.SortStableFunc(jobs, func(a, b *storage.Job) int {
		ta, _ := of(a)
		tb, _ := of(b)
		return ta.Compare(tb)
	})
	return jobs
}

func (x *machine) promote(t *rapid.T) {
	n := 0
	x.update(func(tx *storage.Tx) (err error) {
		n, err = tx.PromoteDue(1_000)
		return err
	})
	due := x.m.byTime(func(j *storage.Job) (time.Time, bool) { return j.NextAt, j.State == storage.StateRetryable })
	for _, j := range due {
		j.NextAt = time.Time{}
		x.m.set(j, storage.StatePending, j.Category)
	}
	if n != len(due) {
		t.Fatalf("promoted %d, want %d", n, len(due))
	}
}

// person runs a verb of a person on some job; the model allows it or not.
func (x *machine) person(t *rapid.T, from []storage.JobState, fn func(tx *storage.Tx, id uint64) error) *storage.Job {
	if len(x.m.jobs) == 0 {
		t.Skip("no job yet")
	}
	j := rapid.SampledFrom(x.m.jobs).Draw(t, "job")
	err := x.s.Update(context.Background(), func(tx *storage.Tx) error { return fn(tx, j.ID) })
	allowed := slices.Contains(from, j.State)
	if allowed != (err == nil) || !allowed && !errors.Is(err, storage.ErrTransition) {
		t.Fatalf("on a %s job: %v", j.State, err)
	}
	if !allowed {
		return nil
	}
	return j
}

func (x *machine) cancel(t *rapid.T) {
	j := x.person(t, []storage.JobState{storage.StatePending, storage.StateRetryable}, func(tx *storage.Tx, id uint64) error {
		_, err := tx.CancelJob(id, modelSinks)
		return err
	})
	if j != nil {
		j.NextAt = time.Time{}
		x.m.set(j, storage.StateFailed, storage.CategoryCanceled)
		x.m.emit(modelSinks, storage.EventJobFailed, j.Key.String())
		x.settle(x.m.runOf(j))
	}
}

func (x *machine) requeue(t *rapid.T) {
	x.again(t, (*storage.Tx).RequeueJob, storage.StateFailed)
}

func (x *machine) recollect(t *rapid.T) {
	x.again(t, (*storage.Tx).RecollectJob, storage.StateFailed, storage.StateComplete)
}

// again sends a job back to pending, which is allowed from some states.
func (x *machine) again(t *rapid.T, verb func(*storage.Tx, uint64) (*storage.Job, error), from ...storage.JobState) {
	j := x.person(t, from, func(tx *storage.Tx, id uint64) error {
		_, err := verb(tx, id)
		return err
	})
	if j != nil {
		j.Tries, j.Spent, j.Rescues, j.Sent = 0, 0, 0, ""
		x.m.set(j, storage.StatePending, j.Category)
	}
}

// undone enqueues and claims, and then fails: nothing of it may stay.
func (x *machine) undone(t *rapid.T) {
	panics := rapid.Bool().Draw(t, "panics")
	err := x.s.Update(context.Background(), func(tx *storage.Tx) error {
		if _, err := tx.EnqueueJob(storage.NewJob{Key: storage.JobKey{Source: "s1", Target: "ghost"}, Host: "ghost"}); err != nil {
			return err
		}
		if _, err := tx.ClaimJobs("ghost", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 3}}); err != nil {
			return err
		}
		if panics {
			panic("half-way")
		}
		return errors.New("half-way")
	})
	if err == nil || !strings.Contains(err.Error(), "half-way") {
		t.Fatalf("undone step gave %v", err)
	}
}

func (x *machine) reopen(*rapid.T) {
	if err := x.s.Close(); err != nil {
		x.t.Fatal(err)
	}
	x.open()
}

// compare wants the whole store to be as the model is.
func (x *machine) compare(t *rapid.T) {
	err := x.s.View(func(tx *storage.Tx) error {
		x.compareJobs(t, tx)
		x.compareRuns(t, tx)
		for source, want := range x.m.counters {
			x.compareSource(t, tx, source, want)
		}
		x.compareOutbox(t, tx)
		x.compareQuarantine(t, tx)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (x *machine) compareJobs(t *rapid.T, tx *storage.Tx) {
	n := 0
	_, err := tx.Jobs(0, 1<<30, func(j *storage.Job) bool {
		if lane, err := tx.Lane(j.Lane); err != nil || lane.Host != x.m.host[n] || lane.Country != j.Country {
			t.Fatalf("job %d of %s is in lane %v, want host %s (%v)", j.ID, j.Country, lane, x.m.host[n], err)
		}
		// What the model has no opinion on.
		j.Lane, j.Reason = 0, ""
		j.Created, j.Updated, j.FirstClaim, j.ClaimedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		if diff := gocmp.Diff(x.m.jobs[n], j); diff != "" {
			t.Fatalf("job %d (-want +got):\n%s", j.ID, diff)
		}
		n++
		return true
	})
	if err != nil || n != len(x.m.jobs) {
		t.Fatalf("%d jobs, want %d (%v)", n, len(x.m.jobs), err)
	}
}

func (x *machine) compareSource(t *rapid.T, tx *storage.Tx, source string, grown map[string]int64) {
	want := map[string]int64{}
	maps.Copy(want, grown)
	for _, j := range x.m.jobs {
		if j.Key.Source == source {
			want["state/"+string(j.State)]++
			if j.State == storage.StateFailed {
				want[storage.MetricFailures+string(j.Category)]++
			}
			if j.State == storage.StateComplete {
				want[fmt.Sprintf("rules/%d", j.Version)]++
			}
		}
	}
	got := map[string]int64(tx.Counters(source))
	maps.DeleteFunc(got, func(name string, n int64) bool {
		return n == 0 || strings.HasPrefix(name, "duration/") || strings.HasPrefix(name, "day/")
	})
	maps.DeleteFunc(want, func(_ string, n int64) bool { return n == 0 })
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("counters of %s (-want +got):\n%s", source, diff)
	}
	rows := 0
	_, err := tx.Observations(source, nil, 1<<30, func(o *storage.Observation) error {
		rows++
		m := x.m.rows[x.place(&storage.Job{Key: storage.JobKey{Source: source}, Window: o.Key.Window}, o.Key.Target)]
		if m == nil || *m != (modelRow{o.Window, o.Version, o.Job, string(o.Data), o.Revision}) {
			t.Fatalf("observation %s: %+v, want %+v", o.Key, o, m)
		}
		return nil
	})
	if err != nil || int64(rows) != want[storage.MetricObservations] {
		t.Fatalf("%d observations of %s, want %d (%v)", rows, source, want[storage.MetricObservations], err)
	}
}

// run is one sequence of steps.
func (x *machine) run() {
	x.open()
	defer func() {
		if err := x.s.Close(); err != nil {
			x.t.Error(err)
		}
	}()
	x.t.Repeat(map[string]func(*rapid.T){
		"enqueue": x.enqueue, "claim": x.claim, "renew": x.renew, "mark": x.mark, "complete": x.complete, "retry": x.retry,
		"fail": x.fail, "release": x.release, "rescue": x.rescue, "promote": x.promote, "cancel": x.cancel,
		"begin listing": x.beginListing, "end listing": x.endListing, "release run": x.releaseRun, "discard run": x.discardRun,
		"recollect": x.recollect, "requeue": x.requeue, "reparse": x.reparse, "find unfit": x.unfit, "discard quarantine": x.discardQuarantine, "undone": x.undone, "reopen": x.reopen,
		"enqueue more": x.enqueue, "claim more": x.claim,
		"take events": x.takeEvents, "end deliveries": x.endDeliveries, "rescue deliveries": x.rescueDeliveries,
		"requeue event": x.requeueEvent, "discard event": x.discardEvent, "stop sink": x.stopSink, "start sink": x.startSink,
		"clock": func(t *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(1, 40_000).Draw(t, "ms")) * time.Millisecond)
		},
		"": x.compare,
	})
	breaches, err := x.s.Check()
	if err != nil || len(breaches) > 0 {
		x.t.Fatalf("check: %v %v", breaches, err)
	}
}

// TestModel: whatever the steps, the store is what the model says: five states,
// generations, counters, one observation per key, one event per change and sink,
// and what became of each.
// The clock is the bubble's; time.Sleep moves it.
func TestModel(t *testing.T) {
	dir, n := t.TempDir(), 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(noDeadline{t}, func(rt *rapid.T) {
			now := time.Now() // every sequence begins alike, so that a failure can be replayed
			time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now))
			n++
			x := &machine{
				t: rt, path: filepath.Join(dir, fmt.Sprint(n)), m: newModel(),
				mode: rapid.SampledFrom([]storage.WriteMode{storage.WriteInsert, storage.WriteUpsert, storage.WriteAppend, storage.WriteReplace}).Draw(rt, "mode"),
			}
			x.run()
		})
	})
}

// noDeadline hides a method that must not be called in a bubble.
type noDeadline struct{ testing.TB }

// TestOrderOfCommitsNeverDecides: any two orders of the same commits leave the
// same observation, and it is the one that design.md §7 names.
func TestOrderOfCommitsNeverDecides(t *testing.T) {
	dir, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		mode := rapid.SampledFrom([]storage.WriteMode{storage.WriteInsert, storage.WriteUpsert}).Draw(rt, "mode")
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) modelRow {
			return modelRow{
				window:  rapid.SampledFrom(modelWindows).Draw(t, "window"),
				version: rapid.IntRange(1, 3).Draw(t, "version"),
				data:    rapid.SampledFrom([]string{`{"v":1}`, `{"v":2}`, `{"v":3}`}).Draw(t, "data"),
			}
		}), 1, 6).Draw(rt, "rows")
		var best *modelRow
		order := make([]int, len(rows))
		for i := range rows {
			rows[i].job = storage.JobKey{Source: "s", Target: fmt.Sprint(i), Window: rows[i].window}.String()
			if best == nil || modelWins(&rows[i], best, mode) {
				best = &rows[i]
			}
			order[i] = i
		}
		order = rapid.Permutation(order).Draw(rt, "order")
		n++
		o := commitInOrder(rt, filepath.Join(dir, fmt.Sprint(n)), rows, order, mode)
		got := modelRow{window: o.Window, version: o.Version, job: o.Job, data: string(o.Data)}
		if got != *best {
			rt.Fatalf("%+v stayed, want %+v", got, *best)
		}
	})
}

// commitInOrder makes one job for each row, claims all, commits them in the
// given order and gives the one observation there is then.
func commitInOrder(t *rapid.T, path string, rows []modelRow, order []int, mode storage.WriteMode) (o *storage.Observation) {
	s, err := storage.Open(path, storage.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Update(context.Background(), func(tx *storage.Tx) error {
		for i, r := range rows {
			n := target(fmt.Sprint(i))
			n.Window, n.Key.Window = r.window, r.window
			if _, err := tx.EnqueueJob(n); err != nil {
				return err
			}
		}
		claimed, err := tx.ClaimJobs("me", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: len(rows)}})
		if err != nil {
			return err
		}
		for _, i := range order {
			c := storage.Completion{
				Attempt: storage.Attempt{ParserVersion: rows[i].version}, Mode: mode,
				Records: []storage.NewObservation{{Key: "r", Data: []byte(rows[i].data)}},
			}
			if _, err := tx.CompleteJob(claimed[0][i].Lease(), c); err != nil {
				return err
			}
		}
		_, err = tx.Observations("s", nil, 10, func(got *storage.Observation) error {
			o = got
			return nil
		})
		return err
	})
	if err != nil || o == nil {
		t.Fatalf("committing: %v, %v", o, err)
	}
	return o
}
