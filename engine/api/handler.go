package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"semel/engine/intake"
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
	} {
		h.all.Handle(pattern, serve)
		h.network.Handle(pattern, serve)
	}
	h.network.Handle("GET /healthz", endpoint(h.alive))
	for pattern, serve := range map[string]endpoint{
		"GET /healthz":              h.healthz,
		"GET /v1/verify":            h.verify,
		"GET /v1/verify/{source}":   h.verifyTwice,
		"GET /v1/checksums":         h.checksums,
		"POST /v1/backup":           h.backup,
		"POST /v1/import":           h.importFile,
		"GET /v1/cursors/{source}":  h.fileCursor,
		"POST /v1/cursors/{source}": h.moveFileCursor,
		"POST /v1/accept/{source}":  h.accept,
		"POST /v1/compare/{source}": h.compare,
		"POST /v1/backfill":         h.backfill,
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

// endpoint answers one path. An error before it has answered anything becomes
// a problem; one after that becomes a trailer, or cuts the connection.
type endpoint func(w *response, r *http.Request) error

// ServeHTTP implements http.Handler.
func (e endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply := &response{ResponseWriter: w}
	if err := e.call(reply, r); err != nil {
		reply.fail(r, err)
	}
}

// call turns a panic into an error: in a command's own process net/http's way
// would hide it.
func (e endpoint) call(w *response, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return e(w, r)
}

// response knows whether it has begun.
type response struct {
	http.ResponseWriter
	begun bool
}

// begin sends the headers with a status, unless they have been.
func (w *response) begin(status int) {
	if !w.begun {
		w.begun = true
		w.WriteHeader(status)
	}
}

func (w *response) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) fail(r *http.Request, err error) {
	p := newProblem(err)
	if !w.begun {
		w.Header().Del("Trailer")
		p.write(w.ResponseWriter)
		return
	}
	text, err := trailerText(p)
	if err != nil || !slices.Contains(r.Header.Values("TE"), "trailers") {
		panic(http.ErrAbortHandler) // nothing else tells every client that the list is short
	}
	w.Header().Set(trailerProblem, text)
}

// jsonType is the media type of one value.
const jsonType = "application/json"

// answer sends one value.
func answer(w *response, status int, v any) error {
	w.Header().Set("Content-Type", jsonType)
	w.begin(status)
	return json.NewEncoder(w).Encode(v)
}

// Trailers of a list.
const (
	trailerProblem = "Semel-Problem" // why the list ends here, as problem+json
	trailerResult  = "Semel-Result"  // what describes the whole list, as JSON; only a whole list has it
)

// trailerText is JSON that can stand in a header: without the one control
// character that encoding/json leaves as it is.
func trailerText(v any) (string, error) {
	text, err := json.Marshal(v)
	return strings.ReplaceAll(string(text), "\x7f", `\u007f`), err
}

// lines sends a list as JSON Lines while write writes it, and then its result.
func lines(w *response, write func(out *bufio.Writer) (result any, err error)) error {
	return stream(w, "application/jsonl", write)
}

// stream is lines of another media type.
func stream(w *response, contentType string, write func(out *bufio.Writer) (result any, err error)) error {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Trailer", trailerProblem+", "+trailerResult)
	out := bufio.NewWriterSize(w, blockBytes)
	result, err := write(out)
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	if err != nil {
		return err
	}
	text, err := trailerText(result)
	if err != nil {
		return err
	}
	w.begin(http.StatusOK)
	w.Header().Set(trailerResult, text)
	return nil
}

// counted describes a list of which there is nothing to say but its length.
type counted struct {
	Rows int `json:"rows"`
}

// jobLines sends the jobs that list calls its function with.
func jobLines(w *response, list func(func(Job) error) error) error {
	return lines(w, func(out *bufio.Writer) (any, error) {
		var n counted
		enc := json.NewEncoder(out)
		err := list(func(j Job) error {
			n.Rows++
			return enc.Encode(j)
		})
		return n, err
	})
}

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
	return jobLines(w, func(fn func(Job) error) error { return h.local.Jobs(r.Context(), f, fn) })
}

func (h *Handler) job(w *response, r *http.Request) error {
	story, err := h.local.Job(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, story)
}

func (h *Handler) retry(w *response, r *http.Request) error {
	s, err := selection(w, r)
	if err != nil {
		return err
	}
	return jobLines(w, func(fn func(Job) error) error { return h.local.Retry(r.Context(), s, fn) })
}

