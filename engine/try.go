package engine

import (
	"context"
	"fmt"
	"time"

	"semel/engine/fetch"
	"semel/engine/intake"
	"semel/parser"
	"semel/storage"
)

// Trial is what one target gave that was tried outside the queue.
type Trial struct {
	Key      string
	Attempt  storage.Attempt // phase, status, bytes, endpoint
	Category storage.Category
	Reason   string
	Gone     bool
	Records  []parser.Record
	Problems []storage.Problem // rows that do not fit and would be set aside; of a page that fails, why it does not fit
	Links    []Link            // in page order by rule, as they would be followed
}

// Link is a job that a page's link would become.
type Link struct{ Source, URL, Key string }

// Try fetches and parses one target as a worker would, and stores nothing: no
// job, no attempt, no robots.txt.
func (e *Engine) Try(ctx context.Context, source string, target intake.Target) (Trial, error) {
	return e.try(ctx, source, target, (*attempt).execute)
}

// TryPage parses a page from elsewhere as if it had been fetched for a target.
func (e *Engine) TryPage(ctx context.Context, source string, target intake.Target, page *fetch.Page) (Trial, error) {
	return e.try(ctx, source, target, func(a *attempt, ctx context.Context) (r result) {
		page := *page
		page.FinalURL = a.job.URL
		r.failure = judge(exchange{page: &page, sign: a.blockSign(ctx, &page)}, e.now())
		a.parse(ctx, &page, nil, &r)
		return r
	})
}

func (e *Engine) try(ctx context.Context, name string, target intake.Target, execute func(*attempt, context.Context) result) (Trial, error) {
	src := e.sources[name]
	if src == nil {
		return Trial{}, fmt.Errorf("source %s: %w", name, storage.ErrNotFound)
	}
	source := src.Source
	source.Windowed = false // it writes nothing
	n, err := source.NewJob(target, time.Time{})
	if err != nil && target.URL != "" {
		// A URL alone need not have the variables of the key: for a trial, the
		// URL will do.
		source.Key = intake.Template{}
		n, err = source.NewJob(target, time.Time{})
	}
	if err != nil {
		return Trial{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, src.longest())
	defer cancel()
	var a *attempt
	var r result
	for _, through := range src.through() {
		a = &attempt{engine: e, src: src, proxy: through, ctx: ctx, job: &storage.Job{
			Key: n.Key, Country: n.Country, URL: n.URL, Vars: n.Vars,
		}}
		r = execute(a, ctx)
		if r.failure == nil || !wantsNext(r.failure.category) {
			break
		}
	}
	a.tellFollow(r.follow, 0)
	trial := Trial{Key: n.Key.String(), Attempt: r.record, Gone: r.gone, Records: r.output.Records, Problems: problemsOf(r.output.Bad...), Links: r.follow.links()}
	if r.failure != nil {
		trial.Category, trial.Reason, trial.Problems = r.failure.category, r.failure.reason, r.failure.problems
	}
	return trial, nil
}

// wantsNext reports whether a failure is one after which a run would go on with
// the next proxy of the list.
func wantsNext(c storage.Category) bool {
	switch c {
	case storage.CategoryProxyAuth, storage.CategoryProxyQuota, storage.CategoryProxyLimited,
		storage.CategoryProxyUnreachable, storage.CategoryExitUnavailable:
		return true
	}
	return false
}

// FetchPage fetches one target as Try does, and gives the page instead of what
// rules make of it; nil where the trial has a category.
func (e *Engine) FetchPage(ctx context.Context, source string, target intake.Target) (Trial, *fetch.Page, error) {
	var page *fetch.Page
	trial, err := e.try(ctx, source, target, func(a *attempt, ctx context.Context) (r result) {
		st := a.newStaging()
		defer st.share.Free()
		page = a.fetch(ctx, st, &r)
		return r
	})
	if trial.Category != "" {
		page = nil
	}
	return trial, page, err
}
