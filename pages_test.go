package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"semel/failpoint"
)

// shelfPages are some batches of a reparse.
const shelfPages = 170

// Rules of the shop's pages. The first do not fit every tenth page; the second fit all
// and find more; by the third every tenth does not fit that the first did.
const (
	firstRules = `version = 1
[source.shop.parser.fields]
title = { css = "h1", required = true, pattern = 'Thing ..[0-8]' }
price = { css = ".price", type = "money", currency = "USD", decimal = "." }
`
	secondRules = `version = 2
[source.shop.parser.fields]
title = { css = "h1", required = true }
price = { css = ".price" }
head  = { css = "title" }
`
	thirdRules = `version = 3
[source.shop.parser.fields]
title = { css = "h1", required = true, pattern = 'Thing ..[0-57-9]' }
price = { css = ".price", type = "money", currency = "USD", decimal = "." }
`
)

// shelf is a config of source shop with settings, rules and sections of its own.
func shelf(site, settings, rules, more string) string {
	return fmt.Sprintf(`version = 1
[engine]
allow_private = true
robots = false
[host."*"]
concurrency = 16
interval = "0s"
[source.shop]
url = "%s/p/{id}"
key = "{id}"
targets = [%s]
%s
[source.shop.parser]
%s%s`, site, numbered(shelfPages), settings, rules, more)
}

const keepAll = "[store]\nbodies = \"all\"\n"

// exits runs a command that must exit with a code, and gives its stdout.
func (f *folder) exits(code int, command string) string {
	f.t.Helper()
	stdout, stderr, got := f.semel(strings.Fields(command)...)
	if got != code {
		f.t.Fatalf("semel %s: exit %d, want %d\n%s%s", command, got, code, stdout, stderr)
	}
	return stdout
}

// rows is the data that a folder exports.
func (f *folder) rows() string {
	f.t.Helper()
	return f.ok("export", "shop", "--data-only")
}

// rowsBy are the rows that collecting by a config gives.
func rowsBy(t *testing.T, config string) string {
	t.Helper()
	f := newFolder(t, config)
	f.says(work)
	return f.rows()
}

// wantRows wants what collecting by the same rules has given.
func wantRows(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("rows:\n%s\ncollected by these rules:\n%s", got, want)
	}
}

// wantUnasked wants that no page was asked for since the site began counting anew.
func wantUnasked(t *testing.T, site *shop) {
	t.Helper()
	if n := site.total(); n != 0 {
		t.Errorf("the site was asked %d times", n)
	}
}

// copied is another folder with all that is in this one.
func (f *folder) copied(t *testing.T) *folder {
	t.Helper()
	c := *f
	c.dir = t.TempDir()
	if err := os.CopyFS(c.dir, os.DirFS(f.dir)); err != nil {
		t.Fatal(err)
	}
	return &c
}

// reparsed is the last line of semel reparse --json.
type reparsed struct {
	Jobs, Current, Same, Changed, Unfit, Missing, Moved, Held, Contested, Rows, Gone int

	Fields map[string]struct{ Added, Lost, Changed, Failing int }
}

// reparse runs semel reparse, which must exit with a code.
func (f *folder) reparse(code int, args string) (result reparsed, text string) {
	f.t.Helper()
	out := f.exits(code, "reparse shop --json "+args)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	text = lines[len(lines)-1]
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		f.t.Fatalf("%q: %v", text, err)
	}
	return result, text
}

// readings are ways in which new rules meet what the first ones have brought.
var readings = []struct {
	name, settings string
	coexist        bool // rows of both versions stand
}{
	{name: "insert", settings: `write = "insert"`},
	{name: "upsert", settings: `write = "upsert"`},
	{name: "append", settings: "write = \"append\"\nschedule = \"0 15 * * *\""},
	{name: "replace", settings: "write = \"replace\"\nschedule = \"0 15 * * *\""},
	{name: "versions side by side", settings: `identity = ["target", "country", "window", "parser"]`, coexist: true},
	{name: "windows side by side", settings: "write = \"append\"\nschedule = \"0 15 * * *\"\nidentity = [\"target\", \"window\", \"parser\"]", coexist: true},
}

// pagesKills is how often TestReparseKilled kills each reparse, if it does not come
// to its end before.
func pagesKills() int {
	if os.Getenv("SEMEL_REAL") != "" {
		return 30
	}
	return 6
}

