package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/intake"
	"semel/parser"
	"semel/storage"
	"semel/storage/storagetest"
)

// driftUsual is what the config says by default.
var driftUsual = storage.DriftPolicy{Fall: storage.Whole / 2, Min: 50, Jobs: 50, Failed: 25}

// changing answers with titles that its rules know for the first n pages of shop, and
// then with others.
func changing(n int) *site {
	return newSite(func(req *http.Request, _ int) (*http.Response, error) {
		tag := "h1"
		if id := strings.TrimPrefix(req.URL.Path, "/p/"); id > fmt.Sprintf("%03d", n) {
			tag = "h2"
		}
		return respond(200, "<"+tag+">Thing "+req.URL.Path+"</"+tag+">"), nil
	})
}

// driftOf is what is kept of the pages of shop, which has one host.
func driftOf(t *testing.T, s *storage.Store, version int) *storage.Drift {
	t.Helper()
	all := driftsOf(t, s, version)
	if len(all) != 1 {
		t.Fatalf("pages of %d hosts are counted, want those of one", len(all))
	}
	return all[0]
}

func driftsOf(t *testing.T, s *storage.Store, version int) (all []*storage.Drift) {
	t.Helper()
	err := s.View(func(tx *storage.Tx) error {
		return tx.Drifts("shop", version, func(d *storage.Drift) bool {
			all = append(all, d)
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// counted is how many pages of shop's one host are counted.
func counted(t *testing.T, s *storage.Store, version int) int {
	d := driftOf(t, s, version)
	return int(d.Fields[0].Past.Pages) + len(d.Pages)
}

func driftEvents(t *testing.T, s *storage.Store) (told []string) {
	t.Helper()
	for _, text := range emitted(t, s) {
		if strings.Contains(string(text), `"type":"schema.drifted"`) && !strings.Contains(string(text), `"reference":`) {
			told = append(told, string(text))
		}
	}
	return told
}

// A site that loses what every page must have stops its source, and no other of the
// host, before all its jobs have failed. Rules that are mended complete them, those
// whose pages are kept without a request: no page is fetched twice.
func TestSourcePausesAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, web := openStore(t), changing(100)
		first, other := versionOf(t, 200, 1), otherSource(t, "other", "http://shop.test/o/{id}", 20)
		first.Drift = driftUsual
		opts := options(s, web, first, other)
		opts.Bodies = BodiesFailed
		sum := runOnce(t, opts)
		left := sum.Open
		if most := driftUsual.Failed + 2*opts.Workers; sum.Failed < driftUsual.Failed || sum.Failed > most || sum.Completed != 120 || sum.Open != 80+20-sum.Failed {
			t.Errorf("%+v", sum)
		}
		if !strings.Contains(sum.Drifted["shop"], "required field title is there in ") {
			t.Errorf("why it pauses: %q", sum.Drifted)
		}
		if told := driftEvents(t, s); len(told) != 2 || strings.Contains(told[0], `"paused":true`) || !strings.Contains(told[1], `"paused":true`) {
			t.Errorf("events %q", told)
		}
		asked := web.total()
		if again := runOnce(t, opts); again.Open != sum.Open || len(again.Drifted) != 1 || web.total() != asked {
			t.Errorf("after a restart: %+v", again)
		}
		mended := versionOf(t, 200, 2)
		mended.Drift = driftUsual
		opts.Sources[0] = mended
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		released := unfit(t, s)
		for _, id := range released {
			if left, err := e.Release(t.Context(), "shop", id); err != nil || len(left) > 0 {
				t.Errorf("releasing job %d: %v, %v", id, left, err)
			}
		}
		if sum, err = e.RunOnce(t.Context()); err != nil || sum.Open != 0 || sum.Failed != 0 || len(sum.Drifted) != 0 {
			t.Errorf("under mended rules: %+v, %v", sum, err)
		}
		if n := counted(t, s, 2); n != left+len(released) {
			t.Errorf("%d pages are counted under mended rules, want %d that were fetched and %d that were read again", n, left, len(released))
		}
		if got := rows(t, s); len(got) != 200 || web.total() != 220 {
			t.Errorf("%d rows of 200, %d requests for 220 pages", len(got), web.total())
		}
	})
}

// unfit are the jobs with a page in quarantine.
func unfit(t *testing.T, s *storage.Store) (ids []uint64) {
	t.Helper()
	err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Quarantined(0, 1000, func(q *storage.Quarantine) bool {
			ids = append(ids, q.Job)
			return true
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// pricedRules want a title, and read a price where there is one.
func pricedRules(t testing.TB, price parser.Field) *parser.Rules {
	price.Name, price.CSS = "price", "i"
	return compileSpec(t, parser.Spec{Version: 1, Fields: []parser.Field{{Name: "title", Rule: parser.Rule{CSS: "h1"}, Required: true}, price}})
}

// A field that need not be there is told when it goes, also where a default or an empty
// text stands in its place; where nobody wants a pause all jobs complete.
func TestOptionalFieldDrifts(t *testing.T) {
	for name, test := range map[string]struct {
		field parser.Field
		after string
	}{"gone": {}, "empty": {after: "<i></i>"}, "default": {field: parser.Field{Default: "0"}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
					price := "<i>5</i>"
					if req.URL.Path > "/p/100" {
						price = test.after
					}
					return respond(200, "<h1>Thing</h1>"+price), nil
				})
				src := versionOf(t, 180, 1)
				src.Rules, src.Drift = pricedRules(t, test.field), driftUsual
				src.Drift.Failed = 0
				sum := runOnce(t, options(s, web, src))
				list := driftOf(t, s, 1).Drifted()
				if sum.Completed != 180 || len(sum.Drifted) != 0 || len(list) != 1 || list[0].Field != "price" || list[0].Required || list[0].Now > 500 {
					t.Errorf("%+v, drifted %v", sum, list)
				}
				if told := driftEvents(t, s); len(told) != 1 || !strings.Contains(told[0], `"field":"price"`) {
					t.Errorf("events %q", told)
				}
			})
		})
	}
}

