package fetch

import (
	"io"
	"net"
	"testing"
)

// cutShort is a connection that takes only so many bytes, and says when.
type cutShort struct {
	net.Conn
	takes int
	sent  func()
}

func (c cutShort) Write(p []byte) (int, error) {
	n := min(len(p), c.takes)
	c.sent()
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// An attempt may end between the arrival of its bytes and the return of the
// write: they are its bytes all the same, and none is counted twice or by nobody.
func TestBytesAreCountedOnce(t *testing.T) {
	for name, takes := range map[string]int{"whole": 5, "cut short": 2, "none": 0} {
		t.Run(name, func(t *testing.T) {
			var m, late meter
			var up int64
			c := &conn{Conn: cutShort{takes: takes, sent: func() { up, _ = m.end(&late) }}}
			c.owner.Store(&m)
			n, _ := c.Write([]byte("hello"))
			if up != 5 {
				t.Errorf("the attempt counted %d bytes when they were sent", up)
			}
			if after, _ := late.bytes(); n != takes || up+after != int64(takes) {
				t.Errorf("%d bytes taken, %d and %d counted", n, up, after)
			}
		})
	}
}
