package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// ParseVars reads a target's variables as a line of a JSONL file has them: a flat
// object, its keys in order. Numbers keep their text; null is the same as no key.
func ParseVars(line []byte) (Vars, error) {
	if len(line) == 0 {
		return nil, nil
	}
	in := json.NewDecoder(bytes.NewReader(line))
	in.UseNumber()
	if token, err := in.Token(); err != nil || token != json.Delim('{') {
		return nil, errors.New("is not a JSON object")
	}
	vars := Vars{}
	seen := map[string]bool{}
	for in.More() {
		name, value, err := member(in)
		switch {
		case err != nil:
			return nil, err
		case seen[name]:
			return nil, fmt.Errorf("key %q is there twice", name)
		}
		seen[name] = true
		if value != nil {
			vars = append(vars, Var{name, *value})
		}
	}
	if _, err := in.Token(); err != nil {
		return nil, errors.New("is not a whole JSON object")
	}
	if _, err := in.Token(); err != io.EOF {
		return nil, errors.New("has more than one JSON object")
	}
	return vars, nil
}

// member reads one key and its value; nil stands for null.
func member(in *json.Decoder) (string, *string, error) {
	key, err := in.Token()
	if err != nil {
		return "", nil, errors.New("is not a whole JSON object")
	}
	name := key.(string) // Decoder takes nothing else for a key
	token, err := in.Token()
	if err != nil {
		return "", nil, errors.New("is not a whole JSON object")
	}
	var text string
	switch v := token.(type) {
	case nil:
		return name, nil, nil
	case string:
		text = v
	case json.Number:
		text = v.String()
	case bool:
		text = strconv.FormatBool(v)
	default:
		return "", nil, fmt.Errorf("value of %q is nested: only text, numbers and true or false make variables", name)
	}
	return name, &text, nil
}
