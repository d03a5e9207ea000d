package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Kind is what goes wrong.
type Kind int

const (
	None       Kind = iota // nothing
	Status                 // the gateway answers Fault.Status itself; over SOCKS5, a reply (see Fault)
	DeadTunnel             // 502: the exit does not reach the site
	Drop                   // the connection is closed without an answer
	Cut                    // the connection is closed within the header of the answer
	Hang                   // no answer, ever
	Reset                  // the connection is reset after Fault.After bytes of body
	Slow                   // the body comes in pieces of Fault.After bytes, Fault.Pause between them
	Stall                  // after Fault.After bytes of body nothing more comes
)

// Fault is what happens to one request. In a tunnel, its body is what comes
// from the site, handshake included.
type Fault struct {
	Kind   Kind
	Status int           // of Status; over SOCKS5 below 256 it is the reply's number, else the reply is 1
	Header http.Header   // of Status and DeadTunnel, such as Retry-After
	Body   string        // of Status and DeadTunnel
	After  int           // bytes; for Slow, 0 is 1 KiB
	Pause  time.Duration // before the answer; for Slow, between pieces instead
}

// slowPiece is the default piece of Slow.
const slowPiece = 1 << 10

// Random makes a Fault function under which a request fails with a probability
// of p, all faults being equally likely. It is drawn from seed, the request's
// URL and its try, so that a run repeats in any order of requests.
func Random(seed uint64, p float64, faults ...Fault) func(Request) Fault {
	return func(r Request) Fault {
		if len(faults) == 0 {
			return Fault{}
		}
		const scale = 1 << 32
		draw := xxhash.Sum64String(fmt.Sprintf("%d %d %s", seed, r.Try, r.URL))
		if float64(draw%scale)/scale >= p {
			return Fault{}
		}
		return faults[draw/scale%uint64(len(faults))]
	}
}

// errReset ends a body that is to be reset.
var errReset = errors.New("scripted reset")

// faultyBody applies a fault to a body as it is read.
type faultyBody struct {
	io.Reader
	io.Closer
	fault Fault
	sent  int
	pause func(time.Duration) // returns early when the gateway closes
	stall func()              // returns when the client has gone
}

func (b *faultyBody) Read(p []byte) (int, error) {
	switch b.fault.Kind {
	case Reset, Stall:
		left := b.fault.After - b.sent
		if left <= 0 {
			return 0, b.end()
		}
		p = p[:min(len(p), left)]
	case Slow:
		if b.sent > 0 {
			b.pause(b.fault.Pause)
		}
		piece := b.fault.After
		if piece == 0 {
			piece = slowPiece
		}
		p = p[:min(len(p), piece)]
	}
	n, err := b.Reader.Read(p)
	b.sent += n
	return n, err
}

// end is what comes after the last byte that is let through.
func (b *faultyBody) end() error {
	if b.fault.Kind == Stall {
		b.stall()
	}
	return errReset
}
