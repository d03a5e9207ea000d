package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
)

// endpoint answers one path. An error before it has answered anything becomes
// a problem; one after that becomes a trailer, or cuts the connection.
type endpoint func(w *response, r *http.Request) error

// ServeHTTP implements http.Handler.
func (e endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply := &response{ResponseWriter: w}
	if err := e.call(reply, r); err != nil {
		reply.fail(r, err)
	}
}

// call turns a panic into an error: in a command's own process net/http's way
// would hide it. Its stack goes to the server's log, and to no caller.
func (e endpoint) call(w *response, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
				s.ErrorLog.Printf("panic answering %s %s: %v\n%s", r.Method, r.URL.Path, p, debug.Stack())
			}
		}
	}()
	return e(w, r)
}

// response knows whether it has begun.
type response struct {
	http.ResponseWriter
	begun bool
}

// begin sends the headers with a status, unless they have been.
func (w *response) begin(status int) {
	if !w.begun {
		w.begun = true
		w.WriteHeader(status)
	}
}

func (w *response) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) fail(r *http.Request, err error) {
	p := newProblem(err)
	if !w.begun {
		w.Header().Del("Trailer")
		p.write(w.ResponseWriter)
		return
	}
	text, err := trailerText(p)
	if err != nil || !slices.Contains(r.Header.Values("TE"), "trailers") {
		panic(http.ErrAbortHandler) // nothing else tells every client that the list is short
	}
	w.Header().Set(trailerProblem, text)
}

// jsonType is the media type of one value.
const jsonType = "application/json"

// answer sends one value.
func answer(w *response, status int, v any) error {
	w.Header().Set("Content-Type", jsonType)
	w.begin(status)
	return json.NewEncoder(w).Encode(v)
}

// Trailers of a list.
const (
	trailerProblem = "Semel-Problem" // why the list ends here, as problem+json
	trailerResult  = "Semel-Result"  // what describes the whole list, as JSON; only a whole list has it
)

// trailerText is JSON that can stand in a header: without the one control
// character that encoding/json leaves as it is.
func trailerText(v any) (string, error) {
	text, err := json.Marshal(v)
	return strings.ReplaceAll(string(text), "\x7f", `\u007f`), err
}

// lines sends a list as JSON Lines while write writes it, and then its result.
func lines(w *response, write func(out *bufio.Writer) (result any, err error)) error {
	return stream(w, "application/jsonl", write)
}

// stream is lines of another media type.
func stream(w *response, contentType string, write func(out *bufio.Writer) (result any, err error)) error {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Trailer", trailerProblem+", "+trailerResult)
	out := bufio.NewWriterSize(w, blockBytes)
	result, err := write(out)
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	if err != nil {
		return err
	}
	text, err := trailerText(result)
	if err != nil {
		return err
	}
	w.begin(http.StatusOK)
	w.Header().Set(trailerResult, text)
	return nil
}

// counted describes a list of which there is nothing to say but its length.
type counted struct {
	Rows int `json:"rows"`
}

// listLines sends what list calls its function with.
func listLines[T any](w *response, list func(func(T) error) error) error {
	return lines(w, func(out *bufio.Writer) (any, error) {
		var n counted
		enc := json.NewEncoder(out)
		err := list(func(row T) error {
			n.Rows++
			return enc.Encode(row)
		})
		return n, err
	})
}
