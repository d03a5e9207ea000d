package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"semel/engine/fetch"
	"semel/storage"
)

// maxValidator bounds what is kept of a header, in bytes: those in use have some
// dozens.
const maxValidator = 512

// get makes a request of the attempt. Where the page is kept that last completed
// a job of its target, the site is asked whether that still stands, and the kept
// one is given where it does, with the status that it came with.
func (a *attempt) get(ctx context.Context, v *visit, plain fetch.Request) (*fetch.Page, fetch.Trace, error) {
	req := plain
	kept, ok := a.keptAnswer()
	if ok {
		req.IfChanged = fetch.Condition{URL: kept.Attempt.FinalURL, ETag: kept.ETag, LastModified: kept.LastModified}
	}
	page, trace, err := v.do(ctx, req)
	if !ok || err != nil || trace.ProxyOrigin || page.Status != http.StatusNotModified || page.FinalURL != kept.Attempt.FinalURL {
		return page, trace, err
	}
	still, err := a.restore(ctx, kept, page, plain.Share)
	if err != nil {
		a.engine.opts.Log.Warn("a kept page that the site says is unchanged cannot be read and is fetched again; run semel verify",
			"job", a.job.Key.String(), "error", err)
		plain.MaxBytes = v.bytesLeft()
		return v.do(ctx, plain)
	}
	v.record.Reason = fmt.Sprintf("304, parsed from the kept page of attempt %d of job %d", kept.Attempt.Generation, kept.Attempt.Job)
	return still, trace, nil
}

// keptAnswer looks up the page to ask for. There is none where pages of
// attempts that complete are not kept, or where the request is more than a GET.
func (a *attempt) keptAnswer() (kept storage.KeptAnswer, ok bool) {
	e := a.engine
	if e.opts.Store == nil || e.opts.Bodies != BodiesAll || len(a.src.Steps) > 0 {
		return kept, false
	}
	err := e.opts.Store.View(func(tx *storage.Tx) (err error) {
		kept, err = tx.KeptAnswer(a.job)
		return err
	})
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		e.opts.Log.Warn("what is known of a kept page cannot be read; run semel verify", "job", a.job.Key.String(), "error", err)
	}
	return kept, err == nil
}

// restore reads a kept page, as if the site had sent it now: with the headers
// of its 304, and of the earlier answer what a 304 may leave out.
func (a *attempt) restore(ctx context.Context, kept storage.KeptAnswer, answer *fetch.Page, body *fetch.Share) (*fetch.Page, error) {
	if err := body.Take(ctx, kept.PageBytes); err != nil {
		return nil, err
	}
	text, err := a.engine.opts.Store.ReadPage(kept.Attempt.Page)
	if err != nil {
		return nil, err
	}
	page := *answer
	page.Status, page.Body, page.ContentType = http.StatusOK, text, kept.Attempt.ContentType
	page.Header = answer.Header.Clone()
	for name, value := range map[string]string{"Etag": kept.ETag, "Last-Modified": kept.LastModified} {
		if value != "" && page.Header.Get(name) == "" {
			page.Header.Set(name, value)
		}
	}
	return &page, nil
}

// validatorOf gives what a later request can ask with whether a page has
// changed: nothing where the site wants it not stored, or gives another page
// for another request (RFC 9110 §12.5.5). That it may be compressed in several
// ways changes nothing here: every request accepts the same.
func validatorOf(p *fetch.Page) storage.Validator {
	varies := slices.ContainsFunc(listed(p.Header, "Vary"), func(name string) bool { return name != "accept-encoding" })
	if p.Status != http.StatusOK || varies || slices.Contains(listed(p.Header, "Cache-Control"), "no-store") {
		return storage.Validator{}
	}
	v := storage.Validator{ETag: p.Header.Get("Etag"), LastModified: lastModified(p.Header)}
	if len(v.ETag) > maxValidator {
		v.ETag = ""
	}
	return v
}

// lastModified is a page's, if no other version of it can have the same: it
// counts in seconds, so the answer must be at least one younger (RFC 9110
// §8.8.2.2).
func lastModified(h http.Header) string {
	text := h.Get("Last-Modified")
	modified, err := http.ParseTime(text)
	date, dateErr := http.ParseTime(h.Get("Date"))
	if err != nil || dateErr != nil || date.Sub(modified) < time.Second {
		return ""
	}
	return text
}

// listed are the elements of a header that holds a list, in lower case.
func listed(h http.Header, name string) []string {
	var list []string
	for element := range strings.SplitSeq(strings.Join(h.Values(name), ","), ",") {
		if element = strings.ToLower(strings.TrimSpace(element)); element != "" {
			list = append(list, element)
		}
	}
	return list
}
