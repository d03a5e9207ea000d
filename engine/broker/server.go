package broker

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
)

// Server says how NATS is reached. The zero Server is one on this host, at NATS's
// own port. It has no login that could be printed.
type Server struct {
	url   string // "": nats.DefaultURL
	login []nats.Option
}

// Login is who a server is told to be asking. The zero Login is nobody.
type Login struct {
	Username, Password string
	Token              string
	Credentials        string // path of a file with a JWT and its key, read at each connect
}

// NewServer is the server on this host, with a login.
func NewServer(login Login) Server {
	var s Server
	if login.Username != "" {
		s.login = append(s.login, nats.UserInfo(login.Username, login.Password))
	}
	if login.Token != "" {
		s.login = append(s.login, nats.Token(login.Token))
	}
	if login.Credentials != "" {
		s.login = append(s.login, nats.UserCredentials(login.Credentials))
	}
	return s
}

// At is the server at a URL that CheckURL accepts, with the same login.
func (s Server) At(url string) Server {
	s.url = url
	return s
}

// String is the URL.
func (s Server) String() string {
	if s.url == "" {
		return nats.DefaultURL
	}
	return s.url
}

// CheckURL accepts the URL of a server, or those of several servers of a cluster
// with commas between them. Its messages leave them out, since they may hold a
// login.
func CheckURL(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		u, err := url.Parse(strings.TrimSpace(part))
		switch {
		case err != nil:
			return errors.New("is not a URL")
		case u.User != nil:
			return errors.New("holds a login: set username and password, token or credentials")
		case u.Scheme != "nats" && u.Scheme != "tls":
			return errors.New("must start with nats:// or tls://")
		case u.Hostname() == "":
			return errors.New("has no host")
		}
	}
	return nil
}

// Connect connects, which takes at most some seconds. A connection that is lost
// afterwards is made anew by itself, for as long as that takes; what is sent
// meanwhile fails at once. Close it.
func (s Server) Connect() (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name("semel"),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // a login may be mended
		nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // whoever waits hears of it; the default prints
	}
	conn, err := nats.Connect(s.String(), append(options, s.login...)...)
	if err != nil {
		return nil, fmt.Errorf("reaching NATS at %s: %w", s, err)
	}
	return conn, nil
}
