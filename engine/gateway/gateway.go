package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Login is who asks, and for which exit. All but the first two come from the
// provider's syntax or from Options.Decode.
type Login struct {
	Username, Password string // as sent

	Country string        // ISO 3166, upper case; "": any
	Session string        // "": none
	TTL     time.Duration // that the session asks for; 0: the provider's. Exits do not end by themselves here
	Strict  bool          // the session fails rather than change its exit
}

// Request is one request as the gateway sees it.
type Request struct {
	Method string // CONNECT for a tunnel, SOCKS for SOCKS5
	URL    string // absolute; host:port of a tunnel or SOCKS5
	Try    int    // how many requests there were for this URL, this one included
	Login  Login
	Exit   string // its address, the session's own
}

// Options of a Gateway. The zero value is an open proxy without faults.
type Options struct {
	Addr               string // "" : a free port of 127.0.0.1
	Username, Password string // the account's own; both "" : no login is asked for

	// Provider is one of Providers, whose syntax adds country and session to
	// the login; "": the login is the account's and nothing else.
	Provider string

	// Decode checks a login instead of all that, and reads it by a syntax of the
	// caller's own; false refuses it.
	Decode func(username, password string) (Login, bool)

	// Countries are those that exits are in; nil: all. A login for another gets
	// the provider's answer.
	Countries []string

	// ExitHeader is the header that tells the exit's address, such as X-Brd-Ip:
	// the client in answers, the one to CONNECT included, and the site in plain
	// requests; "": none does.
	ExitHeader string

	// Fault chooses what happens to a request whose login was right; nil:
	// nothing does. It is called from several goroutines at once.
	Fault func(Request) Fault

	// Dial connects to the site; nil: the network.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Conn is what one client's connection cost.
type Conn struct {
	Target   string // host:port of the tunnel, "" if it carried plain requests
	Session  string // of its last login
	Exit     string // of its last request, "" if it had none
	Requests int    // answered or failed, refused logins too
	Up, Down int64  // bytes from and to the client
}

// Stats are what the gateway has counted.
type Stats struct {
	Requests map[string]int // by URL (host:port for tunnels), logins refused left out
	Refused  int            // requests with a wrong login or none
	Tunnels  int            // CONNECT and SOCKS5 that reached their site
	Up, Down int64          // bytes from and to all clients
	Conns    []Conn         // in the order they came
}

// Gateway is a running proxy.
type Gateway struct {
	opts     Options
	provider provider
	listener net.Listener
	upstream *http.Transport
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu        sync.Mutex
	tries     map[string]int
	stats     Stats
	conns     []*clientConn
	open      map[net.Conn]bool // true: a client's, false: a site's
	exits     map[string]exit   // by session
	exitsMade int
}

// Start listens and serves. Close the gateway.
func Start(opts Options) (*Gateway, error) {
	provider, known := providers[opts.Provider]
	if opts.Provider != "" && !known {
		return nil, fmt.Errorf("starting the gateway: there is no provider %q", opts.Provider)
	}
	addr := opts.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("starting the gateway: %w", err)
	}
	if opts.Dial == nil {
		opts.Dial = new(net.Dialer).DialContext
	}
	g := &Gateway{
		opts:     opts,
		provider: provider,
		listener: listener,
		upstream: &http.Transport{
			DialContext:         opts.Dial,
			DisableCompression:  true,
			MaxIdleConnsPerHost: 64,
		},
		tries: make(map[string]int),
		open:  make(map[net.Conn]bool),
		exits: make(map[string]exit),
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.running.Go(g.accept)
	return g, nil
}

// Addr is the gateway's host:port.
func (g *Gateway) Addr() string { return g.listener.Addr().String() }

// URL is the gateway as an HTTP proxy, without a login.
func (g *Gateway) URL() string { return "http://" + g.Addr() }

// SOCKSURL is the gateway as a SOCKS5 proxy, without a login.
func (g *Gateway) SOCKSURL() string { return "socks5://" + g.Addr() }

// Close ends every connection and returns when all that was started has
// stopped.
func (g *Gateway) Close() {
	g.cancel()
	g.listener.Close()
	g.closeOpen(true) // first: a client that heard of its site's end would say more, and it would count
	g.closeOpen(false)
	g.running.Wait()
	g.upstream.CloseIdleConnections()
}

// closeOpen ends the connections of all clients, or those to all sites.
func (g *Gateway) closeOpen(clients bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c, client := range g.open {
		if client == clients {
			c.Close()
		}
	}
}

// Stats returns a copy of the counters.
func (g *Gateway) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Requests = maps.Clone(g.tries)
	s.Conns = make([]Conn, len(g.conns))
	for i, c := range g.conns {
		s.Conns[i] = c.seen
		s.Conns[i].Up, s.Conns[i].Down = c.up.Load(), c.down.Load()
		s.Up += s.Conns[i].Up
		s.Down += s.Conns[i].Down
	}
	return s
}

