package broker

import (
	"fmt"
	"strings"
	"testing"
)

func TestCheckURL(t *testing.T) {
	for url, want := range map[string]string{
		"nats://127.0.0.1:4222":          "",
		"tls://a.example.com, tls://b:1": "",
		"nats://[::1]:4222":              "",
		"":                               "must start with nats:// or tls://",
		"localhost:4222":                 "must start with nats:// or tls://",
		"nats://a,http://b":              "must start with nats:// or tls://",
		"nats://:4222":                   "has no host",
		"nats://hunter2@a":               "holds a login: set username and password, token or credentials",
		"nats://a:hunter2":               "is not a URL",
	} {
		got := ""
		if err := CheckURL(url); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("CheckURL(%q) = %q, want %q", url, got, want)
		}
	}
}

func TestServerShowsNoLogin(t *testing.T) {
	s := NewServer(Login{Username: "hunter1", Password: "hunter2", Token: "hunter3", Credentials: "hunter4"})
	if got := s.String(); got != "nats://127.0.0.1:4222" {
		t.Errorf("the server on this host is %s", got)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, s.At("nats://there")); strings.Contains(text, "hunter") {
			t.Errorf("%s shows %s", verb, text)
		}
	}
}
