package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"semel/failpoint"
	"semel/storage"
)

// newMarket is a site that never changes: products with two offers each, three
// lists that lead to them, and a sitemap of them.
func newMarket(t *testing.T) *httptest.Server {
	site := httptest.NewServer(nil)
	site.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		folder, id := path.Split(r.URL.Path)
		n, _ := strconv.Atoi(id)
		switch {
		case folder == "/p/":
			fmt.Fprintf(w, `<h1>Thing %s</h1><li id="%[1]s-a">%d.50</li><li id="%[1]s-b">%[2]d.75</li>`, id, n*7)
		case folder == "/list/" && n < 4:
			fmt.Fprintf(w, `<h1>List %d</h1><a class=thing href="/p/%d">x</a><a class=thing href="/p/%d">y</a><a class=next href="/list/%d">next</a>`, n, n, n+1, n+1)
		case folder == "/list/":
			fmt.Fprintf(w, `<h1>List %d</h1><a class=next href="/list/1">first</a>`, n)
		case id == "sitemap.xml":
			fmt.Fprint(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
			for i := range 4 {
				fmt.Fprintf(w, `<url><loc>%s/p/%d</loc></url>`, site.URL, i+1)
			}
			fmt.Fprint(w, `</urlset>`)
		default:
			http.NotFound(w, r)
		}
	})
	t.Cleanup(site.Close)
	return site
}

// way is a way in, or out, over a market.
type way struct {
	name     string
	source   string   // settings of source shop, whose pages have two rows each
	more     string   // other sections of the config
	commands []string // once along it
	nothing  string   // what the last of them says when nothing is new, a pattern
	jobs     int      // that it brings, with those of work
}

// work collects what was made, and the window that is due on a schedule.
const work = "run --once --at 2026-04-23T15:00:30Z --json"

const (
	daily    = "targets = \"three.csv\"\nschedule = \"0 15 * * *\"\n"
	idle     = "targets = []\n"
	noneMade = `"new":0,.*"completed":0,`
	noneDue  = `"new":0,"known":0,.*"completed":0,`
)

var ways = []way{
	{name: "tick", source: daily, commands: []string{work}, nothing: noneDue, jobs: 3},
	{name: "ticks that are made up for", source: daily + `catch_up = "all"`, commands: []string{"run --once --at 2026-04-20", work}, nothing: noneDue, jobs: 15},
	{name: "backfill", source: daily, commands: []string{"backfill shop --from 2026-04-18 --to 2026-04-21"}, nothing: "3 windows, 0 new jobs, 9 existing", jobs: 12},
	{name: "import", source: idle, commands: []string{"import shop three.csv --chunk 1"}, nothing: "3 rows, imported before on .*: nothing to do", jobs: 3},
	{name: "import of a window", source: daily, commands: []string{"import shop three.csv --chunk 2 --window 2026-04-18"}, nothing: "nothing to do", jobs: 6},
	{name: "submit", source: idle, commands: []string{"submit shop --var id=3"}, nothing: "^known 1 complete", jobs: 1},
	{name: "submit of a window", source: daily, commands: []string{"submit shop --var id=3 --window 2026-04-18"}, nothing: "^known 1 complete", jobs: 4},
	{name: "submit with a key", source: idle, commands: []string{"submit shop --var id=3 --idempotency-key mine"}, nothing: "this key came before", jobs: 1},
	{name: "follow", source: idle, more: lists, commands: []string{work}, nothing: noneMade, jobs: 8},
	{name: "sitemap", source: "targets = \"sitemap:SITE/sitemap.xml\"\n", commands: []string{work}, nothing: noneMade, jobs: 4},
	{name: "window", source: daily, commands: []string{"run --once --window 2026-04-17..2026-04-19 --json"}, nothing: noneMade, jobs: 9},
	{name: "replace", source: daily + "write = \"replace\"\n", commands: []string{work}, nothing: noneDue, jobs: 3},
	{name: "append", source: daily + "write = \"append\"\n", commands: []string{"run --once --window 2026-04-18", work}, nothing: noneDue, jobs: 6},
	{name: "export --append", source: daily, commands: []string{work, "export shop -o shop.jsonl --append --data-only"}, nothing: "appended 0 lines", jobs: 3},
}

const lists = `[source.lists]
url = "SITE/list/{n}"
targets = [{ n = "1" }]
key = "{n}"
[source.lists.parser.fields]
title = { css = "h1", required = true }
[[source.lists.follow]]
css = "a.next"
match = '/list/(?P<n>\d+)$'
[[source.lists.follow]]
css = "a.thing"
source = "shop"
match = '/p/(?P<id>\d+)$'
`

