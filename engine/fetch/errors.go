package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"semel/engine/address"
)

// Conditions of the request itself: the same request would fail again.
var (
	ErrURL      = errors.New("not a URL that can be fetched")
	ErrScheme   = errors.New("only http and https are fetched")
	ErrRedirect = errors.New("redirect not followed")
	ErrTooLarge = errors.New("body is larger than allowed")
	ErrMaxBytes = errors.New("transfer reached its byte limit")
)

// Conditions of the transfer.
var (
	ErrGateway   = errors.New("no conversation with the proxy")     // refused, unreachable, or cut before it had answered
	ErrNoAnswer  = errors.New("no valid answer")                    // connected, then closed, reset or not HTTP before the headers' end
	ErrTruncated = errors.New("body ended early")                   // shorter than announced, or reset
	ErrEncoding  = errors.New("content encoding cannot be decoded") // unknown, or not what it claims
)

// ErrClosed: the session or pool was closed before.
var ErrClosed = errors.New("session is closed")

// Error is why Do gave no page. Neither its text nor any in its chain holds a
// login.
type Error struct {
	Phase Phase
	Err   error
}

// Error says what was being done and what happened.
func (e *Error) Error() string { return e.Phase.act() + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// act is the phase in words.
func (p Phase) act() string {
	switch p {
	case PhaseStart:
		return "preparing the request"
	case PhaseDial:
		return "connecting"
	case PhaseConnect:
		return "asking the proxy for a tunnel"
	case PhaseTLS:
		return "tls handshake"
	case PhaseSend:
		return "sending the request"
	case PhaseHeaders:
		return "waiting for the answer"
	default:
		return "reading the body"
	}
}

// TimeoutError is a phase that took longer than its own time. The end of Do's
// context is not one: that is found as context.DeadlineExceeded or Canceled.
type TimeoutError struct {
	Phase Phase
	After time.Duration
}

func (e *TimeoutError) Error() string { return fmt.Sprintf("no progress within %s", e.After) }

// Timeout is true, as in net.Error.
func (e *TimeoutError) Timeout() bool { return true }

// ConnectError is a proxy's refusal to make a tunnel.
type ConnectError struct {
	Status int
	Reason string // what the status line says beside the number, at most 100 bytes, without the login
	Header http.Header
	Code   string // the gateway's own code, "" if it gave none; without the login
	Body   string // at most 2 KiB of its explanation, without the login
}

func (e *ConnectError) Error() string {
	text := fmt.Sprintf("proxy answered %d", e.Status)
	if reason := cmp.Or(e.Reason, http.StatusText(e.Status)); reason != "" {
		text += " " + reason
	}
	if e.Code != "" {
		text += " (" + e.Code + ")"
	}
	return text
}

// SOCKSReply is the reply of a SOCKS5 proxy, numbered as in RFC 1928 §6.
type SOCKSReply int

const (
	SOCKSAuth            SOCKSReply = -1 // not a reply of the RFC: the login was refused, or none was acceptable
	SOCKSOther           SOCKSReply = 0  // anything else
	SOCKSGeneralFailure  SOCKSReply = 1
	SOCKSNotAllowed      SOCKSReply = 2
	SOCKSNetUnreachable  SOCKSReply = 3
	SOCKSHostUnreachable SOCKSReply = 4
	SOCKSRefused         SOCKSReply = 5
	SOCKSTTLExpired      SOCKSReply = 6
	SOCKSNoCommand       SOCKSReply = 7
	SOCKSNoAddressType   SOCKSReply = 8
)

// SOCKSError is a SOCKS5 proxy's refusal. With SOCKSAuth it was the login's,
// with any other the login had been accepted.
type SOCKSError struct {
	Reply SOCKSReply
	text  string
}

func (e *SOCKSError) Error() string { return "socks proxy: " + e.text }

// PanicError is a panic in the middle of a request, of colly or below it.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// redactedError stands for an error whose text held the proxy's login, such as
// a parser's that quotes a gateway. It is still found by errors.Is.
type redactedError struct {
	text  string
	inner error
}

func (e *redactedError) Error() string { return e.text }

func (e *redactedError) Is(target error) bool { return errors.Is(e.inner, target) }

// decided reports whether err is one that this package or the caller's Allow
// chose, and not what a dying connection made of it.
func decided(err error) bool {
	for _, own := range []error{ErrURL, ErrScheme, address.ErrPrivate, ErrRedirect, ErrTooLarge, ErrEncoding, ErrClosed} {
		if errors.Is(err, own) {
			return true
		}
	}
	return false
}

// ended is why ctx ended, with context's own sentinel in its chain also where
// the cause is another error.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ctx.Err()) {
		return cause
	}
	return fmt.Errorf("%w: %w", ctx.Err(), cause)
}
