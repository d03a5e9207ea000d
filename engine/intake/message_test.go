package intake

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMessage(t *testing.T) {
	tests := []struct {
		name, text string
		want       Vars
		err        string
	}{
		{name: "variables", text: ` {"id":7,"sku":"a b","none":null} `, want: Vars{{"id", "7"}, {"sku", "a b"}}},
		{name: "URL", text: "https://example.com/p/7\n", want: Vars{{"url", "https://example.com/p/7"}}},
		{name: "empty", text: " ", err: "nats:TODO:12: is neither a JSON object nor a URL"},
		{name: "list", text: `["https://example.com/"]`, err: "nats:TODO:12: is neither a JSON object nor a URL"},
		{name: "login", text: "https://user:hunter2@example.com/", err: "nats:TODO:12: is neither a JSON object nor a URL"},
		{name: "two", text: `{"id":1}{"id":2}`, err: "nats:TODO:12: has more than one JSON object"},
		{name: "not UTF-8", text: "{\"id\":\"\xff\"}", err: "nats:TODO:12: is not UTF-8"},
		{name: "too long", text: `{"id":"` + strings.Repeat("x", maxRowBytes) + `"}`, err: "nats:TODO:12: message of more than 1048576 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Message("TODO", 12, []byte(test.text))
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Errorf("error %v, want %s", err, test.err)
				}
				return
			}
			if diff := cmp.Diff(Target{Vars: test.want, File: "nats:TODO", Line: 12}, got); err != nil || diff != "" {
				t.Errorf("error %v, difference %s", err, diff)
			}
		})
	}
}
