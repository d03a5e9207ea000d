package storage_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

var aWindow = time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)

// collect makes a job, claims it and commits one record of it.
func collect(t testing.TB, s *storage.Store, n storage.NewJob, c storage.Completion) (done storage.Completed) {
	t.Helper()
	enqueue(t, s, n)
	update(t, s, func(tx *storage.Tx) error {
		groups, err := tx.ClaimJobs("me", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
		if err != nil {
			return err
		}
		done, err = tx.CompleteJob(groups[0][0].Lease(), c)
		return err
	})
	return done
}

// inWindow is target with a window that is part of its key.
func inWindow(name string, window time.Time) storage.NewJob {
	n := target(name)
	n.Window, n.Key.Window = window, window
	return n
}

// TestWrite goes through what a second record under a taken key may be.
func TestWrite(t *testing.T) {
	created, updated := storage.Completed{Created: 1}, storage.Completed{Updated: 1}
	unchanged, rejected := storage.Completed{Unchanged: 1}, storage.Completed{Rejected: 1}
	before1970 := time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		window         time.Time
		target         string // the first is m
		version        int    // the first has 2
		value          string // the first has x
		insert, upsert storage.Completed
	}{
		"later window":                  {aWindow.Add(time.Hour), "z", 1, "y", rejected, updated},
		"later window, equal content":   {aWindow.Add(time.Hour), "z", 1, "x", rejected, unchanged},
		"earlier window":                {aWindow.Add(-time.Hour), "a", 3, "y", updated, rejected},
		"window before 1970":            {before1970, "a", 3, "y", updated, rejected},
		"no window":                     {time.Time{}, "a", 3, "y", updated, rejected},
		"same window, higher version":   {aWindow, "z", 3, "y", rejected, updated},
		"same window, lower version":    {aWindow, "a", 1, "y", updated, rejected},
		"same but for a smaller job":    {aWindow, "a", 2, "y", updated, updated},
		"same but for a greater job":    {aWindow, "z", 2, "y", rejected, rejected},
		"smaller job, equal content":    {aWindow, "a", 2, "x", unchanged, unchanged},
		"greater job, equal content":    {aWindow, "z", 2, "x", rejected, rejected},
		"earlier window, equal content": {aWindow.Add(-time.Hour), "a", 3, "x", unchanged, rejected},
	} {
		for mode, want := range map[storage.WriteMode]storage.Completed{storage.WriteInsert: c.insert, storage.WriteUpsert: c.upsert} {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				s := storagetest.Open(t)
				sinks := []storage.Subscription{{Sink: "a"}}
				first, second := record(mode, 2, "r", "x"), record(mode, c.version, "r", c.value)
				first.Sinks, second.Sinks = sinks, sinks
				if got := collect(t, s, inWindow("m", aWindow), first); got != created {
					t.Fatalf("first record: %+v", got)
				}
				n := inWindow(c.target, c.window)
				if got := collect(t, s, n, second); got != want {
					t.Errorf("second record: %+v, want %+v", got, want)
				}
				rows := observations(t, s, "s")
				if len(rows) != 1 {
					t.Fatalf("%d rows", len(rows))
				}
				stays := want != rejected
				if got := rows[0].Job == n.Key.String() && rows[0].Window.Equal(c.window) && rows[0].Version == c.version; got != stays {
					t.Errorf("the second record stays: %v, want %v: %+v", got, stays, rows[0])
				}
				if events, changes := pending(t, s, "a"), 1+want.Updated; len(events) != changes || rows[0].Revision != changes {
					t.Errorf("%d events and revision %d of %d changes", len(events), rows[0].Revision, changes)
				}
				m := counters(t, s, "s")
				if m[storage.MetricDuplicates] != int64(want.Rejected) || m[storage.MetricUnchanged] != int64(want.Unchanged) || m[storage.MetricObservations] != 1 {
					t.Errorf("counters %v", m)
				}
			})
		}
	}
}