// Pages that differ from each other, of which some do not fit and some come from
// elsewhere, are no drift.
func TestMixedPagesAreNoDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := openStore(t), rand.New(rand.NewPCG(1, 2))
		var pages []string
		for range 600 {
			page := "<h1>Thing</h1>"
			if r.IntN(10) == 0 {
				page = "<h2>Thing</h2>"
			}
			if r.IntN(3) == 0 {
				page += "<i>5</i>"
			}
			pages = append(pages, page)
		}
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			var n int
			if _, err := fmt.Sscanf(req.URL.Path, "/p/%d", &n); err != nil || n%20 == 0 {
				return respond(404, "nothing here"), nil
			}
			return respond(200, pages[n-1]), nil
		})
		src := versionOf(t, 600, 1)
		src.Rules, src.Drift = pricedRules(t, parser.Field{}), driftUsual
		sum := runOnce(t, options(s, web, src))
		d := driftOf(t, s, 1)
		if sum.Open != 0 || len(d.Drifted()) != 0 || len(driftEvents(t, s)) != 0 {
			t.Errorf("%+v, drifted %v", sum, d.Drifted())
		}
		if n := counted(t, s, 1); n != 570 {
			t.Errorf("%d pages are counted, want the 570 that the rules have read", n)
		}
	})
}

// onceMore sends jobs back for a person: those in a state, or all with "".
func onceMore(t *testing.T, s *storage.Store, state storage.JobState) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *storage.Tx) error {
		var ids []uint64
		_, err := tx.Jobs(0, 10_000, func(j *storage.Job) bool {
			if state == "" || j.State == state {
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
	if err != nil {
		t.Fatal(err)
	}
}

// Jobs that a person retries since they had failed are not just any: what becomes of
// them is no drift, and counts for none. A whole source that is collected again is.
func TestRetryOfFailedIsNoDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, unfit := openStore(t), 50 // of 1000, in no order
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			var n int
			if _, err := fmt.Sscanf(req.URL.Path, "/p/%d", &n); err != nil || n*7919%1000 < unfit {
				return respond(200, "<h2>Thing</h2>"), nil
			}
			return respond(200, "<h1>Thing</h1>"), nil
		})
		src := versionOf(t, 999, 1)
		src.Drift = driftUsual
		opts := options(s, web, src)
		sum := runOnce(t, opts)
		if sum.Failed != 49 || sum.Open != 0 || counted(t, s, 1) != 999 {
			t.Fatalf("%+v, %d pages are counted", sum, counted(t, s, 1))
		}
		for _, unfit = range []int{50, 20} { // all fail once more, and then not all of them
			onceMore(t, s, storage.StateFailed)
			sum = runOnce(t, opts)
			if sum.Failed != unfit-1 || sum.Open != 0 || len(driftOf(t, s, 1).Drifted()) != 0 || counted(t, s, 1) != 999 {
				t.Errorf("retried: %+v, %d pages are counted, drifted %v", sum, counted(t, s, 1), driftOf(t, s, 1).Drifted())
			}
		}
		onceMore(t, s, "")
		if sum = runOnce(t, opts); sum.Failed != 19 || sum.Open != 0 || len(driftOf(t, s, 1).Drifted()) != 0 {
			t.Errorf("collected again: %+v, drifted %v", sum, driftOf(t, s, 1).Drifted())
		}
		unfit = 1000
		onceMore(t, s, "")
		if sum = runOnce(t, opts); sum.Open == 0 || len(sum.Drifted) != 1 {
			t.Errorf("collected again after a change: %+v", sum)
		}
	})
}

