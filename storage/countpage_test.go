package storage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"semel/storage"
	"semel/storage/storagetest"
)

var driftUsual = storage.DriftPolicy{Fall: storage.Whole / 2, Min: 10, Jobs: 20, Failed: 10}

// readPage completes a job whose page has the field price, or does not.
func readPage(tx *storage.Tx, j *storage.Job, price bool) (news storage.DriftNews, err error) {
	c := record(storage.WriteUpsert, 1, j.Key.Target, "1")
	if _, err = tx.CompleteJob(j.Lease(), c); err != nil {
		return news, err
	}
	r := storage.Reading{Lane: j.Lane, Version: 1, Job: j.ID, Generation: j.Generation, Records: 1, Fields: []storage.FieldReading{
		{Records: 1, Filled: 1}, {Name: "price", Required: true, Records: 1},
	}}
	if price {
		r.Fields[1].Filled = 1
	}
	return tx.CountPage(r, driftUsual, allSinks)
}

func readPages(t *testing.T, s *storage.Store, n int, price bool) (news []storage.DriftNews) {
	t.Helper()
	for range n {
		enqueue(t, s, target(fmt.Sprint(len(counters(t, s, "s")), "/", counters(t, s, "s").State(storage.StateComplete))))
		j := claimOne(t, s)
		update(t, s, func(tx *storage.Tx) error {
			one, err := readPage(tx, j, price)
			news = append(news, one)
			return err
		})
	}
	return news
}

func drift(t *testing.T, s *storage.Store) (d *storage.Drift) {
	t.Helper()
	view(t, s, func(tx *storage.Tx) (err error) {
		d, err = tx.Drift(1, 1)
		return err
	})
	return d
}

