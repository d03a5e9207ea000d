package fetch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

const (
	// maxEncodings bounds stacked content encodings: more are an attack.
	maxEncodings = 3
	// zstdWindow is the largest window that RFC 9659 lets an encoder use here.
	zstdWindow = 8 << 20
	// readAhead is what of a body may have been read, and counted, with the
	// headers: a TLS record and net/http's buffer.
	readAhead = 20 << 10
	// usualPage is allocated for a body of unknown length: most fit.
	usualPage = 32 << 10
	// firstBuffer bounds what is allocated on the word of a Content-Length.
	firstBuffer = 1 << 20
)

// receive reads the body and makes the page.
func (a *attempt) receive(req *http.Request, resp *http.Response) (*Page, error) {
	p := &Page{
		Status:         resp.StatusCode,
		Reason:         shorten(reason(resp)),
		Header:         resp.Header,
		RequestURL:     a.req.URL,
		FinalURL:       req.URL.String(),
		ContentType:    mediaType(resp.Header.Get("Content-Type")),
		CloseDelimited: resp.ContentLength < 0 && len(resp.TransferEncoding) == 0,
	}
	// What follows a 101 is no body but the connection, which outlives the
	// request's context: reading it could last for ever.
	if req.Method == http.MethodHead || resp.StatusCode == http.StatusSwitchingProtocols {
		p.CloseDelimited = false
		return p, nil
	}
	if a.req.Into != nil && resp.StatusCode == http.StatusOK {
		if err := a.readBody(resp, a.req.MaxInto, a.handOn); err != nil {
			return nil, err
		}
		return p, nil
	}
	body, err := a.wholeBody(resp)
	if err != nil {
		return nil, err
	}
	p.Body, p.Charset = toUTF8(body, resp.Header.Get("Content-Type"))
	return p, nil
}

// wholeBody reads a body into memory.
func (a *attempt) wholeBody(resp *http.Response) (body []byte, err error) {
	err = a.readBody(resp, a.req.MaxBody, func(r io.Reader) (int64, error) {
		body, err = a.readAll(r, resp.ContentLength)
		return int64(len(body)), err
	})
	if a.req.cutBody && int64(len(body)) > a.req.MaxBody {
		body = body[:a.req.MaxBody]
	}
	return body, err
}

// handOn reads a body to where the request wants it.
func (a *attempt) handOn(r io.Reader) (int64, error) {
	into := &intoWriter{inner: a.req.Into}
	n, err := io.Copy(into, r)
	if into.err != nil {
		err = fmt.Errorf("%w: %w", errInto, into.err)
	}
	return n, err
}

// errInto: whoever takes the body failed, not the site.
var errInto = errors.New("handing on the body")

// intoWriter keeps the writer's own error apart from the body's.
type intoWriter struct {
	inner io.Writer
	err   error
}

func (w *intoWriter) Write(p []byte) (n int, err error) {
	n, w.err = w.inner.Write(p)
	return n, w.err
}

