// Package gateway is a forward proxy with scripted faults: the residential
// gateway of the tests and of `semel demo`, on loopback.
//
// It answers for what real gateways do on the wire: HTTP requests in absolute
// form, CONNECT and SOCKS5, all on one port, a login that may hold country and
// session, and faults chosen by a function for each request. It counts
// requests and bytes as the gateway sees them, which is what a provider bills.
//
// It leaves to others: which fault happens when (the Fault function; [Random]
// is one), and everything about the site behind it.
//
// Of an https target it sees host and port only, as every proxy does, so
// faults by URL need a plain http target.
package gateway
