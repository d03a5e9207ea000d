package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// blackHole is an address that lets no connection through: a listener whose
// queue is full. Other systems refuse there.
func blackHole(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
	for i := range 8 {
		patience := soon
		if i == 0 {
			patience = 0 // a queue of length 0 takes one, however long that lasts
		}
		c, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Skip("the queue does not fill here")
	return ""
}

func TestDialTimeout(t *testing.T) {
	s := open(t, Options{Timeouts: short(func(d *Timeouts) { d.Dial = soon })})
	_, trace, err := get(t, s, "http://"+blackHole(t)+"/")
	wantTimeout(t, err, trace, PhaseDial)
}

func TestDialEndsWithItsAttempt(t *testing.T) {
	target := "http://" + blackHole(t) + "/"
	s := open(t, Options{})
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancelCause(t.Context())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{ConnectStart: func(string, string) {
		time.AfterFunc(soon, func() { cancel(context.DeadlineExceeded) }) // as a deadline would
	}})
	_, trace, err := s.Do(ctx, Request{URL: target})
	wantError(t, err, context.DeadlineExceeded)
	if trace.Phase != PhaseDial {
		t.Errorf("got phase %s", trace.Phase)
	}
	goleak.VerifyNone(t, before) // well before the dial's own time is up
}
