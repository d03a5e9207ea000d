package storage_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"semel/storage"
	"semel/storage/storagetest"
)

var replaceWindow = time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)

// jobsIn are jobs of source s in one window.
func jobsIn(window time.Time, names ...string) []storage.NewJob {
	jobs := make([]storage.NewJob, len(names))
	for i, name := range names {
		jobs[i] = target(name)
		jobs[i].Window, jobs[i].Key.Window = window, window
	}
	return jobs
}

// offer makes a window's run of some jobs, and offers it no more.
func offer(t testing.TB, s *storage.Store, window time.Time, names ...string) (run uint64) {
	t.Helper()
	update(t, s, func(tx *storage.Tx) error {
		r, err := tx.OpenRun(storage.RunKey{Source: "s", Window: window}, storage.RunTick)
		if err != nil {
			return err
		}
		tx.BeginListing(r)
		for _, n := range jobsIn(window, names...) {
			if _, err := tx.EnqueueJob(n); err != nil {
				return err
			}
		}
		if r, err = tx.Run(r.ID); err != nil {
			return err
		}
		run = r.ID
		return tx.EndListing(r, allEvents)
	})
	return run
}

var allEvents = []storage.Subscription{{Sink: "a"}}

// round completes all jobs that are ready: each with the rows that pages has
// for its target, "key=value" each, or fails it where that is nil.
func round(t testing.TB, s *storage.Store, pages map[string][]string) {
	t.Helper()
	jobs := claim(t, s, 1_000)
	slices.SortFunc(jobs, func(a, b *storage.Job) int { return strings.Compare(a.Key.Target, b.Key.Target) })
	for _, j := range jobs {
		finish(t, s, j, pages[j.Key.Target])
	}
}

func finish(t testing.TB, s *storage.Store, j *storage.Job, rows []string) {
	t.Helper()
	finishBy(t, s, j, 1, false, rows)
}

// finishBy is finish by a version of the rules.
func finishBy(t testing.TB, s *storage.Store, j *storage.Job, version int, whole bool, rows []string) {
	t.Helper()
	update(t, s, func(tx *storage.Tx) error {
		if rows == nil {
			failure := storage.Failure{Category: storage.CategoryNotFound, Sinks: allEvents}
			return tx.FailJob(j.Lease(), storage.Attempt{Category: storage.CategoryNotFound}, failure)
		}
		c := storage.Completion{Attempt: storage.Attempt{ParserVersion: version}, Mode: storage.WriteReplace, Sinks: allEvents, Whole: whole}
		for _, row := range rows {
			key, value, _ := strings.Cut(row, "=")
			c.Records = append(c.Records, storage.NewObservation{Key: key, Data: fmt.Appendf(nil, `{"v":%q}`, value)})
		}
		_, err := tx.CompleteJob(j.Lease(), c)
		return err
	})
}

// again sends all jobs of a run back to pending: a new round.
func again(t testing.TB, s *storage.Store, run uint64) {
	t.Helper()
	update(t, s, func(tx *storage.Tx) error {
		var ids []uint64
		_, err := tx.Jobs(0, 1<<30, func(j *storage.Job) bool {
			if j.Run == run && j.State == storage.StateComplete {
				ids = append(ids, j.ID)
			}
			return true
		})
		for _, id := range ids {
			if _, err := tx.RecollectJob(id); err != nil {
				return err
			}
		}
		return err
	})
}

// standing are the rows of source s as "window key=data revision job".
func standing(t testing.TB, s *storage.Store) (rows []string) {
	t.Helper()
	for _, o := range observations(t, s, "s") {
		job, err := storage.ParseJobKey(o.Job)
		if err != nil {
			t.Fatal(err)
		}
		value := strings.TrimSuffix(strings.TrimPrefix(string(o.Data), `{"v":"`), `"}`)
		rows = append(rows, fmt.Sprintf("%s=%s %d %s", o.Key.Target, value, o.Revision, job.Target))
	}
	return rows
}

