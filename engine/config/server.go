package config

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Server is [server]: how the API is served over the network, besides the
// socket beside the store.
type Server struct {
	Listen string // host:port; the host may be empty for all addresses, the port 0 for any that is free; "": not at all
	Token  Secret // that callers must bear; the zero Secret: none, and Listen is loopback
}

func (l *loader) server(t *table, s *Server) {
	if n := t.get("token"); n != nil && n.scalar != "" && t.secret("token", &s.Token) && !validToken(s.Token.Reveal()) {
		l.fault(n, "the token must be printable ASCII without spaces: it is sent as a header")
	}
	if t.text("listen", &s.Listen) && s.Listen != "" {
		l.listen(t, s)
	}
	t.done()
}

// listen checks an address, and that it is no open door.
func (l *loader) listen(t *table, s *Server) {
	n := t.get("listen")
	host, port, err := net.SplitHostPort(s.Listen)
	if _, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || strings.ContainsAny(host, " /@?#") {
		l.wrong(n, `must be an address such as "127.0.0.1:7467"`)
		return
	}
	if token := t.get("token"); (token == nil || token.scalar == "") && !isLoopback(host) {
		l.wrong(n, "needs server.token, since it is not loopback")
	}
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

func validToken(text string) bool {
	return validHeaderValue(text) && !strings.ContainsAny(text, " \t")
}
