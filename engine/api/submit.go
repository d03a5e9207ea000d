package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

// ErrInFlight: a request with the same idempotency key is being answered.
var ErrInFlight = errors.New("a request with this key is being answered: ask again")

// Submission asks for one job. Its JSON is the body of POST /v1/jobs.
type Submission struct {
	Source  string            `json:"source"`
	URL     string            `json:"url,omitempty"`     // of the target, in place of the source's template
	Vars    map[string]string `json:"vars,omitzero"`     // of the target, where URL is not given; empty but not nil: it has none
	Window  string            `json:"window,omitempty"`  // as of intake.ParseWindow, one of the source's; "": none
	Country string            `json:"country,omitempty"` // in place of the source's; "": the source's

	// IdempotencyKey is storage.Idempotency's, "" for none.
	IdempotencyKey string `json:"-"`
}

// Submitted is the job of a Submission, as it is now.
type Submitted struct {
	Job
	New      bool `json:"new"` // made by it; where Replayed, by the first one of its key
	Replayed bool `json:"-"`   // the same was submitted before under its key
}

// UnmarshalJSON is stricter than encoding/json: each name as it is spelt, once.
// What is null is absent.
func (s *Submission) UnmarshalJSON(text []byte) error {
	var got Submission
	fields := map[string]*string{"source": &got.Source, "url": &got.URL, "window": &got.Window, "country": &got.Country}
	err := eachMember(text, func(name string, value json.RawMessage) (err error) {
		switch to := fields[name]; {
		case name != "vars" && to == nil:
			return fmt.Errorf("unknown field %q", name)
		case string(value) == "null":
			return nil
		case name == "vars":
			var vars intake.Vars
			vars, err = intake.ParseVars(value)
			got.Vars = vars.Map()
		case json.Unmarshal(value, to) != nil:
			err = errors.New("must be text in quotes")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	if err == nil {
		*s = got
	}
	return err
}

// eachMember calls fn with the members of a JSON object.
func eachMember(text []byte, fn func(name string, value json.RawMessage) error) error {
	if !utf8.Valid(text) { // encoding/json would change it without a word
		return errors.New("not UTF-8")
	}
	in := json.NewDecoder(bytes.NewReader(text))
	if start, err := in.Token(); err != nil || start != json.Delim('{') {
		return errors.New("not a JSON object")
	}
	seen := map[string]bool{}
	for in.More() {
		token, err := in.Token()
		if err != nil {
			return err
		}
		name := token.(string) // Decoder takes nothing else for a name
		if seen[name] {
			return fmt.Errorf("field %q is there twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return err
		}
		if err := fn(name, value); err != nil {
			return err
		}
	}
	_, err := in.Token()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// check refuses what no config could make a job of, and what would not arrive
// as it was meant.
func (s Submission) check() error {
	switch {
	case s.Source == "":
		return badRequest("source is missing")
	case s.URL == "" && s.Vars == nil:
		return badRequest("name the target by url or by vars")
	case s.URL != "" && s.Vars != nil:
		return badRequest("name the target by url or by vars, not by both")
	case s.IdempotencyKey != "" && !storage.ValidIdempotencyKey(s.IdempotencyKey):
		return badRequest("an idempotency key has up to %d printable ASCII characters", storage.MaxIdempotencyKey)
	}
	texts := append([]string{s.Source, s.URL, s.Window, s.Country}, slices.Collect(maps.Keys(s.Vars))...)
	for _, text := range append(texts, slices.Collect(maps.Values(s.Vars))...) {
		if !utf8.ValidString(text) {
			return badRequest("%q is not UTF-8", text)
		}
	}
	return nil
}

// idempotency is the key with the hash of what is asked for: names in the order
// of encoding/json, so that it is the same however the body was written.
func (s Submission) idempotency() (storage.Idempotency, error) {
	canonical, err := json.Marshal(s)
	return storage.Idempotency{Key: s.IdempotencyKey, Body: sha256.Sum256(canonical)}, err
}

// Submit implements Service.
func (l *Local) Submit(ctx context.Context, s Submission) (Submitted, error) {
	if err := s.check(); err != nil {
		return Submitted{}, err
	}
	by, err := s.idempotency()
	if err != nil {
		return Submitted{}, fmt.Errorf("hashing a submission: %w", err)
	}
	if by.Key != "" {
		if _, busy := l.inFlight.LoadOrStore(by.Key, nil); busy {
			return Submitted{}, fmt.Errorf("idempotency key %q: %w", by.Key, ErrInFlight)
		}
		defer l.inFlight.Delete(by.Key)
	}
	done, err := l.replay(by)
	if errors.Is(err, storage.ErrNotFound) {
		done, err = l.submit(ctx, s, by)
	}
	if err != nil {
		return Submitted{}, err
	}
	return Submitted{Job: newJob(done.Job), New: done.New, Replayed: done.Replayed}, nil
}

// replay answers again what was answered before, whatever the config says now.
func (l *Local) replay(by storage.Idempotency) (done storage.Submitted, err error) {
	err = l.Store.View(func(tx *storage.Tx) (err error) {
		done, err = tx.Replay(by)
		return err
	})
	return done, err
}

func (l *Local) submit(ctx context.Context, s Submission, by storage.Idempotency) (done storage.Submitted, err error) {
	src, err := l.collected(s.Source)
	if err != nil {
		return done, err
	}
	n, err := newJobOf(src, s)
	if err != nil {
		return done, badRequest("target of source %s: %w", src.Name, err)
	}
	err = l.Store.Update(ctx, func(tx *storage.Tx) (err error) {
		if err := guard(tx, src); err != nil {
			return err
		}
		done, err = tx.SubmitJob(n, by)
		return err
	})
	return done, err
}

// collected finds a source that jobs can be made for.
func (l *Local) collected(source string) (*config.Source, error) {
	if src := l.Config.Source(source); src != nil {
		return src, nil
	}
	if err := l.known(source); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w %q: it is in the store, and in the config no more", ErrUnknownSource, source)
}

func newJobOf(src *config.Source, s Submission) (storage.NewJob, error) {
	window, err := windowOf(src, s.Window)
	if err != nil {
		return storage.NewJob{}, err
	}
	var vars intake.Vars
	for _, name := range slices.Sorted(maps.Keys(s.Vars)) {
		vars = append(vars, intake.Var{Name: name, Value: s.Vars[name]})
	}
	target := src.ByHand(s.URL, vars)
	target.Country = s.Country
	n, err := src.NewJob(target, window)
	if err != nil || s.Country == "" {
		return n, err
	}
	for _, p := range src.Proxies { // with the source's own country the config was checked
		if err := p.Proxy.CheckCountry(n.Country); err != nil {
			return n, fmt.Errorf("country: %w", err)
		}
	}
	return n, nil
}

// windowOf is the start of the one window that a text names for a source; "" is
// none.
func windowOf(src *config.Source, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	w, err := intake.ParseWindow(text)
	if err != nil {
		return time.Time{}, err
	}
	return w.Start(src.Schedule)
}

const (
	headerIdempotency  = "Idempotency-Key"
	headerXIdempotency = "X-Idempotency-Key" // the same, as many clients spell it
	headerReplayed     = "Idempotent-Replayed"
)

// submit answers POST /v1/jobs.
func (h *Handler) submit(w *response, r *http.Request) error {
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	var s Submission
	if err := readBody(w, r, &s); err != nil {
		return err
	}
	s.IdempotencyKey = key
	done, err := h.local.Submit(r.Context(), s)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/jobs/"+strconv.FormatUint(done.ID, 10))
	if done.Replayed {
		w.Header().Set(headerReplayed, "true")
	}
	if done.New {
		return answer(w, http.StatusCreated, done)
	}
	return answer(w, http.StatusOK, done)
}

// idempotencyKey is the one key that a request's headers give, "" for none. One
// that was given and is empty is a mistake of the caller's, who counts on it.
func idempotencyKey(header http.Header) (string, error) {
	keys := slices.Concat(header.Values(headerIdempotency), header.Values(headerXIdempotency))
	if len(keys) == 0 {
		return "", nil
	}
	if keys = slices.Compact(keys); len(keys) > 1 {
		return "", badRequest("two different idempotency keys")
	}
	if keys[0] == "" {
		return "", badRequest("the idempotency key is empty")
	}
	return keys[0], nil
}

// Submit implements Service.
func (c *Client) Submit(ctx context.Context, s Submission) (done Submitted, err error) {
	if err := s.check(); err != nil {
		return done, err
	}
	r, err := c.request(ctx, http.MethodPost, "/v1/jobs", s)
	if err != nil {
		return done, err
	}
	if s.IdempotencyKey != "" {
		r.Header.Set(headerIdempotency, s.IdempotencyKey)
	}
	resp, err := c.send(r)
	if err != nil {
		return done, err
	}
	done.Replayed = resp.Header.Get(headerReplayed) != ""
	return done, readValue(resp, &done)
}
