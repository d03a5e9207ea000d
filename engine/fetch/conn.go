package fetch

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// meter counts the bytes of one attempt, or those of a session that belong to
// none. Each byte is counted by one meter: what comes after the end of an
// attempt is its heir's.
type meter struct {
	limit int64        // both ways together; 0: none
	cut   atomic.Bool  // the limit was passed
	last  atomic.Int64 // unix nanoseconds of the last byte read

	mu       sync.Mutex
	up, down int64
	heir     *meter // counts in its place; nil until end
}

func (m *meter) add(up, down int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.heir != nil {
		m.heir.add(up, down)
		return
	}
	m.up += int64(up)
	m.down += int64(down)
}

// end makes the figures final.
func (m *meter) end(heir *meter) (up, down int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heir = heir
	return m.up, m.down
}

func (m *meter) bytes() (up, down int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.up, m.down
}

// room is how many bytes may still be read before the limit is passed.
func (m *meter) room(want int) int {
	if m.limit == 0 {
		return want
	}
	return int(min(int64(want), m.left()+1))
}

// left is how many bytes the limit leaves, negative where there is none.
func (m *meter) left() int64 {
	if m.limit == 0 {
		return -1
	}
	up, down := m.bytes()
	return max(0, m.limit-up-down)
}

// over notes and reports that the limit is passed.
func (m *meter) over() bool {
	if m.limit == 0 {
		return false
	}
	if up, down := m.bytes(); up+down <= m.limit {
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
	m.add(0, n)
	m.touch()
	if m.over() {
		c.Close()
		return n, ErrMaxBytes
	}
	return n, err
}

// Write counts before it writes: once the other side has a byte, what it answers
// may end the attempt before the call returns.
func (c *conn) Write(p []byte) (int, error) {
	m := c.owner.Load()
	if m.over() {
		c.Close()
		return 0, ErrMaxBytes
	}
	m.add(len(p), 0)
	n, err := c.Conn.Write(p)
	m.add(n-len(p), 0)
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
