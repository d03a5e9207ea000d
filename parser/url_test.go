package parser

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

func TestNormalizeURL(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{"http://example.com", "http://example.com/"},
		{"HTTPS://Example.COM:443/A", "https://example.com/A"},
		{"http://example.com:80?q", "http://example.com/?q"},
		{"http://example.com:0080/", "http://example.com/"},
		{"https://example.com:80/", "https://example.com:80/"},
		{"http://example.com:/", "http://example.com/"},
		{"http://example.com/a#top", "http://example.com/a"},
		{"http://example.com/a/./b/../c", "http://example.com/a/c"},
		{"http://example.com/../..", "http://example.com/"},
		{"http://example.com/a/..", "http://example.com/"},
		{"http://example.com/a/b/.", "http://example.com/a/b/"},
		{"http://example.com/a/%2e%2E/b", "http://example.com/b"},
		{"http://example.com/a//b", "http://example.com/a//b"},
		{"http://example.com/%7euser/%c3%a9%2f", "http://example.com/~user/%C3%A9%2F"},
		{"http://example.com/é x", "http://example.com/%C3%A9%20x"},
		{"http://example.com/100%", "http://example.com/100%25"},
		{"http://example.com/?b=2&a=1&b=%31", "http://example.com/?b=2&a=1&b=1"},
		{"http://example.com/?", "http://example.com/?"},
		{"http://example.com/?q=a+b c", "http://example.com/?q=a+b%20c"},
		{"http://münchen.example/", "http://xn--mnchen-3ya.example/"},
		{"http://MÜNCHEN.example/", "http://xn--mnchen-3ya.example/"},
		{"http://a_b.example.com/", "http://a_b.example.com/"},
		{"http://[2001:DB8:0::1]:8080/", "http://[2001:db8::1]:8080/"},
		{"http://127.0.0.1/", "http://127.0.0.1/"},
		{"  http://example.com/\n", "http://example.com/"},
		{"", "!normalizing a URL: must begin with http:// or https://"},
		{"/a", "!normalizing a URL: must begin with http"},
		{"ftp://example.com/", "!normalizing a URL: must begin with http"},
		{"mailto:a@example.com", "!normalizing a URL: must begin with http"},
		{"http:example.com", "!normalizing a URL: the host is empty or not a name"},
		{"http://", "!normalizing a URL: the host is empty or not a name"},
		{"http://./", "!normalizing a URL: the host is empty or not a name"},
		{"http://user:secret@example.com/", "!normalizing a URL: must not hold a user name or password"},
		{"http://example.com:99999/", "!normalizing a URL: the port must be at most 65535, not 99999"},
		{"http://example.com:port/", "!normalizing a URL: invalid port"},
		{"http://[fe80::1%25eth0]/", "!normalizing a URL: the host must not have a zone"},
		{"http://a\xffb/", "!normalizing a URL: the host is not UTF-8"},
		{"http://xn--a/", "!normalizing a URL: the host is not a name"},
	} {
		got, err := NormalizeURL(c.raw)
		check(t, c.raw, got, err, c.want)
	}
}

func TestNormalizeURLHidesPassword(t *testing.T) {
	for _, raw := range []string{"http://user:secret@example.com:port/", "http://user:secret@example.com/", "ftp://user:secret@x/"} {
		if _, err := NormalizeURL(raw); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("the error of %q is %v", raw, err)
		}
	}
}

// TestNormalizeURLLongHost: no name is longer than DNS can ask for, and finding
// that out costs no more for a longer one.
func TestNormalizeURLLongHost(t *testing.T) {
	label := strings.Repeat("a", 49) + "."
	longest := strings.Repeat(label, 5) + "com" // 253
	for _, c := range []struct {
		host string
		fine bool
	}{
		{longest, true}, {longest + ".", true}, {"a" + longest, false},
		{strings.Repeat("ü", 200), true}, {strings.Repeat("ü", 300), false}, {strings.Repeat("漢", 1_000_000), false},
	} {
		_, err := NormalizeURL("http://" + c.host + "/")
		if c.fine && err != nil || !c.fine && !errors.Is(err, errLongHost) {
			t.Errorf("%d bytes of %.10s: got %v", len(c.host), c.host, err)
		}
	}
}

func TestResolve(t *testing.T) {
	base, err := url.Parse("https://shop.example/a/b?q=1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ link, want string }{
		{"c", "https://shop.example/a/c"},
		{"/c?d=1&amp=2#e", "https://shop.example/c?d=1&amp=2#e"},
		{"?q=2", "https://shop.example/a/b?q=2"},
		{"#e", "https://shop.example/a/b?q=1#e"},
		{"//CDN.example/x y.jpg", "https://cdn.example/x%20y.jpg"},
		{"http://other.example", "http://other.example/"},
		{"../../../c", "https://shop.example/c"},
		{"/a\n\tb", "https://shop.example/ab"},
		{"/100%", "https://shop.example/100%25"},
		{"https://münchen.example/ü", "https://xn--mnchen-3ya.example/%C3%BC"},
		{"mailto:a@example.com", "!is not an http or https URL"},
		{"javascript:void(0)", "!is not an http or https URL"},
		{"data:image/gif;base64,R0", "!is not an http or https URL"},
		{"https://", "!is not a URL: the host is empty"},
		{"http://[::1", "!is not a URL: missing ']' in host"},
	} {
		u, err := resolve(base, c.link)
		got := ""
		if err == nil {
			got = u.String()
		}
		check(t, c.link, got, err, c.want)
	}
}

// FuzzNormalizeURL holds that normalising twice changes nothing more.
func FuzzNormalizeURL(f *testing.F) {
	for _, s := range []string{
		"http://example.com", "HTTPS://Ex.com:443/%7e/../%2e?a=%zz#f", "http://[::1]:80/", "http://münchen.example/ä ö",
		"http://a/?%", "http://a/%25%32%35", "http://a./.%2e/", "http://xn--/", "http://1.2.3/", "http://a/;=%3b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		once, err := NormalizeURL(raw)
		if err != nil {
			return
		}
		twice, err := NormalizeURL(once)
		if err != nil || twice != once {
			t.Fatalf("%q gives %q, and that gives %q, %v", raw, once, twice, err)
		}
	})
}