// TestCollectedAgain: the job that a row came from replaces it in either mode,
// when a person has it collected again.
func TestCollectedAgain(t *testing.T) {
	s := storagetest.Open(t)
	enqueue(t, s, target("a"))
	j := claimOne(t, s)
	update(t, s, func(tx *storage.Tx) error {
		c := record(storage.WriteInsert, 1, "r", "x")
		c.Records = append(c.Records, storage.NewObservation{Key: "r", Data: []byte(`{"v":"y"}`)})
		c.Duplicates = 3
		done, err := tx.CompleteJob(j.Lease(), c)
		if want := (storage.Completed{Created: 1, Updated: 1}); done != want {
			t.Errorf("completed %+v, want %+v", done, want)
		}
		return err
	})
	if m := counters(t, s, "s"); m[storage.MetricDuplicates] != 3 {
		t.Errorf("counters %v, want the page's 3 equal rows counted", m)
	}
}

// TestVersionsCoexist where the identity names the parser, and countries where
// it names them.
func TestVersionsCoexist(t *testing.T) {
	s := storagetest.Open(t)
	for _, version := range []int{2, 1} {
		for _, country := range []string{"US", "DE", ""} {
			n := target("a")
			n.Key.Version, n.Version, n.Key.Country, n.Country = version, version, country, country
			collect(t, s, n, record(storage.WriteUpsert, version, "r", fmt.Sprint(country, version)))
		}
	}
	var got []string
	for _, o := range observations(t, s, "s") {
		got = append(got, string(o.Data))
	}
	want := []string{`{"v":"1"}`, `{"v":"2"}`, `{"v":"DE1"}`, `{"v":"DE2"}`, `{"v":"US1"}`, `{"v":"US2"}`}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

// TestObservationsOrder: by record key, country, window, version, whatever the
// order of commits; the window is that of the row though its key has none.
func TestObservationsOrder(t *testing.T) {
	s := storagetest.Open(t)
	add := func(key, country string, scope string, window time.Time) {
		n := inWindow(key+country+scope, window)
		n.Key.Country, n.Country, n.Key.Scope, n.Scope = country, country, scope, scope
		collect(t, s, n, record(storage.WriteUpsert, 1, key, key+country+scope))
	}
	// Scopes part rows of one key and country: their windows order them.
	add("b", "US", "s1", aWindow.Add(2*time.Hour))
	add("b", "US", "s2", aWindow.Add(time.Hour))
	add("b", "US", "s3", time.Time{})
	add("b", "DE", "s1", aWindow)
	add("a", "US", "s1", aWindow)
	add("a\x00", "US", "s1", aWindow)
	add("aa", "US", "s1", aWindow)
	want := []string{"aUSs1", "a\x00USs1", "aaUSs1", "bDEs1", "bUSs3", "bUSs2", "bUSs1"}
	for limit := 1; limit <= 8; limit++ {
		var got []string
		parted := false
		view(t, s, func(tx *storage.Tx) error {
			for after := []byte(nil); ; {
				begins, before := "", len(got)
				next, err := tx.Observations("s", after, limit, func(o *storage.Observation) error {
					var data struct{ V string }
					if err := json.Unmarshal(o.Data, &data); err != nil {
						return err
					}
					if begins == "" {
						begins = data.V
						parted = parted || len(got) > 0 && strings.HasPrefix(begins, "bUS") && strings.HasPrefix(got[len(got)-1], "bUS")
					}
					got = append(got, data.V)
					return nil
				})
				if n := len(got) - before; n > limit && !strings.HasPrefix(got[len(got)-1], "bUS") {
					t.Errorf("%d rows, none of a group that began within the limit of %d", n, limit)
				}
				if after = next; err != nil || after == nil {
					return err
				}
			}
		})
		if !slices.Equal(got, want) || parted {
			t.Errorf("limit %d: %q, want %q; a group was parted: %v", limit, got, want, parted)
		}
	}
	stop := errors.New("stop")
	err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Observations("s", nil, 10, func(*storage.Observation) error { return stop })
		return err
	})
	wantError(t, err, stop)
	if n := len(observations(t, s, "other")); n != 0 {
		t.Errorf("another source has %d rows", n)
	}
}