// newMarketFolder has a config with a source shop, which takes its settings from
// settings, and files of targets.
func newMarketFolder(t *testing.T, site, settings, more string) *folder {
	config := fmt.Sprintf(`version = 1
[engine]
allow_private = true
robots = false
[host."*"]
concurrency = 4
interval = "0s"
[source.shop]
%s
%s
[source.shop.parser]
rows = { css = "li" }
key = "{id}"
[source.shop.parser.fields]
id = { css = ":scope", attr = "id", required = true }
price = { css = ":scope", type = "decimal", decimal = "." }
%s`, byVariable(settings), settings, more)
	f := newFolder(t, strings.ReplaceAll(config, "SITE", site))
	f.write("three.csv", "id\n1\n2\n3\n")
	return f
}

// byVariable are the url and key of a source whose targets are ids, and not URLs.
func byVariable(settings string) string {
	if strings.Contains(settings, "sitemap:") {
		return ""
	}
	return "url = \"SITE/p/{id}\"\nkey = \"{id}\""
}

// says runs a command that must exit with 0, and gives all that it prints.
func (f *folder) says(command string) string {
	f.t.Helper()
	stdout, stderr, code := f.semel(strings.Fields(command)...)
	if code != 0 {
		f.t.Fatalf("semel %s: exit %d\n%s%s", command, code, stdout, stderr)
	}
	return stdout + stderr
}

// everything is all that a folder's store has of jobs, runs and observations, "" before
// there is one. The store agrees with itself.
func (f *folder) everything(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(f.path("semel.db")); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	s := openChecked(t, f.path("semel.db"))
	defer s.Close()
	sums, err := s.Checksums()
	all := fmt.Appendln(nil, sums)
	err2 := s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, math.MaxInt, func(j *storage.Job) bool { all = fmt.Appendf(all, "%+v\n", j); return true })
		err2 := tx.Runs(0, func(r *storage.Run) bool { all = fmt.Appendf(all, "%+v\n", r); return true })
		return errors.Join(err, err2)
	})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, sum := range sums {
		all = append(all, exportOf(t, s, sum.Source)...)
	}
	return string(all)
}

// TestTwice goes each way twice and works what it brought: the second time it
// says that nothing is new, and the store shows the same to the byte.
func TestTwice(t *testing.T) {
	site := newMarket(t)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f := newMarketFolder(t, site.URL, w.source, w.more).racing()
			var before, said string
			for range 2 {
				before = f.everything(t)
				for _, command := range w.commands {
					said = f.says(command)
				}
				f.says(work)
			}
			if !regexp.MustCompile("(?m)" + w.nothing).MatchString(said) {
				t.Errorf("the second time it says %q, want %q", said, w.nothing)
			}
			if n := strings.Count(before, "State:complete"); n != w.jobs {
				t.Errorf("%d jobs are complete, want %d", n, w.jobs)
			}
			if after := f.everything(t); after != before {
				t.Errorf("the second time changed the store:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// TestPastDayAgain goes each way to a day that was collected long ago, on a site
// that has not changed: nothing changes, and a comparison finds no difference.
func TestPastDayAgain(t *testing.T) {
	site := newMarket(t)
	for write, day := range map[string]string{ // whose rows stand
		"insert": "2026-04-19", "upsert": "2026-04-23", "append": "2026-04-21", "replace": "2026-04-21",
	} {
		t.Run(write, func(t *testing.T) {
			t.Parallel()
			f := newMarketFolder(t, site.URL, daily+fmt.Sprintf("catch_up = \"all\"\nwrite = %q\n", write), "")
			f.says("run --once --at 2026-04-20")
			f.says(work)
			before := f.everything(t)
			if n := strings.Count(before, "State:complete"); n != 5*3 {
				t.Fatalf("%d jobs are complete, want those of 5 days", n)
			}
			for _, again := range []struct{ command, says string }{
				{fmt.Sprintf("backfill shop --from %sT01:00:00Z --to %[1]sT23:00:00Z", day), "1 window, 0 new jobs, 3 existing"},
				{"run --once --json --window " + day, `"new":0,"known":3,.*"completed":0,`},
				{"import shop three.csv --window " + day, "3 rows: 0 new, 3 known, 0 bad"},
				{"submit shop --var id=2 --window " + day, "^known .* complete"},
				{"compare shop --window " + day, "6 rows the same, 0 new, 0 changed, 0 gone"},
			} {
				said := f.says(again.command) + f.says(work)
				if !regexp.MustCompile("(?m)" + again.says).MatchString(said) {
					t.Errorf("%s says %q, want %q", again.command, said, again.says)
				}
				if after := f.everything(t); after != before {
					t.Errorf("%s changed the store:\n%s\nbefore:\n%s", again.command, after, before)
				}
			}
		})
	}
}

// waysKills is how often TestKilledOnTheWay kills each command.
func waysKills() int {
	if os.Getenv("SEMEL_REAL") != "" {
		return 25
	}
	return 2
}

// TestKilledOnTheWay kills each command of each way with SIGKILL, at commits and at
// any moment, and then lets it go on: in the end jobs, runs and observations are
// those of a folder in which nothing was disturbed.
func TestKilledOnTheWay(t *testing.T) {
	site := newMarket(t)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			calm, f := newMarketFolder(t, site.URL, w.source, w.more), newMarketFolder(t, site.URL, w.source, w.more)
			v := &violence{t: t, f: f, random: rand.New(rand.NewPCG(seed, 0))}
			for _, command := range append(w.commands, work) {
				began := time.Now()
				calm.says(command)
				v.kill(command, time.Since(began))
				f.says(command)
			}
			t.Logf("%d kills", v.kills)
			if got, want := f.collected(t), calm.collected(t); got != want {
				t.Errorf("after %d kills:\n%s\nundisturbed:\n%s", v.kills, got, want)
			}
			if v.kills < len(w.commands) {
				t.Errorf("only %d kills", v.kills)
			}
		})
	}
}

