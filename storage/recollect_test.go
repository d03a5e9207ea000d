package storage_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/storage"
	"semel/storage/storagetest"
)

// recollect collects a complete job once more, with one record of a value.
func recollect(t *testing.T, s *storage.Store, version int, value string) {
	t.Helper()
	update(t, s, func(tx *storage.Tx) error { _, err := tx.RecollectJob(1); return err })
	l := claimOne(t, s).Lease()
	update(t, s, func(tx *storage.Tx) error {
		c := record(storage.WriteUpsert, version, "a", value)
		c.Sinks = []storage.Subscription{{Sink: "s"}}
		_, err := tx.CompleteJob(l, c)
		return err
	})
}

// TestRecollect: what a complete job has brought stays until it commits again;
// equal content changes nothing then, and other content is a revision.
func TestRecollect(t *testing.T) {
	s := storagetest.Open(t)
	enqueue(t, s, target("a"))
	first := claimOne(t, s)
	update(t, s, func(tx *storage.Tx) error {
		_, err := tx.CompleteJob(first.Lease(), record(storage.WriteUpsert, 1, "a", "1"))
		return err
	})
	wantRow := func(revision, version int, data string) {
		t.Helper()
		list := observations(t, s, "s")
		if len(list) != 1 || list[0].Revision != revision || list[0].Version != version || string(list[0].Data) != data {
			t.Errorf("rows %+v, want revision %d of version %d, %s", list, revision, version, data)
		}
	}
	wantRules := func(version int, before int64) {
		t.Helper()
		if got := counters(t, s, "s").CompleteBefore(version); got != before {
			t.Errorf("%d complete jobs under rules before version %d, want %d", got, version, before)
		}
	}
	wantRules(2, 1)
	update(t, s, func(tx *storage.Tx) error {
		j, err := tx.RecollectJob(1)
		if err == nil && (j.State != storage.StatePending || j.Tries != 0 || j.Spent != 0 || !j.FirstClaim.IsZero() || j.Attempts != 1) {
			t.Errorf("recollected job %+v", j)
		}
		return err
	})
	wantRow(1, 1, `{"v":"1"}`)
	wantRules(2, 0)
	second := claimOne(t, s)
	update(t, s, func(tx *storage.Tx) error {
		return tx.FailJob(second.Lease(), storage.Attempt{Category: storage.CategoryTLS}, storage.Failure{Category: storage.CategoryTLS})
	})
	wantRow(1, 1, `{"v":"1"}`)

	recollect(t, s, 2, "1")
	wantRow(1, 2, `{"v":"1"}`)
	wantRules(2, 0)
	wantRules(3, 1)
	recollect(t, s, 3, "2")
	wantRow(2, 3, `{"v":"2"}`)
	if j := getJob(t, s, 1); j.Version != 3 || j.Generation != 4 {
		t.Errorf("the job at the end: %+v", j)
	}
	if events := pending(t, s, "s"); len(events) != 1 || events[0].Type != storage.EventUpdated {
		t.Errorf("events %+v", events)
	}
}

// TestRecollectElsewhere: a job may be collected once more in another country,
// and its page may have other rows then.
func TestRecollectElsewhere(t *testing.T) {
	s := storagetest.Open(t)
	enqueue(t, s, target("a"))
	for _, c := range []struct{ country, row string }{{"", "a"}, {"DE", "b"}} {
		n := target("a")
		n.Country = c.country
		enqueue(t, s, n)
		l := claimOne(t, s).Lease()
		update(t, s, func(tx *storage.Tx) error {
			if _, err := tx.CompleteJob(l, record(storage.WriteUpsert, 1, c.row, "1")); err != nil || c.country != "" {
				return err
			}
			_, err := tx.RecollectJob(1)
			return err
		})
	}
	if list := observations(t, s, "s"); len(list) != 2 || list[0].Country != "" || list[1].Country != "DE" {
		t.Errorf("rows %+v", list)
	}
}

// TestContentThatComesBack: each change has an id of its own, also one that
// brings back what was there before: a consumer that keeps one event for each id
// ends with what the store says. Another box with the same changes has the same
// ids.
func TestContentThatComesBack(t *testing.T) {
	values := []string{"x", "y", "x", "y", "x"}
	for i := range 40 {
		values = append(values, strconv.Itoa(i))
	}
	changes := func(window time.Time) (ids []string) {
		s := storagetest.Open(t)
		c := record(storage.WriteUpsert, 1, "a", "w")
		c.Sinks = []storage.Subscription{{Sink: "s"}}
		collect(t, s, inWindow("a", window), c)
		for _, value := range values {
			recollect(t, s, 1, value)
		}
		consumer := map[string]string{}
		for _, e := range pending(t, s, "s") {
			if before := consumer[e.ID]; before != "" {
				t.Errorf("event %d has the id of %s: %s", e.Seq, before, e.Data)
			}
			consumer[e.ID] = string(e.Data)
			ids = append(ids, e.ID)
		}
		return ids
	}
	first := changes(aWindow)
	if len(first) != len(values)+1 {
		t.Errorf("%d events of %d changes", len(first), len(values)+1)
	}
	if diff := cmp.Diff(first, changes(aWindow)); diff != "" {
		t.Errorf("another box has other ids (-first +other):\n%s", diff)
	}
	// What a window brings for the first time does not depend on what came before.
	s := storagetest.Open(t)
	c := record(storage.WriteUpsert, 1, "a", "other")
	c.Sinks = []storage.Subscription{{Sink: "s"}}
	collect(t, s, inWindow("a", aWindow), c)
	recollect(t, s, 1, "x")
	recollect(t, s, 1, "y")
	if got := pending(t, s, "s"); got[1].ID != first[1] || got[2].ID != first[2] {
		t.Errorf("the first x and y are %s and %s, want %s and %s", got[1].ID, got[2].ID, first[1], first[2])
	}
}
