// Package demo is `semel demo`: the main job against a built-in site, through a
// built-in gateway that fails as residential ones do.
//
// It answers for the site (pages that are the same on every machine, and what
// the rules must make of each), for how often which fault happens, for the
// folder it writes, for killing its working child, and for holding the result
// against the site. It leaves to others: the proxy itself (gateway), and all
// of the work (the command's own run and export, handed in as functions, since
// this package may not import cli).
//
// The site, its rules and its records serve as well in tests and benchmarks of
// other packages: [Site], [Page], [Record], [ParserTOML].
//
// # Invariants
//
//   - Nothing is touched in a folder that is not the demo's own.
//   - The site has a name that cannot exist (shop.example), which only the
//     gateway resolves: jobs, keys and records are the same in every run, though
//     the ports are not.
//   - The gateway's login is made up anew for each run and is on no disk.
//   - Site and gateway live in this process, so that they outlive a killed child
//     and can count what it asks for twice.
package demo
