package engine

import (
	"net/url"

	"semel/engine/intake"
	"semel/parser"
	"semel/storage"
)

// maxFollowBytes bounds the URLs and variables of the jobs that one page leads
// to. They are held in memory and written in one transaction: 10,000 of usual
// size come to some 3 MB.
const maxFollowBytes = 32 << 20

// following is what the links of a page become.
type following struct {
	jobs []storage.NewJob
	size int // of the jobs, in bytes

	bad    int    // links that cannot become jobs
	reason string // why the first of them cannot, for people
	deep   int    // jobs that are not made, since they are beyond max_depth
}

// follow makes jobs of a page's links: in the window of the page's own job, and
// one link deeper.
func (a *attempt) follow(out parser.Output, finalURL string) (following, *failure) {
	f := following{bad: out.BadLinks}
	if f.bad > 0 {
		f.reason = "it is no URL, or holds a login"
	}
	page, err := url.Parse(finalURL)
	if err != nil {
		return f, nil // has no links then
	}
	var vars intake.Vars
	for _, v := range a.job.Vars {
		vars = append(vars, intake.Var(v))
	}
	for i, links := range out.Links {
		rule := &a.src.Follow[i]
		for _, link := range links {
			if target, ok := rule.Target(link, page, vars); ok {
				f.add(rule, target, a.job)
			}
		}
	}
	if f.size > maxFollowBytes {
		tooMuch := fail(storage.CategoryValidation, "the jobs of the page's links would hold %d bytes, more than %d", f.size, maxFollowBytes)
		tooMuch.problems = []storage.Problem{{Row: -1, Reason: tooMuch.reason}}
		return f, tooMuch
	}
	return f, nil
}

// add makes the job of one link. What is beyond maxFollowBytes is counted only.
func (f *following) add(rule *intake.Follow, target intake.Target, page *storage.Job) {
	n, err := rule.To.NewJob(target, page.Window)
	switch {
	case err != nil:
		if f.bad++; f.reason == "" {
			f.reason = err.Error()
		}
		return
	case int(page.Depth) >= rule.MaxDepth:
		f.deep++
		return
	}
	n.Depth = page.Depth + 1
	if n.Key.Source == page.Key.Source { // another source's window has a run of its own
		n.Run = page.Run
	}
	if page.Priority == storage.PriorityBackfill { // its pages lead to work of the same rank
		n.Priority = page.Priority
	}
	f.size += len(n.URL) + len(n.Key.Target)
	for _, v := range n.Vars {
		f.size += len(v.Name) + len(v.Value)
	}
	if f.size <= maxFollowBytes {
		f.jobs = append(f.jobs, n)
	}
}

// links are the jobs as a trial shows them.
func (f *following) links() []Link {
	links := make([]Link, len(f.jobs))
	for i, n := range f.jobs {
		links[i] = Link{Source: n.Key.Source, URL: n.URL, Key: n.Key.String()}
	}
	return links
}

// tellFollow logs what of a page's links was left out: told once, and no
// failure.
func (a *attempt) tellFollow(f following, collided int) {
	log, key := a.engine.opts.Log, a.job.Key.String()
	if f.bad > 0 {
		log.Warn("links cannot become jobs", "job", key, "links", f.bad, "first", f.reason)
	}
	if f.deep > 0 {
		log.Warn("links beyond max_depth are not followed", "job", key, "depth", a.job.Depth, "links", f.deep)
	}
	if collided > 0 {
		log.Warn("links were left out: another job's long key has the same hash", "job", key, "links", collided)
	}
}
