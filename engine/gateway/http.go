package gateway

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// serveHTTP answers requests until the client leaves or a tunnel ends.
func (g *Gateway) serveHTTP(c *clientConn, r *bufio.Reader) {
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		username, password := basicLogin(req.Header.Get("Proxy-Authorization"))
		seen, ok := g.admit(c, req.Method, req.RequestURI, username, password)
		switch {
		case !ok:
			ok = g.answer(c, req, refusal())
		case req.Method == http.MethodConnect:
			g.connect(c, r, req, seen)
			return
		default:
			ok = g.forward(c, r, req, seen)
		}
		if !ok {
			return
		}
	}
}

// basicLogin reads a Basic credential; both parts are "" without one.
func basicLogin(header string) (username, password string) {
	encoded, ok := strings.CutPrefix(header, "Basic ")
	if !ok {
		return "", ""
	}
	plain, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", ""
	}
	username, password, _ = strings.Cut(string(plain), ":")
	return username, password
}

func refusal() Fault {
	return Fault{
		Kind:   Status,
		Status: http.StatusProxyAuthRequired,
		Header: http.Header{"Proxy-Authenticate": {`Basic realm="gateway"`}},
	}
}

// answer is the gateway's own. It reports whether the connection can go on.
func (g *Gateway) answer(c *clientConn, req *http.Request, f Fault) bool {
	if req.Body != nil {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return false
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "HTTP/1.1 %d %s\r\n", f.Status, http.StatusText(f.Status))
	for name, values := range f.Header { // Header.Write leaves out names that are none, which some gateways send
		for _, value := range values {
			fmt.Fprintf(&text, "%s: %s\r\n", name, value)
		}
	}
	fmt.Fprintf(&text, "Content-Length: %d\r\n\r\n%s", len(f.Body), f.Body)
	_, err := io.WriteString(c, text.String())
	return err == nil
}

// fail plays a fault that leaves the site out of it. done is false if the
// request should go on to the site.
func (g *Gateway) fail(c *clientConn, r *bufio.Reader, req *http.Request, f Fault) (done, goOn bool) {
	switch f.Kind {
	case Status, DeadTunnel:
		return true, g.answer(c, req, f)
	case Drop:
		return true, false
	case Cut:
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		return true, false
	case Hang:
		gone(r)
		return true, false
	}
	return false, true
}

// forward passes a plain request on. It reports whether the connection can go
// on.
func (g *Gateway) forward(c *clientConn, r *bufio.Reader, req *http.Request, seen Request) bool {
	f := g.fault(seen)
	if done, goOn := g.fail(c, r, req, f); done {
		return goOn
	}
	out := req.WithContext(g.ctx)
	out.RequestURI = ""
	for _, name := range []string{"Proxy-Authorization", "Proxy-Connection", "Connection"} {
		out.Header.Del(name)
	}
	if g.opts.ExitHeader != "" {
		out.Header.Set(g.opts.ExitHeader, seen.Exit)
	}
	resp, err := g.upstream.RoundTrip(out)
	if err != nil && g.ctx.Err() != nil { // Close cut it short: that is no answer of a gateway
		return false
	}
	if err != nil {
		return g.answer(c, req, Fault{Status: http.StatusBadGateway})
	}
	defer resp.Body.Close()
	if g.opts.ExitHeader != "" {
		resp.Header.Set(g.opts.ExitHeader, seen.Exit)
	}
	resp.Body = g.faulty(f, resp.Body, resp.Body, func() { gone(r) })
	if err := resp.Write(c); err != nil {
		if errors.Is(err, errReset) {
			c.reset()
		}
		return false
	}
	return !resp.Close && !req.Close
}

func (g *Gateway) faulty(f Fault, r io.Reader, closer io.Closer, stall func()) io.ReadCloser {
	return &faultyBody{Reader: r, Closer: closer, fault: f, pause: g.pause, stall: stall}
}

// connect makes a tunnel.
func (g *Gateway) connect(c *clientConn, r *bufio.Reader, req *http.Request, seen Request) {
	f := g.fault(seen)
	if done, _ := g.fail(c, r, req, f); done {
		return
	}
	site, err := g.opts.Dial(g.ctx, "tcp", req.Host)
	if err != nil && g.ctx.Err() != nil {
		return
	}
	if err != nil {
		g.answer(c, req, Fault{Status: http.StatusBadGateway})
		return
	}
	established := "HTTP/1.1 200 Connection established\r\n"
	if g.opts.ExitHeader != "" {
		established += g.opts.ExitHeader + ": " + seen.Exit + "\r\n"
	}
	if _, err := io.WriteString(c, established+"\r\n"); err != nil {
		site.Close()
		return
	}
	g.tunnel(c, r, site, f, seen)
}

// tunnel copies both ways until one side ends.
func (g *Gateway) tunnel(c *clientConn, r *bufio.Reader, site net.Conn, f Fault, seen Request) {
	if !g.track(site, false) {
		site.Close()
		return
	}
	defer g.untrack(site)
	g.mu.Lock()
	g.stats.Tunnels++
	c.seen.Target = seen.URL
	g.mu.Unlock()

	clientGone := make(chan struct{})
	g.running.Go(func() {
		defer close(clientGone)
		_, _ = io.Copy(site, r)
		halfClose(site)
	})
	down := g.faulty(f, site, site, func() { <-clientGone })
	if _, err := io.Copy(c, down); errors.Is(err, errReset) {
		c.reset()
		return
	}
	halfClose(c.Conn)
	select { // a client that keeps its half open after the site's end
	case <-clientGone:
	case <-time.After(time.Second):
	case <-g.ctx.Done():
	}
}

// halfClose passes on the end of one direction.
func halfClose(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
		return
	}
	c.Close()
}