// hosted are targets of shop in turn at each of some hosts, and the pages have a title and
// may have a price.
func hosted(t *testing.T, n int, hosts ...string) Source {
	t.Helper()
	src := versionOf(t, n, 1)
	src.URL, src.Country = template(t, "http://{host}/p/{id}"), template(t, "US")
	for i := range src.Targets.Targets {
		v := &src.Targets.Targets[i].Vars
		*v = append(*v, intake.Var{Name: "host", Value: hosts[i%len(hosts)]})
	}
	src.Rules, src.Drift = pricedRules(t, parser.Field{}), driftUsual
	return src
}

// Targets of two hosts in no order, of which one is slower and never had a field: that
// its pages come last is the pacer's doing, and no drift.
func TestSlowHostIsNoDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if req.URL.Host == "slow.test" {
				return respond(200, "<h1>Thing</h1>"), nil
			}
			return respond(200, "<h1>Thing</h1><i>5</i>"), nil
		})
		opts := options(s, web, hosted(t, 300, "fast.test", "slow.test"))
		opts.Pacing = func(host string) Pacing {
			if host == "slow.test" {
				return Pacing{1, time.Second}
			}
			return Pacing{4, 250 * time.Millisecond}
		}
		sum := runOnce(t, opts)
		if sum.Completed != 300 || sum.Open != 0 || len(sum.Drifted) != 0 || len(driftEvents(t, s)) != 0 {
			t.Errorf("%+v, events %q", sum, driftEvents(t, s))
		}
	})
}

// One host that changes pauses its source, and all that is said of it names the host.
// A person's accept begins the counts of every host anew.
func TestOneHostPausesItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if req.URL.Host == "b.test" && req.URL.Path > "/p/200" {
				return respond(200, "<h1>Thing</h1>"), nil
			}
			return respond(200, "<h1>Thing</h1><i>5</i>"), nil
		})
		src := hosted(t, 600, "a.test", "b.test", "c.test")
		opts := options(s, web, src)
		sum := runOnce(t, opts)
		if sum.Open == 0 || !strings.Contains(sum.Drifted["shop"], " pages of b.test, asked from US, since ") {
			t.Errorf("%+v", sum)
		}
		told := driftEvents(t, s)
		for _, text := range told {
			if !strings.Contains(text, `"source":"shop","host":"b.test","country":"US",`) {
				t.Errorf("event %s", text)
			}
		}
		if all := driftsOf(t, s, 1); len(told) != 2 || len(all) != 3 {
			t.Errorf("%d events, %d hosts", len(told), len(all))
		}
		var changes []string
		err := s.Update(t.Context(), func(tx *storage.Tx) (err error) {
			changes, err = Accept(tx, src.stored())
			return err
		})
		if err != nil || len(changes) != 1 || !strings.Contains(changes[0], " pages of b.test, asked from US, since ") || len(driftsOf(t, s, 1)) != 0 {
			t.Errorf("accepted %q (%v), %d hosts are left", changes, err, len(driftsOf(t, s, 1)))
		}
		if sum = runOnce(t, opts); sum.Open != 0 || len(sum.Drifted) != 0 {
			t.Errorf("after that: %+v", sum)
		}
	})
}

// Of a source that has drifted at many hosts the first are told, those that it pauses for
// before others, and how many more there are.
func TestDriftTextsOfManyHosts(t *testing.T) {
	s, undo := openStore(t), errors.New("undo")
	err := s.Update(t.Context(), func(tx *storage.Tx) error {
		for n := range 3 * driftsTold {
			host := fmt.Sprintf("h%02d.test", n)
			made, err := tx.EnqueueJob(storage.NewJob{Key: storage.JobKey{Source: "shop", Target: host}, URL: "http://" + host, Host: host})
			if err != nil {
				return err
			}
			j, err := tx.Job(made.ID)
			if err != nil {
				return err
			}
			p := driftUsual
			if n < driftsTold {
				p.Failed = 0
			}
			for page := range 100 {
				r := storage.Reading{Lane: j.Lane, Version: 1, Job: j.ID, Generation: 1, Records: 1, Fields: []storage.FieldReading{{Name: "price", Records: 1}}}
				if page < 60 {
					r.Fields[0].Filled = 1
				}
				if _, err := tx.CountPage(r, p, nil); err != nil {
					return err
				}
			}
		}
		texts, err := DriftTexts(tx, "shop", 1)
		if err != nil || len(texts) != driftsTold+1 || !strings.Contains(texts[0], " pages of h10.test since ") || texts[driftsTold] != "20 more fields or hosts like these" {
			t.Errorf("%q, %v", texts, err)
		}
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatal(err)
	}
}

// A worker that comes to a pause only when a person has already ended it leaves its
// source to go on.
func TestAcceptBeforePauseIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		src := versionOf(t, 1, 1)
		src.Drift = driftUsual
		e, err := New(options(s, changing(1), src))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if err := e.tellDrift(&src, storage.DriftNews{Paused: &storage.Drifted{Field: "title"}}); err != nil || e.pausesFor("shop") != "" {
			t.Errorf("it pauses for %q (%v)", e.pausesFor("shop"), err)
		}
	})
}