// violence kills commands over a folder.
type violence struct {
	t      *testing.T
	f      *folder
	random *rand.Rand
	kills  int
}

// kill runs a command, which takes about took when nobody disturbs it, and kills it:
// before its first commit, then wherever chance says, until it comes to its end.
func (v *violence) kill(command string, took time.Duration) {
	v.t.Helper()
	points := []failpoint.Point{failpoint.BeforeCommit, failpoint.AfterCommit, failpoint.InAppend, failpoint.AppendSynced, failpoint.InReplace}
	for n := range waysKills() {
		cmd := v.f.command(strings.Fields(command)...)
		moment := make(chan struct{})
		switch chance := v.random.IntN(2); {
		case n == 0:
			cmd.Env = append(cmd.Env, trap{Point: failpoint.BeforeCommit, Hit: 1}.env())
		case chance == 0:
			cmd.Env = append(cmd.Env, trap{Point: points[v.random.IntN(len(points))], Hit: 1 + v.random.IntN(5)}.env())
		default:
			timer := time.AfterFunc(time.Duration(v.random.Int64N(int64(took))), func() { close(moment) })
			defer timer.Stop()
		}
		if killed(v.t, cmd, moment) {
			v.kills++
		}
		v.f.everything(v.t) // agrees with itself
	}
}

// collected is what a folder's store has collected, and nothing of how: the jobs
// and where they are, the runs, and what export --data-only gives.
func (f *folder) collected(t *testing.T) string {
	t.Helper()
	s := openChecked(t, f.path("semel.db"))
	defer s.Close()
	var lines []string
	err := s.View(func(tx *storage.Tx) error {
		_, err := tx.Jobs(0, math.MaxInt, func(j *storage.Job) bool {
			lines = append(lines, fmt.Sprintln("job", j.Key, j.Window, j.URL, j.Vars, j.Priority, j.Depth, j.State))
			return true
		})
		err2 := tx.Runs(0, func(r *storage.Run) bool {
			lines = append(lines, fmt.Sprintln("run", r.Key, r.Kind, r.Jobs, r.Open, r.Failed, r.Listing, r.Offered, !r.Finished.IsZero(), r.Held))
			return true
		})
		return errors.Join(err, err2)
	})
	slices.Sort(lines)
	sums, err2 := s.Checksums()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, sum := range sums {
		lines = append(lines, fmt.Sprintln(sum), f.ok("export", sum.Source, "--data-only"))
	}
	file, err := os.ReadFile(f.path("shop.jsonl")) // in the order of the commits
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Join(lines, "") + strings.Join(slices.Sorted(strings.Lines(string(file))), "")
}

