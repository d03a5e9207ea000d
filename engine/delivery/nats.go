package delivery

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"semel/engine/broker"
	"semel/storage"
)

// DefaultSubject is where events are published that no other is named for.
const DefaultSubject = "semel.{source}.{type}"

// NATSOptions say where events are published.
type NATSOptions struct {
	Server  broker.Server
	Subject string        // a template of {source} and {type} (CheckSubject)
	Stream  string        // that must take the subject; "": any
	Timeout time.Duration // after which an acknowledgement is given up
}

// NATS publishes events to a JetStream stream. The id of an event is that of its
// message (Nats-Msg-Id), so a stream that has it already, from whichever box and
// within its duplicate window, says so and keeps one. An event that is too large
// for the server or the stream goes as a reference.
type NATS struct {
	opts NATSOptions

	mu   sync.Mutex
	conn *nats.Conn // nil: none was needed yet
	js   jetstream.JetStream
}

// NewNATS makes a Transport. Nothing is opened before the first Deliver.
func NewNATS(opts NATSOptions) *NATS { return &NATS{opts: opts} }

var subjectText = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// CheckSubject accepts templates of subjects: tokens with dots between them, in
// which {source} and {type} may stand. The dots of a type are those of its subject.
func CheckSubject(template string) error {
	if !subjectText.MatchString(expandSubject(template, "s", "t")) {
		return errors.New("must be tokens of letters, digits, _ and - with dots between them; {source} and {type} may stand in it")
	}
	return nil
}

func expandSubject(template, source, event string) string {
	return strings.NewReplacer("{source}", source, "{type}", event).Replace(template)
}

// subject is where an event is published.
func (n *NATS) subject(e *storage.Event) string {
	source, _, _ := strings.Cut(e.Key, ":") // all keys begin with it
	return expandSubject(n.opts.Subject, source, e.Type)
}

// Deliver publishes the events together, and waits for the acknowledgement of
// each.
func (n *NATS) Deliver(ctx context.Context, events []*storage.Event) []Result {
	results := make([]Result, len(events))
	js, err := n.open()
	if err != nil {
		for i := range results {
			results[i] = Result{Outcome: storage.OutcomeAgain, Reason: err.Error()}
		}
		return results
	}
	sent := make([]published, len(events))
	for i, e := range events {
		sent[i] = n.publish(js, e, AppendJSON(nil, e))
	}
	for i, e := range events {
		ack, err := sent[i].await(ctx)
		if tooLarge(err) {
			ack, err = n.publish(js, e, AppendReference(nil, e)).await(ctx)
		}
		results[i] = n.result(e, ack, err)
	}
	return results
}

// Close closes the connection. What is not acknowledged by now is not waited for.
func (n *NATS) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn != nil {
		n.conn.Close()
	}
	return nil
}

// open connects where that has not been done.
func (n *NATS) open() (jetstream.JetStream, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn == nil {
		conn, err := n.opts.Server.Connect()
		if err != nil {
			return nil, err
		}
		// A message without an acknowledgement is forgotten in the end, or their
		// number would keep others from being sent.
		js, err := jetstream.New(conn, jetstream.WithPublishAsyncTimeout(n.opts.Timeout))
		if err != nil {
			conn.Close()
			return nil, fmt.Errorf("using JetStream: %w", err)
		}
		n.conn, n.js = conn, js
	}
	if !n.conn.IsConnected() {
		return nil, fmt.Errorf("not connected to NATS at %s", n.opts.Server)
	}
	return n.js, nil
}

// published is one event on its way.
type published struct {
	ack    jetstream.PubAckFuture
	unsent error // why it is not on its way; nil: it is
}

func (n *NATS) publish(js jetstream.JetStream, e *storage.Event, payload []byte) published {
	opts := []jetstream.PublishOpt{jetstream.WithMsgID(e.ID), jetstream.WithRetryAttempts(0)}
	if n.opts.Stream != "" {
		opts = append(opts, jetstream.WithExpectStream(n.opts.Stream))
	}
	ack, err := js.PublishAsync(n.subject(e), payload, opts...)
	return published{ack, err}
}

// errUnsent is of an event that has certainly not arrived.
var errUnsent = errors.New("not sent")

// await waits for the acknowledgement. One that is there counts also after ctx
// has ended.
func (p published) await(ctx context.Context) (*jetstream.PubAck, error) {
	if p.unsent != nil {
		return nil, fmt.Errorf("%w: %w", errUnsent, p.unsent)
	}
	select {
	case ack := <-p.ack.Ok():
		return ack, nil
	case err := <-p.ack.Err():
		return nil, err
	default:
	}
	select {
	case ack := <-p.ack.Ok():
		return ack, nil
	case err := <-p.ack.Err():
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// codeTooLarge is that of a stream whose limit a message exceeds.
const codeTooLarge = jetstream.JSErrCodeStreamMessageExceedsMaximum

func tooLarge(err error) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && refused.ErrorCode == codeTooLarge || errors.Is(err, nats.ErrMaxPayload)
}

// result is what an acknowledgement, or its absence, means for an event.
func (n *NATS) result(e *storage.Event, ack *jetstream.PubAck, err error) Result {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil && ack.Duplicate:
		return Result{Outcome: storage.OutcomeDeduplicated}
	case err == nil:
		return Result{Outcome: storage.OutcomeDelivered}
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		subject := n.subject(e)
		return Result{Outcome: storage.OutcomeAgain, Reason: fmt.Sprintf("no stream takes %s: create one (nats stream add), or add the subject to one", subject)}
	case ok:
		return Result{Outcome: storage.OutcomeAgain, Reason: "the server refused it: " + refused.Description}
	case errors.Is(err, errUnsent):
		return Result{Outcome: storage.OutcomeAgain, Reason: err.Error()}
	}
	return Result{Outcome: storage.OutcomeAmbiguous, Reason: fmt.Sprintf("no acknowledgement: %v", err)}
}
