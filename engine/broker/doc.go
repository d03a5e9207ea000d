// Package broker reaches NATS servers, and takes messages from their streams.
//
// It answers for: connections and logins (Server), and a durable consumer's
// messages, taken, held, acknowledged or given back (Queue). It leaves to others
// what a message means (intake), when one is taken and what it becomes (engine),
// and sending (delivery).
//
// # Invariants
//
//   - A message that was taken is acknowledged, refused or given back. What is
//     none of these when the process dies comes again, to whoever takes then.
//   - No login is in an error, nor can be printed.
package broker