// TestImportCutShortIsTold: the rows of a window that an import was killed in stay
// as they are until it has come to its end, and runs and status say so meanwhile.
func TestImportCutShortIsTold(t *testing.T) {
	f := newMarketFolder(t, newMarket(t).URL, daily+"write = \"replace\"\n", "")
	const into = "import shop three.csv --chunk 1 --window 2026-04-18"
	cmd := f.command(strings.Fields(into)...)
	cmd.Env = append(cmd.Env, trap{Point: failpoint.AfterCommit, Hit: 3}.env())
	if !killed(t, cmd, nil) {
		t.Fatal("it was not killed")
	}
	rows := func() int {
		return strings.Count(f.ok("export", "shop", "--data-only", "--window", "2026-04-18"), "\n")
	}
	f.says(work)
	runs, status := f.ok("runs"), f.ok("status")
	for _, c := range []struct{ text, want string }{
		{runs, ` listing +import +2 .* shop:2026-04-18T15%3A00%3A00Z:-`},
		{runs, `\n +the import of three.csv has not ended\n`},
		{status, `\nwarning: source shop: the import of three.csv was cut short, .*: import the file again`},
	} {
		if !regexp.MustCompile(c.want).MatchString(c.text) {
			t.Errorf("it says\n%s\nwant %q", c.text, c.want)
		}
	}
	if n := rows(); n != 0 {
		t.Errorf("%d rows of half an import", n)
	}
	f.says(into)
	f.says(work)
	if n := rows(); n != 6 {
		t.Errorf("%d rows in the end, want 6", n)
	}
	if runs, status := f.ok("runs"), f.ok("status"); strings.Contains(runs, "import of") || strings.Contains(status, "cut short") {
		t.Errorf("in the end it says\n%s%s", runs, status)
	}
}

// served is a semel run that answers over the network.
type served struct {
	*process
	address string
}

// serve starts a run and waits until it answers.
func (f *folder) serve() *served {
	f.t.Helper()
	p := f.start("run")
	p.await("the API is served")
	_, address, _ := strings.Cut(p.said[len(p.said)-1], "address=")
	return &served{p, address}
}

// posted is the answer to a post.
type posted struct {
	status   int
	replayed bool
	job      string // its number and key
}

// post asks for a job under a key. A server that dies meanwhile is an error.
func (s *served) post(key, id string) (posted, error) {
	r, err := http.NewRequest(http.MethodPost, "http://"+s.address+"/v1/jobs", strings.NewReader(fmt.Sprintf(`{"source": "shop", "vars": {"id": %q}}`, id)))
	if err != nil {
		return posted{}, err
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return posted{}, err
	}
	defer answer.Body.Close()
	var body struct {
		ID  uint64
		Key string
	}
	err = json.NewDecoder(answer.Body).Decode(&body)
	return posted{answer.StatusCode, answer.Header.Get("Idempotent-Replayed") == "true", fmt.Sprint(body)}, err
}

// TestPostKilled posts a job under a key to a run that is killed with SIGKILL before
// or after a commit, and then to the next run. Both answers, where there are two,
// name one job, which is made once; once it is collected, they change nothing.
func TestPostKilled(t *testing.T) {
	site := newMarket(t)
	for _, point := range []failpoint.Point{failpoint.BeforeCommit, failpoint.AfterCommit} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			kills := 0
			for n := 1; n <= 3; n++ {
				f := newMarketFolder(t, site.URL, idle, "[server]\nlisten = \"127.0.0.1:0\"\n")
				f.says(work)
				if postKilled(t, f, trap{Point: point, Hit: n}) {
					kills++
				}
			}
			if t.Logf("%d kills", kills); kills == 0 {
				t.Error("it was never killed")
			}
		})
	}
}

// postKilled reports whether the run was killed.
func postKilled(t *testing.T, f *folder, at trap) (died bool) {
	t.Helper()
	f.env = []string{at.env()}
	s := f.serve()
	first, err := s.post("mine", "3")
	s.signal(os.Interrupt) // it may be dead by now
	died = s.exit() == -1
	f.env = nil
	if !died && err != nil {
		t.Fatal(err)
	}
	var before string
	for range 2 {
		before = f.everything(t)
		s := f.serve()
		again, err := s.post("mine", "3")
		if err != nil || first.job != "" && (!again.replayed || again.job != first.job) || again.status != http.StatusCreated {
			t.Errorf("killed at %+v: %+v, at first %+v (%v)", at, again, first, err)
		}
		first = again
		s.signal(os.Interrupt)
		s.exit()
		f.says(work)
	}
	if after := f.everything(t); after != before || strings.Count(after, "State:complete") != 1 {
		t.Errorf("killed at %+v: the store has\n%s\nbefore:\n%s", at, after, before)
	}
	return died
}
