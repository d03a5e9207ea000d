package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"semel/engine/intake"
)

// BackfillRequest asks for the windows of a source's schedule that begin in
// [From, To) and have begun.
type BackfillRequest struct {
	Source string    `json:"source"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
}

// BadTarget is a target that cannot become a job.
type BadTarget struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"` // from 1; 0: unknown
	Reason string `json:"reason"`
}

// BackfillResult is what a backfill did.
type BackfillResult struct {
	Windows  int `json:"windows"`
	New      int `json:"new"`      // jobs made
	Existing int `json:"existing"` // jobs that were there before, left as they are
	BadRows  int `json:"bad_rows"` // targets that cannot become jobs
}

// Backfill implements Service.
func (l *Local) Backfill(ctx context.Context, r BackfillRequest, fn func(BadTarget) error) (BackfillResult, error) {
	switch {
	case l.Config.Source(r.Source) == nil:
		return BackfillResult{}, fmt.Errorf("%w %q: its schedule is needed", ErrUnknownSource, r.Source)
	case !r.From.Before(r.To):
		return BackfillResult{}, badRequest("a backfill ends after it begins (got %s to %s)", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
	}
	l.backfilling.Lock()
	defer l.backfilling.Unlock()
	var told error // of a caller who has stopped listening; the jobs are made all the same
	done, err := l.Offer(ctx, r.Source, r.From, r.To, func(bad *intake.RowError) {
		if told == nil {
			told = fn(BadTarget(*bad))
		}
	})
	if err == nil {
		err = told
	}
	return BackfillResult{Windows: done.Windows, New: done.New, Existing: done.Known, BadRows: done.BadRows}, err
}

// Backfill implements Service. It reads all bad targets, whatever fn says: to stop
// reading would stop the backfill.
func (c *Client) Backfill(ctx context.Context, r BackfillRequest, fn func(BadTarget) error) (result BackfillResult, err error) {
	var told error
	err = c.list(ctx, http.MethodPost, "/v1/backfill", r, eachLine(func(bad BadTarget) error {
		if told == nil {
			told = fn(bad)
		}
		return nil
	}), &result)
	if err == nil {
		err = told
	}
	return result, err
}

func (h *Handler) backfill(w *response, r *http.Request) error {
	var request BackfillRequest
	if err := readBody(w, r, &request); err != nil {
		return err
	}
	return lines(w, func(out *bufio.Writer) (any, error) {
		enc := json.NewEncoder(out)
		return h.local.Backfill(r.Context(), request, func(bad BadTarget) error { return enc.Encode(bad) })
	})
}