// TestLine: a line of export as design.md §4 shows it.
func TestLine(t *testing.T) {
	data := []byte(`{"sku":"42","title":"<b> & more"}`)
	o := &storage.Observation{
		Key: storage.JobKey{Source: "catalog", Target: "42"}, Job: "catalog:42:US:2026-04-23T15%3A00%3A00Z:-:v3",
		Window: aWindow, Country: "US", URL: "https://example.com/?a=1&b=<2>", Version: 3, Revision: 1,
		ObservedAt: aWindow.Add(90 * time.Second), Missing: []string{"rating", "größe"}, Data: data,
	}
	const meta = `"_meta":{"source":"catalog","key":"42","job":"catalog:42:US:2026-04-23T15%3A00%3A00Z:-:v3","window":"2026-04-23T15:00:00Z",` +
		`"country":"US","url":"https://example.com/?a=1&b=<2>","parser_version":3,"revision":1,"fingerprint":"FP",` +
		`"observed_at":"2026-04-23T15:01:30Z","missing":["rating","größe"]`
	bare := storage.Observation{Key: storage.JobKey{Source: "s", Target: "k\"\n\xff"}, Gone: true}
	const bareMeta = `{"_meta":{"source":"s","key":"k\"\n\ufffd","job":"","window":null,"country":null,"url":"","parser_version":0,` +
		`"revision":0,"fingerprint":"FP","observed_at":"0001-01-01T00:00:00Z","missing":[],"gone":true}}` + "\n"
	empty := *o
	empty.Data = []byte("{}")
	for name, c := range map[string]struct {
		o        *storage.Observation
		dataOnly bool
		want     string
	}{
		"whole":           {o, false, `{"sku":"42","title":"<b> & more",` + meta + "}}\n"},
		"data only":       {o, true, string(data) + "\n"},
		"empty":           {&empty, false, "{" + meta + "}}\n"},
		"empty data only": {&empty, true, "{}\n"},
		"gone":            {&bare, false, bareMeta},
		"gone data only":  {&bare, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := string(c.o.AppendLine([]byte("before "), c.dataOnly))
			if diff := cmp.Diff("before "+strings.Replace(c.want, "FP", c.o.Fingerprint(), 1), got); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
			if line := strings.TrimPrefix(got, "before "); line != "" && !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
		})
	}
	if len(o.Fingerprint()) != 32 || o.Fingerprint() == empty.Fingerprint() {
		t.Errorf("fingerprints %s and %s", o.Fingerprint(), empty.Fingerprint())
	}
}

// TestGone: a page that says there is no such record is an observation of its
// own, and a change from and to a record.
func TestGone(t *testing.T) {
	s := storagetest.Open(t)
	sinks := []storage.Subscription{{Sink: "a"}}
	gone := storage.Completion{Mode: storage.WriteUpsert, Sinks: sinks, Records: []storage.NewObservation{{Key: "r", Gone: true}}}
	there := record(storage.WriteUpsert, 0, "r", "x")
	there.Sinks = sinks
	var got []storage.Completed
	for i, c := range []storage.Completion{gone, gone, there, gone} {
		got = append(got, collect(t, s, inWindow("a", aWindow.Add(time.Duration(i)*time.Hour)), c))
	}
	want := []storage.Completed{{Created: 1}, {Unchanged: 1}, {Updated: 1}, {Updated: 1}}
	if !slices.Equal(got, want) {
		t.Errorf("completed %+v, want %+v", got, want)
	}
	if rows := observations(t, s, "s"); len(rows) != 1 || !rows[0].Gone || rows[0].Revision != 3 || len(rows[0].Data) != 0 {
		t.Errorf("rows %+v", rows)
	}
}

// TestUnchangedKeepsItsTime: equal content later on is no change, and stays as
// first seen.
func TestUnchangedKeepsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storagetest.Open(t)
		collect(t, s, inWindow("a", aWindow), record(storage.WriteUpsert, 1, "r", "x"))
		seen := time.Now()
		time.Sleep(time.Hour)
		collect(t, s, inWindow("a", aWindow.Add(time.Hour)), record(storage.WriteUpsert, 1, "r", "x"))
		if o := observations(t, s, "s")[0]; !o.ObservedAt.Equal(seen) || !o.Window.Equal(aWindow.Add(time.Hour)) {
			t.Errorf("observed at %s in window %s", o.ObservedAt, o.Window)
		}
	})
}

