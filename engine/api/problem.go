package api

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"slices"

	"semel/engine"
	"semel/engine/intake"
	"semel/storage"
)

// problemType is what the types of problems begin with: they are names, and
// lead nowhere.
const problemType = "urn:semel:problem:"

// problem is an error as RFC 9457 has it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`

	// Where a record cannot be read, its place.
	Bucket string `json:"bucket,omitempty"`
	Key    string `json:"key,omitempty"` // hex
}

// sentinel is an error that a caller can tell apart, with its type and status.
type sentinel struct {
	name   string
	status int
	err    error
}

// sentinels: programs branch on them, so a type never changes. The first that
// fits counts; a record that cannot be read goes before all, whatever is wrong
// with it.
var sentinels = []sentinel{
	{"bad_request", http.StatusBadRequest, ErrBadRequest},
	{"no_schedule", http.StatusBadRequest, engine.ErrNoSchedule},
	{"too_many_windows", http.StatusBadRequest, intake.ErrTooManyWindows},
	{"unknown_source", http.StatusNotFound, ErrUnknownSource},
	{"unknown_sink", http.StatusNotFound, ErrUnknownSink},
	{"other_config", http.StatusConflict, ErrOtherConfig},
	{"guard", http.StatusConflict, engine.ErrGuard},
	{"not_found", http.StatusNotFound, storage.ErrNotFound},
	{"media_type", http.StatusUnsupportedMediaType, errMediaType},
	{"too_large", http.StatusRequestEntityTooLarge, errTooLarge},
	{"slow", http.StatusRequestTimeout, errSlow},
	{"in_flight", http.StatusConflict, ErrInFlight},
	{"key_reused", http.StatusUnprocessableEntity, storage.ErrKeyReused},
	{"unauthorized", http.StatusUnauthorized, errToken},
	{"misdirected", http.StatusMisdirectedRequest, errHost},
	{"cross_origin", http.StatusForbidden, errOrigin},
	{"not_held", http.StatusConflict, storage.ErrNotHeld},
	{"transition", http.StatusConflict, storage.ErrTransition},
	{"importing", http.StatusConflict, ErrImporting},
	{"cursor_moved", http.StatusConflict, storage.ErrCursorMoved},
	{"page_lost", http.StatusInternalServerError, storage.ErrPageLost},
	{"damaged", http.StatusInternalServerError, storage.ErrDamaged},
	{"full", http.StatusInsufficientStorage, storage.ErrFull},
	{"unreadable", http.StatusInternalServerError, storage.ErrUnreadable},
	{"stopped", http.StatusServiceUnavailable, storage.ErrStopped},
	{"canceled", http.StatusServiceUnavailable, context.Canceled},
	{"not_permitted", http.StatusForbidden, fs.ErrPermission},
}

const (
	typeRecord   = problemType + "record" // a record that cannot be read
	typeInternal = problemType + "internal"
)

// newProblem is the problem that tells of an error.
func newProblem(err error) problem {
	p := problem{Type: typeInternal, Status: http.StatusInternalServerError, Detail: err.Error()}
	var record *storage.RecordError
	if errors.As(err, &record) {
		p.Type, p.Bucket, p.Key = typeRecord, record.Bucket, hex.EncodeToString(record.Key)
	} else if i := slices.IndexFunc(sentinels, func(s sentinel) bool { return errors.Is(err, s.err) }); i >= 0 {
		p.Type, p.Status = problemType+sentinels[i].name, sentinels[i].status
	}
	p.Title = http.StatusText(p.Status)
	return p
}

// err is the error that a problem tells of: it has the same text, and
// errors.Is and errors.As find in it what they found there.
func (p problem) err() error {
	if p.Type == typeRecord {
		key, _ := hex.DecodeString(p.Key) // nil says as much as a wrong one
		return &remoteError{p.Detail, &storage.RecordError{Bucket: p.Bucket, Key: key, Err: errors.New(p.Detail)}}
	}
	for _, s := range sentinels {
		if p.Type == problemType+s.name {
			return &remoteError{p.Detail, s.err}
		}
	}
	return errors.New(p.Detail)
}

// remoteError is an error of the process that answered.
type remoteError struct {
	text string // all of it
	kind error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

// write answers with the problem.
func (p problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // who does not read it has gone
}
