// Package fetch makes one request and returns one page or one typed error. It
// is the only user of colly.
//
// It answers for everything on the wire: one transport per session, HTTP/1.1,
// proxies and their login, redirects hop by hop, decompression under a cap,
// character sets, exact byte counts, the phase an attempt reached, a timeout
// for each phase, and the address that is really dialled. It also reads
// robots.txt ([ParseRobots], [FetchRobots]) and keeps sessions ([Pool]).
//
// It leaves to others: pacing, retries, what an outcome means (engine), which
// URL is asked for and what makes two URLs the same (parser, intake), and
// which login belongs to a country (proxy).
//
// # How a request travels
//
// Each [Session.Do] makes a fresh colly collector whose transport is the
// attempt itself. colly builds the request and follows the redirects, asking
// our policy; the attempt checks, sends, meters and decodes each hop. colly
// gets no body: its own decompression, character sets and limits have faults
// that lose or invent data.
//
// # Invariants
//
//   - The URL that is sent is the one that was asked for, byte for byte in path
//     and query, whatever colly's URL parser makes of it.
//   - Bytes are counted on the dialled connection, TLS and CONNECT included,
//     and belong to the attempt that holds the connection. Bytes that move
//     after Do has returned are the session's ([Session.LateBytes]).
//   - When Do returns, no dial, tunnel or handshake of its goes on.
//   - No error text and no ProxyCode holds the proxy's login. Headers, and a
//     page that the gateway itself wrote (Trace.ProxyOrigin), its Reason too,
//     are as received.
//   - Nothing in the environment (HTTP_PROXY, COLLY_…) changes anything.
package fetch