// TestEvents: one event per change, for each sink that wants it, in the order
// of commits, with what the outside needs in it.
func TestEvents(t *testing.T) {
	s := storagetest.Open(t)
	sinks := []storage.Subscription{
		{Sink: "all"}, {Sink: "al", Events: []string{storage.EventUpdated}}, // one name begins the other
		{Sink: "jobs", Events: []string{storage.EventJobComplete, storage.EventJobFailed}},
	}
	for i, value := range []string{"x", "y", "y"} {
		c := record(storage.WriteUpsert, 1, "r", value)
		c.Sinks = sinks
		collect(t, s, inWindow("a", aWindow.Add(time.Duration(i)*time.Hour)), c)
	}
	b := target("b")
	b.Country = "US"
	e := enqueue(t, s, b)[0]
	update(t, s, func(tx *storage.Tx) error { _, err := tx.CancelJob(e.ID, sinks); return err })
	want := map[string][]string{
		"all":  {"observation.created", "observation.updated", "job.failed"},
		"al":   {"observation.updated"},
		"jobs": {"job.complete", "job.complete", "job.complete", "job.failed"},
	}
	ids := map[string]bool{}
	for sink, types := range want {
		var got []string
		last := uint64(0)
		for _, e := range pending(t, s, sink) {
			got = append(got, e.Type)
			if e.Seq <= last || !regexp.MustCompile(`^evt_[0-9a-f]{32}$`).MatchString(e.ID) || e.Timestamp.IsZero() || !json.Valid(e.Data) {
				t.Errorf("sink %s: event %+v", sink, e)
			}
			last = e.Seq
			ids[e.ID] = true
		}
		if !slices.Equal(got, types) {
			t.Errorf("sink %s has %q, want %q", sink, got, types)
		}
	}
	if len(ids) != 6 {
		t.Errorf("%d events, want 6", len(ids))
	}
	first := pending(t, s, "all")[0]
	if first.Key != "s:r:-:-:-:-" || !strings.HasPrefix(string(first.Data), `{"v":"x","_meta":`) {
		t.Errorf("event %+v, data %s", first, first.Data)
	}
	failed := pending(t, s, "all")[2]
	const data = `{"job":"s:b:-:-:-:-","id":4,"source":"s","state":"failed","url":"http://h/b","category":"canceled","reason":"canceled by a person","window":null,"country":"US","attempts":0}`
	if failed.Key != "s:b:-:-:-:-" || string(failed.Data) != data {
		t.Errorf("event %+v, data %s, want %s", failed, failed.Data, data)
	}
	if complete := pending(t, s, "jobs")[0]; !strings.Contains(string(complete.Data), `"window":"2026-04-23T15:00:00Z","country":null`) {
		t.Errorf("event %+v, data %s", complete, complete.Data)
	}
	view(t, s, func(tx *storage.Tx) error {
		list, err := tx.PendingEvents("all", 0, 2)
		if len(list) != 2 || list[0].ID != first.ID {
			t.Errorf("2 of the pending events: %v", list)
		}
		return err
	})
}

// TestEventIDs: the same fact has the same id in another store, another fact
// has another one.
func TestEventIDs(t *testing.T) {
	id := func(window time.Time, version int, key, value string) string {
		s := storagetest.Open(t)
		enqueue(t, s, target("shift")) // numbers differ between boxes
		c := record(storage.WriteUpsert, version, key, value)
		c.Sinks = []storage.Subscription{{Sink: "a"}}
		n := inWindow("a", window)
		n.Priority = 1
		collect(t, s, n, c)
		return pending(t, s, "a")[0].ID
	}
	first := id(aWindow, 1, "r", "x")
	if again := id(aWindow, 1, "r", "x"); again != first {
		t.Errorf("the same fact has the ids %s and %s", first, again)
	}
	for what, other := range map[string]string{
		"window": id(aWindow.Add(time.Hour), 1, "r", "x"), "version": id(aWindow, 2, "r", "x"),
		"key": id(aWindow, 1, "q", "x"), "content": id(aWindow, 1, "r", "y"),
	} {
		if other == first {
			t.Errorf("another %s has the same id", what)
		}
	}
}
