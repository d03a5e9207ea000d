package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Errors of reaching the process that holds a store.
var (
	// ErrNoOwner: nobody answers at the store's socket. Whether somebody holds
	// the store, only opening it tells.
	ErrNoOwner = errors.New("no process answers for the store")
	// ErrSilent: a process holds the socket and does not answer.
	ErrSilent = errors.New("the semel run that holds the store does not answer")
	// ErrCut: the answer ended before its end.
	ErrCut = errors.New("the semel run that holds the store went away")
)

// helloTime is how long the first answer may take: it waits for nothing but the
// processor.
const helloTime = 5 * time.Second

// maxAnswer bounds answers that are read as a whole: a job's story grows with
// its attempts, the status with the sources.
const maxAnswer = 64 << 20

// Client implements Service by speaking HTTP with a handler. Close it.
type Client struct {
	transport *http.Transport
	server    *Server // nil: that of another process
}

var _ Service = (*Client)(nil)

// Dial reaches the process that holds a store, over the store's socket, and
// tells who that is. Errors: ErrNoOwner, ErrSilent, fs.ErrPermission, the end of
// ctx.
func Dial(ctx context.Context, store string) (*Client, Owner, error) {
	name, err := socketName(store)
	if err != nil {
		return nil, Owner{}, fmt.Errorf("%w: %w", ErrNoOwner, err)
	}
	path, err := socketPath(name)
	if err != nil {
		return nil, Owner{}, fmt.Errorf("%w: %w", ErrNoOwner, err)
	}
	c := newClient(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	})
	owner, err := c.hello(ctx)
	if errors.Is(err, ErrSilent) {
		if pid := peerPID(path); pid > 0 {
			err = fmt.Errorf("%w, pid %d", err, pid)
		}
	}
	if err != nil {
		return nil, owner, errors.Join(err, c.Close())
	}
	return c, owner, nil
}

// InProcess is a client of a handler in this process, which logs to log.
func InProcess(h http.Handler, log *slog.Logger) *Client {
	m := newMemory()
	c := newClient(m.dial)
	c.server = Serve(m, h, log)
	return c
}

func newClient(dial func(context.Context) (net.Conn, error)) *Client {
	return &Client{transport: &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableCompression: true,
		ReadBufferSize:     blockBytes,
	}}
}

// Close ends the client's connections, and the server that InProcess began.
func (c *Client) Close() error {
	c.transport.CloseIdleConnections()
	if c.server == nil {
		return nil
	}
	return c.server.Stop()
}

// hello asks who answers.
func (c *Client) hello(ctx context.Context) (Owner, error) {
	limited, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	var report health
	err := c.value(limited, http.MethodGet, "/healthz", nil, &report)
	switch {
	case err == nil:
		return report.Owner, nil
	case ctx.Err() != nil:
		return Owner{}, context.Cause(ctx)
	case limited.Err() != nil:
		return Owner{}, fmt.Errorf("%w within %s", ErrSilent, helloTime)
	}
	if errors.Is(err, fs.ErrPermission) {
		return Owner{}, fmt.Errorf("reaching the run that holds it: %w", err)
	}
	return Owner{}, fmt.Errorf("%w: %w", ErrNoOwner, err)
}

// Status implements Service.
func (c *Client) Status(ctx context.Context, estimate int64) (s Status, err error) {
	path := "/v1/status"
	if estimate != 0 {
		path += "?estimate=" + strconv.FormatInt(estimate, 10)
	}
	err = c.value(ctx, http.MethodGet, path, nil, &s)
	return s, err
}

// Job implements Service.
func (c *Client) Job(ctx context.Context, ref string) (s JobStory, err error) {
	err = c.value(ctx, http.MethodGet, "/v1/jobs/"+segment(ref), nil, &s)
	return s, err
}

// Jobs implements Service.
func (c *Client) Jobs(ctx context.Context, f JobFilter, fn func(Job) error) error {
	var result counted
	return c.list(ctx, http.MethodGet, "/v1/jobs?"+f.values().Encode(), nil, eachLine(fn), &result)
}

// Retry implements Service.
func (c *Client) Retry(ctx context.Context, s Selection, fn func(Job) error) error {
	return c.change(ctx, "/v1/jobs/retry", s, fn)
}

// Cancel implements Service.
func (c *Client) Cancel(ctx context.Context, s Selection, fn func(Job) error) error {
	return c.change(ctx, "/v1/jobs/cancel", s, fn)
}

// change reads all jobs that are changed, whatever fn says: to stop reading
// would stop the change.
func (c *Client) change(ctx context.Context, path string, s Selection, fn func(Job) error) error {
	var told error
	var result counted
	err := c.list(ctx, http.MethodPost, path, s, eachLine(func(j Job) error {
		if told == nil {
			told = fn(j)
		}
		return nil
	}), &result)
	return errors.Join(err, told)
}

