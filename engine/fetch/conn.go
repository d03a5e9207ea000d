package fetch

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"
)

// meter counts the bytes of one attempt, or those of a session that belong to
// none.
type meter struct {
	up, down atomic.Int64
	limit    int64        // both ways together; 0: none
	cut      atomic.Bool  // the limit was passed
	last     atomic.Int64 // unix nanoseconds of the last byte read
}

// room is how many bytes may still be read before the limit is passed.
func (m *meter) room(want int) int {
	if m.limit == 0 {
		return want
	}
	left := m.limit - m.up.Load() - m.down.Load()
	return int(min(int64(want), max(left+1, 1)))
}

// left is how many bytes the limit leaves, negative where there is none.
func (m *meter) left() int64 {
	if m.limit == 0 {
		return -1
	}
	return max(0, m.limit-m.up.Load()-m.down.Load())
}

// over notes and reports that the limit is passed.
func (m *meter) over() bool {
	if m.limit == 0 || m.up.Load()+m.down.Load() <= m.limit {
		return false
	}
	m.cut.Store(true)
	return true
}

// touch notes progress.
func (m *meter) touch() { m.last.Store(time.Now().UnixNano()) }

// conn counts what is read and written, for whoever holds it.
type conn struct {
	net.Conn
	owner atomic.Pointer[meter]
	ready atomic.Bool // dial, tunnel and handshake are over: it may serve anyone
}

// Read reads no more than one byte over the owner's limit, and then ends the
// connection. The owner may change while it waits: what arrives belongs to the
// one who holds the connection then.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:c.owner.Load().room(len(p))])
	if n == 0 {
		return n, err
	}
	m := c.owner.Load()
	m.down.Add(int64(n))
	m.touch()
	if m.over() {
		c.Close()
		return n, ErrMaxBytes
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	m := c.owner.Load()
	if m.over() {
		c.Close()
		return 0, ErrMaxBytes
	}
	n, err := c.Conn.Write(p)
	m.up.Add(int64(n))
	if m.over() {
		c.Close()
		return n, ErrMaxBytes
	}
	return n, err
}

// meteredConn finds the metered connection below any TLS.
func meteredConn(c net.Conn) *conn {
	for {
		switch inner := c.(type) {
		case *conn:
			return inner
		case *tls.Conn:
			c = inner.NetConn()
		default:
			return nil
		}
	}
}
