package fetch

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// encode compresses by a content coding; "raw deflate" is deflate without its
// wrapper.
func encode(t *testing.T, coding string, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch coding {
	case "gzip", "x-gzip":
		w = gzip.NewWriter(&out)
	case "deflate":
		w = zlib.NewWriter(&out)
	case "raw deflate":
		w, err = flate.NewWriter(&out, 6)
	case "br":
		w = brotli.NewWriter(&out)
	case "zstd":
		w, err = zstd.NewWriter(&out)
	default:
		return plain
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// varied is text that does not compress to nothing.
func varied(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "<li>%d %x</li>\n", i, i*i*7919)
	}
	return b.Bytes()[:n]
}

func TestBodyIsDecoded(t *testing.T) {
	plain := varied(50_000)
	tests := []struct {
		name    string
		headers []string
		codings []string // as applied
	}{
		{"none", nil, nil},
		{"identity", []string{"identity"}, nil},
		{"gzip", []string{"gzip"}, []string{"gzip"}},
		{"x-gzip", []string{"X-GZip"}, []string{"gzip"}},
		{"deflate", []string{"deflate"}, []string{"deflate"}},
		{"deflate without wrapper", []string{"deflate"}, []string{"raw deflate"}},
		{"brotli", []string{"br"}, []string{"br"}},
		{"zstd", []string{"zstd"}, []string{"zstd"}},
		{"stacked", []string{"gzip, br"}, []string{"gzip", "br"}},
		{"stacked in two headers", []string{"deflate", "zstd"}, []string{"deflate", "zstd"}},
	}
	for _, test := range tests {
		t.Run(test.name, keeping(func(t *testing.T) {
			body := plain
			for _, coding := range test.codings {
				body = encode(t, coding, body)
			}
			site := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Encoding"] = test.headers
				w.Header().Set("Content-Type", "text/html")
				if r.URL.Path == "/sized" {
					w.Header().Set("Content-Length", fmt.Sprint(len(body)))
				}
				_, _ = w.Write(body)
			})
			s := open(t, Options{})
			for _, path := range []string{"/sized", "/chunked"} {
				page, trace, err := get(t, s, site.URL+path)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(page.Body, plain) {
					t.Errorf("%s: got %d bytes, want %d", path, len(page.Body), len(plain))
				}
				if len(test.codings) > 0 && trace.BytesDown > int64(len(plain)) {
					t.Errorf("%s: %d bytes on the wire", path, trace.BytesDown)
				}
				if path == "/chunked" && !trace.Reused {
					t.Error("the connection was not kept")
				}
			}
		}))
	}
}

func TestEmptyBodyNeedsNoDecoding(t *testing.T) {
	for _, coding := range []string{"gzip", "deflate", "br", "zstd"} {
		site := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Encoding", coding) })
		page, _, err := get(t, open(t, Options{}), site.URL)
		if err != nil || len(page.Body) != 0 {
			t.Errorf("%s: got %v, %v", coding, page, err)
		}
	}
}

func TestBadEncodingIsNamed(t *testing.T) {
	tests := []struct{ coding, body string }{
		{"gzip", "<html>not gzip at all</html>"},
		{"deflate", "\xff\xff\xff\xff"},
		{"br", "<html>not brotli</html>\xff\xff\xff"},
		{"zstd", "<html>not zstd</html>"},
		{"compress", "x"},
		{"sdch", "x"},
		{"gzip, gzip, gzip, gzip", "x"},
	}
	for _, test := range tests {
		t.Run(test.coding, func(t *testing.T) {
			site := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", test.coding)
				fmt.Fprint(w, test.body)
			})
			_, trace, err := get(t, open(t, Options{}), site.URL)
			wantError(t, err, ErrEncoding)
			if trace.Phase != PhaseBody || trace.Status != 200 {
				t.Errorf("got %+v", trace)
			}
		})
	}
}

func TestCorruptCompressionIsAnError(t *testing.T) {
	body := encode(t, "gzip", varied(10_000))
	body[len(body)-6] ^= 0xff // the checksum
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(body)
	})
	_, _, err := get(t, open(t, Options{}), site.URL)
	wantError(t, err, ErrEncoding)
}