// Export implements Service.
func (c *Client) Export(ctx context.Context, r ExportRequest, w io.Writer) (result ExportResult, err error) {
	path := "/v1/observations/" + segment(r.Source) + "?" + r.values().Encode()
	err = c.list(ctx, http.MethodGet, path, nil, func(body io.Reader) error {
		if _, err := io.CopyBuffer(justWriter{w}, body, make([]byte, blockBytes)); err != nil {
			return fmt.Errorf("exporting %s: %w", r.Source, err)
		}
		return nil
	}, &result)
	return result, err
}

// justWriter hides ReadFrom, which would bring a smaller buffer.
type justWriter struct{ io.Writer }

// Verify implements Service.
func (c *Client) Verify(ctx context.Context, fn func(Breach) error) (result VerifyResult, err error) {
	err = c.list(ctx, http.MethodGet, "/v1/verify", nil, eachLine(fn), &result)
	return result, err
}

// Checksums implements Service.
func (c *Client) Checksums(ctx context.Context) (sums map[string]SourceSum, err error) {
	err = c.value(ctx, http.MethodGet, "/v1/checksums", nil, &sums)
	return sums, err
}

// VerifyTwice implements Service.
func (c *Client) VerifyTwice(ctx context.Context, source string, fn func(Unlike) error) (result TwiceResult, err error) {
	err = c.list(ctx, http.MethodGet, "/v1/verify/"+segment(source), nil, eachLine(fn), &result)
	return result, err
}

// Backup implements Service.
func (c *Client) Backup(ctx context.Context, path string) (result BackupResult, err error) {
	err = c.value(ctx, http.MethodPost, "/v1/backup", backupRequest{path}, &result)
	return result, err
}

// Import implements Service.
func (c *Client) Import(ctx context.Context, r ImportRequest, fn func(ImportNews) error) (result ImportResult, err error) {
	err = c.list(ctx, http.MethodPost, "/v1/import", r, eachLine(fn), &result)
	return result, err
}

// Changes implements Service.
func (c *Client) Changes(ctx context.Context, r ChangesRequest) (page Changes, err error) {
	var lines []byte
	path := "/v1/observations/" + segment(r.Source) + "?" + r.values().Encode()
	err = c.list(ctx, http.MethodGet, path, nil, func(body io.Reader) (err error) {
		lines, err = io.ReadAll(body)
		return err
	}, &page)
	page.Lines = lines
	return page, err
}

// FileCursor implements Service.
func (c *Client) FileCursor(ctx context.Context, source, path string) (f *FileCursor, err error) {
	err = c.value(ctx, http.MethodGet, "/v1/cursors/"+segment(source)+"?"+url.Values{"path": {path}}.Encode(), nil, &f)
	return f, err
}

// MoveFileCursor implements Service.
func (c *Client) MoveFileCursor(ctx context.Context, source string, m FileMove) error {
	var moved FileCursor
	return c.value(ctx, http.MethodPost, "/v1/cursors/"+segment(source), m, &moved)
}

// Accept implements Service.
func (c *Client) Accept(ctx context.Context, r AcceptRequest) (result AcceptResult, err error) {
	err = c.value(ctx, http.MethodPost, "/v1/accept/"+segment(r.Source), r, &result)
	return result, err
}

// Compare implements Service.
func (c *Client) Compare(ctx context.Context, r CompareRequest, fn func(Difference) error) (result CompareResult, err error) {
	err = c.list(ctx, http.MethodPost, "/v1/compare/"+segment(r.Source), r, eachLine(fn), &result)
	return result, err
}

// Runs implements Service.
func (c *Client) Runs(ctx context.Context, f RunFilter, fn func(Run) error) error {
	var result counted
	return c.list(ctx, http.MethodGet, "/v1/runs?"+f.values().Encode(), nil, eachLine(fn), &result)
}

// ReleaseRun implements Service.
func (c *Client) ReleaseRun(ctx context.Context, ref string) (r Run, err error) {
	err = c.value(ctx, http.MethodPost, "/v1/runs/"+segment(ref)+"/release", nil, &r)
	return r, err
}

// DiscardRun implements Service.
func (c *Client) DiscardRun(ctx context.Context, ref string) (r Run, err error) {
	err = c.value(ctx, http.MethodPost, "/v1/runs/"+segment(ref)+"/discard", nil, &r)
	return r, err
}

// Quarantine implements Service.
func (c *Client) Quarantine(ctx context.Context, f QuarantineFilter, fn func(Quarantined) error) error {
	var result counted
	return c.list(ctx, http.MethodGet, "/v1/quarantine?"+f.values().Encode(), nil, eachLine(fn), &result)
}

// QuarantinedJob implements Service.
func (c *Client) QuarantinedJob(ctx context.Context, ref string) (q Quarantined, err error) {
	err = c.value(ctx, http.MethodGet, "/v1/quarantine/"+segment(ref), nil, &q)
	return q, err
}

// QuarantinedPage implements Service.
func (c *Client) QuarantinedPage(ctx context.Context, ref string, w io.Writer) error {
	var result counted
	return c.list(ctx, http.MethodGet, "/v1/quarantine/"+segment(ref)+"/page", nil, func(body io.Reader) error {
		_, err := io.Copy(w, body)
		return err
	}, &result)
}