func wantRows(t testing.TB, s *storage.Store, want ...string) {
	t.Helper()
	if got := standing(t, s); !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

func wantHeld(t testing.TB, s *storage.Store, run uint64, reason string) {
	t.Helper()
	if r := getRun(t, s, run); r.Held != reason || r.HeldSince.IsZero() != (reason == "") {
		t.Errorf("held %q since %v, want %q", r.Held, r.HeldSince, reason)
	}
}

// TestReplace: the rows of a window change in one step when its last job is
// complete. What the source no longer has is gone, equal content is as it was,
// and the rows of a job that is not ready stay readable until then.
func TestReplace(t *testing.T) {
	s := storagetest.Open(t)
	run := offer(t, s, replaceWindow, "a", "b")
	jobs := claim(t, s, 2)
	finish(t, s, jobs[0], []string{"p=1", "q=1", "r=1"})
	wantRows(t, s)
	finish(t, s, jobs[1], []string{"x=1"})
	wantRows(t, s, "p=1 1 a", "q=1 1 a", "r=1 1 a", "x=1 1 b")
	first := observations(t, s, "s")

	again(t, s, run)
	jobs = claim(t, s, 2)
	finish(t, s, jobs[0], []string{"p=1", "q=2", "new=1"})
	wantRows(t, s, "p=1 1 a", "q=1 1 a", "r=1 1 a", "x=1 1 b")
	finish(t, s, jobs[1], []string{"x=1"})
	wantRows(t, s, "new=1 1 a", "p=1 1 a", "q=2 2 a", "x=1 1 b")
	if now := observations(t, s, "s")[1]; !now.ObservedAt.Equal(first[0].ObservedAt) {
		t.Errorf("equal content was observed at %v, and is at %v", first[0].ObservedAt, now.ObservedAt)
	}

	before := fingerprintOf(t, s, "s")
	again(t, s, run)
	round(t, s, map[string][]string{"a": {"p=1", "q=2", "new=1"}, "b": {"x=1"}})
	if after := fingerprintOf(t, s, "s"); after != before {
		t.Errorf("the same rows again: %s, was %s", after, before)
	}
	if c := counters(t, s, "s"); c[storage.MetricObservations] != 4 || c[storage.MetricDuplicates] != 0 || c[storage.MetricUnchanged] != 2+4 {
		t.Errorf("counters %v", c)
	}
}

// fingerprintOf are all rows of a source, byte for byte.
func fingerprintOf(t testing.TB, s *storage.Store, source string) string {
	t.Helper()
	var b []byte
	for _, o := range observations(t, s, source) {
		b = o.AppendLine(b, false)
	}
	return string(b)
}

// TestReplaceTells: one event for each step that changes something, and none for
// its rows.
func TestReplaceTells(t *testing.T) {
	s := storagetest.Open(t)
	run := offer(t, s, replaceWindow, "a")
	round(t, s, map[string][]string{"a": {"p=1", "q=1"}})
	for _, rows := range [][]string{{"p=1", "q=1"}, {"p=2", "x=1"}} {
		again(t, s, run)
		round(t, s, map[string][]string{"a": rows})
	}
	var got []string
	for _, e := range pending(t, s, "a") {
		if e.Type != storage.EventRunFinished {
			got = append(got, fmt.Sprint(e.Type, " ", e.Key, " ", string(e.Data)))
		}
	}
	const head = `window.replaced s:2026-04-23T15%3A00%3A00Z:- {"run":"s:2026-04-23T15%3A00%3A00Z:-","source":"s","window":"2026-04-23T15:00:00Z",`
	want := []string{
		head + `"rows":2,"added":2,"changed":0,"removed":0,"revision":1,"sha256":"f"}`,
		head + `"rows":2,"added":1,"changed":1,"removed":1,"revision":2,"sha256":"f"}`,
	}
	for i := range got {
		got[i] = sumInData.ReplaceAllString(got[i], `"sha256":"f"`)
	}
	if !slices.Equal(got, want) {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestReplaceTellsAgain: rows that come back are another fact, under another id, and
// each box makes the same ids of the same facts.
func TestReplaceTellsAgain(t *testing.T) {
	ids := func() (ids []string) {
		s := storagetest.Open(t)
		run := offer(t, s, replaceWindow, "a")
		for i, rows := range [][]string{{"p=1"}, {"p=2"}, {"p=1"}, {"p=1"}, {"p=3"}, {"p=2"}, {"p=1"}} {
			if i > 0 {
				again(t, s, run)
			}
			round(t, s, map[string][]string{"a": rows})
		}
		for _, e := range pending(t, s, "a") {
			if e.Type == storage.EventReplaced {
				ids = append(ids, e.ID)
			}
		}
		return ids
	}
	here, there := ids(), ids()
	if !slices.Equal(here, there) {
		t.Errorf("the same facts have the ids %q and %q", here, there)
	}
	slices.Sort(here)
	if len(slices.Compact(here)) != 6 {
		t.Errorf("6 facts have the ids %q", here)
	}
}

var sumInData = regexp.MustCompile(`"sha256":"[0-9a-f]{64}"`)

// TestReplaceLeavesOtherWindows: a step touches no byte of another window.
func TestReplaceLeavesOtherWindows(t *testing.T) {
	s := storagetest.Open(t)
	offer(t, s, replaceWindow, "a", "b")
	round(t, s, map[string][]string{"a": {"p=1", "q=1"}, "b": {"r=1"}})
	other := fingerprintOf(t, s, "s")
	run := offer(t, s, replaceWindow.Add(24*time.Hour), "a", "b")
	round(t, s, map[string][]string{"a": {"p=2"}, "b": {}})
	again(t, s, run)
	round(t, s, map[string][]string{"a": {}, "b": {"z=1"}})
	var lines []string
	for line := range strings.Lines(fingerprintOf(t, s, "s")) {
		if strings.Contains(line, `"window":"2026-04-23T15:00:00Z"`) {
			lines = append(lines, line)
		}
	}
	if got := strings.Join(lines, ""); got != other {
		t.Errorf("the other window is\n%swas\n%s", got, other)
	}
}

// TestReplaceHolds: a failed job or too few rows hold the step until a person
// has looked, or until the job is complete after all.
func TestReplaceHolds(t *testing.T) {
	setup := func(t *testing.T) (s *storage.Store, run uint64) {
		s = storagetest.Open(t)
		run = offer(t, s, replaceWindow, "a", "b")
		round(t, s, map[string][]string{"a": {"p=1", "q=1"}, "b": {"x=1"}})
		again(t, s, run)
		return s, run
	}
	t.Run("failed job", func(t *testing.T) {
		s, run := setup(t)
		round(t, s, map[string][]string{"a": {"p=2", "q=2"}, "b": nil})
		wantHeld(t, s, run, "1 of its 2 jobs failed")
		wantRows(t, s, "p=1 1 a", "q=1 1 a", "x=1 1 b")
		update(t, s, func(tx *storage.Tx) error {
			j, err := tx.JobByKey(jobsIn(replaceWindow, "b")[0].Key)
			if err != nil {
				return err
			}
			_, err = tx.RequeueJob(j.ID)
			return err
		})
		wantHeld(t, s, run, "")
		round(t, s, map[string][]string{"b": {"x=2"}})
		wantHeld(t, s, run, "")
		wantRows(t, s, "p=2 2 a", "q=2 2 a", "x=2 2 b")
	})
	t.Run("half of the rows", func(t *testing.T) {
		s, run := setup(t)
		round(t, s, map[string][]string{"a": {"p=2"}, "b": {"x=2"}})
		wantHeld(t, s, run, "")
		wantRows(t, s, "p=2 2 a", "x=2 2 b")
		again(t, s, run)
		round(t, s, map[string][]string{"a": {"p=3"}, "b": {}})
		wantRows(t, s, "p=3 3 a")
	})
	t.Run("fewer than half", func(t *testing.T) {
		s, run := setup(t)
		round(t, s, map[string][]string{"a": {"p=2"}, "b": {}})
		wantHeld(t, s, run, "the window would have 1 rows, and has 3")
		wantRows(t, s, "p=1 1 a", "q=1 1 a", "x=1 1 b")
		update(t, s, func(tx *storage.Tx) error { _, err := tx.ReleaseRun(run, allEvents); return err })
		wantHeld(t, s, run, "")
		wantRows(t, s, "p=2 2 a")
	})
	t.Run("released with a failed job", func(t *testing.T) {
		s, run := setup(t)
		round(t, s, map[string][]string{"a": {"p=2", "n=1"}, "b": nil})
		update(t, s, func(tx *storage.Tx) error { _, err := tx.ReleaseRun(run, allEvents); return err })
		wantRows(t, s, "n=1 1 a", "p=2 2 a", "x=1 1 b")
	})
	t.Run("discarded", func(t *testing.T) {
		s, run := setup(t)
		round(t, s, map[string][]string{"a": {"p=2"}, "b": nil})
		update(t, s, func(tx *storage.Tx) error { _, err := tx.DiscardRun(run); return err })
		wantRows(t, s, "p=1 1 a", "q=1 1 a", "x=1 1 b")
		if r := getRun(t, s, run); r.Held != "" || r.Discarded.IsZero() {
			t.Errorf("discarded run %+v", r)
		}
		again(t, s, run)
		if r := getRun(t, s, run); !r.Discarded.IsZero() {
			t.Errorf("discarded run that works again %+v", r)
		}
	})
	t.Run("staged anew", func(t *testing.T) {
		s, run := setup(t)
		round(t, s, map[string][]string{"a": {}, "b": {}})
		wantHeld(t, s, run, "the window would have 0 rows, and has 3")
		again(t, s, run)
		round(t, s, map[string][]string{"a": {"p=3"}, "b": {"x=3"}})
		wantRows(t, s, "p=3 2 a", "x=3 2 b")
	})
}

// TestReplaceIncomplete: what was not offered whole, or has jobs whose rows are
// neither staged nor there, is not promoted by itself.
func TestReplaceIncomplete(t *testing.T) {
	s := storagetest.Open(t)
	enqueue(t, s, jobsIn(replaceWindow, "a")...)
	round(t, s, map[string][]string{"a": {"p=1"}})
	wantHeld(t, s, 1, "not all targets of its window were offered")
	run := offer(t, s, replaceWindow, "a", "b")
	round(t, s, map[string][]string{"b": nil})
	wantHeld(t, s, run, "1 of its 2 jobs failed")
	update(t, s, func(tx *storage.Tx) error {
		if _, err := tx.DiscardRun(run); err != nil {
			return err
		}
		_, err := tx.RequeueJob(2)
		return err
	})
	round(t, s, map[string][]string{"b": {"x=1"}})
	wantHeld(t, s, run, "1 of its 2 jobs are complete and have no rows, staged or not")
	wantRows(t, s)
	again(t, s, run)
	round(t, s, map[string][]string{"a": {"p=1"}, "b": {"x=1"}})
	wantRows(t, s, "p=1 1 a", "x=1 1 b")
}

// TestReplaceOfTwoVersions: where a window is read again as a whole, its rows are not mixed
// of what two versions of the rules have read, whatever settles the run; a person may mix
// them. A job that is collected again by itself takes its place beside the others.
func TestReplaceOfTwoVersions(t *testing.T) {
	const reason = "the pages of 1 of its 2 jobs were not read by version 2 of the rules, as the others were"
	recollectAs := func(s *storage.Store, whole bool, job uint64, rows ...string) {
		update(t, s, func(tx *storage.Tx) error { _, err := tx.RecollectJob(job); return err })
		finishBy(t, s, claimOne(t, s), 2, whole, rows)
	}
	recollect := func(s *storage.Store, job uint64, rows ...string) { recollectAs(s, true, job, rows...) }
	setup := func(t *testing.T) (s *storage.Store, run uint64) {
		s = storagetest.Open(t)
		run = offer(t, s, replaceWindow, "a", "b")
		round(t, s, map[string][]string{"a": {"p=1"}, "b": {"x=1"}})
		recollect(s, 1, "p=2")
		wantHeld(t, s, run, reason)
		return s, run
	}
	t.Run("offered again", func(t *testing.T) {
		s, run := setup(t)
		offer(t, s, replaceWindow, "a", "b")
		wantHeld(t, s, run, reason)
		wantRows(t, s, "p=1 1 a", "x=1 1 b")
	})
	t.Run("all of one version", func(t *testing.T) {
		s, run := setup(t)
		recollect(s, 2, "x=2")
		wantHeld(t, s, run, "")
		wantRows(t, s, "p=2 2 a", "x=2 2 b")
	})
	t.Run("discarded", func(t *testing.T) {
		s, run := setup(t)
		wantStands(t, s, 1, false)
		update(t, s, func(tx *storage.Tx) error { _, err := tx.DiscardRun(run); return err })
		wantStands(t, s, 1, false)
		recollect(s, 2, "x=2")
		wantHeld(t, s, run, reason)
	})
	t.Run("released", func(t *testing.T) {
		s, run := setup(t)
		update(t, s, func(tx *storage.Tx) error { _, err := tx.ReleaseRun(run, allEvents); return err })
		wantRows(t, s, "p=2 2 a", "x=1 1 b")
		wantStands(t, s, 1, true)
		recollect(s, 1, "p=3")
		wantHeld(t, s, run, reason)
	})
	t.Run("by itself", func(t *testing.T) {
		s := storagetest.Open(t)
		run := offer(t, s, replaceWindow, "a", "b")
		round(t, s, map[string][]string{"a": {"p=1"}, "b": {"x=1"}})
		recollectAs(s, false, 1, "p=2")
		wantHeld(t, s, run, "")
		wantRows(t, s, "p=2 2 a", "x=1 1 b")
		recollect(s, 1, "p=3")
		wantHeld(t, s, run, reason)
	})
	t.Run("both staged", func(t *testing.T) {
		s := storagetest.Open(t)
		run := offer(t, s, replaceWindow, "a", "b")
		for i, j := range claim(t, s, 2) {
			finishBy(t, s, j, 1+i, i == 0, []string{j.Key.Target + "=1"})
		}
		wantHeld(t, s, run, reason)
	})
}

func wantStands(t testing.TB, s *storage.Store, job uint64, want bool) {
	t.Helper()
	err := s.View(func(tx *storage.Tx) error {
		j, err := tx.Job(job)
		if err != nil {
			return err
		}
		stands, err := tx.Stands(j)
		if stands != want {
			t.Errorf("job %d stands: %v", job, stands)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplaceOfVersionsBesideEachOther: where keys name the rules, a job is done once that
// of the version which is staged is, also one that has failed.
func TestReplaceOfVersionsBesideEachOther(t *testing.T) {
	s := storagetest.Open(t)
	offerBy := func(version int, names ...string) []*storage.Job {
		jobs := jobsIn(replaceWindow, names...)
		for i := range jobs {
			jobs[i].Version, jobs[i].Key.Version = version, version
		}
		enqueue(t, s, jobs...)
		offer(t, s, replaceWindow)
		return claim(t, s, len(names))
	}
	for i, j := range offerBy(1, "a", "b") {
		finishBy(t, s, j, 1, false, [][]string{{"p=1"}, nil}[i])
	}
	wantHeld(t, s, 1, "1 of its 2 jobs failed")
	second := offerBy(2, "a", "b")
	finishBy(t, s, second[1], 2, false, []string{"x=2"})
	finishBy(t, s, second[0], 2, false, []string{"p=2"})
	wantHeld(t, s, 1, "")
	wantRows(t, s, "p=1 1 a", "p=2 1 a", "x=2 1 b")
	finishBy(t, s, offerBy(3, "a")[0], 3, false, []string{"p=3"})
	wantHeld(t, s, 1, "1 of its 5 jobs failed")
}

// TestReplaceKeepsSharedRow: a row of which nobody knows whether a page gives it that was
// not read with the others does not go by itself.
func TestReplaceKeepsSharedRow(t *testing.T) {
	s := storagetest.Open(t)
	run := offer(t, s, replaceWindow, "a", "b", "c")
	round(t, s, map[string][]string{"a": {"p=a", "q=a"}, "b": {"p=b", "x=b"}, "c": {"y=c"}})
	recollect := func(job uint64, rows ...string) {
		update(t, s, func(tx *storage.Tx) error { _, err := tx.RecollectJob(job); return err })
		finish(t, s, claimOne(t, s), rows)
	}
	recollect(3, "y=c", "z=c") // nothing goes
	wantHeld(t, s, run, "")
	recollect(1, "q=a")
	wantHeld(t, s, run, "rows would go that 1 of its jobs, whose pages were not read with the others, may give")
	recollect(2, "p=b", "x=b")
	wantHeld(t, s, run, "")
	wantRows(t, s, "p=b 2 b", "q=a 1 a", "x=b 1 b", "y=c 1 c", "z=c 1 c")
}

// TestReplacePart: a round of some jobs leaves the rows of the others, unless
// one with a smaller key brings the same row.
func TestReplacePart(t *testing.T) {
	s := storagetest.Open(t)
	offer(t, s, replaceWindow, "a", "c")
	round(t, s, map[string][]string{"a": {"p=a", "q=a"}, "c": {"p=c", "r=c"}})
	wantRows(t, s, "p=a 1 a", "q=a 1 a", "r=c 1 c")
	offer(t, s, replaceWindow, "b")
	round(t, s, map[string][]string{"b": {"p=b", "r=b"}})
	wantRows(t, s, "p=a 1 a", "q=a 1 a", "r=b 2 b")
	update(t, s, func(tx *storage.Tx) error { _, err := tx.RecollectJob(2); return err })
	round(t, s, map[string][]string{"c": {"r=c", "n=c"}})
	wantRows(t, s, "n=c 1 c", "p=a 1 a", "q=a 1 a", "r=b 2 b")
	if n := counters(t, s, "s")[storage.MetricDuplicates]; n != 3 {
		t.Errorf("%d duplicates", n)
	}
}

// TestReplaceAfterAppend: rows of a window that came under another mode go with
// the jobs that brought them.
func TestReplaceAfterAppend(t *testing.T) {
	s := storagetest.Open(t)
	run := offer(t, s, replaceWindow, "a")
	j := claimOne(t, s)
	update(t, s, func(tx *storage.Tx) error {
		c := record(storage.WriteAppend, 1, "p", "1")
		c.Records = append(c.Records, storage.NewObservation{Key: "q", Data: []byte(`{}`)})
		c.Sinks = allEvents
		_, err := tx.CompleteJob(j.Lease(), c)
		return err
	})
	again(t, s, run)
	round(t, s, map[string][]string{"a": {"p=2"}})
	wantRows(t, s, "p=2 2 a")
}

// TestAppend: one row for each key and window; in a window the higher version of
// the rules stays, then the smaller job key.
func TestAppend(t *testing.T) {
	s := storagetest.Open(t)
	later := replaceWindow.Add(time.Hour)
	enqueue(t, s, append(jobsIn(replaceWindow, "a", "b", "c"), append(jobsIn(later, "a"), target("a"))...)...)
	for _, j := range claim(t, s, 9) {
		version := map[string]int{"a": 1, "b": 2, "c": 2}[j.Key.Target]
		update(t, s, func(tx *storage.Tx) error {
			_, err := tx.CompleteJob(j.Lease(), record(storage.WriteAppend, version, "p", j.Key.Target))
			return err
		})
	}
	var got []string
	for _, o := range observations(t, s, "s") {
		got = append(got, fmt.Sprintf("%s %s %d", o.Key, o.Data, o.Revision))
	}
	want := []string{
		`s:p:-:-:-:- {"v":"a"} 1`,
		`s:p:-:2026-04-23T15%3A00%3A00Z:-:- {"v":"b"} 2`,
		`s:p:-:2026-04-23T16%3A00%3A00Z:-:- {"v":"a"} 1`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

// TestRunNotHeld: only what waits can be released or discarded.
func TestRunNotHeld(t *testing.T) {
	s := storagetest.Open(t)
	run := offer(t, s, replaceWindow, "a")
	for _, id := range []uint64{run, 99} {
		want := storage.ErrNotHeld
		if id != run {
			want = storage.ErrNotFound
		}
		update(t, s, func(tx *storage.Tx) error {
			_, err := tx.ReleaseRun(id, nil)
			wantError(t, err, want)
			_, err = tx.DiscardRun(id)
			wantError(t, err, want)
			return nil
		})
	}
}

// TestReplaceInAnyOrder: whatever the order of commits, the same rows stand
// after the step, and they are those of the smallest job keys.
func TestReplaceInAnyOrder(t *testing.T) {
	dir, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		names := []string{"a", "b", "c", "d"}
		pages, want := map[string][]string{}, map[string]string{}
		for _, name := range slices.Backward(names) {
			pages[name] = []string{}
			for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"p", "q", "r", "x"}), 0, 4, rapid.ID).Draw(rt, name) {
				pages[name] = append(pages[name], key+"="+name)
				want[key] = fmt.Sprintf("%s=%s 1 %s", key, name, name)
			}
		}
		n++
		s, err := storage.Open(filepath.Join(dir, fmt.Sprint(n)), storage.Options{NoSync: true})
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()
		offer(t, s, replaceWindow, names...)
		jobs := claim(t, s, len(names))
		for _, i := range rapid.Permutation([]int{0, 1, 2, 3}).Draw(rt, "order") {
			finish(t, s, jobs[i], pages[jobs[i].Key.Target])
		}
		if got := standing(t, s); !slices.Equal(got, slices.Sorted(maps.Values(want))) {
			rt.Fatalf("rows %q, want %q", got, want)
		}
		storagetest.Check(t, s)
	})
}

// TestPruneSparesStaged: a job whose rows wait for a person is not forgotten, and
// one that brought none leaves nothing behind.
func TestPruneSparesStaged(t *testing.T) {
	s := storagetest.Open(t)
	run := offer(t, s, replaceWindow, "a", "b", "c")
	round(t, s, map[string][]string{"a": {"p=1"}, "b": nil, "c": {}})
	prune := func(want int) {
		t.Helper()
		done, err := s.Prune(t.Context(), time.Now().Add(48*time.Hour), storage.Retention{Attempts: time.Hour})
		if err != nil || done.Jobs != want {
			t.Errorf("pruned %+v (%v), want %d jobs", done, err, want)
		}
		storagetest.Check(t, s)
	}
	update(t, s, func(tx *storage.Tx) error {
		events, err := tx.PendingEvents("a", 0, 100)
		for _, e := range events {
			if err := tx.Deliver("a", []uint64{e.Seq}); err != nil {
				return err
			}
		}
		return err
	})
	prune(1)
	update(t, s, func(tx *storage.Tx) error { _, err := tx.ReleaseRun(run, nil); return err })
	wantRows(t, s, "p=1 1 a")
	prune(1)
	wantRows(t, s, "p=1 1 a")
}

// A clock that is set back makes what came later look older, which is no damage.
func TestCheckAfterClockSetBack(t *testing.T) {
	now := replaceWindow
	s := storagetest.OpenAt(t, filepath.Join(t.TempDir(), "semel.db"), storage.Options{NoSync: true, Now: func() time.Time { return now }})
	back := func() { now = now.Add(-time.Hour) }
	run := offer(t, s, replaceWindow, "x")
	round(t, s, map[string][]string{"x": {"a=1"}})
	back()
	again(t, s, run)
	round(t, s, map[string][]string{"x": {"a=2"}})
	storagetest.Check(t, s)
	back()
	if _, err := submit(t, s, jobsIn(replaceWindow, "x")[0], "late", 1); err != nil {
		t.Fatal(err)
	}
	storagetest.Check(t, s)
}
