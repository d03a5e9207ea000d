package delivery

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"semel/engine/address"
	"semel/engine/retryafter"
	"semel/storage"
)

const (
	// maxPayload is what a webhook carries at most: Standard Webhooks asks for
	// less than 20 kB ("Payload size").
	maxPayload = 20_000
	// maxAnswer is how much of an answer is read, all for the sake of a word that
	// the event was there before. The connection of a longer one is not kept.
	maxAnswer = 64 << 10
	// maxAnswerHeader bounds its header.
	maxAnswerHeader = 64 << 10
	// connectTime bounds dialling and the TLS handshake, each: net/http goes on
	// with them when the delivery is over.
	connectTime = 10 * time.Second
	// idleTime stays below the 5 s after which Node and Apache close a kept
	// connection: what is sent into that moment may or may not have arrived.
	idleTime = 4 * time.Second
)

// WebhookOptions say where a webhook leads and what goes with each event.
type WebhookOptions struct {
	URL          *url.URL    // http or https, without a login
	Signers      []Signer    // the newest first; one at least, more while secrets change
	Header       http.Header // besides the webhook's own
	UserAgent    string
	AllowPrivate bool // may it lead to loopback and private addresses?
	InFlight     int  // connections that are kept, at least 1
}

// Webhook posts events to a URL as Standard Webhooks 1.0 says, each under its id
// in webhook-id and Idempotency-Key. Redirects are not followed, and no proxy of
// the environment is used.
//
// It speaks HTTP/1.1: one connection serves one delivery at a time, so that its
// end leaves no more than one in doubt, and what went over it tells whether a
// delivery that failed may have arrived.
type Webhook struct {
	options   WebhookOptions
	transport *http.Transport
	hide      *strings.Replacer // takes what only the consumer may see out of a text
}

// NewWebhook makes a webhook. Nothing is opened before the first Deliver.
func NewWebhook(o WebhookOptions) *Webhook {
	dialer := &net.Dialer{Timeout: connectTime}
	if !o.AllowPrivate {
		dialer.ControlContext = address.Control
	}
	t := &http.Transport{
		DialContext:            dialCounted(dialer),
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    connectTime,
		DisableCompression:     true,
		MaxIdleConns:           o.InFlight,
		MaxIdleConnsPerHost:    o.InFlight,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: maxAnswerHeader,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return &Webhook{options: o, transport: t, hide: hider(o.URL, o.Header)}
}

// Close implements Transport.
func (w *Webhook) Close() error {
	w.transport.CloseIdleConnections()
	return nil
}

// Deliver implements Transport.
func (w *Webhook) Deliver(ctx context.Context, events []*storage.Event) []Result {
	results := make([]Result, len(events))
	for i, e := range events {
		results[i] = w.post(ctx, e)
	}
	return results
}

// post delivers one event. A kept connection that the consumer had closed before
// anything went over it was no delivery: another one is taken.
func (w *Webhook) post(ctx context.Context, e *storage.Event) Result {
	payload := webhookPayload(e)
	for {
		now := time.Now()
		var x exchange
		r, err := w.request(x.watch(ctx), e, payload, now)
		if err != nil {
			return Result{Outcome: storage.OutcomeAgain, Reason: err.Error()}
		}
		resp, err := w.transport.RoundTrip(r)
		switch {
		case err == nil:
			return w.judge(resp, now)
		case x.sent():
			return Result{Outcome: storage.OutcomeAmbiguous, Reason: w.clean("no answer: " + why(ctx, err))}
		case !x.reused || ctx.Err() != nil:
			return Result{Outcome: storage.OutcomeAgain, Reason: w.clean("not sent: " + why(ctx, err))}
		}
	}
}

// webhookPayload is an event as it is sent, or what refers to it.
func webhookPayload(e *storage.Event) []byte {
	b := make([]byte, 0, 256+min(len(e.Data), maxPayload))
	if len(e.Data) <= maxPayload {
		b = AppendJSON(b, e)
	}
	if len(b) == 0 || len(b) > maxPayload {
		b = AppendReference(b[:0], e)
	}
	return b
}

// request is one try to deliver an event. It has no GetBody: with that and its
// Idempotency-Key net/http would send it again by itself, and nobody would know.
func (w *Webhook) request(ctx context.Context, e *storage.Event, payload []byte, now time.Time) (*http.Request, error) {
	signature, err := signatures(w.options.Signers, e.ID, now, payload)
	if err != nil {
		return nil, fmt.Errorf("signing event %s: %w", e.ID, err)
	}
	h := w.options.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("User-Agent", w.options.UserAgent)
	h.Set("Content-Type", "application/json")
	h.Set("Idempotency-Key", e.ID)
	h.Set(standardwebhooks.HeaderWebhookID, e.ID)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, signature)
	r := &http.Request{
		Method: http.MethodPost, URL: w.options.URL, Header: h,
		Body: io.NopCloser(bytes.NewReader(payload)), ContentLength: int64(len(payload)),
	}
	return r.WithContext(ctx), nil
}

// judge says what an answer means. A 500 is a failure like any other, as Standard
// Webhooks has it ("Delivery success and failure"), and not ambiguous: it is the
// consumer's own word, and what it had stored before it failed it knows by its id.
// Only where somebody else has answered, nobody has said whether it got the event.
func (w *Webhook) judge(resp *http.Response, now time.Time) Result {
	body := readAnswer(resp)
	status := resp.StatusCode
	switch {
	case status == http.StatusConflict, status/100 == 2 && saysDuplicate(body):
		return Result{Outcome: storage.OutcomeDeduplicated}
	case status/100 == 2:
		return Result{Outcome: storage.OutcomeDelivered}
	}
	r := Result{Outcome: storage.OutcomeAgain, Reason: w.clean(told(resp, body))}
	switch status {
	case http.StatusGone:
		r.Stop = true
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		r.RetryAfter, r.Passing = retryafter.Parse(resp.Header, now), true
	case http.StatusBadGateway, http.StatusGatewayTimeout: // of somebody in between, who may have passed it on
		r.Outcome = storage.OutcomeAmbiguous
	}
	return r
}

// readAnswer reads an answer's body as far as it is of interest, and lets its
// connection be used again where that was all. One that breaks off says less, and
// changes nothing: the status was there.
func readAnswer(resp *http.Response) []byte {
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	if resp.StatusCode < http.StatusOK {
		return nil // another protocol's bytes, without an end
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return body
}

// saysDuplicate reports whether a consumer says that it had the event before. A
// field of another type says nothing, whatever else is wrong with it.
func saysDuplicate(body []byte) bool {
	var said struct {
		Duplicate bool
		Status    string
	}
	_ = json.Unmarshal(body, &said)
	return said.Duplicate || said.Status == "duplicate"
}

// told is what an answer that is no success says.
func told(resp *http.Response, body []byte) string {
	text := strings.TrimSpace("it answered " + strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode))
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		return text + ", which leads to " + to.Host + ": redirects are not followed"
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return text
	}
	return text + ": " + string(body)
}

// why says what went wrong with a request that has no answer.
func why(ctx context.Context, err error) string {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "its time is over"
	case ctx.Err() != nil:
		return context.Cause(ctx).Error()
	case errors.Is(err, address.ErrPrivate):
		return err.Error() + " (allow_private)"
	}
	return err.Error()
}