// A source whose pages a person accepts goes on while the engine runs.
func TestAcceptEndsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, web := openStore(t), changing(100)
		src := versionOf(t, 200, 1)
		src.Drift = driftUsual
		e, err := New(options(s, web, src))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := e.Run(ctx); ended <- err }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if waits := e.Waits("shop", "shop.test", ""); countersOf(t, s, "shop").Open() == 0 || !strings.Contains(waits, "pauses") {
			t.Errorf("it waits for %q", waits)
		}
		var changes []string
		err = s.Update(t.Context(), func(tx *storage.Tx) (err error) {
			changes, err = Accept(tx, src.stored())
			return err
		})
		if err != nil || len(changes) != 1 || !strings.HasPrefix(changes[0], "its pages are taken as they are: required field title") {
			t.Errorf("accepted %q, %v", changes, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if c := countersOf(t, s, "shop"); c.Open() != 0 || c.State(storage.StateFailed) != 100 || len(e.Summary().Drifted) != 0 {
			t.Errorf("after that: %v", c)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		storagetest.Check(t, s)
	})
}

// Each page of a listing counts by the share of its rows: those that are set aside
// lack the field that they were set aside for, and tell nothing of the others.
func TestReadingOfRows(t *testing.T) {
	rules := compileSpec(t, parser.Spec{
		Version: 1, Rows: &parser.Rule{CSS: "li"}, Key: "{name}", RowsBad: "quarantine", Empty: "accept",
		Fields: []parser.Field{
			{Name: "name", Rule: parser.Rule{CSS: "b"}, Required: true},
			{Name: "price", Rule: parser.Rule{CSS: "i"}, Type: "decimal", Required: true},
			{Name: "note", Rule: parser.Rule{CSS: "u"}},
		},
	})
	type counts [][2]int
	for page, want := range map[string]counts{
		"<li><b>a</b><i>1</i><u>x</u><li><b>b</b><i>soon</i><u>x</u><li><b>c</b><i>2</i><li><i>3</i>": {{4, 4}, {3, 2}, {3, 2}, {2, 1}},
		"<p>nothing": {{1, 1}, {0, 0}, {0, 0}, {0, 0}},
		"<li><b>a</b><i>1</i><li><b>a</b><i>2</i><li><b>c</b><i>2</i>": {{3, 1}, {1, 1}, {1, 1}, {1, 0}},
		"<li><b>a</b><i>soon</i>":                                      {{1, 1}, {0, 0}, {1, 0}, {0, 0}},
	} {
		fields := unreadFields(rules)
		out, err := rules.Parse(parser.Input{Body: []byte(page), FinalURL: "http://shop.test/"})
		if err != nil {
			countProblem(fields, judgeParse(err).problems[0])
		} else {
			countOutput(fields, out)
		}
		var got counts
		for _, f := range fields {
			got = append(got, [2]int{f.Records, f.Filled})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", page, got, want)
		}
	}
}

// A page that cannot be read by the rules at all counts as a whole.
func TestPageAsAWholeDrifts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if req.URL.Path > "/p/100" {
				return respond(200, "<p>come back later</p>"), nil
			}
			return respond(200, "<li><b>a</b><i>1</i>"), nil
		})
		src := versionOf(t, 180, 1)
		src.Rules, src.Drift = priceRules(t, 1, ""), driftUsual
		sum := runOnce(t, options(s, web, src))
		if why := sum.Drifted["shop"]; sum.Open == 0 || !strings.HasPrefix(why, "a page that fits its rules is there in ") {
			t.Errorf("%+v", sum)
		}
		if told := driftEvents(t, s); len(told) != 2 || !strings.Contains(told[0], `"field":null`) {
			t.Errorf("events %q", told)
		}
	})
}
