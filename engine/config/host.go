package config

import (
	"net/netip"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/idna"
)

// anyHost names the pacing of hosts that have no section of their own.
const anyHost = "*"

// hosts reads [host.*]. What a host's section leaves out is as in "*".
func (l *loader) hosts(t *table, c *Config) {
	l.pacing(t.sub(anyHost, "host"), &c.Hosts[0])
	if t.node == nil {
		return
	}
	for _, m := range t.node.members {
		if m.name == anyHost {
			continue
		}
		host := c.Hosts[0]
		var ok bool
		if host.Name, ok = hostName(m.name); !ok {
			l.fault(m, "is not a host name: without scheme, port and path, \"*.\" only in front")
		}
		if c.host(host.Name) != nil {
			l.fault(m, "host %s has a section already", host.Name)
		}
		l.pacing(l.open(m, "host"), &host)
		c.Hosts = append(c.Hosts, host)
	}
}

func (l *loader) pacing(t *table, h *Host) {
	t.integer("concurrency", &h.Concurrency, 1, 10_000)
	t.duration("interval", &h.Interval, 0)
	t.done()
}

// hostName gives a host's name as URLs are looked up by it: lower case, in
// ASCII, an IP address in its canonical text; false where it is none.
func hostName(name string) (string, bool) {
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.String(), true
	}
	rest, wild := strings.CutPrefix(name, "*.")
	ascii, err := idna.Lookup.ToASCII(rest)
	if err != nil || ascii == "" || strings.ContainsAny(ascii, ":/@*?#[] ") {
		return name, false
	}
	if wild {
		ascii = "*." + ascii
	}
	return ascii, true
}

// Host gives the pacing of a host (url.URL.Hostname of a request): the most
// specific of its own section, those of "*." over a parent domain, and "*".
func (c *Config) Host(name string) Host {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if ascii, ok := hostName(name); ok {
		name = ascii
	}
	if h := c.host(name); h != nil {
		return *h
	}
	for rest := name; ; {
		_, parent, more := strings.Cut(rest, ".")
		if !more {
			return *c.host(anyHost)
		}
		if h := c.host("*." + parent); h != nil {
			return *h
		}
		rest = parent
	}
}

// host finds a section by its very name, nil if there is none.
func (c *Config) host(name string) *Host {
	for i := range c.Hosts {
		if c.Hosts[i].Name == name {
			return &c.Hosts[i]
		}
	}
	return nil
}

// validHeaderValue is stricter than HTTP: what is not ASCII is read differently
// by different servers.
func validHeaderValue(text string) bool {
	for _, r := range text {
		if r > '~' {
			return false
		}
	}
	return httpguts.ValidHeaderFieldValue(text)
}
