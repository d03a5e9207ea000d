package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"semel/engine/fetch"
	"semel/engine/intake"
	"semel/storage"
)

const (
	// sitemapTime is how long the fetch of one sitemap may take: the largest one
	// through an exit of 1 Mbit/s.
	sitemapTime = 10 * time.Minute
	// exitWait is how often a sitemap looks whether a proxy has room.
	exitWait = time.Second
)

// openTargets opens the targets of a source. A sitemap is fetched as its targets
// are read.
func (e *Engine) openTargets(ctx context.Context, src *Source) (*intake.Reader, error) {
	if src.Targets.Kind != intake.Sitemap {
		return intake.Open(src.Targets)
	}
	get := func(url string) (io.ReadCloser, error) { return e.getSitemap(ctx, src, url) }
	return intake.OpenSitemap(src.Targets.Path, get), nil
}

// getSitemap fetches one sitemap to a temporary file, as often as the source's
// policies allow. Its error is fs.ErrNotExist where the site has none.
func (e *Engine) getSitemap(ctx context.Context, src *Source, url string) (io.ReadCloser, error) {
	file, err := newScratch()
	if err != nil {
		return nil, err
	}
	if err := newSitemapFetch(e, src, url, file).run(ctx); err != nil {
		_ = file.Close()
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// sitemapFetch is the fetch of one sitemap: with the manners of an attempt of the
// source's (robots.txt, pace, proxies, retries), but of no job. Headers of the
// source's own are left out, which may be a login for another host.
type sitemapFetch struct {
	engine *Engine
	src    Source       // its limits are those of a sitemap
	job    *storage.Job // that stands for it: nothing of it is stored
	into   *scratch
	failed map[storage.Category]int
}

func newSitemapFetch(e *Engine, src *Source, url string, into *scratch) *sitemapFetch {
	f := &sitemapFetch{engine: e, src: *src, into: into, failed: map[storage.Category]int{}}
	f.src.Timeout, f.src.Sticky, f.src.Steps = sitemapTime, 0, nil
	f.src.Limits.Bytes = 2 * intake.MaxSitemapBytes // also where it is stored without compression, with all that carries it
	country := ""
	if len(src.Country.Vars()) == 0 {
		country = strings.ToUpper(src.Country.String())
	}
	f.job = &storage.Job{Key: storage.JobKey{Source: src.Name, Target: url}, URL: url, Country: country, FirstClaim: e.now()}
	return f
}

// sitemapError is why there is no sitemap.
type sitemapError struct {
	category storage.Category
	reason   string
}

func (e *sitemapError) Error() string { return fmt.Sprintf("%s: %s", e.category, e.reason) }

// Is makes one that is not there an fs.ErrNotExist.
func (e *sitemapError) Is(target error) bool {
	return target == fs.ErrNotExist && e.category == storage.CategoryNotFound
}

// run tries until the sitemap is there, or trying on would not help.
func (f *sitemapFetch) run(ctx context.Context) error {
	for {
		via, err := f.awaitExit(ctx)
		if err != nil {
			return err
		}
		failure, host, err := f.try(ctx, via)
		if failure == nil || err != nil {
			return err
		}
		now := f.engine.now()
		d := decide(f.job, &f.src, failure, history{same: f.failed[failure.category]}, now)
		f.failed[failure.category]++
		f.job.Tries++
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case d.outcome == storage.OutcomeFail, int(f.job.Tries) >= f.src.Limits.Attempts:
			return &sitemapError{d.category, d.reason}
		}
		if !d.gate.IsZero() {
			f.engine.pace.gate(host, d.gate)
		}
		f.engine.opts.Log.Info("a sitemap will be fetched again", "source", f.src.Name, "category", failure.category, "reason", failure.reason)
		if err := sleepUntil(ctx, d.due, now); err != nil {
			return err
		}
	}
}

// awaitExit waits for a proxy that has room, unless that would be for long.
func (f *sitemapFetch) awaitExit(ctx context.Context) (exit, error) {
	e := f.engine
	for {
		now := e.now()
		via, slots := e.chooseExit(lane{&f.src, f.job.Country}, now)
		if slots > 0 {
			return via, nil
		}
		if allProxies(&f.src, func(name string) bool { return e.health.heldLong(exit{name, f.job.Country}, now) }) {
			return exit{}, fmt.Errorf("no proxy of source %s takes requests now", f.src.Name)
		}
		if err := sleepUntil(ctx, now.Add(exitWait), now); err != nil {
			return exit{}, err
		}
	}
}

// try makes one attempt, and gives the host whose answer it ended with. Its error
// is the store's or the file's.
func (f *sitemapFetch) try(ctx context.Context, via exit) (*failure, string, error) {
	e := f.engine
	if err := f.into.Reset(); err != nil {
		return nil, "", err
	}
	now := e.now()
	f.job.ClaimedAt = now
	f.job.Generation++
	a := &attempt{engine: e, src: &f.src, proxy: via.proxy, ctx: ctx, job: f.job, started: now, asked: f.job.URL}
	var r result
	f.exchange(a, &r)
	if ctx.Err() == nil {
		a.tellHost(r, e.now())
	}
	host := a.answered(r.record)
	moved := storage.Traffic{Up: r.record.BytesUp, Down: r.record.BytesDown}
	err := e.update(ctx, func(tx *storage.Tx) error {
		tx.CountTraffic(f.src.Name, host, via.proxy, moved)
		return nil
	})
	return r.failure, host, err
}

// exchange asks for the sitemap through a session of the attempt's proxy.
func (f *sitemapFetch) exchange(a *attempt, r *result) {
	session, giveBack, err := a.openSession()
	if err != nil {
		r.failure = fail(storage.CategoryConfig, "%v", err)
		return
	}
	e := f.engine
	v := newVisit(a, session, &r.record)
	v.owed = true // no claim has taken the host's turn
	defer v.end() // wakes who waits for the proxy, so it comes last
	e.health.begin(a.exit(), a.started)
	defer func() { e.health.end(a.exit(), e.now()) }()
	share := e.bodies.Share()
	defer share.Free()
	ctx, cancel := context.WithTimeout(a.ctx, sitemapTime)
	defer cancel()
	x := exchange{proxied: a.proxy != "", gateway: session.Endpoint(), worked: session.Worked(), unread: true}
	x.page, x.trace, x.err = v.do(ctx, fetch.Request{
		URL: f.job.URL, UserAgent: e.opts.UserAgent, Allow: v.allow,
		MaxBody: e.opts.MaxBodyBytes, Share: share, MaxBytes: v.bytesLeft(),
		Into: f.into, MaxInto: intake.MaxSitemapBytes,
	})
	if x.page != nil {
		r.record.FinalURL = x.page.FinalURL
		if !x.trace.ProxyOrigin {
			x.sign = a.blockSign(ctx, x.page)
		}
	}
	r.failure = judge(x, e.now())
	if errors.Is(x.err, fetch.ErrTooLarge) {
		r.failure.reason = fmt.Sprintf("it has more than %d bytes, decompressed", intake.MaxSitemapBytes)
	}
	a.account(x, v.loginOK, r)
	giveBack(r.failure == nil || exitIsGood(r.failure.category))
	v.bookLate()
}

func sleepUntil(ctx context.Context, due, now time.Time) error {
	timer := time.NewTimer(due.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// scratch is a temporary file that is gone once it is closed, and where the
// system allows it, with the process.
type scratch struct {
	*os.File
	named bool // it could not be removed while it is open
}

func newScratch() (*scratch, error) {
	file, err := os.CreateTemp("", "semel-sitemap-*")
	if err != nil {
		return nil, err
	}
	return &scratch{file, os.Remove(file.Name()) != nil}, nil
}

// Reset empties the file.
func (s *scratch) Reset() error {
	if _, err := s.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return s.Truncate(0)
}

// Close closes and removes the file.
func (s *scratch) Close() error {
	err := s.File.Close()
	if s.named {
		err = errors.Join(err, os.Remove(s.Name()))
	}
	return err
}
