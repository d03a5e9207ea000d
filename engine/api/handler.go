package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"semel/storage"
)

const (
	maxBody  = 4 << 20          // of a request: a command line full of jobs is half of it
	bodyTime = 30 * time.Second // to send it
)

// Owner is the process that holds a store.
type Owner struct {
	PID     int       `json:"pid"`
	Name    string    `json:"owner"` // under which it holds leases; "" where it runs no jobs
	Store   string    `json:"store"` // path, as it was given to that process
	Started time.Time `json:"started"`
}

// health is what /healthz answers.
type health struct {
	Status string `json:"status"` // "ok", or "stopped" where the store takes no more writes
	Owner
}

// Handler answers the HTTP API of a store to callers on this machine, who may
// do all that its owner may. Network is the part of it for others.
type Handler struct {
	local *Local
	owner Owner

	all     routes
	network routes // of all, what names no file of this machine and holds up nobody
}

// NewHandler answers the HTTP API for a store that this process holds. owner is
// the name under which it holds leases, "" where it runs no jobs.
func NewHandler(l *Local, owner string) *Handler {
	h := &Handler{
		local: l,
		owner: Owner{PID: os.Getpid(), Name: owner, Store: l.Store.Path(), Started: time.Now().UTC()},
	}
	for pattern, serve := range map[string]endpoint{
		"GET /readyz":                   h.readyz,
		"GET /v1/status":                h.status,
		"POST /v1/jobs":                 h.submit,
		"GET /v1/jobs":                  h.jobs,
		"GET /v1/jobs/{id}":             h.job,
		"POST /v1/jobs/{id}/retry":      h.retry,
		"POST /v1/jobs/{id}/cancel":     h.cancel,
		"POST /v1/jobs/retry":           h.retry,
		"POST /v1/jobs/cancel":          h.cancel,
		"GET /v1/observations/{source}": h.observations,
		"GET /v1/runs":                  h.runs,
		"POST /v1/runs/{id}/release":    h.releaseRun,
		"POST /v1/runs/{id}/discard":    h.discardRun,
		"GET /v1/quarantine":            h.quarantine,
		"GET /v1/quarantine/{id}":       h.quarantinedJob,
		"POST /v1/quarantine/discard":   h.discardPages,
		"GET /v1/outbox":                h.outbox,
		"POST /v1/outbox/retry":         h.retryEvents,
		"POST /v1/outbox/discard":       h.discardEvents,
		"GET /v1/events/{id}":           h.event,
	} {
		h.all.Handle(pattern, serve)
		h.network.Handle(pattern, serve)
	}
	h.network.Handle("GET /healthz", endpoint(h.alive))
	for pattern, serve := range map[string]endpoint{
		"GET /healthz":                 h.healthz,
		"GET /v1/verify":               h.verify,
		"GET /v1/verify/{source}":      h.verifyTwice,
		"GET /v1/checksums":            h.checksums,
		"POST /v1/backup":              h.backup,
		"POST /v1/import":              h.importFile,
		"GET /v1/cursors/{source}":     h.fileCursor,
		"POST /v1/cursors/{source}":    h.moveFileCursor,
		"POST /v1/accept/{source}":     h.accept,
		"POST /v1/compare/{source}":    h.compare,
		"GET /v1/quarantine/{id}/page": h.quarantinedPage,
		"POST /v1/quarantine/release":  h.releasePages,
		"POST /v1/reparse/{source}":    h.reparse,
		"POST /v1/backfill":            h.backfill,
	} {
		h.all.Handle(pattern, serve)
	}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.all.ServeHTTP(w, r) }

// routes is a mux whose own answers, to a path or a method that there is not,
// are problems.
type routes struct{ http.ServeMux }

// ServeHTTP implements http.Handler.
func (m *routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse, pattern := m.Handler(r)
	if pattern != "" {
		m.ServeMux.ServeHTTP(w, r)
		return
	}
	mute := &muted{ResponseWriter: w}
	refuse.ServeHTTP(mute, r)
	p := newProblem(fmt.Errorf("there is no %s %s: %w", r.Method, r.URL.Path, storage.ErrNotFound))
	if mute.status == http.StatusMethodNotAllowed {
		p.Type, p.Status, p.Title = "about:blank", mute.status, http.StatusText(mute.status)
	}
	p.write(w)
}

