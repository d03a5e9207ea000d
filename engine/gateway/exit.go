package gateway

import (
	"net/http"
	"net/netip"
	"slices"
)

// exitNet holds the exits' addresses: the one that RFC 2544 sets aside for
// tests.
var exitNet = netip.MustParsePrefix("198.18.0.0/15")

// exit is where requests of a session leave.
type exit struct {
	address string
	dead    bool
}

// newExit wants mu held. Addresses come again after 131,072 exits.
func (g *Gateway) newExit() exit {
	n := g.exitsMade % (1 << (32 - exitNet.Bits()))
	g.exitsMade++
	base := exitNet.Addr().As4()
	return exit{address: netip.AddrFrom4([4]byte{base[0], base[1] + byte(n>>16), byte(n >> 8), byte(n)}).String()}
}

// chooseExit wants mu held. It is "" where there is none.
func (g *Gateway) chooseExit(c *clientConn, l Login) string {
	if !g.hasCountry(l.Country) {
		return ""
	}
	if l.Session == "" { // one for each connection
		if c.seen.Exit == "" {
			return g.newExit().address
		}
		return c.seen.Exit
	}
	e, known := g.exits[l.Session]
	switch {
	case e.dead && l.Strict:
		return ""
	case e.dead || !known:
		e = g.newExit()
		g.exits[l.Session] = e
	}
	return e.address
}

func (g *Gateway) hasCountry(code string) bool {
	return code == "" || g.opts.Countries == nil || slices.Contains(g.opts.Countries, code)
}

// noExit is what the gateway answers a login that it has no exit for.
func (g *Gateway) noExit(l Login) Fault {
	f, status := g.provider.lostExit, http.StatusBadGateway
	if !g.hasCountry(l.Country) {
		f, status = g.provider.noExit, http.StatusServiceUnavailable
	}
	f.Kind = Status
	if f.Status == 0 {
		f.Status = status
	}
	return f
}

// KillExit takes a session's exit away, and resets its tunnels. A strict
// session is answered 502 from then on, another gets a new exit and is not
// told.
func (g *Gateway) KillExit(session string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, known := g.exits[session]
	if !known {
		return
	}
	e.dead = true
	g.exits[session] = e
	for _, c := range g.conns {
		if c.seen.Session == session && c.seen.Target != "" {
			c.reset()
		}
	}
}