func (h *Handler) cancel(w *response, r *http.Request) error {
	s, err := selection(w, r)
	if err != nil {
		return err
	}
	if s.Recollect {
		return fmt.Errorf("%w: only a retry recollects", ErrBadRequest)
	}
	return jobLines(w, func(fn func(Job) error) error { return h.local.Cancel(r.Context(), s, fn) })
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

// importFile tells what there is to tell at once: somebody may be looking on.
func (h *Handler) importFile(w *response, r *http.Request) error {
	var request ImportRequest
	if err := readBody(w, r, &request); err != nil {
		return err
	}
	return lines(w, func(out *bufio.Writer) (any, error) {
		enc := json.NewEncoder(out)
		return h.local.Import(r.Context(), request, func(n ImportNews) error {
			if err := enc.Encode(n); err != nil {
				return err
			}
			if err := out.Flush(); err != nil {
				return err
			}
			return http.NewResponseController(w).Flush()
		})
	})
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
		return fmt.Errorf("%w: name both from and to, or neither", ErrBadRequest)
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
	return lines(w, func(out *bufio.Writer) (any, error) {
		var n counted
		enc := json.NewEncoder(out)
		err := h.local.Runs(r.Context(), f, func(run Run) error {
			n.Rows++
			return enc.Encode(run)
		})
		return n, err
	})
}

func (h *Handler) releaseRun(w *response, r *http.Request) error {
	return h.changeRun(w, r, h.local.ReleaseRun)
}

func (h *Handler) discardRun(w *response, r *http.Request) error {
	return h.changeRun(w, r, h.local.DiscardRun)
}

func (h *Handler) changeRun(w *response, r *http.Request, change func(ctx context.Context, ref string) (Run, error)) error {
	run, err := change(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, run)
}

// parseFilter reads a JobFilter from a query, and values write it.
func parseFilter(query url.Values) (f JobFilter, err error) {
	for name, values := range query {
		switch value := values[0]; name {
		case "source":
			f.Source = value
		case "state":
			f.State, err = oneOf(name, storage.JobState(value), storage.JobStates)
		case "category":
			f.Category, err = oneOf(name, storage.Category(value), storage.Categories)
		case "window":
			if f.Window, err = intake.ParseWindow(value); err != nil {
				err = fmt.Errorf("%w: %w", ErrBadRequest, err)
			}
		case "limit":
			f.Limit, err = parseLimit(value)
		default:
			err = unknownParameter(name)
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// oneOf refuses a word that would match nothing; "" is any.
func oneOf[T ~string](name string, word T, known []T) (T, error) {
	if word != "" && !slices.Contains(known, word) {
		return "", fmt.Errorf("%w: there is no %s %q", ErrBadRequest, name, word)
	}
	return word, nil
}

// parseLimit reads how many rows a list may have; 0: no limit.
func parseLimit(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: limit is a number of at least 0 (got %q)", ErrBadRequest, text)
	}
	return n, nil
}

// parseEstimate reads of how many targets an estimate is wanted; 0: of none.
func parseEstimate(query url.Values) (n int64, err error) {
	for name, values := range query {
		if name != "estimate" {
			return 0, unknownParameter(name)
		}
		if n, err = strconv.ParseInt(values[0], 10, 64); err != nil || n < 1 {
			return 0, fmt.Errorf("%w: estimate is a number of at least 1 (got %q)", ErrBadRequest, values[0])
		}
	}
	return n, nil
}

func unknownParameter(name string) error {
	return fmt.Errorf("%w: unknown parameter %q", ErrBadRequest, name)
}

// selection is the job of the path, with what the query says, or what the body
// selects.
func selection(w *response, r *http.Request) (s Selection, err error) {
	if id := r.PathValue("id"); id != "" {
		s.Refs = []string{id}
		for name, values := range r.URL.Query() {
			if name != "recollect" {
				return s, unknownParameter(name)
			}
			if s.Recollect, err = strconv.ParseBool(values[0]); err != nil {
				return s, fmt.Errorf("%w: recollect is true or false (got %q)", ErrBadRequest, values[0])
			}
		}
		return s, nil
	}
	if err := readBody(w, r, &s); err != nil {
		return s, err
	}
	if (len(s.Refs) == 0) == (s.Source == "") || len(s.Refs) > 0 && (s.Category != "" || !s.To.IsZero()) || s.From.IsZero() != s.To.IsZero() {
		return s, fmt.Errorf("%w: name either refs, or a source, with a category and with from and to if you like", ErrBadRequest)
	}
	_, err = oneOf("category", s.Category, storage.Categories)
	return s, err
}

// Errors of a body.
var (
	errMediaType = errors.New("wrong media type")
	errTooLarge  = errors.New("too large")
	errSlow      = errors.New("too slow")
)

// readBody reads one JSON value of bounded size, in bounded time.
func readBody(w *response, r *http.Request, v any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != jsonType {
		return fmt.Errorf("%w: a body comes with Content-Type: %s (got %q)", errMediaType, jsonType, r.Header.Get("Content-Type"))
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // a connection without deadlines does without
	in := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	in.DisallowUnknownFields()
	if err := in.Decode(v); err != nil {
		return bodyError(err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the body is not one JSON object", ErrBadRequest)
	}
	// A deadline that stays would end a long answer.
	_ = control.SetReadDeadline(time.Time{})
	return nil
}

// bodyError says what is wrong with a body, and where.
func bodyError(err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return fmt.Errorf("reading the body: %w: it may have %d bytes", errTooLarge, maxBody)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("reading the body: %w: it may take %s", errSlow, bodyTime)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%w: reading the body, byte %d: %w", ErrBadRequest, syntax.Offset, err)
	}
	return fmt.Errorf("%w: reading the body: %w", ErrBadRequest, err)
}