// muted lets headers through and keeps the status and the body back.
type muted struct {
	http.ResponseWriter
	status int
}

func (m *muted) WriteHeader(status int)      { m.status = status }
func (m *muted) Write(p []byte) (int, error) { return len(p), nil }

func (h *Handler) healthz(w *response, _ *http.Request) error {
	if h.local.Store.Err() != nil {
		return answer(w, http.StatusServiceUnavailable, health{"stopped", h.owner})
	}
	return answer(w, http.StatusOK, health{"ok", h.owner})
}

// alive is healthz for those whom it does not concern who the owner is.
func (h *Handler) alive(w *response, _ *http.Request) error {
	if h.local.Store.Err() != nil {
		return answer(w, http.StatusServiceUnavailable, map[string]string{"status": "stopped"})
	}
	return answer(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyz answers whether jobs can be asked for and changed.
func (h *Handler) readyz(w *response, _ *http.Request) error {
	if err := h.local.Store.View(func(*storage.Tx) error { return nil }); err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]string{"status": "ready"})
}

func (h *Handler) status(w *response, r *http.Request) error {
	estimate, err := parseEstimate(r.URL.Query())
	if err != nil {
		return err
	}
	s, err := h.local.Status(r.Context(), estimate)
	if err != nil {
		return err
	}
	if h.owner.Name != "" {
		s.Run = &h.owner
	}
	return answer(w, http.StatusOK, s)
}

func (h *Handler) jobs(w *response, r *http.Request) error {
	f, err := parseFilter(r.URL.Query())
	if err != nil {
		return err
	}
	return listLines(w, func(fn func(Job) error) error { return h.local.Jobs(r.Context(), f, fn) })
}

func (h *Handler) job(w *response, r *http.Request) error {
	return answerOne(w, r, h.local.Job)
}

func (h *Handler) retry(w *response, r *http.Request) error {
	s, err := selection(w, r)
	if err != nil {
		return err
	}
	return listLines(w, func(fn func(Job) error) error { return h.local.Retry(r.Context(), s, fn) })
}

func (h *Handler) cancel(w *response, r *http.Request) error {
	s, err := selection(w, r)
	if err != nil {
		return err
	}
	if s.Recollect {
		return badRequest("only a retry recollects")
	}
	return listLines(w, func(fn func(Job) error) error { return h.local.Cancel(r.Context(), s, fn) })
}

func (h *Handler) verify(w *response, r *http.Request) error {
	return lines(w, func(out *bufio.Writer) (any, error) {
		enc := json.NewEncoder(out)
		return h.local.Verify(r.Context(), func(b Breach) error { return enc.Encode(b) })
	})
}

func (h *Handler) verifyTwice(w *response, r *http.Request) error {
	return lines(w, func(out *bufio.Writer) (any, error) {
		enc := json.NewEncoder(out)
		return h.local.VerifyTwice(r.Context(), r.PathValue("source"), func(u Unlike) error { return enc.Encode(u) })
	})
}

func (h *Handler) checksums(w *response, r *http.Request) error {
	sums, err := h.local.Checksums(r.Context())
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, sums)
}

// backupRequest is the body of POST /v1/backup.
type backupRequest struct {
	Path string `json:"path"`
}

func (h *Handler) backup(w *response, r *http.Request) error {
	var request backupRequest
	if err := readBody(w, r, &request); err != nil {
		return err
	}
	result, err := h.local.Backup(r.Context(), request.Path)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, result)
}

func (h *Handler) importFile(w *response, r *http.Request) error {
	var request ImportRequest
	if err := readBody(w, r, &request); err != nil {
		return err
	}
	return lines(w, func(out *bufio.Writer) (any, error) {
		enc := json.NewEncoder(out)
		return h.local.Import(r.Context(), request, func(n ImportNews) error {
			return atOnce(w, out, enc.Encode(n))
		})
	})
}

// atOnce sends what was written, unless that has failed: somebody may be looking on.
func atOnce(w *response, out *bufio.Writer, err error) error {
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

func (h *Handler) accept(w *response, r *http.Request) error {
	request := AcceptRequest{Source: r.PathValue("source")}
	if err := readBody(w, r, &request); err != nil {
		return err
	}
	result, err := h.local.Accept(r.Context(), request)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, result)
}

