package intake

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestBody(t *testing.T) {
	vars := Vars{{"a", "1 & 2=3+ü"}, {"b", "\"<\n\xff"}, {"empty", ""}}
	form := NewBody(FormBody)
	form.AddValue(tmpl(t, "x y"))
	form.AddText("=")
	form.AddValue(tmpl(t, "<{a}>{empty}"))
	json := NewBody(JSONBody)
	json.AddText(`{"n":1,"s":`)
	json.AddValue(tmpl(t, "{b}-{a}{b}"))
	json.AddText("}")
	for _, c := range []struct {
		body       Body
		kind, want string
		vars       []string
	}{
		{form, "application/x-www-form-urlencoded", "x+y=%3C1+%26+2%3D3%2B%C3%BC%3E", []string{"a", "empty"}},
		{json, "application/json", `{"n":1,"s":"\"<\n\ufffd-1 & 2=3+ü\"<\n\ufffd"}`, []string{"b", "a"}},
		{NewBody(FormBody), "application/x-www-form-urlencoded", "", nil},
		{Body{}, "", "", nil},
	} {
		got, err := c.body.Expand(vars)
		if err != nil || string(got) != c.want || c.body.ContentType() != c.kind || !slices.Equal(c.body.Vars(), c.vars) {
			t.Errorf("%s body %s of %v (%v), want %s", c.body.ContentType(), got, c.body.Vars(), err, c.want)
		}
		if (got == nil) != c.body.IsZero() {
			t.Errorf("%s: body %v, zero %v", c.kind, got, c.body.IsZero())
		}
	}
	if _, err := json.Expand(vars[:1]); err == nil || err.Error() != `variable "b" is missing` {
		t.Errorf("without a variable: %v", err)
	}
}

// A secret is sent as it stands, whatever it holds, and printed nowhere.
func TestBodySecret(t *testing.T) {
	const secret = `p&w={a}"ü`
	for kind, want := range map[BodyKind]string{FormBody: "p%26w%3D%7Ba%7D%22%C3%BC", JSONBody: `"p&w={a}\"ü"`} {
		body := NewBody(kind)
		body.AddSecret(func() string { return secret })
		got, err := body.Expand(Vars{{"a", "x"}})
		if err != nil || string(got) != want || body.Vars() != nil {
			t.Errorf("%s, %v, %v", got, body.Vars(), err)
		}
		if shown := fmt.Sprintf("%v %+v %#v", body, body, body); strings.Contains(shown, "p&w") {
			t.Errorf("it shows %s", shown)
		}
	}
}
