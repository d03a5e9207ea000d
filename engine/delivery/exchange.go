package delivery

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// exchange is one request and what went over its connection. Its fields are set
// in the goroutine of RoundTrip.
type exchange struct {
	conn   *countedConn // nil: there was none
	before int64        // bytes that had gone over it, a TLS handshake among them
	reused bool
}

// watch notes which connection a request gets.
func (x *exchange) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		x.conn, x.reused = counted(got.Conn), got.Reused
		x.before = x.conn.written.Load()
	}})
}

// sent reports whether bytes of the request have left: then it may have arrived.
// RoundTrip gives no error while it still writes.
func (x *exchange) sent() bool { return x.conn != nil && x.conn.written.Load() > x.before }

// countedConn counts what is written.
type countedConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

func dialCounted(dialer *net.Dialer) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: c}, nil
	}
}

// counted finds the connection of dialCounted below any TLS.
func counted(c net.Conn) *countedConn {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return c.(*countedConn)
}
