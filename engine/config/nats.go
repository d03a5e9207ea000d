package config

import (
	"regexp"
	"strings"

	"semel/engine/broker"
	"semel/engine/delivery"
)

// natsBatch is how many events one delivery to NATS has: enough that waiting for
// the acknowledgements is not what takes the time.
const natsBatch = 256

// streamText is what a stream may be called here: less than NATS allows, and
// nothing that a subject or a shell would read as something else.
var streamText = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// nats reads [nats].
func (l *loader) nats(t *table, c *Config) {
	var username, password, token Secret
	t.secret("username", &username)
	t.secret("password", &password)
	t.secret("token", &token)
	login := broker.Login{Username: username.Reveal(), Password: password.Reveal(), Token: token.Reveal()}
	t.credentials(&login.Credentials)
	l.checkLogin(t)
	c.NATS = t.server(broker.NewServer(login))
	t.done()
}

// server is a NATS server at the table's url, if it has one. That is not shown,
// since it may hold a login.
func (t *table) server(s broker.Server) broker.Server {
	var url string
	if !t.filled("url", &url) {
		return s
	}
	if err := broker.CheckURL(url); err != nil {
		t.l.fault(t.get("url"), "%v", err)
		return s
	}
	return s.At(url)
}

// credentials reads where a file of credentials is. Its content is read by whoever
// connects, at each connect.
func (t *table) credentials(to *string) {
	n := t.get("credentials")
	if n == nil {
		return
	}
	text, _ := n.scalar.(string)
	path, ok := strings.CutPrefix(text, "file:")
	if !ok {
		t.l.fault(n, `credentials are written as "file:PATH", never as they are`)
		return
	}
	*to = t.l.path(path)
}

// checkLogin wants a login to be whole.
func (l *loader) checkLogin(t *table) {
	if username, password := t.node.member("username"), t.node.member("password"); (username == nil) != (password == nil) {
		l.fault(t.node, "username and password belong together")
	}
}

func (l *loader) streamName(at *node, name string) {
	if !streamText.MatchString(name) {
		l.wrong(at, "the name of a stream holds letters, digits, _ and - only")
	}
}

// natsSink reads the settings of a sink of type "nats".
func natsSink(t *table, s *Sink, c *Config) {
	opts := delivery.NATSOptions{Server: t.server(c.NATS), Subject: delivery.DefaultSubject, Timeout: s.Timeout}
	if t.filled("subject", &opts.Subject) {
		if err := delivery.CheckSubject(opts.Subject); err != nil {
			t.l.wrong(t.get("subject"), "%v", err)
		}
	}
	if t.filled("stream", &opts.Stream) {
		t.l.streamName(t.get("stream"), opts.Stream)
	}
	s.Batch = natsBatch
	if t.l.getenv != nil {
		s.Transport = delivery.NewNATS(opts)
	}
}
