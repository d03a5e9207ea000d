package config

import (
	"net/http"
	"net/url"
	"slices"

	"semel/engine/address"
	"semel/engine/delivery"
	"semel/engine/intake"
)

// defaultInFlight is how many deliveries a webhook has under way at once: enough
// for 3,000 events a second to a consumer that takes 5 ms for one.
const defaultInFlight = 16

// webhookHeaders are those that each delivery sets itself.
var webhookHeaders = []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "Idempotency-Key", "Content-Type"}

// webhook reads what is a webhook's alone.
func webhook(t *table, s *Sink, c *Config) {
	o := delivery.WebhookOptions{UserAgent: c.Engine.UserAgent, AllowPrivate: c.Engine.AllowPrivate}
	before := len(t.l.errs)
	s.InFlight = defaultInFlight
	t.integer("in_flight", &s.InFlight, 1, 256)
	t.boolean("allow_private", &o.AllowPrivate)
	o.URL = t.webhookURL(o.AllowPrivate)
	o.Signers = t.signers()
	var headers []Header
	t.headers(&headers)
	t.refuseHeaders(webhookHeaders)
	if len(t.l.errs) > before || t.l.getenv == nil {
		return
	}
	o.InFlight, o.Header = s.InFlight, requestHeader(headers)
	s.Transport = delivery.NewWebhook(o)
}

// webhookURL reads where a webhook leads. The URL may be all that keeps others
// from writing there: it can be a secret, and no fault shows it.
func (t *table) webhookURL(allowPrivate bool) *url.URL {
	var raw string
	n := t.get("url")
	switch {
	case n == nil:
		t.l.fault(t.node, "url is missing")
		return nil
	case !t.text("url", &raw):
		return nil
	case isReference(raw):
		var secret Secret
		if !t.l.resolve(n, raw, &secret) || t.l.getenv == nil {
			return nil
		}
		raw = secret.Reveal()
	}
	if err := intake.CheckURL(raw); err != nil {
		t.l.fault(n, "%v", err)
		return nil
	}
	u, _ := url.Parse(raw) // CheckURL did
	if err := address.CheckHost(u.Hostname()); err != nil && !allowPrivate {
		t.l.fault(n, "%v: set allow_private = true if it is meant", err)
	}
	return u
}

// signers reads the secrets that sign events: one reference, or a list of them.
func (t *table) signers() []delivery.Signer {
	n := t.get("secret")
	if n == nil {
		t.l.fault(t.node, "secret is missing: without a signature anybody could send events to the consumer")
		return nil
	}
	if n.items == nil {
		n = &node{path: n.path, line: n.line, items: []*node{n}}
	}
	if len(n.items) == 0 {
		t.l.fault(n, "must name at least one secret")
	}
	var signers []delivery.Signer
	for _, item := range n.items {
		var secret Secret
		if !t.l.secret(item, &secret) || t.l.getenv == nil {
			continue
		}
		s, err := delivery.NewSigner(secret.Reveal())
		if err != nil {
			t.l.fault(item, "%v", err)
		}
		signers = append(signers, s)
	}
	return signers
}

// refuseHeaders refuses headers that who sends them sets.
func (t *table) refuseHeaders(names []string) {
	headers := t.get("headers")
	if headers == nil {
		return
	}
	for _, m := range headers.members {
		if slices.Contains(names, http.CanonicalHeaderKey(m.name)) {
			t.l.fault(m, "cannot be set: each delivery has its own")
		}
	}
}
