// Package brokertest runs real NATS servers for tests.
package brokertest

import (
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// readyTime is how long a server may take to start, and to answer a test: far more
// than it does.
const readyTime = 30 * time.Second

// Server is a NATS server with JetStream, on a loopback port of its own.
type Server struct {
	t      testing.TB
	opts   server.Options
	server *server.Server
}

// Start starts a server that ends with the test. change may set more options; nil:
// none.
func Start(t testing.TB, change func(*server.Options)) *Server {
	t.Helper()
	s := &Server{t: t, opts: server.Options{
		Host: "127.0.0.1", Port: freePort(t), JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}}
	if change != nil {
		change(&s.opts)
	}
	s.Begin()
	t.Cleanup(s.Stop)
	return s
}

// freePort is a port that nobody listens on. It lies below those that systems give
// to whoever asks for any: nobody has taken it when the server begins again.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 10_000 + rand.IntN(20_000)})
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	t.Fatal("there is no free port")
	return 0
}

// Begin starts the server again after Stop, with all that it has stored.
func (s *Server) Begin() {
	s.t.Helper()
	opts := s.opts
	started, err := server.NewServer(&opts)
	if err != nil {
		s.t.Fatal(err)
	}
	started.Start()
	if !started.ReadyForConnections(readyTime) {
		s.t.Fatal("the NATS server does not start")
	}
	s.server = started
}

// Stop ends the server and all its connections.
func (s *Server) Stop() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

// URL is where the server listens.
func (s *Server) URL() string { return s.server.ClientURL() }

// JetStream is a connection to the server that ends with the test.
func (s *Server) JetStream() jetstream.JetStream {
	s.t.Helper()
	conn, err := nats.Connect(s.URL(), nats.Timeout(readyTime))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(readyTime))
	if err != nil {
		s.t.Fatal(err)
	}
	return js
}

// Stream makes a stream in files.
func (s *Server) Stream(config jetstream.StreamConfig) jetstream.Stream {
	s.t.Helper()
	stream, err := s.JetStream().CreateStream(s.t.Context(), config)
	if err != nil {
		s.t.Fatal(err)
	}
	return stream
}