// clientConn counts a client's bytes.
type clientConn struct {
	net.Conn
	up, down atomic.Int64
	seen     Conn // under Gateway.mu; its bytes are in up and down
}

func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.up.Add(int64(n))
	return n, err
}

// Write counts first: a client that has read an answer finds it counted.
func (c *clientConn) Write(p []byte) (int, error) {
	c.down.Add(int64(len(p)))
	n, err := c.Conn.Write(p)
	c.down.Add(int64(n - len(p)))
	return n, err
}

// reset closes with RST, as an exit that vanishes does.
func (c *clientConn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

func (g *Gateway) accept() {
	for {
		inner, err := g.listener.Accept()
		if err != nil {
			if g.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			continue // out of descriptors, or a client that was gone at once
		}
		c := &clientConn{Conn: inner}
		if !g.track(inner, true) {
			inner.Close()
			return
		}
		g.mu.Lock()
		g.conns = append(g.conns, c)
		g.mu.Unlock()
		g.running.Go(func() {
			defer g.untrack(inner)
			g.serve(c)
		})
	}
}

// track keeps a connection for Close to end; false if that has begun.
func (g *Gateway) track(c net.Conn, client bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return false
	}
	g.open[c] = client
	return true
}

func (g *Gateway) untrack(c net.Conn) {
	c.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, c)
}

// serve tells the protocol by its first byte.
func (g *Gateway) serve(c *clientConn) {
	r := bufio.NewReader(c)
	first, err := r.Peek(1)
	if err != nil {
		return
	}
	if first[0] == socksVersion {
		g.serveSOCKS(c, r)
		return
	}
	g.serveHTTP(c, r)
}

// admit checks a login and counts the request.
func (g *Gateway) admit(c *clientConn, method, target, username, password string) (Request, bool) {
	login, ok := g.login(username, password)
	g.mu.Lock()
	defer g.mu.Unlock()
	c.seen.Requests++
	c.seen.Session = login.Session
	if !ok {
		g.stats.Refused++
		return Request{}, false
	}
	g.tries[target]++
	c.seen.Exit = g.chooseExit(c, login)
	return Request{Method: method, URL: target, Try: g.tries[target], Login: login, Exit: c.seen.Exit}, true
}

func (g *Gateway) login(username, password string) (Login, bool) {
	var login Login
	var ok bool
	switch {
	case g.opts.Decode != nil:
		login, ok = g.opts.Decode(username, password)
	case g.opts.Provider != "":
		login, ok = g.provider.decode(g.opts.Username, g.opts.Password, username, password)
	case g.opts.Username == "" && g.opts.Password == "":
		ok = true
	default:
		ok = username == g.opts.Username && password == g.opts.Password
	}
	login.Username, login.Password = username, password
	return login, ok
}

// needsLogin reports whether clients must identify themselves.
func (g *Gateway) needsLogin() bool {
	return g.opts.Decode != nil || g.opts.Username != "" || g.opts.Password != ""
}

func (g *Gateway) fault(r Request) Fault {
	if r.Exit == "" {
		return g.noExit(r.Login)
	}
	if g.opts.Fault == nil {
		return Fault{}
	}
	f := g.opts.Fault(r)
	if f.Kind == DeadTunnel && f.Status == 0 {
		f.Status = http.StatusBadGateway
	}
	if f.Kind != Slow {
		g.pause(f.Pause)
	}
	return f
}

// pause waits, at most until Close.
func (g *Gateway) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.ctx.Done():
	}
}

// gone waits until the client has closed its connection, or the gateway does.
// Anything it still sends is thrown away.
func gone(r *bufio.Reader) {
	for {
		if _, err := r.Discard(1); err != nil {
			return
		}
	}
}