// TestReparseKilled reads pages again by other rules, without a request: a dry run
// tells what the real one does and changes nothing; killed at its commits with
// SIGKILL and made again, it leaves what one leaves that nobody disturbed, which is what
// collecting by these rules gives; one more changes nothing.
func TestReparseKilled(t *testing.T) {
	for _, r := range readings {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			site := newShop(t)
			want := rowsBy(t, shelf(site.URL, r.settings, secondRules, ""))
			f := newFolder(t, shelf(site.URL, r.settings, firstRules, keepAll))
			f.exits(3, work)
			before := f.rows()
			site.forget()

			f.write("semel.toml", shelf(site.URL, r.settings, secondRules, keepAll))
			calm := f.copied(t)
			wantDryRunTrue(t, calm)
			kills := killOften(t, f, "reparse shop", pagesKills())
			f.reparse(0, "")
			if got, want := f.collected(t), calm.collected(t); got != want {
				t.Errorf("after %d kills:\n%s\nundisturbed:\n%s", kills, got, want)
			}
			got := f.rows()
			if r.coexist {
				var older string
				got, older = parted(got)
				if older != before {
					t.Errorf("rows of the first rules:\n%s\nbefore:\n%s", older, before)
				}
			}
			wantRows(t, got, want)
			wantUnasked(t, site)
		})
	}
}

// wantDryRunTrue reads all pages of a folder again: first dry, then really, then once
// more.
func wantDryRunTrue(t *testing.T, f *folder) {
	t.Helper()
	before := f.everything(t)
	dry, said := f.reparse(0, "--dry-run")
	if f.everything(t) != before {
		t.Error("a dry run changed the store")
	}
	if _, real := f.reparse(0, ""); real != said {
		t.Errorf("the dry run says %s, the real one %s", said, real)
	}
	if dry.Jobs != shelfPages || dry.Changed != shelfPages || dry.Fields["head"].Added+dry.Rows != shelfPages || dry.Contested != 0 {
		t.Errorf("the dry run says %s", said)
	}
	after, sums := f.everything(t), f.ok("verify")
	again, said := f.reparse(0, "")
	if again.Current != again.Jobs || again.Changed+again.Unfit+again.Missing > 0 {
		t.Errorf("once more: %s", said)
	}
	if f.everything(t) != after || f.ok("verify") != sums {
		t.Error("once more changed the store")
	}
}

// killOften kills a command before and after its first commits, and then after later
// ones, until it comes to its end, and gives how often that was.
func killOften(t *testing.T, f *folder, command string, most int) (kills int) {
	t.Helper()
	for n := range most {
		point := []failpoint.Point{failpoint.BeforeCommit, failpoint.AfterCommit}[n%2]
		cmd := f.command(strings.Fields(command)...)
		cmd.Env = append(cmd.Env, trap{Point: point, Hit: 1 + n/2}.env())
		if !killed(t, cmd, nil) {
			break
		}
		kills++
		openChecked(t, f.path("semel.db")).Close()
	}
	t.Logf("%d kills", kills)
	if kills < 2 {
		t.Errorf("only %d kills", kills)
	}
	return kills
}

// parted are the rows of an export that the second rules have made, and the others.
func parted(export string) (newer, older string) {
	for line := range strings.Lines(export) {
		if strings.Contains(line, `"head":`) {
			newer += line
		} else {
			older += line
		}
	}
	return newer, older
}

// TestReparseUnfit: pages that do not fit the new rules leave what they gave and are
// set aside, as the dry run says, and the rules after them fit all again.
func TestReparseUnfit(t *testing.T) {
	site := newShop(t)
	f := newFolder(t, shelf(site.URL, "", secondRules, keepAll))
	f.says(work)
	site.forget()
	f.write("semel.toml", shelf(site.URL, "", thirdRules, keepAll))
	dry, said := f.reparse(0, "--dry-run")
	if _, real := f.reparse(3, ""); real != said || dry.Unfit != shelfPages/10 || dry.Fields["title"].Failing != dry.Unfit || dry.Changed != shelfPages-dry.Unfit {
		t.Errorf("the dry run says %s, the real one %s", said, real)
	}
	newer, older := parted(f.rows())
	if n, m := strings.Count(newer, "\n"), strings.Count(older, "\n"); n != dry.Unfit || m != dry.Changed {
		t.Errorf("%d rows stay and %d are new", n, m)
	}
	if said := f.ok("quarantine", "list", "--summary"); !strings.Contains(said, fmt.Sprintf("\n%d     shop    3        title  ", dry.Unfit)) || strings.Count(said, "\n") != 2 {
		t.Errorf("in quarantine:\n%s", said)
	}
	if again, said := f.reparse(0, ""); again.Current != shelfPages {
		t.Errorf("once more: %s", said)
	}
	f.write("semel.toml", shelf(site.URL, "", strings.Replace(secondRules, "= 2", "= 4", 1), keepAll))
	f.reparse(0, "")
	if newer, older := parted(f.rows()); strings.Count(newer, "\n") != shelfPages || older != "" || f.ok("quarantine") != "" {
		t.Errorf("by the last rules:\n%s%s", newer, older)
	}
	f.ok("verify")
	wantUnasked(t, site)
}