func (h *Handler) compare(w *response, r *http.Request) error {
	request := CompareRequest{Source: r.PathValue("source")}
	if err := readBody(w, r, &request); err != nil {
		return err
	}
	if request.From.IsZero() != request.To.IsZero() {
		return badRequest("name both from and to, or neither")
	}
	return lines(w, func(out *bufio.Writer) (any, error) {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false) // records are as export has them
		return h.local.Compare(r.Context(), request, func(d Difference) error { return enc.Encode(d) })
	})
}

func (h *Handler) runs(w *response, r *http.Request) error {
	f, err := parseRunFilter(r.URL.Query())
	if err != nil {
		return err
	}
	return listLines(w, func(fn func(Run) error) error { return h.local.Runs(r.Context(), f, fn) })
}

func (h *Handler) releaseRun(w *response, r *http.Request) error {
	return answerOne(w, r, h.local.ReleaseRun)
}

func (h *Handler) discardRun(w *response, r *http.Request) error {
	return answerOne(w, r, h.local.DiscardRun)
}

// answerOne answers with what call gives of the id in the path.
func answerOne[T any](w *response, r *http.Request, call func(ctx context.Context, ref string) (T, error)) error {
	one, err := call(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, one)
}

func (h *Handler) quarantine(w *response, r *http.Request) error {
	f, err := parseQuarantineFilter(r.URL.Query())
	if err != nil {
		return err
	}
	return listLines(w, func(fn func(Quarantined) error) error { return h.local.Quarantine(r.Context(), f, fn) })
}

func (h *Handler) quarantinedJob(w *response, r *http.Request) error {
	return answerOne(w, r, h.local.QuarantinedJob)
}

func (h *Handler) quarantinedPage(w *response, r *http.Request) error {
	return stream(w, "application/octet-stream", func(out *bufio.Writer) (any, error) {
		return counted{}, h.local.QuarantinedPage(r.Context(), r.PathValue("id"), out)
	})
}

func (h *Handler) releasePages(w *response, r *http.Request) error {
	var s PageSelection
	if err := readBody(w, r, &s); err != nil {
		return err
	}
	return listLines(w, func(fn func(Released) error) error { return h.local.ReleasePages(r.Context(), s, fn) })
}

func (h *Handler) discardPages(w *response, r *http.Request) error {
	var s PageSelection
	if err := readBody(w, r, &s); err != nil {
		return err
	}
	return listLines(w, func(fn func(Quarantined) error) error { return h.local.DiscardPages(r.Context(), s, fn) })
}

func (h *Handler) reparse(w *response, r *http.Request) error {
	request := ReparseRequest{Source: r.PathValue("source")}
	if err := readBody(w, r, &request); err != nil {
		return err
	}
	if request.From.IsZero() != request.To.IsZero() {
		return badRequest("name both from and to, or neither")
	}
	return lines(w, func(out *bufio.Writer) (any, error) {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false) // records are as export has them
		return h.local.Reparse(r.Context(), request, func(n ReparseNews) error {
			err := enc.Encode(n)
			if n.Progress == nil {
				return err
			}
			return atOnce(w, out, err)
		})
	})
}

func (h *Handler) outbox(w *response, r *http.Request) error {
	f, err := parseOutboxFilter(r.URL.Query())
	if err != nil {
		return err
	}
	return listLines(w, func(fn func(Dispatched) error) error { return h.local.Outbox(r.Context(), f, fn) })
}

func (h *Handler) retryEvents(w *response, r *http.Request) error {
	return h.changeEvents(w, r, h.local.RetryEvents)
}

func (h *Handler) discardEvents(w *response, r *http.Request) error {
	return h.changeEvents(w, r, h.local.DiscardEvents)
}

func (h *Handler) changeEvents(w *response, r *http.Request, change func(context.Context, EventSelection) (EventsChanged, error)) error {
	var s EventSelection
	if err := readBody(w, r, &s); err != nil {
		return err
	}
	changed, err := change(r.Context(), s)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, changed)
}
