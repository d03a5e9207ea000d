// Package address tells the public internet from loopback, private networks and
// what else a request must not be led to.
//
// It answers for which addresses and names these are, in every spelling. It
// leaves to those who send requests where they ask: of a host before the request,
// of the address that is dialled after its name was resolved.
package address

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/net/idna"
)

// ErrPrivate: a host or an address is not on the public internet.
var ErrPrivate = errors.New("private and local addresses are not allowed")

// CheckHost checks a URL's host without asking anyone: it is no private address
// and no name of this machine. It is what can be checked where a proxy resolves
// the names, and so reads addresses in every spelling that inet_aton takes, and
// letters and digits as IDNA maps them: net/http sends them so. Error: ErrPrivate.
func CheckHost(host string) error {
	if privateHost(host) {
		return fmt.Errorf("%w: %s", ErrPrivate, host)
	}
	return nil
}

// Control is a net.Dialer's ControlContext. It is asked with the address that is
// really dialled, after name resolution, so no name and no redirect gets around
// it. Error: ErrPrivate.
func Control(_ context.Context, _, hostport string, _ syscall.RawConn) error {
	if privateAddress(hostport) {
		return fmt.Errorf("%w: %s", ErrPrivate, hostport)
	}
	return nil
}

// reserved are the ranges that are not public beside those that netip knows
// itself (IANA special-purpose registries, RFC 6890 and its updates).
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),    // carrier-grade NAT, and a cloud's metadata
	netip.MustParsePrefix("168.63.129.16/32"), // a cloud's metadata at a public address
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"), // reserved, broadcast
	netip.MustParsePrefix("2001::/23"),   // Teredo and other protocols' own
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("3fff::/20"),
}

var (
	// allocated is what IANA gives out as global unicast: what is outside, but
	// for NAT64, has no place on the internet.
	allocated = netip.MustParsePrefix("2000::/3")

	nat64    = netip.MustParsePrefix("64:ff9b::/96")
	sixToFor = netip.MustParsePrefix("2002::/16")
)

// privateAddress reports whether a host:port, the host being an address, is not
// on the public internet. What cannot be read is not.
func privateAddress(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || privateIP(ip)
}

// privateIP reports whether ip is not a public unicast address, also where it
// carries an IPv4 address inside.
func privateIP(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return true
	}
	for _, p := range reserved {
		if p.Contains(ip) {
			return true
		}
	}
	b := ip.As16()
	switch {
	case nat64.Contains(ip):
		return privateIP(netip.AddrFrom4([4]byte(b[12:16])))
	case sixToFor.Contains(ip):
		return privateIP(netip.AddrFrom4([4]byte(b[2:6])))
	}
	return ip.Is6() && !allocated.Contains(ip)
}

func privateHost(host string) bool {
	if mapped, err := idna.Lookup.ToASCII(host); err == nil {
		host = mapped
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "metadata.google.internal" {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return privateIP(ip)
	}
	ip, ok := parseLegacyIPv4(host)
	return ok && privateIP(ip)
}

// parseLegacyIPv4 reads the spellings of inet_aton: one to four numbers,
// decimal, octal or hexadecimal, the last filling the rest, as in 127.1,
// 0x7f000001 and 2130706433.
func parseLegacyIPv4(host string) (netip.Addr, bool) {
	fields := strings.Split(host, ".")
	if len(fields) > 4 {
		return netip.Addr{}, false
	}
	var address uint64
	for i, field := range fields {
		bits := 8
		if i == len(fields)-1 {
			bits = 8 * (5 - len(fields))
		}
		base := 10
		switch hex, isHex := strings.CutPrefix(field, "0x"); {
		case isHex:
			field, base = hex, 16
		case len(field) > 1 && field[0] == '0':
			base = 8
		}
		n, err := strconv.ParseUint(field, base, bits)
		if err != nil {
			return netip.Addr{}, false
		}
		address = address<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(address >> 24), byte(address >> 16), byte(address >> 8), byte(address)}), true
}
