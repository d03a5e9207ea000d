package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"semel/engine/config"
)

// Errors of requests that are not let in.
var (
	errToken  = errors.New("the bearer token is missing or wrong")
	errHost   = errors.New("this host is not served here")
	errOrigin = errors.New("a page of another site asks for it")
)

// maxConns bounds the connections of the network: more of them wait.
const maxConns = 256

// ListenNetwork listens at the address of a config's [server].
func ListenNetwork(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving the API: %w", err)
	}
	return netutil.LimitListener(l, maxConns), nil
}

// gate lets in what may come over the network.
type gate struct {
	next    http.Handler
	host    string // that the config names, "" for all of the machine's
	port    string
	token   [sha256.Size]byte
	open    bool // there is no token
	origins *http.CrossOriginProtection
}

// Network answers callers who come over the network to a listener's address,
// which the config of the server names: with the token where there is one, to
// a Host that is this server's, and to no page of another site. There is no
// CORS, and no path that names a file of this machine.
func (h *Handler) Network(s config.Server, at net.Addr) http.Handler {
	g := &gate{
		next: &h.network, open: s.Token == config.Secret{}, token: sha256.Sum256([]byte(s.Token.Reveal())),
		origins: http.NewCrossOriginProtection(),
	}
	g.host, _, _ = net.SplitHostPort(s.Listen)
	_, g.port, _ = net.SplitHostPort(at.String())
	return g
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 { // also of a body that nobody reads: net/http waits for its end
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
	if err := g.check(r); err != nil {
		if errors.Is(err, errToken) {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		newProblem(err).write(w)
		return
	}
	g.next.ServeHTTP(w, r)
}

func (g *gate) check(r *http.Request) error {
	if !g.ours(r) {
		return fmt.Errorf("host %q: %w", r.Host, errHost)
	}
	if err := g.origins.Check(r); err != nil {
		return fmt.Errorf("%w: %w", errOrigin, err)
	}
	probe := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
	if g.open || probe || g.bears(r.Header) {
		return nil
	}
	return fmt.Errorf("%w: send Authorization: Bearer TOKEN", errToken)
}

// bears reports whether a request has the token. Hashes are compared, so that
// the time it takes tells nothing, not even the length.
func (g *gate) bears(header http.Header) bool {
	scheme, token, _ := strings.Cut(header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// ours reports whether a request means this server: a name that somebody lets
// lead here (DNS rebinding) is none of its own. Those are the one that it was
// told to listen at, those of loopback, and the address that the connection
// came to.
func (g *gate) ours(r *http.Request) bool {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil { // without a port it is that of http
		host, port = strings.Trim(r.Host, "[]"), "80"
	}
	if port != g.port || host == "" {
		return false
	}
	if strings.EqualFold(host, "localhost") || strings.EqualFold(host, g.host) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	came, _ := netip.ParseAddrPort(fmt.Sprint(local))
	return ip.IsLoopback() || ip == came.Addr().Unmap()
}