func TestTruncationIsSeen(t *testing.T) {
	whole := varied(20_000)
	tests := []struct {
		name   string
		answer string
	}{
		{"length", "Content-Length: 1000\r\n\r\n" + string(whole[:400])},
		{"chunk", "Transfer-Encoding: chunked\r\n\r\n1000\r\n" + string(whole[:100])},
		{"no last chunk", "Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n"},
		{"garbage for a chunk", "Transfer-Encoding: chunked\r\n\r\nzz\r\nabcd\r\n"},
	}
	for _, coding := range []string{"gzip", "deflate", "raw deflate", "br", "zstd"} {
		full := encode(t, coding, whole)
		cut := full[:len(full)/2]
		name := strings.TrimPrefix(coding, "raw ")
		tests = append(tests,
			struct{ name, answer string }{coding + " with its own length", fmt.Sprintf("Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s", name, len(cut), cut)},
			struct{ name, answer string }{coding + " until close", fmt.Sprintf("Content-Encoding: %s\r\n\r\n%s", name, cut)},
			struct{ name, answer string }{coding + " whole, no last chunk", fmt.Sprintf("Content-Encoding: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", name, len(full), full)},
			struct{ name, answer string }{coding + " and length", fmt.Sprintf("Content-Encoding: %s\r\nContent-Length: 99999\r\n\r\n%s", name, cut)})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			site := serveRaw(t, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"+test.answer)
			_, trace, err := get(t, open(t, Options{}), site)
			wantError(t, err, ErrTruncated)
			if trace.Phase != PhaseBody || trace.Status != 200 {
				t.Errorf("got %+v", trace)
			}
		})
	}
}

func TestResetInBodyIsTruncation(t *testing.T) {
	site := serveConn(t, func(c net.Conn) {
		_, _ = http.ReadRequest(newReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n<html>begun")
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	_, _, err := get(t, open(t, Options{}), site)
	wantError(t, err, ErrTruncated)
}

func TestCloseDelimitedBodyIsNoted(t *testing.T) {
	site := serveRaw(t, "HTTP/1.1 200 OK\r\n\r\n<html>perhaps all")
	page, _, err := get(t, open(t, Options{}), site)
	if err != nil || !page.CloseDelimited || string(page.Body) != "<html>perhaps all" {
		t.Fatalf("got %+v, %v", page, err)
	}
	sized := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "x") })
	page, _, err = get(t, open(t, Options{}), sized.URL)
	if err != nil || page.CloseDelimited {
		t.Fatalf("got %+v, %v", page, err)
	}
}

// A site that changes the protocol and then says nothing more holds nobody.
func TestSwitchedProtocolIsNotRead(t *testing.T) {
	site := serveConn(t, func(c net.Conn) {
		if _, err := http.ReadRequest(newReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
			_, _ = io.Copy(io.Discard, c) // until the client closes
		}
	})
	page, _, err := get(t, open(t, Options{}), site)
	if err != nil || page.Status != http.StatusSwitchingProtocols || len(page.Body) != 0 || page.CloseDelimited {
		t.Errorf("got %+v, %v", page, err)
	}
}

func TestBodyOverItsCapIsRefused(t *testing.T) {
	plain := varied(10_000)
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		coding := strings.TrimPrefix(r.URL.Path, "/")
		if coding == "sized" {
			w.Header().Set("Content-Length", "10000")
		} else {
			w.Header().Set("Content-Encoding", coding)
		}
		_, _ = w.Write(encode(t, coding, plain))
	})
	for _, path := range []string{"/sized", "/identity", "/gzip", "/deflate", "/br", "/zstd"} {
		t.Run(path, func(t *testing.T) {
			_, _, err := do(t, open(t, Options{}), Request{URL: site.URL + path, MaxBody: 9_999})
			wantError(t, err, ErrTooLarge)
			page, _, err := do(t, open(t, Options{}), Request{URL: site.URL + path, MaxBody: 10_000})
			if err != nil || len(page.Body) != 10_000 {
				t.Errorf("at its cap: %v", err)
			}
		})
	}
}

func TestAnnouncedLengthOverCapIsNotRead(t *testing.T) {
	site := serveConn(t, func(c net.Conn) {
		_, _ = http.ReadRequest(newReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\n")
		_, _ = io.Copy(io.Discard, c) // until the client leaves
	})
	_, _, err := do(t, open(t, Options{}), Request{URL: site, MaxBody: 1000})
	wantError(t, err, ErrTooLarge)
}

func TestCompressionBombStaysFlat(t *testing.T) {
	// 200 MiB, as frames that are decoded one after the other. Brotli has no
	// frames to repeat; the cap does not depend on what would have followed.
	mebibyte := make([]byte, 1<<20)
	bombs := map[string][]byte{
		"gzip": bytes.Repeat(encode(t, "gzip", mebibyte), 200),
		"zstd": bytes.Repeat(encode(t, "zstd", mebibyte), 200),
		"br":   encode(t, "br", make([]byte, 8<<20)),
	}
	for coding, bomb := range bombs {
		t.Run(coding, func(t *testing.T) {
			site := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", coding)
				w.Header().Set("Content-Type", "application/gzip")
				_, _ = w.Write(bomb)
			})
			s := open(t, Options{})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			_, _, err := do(t, s, Request{URL: site.URL + "/sitemap.xml.gz", MaxBody: 1 << 20})
			runtime.ReadMemStats(&after)
			wantError(t, err, ErrTooLarge)
			if used := after.TotalAlloc - before.TotalAlloc; used > 24<<20 {
				t.Errorf("allocated %d MiB for a body of at most 1 MiB", used>>20)
			}
		})
	}
}
