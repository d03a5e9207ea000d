package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/engine"
	"semel/engine/config"
	"semel/engine/proxy"
	"semel/storage"
)

// client is a client of a handler that ends with the test.
func client(t *testing.T, h http.Handler) *Client {
	t.Helper()
	c := InProcess(h, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// oddKey has what a path, a query and a line could stumble over.
var oddKey = storage.JobKey{Source: "shop", Target: "a/b?c=d&e#f%41 ü\n..", Country: "US"}

// A client gives what Local gives.
func TestClientIsLocal(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, pageRows+20)
	window := time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)
	update(t, l, func(tx *storage.Tx) error {
		odd := oddKey
		odd.Window = window
		if _, err := tx.EnqueueJob(storage.NewJob{Key: odd, Country: odd.Country, Window: window, URL: "http://x.test/?a=<&b", Host: "x.test"}); err != nil {
			return err
		}
		return tx.PutSource(storage.Source{Name: "shop"})
	})
	work(t, l, 5, failAs(storage.CategoryNotFound))
	work(t, l, pageRows, complete)
	l.Engine = pauses{}
	c := client(t, NewHandler(l, "me"))

	both := func(t *testing.T, call func(Service) (any, error)) {
		t.Helper()
		want, err := call(l)
		if err != nil {
			t.Fatal(err)
		}
		got, err := call(c)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	odd := oddKey
	odd.Window = window
	for _, ref := range []string{"1", "8", odd.String(), fmt.Sprint(pageRows + 21)} {
		both(t, func(s Service) (any, error) { return s.Job(t.Context(), ref) })
	}
	both(t, func(s Service) (any, error) {
		status, err := s.Status(t.Context(), 0)
		status.Run = nil // who holds the store is the handler's to say
		return status, err
	})
	both(t, func(s Service) (any, error) {
		return s.Verify(t.Context(), func(b Breach) error { return errors.New(b.What) })
	})
	both(t, func(s Service) (any, error) { return s.Checksums(t.Context()) })
	for _, f := range []JobFilter{{}, {Source: "shop"}, {State: storage.StateComplete}, {Category: storage.CategoryNotFound}, {Limit: 3}} {
		both(t, func(s Service) (any, error) {
			var jobs []Job
			err := s.Jobs(t.Context(), f, func(j Job) error { jobs = append(jobs, j); return nil })
			return jobs, err
		})
	}
	for _, dataOnly := range []bool{false, true} {
		both(t, func(s Service) (any, error) {
			var out bytes.Buffer
			result, err := s.Export(t.Context(), ExportRequest{Source: "shop", DataOnly: dataOnly}, &out)
			return []any{result, out.String()}, err
		})
	}
}

// A store may have known any number of sources.
func TestManySources(t *testing.T) {
	const sources = 3000
	l := local(t)
	update(t, l, func(tx *storage.Tx) error {
		for i := range sources {
			if err := tx.PutSource(storage.Source{Name: fmt.Sprintf("a-source-with-a-longer-name-%d", i)}); err != nil {
				return err
			}
		}
		return nil
	})
	c := client(t, NewHandler(l, ""))
	if _, err := c.Verify(t.Context(), func(b Breach) error { return errors.New(b.What) }); err != nil {
		t.Error(err)
	}
	if sums, err := c.Checksums(t.Context()); err != nil || len(sums) != sources {
		t.Errorf("%d sources, %v", len(sums), err)
	}
}

// failing are errors of a Service with what a caller finds in them.
var failing = map[string]error{
	"unknown source": ErrUnknownSource,
	"bad request":    ErrBadRequest,
	"not found":      storage.ErrNotFound,
	"transition":     storage.ErrTransition,
	"stopped":        storage.ErrStopped,
	"unreadable":     storage.ErrUnreadable,
	"canceled":       context.Canceled,
	"not permitted":  fs.ErrPermission,
}

// An error keeps its text and its kind on the way, before the first line of an
// answer and after it.
func TestErrorsPass(t *testing.T) {
	for _, begun := range []bool{false, true} {
		pass := func(t *testing.T, err error) error {
			c := client(t, endpoint(func(w *response, _ *http.Request) error {
				return lines(w, func(out *bufio.Writer) (any, error) {
					if begun {
						fmt.Fprintln(out, `{"id":7}`)
					}
					return nil, err
				})
			}))
			n := 0
			err = c.Jobs(t.Context(), JobFilter{}, func(Job) error { n++; return nil })
			if (n > 0) != begun {
				t.Errorf("%d lines came before it", n)
			}
			return err
		}
		for name, kind := range failing {
			t.Run(fmt.Sprintf("%s, begun %v", name, begun), func(t *testing.T) {
				sent := fmt.Errorf("doing \"this\" to ü\n7\r\x00\x7f: %w", kind)
				got := pass(t, sent)
				if !errors.Is(got, kind) || got.Error() != sent.Error() {
					t.Errorf("got %v", got)
				}
				for other, k := range failing {
					if k != kind && errors.Is(got, k) {
						t.Errorf("it is %s as well", other)
					}
				}
			})
		}
		t.Run(fmt.Sprintf("record, begun %v", begun), func(t *testing.T) {
			sent := fmt.Errorf("listing: %w", &storage.RecordError{Bucket: "job", Key: []byte{0, 255}, Err: storage.ErrNotFound})
			got := pass(t, sent)
			var record *storage.RecordError
			if !errors.As(got, &record) || record.Bucket != "job" || !bytes.Equal(record.Key, []byte{0, 255}) || got.Error() != sent.Error() {
				t.Errorf("got %v", got)
			}
		})
		t.Run(fmt.Sprintf("any other, begun %v", begun), func(t *testing.T) {
			if got := pass(t, errBroken); got == nil || got.Error() != errBroken.Error() || errors.Is(got, ErrCut) {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A panic is an error of the call, and its stack is in the log only.
func TestPanicPasses(t *testing.T) {
	var log bytes.Buffer
	c := InProcess(endpoint(func(*response, *http.Request) error { panic("oh no") }), slog.New(slog.NewTextHandler(&log, nil)))
	_, err := c.Status(t.Context(), 0)
	if err == nil || err.Error() != "panic: oh no" {
		t.Errorf("got %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "panic answering GET /v1/status: oh no") || !strings.Contains(text, "TestPanicPasses") {
		t.Errorf("the log has no stack: %s", text)
	}
}

// What is wrong with a call is said without the word for programs.
func TestBadRequest(t *testing.T) {
	err := badRequest("limit %d: %w", 1, io.EOF)
	if err.Error() != "limit 1: EOF" || !errors.Is(err, ErrBadRequest) || !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

// Nothing that breaks off passes for a whole list.
func TestShortLists(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"cut":    func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, `{"id":1}`); panic(http.ErrAbortHandler) },
		"no end": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, `{"id":1}`) },
		"half": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"id":1}`+"\n"+`{"id"`)
			panic(http.ErrAbortHandler)
		},
		"odd ends": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(http.TrailerPrefix+trailerProblem, "{")
			fmt.Fprintln(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := client(t, h)
			if err := c.Jobs(t.Context(), JobFilter{}, func(Job) error { return nil }); !errors.Is(err, ErrCut) {
				t.Errorf("jobs: %v", err)
			}
			var out bytes.Buffer
			if _, err := c.Export(t.Context(), ExportRequest{Source: "shop"}, &out); !errors.Is(err, ErrCut) {
				t.Errorf("export: %v", err)
			}
		})
	}
}

// A store that fails in the middle of an export is an error with its reason,
// and for a client that knows no trailers a connection that is cut.
func TestExportFailsInTheMiddle(t *testing.T) {
	l := local(t)
	var err error
	if l.Store, err = storage.Open(filepath.Join(t.TempDir(), "semel.db"), storage.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, l, "shop", 0, 2*pageRows)
	work(t, l, 2*pageRows, complete)
	c := client(t, NewHandler(l, ""))
	stop := &stopper{l: l, t: t}
	_, err = c.Export(t.Context(), ExportRequest{Source: "shop"}, stop)
	if !errors.Is(err, storage.ErrStopped) || stop.bytes == 0 {
		t.Errorf("after %d bytes: %v", stop.bytes, err)
	}

	plain := client(t, endpoint(func(w *response, _ *http.Request) error {
		return lines(w, func(out *bufio.Writer) (any, error) {
			_, _ = out.Write(bytes.Repeat([]byte("{}\n"), blockBytes)) // more than any buffer holds back
			return nil, errBroken
		})
	}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://semel/v1/jobs", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := plain.transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("without trailers the list ends after %d bytes with %v", len(text), err)
	}
}

// stopper closes the store at the first bytes of an export.
type stopper struct {
	l     *Local
	t     *testing.T
	bytes int
}

func (s *stopper) Write(p []byte) (int, error) {
	if s.bytes += len(p); s.bytes == len(p) {
		if err := s.l.Store.Close(); err != nil {
			s.t.Error(err)
		}
	}
	return len(p), nil
}

// Whoever has read enough ends the answer.
func TestReaderStops(t *testing.T) {
	ended := make(chan error, 2)
	c := client(t, endpoint(func(w *response, _ *http.Request) error {
		return lines(w, func(out *bufio.Writer) (any, error) {
			for {
				if _, err := fmt.Fprintln(out, `{"id":1}`); err != nil {
					ended <- err
					return nil, err
				}
			}
		})
	}))
	if err := c.Jobs(t.Context(), JobFilter{}, func(Job) error { return errBroken }); !errors.Is(err, errBroken) || errors.Is(err, ErrCut) {
		t.Errorf("jobs: %v", err)
	}
	if _, err := c.Export(t.Context(), ExportRequest{Source: "shop"}, brokenPipe{}); !errors.Is(err, errBroken) || errors.Is(err, ErrCut) {
		t.Errorf("export: %v", err)
	}
	for range 2 {
		<-ended
	}
}

func TestCanceledCall(t *testing.T) {
	asked := make(chan struct{})
	c := client(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(errBroken)
	}()
	if _, err := c.Status(ctx, 0); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want the cause", err)
	}
}

// All jobs that are named change, or none, over HTTP as well.
func TestClientChanges(t *testing.T) {
	l := local(t)
	enqueue(t, l, "shop", 0, 4)
	work(t, l, 2, failAs(storage.CategoryNotFound))
	c := client(t, NewHandler(l, ""))
	if jobs, err := changed(t, c.Retry, Selection{Refs: []string{"1", "3"}}); !errors.Is(err, storage.ErrTransition) || len(jobs) > 0 {
		t.Errorf("%v, %v", jobs, err)
	}
	if n := len(list(t, l, JobFilter{State: storage.StateFailed})); n != 2 {
		t.Fatalf("%d jobs are failed", n)
	}
	if jobs, err := changed(t, c.Retry, Selection{Source: "shop"}); err != nil || len(jobs) != 2 {
		t.Errorf("%v, %v", jobs, err)
	}
	calls := 0
	err := c.Cancel(t.Context(), Selection{Refs: []string{"1", "2", "3"}}, func(Job) error { calls++; return errBroken })
	if !errors.Is(err, errBroken) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if n := len(list(t, l, JobFilter{State: storage.StateFailed})); n != 3 {
		t.Errorf("%d jobs are canceled", n)
	}
}

// A client whose reader has enough goes on reading: the change would end with it.
func TestClientReadsChangesToTheEnd(t *testing.T) {
	wrote := make(chan error, 1)
	c := client(t, endpoint(func(w *response, _ *http.Request) error {
		_, err := w.Write(bytes.Repeat([]byte("{}\n"), blockBytes)) // more than any buffer takes
		wrote <- err
		return err
	}))
	if err := c.Retry(t.Context(), Selection{Source: "shop"}, func(Job) error { return errBroken }); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	if err := <-wrote; err != nil {
		t.Errorf("the change was cut: %v", err)
	}
}

// A process that accepts and says no word holds nobody up for long.
func TestSilentOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			t.Cleanup(func() { _ = far.Close() })
			go func() { _, _ = io.Copy(io.Discard, far) }()
			return near, nil
		})
		began := time.Now()
		if _, err := c.hello(t.Context()); !errors.Is(err, ErrSilent) || errors.Is(err, ErrNoOwner) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != helloTime {
			t.Errorf("it took %s", took)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errBroken)
		if _, err := c.hello(ctx); !errors.Is(err, errBroken) || errors.Is(err, ErrSilent) {
			t.Errorf("interrupted it gave %v", err)
		}
	})
}

// A stop gives answers under way a few seconds, and no more; those that come
// later are refused.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{}, 1)
		ended := false
		c := InProcess(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			<-r.Context().Done()
			time.Sleep(time.Second) // what it still has to do with the store
			ended = true
		}), slog.New(slog.DiscardHandler))
		answer := make(chan error)
		go func() {
			_, err := c.Status(t.Context(), 0)
			answer <- err
		}()
		<-asked
		began := time.Now()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			if err := c.server.Stop(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != drainTime+time.Second || !ended {
				t.Errorf("it stopped after %s, the handler has ended: %v", took, ended)
			}
		}()
		synctest.Wait()
		if _, err := c.Status(t.Context(), 0); !errors.Is(err, ErrCut) {
			t.Errorf("a late call: %v", err)
		}
		if err := <-answer; !errors.Is(err, ErrCut) {
			t.Errorf("the call under way: %v", err)
		}
		<-stopped
	})
}

func TestOwner(t *testing.T) {
	l := local(t)
	c := client(t, NewHandler(l, "host:1:x"))
	owner, err := c.hello(t.Context())
	if err != nil || owner.PID != os.Getpid() || owner.Name != "host:1:x" || owner.Store != l.Store.Path() || owner.Started.IsZero() {
		t.Errorf("%+v, %v", owner, err)
	}
}

// What only the engine knows is in the status while it runs.
func TestPausedProxy(t *testing.T) {
	l := local(t)
	for _, name := range []string{"home", "spare"} {
		p, err := proxy.New(proxy.Spec{Name: name, URL: "http://gw.example:1"})
		if err != nil {
			t.Fatal(err)
		}
		l.Config.Proxies = append(l.Config.Proxies, config.Proxy{Name: name, Proxy: p})
	}
	until := time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)
	l.Engine = pauses{"home": engine.Pause{Reason: "the proxy answered 407", Until: until}}
	s, err := client(t, NewHandler(l, "")).Status(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	home, spare := s.Proxies["home"], s.Proxies["spare"]
	if home.Paused != "the proxy answered 407" || !home.PausedUntil.Equal(until) || spare.Paused != "" || spare.PausedUntil != nil {
		t.Errorf("%+v", s.Proxies)
	}
	if !slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.HasPrefix(w, "proxy home is paused") }) || len(s.Warnings) != 1 {
		t.Errorf("warnings %q", s.Warnings)
	}
}
