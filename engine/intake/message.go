package intake

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Message is the target that a message of a stream holds: a flat JSON object of
// variables, as a line of a JSONL file has it, or a URL and nothing else. Its
// error is a *RowError with the message's sequence in the place of a line.
func Message(stream string, sequence uint64, data []byte) (Target, error) {
	t := Target{File: "nats:" + stream, Line: int(sequence)}
	vars, err := parseMessage(bytes.TrimSpace(data))
	if err != nil {
		return Target{}, &RowError{File: t.File, Line: t.Line, Reason: err.Error()}
	}
	t.Vars = vars
	return t, nil
}

func parseMessage(text []byte) (Vars, error) {
	switch {
	case len(text) > maxRowBytes:
		return nil, fmt.Errorf("message of more than %d bytes", maxRowBytes)
	case !utf8.Valid(text):
		return nil, errors.New("is not UTF-8")
	case bytes.HasPrefix(text, []byte("{")):
		return ParseVars(text)
	case CheckURL(string(text)) != nil:
		return nil, errors.New("is neither a JSON object nor a URL")
	}
	return Vars{{"url", string(text)}}, nil
}