// TestCountPage: a field that has drifted is told once, with an example, and once more
// when the source pauses for it. Both last.
func TestCountPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	s, err := storage.Open(path, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	readPages(t, s, 100, true)
	if list := drift(t, s).Drifted(); len(list) != 0 {
		t.Fatalf("drifted before it fell: %v", list)
	}
	var began, paused []int
	for i, news := range readPages(t, s, 15, false) {
		if len(news.Began) > 0 {
			began = append(began, i+1)
		}
		if news.Paused != nil {
			paused = append(paused, i+1)
		}
	}
	if !slices.Equal(began, []int{6}) || !slices.Equal(paused, []int{10}) {
		t.Errorf("told at pages %v, paused at %v", began, paused)
	}
	wantDriftEvents(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = storagetest.OpenAt(t, path, storage.Options{})
	if d := drift(t, s); d.PausedFor != "price" || d.Paused.IsZero() || len(d.Drifted()) != 1 || d.Drifted()[0].Example != 115 {
		t.Errorf("after a restart: %+v", d)
	}
}

// wantDriftEvents wants what TestCountPage makes.
func wantDriftEvents(t *testing.T, s *storage.Store) {
	t.Helper()
	var told []*storage.Event
	for _, e := range pending(t, s, "s") {
		if e.Type == storage.EventDrifted {
			told = append(told, e)
		}
	}
	if len(told) != 2 || told[0].ID == told[1].ID {
		t.Fatalf("events %v", told)
	}
	for i, e := range told {
		var data struct {
			Field       string
			Required    bool
			ShareBefore float64 `json:"share_before"`
			ShareNow    float64 `json:"share_now"`
			Pages       int
			Example     struct{ ID uint64 }
			Paused      bool
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		pages := []int{6, 10}[i]
		if data.Field != "price" || !data.Required || data.ShareBefore != 1 || data.ShareNow != 0 || data.Pages != pages ||
			data.Example.ID != uint64(100+pages) || data.Paused != (i == 1) || e.Key != "s" || e.Job != data.Example.ID {
			t.Errorf("event %d, key %s, of job %d: %s", i, e.Key, e.Job, e.Data)
		}
	}
}

// TestCountPageUndone: a page is counted with its outcome or not at all, whatever
// else its group holds.
func TestCountPageUndone(t *testing.T) {
	s := storagetest.Open(t)
	var names []storage.NewJob
	for i := range 120 {
		names = append(names, target(fmt.Sprint(i)))
	}
	enqueue(t, s, names...)
	undo := errors.New("undo")
	var group sync.WaitGroup
	for _, j := range claim(t, s, 120) {
		group.Go(func() {
			err := s.Update(context.Background(), func(tx *storage.Tx) error {
				if _, err := readPage(tx, j, true); err != nil || j.ID%3 > 0 {
					return err
				}
				return undo
			})
			if (err != nil) != (j.ID%3 == 0) {
				t.Errorf("job %d: %v", j.ID, err)
			}
		})
	}
	group.Wait()
	d := drift(t, s)
	if read := int(d.Fields[1].Past.Pages) + len(d.Pages); read != 80 || counters(t, s, "s").State(storage.StateComplete) != 80 {
		t.Errorf("%d pages are counted, want 80", read)
	}
}

// TestCountPageUnpaused: a pause ends with the first page under a config that wants none.
func TestCountPageUnpaused(t *testing.T) {
	s := storagetest.Open(t)
	readPages(t, s, 30, true)
	readPages(t, s, 12, false)
	was := drift(t, s)
	r := storage.Reading{Lane: 1, Version: 1, Job: was.Pages[0].Job, Generation: 1, Records: 1}
	for _, f := range was.Fields {
		r.Fields = append(r.Fields, storage.FieldReading{Name: f.Name, Required: f.Required, Records: 1})
	}
	p := driftUsual
	p.Failed = 0
	update(t, s, func(tx *storage.Tx) error {
		_, err := tx.CountPage(r, p, nil)
		return err
	})
	if d := drift(t, s); was.Paused.IsZero() || !d.Paused.IsZero() || len(d.Drifted()) != 1 {
		t.Errorf("paused since %v, then %v, drifted %v", was.Paused, d.Paused, d.Drifted())
	}
}

// TestForgetDrift: what a person takes as it is begins anew, and whoever hands out
// jobs looks at those of the source again.
func TestForgetDrift(t *testing.T) {
	s := storagetest.Open(t)
	readPages(t, s, 30, true)
	readPages(t, s, 12, false)
	enqueue(t, s, target("waits"))
	s.TakeReady()
	if err := s.Update(t.Context(), func(tx *storage.Tx) error {
		return errors.Join(tx.ForgetDrift("s", 1), errors.New("undo"))
	}); err == nil || drift(t, s).Paused.IsZero() {
		t.Errorf("forgotten by a step that was undone: %v", err)
	}
	update(t, s, func(tx *storage.Tx) error { return errors.Join(tx.ForgetDrift("s", 1), tx.ForgetDrift("s", 2)) })
	if lanes := s.TakeReady(); len(lanes) != 1 {
		t.Errorf("ready lanes %v", lanes)
	}
	view(t, s, func(tx *storage.Tx) error {
		if d, err := tx.Drift(1, 1); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("there still is %+v (%v)", d, err)
		}
		return nil
	})
	if news := readPages(t, s, 1, false); len(news[0].Began) > 0 || len(drift(t, s).Pages) != 1 {
		t.Errorf("the next page: %+v", news)
	}
}

// TestCountPageOfFailed: what a job brings whose page these rules had failed is not
// counted, until they have completed it; what other rules made of it, or an attempt
// without a page, changes nothing.
func TestCountPageOfFailed(t *testing.T) {
	s := storagetest.Open(t)
	enqueue(t, s, target("x"))
	for i, step := range []struct {
		outcome string
		version int // 0: there was no page
		want    int // pages counted under version 1
	}{
		{storage.OutcomeFail, 2, 0},
		{storage.OutcomeRetry, 1, 0}, // until it has ended nothing is counted
		{storage.OutcomeFail, 1, 1},
		{storage.OutcomeFail, 1, 1},
		{storage.OutcomeFail, 0, 1},
		{storage.OutcomeComplete, 1, 1},
		{storage.OutcomeComplete, 1, 2},
		{storage.OutcomeFail, 0, 2},
		{storage.OutcomeFail, 1, 3},
		{storage.OutcomeFail, 2, 3},
		{storage.OutcomeFail, 1, 3},
	} {
		j := claimOne(t, s)
		update(t, s, func(tx *storage.Tx) error { return endAttempt(tx, j, step.outcome, step.version) })
		if step.want == 0 {
			continue
		}
		if d := drift(t, s); len(d.Pages) != step.want {
			t.Errorf("after attempt %d: %d pages are counted, want %d", i+1, len(d.Pages), step.want)
		}
	}
}

// endAttempt ends one whose page rules of a version have read, and has the job claimed
// once more.
func endAttempt(tx *storage.Tx, j *storage.Job, outcome string, version int) (err error) {
	a := storage.Attempt{ParserVersion: version, Category: storage.CategoryValidation}
	switch outcome {
	case storage.OutcomeRetry:
		err = tx.RetryJob(j.Lease(), a, tx.Now)
		_, promoted := tx.PromoteDue(1)
		return errors.Join(err, promoted)
	case storage.OutcomeComplete:
		_, err = readPage(tx, j, true)
	case storage.OutcomeFail:
		err = tx.FailJob(j.Lease(), a, storage.Failure{Category: a.Category})
		if err == nil && version > 0 {
			_, err = tx.CountPage(storage.Reading{
				Lane: j.Lane, Version: version, Job: j.ID, Generation: j.Generation, Records: 1,
				Fields: []storage.FieldReading{{Records: 1, Filled: 1}, {Name: "price", Required: true, Records: 1}},
			}, driftUsual, nil)
		}
	}
	if err == nil {
		_, err = tx.RecollectJob(j.ID)
	}
	return err
}

// TestDrifts: each host is counted by itself. Within a transaction, those that it has
// changed are as it left them, and what is undone is as it was.
func TestDrifts(t *testing.T) {
	s := storagetest.Open(t)
	jobs := map[string]*storage.Job{}
	for _, host := range []string{"a", "b", "c"} {
		n := target(host)
		n.Host = host
		enqueue(t, s, n)
		jobs[host] = claimOne(t, s)
	}
	read := func(tx *storage.Tx, host string) {
		if _, err := readPage(tx, jobs[host], true); err != nil {
			t.Fatal(err)
		}
	}
	want := func(tx *storage.Tx, source string, version int, hosts ...string) {
		t.Helper()
		var got []string
		err := tx.Drifts(source, version, func(d *storage.Drift) bool {
			got = append(got, d.Lane.Host)
			return d.Lane.Host != "b"
		})
		if err != nil || !slices.Equal(got, hosts) {
			t.Errorf("source %s, version %d: hosts %q (%v), want %q", source, version, got, err, hosts)
		}
	}
	update(t, s, func(tx *storage.Tx) error { read(tx, "a"); return nil })
	undo := errors.New("undo")
	err := s.Update(t.Context(), func(tx *storage.Tx) error {
		read(tx, "c")
		want(tx, "s", 1, "a", "c")
		read(tx, "b")
		want(tx, "s", 1, "a", "b") // and no more are wanted
		if err := tx.ForgetDrift("s", 1); err != nil {
			return err
		}
		want(tx, "s", 1)
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatal(err)
	}
	view(t, s, func(tx *storage.Tx) error {
		want(tx, "s", 1, "a")
		want(tx, "s", 2)
		want(tx, "", 1)
		return nil
	})
}

// BenchmarkCountPage is what a page adds to its job's outcome, without the write that a
// group makes once: half of its fields lack a value, each now and then.
func BenchmarkCountPage(b *testing.B) {
	for _, fields := range []int{10, 200} {
		b.Run(fmt.Sprint(fields), func(b *testing.B) {
			s := storagetest.Open(b)
			enqueue(b, s, target("of lane 1"))
			r := storage.Reading{Lane: 1, Version: 1, Job: 1, Generation: 1, Records: 1, Fields: make([]storage.FieldReading, fields)}
			p := driftUsual
			p.Jobs = storage.MaxDriftPages
			page := 0
			errUndo := errors.New("undo") // there is no such job
			err := s.Update(b.Context(), func(tx *storage.Tx) error {
				for b.Loop() {
					page++
					for i := range r.Fields {
						r.Fields[i] = storage.FieldReading{Name: fmt.Sprint(i), Records: 1, Filled: (page*7 + i*3) % 11 % 2}
					}
					if _, err := tx.CountPage(r, p, nil); err != nil {
						return err
					}
				}
				return errUndo
			})
			if !errors.Is(err, errUndo) {
				b.Fatal(err)
			}
		})
	}
}
