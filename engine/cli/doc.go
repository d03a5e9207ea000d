// Package cli is Semel's command line.
//
// It answers for: commands and flags, exit codes, the turning of a config into
// engine options, text and JSON for people and programs, progress, signals, and
// files written as a whole or not at all. It leaves to others: what the
// commands on a store do (api), running jobs (engine), and what a config file
// may hold (config).
//
// # Invariants
//
//   - Data goes to stdout, everything else to stderr. With --json stdout holds
//     JSON Lines only.
//   - An error is told once, by Main: "semel: error: …", then where there is
//     something to do "semel: hint: …". Faults of a config file stand one a
//     line as "file:line: key: message" before it.
//   - Commands on a store call api.Service and nothing else: over the socket
//     where semel run holds the store, else over a handler in this process.
//   - A command that only reads opens the store for reading, and none but run
//     creates it.
//   - No credential is printed. Whatever holds one redacts itself.
package cli
