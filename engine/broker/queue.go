package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// ackWait is how long a message that was taken may go without a word before
	// it is given to another, where this process makes the consumer: the
	// server's default. Held messages get their word at a third of it.
	ackWait = 30 * time.Second
	// answerTime is how long a server may take to answer one question.
	answerTime = 5 * time.Second
)

// Queue takes messages of a stream through a durable consumer, which all who
// name it share: each message goes to one of them. It is for one goroutine.
type Queue struct {
	server           Server
	stream, consumer string

	conn *nats.Conn         // nil: not opened yet
	pull jetstream.Consumer // nil: to be looked up
}

// Message is one that was taken.
type Message struct {
	Sequence uint64 // in its stream, from 1
	Taken    uint64 // how often it was, by anybody, from 1
	Data     []byte
	msg      jetstream.Msg
}

// NewQueue names a stream, and the consumer to take by, which is made where it
// is not there. Nothing is opened before the first Take.
func NewQueue(server Server, stream, consumer string) *Queue {
	return &Queue{server: server, stream: stream, consumer: consumer}
}

// Close closes the connection. Messages that are still held come again.
func (q *Queue) Close() {
	if q.conn != nil {
		q.conn.Close()
	}
}

// Take takes up to most of the messages that are there now; where none is, it
// waits for one, up to wait or until ctx ends. None is no error.
func (q *Queue) Take(ctx context.Context, most int, wait time.Duration) ([]Message, error) {
	messages, err := q.take(ctx, most, wait)
	if err != nil {
		q.pull = nil // it may be gone
		return nil, fmt.Errorf("taking from stream %s: %w", q.stream, err)
	}
	return messages, nil
}

func (q *Queue) take(ctx context.Context, most int, wait time.Duration) ([]Message, error) {
	if err := q.open(ctx); err != nil {
		return nil, err
	}
	messages, err := received(q.pull.FetchNoWait(most))
	if len(messages) > 0 || err != nil {
		return messages, err
	}
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	messages, err = received(q.pull.Fetch(1, jetstream.FetchContext(waitCtx)))
	if err != nil && waitCtx.Err() != nil {
		err = ctx.Err() // nil where nothing has come
	}
	return messages, err
}

// received reads what a fetch brings. What came before it failed counts.
func received(batch jetstream.MessageBatch, err error) ([]Message, error) {
	if err != nil {
		return nil, err
	}
	var messages []Message
	for msg := range batch.Messages() {
		about, err := msg.Metadata()
		if err != nil {
			return nil, err
		}
		messages = append(messages, Message{about.Sequence.Stream, about.NumDelivered, msg.Data(), msg})
	}
	if len(messages) > 0 {
		return messages, nil
	}
	return nil, batch.Error()
}

// open connects, and looks up the consumer, as far as that is not done.
func (q *Queue) open(ctx context.Context) (err error) {
	if q.conn == nil {
		if q.conn, err = q.server.Connect(); err != nil {
			return err
		}
	}
	if !q.conn.IsConnected() {
		return fmt.Errorf("not connected to NATS at %s", q.server)
	}
	if q.pull != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	q.pull, err = q.lookUp(ctx)
	return err
}

// lookUp finds the consumer, or makes it.
func (q *Queue) lookUp(ctx context.Context) (jetstream.Consumer, error) {
	js, err := jetstream.New(q.conn)
	if err != nil {
		return nil, err
	}
	pull, err := js.Consumer(ctx, q.stream, q.consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		pull, err = js.CreateConsumer(ctx, q.stream, jetstream.ConsumerConfig{
			Durable: q.consumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
			MaxDeliver: -1, MaxAckPending: -1, // each who takes bounds what it holds
		})
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("there is no such stream: create it (nats stream add %s)", q.stream)
	case err != nil:
		return nil, fmt.Errorf("consumer %s: %w", q.consumer, err)
	case pull.CachedInfo().Config.AckPolicy != jetstream.AckExplicitPolicy:
		return nil, fmt.Errorf("consumer %s does not ask for explicit acknowledgements: delete it, and it is made as it should be", q.consumer)
	}
	return pull, nil
}

// Left is how many messages the consumer has yet to give, and has given to
// anybody without an answer so far. Take comes first, and opens the Queue.
func (q *Queue) Left(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	info, err := q.pull.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("asking for what is left in stream %s: %w", q.stream, err)
	}
	return int(info.NumPending) + info.NumAckPending, nil
}

// AckWait is after how long messages come again that nobody answers for. Take
// comes first, and opens the Queue.
func (q *Queue) AckWait() time.Duration { return q.pull.CachedInfo().Config.AckWait }

// Hold keeps messages from being given to another, until release is called.
func (q *Queue) Hold(messages []Message) (release func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ticker := time.NewTicker(q.AckWait() / 3)
	var holding sync.WaitGroup
	holding.Go(func() {
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			for i := range messages {
				_ = messages[i].msg.InProgress() // where it fails, the message may come again
			}
		}
	})
	return func() {
		cancel()
		holding.Wait()
	}
}

// Done acknowledges messages: nobody gets them again. They must be released. An
// error means that some may come again.
func (q *Queue) Done(ctx context.Context, messages []Message) error {
	if len(messages) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	last := len(messages) - 1
	err := answer(messages[:last], jetstream.Msg.Ack)
	if err == nil {
		err = messages[last].msg.DoubleAck(ctx) // answers for those before it, too
	}
	if err != nil {
		return fmt.Errorf("acknowledging messages of stream %s: %w", q.stream, err)
	}
	return nil
}

// GiveBack lets others have messages at once. They must be released.
func (q *Queue) GiveBack(messages []Message) {
	_ = answer(messages, jetstream.Msg.Nak) // else they come again after AckWait
}

// Postpone gives a message back, for nobody to have before delay is over. It must
// be released. Where that does not reach the server, it comes again after AckWait.
func (m *Message) Postpone(delay time.Duration) { _ = m.msg.NakWithDelay(delay) }

// Refuse ends a message that nobody could use, with the reason for whoever
// watches the server. Where that does not reach it, the message comes again.
func (m *Message) Refuse(reason string) { _ = m.msg.TermWithReason(reason) }

func answer(messages []Message, give func(jetstream.Msg) error) error {
	for i := range messages {
		if err := give(messages[i].msg); err != nil {
			return err
		}
	}
	return nil
}