// TestReparseInARun reads pages again through the run that holds the store, while that
// collects those of another source.
func TestReparseInARun(t *testing.T) {
	site := newShop(t)
	want := rowsBy(t, shelf(site.URL, "", secondRules, ""))
	f := newFolder(t, shelf(site.URL, "", firstRules, keepAll))
	f.exits(3, work)
	site.forget()
	var others []string
	for i := range 1000 {
		others = append(others, fmt.Sprintf(`"%s/p/other-%d"`, site.URL, i))
	}
	more := fmt.Sprintf("[server]\nlisten = \"127.0.0.1:0\"\n[source.other]\ntargets = [%s]\n[source.other.parser.fields]\ntitle = { css = \"h1\" }\n", strings.Join(others, ", "))
	slow := strings.Replace(shelf(site.URL, "", secondRules, keepAll+more), `interval = "0s"`, `interval = "100ms"`, 1)
	f.write("semel.toml", slow)
	begun := site.after(2)
	p := f.start("run")
	p.await("the API is served")
	<-begun
	_, said := f.reparse(0, "--dry-run")
	if _, real := f.reparse(0, ""); real != said {
		t.Errorf("the dry run says %s, the real one %s", said, real)
	}
	if again, said := f.reparse(0, ""); again.Current != shelfPages {
		t.Errorf("once more: %s", said)
	}
	if f.exits(0, "jobs --source other --state pending --limit 1") == "" {
		t.Error("the run was done before")
	}
	p.signal(os.Interrupt)
	if code := p.exit(); code != 0 {
		t.Errorf("the run exits with %d", code)
	}
	f.ok("verify")
	wantRows(t, f.rows(), want)
	for id := range site.counts() {
		if !strings.HasPrefix(id, "other-") {
			t.Errorf("page %s was asked for", id)
		}
	}
}

// TestReparseWithoutPages: jobs whose pages were not kept are named and counted, and
// a retry of the source collects each page again, once; the pages that did not fit were
// kept.
func TestReparseWithoutPages(t *testing.T) {
	site := newShop(t)
	want := rowsBy(t, shelf(site.URL, "", secondRules, ""))
	f := newFolder(t, shelf(site.URL, "", firstRules, ""))
	f.exits(3, work)
	site.forget()
	f.write("semel.toml", shelf(site.URL, "", secondRules, ""))
	const unkept = shelfPages - shelfPages/10
	said := f.exits(0, "reparse shop")
	if n := strings.Count(said, "missing  job shop:"); n != unkept || !strings.Contains(said, "missing  job shop:000:") || strings.Contains(said, "shop:009:") {
		t.Errorf("%d jobs are named:\n%s", n, said)
	}
	if result, said := f.reparse(0, ""); result.Missing != unkept || result.Current != shelfPages-unkept {
		t.Errorf("it says %s", said)
	}
	wantUnasked(t, site)
	f.says("retry --source shop --recollect")
	f.says(work)
	wantRows(t, f.rows(), want)
	for id, n := range site.counts() {
		if n != 1 {
			t.Errorf("page %s was asked for %d times", id, n)
		}
	}
	if n := len(site.counts()); n != shelfPages {
		t.Errorf("%d pages were asked for", n)
	}
}

// mendedRules are the first ones without what every tenth page does not fit.
var mendedRules = strings.NewReplacer("version = 1", "version = 2", `, pattern = 'Thing ..[0-8]'`, "").Replace(firstRules)