// mediaType is a Content-Type without its parameters, also where they are
// malformed.
func mediaType(contentType string) string {
	if t, _, err := mime.ParseMediaType(contentType); err == nil {
		return t
	}
	t, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// readBody decompresses and bounds the body for read, which gives how much it has
// read. One that is cut at the limit is one byte too long for it.
func (a *attempt) readBody(resp *http.Response, limit int64, read func(io.Reader) (int64, error)) error {
	if limit <= 0 {
		limit = math.MaxInt64 - 1
	}
	if resp.ContentLength > limit && !a.req.cutBody {
		return fmt.Errorf("%w: %d bytes announced, %d allowed", ErrTooLarge, resp.ContentLength, limit)
	}
	if left := a.meter.left(); left >= 0 && resp.ContentLength > left+readAhead {
		return fmt.Errorf("%w: %d bytes announced, %d left", ErrMaxBytes, resp.ContentLength, left)
	}
	wire := &wireReader{inner: resp.Body, meter: a.meter}
	decoded, closeAll, err := decode(wire, resp.Header.Values("Content-Encoding"))
	if err != nil {
		return wire.blame(err)
	}
	defer closeAll()
	n, err := read(io.LimitReader(decoded, limit+1))
	switch {
	case n > limit && a.req.cutBody:
		return nil
	case n > limit:
		return fmt.Errorf("%w: over %d bytes", ErrTooLarge, limit)
	case err == nil:
		err = wire.finish()
	}
	return wire.blame(err)
}

// readAll reads to the end, its buffer growing only as far as the share does.
func (a *attempt) readAll(r io.Reader, announced int64) ([]byte, error) {
	size := max(usualPage, min(announced+bytes.MinRead, firstBuffer))
	var body []byte
	for {
		if len(body) == cap(body) {
			if err := a.req.Share.grow(a.ctx, size, a.meter.touch); err != nil {
				return body, err
			}
			body = append(make([]byte, 0, size), body...)
			size *= 2
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return body, err
		}
	}
}

// wireReader is the body as it comes. It keeps its own error, which a
// decompressor above would turn into one of the format.
type wireReader struct {
	inner io.Reader
	meter *meter
	err   error // other than io.EOF
}

func (r *wireReader) Read(p []byte) (int, error) {
	n, err := r.inner.Read(p)
	if n > 0 {
		r.meter.touch()
	}
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// finish reads what a decompressor left: the end of the chunks, without which
// the body is cut and the connection lost.
func (r *wireReader) finish() error {
	_, err := io.CopyN(io.Discard, r, drainLimit)
	if err == io.EOF {
		return nil
	}
	return err
}

// blame sorts a read error: the wire's own comes first, a compressed stream
// that ends early is truncated as well, all else is the format's.
func (r *wireReader) blame(err error) error {
	switch {
	case r.err != nil:
		return fmt.Errorf("%w: %w", ErrTruncated, r.err)
	case err == nil, errors.Is(err, ErrEncoding), errors.Is(err, errNoShare), errors.Is(err, errInto):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %w", ErrTruncated, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("%w: %w", ErrEncoding, err)
}

// decode undoes the content encodings, the last applied first. An empty body
// is empty under any encoding.
func decode(wire io.Reader, headers []string) (decoded io.Reader, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range closers {
			c()
		}
	}
	encodings := contentEncodings(headers)
	if len(encodings) == 0 {
		return wire, closeAll, nil
	}
	if len(encodings) > maxEncodings {
		return nil, closeAll, fmt.Errorf("%w: %d of them stacked", ErrEncoding, len(encodings))
	}
	buffered := bufio.NewReader(wire)
	if _, err := buffered.Peek(1); err == io.EOF {
		return buffered, closeAll, nil
	}
	decoded = buffered
	for i := len(encodings) - 1; i >= 0; i-- {
		d, closer, err := newDecoder(decoded, encodings[i])
		if err != nil {
			closeAll()
			return nil, func() {}, err
		}
		decoded, closers = d, append(closers, closer)
	}
	return decoded, closeAll, nil
}

// contentEncodings are the codings in the order they were applied.
func contentEncodings(headers []string) []string {
	var all []string
	for _, name := range strings.Split(strings.Join(headers, ","), ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if name != "" && name != "identity" {
			all = append(all, name)
		}
	}
	return all
}

func newDecoder(r io.Reader, encoding string) (io.Reader, func(), error) {
	none := func() {}
	switch encoding {
	case "gzip", "x-gzip":
		d, err := gzip.NewReader(r)
		return d, none, err
	case "deflate":
		d, err := newInflater(r)
		return d, none, err
	case "br":
		return brotli.NewReader(r), none, nil
	case "zstd":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, none, err
		}
		return d, d.Close, nil
	}
	return nil, none, fmt.Errorf("%w: %q is unknown", ErrEncoding, shorten(encoding))
}

// newInflater reads deflate as the standard has it, in a zlib wrapper, and as
// some servers send it, without.
func newInflater(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	head, err := b.Peek(2)
	if err != nil {
		return nil, err
	}
	wrapped := head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0
	if wrapped {
		return zlib.NewReader(b)
	}
	return flate.NewReader(b), nil
}
