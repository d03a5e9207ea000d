package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"semel/engine/intake"
	"semel/storage"
)

// requestError is an ErrBadRequest whose text is only what is wrong.
type requestError struct{ err error }

func (e *requestError) Error() string   { return e.err.Error() }
func (e *requestError) Unwrap() []error { return []error{ErrBadRequest, e.err} }

// badRequest says what is wrong with a call.
func badRequest(format string, args ...any) error {
	return &requestError{fmt.Errorf(format, args...)}
}

// eachParameter calls set with each parameter of a query and its first value, until
// that finds one wrong.
func eachParameter(query url.Values, set func(name, value string) error) error {
	for name, values := range query {
		if err := set(name, values[0]); err != nil {
			return err
		}
	}
	return nil
}

// parseFilter reads a JobFilter from a query, and values write it.
func parseFilter(query url.Values) (f JobFilter, err error) {
	err = eachParameter(query, func(name, value string) (err error) {
		switch name {
		case "source":
			f.Source = value
		case "state":
			f.State, err = oneOf(name, storage.JobState(value), storage.JobStates)
		case "category":
			f.Category, err = oneOf(name, storage.Category(value), storage.Categories)
		case "window":
			if f.Window, err = intake.ParseWindow(value); err != nil {
				err = badRequest("%w", err)
			}
		case "limit":
			f.Limit, err = parseLimit(value)
		default:
			err = unknownParameter(name)
		}
		return err
	})
	return f, err
}

// oneOf refuses a word that would match nothing; "" is any.
func oneOf[T ~string](name string, word T, known []T) (T, error) {
	if word != "" && !slices.Contains(known, word) {
		return "", badRequest("there is no %s %q", name, word)
	}
	return word, nil
}

// parseLimit reads how many rows a list may have; 0: no limit.
func parseLimit(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, badRequest("limit is a number of at least 0 (got %q)", text)
	}
	return n, nil
}

// parseEstimate reads of how many targets an estimate is wanted; 0: of none.
func parseEstimate(query url.Values) (n int64, err error) {
	for name, values := range query {
		if name != "estimate" {
			return 0, unknownParameter(name)
		}
		if n, err = strconv.ParseInt(values[0], 10, 64); err != nil || n < 1 {
			return 0, badRequest("estimate is a number of at least 1 (got %q)", values[0])
		}
	}
	return n, nil
}

func unknownParameter(name string) error {
	return badRequest("unknown parameter %q", name)
}

// selection is the job of the path, with what the query says, or what the body
// selects.
func selection(w *response, r *http.Request) (s Selection, err error) {
	if id := r.PathValue("id"); id != "" {
		s.Refs = []string{id}
		for name, values := range r.URL.Query() {
			if name != "recollect" {
				return s, unknownParameter(name)
			}
			if s.Recollect, err = strconv.ParseBool(values[0]); err != nil {
				return s, badRequest("recollect is true or false (got %q)", values[0])
			}
		}
		return s, nil
	}
	if err := readBody(w, r, &s); err != nil {
		return s, err
	}
	if (len(s.Refs) == 0) == (s.Source == "") || len(s.Refs) > 0 && (s.Category != "" || !s.To.IsZero()) || s.From.IsZero() != s.To.IsZero() {
		return s, badRequest("name either refs, or a source, with a category and with from and to if you like")
	}
	_, err = oneOf("category", s.Category, storage.Categories)
	return s, err
}

// Errors of a body.
var (
	errMediaType = errors.New("wrong media type")
	errTooLarge  = errors.New("too large")
	errSlow      = errors.New("too slow")
)

// readBody reads one JSON value of bounded size, in bounded time.
func readBody(w *response, r *http.Request, v any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != jsonType {
		return fmt.Errorf("%w: a body comes with Content-Type: %s (got %q)", errMediaType, jsonType, r.Header.Get("Content-Type"))
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // a connection without deadlines does without
	in := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	in.DisallowUnknownFields()
	if err := in.Decode(v); err != nil {
		return bodyError(err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return badRequest("the body is not one JSON object")
	}
	// A deadline that stays would end a long answer.
	_ = control.SetReadDeadline(time.Time{})
	return nil
}

// bodyError says what is wrong with a body, and where.
func bodyError(err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return fmt.Errorf("reading the body: %w: it may have %d bytes", errTooLarge, maxBody)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("reading the body: %w: it may take %s", errSlow, bodyTime)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return badRequest("reading the body, byte %d: %w", syntax.Offset, err)
	}
	return badRequest("reading the body: %w", err)
}
