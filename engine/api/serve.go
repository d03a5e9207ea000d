package api

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// blockBytes is the size of buffers on the way of a stream: fewer and larger
// steps, for an export is the whole of a store.
const blockBytes = 128 << 10

const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 64 << 10 // bytes: the longest key of a job, escaped in the path, is 24 KB
	// drainTime is how long a stop waits for answers under way: a stream of any
	// length may be one of them.
	drainTime = 3 * time.Second
)

// Server serves a handler to the clients of one listener.
type Server struct {
	http   http.Server
	conns  sync.WaitGroup // each until its last request has ended
	served chan struct{}
}

// Serve answers on l until Stop. It closes l.
func Serve(l net.Listener, h http.Handler, log *slog.Logger) *Server {
	s := &Server{served: make(chan struct{})}
	// No ReadTimeout and no WriteTimeout: both would end a long answer.
	s.http = http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ConnState: s.count, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("commands are answered no more", "error", err)
		}
	}()
	return s
}

func (s *Server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed:
		s.conns.Done()
	}
}

// Stop takes no more requests, gives those under way a few seconds, cuts them
// then, and returns when none uses the handler any more.
func (s *Server) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-s.served
	s.conns.Wait()
	return err
}

// memory is a listener for clients of the same process.
type memory struct {
	conns     chan net.Conn
	closed    chan struct{}
	closeOnce sync.Once
}

func newMemory() *memory {
	return &memory{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.closeOnce.Do(func() { close(m.closed) })
	return nil
}

func (m *memory) Addr() net.Addr { return memoryAddr{} }

// dial connects a client.
func (m *memory) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case m.conns <- server:
		return client, nil
	case <-m.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

type memoryAddr struct{}

func (memoryAddr) Network() string { return "memory" }
func (memoryAddr) String() string  { return "memory" }
