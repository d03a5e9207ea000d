package gateway

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strconv"
)

// SOCKS5, RFC 1928, and its login, RFC 1929.
const (
	socksVersion   = 5
	socksNoLogin   = 0
	socksPassword  = 2
	socksNoMethod  = 0xff
	socksLogin     = 1 // version of RFC 1929
	socksConnect   = 1
	socksIPv4      = 1
	socksName      = 3
	socksIPv6      = 4
	socksFailure   = 1
	socksRefused   = 5
	socksNoCommand = 7
)

// serveSOCKS makes one tunnel.
func (g *Gateway) serveSOCKS(c *clientConn, r *bufio.Reader) {
	username, password, ok := g.greetSOCKS(c, r)
	if !ok {
		return
	}
	target, ok := readTarget(c, r)
	if !ok {
		return
	}
	seen, ok := g.admit(c, "SOCKS", target, username, password)
	if !ok {
		return
	}
	f := g.fault(seen)
	switch f.Kind {
	case Status, DeadTunnel:
		reply := f.Status
		if reply > 255 || reply == 0 {
			reply = socksFailure
		}
		replySOCKS(c, byte(reply))
		return
	case Drop:
		return
	case Cut:
		_, _ = c.Write([]byte{socksVersion})
		return
	case Hang:
		gone(r)
		return
	}
	site, err := g.opts.Dial(g.ctx, "tcp", target)
	if err != nil {
		replySOCKS(c, socksRefused)
		return
	}
	if !replySOCKS(c, 0) {
		site.Close()
		return
	}
	g.tunnel(c, r, site, f, seen)
}

// greetSOCKS agrees on a method and reads the login. A wrong login is counted
// and refused here, before the target is known, as the protocol has it.
func (g *Gateway) greetSOCKS(c *clientConn, r *bufio.Reader) (username, password string, ok bool) {
	head, ok := readBytes(r, 2)
	if !ok {
		return "", "", false
	}
	methods, ok := readBytes(r, int(head[1]))
	if !ok {
		return "", "", false
	}
	want := byte(socksNoLogin)
	if g.needsLogin() {
		want = socksPassword
	}
	if !slices.Contains(methods, want) {
		g.refuseSOCKS()
		_, _ = c.Write([]byte{socksVersion, socksNoMethod})
		return "", "", false
	}
	if _, err := c.Write([]byte{socksVersion, want}); err != nil {
		return "", "", false
	}
	if want == socksNoLogin {
		return "", "", true
	}
	return g.loginSOCKS(c, r)
}

func (g *Gateway) loginSOCKS(c *clientConn, r *bufio.Reader) (username, password string, ok bool) {
	if _, ok = readBytes(r, 1); !ok {
		return "", "", false
	}
	user, ok := readCounted(r)
	if !ok {
		return "", "", false
	}
	pass, ok := readCounted(r)
	if !ok {
		return "", "", false
	}
	status := byte(0)
	_, ok = g.login(string(user), string(pass))
	if !ok {
		g.refuseSOCKS()
		status = 1
	}
	_, err := c.Write([]byte{socksLogin, status})
	return string(user), string(pass), ok && err == nil
}

func (g *Gateway) refuseSOCKS() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Refused++
}

// readTarget reads the request's host:port.
func readTarget(c *clientConn, r *bufio.Reader) (string, bool) {
	head, ok := readBytes(r, 4)
	if !ok {
		return "", false
	}
	if head[1] != socksConnect {
		replySOCKS(c, socksNoCommand)
		return "", false
	}
	var host string
	var raw []byte
	switch head[3] {
	case socksName:
		raw, ok = readCounted(r)
		host = string(raw)
	case socksIPv4:
		raw, ok = readBytes(r, net.IPv4len)
		host = net.IP(raw).String()
	case socksIPv6:
		raw, ok = readBytes(r, net.IPv6len)
		host = net.IP(raw).String()
	default:
		ok = false
	}
	if !ok {
		return "", false
	}
	port, ok := readBytes(r, 2)
	if !ok {
		return "", false
	}
	return net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port)))), true
}

// replySOCKS answers a request; the bound address is left zero.
func replySOCKS(c *clientConn, reply byte) bool {
	_, err := c.Write([]byte{socksVersion, reply, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err == nil
}

func readBytes(r *bufio.Reader, n int) ([]byte, bool) {
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err == nil
}

// readCounted reads a length byte and so many bytes.
func readCounted(r *bufio.Reader) ([]byte, bool) {
	n, err := r.ReadByte()
	if err != nil {
		return nil, false
	}
	return readBytes(r, int(n))
}