// rowRules make two rows of a page, one of which does not fit on every tenth.
const rowRules = `version = 1
rows = { css = "h1, .price" }
key = "{id}-{text}"
rows_bad = "BAD"
[source.shop.parser.fields]
text = { css = ":scope", required = true, pattern = '\$.*|Thing ..[0-8]' }
`

// TestQuarantine: pages that do not fit commit nothing, or their other rows, and are
// kept with what is wrong; when the rules are mended, they are released without a
// request and give what collecting by these rules gives; what is discarded stays failed.
func TestQuarantine(t *testing.T) {
	mendedRows := strings.NewReplacer("version = 1", "version = 2", `|Thing ..[0-8]`, `|Thing .*`).Replace(rowRules)
	for _, c := range []struct {
		name, first, mended string
		bad                 string // rows_bad
		state               string
		rows                int // that each page gives, and one that does not fit
		kept                int
	}{
		{"pages", firstRules, mendedRules, "", "failed", 1, 0},
		{"rows of a page that fails", rowRules, mendedRows, "fail", "failed", 2, 0},
		{"rows set aside", rowRules, mendedRows, "quarantine", "complete", 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			site := newShop(t)
			of := func(rules string) string { return shelf(site.URL, "", strings.Replace(rules, "BAD", c.bad, 1), "") }
			want := rowsBy(t, of(c.mended))
			f := newFolder(t, of(c.first))
			f.exits(3, work)
			site.forget()
			const unfit = shelfPages / 10
			if n, want := strings.Count(f.ok("export", "shop"), "\n"), c.rows*(shelfPages-unfit)+c.kept*unfit; n != want {
				t.Errorf("%d rows are committed, want %d", n, want)
			}
			id := wantQuarantined(t, f, unfit, c.state)
			f.exits(3, "quarantine release --source shop") // by the same rules
			wantQuarantined(t, f, unfit, c.state)
			wantDiscarded(t, f.copied(t), id, c.state)
			f.write("semel.toml", of(c.mended))
			if said := f.exits(0, "quarantine release --source shop"); strings.Count(said, "released ") != unfit {
				t.Errorf("it says %s", said)
			}
			wantRows(t, f.rows(), want)
			f.ok("verify")
			if said := f.ok("quarantine"); said != "" {
				t.Errorf("in quarantine is still\n%s", said)
			}
			wantUnasked(t, site)
		})
	}
}

// wantQuarantined wants pages in quarantine that say what is wrong and are kept, and
// gives the job of one.
func wantQuarantined(t *testing.T, f *folder, pages int, state string) string {
	t.Helper()
	lines := slices.Collect(strings.Lines(f.ok("quarantine", "list", "--json")))
	if len(lines) != pages {
		t.Fatalf("%d pages are in quarantine, want %d", len(lines), pages)
	}
	var first struct {
		ID            uint64
		Job, State    string
		ParserVersion int `json:"parser_version"`
		Page          string
		Problems      []struct{ Field, Value, Reason string }
	}
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	p := first.Problems
	if first.Job != "shop:009:-:-:-:-" || first.State != state || first.ParserVersion != 1 || first.Page == "" || len(p) != 1 || p[0].Field == "" || p[0].Value != "Thing 009" || p[0].Reason == "" {
		t.Errorf("the first is %s", lines[0])
	}
	id := fmt.Sprint(first.ID)
	if said := f.ok("quarantine", "show", id); !strings.Contains(said, `(got "Thing 009")`) {
		t.Errorf("it shows\n%s", said)
	}
	if page := f.ok("quarantine", "show", id, "--page"); page != pageOf("009") {
		t.Errorf("its page is %q", page)
	}
	return id
}

// wantDiscarded discards a page: its job stays as it is.
func wantDiscarded(t *testing.T, f *folder, id, state string) {
	t.Helper()
	rows := f.ok("export", "shop")
	f.exits(0, "quarantine discard "+id)
	f.exits(1, "quarantine show "+id)
	f.exits(1, "quarantine release "+id)
	if said := f.ok("show", id); !strings.Contains(said, state) || f.ok("export", "shop") != rows {
		t.Errorf("discarded:\n%s", said)
	}
	f.ok("verify")
	f.exits(0, "quarantine discard --source shop")
	if said := f.ok("quarantine"); said != "" {
		t.Errorf("in quarantine is still\n%s", said)
	}
}
