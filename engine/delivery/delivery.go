package delivery

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"time"

	"semel/storage"
)

// Sink is a configured place that events go to.
type Sink struct {
	Name      string
	Transport Transport
	InFlight  int           // deliveries at once, at least 1
	Batch     int           // events in one delivery, at least 1
	Timeout   time.Duration // of one delivery
	Limits    Limits
}

// Limits bound the deliveries of an event. After either it is dead, and waits
// for a person.
type Limits struct {
	Attempts int           // deliveries that count: those while the sink was down, or said that it would do better later, do not
	Time     time.Duration // from the first one
}

// Transport hands events over to one sink.
type Transport interface {
	// Deliver sends events, of which no two have the same key, and gives one
	// Result for each, in their order. It ends when ctx does. It may be called
	// from as many goroutines as the sink has deliveries in flight, and is never
	// called beside Close or after it.
	Deliver(ctx context.Context, events []*storage.Event) []Result
	// Close lets go of what Deliver has opened.
	Close() error
}

// teller is a Transport that has more to tell than its results.
type teller interface{ setLog(log *slog.Logger) }

// Result is what became of one event of a delivery.
type Result struct {
	Outcome    storage.DeliveryOutcome
	Reason     string        // why it is no success, for people; no secrets
	RetryAfter time.Duration // what the sink asked all to wait; 0: nothing
	Stop       bool          // the sink wants nothing more, ever
	Passing    bool          // the sink says that it will do better later: only Limits.Time counts
}

// AppendJSON appends an event as all sinks get it: {id, type, timestamp, data}.
func AppendJSON(b []byte, e *storage.Event) []byte {
	b = appendHead(b, e)
	b = append(b, e.Data...)
	return append(b, '}')
}

// appendHead appends an event up to its data.
func appendHead(b []byte, e *storage.Event) []byte {
	b = append(b, `{"id":`...)
	b = strconv.AppendQuote(b, e.ID) // hex digits: JSON as well
	b = append(b, `,"type":`...)
	b = strconv.AppendQuote(b, e.Type)
	b = append(b, `,"timestamp":"`...)
	b = e.Timestamp.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, `","data":`...)
}

// AppendReference appends an event that is too large for its sink: what it is
// about, and where it can be read whole from the API.
func AppendReference(b []byte, e *storage.Event) []byte {
	b = appendHead(b, e)
	key, _ := json.Marshal(e.Key) // text always is
	b = append(b, `{"reference":"/v1/events/`...)
	b = strconv.AppendUint(b, e.Seq, 10)
	b = append(b, `","key":`...)
	b = append(b, key...)
	b = append(b, `,"bytes":`...)
	b = strconv.AppendInt(b, int64(len(e.Data)), 10)
	return append(b, `}}`...)
}
