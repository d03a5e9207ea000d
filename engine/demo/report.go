package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"semel/storage"
)

// conclude holds the result against the site and reports. Its error says what
// is not as promised.
func (r *run) conclude(took time.Duration) error {
	after, err := readState(r.folder.store())
	if err != nil {
		return err
	}
	r.resume(after)
	found, err := r.readRecords()
	if err != nil {
		return err
	}
	p := &printer{w: r.Stdout}
	r.report(p, after, found, took)
	return errors.Join(p.err, r.problems(found))
}

// findings are what records.jsonl holds against the site.
type findings struct {
	right   int      // records of this run's pages that are what the site says
	earlier int      // the same, of pages that only an earlier demo had
	wrong   []string // keys of all others: other content, a second record, no such page
}

// readRecords compares each record with the page it came from.
func (r *run) readRecords() (findings, error) {
	file, err := os.Open(r.folder.records())
	if err != nil {
		return findings{}, fmt.Errorf("reading the records: %w", err)
	}
	defer file.Close()
	var f findings
	seen := map[int]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, n, right := judge(lines.Bytes())
		switch {
		case !right || seen[n]:
			f.wrong = append(f.wrong, key)
		case n > r.Pages:
			f.earlier++
		default:
			f.right++
		}
		seen[n] = true
	}
	if err := lines.Err(); err != nil {
		return findings{}, fmt.Errorf("reading the records: %w", err)
	}
	return f, nil
}

// judge says which product a line of export is about, and whether it says of it
// what the page does, byte for byte.
func judge(line []byte) (key string, n int, right bool) {
	var record struct {
		Meta struct {
			Key string `json:"key"`
		} `json:"_meta"`
	}
	if json.Unmarshal(line, &record) != nil {
		return "(not JSON)", 0, false
	}
	n, ok := number(record.Meta.Key)
	if !ok {
		return record.Meta.Key, 0, false
	}
	want := bytes.TrimSuffix(Record(n), []byte("}"))
	return record.Meta.Key, n, bytes.HasPrefix(line, append(want, `,"_meta":{`...))
}

// problems are what is not as promised.
func (r *run) problems(found findings) error {
	var list []error
	problem := func(bad bool, text string, args ...any) {
		if bad {
			list = append(list, fmt.Errorf(text, args...))
		}
	}
	_, again := r.shop.counts()
	missing := r.Pages - found.right
	problem(missing > 0, "the demo failed: %d of %d pages have no right record (`semel status -c %s` says why)", missing, r.Pages, quote(r.folder.config()))
	problem(len(found.wrong) > 0, "the demo failed: %d records are not what the site says, such as %s", len(found.wrong), strings.Join(found.wrong[:min(3, len(found.wrong))], ", "))
	problem(again > 0, "the demo failed: %d requests for pages whose record was committed", again)
	problem(r.nothingToDo() && r.faults.total() > 0, "the demo failed: %d requests, though every page had been collected", r.faults.total())
	lost := untaken(r.kills)
	problem(lost != 0, "the demo failed: %d attempts that a death cut off were not taken back", lost)
	return errors.Join(list...)
}

func (r *run) nothingToDo() bool { return r.before.open(r.Pages) == 0 }

// printer prints lines and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// fact prints one figure with its name before it.
func (p *printer) fact(name, format string, args ...any) {
	p.line("  %-12s"+format, append([]any{name}, args...)...)
}

func (r *run) report(p *printer, after state, found findings, took time.Duration) {
	p.line("semel demo: %d product pages of a shop that does not exist, through a gateway where %.3g %% of the requests meet a fault", r.Pages, r.Faults*100)
	p.line("")
	if r.nothingToDo() {
		p.line("nothing to do: all %d pages were collected by an earlier demo in this folder; %d requests were made", r.Pages, r.faults.total())
	} else {
		r.reportWork(p, after)
	}
	p.fact("records", "%d of %d in records.jsonl are what the site says, byte for byte%s", found.right, r.Pages, earlierText(found.earlier))
	p.fact("time", "%s", took.Round(10*time.Millisecond))
	p.line("")
	r.reportNext(p, after)
}

func earlierText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d of an earlier demo with more pages)", n)
}

func (r *run) reportWork(p *printer, after state) {
	grown := func(metric string) int64 { return after.counters[metric] - r.before.counters[metric] }
	complete, attempts := grown(storage.MetricComplete), grown(storage.MetricAttempts)
	_, again := r.shop.counts()
	for i, k := range r.kills {
		p.fact(fmt.Sprintf("kill %d", i+1), "after %d pages were served: %d committed, %d cut off; the next process took back %d and went on",
			k.served, k.committed, k.held, k.resumed)
	}
	p.fact("pages", "%d collected%s", complete, knownText(len(r.before.complete)))
	if complete > 0 {
		p.fact("attempts", "%.2f per page", float64(attempts)/float64(complete))
	}
	p.fact("faults", "%s", r.faults)
	p.fact("recovered", "%d leases of dead workers taken back", grown(storage.MetricRecovered))
	p.fact("duplicates", "%d records; %d requests for pages that were committed before", grown(storage.MetricDuplicates), again)
}

func knownText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d known from an earlier demo in this folder", n)
}

// reportNext names the files and commands that work on them. The job to look at
// is the one with the longest story.
func (r *run) reportNext(p *printer, after state) {
	p.line("In %s: semel.toml (the config), semel.db (the store), records.jsonl (a line for each page).", r.Dir)
	p.line("")
	p.line("Try next:")
	config := quote(r.folder.config())
	p.line("  semel status -c %s", config)
	p.line("  semel show %d -c %s", max(1, after.longest), config)
	p.line("  semel export %s --data-only -c %s", source, config)
}

// quote is a path as a shell takes it.
func quote(path string) string {
	if strings.ContainsAny(path, " \t'\"$&;()") {
		return strconv.Quote(path)
	}
	return path
}
