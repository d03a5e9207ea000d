// Package gateway is a forward proxy with scripted faults: the residential
// gateway of the tests and of `semel demo`, on loopback.
//
// It answers for what real gateways do on the wire: HTTP requests in absolute
// form, CONNECT and SOCKS5, all on one port, logins that hold country and
// session in a provider's syntax, one exit for each session that can be taken
// away, and faults chosen by a function for each request. It counts requests
// and bytes as the gateway sees them, which is what a provider bills.
//
// It leaves to others: which fault happens when (the Fault function; [Random]
// is one), and everything about the site behind it.
//
// Of an https target it sees host and port only, as every proxy does, so
// faults by URL need a plain http target.
package gateway