// ReleasePages implements Service.
func (c *Client) ReleasePages(ctx context.Context, s PageSelection, fn func(Released) error) error {
	var result counted
	return c.list(ctx, http.MethodPost, "/v1/quarantine/release", s, eachLine(fn), &result)
}

// DiscardPages implements Service.
func (c *Client) DiscardPages(ctx context.Context, s PageSelection, fn func(Quarantined) error) error {
	var result counted
	return c.list(ctx, http.MethodPost, "/v1/quarantine/discard", s, eachLine(fn), &result)
}

// Reparse implements Service.
func (c *Client) Reparse(ctx context.Context, r ReparseRequest, fn func(ReparseNews) error) (result ReparseResult, err error) {
	err = c.list(ctx, http.MethodPost, "/v1/reparse/"+segment(r.Source), r, eachLine(fn), &result)
	return result, err
}

// Outbox implements Service.
func (c *Client) Outbox(ctx context.Context, f OutboxFilter, fn func(Dispatched) error) error {
	var result counted
	return c.list(ctx, http.MethodGet, "/v1/outbox?"+f.values().Encode(), nil, eachLine(fn), &result)
}

// RetryEvents implements Service.
func (c *Client) RetryEvents(ctx context.Context, s EventSelection) (changed EventsChanged, err error) {
	err = c.value(ctx, http.MethodPost, "/v1/outbox/retry", s, &changed)
	return changed, err
}

// DiscardEvents implements Service.
func (c *Client) DiscardEvents(ctx context.Context, s EventSelection) (changed EventsChanged, err error) {
	err = c.value(ctx, http.MethodPost, "/v1/outbox/discard", s, &changed)
	return changed, err
}

// Event implements Service.
func (c *Client) Event(ctx context.Context, ref string) (e json.RawMessage, err error) {
	err = c.value(ctx, http.MethodGet, "/v1/events/"+segment(ref), nil, &e)
	return e, err
}

// values write a filter as parseFilter reads it.
func (f JobFilter) values() url.Values {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("source", f.Source)
	set("state", string(f.State))
	set("category", string(f.Category))
	set("window", f.Window.String())
	if f.Limit != 0 {
		set("limit", strconv.Itoa(f.Limit))
	}
	return v
}

// segment makes one segment of a path of any text. Dots would be taken for
// steps up.
func segment(text string) string { return strings.ReplaceAll(url.PathEscape(text), ".", "%2E") }

// value reads one JSON value.
func (c *Client) value(ctx context.Context, method, path string, body, v any) error {
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	return readValue(resp, v)
}

func readValue(resp *http.Response, v any) error {
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(v); err != nil {
		return cut(resp.Request.Context(), err)
	}
	return nil
}

// list reads a list with read, and what describes the whole of it into result.
func (c *Client) list(ctx context.Context, method, path string, body any, read func(io.Reader) error, result any) error {
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := &source{Reader: resp.Body}
	err = read(in)
	if in.err != nil {
		return cut(ctx, in.err)
	}
	if err != nil {
		return err
	}
	return readResult(resp.Trailer, result)
}

// source keeps apart errors of reading from those of who gets what was read.
type source struct {
	io.Reader
	err error // the last one of reading, but io.EOF
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// readResult reads what stands behind a list.
func readResult(trailer http.Header, result any) error {
	if text := trailer.Get(trailerProblem); text != "" {
		var p problem
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return fmt.Errorf("%w: reading why: %w", ErrCut, err)
		}
		return p.err()
	}
	if err := json.Unmarshal([]byte(trailer.Get(trailerResult)), result); err != nil {
		return fmt.Errorf("%w: the list has no end: %w", ErrCut, err)
	}
	return nil
}

// eachLine calls fn with every value of a list.
func eachLine[T any](fn func(T) error) func(io.Reader) error {
	return func(body io.Reader) error {
		for dec := json.NewDecoder(body); ; {
			var v T
			if err := dec.Decode(&v); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("reading a list: %w", err)
			}
			if err := fn(v); err != nil {
				return err
			}
		}
	}
}

// do asks for one thing.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	r, err := c.request(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	return c.send(r)
}

func (c *Client) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return nil, fmt.Errorf("encoding a request: %w", err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://semel"+path, &content)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	r.Header.Set("TE", "trailers")
	if body != nil {
		r.Header.Set("Content-Type", jsonType)
	}
	return r, nil
}

// send makes an error of an answer that is a problem.
func (c *Client) send(r *http.Request) (*http.Response, error) {
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return nil, cut(r.Context(), err)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusCreated {
		return resp, nil
	}
	defer resp.Body.Close()
	var p problem
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&p); err != nil {
		return nil, fmt.Errorf("%w: %s without a reason: %w", ErrCut, resp.Status, err)
	}
	return nil, p.err()
}

// cut is the error of an answer that broke off, which an end of ctx does as well.
func cut(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", ErrCut, err)
}
